//! Every page: its headers, its weight, and its main content.

use keepsake_index::Scope;
use reqwest::Method;
use serde_json::json;

use super::browser::{Browser, console_on, encoded};
use crate::support::{Pair, Server, Tenant};

/// Maximum bytes of a page.
const MAX_PAGE_BYTES: usize = 150 * 1024;

/// A store with a memory of two versions, and a session; their paths.
async fn furnished(server: &Server, tenant: &Tenant) -> Vec<String> {
    let client = server.client(tenant);
    let store = format!("/v1/memory_stores/{}", tenant.store_id);
    let new = json!({"path": "/notes/process.md", "content": "# Process\n\nTag, then build.\n"});
    let memory = client.post(&format!("{store}/memories"), &new).await.json();
    let memory = memory["id"].as_str().unwrap();
    let edit = json!({"content": "# Process\n\nBuild, then tag.\n"});
    let edited = client.post(&format!("{store}/memories/{memory}"), &edit).await;
    let version = edited.json()["memory_version_id"].as_str().unwrap().to_owned();
    let console = format!("/console/stores/{}", tenant.store_id);
    vec![
        "/console/stores".to_owned(),
        "/console/stores?name=no&archived=1".to_owned(),
        console.clone(),
        format!("{console}?path=%2Fnotes%2F"),
        format!("{console}/settings"),
        format!("{console}/new?path=%2Fnotes%2F"),
        format!("{console}/history"),
        format!("{console}/history?operation=modified&from=2020-01-01"),
        format!("{console}/usage"),
        format!("{console}/compare?to={version}"),
        format!("{console}/compare?to={version}&view=split"),
        format!("{console}/versions/{version}"),
        format!("{console}/versions/{version}/redact"),
        format!("{console}/memories/{memory}"),
        format!("{console}/memories/{memory}?raw=1"),
        format!("{console}/memories/{memory}/edit"),
        format!("{console}/memories/{memory}/delete"),
        format!("{console}/memories/{memory}/history"),
        "/console/search".to_owned(),
        "/console/search?q=build".to_owned(),
        "/console/search?q=build&author=tests&from=2020-01-01".to_owned(),
        "/console/sessions".to_owned(),
        "/console/usage".to_owned(),
        "/console/keys".to_owned(),
        "/console/audit".to_owned(),
        "/console/audit?action=memory_store.create".to_owned(),
        "/console/erasures".to_owned(),
        format!("/console/erasures/preview?store={}", tenant.store_id),
        format!(
            "/console/erasures/preview?store={}&prefix=%2Fnotes%2F",
            tenant.store_id
        ),
        "/console/erasures/preview?metadata_name=a&metadata_value=b".to_owned(),
        "/console/transfer".to_owned(),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn every_page_is_complete_on_sqlite() {
    every_page_is_complete(Pair::Sqlite).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_page_is_complete_on_postgres() {
    every_page_is_complete(Pair::Postgres).await;
}

async fn every_page_is_complete(pair: Pair) {
    let (_deployment, tenant, server, mut browser) = console_on(pair).await;
    for path in furnished(&server, &tenant).await {
        let page = browser.open(&path).await;
        assert!(page.text.len() <= MAX_PAGE_BYTES, "{path}: {}", page.text.len());
        for (name, value) in [
            ("x-content-type-options", "nosniff"),
            ("referrer-policy", "no-referrer"),
            ("cache-control", "private, no-store"),
            ("cross-origin-opener-policy", "same-origin"),
            ("content-type", "text/html; charset=utf-8"),
        ] {
            assert_eq!(page.header(name), value, "{path}");
        }
        let policy = page.header("content-security-policy");
        assert!(
            policy.starts_with("default-src 'none'; style-src 'self'; script-src 'self';"),
            "{policy}"
        );
        assert!(!policy.contains("unsafe"), "{policy}");
        for part in [
            "<!doctype html>",
            "<html lang=\"en\">",
            "<main id=\"main\"",
            "<h1",
            "class=\"skip\"",
        ] {
            page.has(part);
        }
        for part in [" style=\"", "<style", "onclick=", "javascript:"] {
            page.lacks(part);
        }
        assert_eq!(page.text.matches("<script").count(), 1, "{path}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn style_and_script_are_cached_by_browsers() {
    let (_deployment, _tenant, _server, mut browser) = console_on(Pair::Sqlite).await;
    let page = browser.open("/console/stores").await;
    for (start, content_type) in [
        ("href=\"", "text/css; charset=utf-8"),
        ("src=\"", "text/javascript; charset=utf-8"),
    ] {
        let start = format!("{start}/console/assets/");
        let (_, rest) = page.text.split_once(&start).unwrap();
        let file = rest.split_once('"').unwrap().0;
        let asset = browser.open(&format!("/console/assets/{file}")).await;
        assert_eq!(asset.header("content-type"), content_type);
        assert!(asset.header("cache-control").contains("immutable"));
    }
    assert_eq!(browser.get("/console/assets/other.css").await.status, 404);
}

#[tokio::test(flavor = "multi_thread")]
async fn memory_page_shows_the_author_and_does_not_count_as_a_read() {
    let (_deployment, tenant, server, mut browser) = console_on(Pair::Sqlite).await;
    let client = server.client(&tenant);
    let made = client
        .post(
            &format!("/v1/memory_stores/{}/memories", tenant.store_id),
            &json!({"path": "/fact.md", "content": "# A fact\n"}),
        )
        .await
        .json();
    let path = format!(
        "/console/stores/{}/memories/{}",
        tenant.store_id,
        made["id"].as_str().unwrap()
    );
    for _ in 0..2 {
        let page = browser.open(&path).await;
        page.has("<h1>A fact</h1>");
        page.has("/console/keys/apikey_");
        page.has("Last read by an agent</dt><dd><span class=\"none\">never</span>");
    }
    let raw = browser.open(&format!("{path}?raw=1")).await;
    raw.has("<li id=\"L1\"># A fact</li>");
    let file = browser.open(&format!("{path}/file")).await;
    assert_eq!(file.text, "# A fact\n");
    assert_eq!(
        file.header("content-disposition"),
        "attachment; filename*=UTF-8''fact.md"
    );
    let at_path = browser
        .get(&format!("/console/stores/{}?path=%2Ffact.md", tenant.store_id))
        .await;
    assert_eq!((at_path.status, at_path.location()), (303, path.as_str()));
}

#[tokio::test(flavor = "multi_thread")]
async fn wide_directories_have_pages() {
    let (_deployment, tenant, server, mut browser) = console_on(Pair::Sqlite).await;
    let client = server.client(&tenant);
    let name = "n".repeat(200);
    for batch in 0..6 {
        let path = |n: usize| format!("/wide/{:03}-{name}.md", batch * 50 + n);
        let create = |n| json!({"type": "create", "path": path(n), "content": "x"});
        let operations: Vec<_> = (0..50).map(create).collect();
        let body = json!({"operations": operations});
        let answer = client
            .post(
                &format!("/v1/memory_stores/{}/memories/batch", tenant.store_id),
                &body,
            )
            .await;
        assert_eq!(answer.status, 200, "{}", answer.text);
    }
    let (mut path, mut seen, mut pages) = (
        format!("/console/stores/{}?path=%2Fwide%2F", tenant.store_id),
        0,
        0,
    );
    loop {
        let page = browser.open(&path).await;
        assert!(page.text.len() <= MAX_PAGE_BYTES, "{}", page.text.len());
        seen += page.text.matches("class=\"file\"").count();
        pages += 1;
        let Some((_, rest)) = page.text.split_once("rel=\"next\" href=\"") else {
            break;
        };
        let query = rest
            .split_once('"')
            .unwrap()
            .0
            .replace("&#38;", "&")
            .replace("&amp;", "&");
        path = format!("/console/stores/{}{query}", tenant.store_id);
    }
    assert_eq!((seen, pages), (300, 3));
}

#[tokio::test(flavor = "multi_thread")]
async fn large_memories_have_parts() {
    let (_deployment, tenant, server, mut browser) = console_on(Pair::Sqlite).await;
    let client = server.client(&tenant);
    for (path, content) in [
        ("/lines.md", "<a&b>\n".repeat(17_000)),
        ("/line.md", "\"'<&>".repeat(20_000)),
        ("/markdown.md", "* <b>\n".repeat(15_000)),
        ("/quotes.md", "> ".repeat(48 << 10)),
    ] {
        let new = json!({"path": path, "content": content});
        let made = client
            .post(&format!("/v1/memory_stores/{}/memories", tenant.store_id), &new)
            .await;
        assert_eq!(made.status, 200, "{}", made.text);
        let memory = format!(
            "/console/stores/{}/memories/{}",
            tenant.store_id,
            made.json()["id"].as_str().unwrap()
        );
        for view in ["", "?raw=1", "?line=500", "/history", "/delete"] {
            let page = browser.open(&format!("{memory}{view}")).await;
            assert!(
                page.text.len() <= MAX_PAGE_BYTES,
                "{path}{view}: {}",
                page.text.len()
            );
        }
        let file = browser.open(&format!("{memory}/file")).await;
        assert_eq!(file.text, content);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn front_page_redirects_browsers_to_the_console() {
    let (_deployment, tenant, server, mut browser) = console_on(Pair::Sqlite).await;
    let request = browser
        .request(Method::GET, "/")
        .header("accept", "text/html,*/*");
    let page = browser.send(request).await;
    assert_eq!((page.status, page.location()), (303, "/console"));
    assert_eq!(browser.get("/console").await.location(), "/console/stores");
    assert_eq!(server.client(&tenant).get("/").await.status, 404);
}

#[tokio::test(flavor = "multi_thread")]
async fn errors_are_pages_with_the_message_of_the_api() {
    let (_deployment, _tenant, _server, mut browser) = console_on(Pair::Sqlite).await;
    let missing = browser
        .get("/console/stores/memstore_00000000000000000000000001")
        .await;
    assert_eq!(missing.status, 404);
    missing.has("the memory store was not found");
    missing.has(missing.header("request-id"));
    assert!(!missing.header("content-security-policy").is_empty());
    let unknown = browser.get("/console/nothing").await;
    assert_eq!(
        (unknown.status, unknown.header("content-type")),
        (404, "text/html; charset=utf-8")
    );
    let search = browser.get("/console/search?q=%22&prefix=nonsense").await;
    assert_eq!(search.status, 200);
    search.has("role=\"alert\"");
    let time = browser.get("/console/audit?from=yesterday").await;
    assert_eq!(time.status, 400);
    time.has("`from`");
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_show_only_what_the_scopes_allow() {
    let (deployment, tenant, mut server, _browser) = console_on(Pair::Sqlite).await;
    server.end().await;
    let provision = deployment.provision().await;
    let key = provision.key(tenant.id, &[Scope::KeysAdmin], None).await;
    provision.close().await;
    server.restart().await;
    let mut browser = Browser::signed_in(&server.url(), &key).await;
    browser.open("/console/keys").await;
    assert_eq!(browser.get("/console/stores").await.status, 403);
    assert_eq!(
        browser
            .get(&format!("/console/search?q={}", encoded("a")))
            .await
            .status,
        403
    );
}
