//! The actions of each screen, and their effect on the API.

use std::time::Duration;

use reqwest::Method;
use serde_json::{Value, json};

use super::browser::{Browser, console_on, encoded, write};
use crate::support::client::send;
use crate::support::{Client, Pair, Tenant, eventually};

/// The content of the memory at a path.
async fn content_at(client: &Client, tenant: &Tenant, path: &str) -> Option<String> {
    let memory = memory_at(client, tenant, path).await?;
    Some(memory["content"].as_str().unwrap().to_owned())
}

/// The memory at a path, with its content.
async fn memory_at(client: &Client, tenant: &Tenant, path: &str) -> Option<Value> {
    let (store, path) = (tenant.store_id, encoded(path));
    let list = format!("/v1/memory_stores/{store}/memories?view=full&path={path}");
    let answer = client.get(&list).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    answer.json()["data"].get(0).cloned()
}

fn store_page(tenant: &Tenant) -> String {
    format!("/console/stores/{}", tenant.store_id)
}

#[tokio::test(flavor = "multi_thread")]
async fn stores_are_created_changed_archived_and_deleted() {
    let (_deployment, tenant, server, mut browser) = console_on(Pair::Sqlite).await;
    let client = server.client(&tenant);
    let list = browser.open("/console/stores").await;
    let once = list.field("once");
    let form =
        [("name", "Release <notes>"), ("description", "d"), ("expires_days", "7"), ("once", once.as_str())];
    let made = browser.submit(&list, "/console/stores", &form).await;
    assert_eq!(made.status, 303, "{}", made.text);
    let (path, _) = made.location().split_once('?').unwrap();
    let path = path.to_owned();
    // A form that is sent twice creates one store.
    let again = browser.submit(&list, "/console/stores", &form).await;
    assert_eq!(again.location(), made.location());
    let id = path.rsplit('/').next().unwrap();
    let stores = client.get("/v1/memory_stores").await.json();
    let stores = stores["data"].as_array().unwrap();
    assert_eq!(stores.len(), 2);
    let of_api = format!("/v1/memory_stores/{id}");
    assert_eq!(client.get(&of_api).await.json()["name"], "Release <notes>");
    let found = browser.open("/console/stores?name=RELEASE").await;
    found.has("Release &#60;notes&#62;");
    let others = browser.open("/console/stores?name=nothing").await;
    others.lacks("Release");

    let settings = browser.open(&format!("{path}/settings")).await;
    let edit = [("name", "Notes"), ("description", "other"), ("policy", "reject"), ("expires_days", "")];
    browser.act(&settings, &format!("{path}/settings"), &edit).await;
    let store = client.get(&of_api).await.json();
    assert_eq!(store["name"], "Notes");
    assert_eq!(store["description"], "other");

    browser.act(&settings, &format!("{path}/archive"), &[]).await;
    assert!(client.get(&of_api).await.json()["archived_at"].is_string());
    let delete = format!("{path}/delete");
    let wrong = browser.submit(&settings, &delete, &[("confirm", "notes")]).await;
    assert_eq!(wrong.status, 400, "{}", wrong.text);
    browser.act(&settings, &delete, &[("confirm", "Notes")]).await;
    assert_eq!(client.get(&of_api).await.status, 404);
    // Actions are in the audit like any others.
    let audit = browser.open("/console/audit").await;
    for action in ["create", "archive", "delete"] {
        audit.has(&format!("<code>memory_store.{action}</code>"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn memories_are_written_renamed_pinned_deleted_and_restored() {
    let (_deployment, tenant, server, mut browser) = console_on(Pair::Postgres).await;
    let (client, store) = (server.client(&tenant), store_page(&tenant));
    let new = browser.open(&format!("{store}/new?path=%2Fnotes%2F")).await;
    new.has("value=\"/notes/\"");
    let once = new.field("once");
    let form = [("path", "/notes/a.md"), ("content", "one\r\ntwo\r\n"), ("once", once.as_str())];
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
    let change = [("content", "one\r\ntwo, changed\r\n"), ("base_sha256", base.as_str()), ("newlines", "")];
    browser.act(&edit, &format!("{page}/edit"), &change).await;
    let changed = content_at(&client, &tenant, "/notes/a.md").await.unwrap();
    assert_eq!(changed, "one\ntwo, changed\n");

    let rename = format!("{page}/rename");
    browser.act(&edit, &rename, &[("path", "/notes/b.md")]).await;
    assert!(memory_at(&client, &tenant, "/notes/a.md").await.is_none());
    for (field, shown) in [
        (("action", "pin"), "never, it is pinned"),
        (("action", "unpin"), ""),
        (("expires_at", "2099-01-31T10:00"), "2099-01-31 10:00:00 UTC"),
    ] {
        browser.act(&edit, &format!("{page}/expiry"), &[field]).await;
        browser.open(&page).await.has(shown);
    }

    let delete = browser.open(&format!("{page}/delete")).await;
    let sha256 = delete.field("sha256");
    let deleted = [("sha256", sha256.as_str())];
    let gone = browser.act(&delete, &format!("{page}/delete"), &deleted).await;
    assert!(memory_at(&client, &tenant, "/notes/b.md").await.is_none());
    gone.has("The memory is deleted");
    let versions = format!("/v1/memory_stores/{}/memory_versions", tenant.store_id);
    let versions = client.get(&format!("{versions}?operation=created")).await.json();
    let first = versions["data"][0]["id"].as_str().unwrap();
    let restore = format!("{store}/versions/{first}/restore");
    gone.has(&restore);
    browser.act(&gone, &restore, &[]).await;
    let restored = content_at(&client, &tenant, "/notes/a.md").await.unwrap();
    assert_eq!(restored, "one\ntwo\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn edit_conflict_shows_the_difference_and_loses_nothing() {
    let (_deployment, tenant, server, mut ada) = console_on(Pair::Sqlite).await;
    let client = server.client(&tenant);
    let made = write(&client, tenant.store_id, "/shared.md", "one\ntwo\nthree\n").await;
    let id = made["id"].as_str().unwrap();
    let page = format!("{}/memories/{id}", store_page(&tenant));
    let at = format!("{page}/edit");
    let mut bob = Browser::signed_in(&server.url(), &tenant.key).await;
    let (first, second) = (ada.open(&at).await, bob.open(&at).await);
    let base = first.field("base_sha256");
    let of_ada =
        [("content", "one\ntwo by Ada\nthree\n"), ("base_sha256", base.as_str()), ("path", "/shared.md")];
    ada.act(&first, &at, &of_ada).await;
    // After an error, the form that Bob corrects still starts from the text that he saw.
    let long = "x".repeat(102_401);
    let too_long = [("content", long.as_str()), ("base_sha256", base.as_str())];
    let refused = bob.submit(&second, &at, &too_long).await;
    assert_eq!(refused.status, 400, "{}", refused.text);
    let base = refused.field("base_sha256");
    let of_bob =
        [("content", "one\ntwo by Bob <b>\nthree\n"), ("base_sha256", base.as_str()), ("path", "/shared.md")];
    let conflict = bob.submit(&second, &at, &of_bob).await;
    assert_eq!(conflict.status, 409, "{}", conflict.text);
    conflict.has("Somebody else changed this memory");
    conflict.has("by Ada");
    conflict.has("two by Bob &lt;b>\nthree\n</textarea>");
    let stored = content_at(&client, &tenant, "/shared.md").await.unwrap();
    assert_eq!(stored, "one\ntwo by Ada\nthree\n");
    // Now Bob has seen Ada's text, and replaces it knowingly.
    let base = conflict.field("base_sha256");
    let both = [("content", "one\ntwo by both\nthree\n"), ("base_sha256", base.as_str())];
    bob.act(&conflict, &at, &both).await;
    let stored = content_at(&client, &tenant, "/shared.md").await.unwrap();
    assert_eq!(stored, "one\ntwo by both\nthree\n");

    let edit = ada.open(&at).await;
    let base = edit.field("base_sha256");
    let memory = format!("/v1/memory_stores/{}/memories/{id}", tenant.store_id);
    send(client.request(Method::DELETE, &memory)).await;
    let late = [("content", "late text"), ("base_sha256", base.as_str()), ("path", "/shared.md")];
    let kept = ada.submit(&edit, &at, &late).await;
    assert_eq!(kept.status, 409, "{}", kept.text);
    kept.has("late text");
    kept.has("value=\"/shared.md\"");
}

#[tokio::test(flavor = "multi_thread")]
async fn versions_are_compared_and_redacted() {
    let (_deployment, tenant, server, mut browser) = console_on(Pair::Postgres).await;
    let (client, store) = (server.client(&tenant), store_page(&tenant));
    let secret = "the password is hunter2\n";
    let made = write(&client, tenant.store_id, "/secret.md", secret).await;
    let id = made["id"].as_str().unwrap();
    let page = format!("{store}/memories/{id}");
    let edit = browser.open(&format!("{page}/edit")).await;
    let base = edit.field("base_sha256");
    let change = [("content", "the password is gone\n"), ("base_sha256", base.as_str())];
    browser.act(&edit, &format!("{page}/edit"), &change).await;
    let versions = format!("/v1/memory_stores/{}/memory_versions?memory_id={id}", tenant.store_id);
    let versions = client.get(&versions).await.json();
    let [newer, older] = [0_usize, 1].map(|place| versions["data"][place]["id"].as_str().unwrap());
    for view in ["inline", "split"] {
        let compare = format!("{store}/compare?to={newer}&view={view}");
        let shown = browser.open(&format!("{compare}&from={older}")).await;
        for part in ["hunter2", "gone", "@@ -1,1 +1,1 @@"] {
            shown.has(part);
        }
        browser.open(&compare).await.has("hunter2");
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
    let steps = "first\nDeploy with <script> on Friday\n";
    write(&client, tenant.store_id, "/deploy/steps.md", steps).await;
    write(&client, tenant.store_id, "/other.md", "deploy never\n").await;
    let found = browser.open("/console/search?q=deploy").await;
    found.has("<mark>Deploy</mark> with &lt;script&gt;");
    found.has("2 hits");
    let of_store = format!("store={}", tenant.store_id);
    for (filter, shown) in [
        ("prefix=%2Fdeploy%2F", "1 hit "),
        (&of_store, "2 hits"),
        ("author=tests", "2 hits"),
        ("author=nobody", "Nothing was found"),
        ("to=2020-01-01", "Nothing was found"),
        ("from=2020-01-01", "2 hits"),
    ] {
        let page = browser.open(&format!("/console/search?q=deploy&{filter}")).await;
        page.has(shown);
    }
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
    let calls = format!("/v1/sessions/{id}/tool_calls");
    let called = agent.post(&calls, &create).await;
    assert_eq!(called.status, 200, "{}", called.text);
    let listed = browser.open("/console/sessions").await;
    listed.has("Nightly &#60;run&#62;");
    let at = format!("/console/sessions/{id}");
    let page = browser.open(&at).await;
    for part in ["Be brief.", "memory create", "seen.md"] {
        page.has(part);
    }
    browser.act(&page, &format!("{at}/end"), &[]).await;
    let session = client.get(&format!("/v1/sessions/{id}")).await.json();
    assert!(session["archived_at"].is_string());
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_are_created_shown_once_and_revoked() {
    let (_deployment, tenant, server, mut browser) = console_on(Pair::Sqlite).await;
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
    let (_, rest) = made.text.split_once("id=\"secret\">").unwrap();
    let secret = rest.split_once('<').unwrap().0.to_owned();
    made.has(&format!("/mcp/{store}"));
    let client = server.client(&tenant).with_key(&secret);
    let seen = client.get(&format!("/v1/memory_stores/{store}")).await;
    assert_eq!(seen.status, 200, "{}", seen.text);
    let again = browser.submit(&keys, "/console/keys", &form).await;
    assert_eq!(again.status, 200);
    again.lacks(&secret);
    again.has("sent before");
    let listed = browser.open("/console/keys").await;
    listed.has("Bob&#39;s laptop");
    listed.lacks(&secret);

    let issued = server.client(&tenant).get("/v1/api_keys").await.json();
    let mut issued = issued["data"].as_array().unwrap().iter();
    let of_bob = issued.find(|key| key["name"] == "Bob's laptop").unwrap();
    let id = of_bob["id"].as_str().unwrap();
    let key = browser.open(&format!("/console/keys/{id}")).await;
    let revoke = format!("/console/keys/{id}/revoke");
    browser.act(&key, &revoke, &[]).await;
    let key = server.client(&tenant).get(&format!("/v1/api_keys/{id}")).await.json();
    assert!(key["revoked_at"].is_string(), "{key}");
}

#[tokio::test(flavor = "multi_thread")]
async fn audit_is_filtered_and_saved() {
    let (_deployment, _tenant, _server, mut browser) = console_on(Pair::Sqlite).await;
    let list = browser.open("/console/stores").await;
    let new = [("name", "audited"), ("once", "1")];
    browser.act(&list, "/console/stores", &new).await;
    let all = browser.open("/console/audit?action=memory_store.create").await;
    all.has("memory_store.create");
    let none = browser.open("/console/audit?action=session.create").await;
    none.has("There are no entries");
    let export = "/console/audit/export?action=memory_store.create&format=csv";
    let csv = browser.open(export).await;
    assert_eq!(csv.header("content-type"), "text/csv; charset=utf-8");
    let head = "created_at,actor,action,object_id,memory_store_id\r\n";
    assert!(csv.text.starts_with(head), "{}", csv.text);
    csv.has("\"memory_store.create\",\"memstore_");
    let lines = browser.open("/console/audit/export?format=jsonl").await;
    let entry: Value = serde_json::from_str(lines.text.lines().next().unwrap()).unwrap();
    assert_eq!(entry["action"], "memory_store.create");
}

#[tokio::test(flavor = "multi_thread")]
async fn erasure_has_a_preview_a_confirmation_and_a_receipt() {
    let (_deployment, tenant, server, mut browser) = console_on(Pair::Sqlite).await;
    let client = server.client(&tenant);
    write(&client, tenant.store_id, "/people/ada.md", "about Ada\n").await;
    write(&client, tenant.store_id, "/kept.md", "kept\n").await;
    let preview = format!("/console/erasures/preview?store={}&prefix=%2Fpeople%2F", tenant.store_id);
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
    let is_done = async || {
        let page = browser.clone().get(&receipt).await;
        page.text.contains("<span class=\"badge\">done</span>")
    };
    eventually("the erasure is done", Duration::from_secs(20), is_done).await;
    assert!(memory_at(&client, &tenant, "/people/ada.md").await.is_none());
    assert!(memory_at(&client, &tenant, "/kept.md").await.is_some());
    browser.open("/console/erasures").await.has("a directory");
}

#[tokio::test(flavor = "multi_thread")]
async fn usage_shows_quotas_and_unused_memories() {
    let (_deployment, tenant, server, mut browser) = console_on(Pair::Postgres).await;
    let client = server.client(&tenant);
    write(&client, tenant.store_id, "/unread.md", "x\n").await;
    let all = browser.open("/console/usage").await;
    all.has("<meter");
    all.has("1 of 1,000");
    let store = browser.open(&format!("{}/usage", store_page(&tenant))).await;
    store.has("1 in all, at most 1 a day");
    store.has("unread.md");
    store.has("1 memories were never read");
}
