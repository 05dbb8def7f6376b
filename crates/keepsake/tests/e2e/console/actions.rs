//! The actions of each screen, and their effect on the API.

use std::time::Duration;

use reqwest::Method;
use serde_json::{Value, json};

use super::browser::{Browser, console_on, encoded};
use crate::support::client::send;
use crate::support::{Client, Pair, Tenant, eventually};

/// The memory at a path, with its content.
async fn memory_at(client: &Client, tenant: &Tenant, path: &str) -> Option<Value> {
    let list = format!(
        "/v1/memory_stores/{}/memories?view=full&path={}",
        tenant.store_id,
        encoded(path)
    );
    let answer = client.get(&list).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    answer.json()["data"].get(0).cloned()
}

async fn write(client: &Client, tenant: &Tenant, path: &str, content: &str) -> String {
    let new = json!({"path": path, "content": content});
    let made = client
        .post(&format!("/v1/memory_stores/{}/memories", tenant.store_id), &new)
        .await;
    assert_eq!(made.status, 200, "{}", made.text);
    made.json()["id"].as_str().unwrap().to_owned()
}

fn store_page(tenant: &Tenant) -> String {
    format!("/console/stores/{}", tenant.store_id)
}

#[tokio::test(flavor = "multi_thread")]
async fn stores_are_created_changed_archived_and_deleted_on_sqlite() {
    stores_are_created_changed_archived_and_deleted(Pair::Sqlite).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn stores_are_created_changed_archived_and_deleted_on_postgres() {
    stores_are_created_changed_archived_and_deleted(Pair::Postgres).await;
}

async fn stores_are_created_changed_archived_and_deleted(pair: Pair) {
    let (_deployment, tenant, server, mut browser) = console_on(pair).await;
    let client = server.client(&tenant);
    let list = browser.open("/console/stores").await;
    let once = list.field("once");
    let form = [
        ("name", "Release <notes>"),
        ("description", "d"),
        ("expires_days", "7"),
        ("once", once.as_str()),
    ];
    let made = browser.submit(&list, "/console/stores", &form).await;
    assert_eq!(made.status, 303, "{}", made.text);
    let (path, _) = made.location().split_once('?').unwrap();
    let path = path.to_owned();
    // A form that is sent twice creates one store.
    let again = browser.submit(&list, "/console/stores", &form).await;
    assert_eq!(again.location(), made.location());
    let id = path.rsplit('/').next().unwrap();
    let store = client.get(&format!("/v1/memory_stores/{id}")).await.json();
    assert_eq!(store["name"], "Release <notes>");
    assert_eq!(
        client.get("/v1/memory_stores").await.json()["data"]
            .as_array()
            .unwrap()
            .len(),
        2
    );
    browser
        .open("/console/stores?name=RELEASE")
        .await
        .has("Release &#60;notes&#62;");
    browser
        .open("/console/stores?name=nothing")
        .await
        .lacks("Release");

    let settings = browser.open(&format!("{path}/settings")).await;
    let edit = [
        ("name", "Notes"),
        ("description", "other"),
        ("policy", "reject"),
        ("expires_days", ""),
    ];
    browser.act(&settings, &format!("{path}/settings"), &edit).await;
    let store = client.get(&format!("/v1/memory_stores/{id}")).await.json();
    assert_eq!(
        (store["name"].as_str(), store["description"].as_str()),
        (Some("Notes"), Some("other"))
    );

    browser.act(&settings, &format!("{path}/archive"), &[]).await;
    assert!(client.get(&format!("/v1/memory_stores/{id}")).await.json()["archived_at"].is_string());
    let wrong = browser
        .submit(&settings, &format!("{path}/delete"), &[("confirm", "notes")])
        .await;
    assert_eq!(wrong.status, 400, "{}", wrong.text);
    browser
        .act(&settings, &format!("{path}/delete"), &[("confirm", "Notes")])
        .await;
    assert_eq!(client.get(&format!("/v1/memory_stores/{id}")).await.status, 404);
    // Actions are in the audit like any others.
    let audit = browser.open("/console/audit").await;
    for action in [
        "memory_store.create",
        "memory_store.archive",
        "memory_store.delete",
    ] {
        audit.has(&format!("<code>{action}</code>"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn memories_are_written_renamed_pinned_deleted_and_restored() {
    let (_deployment, tenant, server, mut browser) = console_on(Pair::Postgres).await;
    let (client, store) = (server.client(&tenant), store_page(&tenant));
    let new = browser.open(&format!("{store}/new?path=%2Fnotes%2F")).await;
    new.has("value=\"/notes/\"");
    let once = new.field("once");
    let form = [
        ("path", "/notes/a.md"),
        ("content", "one\r\ntwo\r\n"),
        ("once", once.as_str()),
    ];
    browser.act(&new, &format!("{store}/new"), &form).await;
    let memory = memory_at(&client, &tenant, "/notes/a.md").await.unwrap();
    assert_eq!(memory["content"], "one\ntwo\n");
    let page = format!("{store}/memories/{}", memory["id"].as_str().unwrap());

    // A path that is taken: the text stays in the form.
    let taken = [("path", "/notes/a.md"), ("content", "my text"), ("once", "other")];
    let taken = browser.submit(&new, &format!("{store}/new"), &taken).await;
    assert_eq!(taken.status, 400);
    taken.has("my text");
    taken.has("role=\"alert\"");

    let edit = browser.open(&format!("{page}/edit")).await;
    edit.has(">\none\ntwo\n</textarea>");
    let base = edit.field("base_sha256");
    let change = [
        ("content", "one\r\ntwo, changed\r\n"),
        ("base_sha256", base.as_str()),
        ("newlines", ""),
    ];
    browser.act(&edit, &format!("{page}/edit"), &change).await;
    assert_eq!(
        memory_at(&client, &tenant, "/notes/a.md").await.unwrap()["content"],
        "one\ntwo, changed\n"
    );

    browser
        .act(&edit, &format!("{page}/rename"), &[("path", "/notes/b.md")])
        .await;
    assert!(memory_at(&client, &tenant, "/notes/a.md").await.is_none());
    browser
        .act(&edit, &format!("{page}/expiry"), &[("action", "pin")])
        .await;
    browser.open(&page).await.has("never, it is pinned");
    browser
        .act(&edit, &format!("{page}/expiry"), &[("action", "unpin")])
        .await;
    browser
        .act(
            &edit,
            &format!("{page}/expiry"),
            &[("expires_at", "2099-01-31T10:00")],
        )
        .await;
    browser.open(&page).await.has("2099-01-31 10:00:00 UTC");

    let delete = browser.open(&format!("{page}/delete")).await;
    let sha256 = delete.field("sha256");
    let gone = browser
        .act(&delete, &format!("{page}/delete"), &[("sha256", sha256.as_str())])
        .await;
    assert!(memory_at(&client, &tenant, "/notes/b.md").await.is_none());
    gone.has("The memory is deleted");
    let versions = client
        .get(&format!(
            "/v1/memory_stores/{}/memory_versions?operation=created",
            tenant.store_id
        ))
        .await
        .json();
    let first = versions["data"][0]["id"].as_str().unwrap();
    gone.has(&format!("{store}/versions/{first}/restore"));
    browser
        .act(&gone, &format!("{store}/versions/{first}/restore"), &[])
        .await;
    assert_eq!(
        memory_at(&client, &tenant, "/notes/a.md").await.unwrap()["content"],
        "one\ntwo\n"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn edit_conflict_shows_the_difference_and_loses_nothing() {
    let (_deployment, tenant, server, mut ada) = console_on(Pair::Sqlite).await;
    let client = server.client(&tenant);
    let id = write(&client, &tenant, "/shared.md", "one\ntwo\nthree\n").await;
    let page = format!("{}/memories/{id}", store_page(&tenant));
    let mut bob = Browser::signed_in(&server.url(), &tenant.key).await;
    let (first, second) = (
        ada.open(&format!("{page}/edit")).await,
        bob.open(&format!("{page}/edit")).await,
    );
    let base = first.field("base_sha256");
    let of_ada = [
        ("content", "one\ntwo by Ada\nthree\n"),
        ("base_sha256", base.as_str()),
        ("path", "/shared.md"),
    ];
    ada.act(&first, &format!("{page}/edit"), &of_ada).await;
    let of_bob = [
        ("content", "one\ntwo by Bob <b>\nthree\n"),
        ("base_sha256", base.as_str()),
        ("path", "/shared.md"),
    ];
    let conflict = bob.submit(&second, &format!("{page}/edit"), &of_bob).await;
    assert_eq!(conflict.status, 409, "{}", conflict.text);
    conflict.has("Somebody else changed this memory");
    conflict.has("by Ada");
    conflict.has("two by Bob &lt;b>\nthree\n</textarea>");
    assert_eq!(
        memory_at(&client, &tenant, "/shared.md").await.unwrap()["content"],
        "one\ntwo by Ada\nthree\n"
    );
    // Now Bob has seen Ada's text, and replaces it knowingly.
    let base = conflict.field("base_sha256");
    let both = [
        ("content", "one\ntwo by both\nthree\n"),
        ("base_sha256", base.as_str()),
    ];
    bob.act(&conflict, &format!("{page}/edit"), &both).await;
    assert_eq!(
        memory_at(&client, &tenant, "/shared.md").await.unwrap()["content"],
        "one\ntwo by both\nthree\n"
    );

    let edit = ada.open(&format!("{page}/edit")).await;
    let base = edit.field("base_sha256");
    send(client.request(
        Method::DELETE,
        &format!("/v1/memory_stores/{}/memories/{id}", tenant.store_id),
    ))
    .await;
    let late = [
        ("content", "late text"),
        ("base_sha256", base.as_str()),
        ("path", "/shared.md"),
    ];
    let kept = ada.submit(&edit, &format!("{page}/edit"), &late).await;
    assert_eq!(kept.status, 409, "{}", kept.text);
    kept.has("late text");
    kept.has("value=\"/shared.md\"");
}

#[tokio::test(flavor = "multi_thread")]
async fn versions_are_compared_and_redacted() {
    let (_deployment, tenant, server, mut browser) = console_on(Pair::Postgres).await;
    let (client, store) = (server.client(&tenant), store_page(&tenant));
    let id = write(&client, &tenant, "/secret.md", "the password is hunter2\n").await;
    let page = format!("{store}/memories/{id}");
    let edit = browser.open(&format!("{page}/edit")).await;
    let base = edit.field("base_sha256");
    browser
        .act(
            &edit,
            &format!("{page}/edit"),
            &[
                ("content", "the password is gone\n"),
                ("base_sha256", base.as_str()),
            ],
        )
        .await;
    let versions = client
        .get(&format!(
            "/v1/memory_stores/{}/memory_versions?memory_id={id}",
            tenant.store_id
        ))
        .await
        .json();
    let (newer, older) = (
        versions["data"][0]["id"].as_str().unwrap(),
        versions["data"][1]["id"].as_str().unwrap(),
    );
    for view in ["inline", "split"] {
        let shown = browser
            .open(&format!("{store}/compare?from={older}&to={newer}&view={view}"))
            .await;
        shown.has("hunter2");
        shown.has("gone");
        shown.has("@@ -1,1 +1,1 @@");
        let same = browser
            .open(&format!("{store}/compare?to={newer}&view={view}"))
            .await;
        same.has("hunter2");
    }
    let live = browser.open(&format!("{store}/versions/{newer}/redact")).await;
    live.has("A live memory has this content now");
    let redact = format!("{store}/versions/{older}/redact");
    let preview = browser.open(&redact).await;
    preview.has("hunter2");
    let unconfirmed = browser.submit(&preview, &redact, &[("confirm", "yes")]).await;
    assert_eq!(unconfirmed.status, 400);
    let redacted = browser.act(&preview, &redact, &[("confirm", "redact")]).await;
    redacted.lacks("hunter2");
    for path in [
        format!("{store}/history"),
        format!("{page}/history"),
        format!("{store}/compare?from={older}&to={newer}"),
        format!("{store}/versions/{older}"),
        page.clone(),
        "/console/search?q=hunter2".to_owned(),
        "/console/audit".to_owned(),
    ] {
        let text = browser.open(&path).await.text.replace("value=\"hunter2\"", "");
        assert!(!text.contains("hunter2"), "{path}: {text}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn search_marks_what_it_finds_and_filters_it() {
    let (_deployment, tenant, server, mut browser) = console_on(Pair::Sqlite).await;
    let client = server.client(&tenant);
    write(
        &client,
        &tenant,
        "/deploy/steps.md",
        "first\nDeploy with <script> on Friday\n",
    )
    .await;
    write(&client, &tenant, "/other.md", "deploy never\n").await;
    let found = browser.open("/console/search?q=deploy").await;
    found.has("<mark>Deploy</mark> with &lt;script&gt;");
    found.has("2 hits");
    browser
        .open("/console/search?q=deploy&prefix=%2Fdeploy%2F")
        .await
        .has("1 hit ");
    browser
        .open(&format!("/console/search?q=deploy&store={}", tenant.store_id))
        .await
        .has("2 hits");
    browser
        .open("/console/search?q=deploy&author=tests")
        .await
        .has("2 hits");
    browser
        .open("/console/search?q=deploy&author=nobody")
        .await
        .has("Nothing was found");
    browser
        .open("/console/search?q=deploy&to=2020-01-01")
        .await
        .has("Nothing was found");
    browser
        .open("/console/search?q=deploy&from=2020-01-01")
        .await
        .has("2 hits");
}

#[tokio::test(flavor = "multi_thread")]
async fn sessions_show_what_the_agent_did_and_are_ended() {
    let (_deployment, tenant, server, mut browser) = console_on(Pair::Sqlite).await;
    let client = server.client(&tenant);
    let resources = json!([{"type": "memory_store", "memory_store_id": tenant.store_id.to_string(), "instructions": "Be brief."}]);
    let draft = json!({"agent": "agent_1", "environment_id": "env_1", "title": "Nightly <run>", "resources": resources});
    let made = client.post("/v1/sessions", &draft).await;
    assert_eq!(made.status, 200, "{}", made.text);
    let (made, id) = (made.json(), made.json()["id"].as_str().unwrap().to_owned());
    let agent = client.with_key(made["token"].as_str().unwrap());
    let create = json!({"command": "create", "path": "/memories/notes/seen.md", "file_text": "x"});
    let called = agent
        .post(&format!("/v1/sessions/{id}/tool_calls"), &create)
        .await;
    assert_eq!(called.status, 200, "{}", called.text);
    browser
        .open("/console/sessions")
        .await
        .has("Nightly &#60;run&#62;");
    let page = browser.open(&format!("/console/sessions/{id}")).await;
    page.has("Be brief.");
    page.has("memory create");
    page.has("seen.md");
    browser
        .act(&page, &format!("/console/sessions/{id}/end"), &[])
        .await;
    assert!(client.get(&format!("/v1/sessions/{id}")).await.json()["archived_at"].is_string());
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_are_created_shown_once_and_revoked() {
    let (_deployment, tenant, server, mut browser) = console_on(Pair::Postgres).await;
    let keys = browser.open("/console/keys").await;
    let once = keys.field("once");
    let store = tenant.store_id.to_string();
    let form = [
        ("name", "Bob's laptop"),
        ("scope", "memory:read"),
        ("store", store.as_str()),
        ("expires_days", "30"),
        ("once", once.as_str()),
    ];
    let made = browser.submit(&keys, "/console/keys", &form).await;
    assert_eq!(made.status, 200, "{}", made.text);
    assert_eq!(made.header("cache-control"), "private, no-store");
    let (_, rest) = made.text.split_once("id=\"secret\">").unwrap();
    let secret = rest.split_once('<').unwrap().0.to_owned();
    made.has(&format!("/mcp/{store}"));
    let client = server.client(&tenant).with_key(&secret);
    assert_eq!(
        client.get(&format!("/v1/memory_stores/{store}")).await.status,
        200
    );
    let again = browser.submit(&keys, "/console/keys", &form).await;
    assert_eq!(again.status, 200);
    again.lacks(&secret);
    again.has("sent before");
    let listed = browser.open("/console/keys").await;
    listed.has("Bob&#39;s laptop");
    listed.lacks(&secret);

    let issued = server.client(&tenant).get("/v1/api_keys").await.json();
    let of_bob = |key: &&Value| key["name"] == "Bob's laptop";
    let id = issued["data"].as_array().unwrap().iter().find(of_bob).unwrap()["id"]
        .as_str()
        .unwrap()
        .to_owned();
    let key = browser.open(&format!("/console/keys/{id}")).await;
    browser
        .act(&key, &format!("/console/keys/{id}/revoke"), &[])
        .await;
    eventually("the key is revoked", Duration::from_secs(8), async || {
        client.get(&format!("/v1/memory_stores/{store}")).await.status == 401
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn audit_is_filtered_and_saved() {
    let (_deployment, tenant, _server, mut browser) = console_on(Pair::Sqlite).await;
    let list = browser.open("/console/stores").await;
    browser
        .act(&list, "/console/stores", &[("name", "audited"), ("once", "1")])
        .await;
    let all = browser.open("/console/audit?action=memory_store.create").await;
    all.has("memory_store.create");
    browser
        .open("/console/audit?action=session.create")
        .await
        .has("There are no entries");
    let csv = browser
        .open("/console/audit/export?format=csv&action=memory_store.create")
        .await;
    assert_eq!(csv.header("content-type"), "text/csv; charset=utf-8");
    assert!(
        csv.text
            .starts_with("created_at,actor,action,object_id,memory_store_id\r\n"),
        "{}",
        csv.text
    );
    assert!(
        csv.text.contains("\"memory_store.create\",\"memstore_"),
        "{}",
        csv.text
    );
    let lines = browser.open("/console/audit/export?format=jsonl").await;
    let entry: Value = serde_json::from_str(lines.text.lines().next().unwrap()).unwrap();
    assert_eq!(entry["action"], "memory_store.create");
    drop(tenant);
}

#[tokio::test(flavor = "multi_thread")]
async fn erasure_has_a_preview_a_confirmation_and_a_receipt() {
    let (_deployment, tenant, server, mut browser) = console_on(Pair::Sqlite).await;
    let client = server.client(&tenant);
    write(&client, &tenant, "/people/ada.md", "about Ada\n").await;
    write(&client, &tenant, "/kept.md", "kept\n").await;
    let preview = format!(
        "/console/erasures/preview?store={}&prefix=%2Fpeople%2F",
        tenant.store_id
    );
    let page = browser.open(&preview).await;
    page.has("1 live file");
    page.has("ada.md");
    let (once, store) = (page.field("once"), tenant.store_id.to_string());
    let mut form = vec![
        ("store", store.as_str()),
        ("prefix", "/people/"),
        ("once", once.as_str()),
        ("confirm", "people"),
    ];
    let refused = browser.submit(&page, "/console/erasures", &form).await;
    assert_eq!(refused.status, 400, "{}", refused.text);
    form[3].1 = "notes";
    let begun = browser.submit(&page, "/console/erasures", &form).await;
    assert_eq!(begun.status, 303, "{}", begun.text);
    let receipt = begun.location().to_owned();
    eventually("the erasure is done", Duration::from_secs(20), async || {
        browser
            .clone()
            .get(&receipt)
            .await
            .text
            .contains("<span class=\"badge\">done</span>")
    })
    .await;
    assert!(memory_at(&client, &tenant, "/people/ada.md").await.is_none());
    assert!(memory_at(&client, &tenant, "/kept.md").await.is_some());
    browser.open("/console/erasures").await.has("a directory");
}

#[tokio::test(flavor = "multi_thread")]
async fn usage_shows_quotas_and_unused_memories() {
    let (_deployment, tenant, server, mut browser) = console_on(Pair::Postgres).await;
    let client = server.client(&tenant);
    write(&client, &tenant, "/unread.md", "x\n").await;
    let all = browser.open("/console/usage").await;
    all.has("<meter");
    all.has("1 of 1,000");
    let store = browser.open(&format!("{}/usage", store_page(&tenant))).await;
    store.has("1 in all, at most 1 a day");
    store.has("unread.md");
    store.has("1 memories were never read");
}
