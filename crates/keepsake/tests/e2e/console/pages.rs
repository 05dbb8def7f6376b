//! Pages: what they say, and what they weigh.

use super::browser::Browser;
use super::store_in_console;
use crate::prelude::*;
use crate::support::meaning;
use keepsake_testkit::{EmbeddingsFault, EmbeddingsServer};

const MAX_PAGE_BYTES: usize = 150 * 1024;

#[tokio::test(flavor = "multi_thread")]
async fn pages_show_memories_in_parts_and_errors() {
    let (_deployment, _, _server, store, mut browser) = store_in_console().await;
    let made = store.create("/fact.md", "# A fact\n").await;
    let base = format!("/console/stores/{}", store.id);
    let path = format!("{base}/memories/{}", made["id"].as_str().unwrap());
    for _ in 0..2 {
        let page = browser.open(&path).await;
        page.has("<h1>A fact</h1>");
        page.has("/console/keys/apikey_");
        page.has("Last read</dt><dd><span class=\"none\">never by an agent</span>");
    }
    let file = browser.open(&format!("{path}/file")).await;
    assert_eq!(file.text, "# A fact\n");
    assert_eq!(file.header("content-type"), "text/plain; charset=utf-8");
    assert_eq!(file.header("content-disposition"), "attachment; filename*=UTF-8''fact.md");
    // A directory has the number and the size of the memories below it.
    store.create("/notes/2026/plan.md", "12345").await;
    let root = browser.open(&base).await;
    root.has(">1 memory</span></td><td class=\"num\">5 B</td>");
    let directory = browser.open(&format!("{base}?path=%2Fnotes%2F2026%2F")).await;
    directory.has("<dt>Memories</dt><dd>1</dd>");
    directory.has("aria-current=\"page\"><svg");
    browser.open(&format!("{base}/branch?path=%2Fnotes%2F")).await.has("?path=%2Fnotes%2F2026%2F");
    for query in ["q=FACT", "q=%2Ffact", &format!("q=fact&store={}", store.id)] {
        browser.open(&format!("/console/palette?{query}")).await.has(&path);
    }
    browser.open("/console/palette?q=%2Fnotes%2Ffact").await.lacks(&path);
    let at_path = browser.get(&format!("{base}?path=%2Ffact.md")).await.answered(303);
    assert_eq!(at_path.location(), path);

    for (path, content) in [
        ("/lines.md", "<a&b>\n".repeat(17_000)),
        ("/line.md", "\"'<&>".repeat(20_000)),
        ("/markdown.md", "* <b>\n".repeat(15_000)),
        ("/quotes.md", "> ".repeat(48 << 10)),
    ] {
        let made = store.create(path, &content).await;
        let memory = format!("/console/stores/{}/memories/{}", store.id, made["id"].as_str().unwrap());
        for view in ["", "?raw=1", "?line=500", "/history", "/delete"] {
            let bytes = browser.open(&format!("{memory}{view}")).await.text.len();
            assert!(bytes <= MAX_PAGE_BYTES, "{path}{view}: {bytes}");
        }
        assert_eq!(browser.open(&format!("{memory}/file")).await.text, content);
    }

    let missing = browser.get("/console/stores/memstore_00000000000000000000000001").await.answered(404);
    missing.has("The memory store was not found.");
    missing.has("/console/sign-out");
    missing.has(missing.header("request-id"));
    let unknown = browser.get("/console/nothing").await.answered(404);
    assert_eq!(unknown.header("content-type"), "text/html; charset=utf-8");
    browser.open("/console/search?q=%22&prefix=nonsense").await.has("role=\"alert\"");
    browser.get("/console/audit?from=yesterday").await.answered(400).has("From must be a day");
    let front = browser.request(Method::GET, "/").header("accept", "text/html,*/*");
    assert_eq!(browser.send(front).await.answered(303).location(), "/console");
    assert_eq!(browser.get("/console").await.answered(303).location(), "/console/overview");
}

#[tokio::test(flavor = "multi_thread")]
async fn overview_shows_what_was_read_and_written_and_by_whom() {
    let (_deployment, _, _server, store, mut browser) = store_in_console().await;
    browser.open("/console/overview").await.has("Nothing was written yet");
    let made = store.create("/plan.md", "one").await;
    store.update(&made, &json!({"content": "two"})).await;
    store.read(&made).await;
    // The answer comes after a flush.
    ok(&store.client.get(&format!("{}/readers", store.path)).await);
    let page = browser.open("/console/overview?days=90").await;
    let history = format!("/console/stores/{}/history", store.id);
    for part in
        [">1 read</h2>", ">2 writes</h2>", ": 2 writes</title>", "Show as table", "plan.md", "API keys"]
    {
        page.has(part);
    }
    assert_eq!(page.text.matches("class=\"day\"").count(), 180);
    page.has(&format!("<a href=\"{history}?from="));
    browser.open(&format!("/console/stores/{}/usage?days=7", store.id)).await.has(": 1 read");
    browser.get("/console/overview?days=500").await.answered(400).has("Days must be");
}

#[tokio::test(flavor = "multi_thread")]
async fn search_page_says_what_found_a_hit_and_why() {
    let embeddings = EmbeddingsServer::start(meaning::CONCEPTS).await;
    let (_deployment, tenant, server, client) =
        started_with(Pair::Sqlite, &meaning::config(&embeddings)).await;
    let mut browser = Browser::signed_in(&server.url(), &tenant.key).await;
    let store = Store::of(&client, &tenant);
    for (path, content) in [
        ("/style.md", "She prefers terse replies.\n"),
        ("/ship.md", "We ship on Tuesdays.\n"),
        ("/trip.md", "Bring an umbrella.\n"),
    ] {
        store.create(path, content).await;
    }
    meaning::is_complete(&client, tenant.store_id).await;

    let page = browser.open("/console/search?q=keep+it+short").await;
    page.has("1 hit on this page, best first.</p>");
    page.has("found by meaning, line 1");
    page.has("She prefers terse replies.");
    page.has("<summary>Why</summary><p>Score 0.");
    page.has(": words 0.00, meaning 0.");
    browser.open("/console/search?q=ship+on+tuesdays").await.has("found by words and meaning, line 1");

    let quoted = browser.open("/console/search?q=%22terse+replies%22").await;
    quoted.has("Note: only words were searched, because the query has a quoted phrase.");
    quoted.lacks("found by");
    embeddings.fail(EmbeddingsFault::Unavailable);
    let words = browser.open("/console/search?q=invoices+and+umbrellas").await;
    words.has("Note: only words were searched, because the meaning of the query could not be computed.");
    words.has("/memories/");

    let usage = browser.open(&format!("/console/stores/{}/usage", tenant.store_id)).await;
    usage.has("<dt>Searched by meaning</dt><dd>3 memories, ");
    usage.lacks("<dd>3 memories, 0 B of vectors");
}
