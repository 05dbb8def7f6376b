//! What was deleted, what was, and what is taken back.

use super::browser::console_on;
use crate::api::support::{Store, text};
use crate::support::Pair;

#[tokio::test(flavor = "multi_thread")]
async fn deleted_memories_are_found_by_list_link_and_path_and_restored() {
    let (_deployment, tenant, server, mut browser) = console_on(Pair::Sqlite).await;
    let store = Store::of(&server.client(&tenant), &tenant);
    let base = format!("/console/stores/{}", store.id);
    for number in 0..101 {
        store.delete(&store.create(&format!("/{number}.md"), "x").await).await;
    }
    let memory = store.create("/fact.md", "a fact\n").await;
    let page = format!("{base}/memories/{}", text(&memory["id"]));
    store.delete(&memory).await;

    let newest = browser.open(&format!("{base}/deleted")).await;
    newest.has(&page);
    assert!(newest.text.find("fact.md").unwrap() < newest.text.find("100.md").unwrap());
    newest.lacks("/</span>0.md");
    let (_, next) = newest.text.split_once("rel=\"next\" href=\"").unwrap();
    let next = next.split_once('"').unwrap().0;
    browser.open(&format!("{base}/deleted{next}")).await.has("/</span>0.md");
    browser.open(&format!("{base}/history?operation=deleted")).await.has(&format!("{base}/deleted"));
    assert_eq!(browser.get(&format!("{base}?path=%2Ffact.md")).await.answered(303).location(), page);

    // The first of its versions that can be restored is the last one with a content.
    let shown = browser.open(&page).await;
    shown.has("It can be restored until");
    let restore = format!("{base}/versions/{}/restore", text(&memory["memory_version_id"]));
    shown.has(&format!("action=\"{restore}\""));
    browser.act(&shown, &restore, &[]).await.has("a fact");
    browser.open(&format!("{base}/deleted")).await.lacks("fact.md");
}
