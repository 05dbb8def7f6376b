//! Every page: its headers, its weight, and its main content.

use reqwest::Method;
use serde_json::json;

use super::browser::{console_on, write};
use super::defences::is_protected;
use crate::support::{Pair, Server, Tenant};

/// Maximum bytes of a page.
const MAX_PAGE_BYTES: usize = 150 * 1024;

/// A memory of two versions and the paths of all pages.
async fn furnished(server: &Server, tenant: &Tenant) -> Vec<String> {
    let client = server.client(tenant);
    let content = "# Process\n\nTag, then build.\n";
    let memory = write(&client, tenant.store_id, "/notes/process.md", content).await;
    let memory = memory["id"].as_str().unwrap();
    let edit = json!({"content": "# Process\n\nBuild, then tag.\n"});
    let memories = format!("/v1/memory_stores/{}/memories", tenant.store_id);
    let edited = client.post(&format!("{memories}/{memory}"), &edit).await.json();
    let version = edited["memory_version_id"].as_str().unwrap();
    let preview = format!("/console/erasures/preview?store={}", tenant.store_id);
    let more = [
        "/console/stores?name=no&archived=1",
        "/console/search",
        "/console/search?q=build",
        "/console/search?q=build&author=tests&from=2020-01-01",
        "/console/sessions",
        "/console/audit",
        "/console/audit?action=memory_store.create",
        "/console/erasures/preview?metadata_name=a&metadata_value=b",
        &preview,
        &format!("{preview}&prefix=%2Fnotes%2F"),
    ]
    .map(str::to_owned);
    let console = format!("/console/stores/{}", tenant.store_id);
    let below = ["?path=%2Fnotes%2F", "/new?path=%2Fnotes%2F", "/history?operation=modified&from=2020-01-01"];
    let below = below.map(|path| format!("{console}{path}"));
    let mut all = of_everything(tenant, memory, version);
    all.extend(more.into_iter().chain(below));
    all
}

/// The pages that show names, paths and contents.
pub(super) fn of_everything(tenant: &Tenant, memory: &str, version: &str) -> Vec<String> {
    let console = format!("/console/stores/{}", tenant.store_id);
    let of_store = ["", "/settings", "/history", "/usage"].map(|page| format!("{console}{page}"));
    let of_memory = ["", "?raw=1", "/edit", "/delete", "/history"];
    let of_memory = of_memory.map(|page| format!("{console}/memories/{memory}{page}"));
    let of_version = [
        format!("{console}/compare?to={version}"),
        format!("{console}/compare?to={version}&view=split"),
        format!("{console}/versions/{version}"),
        format!("{console}/versions/{version}/redact"),
    ];
    let others = ["stores", "usage", "keys", "erasures", "transfer"].map(|page| format!("/console/{page}"));
    let all = of_store.into_iter().chain(of_memory);
    all.chain(of_version).chain(others).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn every_page_is_complete() {
    let (_deployment, tenant, server, mut browser) = console_on(Pair::Sqlite).await;
    for path in furnished(&server, &tenant).await {
        let page = browser.open(&path).await;
        assert!(page.text.len() <= MAX_PAGE_BYTES, "{path}: {}", page.text.len());
        is_protected(&path, &page);
        assert_eq!(page.header("content-type"), "text/html; charset=utf-8", "{path}");
        for part in ["<!doctype html>", "<html lang=\"en\">", "<main id=\"main\"", "<h1", "class=\"skip\""] {
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
    for (start, content_type) in
        [("href=\"", "text/css; charset=utf-8"), ("src=\"", "text/javascript; charset=utf-8")]
    {
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
    let made = write(&client, tenant.store_id, "/fact.md", "# A fact\n").await;
    let store = format!("/console/stores/{}", tenant.store_id);
    let path = format!("{store}/memories/{}", made["id"].as_str().unwrap());
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
    assert_eq!(file.header("content-disposition"), "attachment; filename*=UTF-8''fact.md");
    let at_path = browser.get(&format!("{store}?path=%2Ffact.md")).await;
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
        let batch = format!("/v1/memory_stores/{}/memories/batch", tenant.store_id);
        let answer = client.post(&batch, &body).await;
        assert_eq!(answer.status, 200, "{}", answer.text);
    }
    let store = format!("/console/stores/{}", tenant.store_id);
    let (mut path, mut seen, mut pages) = (format!("{store}?path=%2Fwide%2F"), 0, 0);
    loop {
        let page = browser.open(&path).await;
        assert!(page.text.len() <= MAX_PAGE_BYTES, "{}", page.text.len());
        seen += page.text.matches("class=\"file\"").count();
        pages += 1;
        let Some((_, rest)) = page.text.split_once("rel=\"next\" href=\"") else {
            break;
        };
        let query = rest.split_once('"').unwrap().0;
        let query = query.replace("&#38;", "&").replace("&amp;", "&");
        path = format!("{store}{query}");
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
        let made = write(&client, tenant.store_id, path, &content).await;
        let memory = format!("/console/stores/{}/memories/{}", tenant.store_id, made["id"].as_str().unwrap());
        for view in ["", "?raw=1", "?line=500", "/history", "/delete"] {
            let page = browser.open(&format!("{memory}{view}")).await;
            let bytes = page.text.len();
            assert!(bytes <= MAX_PAGE_BYTES, "{path}{view}: {bytes}");
        }
        let file = browser.open(&format!("{memory}/file")).await;
        assert_eq!(file.text, content);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn front_page_redirects_browsers_to_the_console() {
    let (_deployment, tenant, server, mut browser) = console_on(Pair::Sqlite).await;
    let request = browser.request(Method::GET, "/").header("accept", "text/html,*/*");
    let page = browser.send(request).await;
    assert_eq!((page.status, page.location()), (303, "/console"));
    assert_eq!(browser.get("/console").await.location(), "/console/stores");
    assert_eq!(server.client(&tenant).get("/").await.status, 404);
}

#[tokio::test(flavor = "multi_thread")]
async fn errors_are_pages_with_the_message_of_the_api() {
    let (_deployment, _tenant, _server, mut browser) = console_on(Pair::Sqlite).await;
    let missing = browser.get("/console/stores/memstore_00000000000000000000000001").await;
    assert_eq!(missing.status, 404);
    missing.has("the memory store was not found");
    missing.has(missing.header("request-id"));
    assert!(!missing.header("content-security-policy").is_empty());
    let unknown = browser.get("/console/nothing").await;
    assert_eq!(unknown.status, 404);
    assert_eq!(unknown.header("content-type"), "text/html; charset=utf-8");
    let search = browser.get("/console/search?q=%22&prefix=nonsense").await;
    assert_eq!(search.status, 200);
    search.has("role=\"alert\"");
    let time = browser.get("/console/audit?from=yesterday").await;
    assert_eq!(time.status, 400);
    time.has("`from`");
}
