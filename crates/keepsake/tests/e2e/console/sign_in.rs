//! Signing in and out.

use keepsake_core::limits::LimitOverrides;
use keepsake_index::Scope;
use keepsake_testkit::ServerCommand;
use reqwest::Method;
use serde_json::json;
use std::time::Duration;
use tempfile::TempDir;

use super::browser::{Browser, console_on};
use crate::support::client::send;
use crate::support::{Deployment, Pair, binary, eventually};

#[tokio::test(flavor = "multi_thread")]
async fn key_signs_in_until_the_person_signs_out() {
    let (_deployment, tenant, server, mut browser) = console_on(Pair::Sqlite).await;
    let stores = browser.open("/console/stores").await;
    stores.has(&tenant.store_id.to_string());
    let cookie = &browser.cookies["keepsake_console"];
    assert!(!cookie.contains(&tenant.key), "{cookie}");

    let before = browser.clone();
    let out = browser.submit(&stores, "/console/sign-out", &[]).await;
    assert_eq!((out.status, out.location()), (303, "/console/sign-in"));
    assert!(browser.cookies.is_empty(), "{:?}", browser.cookies);
    let asked = browser.get("/console/search?q=a%20b").await;
    assert_eq!(asked.status, 303);
    assert_eq!(
        asked.location(),
        "/console/sign-in?next=%2Fconsole%2Fsearch%3Fq%3Da%2520b"
    );

    // A second sign-in has other forms: the first one's are refused.
    let mut second = Browser::signed_in(&server.url(), &tenant.key).await;
    assert_ne!(second.cookies, before.cookies);
    let refused = second.submit(&stores, "/console/stores", &[("name", "x")]).await;
    assert_eq!(refused.status, 403, "{}", refused.text);
}

#[tokio::test(flavor = "multi_thread")]
async fn sign_in_redirects_to_the_requested_page() {
    let (_deployment, tenant, server, _browser) = console_on(Pair::Sqlite).await;
    let mut browser = Browser::new(&server.url());
    let answer = browser.sign_in(&tenant.key, "/console/usage").await;
    assert_eq!((answer.status, answer.location()), (303, "/console/usage"));
    for foreign in [
        "https://evil.example/",
        "//evil.example",
        "/v1/audit",
        "/console/../v1",
        "/console/%0d%0ax",
    ] {
        let mut browser = Browser::new(&server.url());
        let answer = browser.sign_in(&tenant.key, foreign).await;
        assert_eq!(
            (answer.status, answer.location()),
            (303, "/console/stores"),
            "{foreign}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_credentials_are_reported_and_not_repeated() {
    let (_deployment, _tenant, server, _browser) = console_on(Pair::Sqlite).await;
    for wrong in ["nonsense", "ks_live_x", "a.b.c", ""] {
        let mut browser = Browser::new(&server.url());
        let answer = browser.sign_in(wrong, "").await;
        assert_eq!(answer.status, 401, "{wrong}: {}", answer.text);
        answer.has("role=\"alert\"");
        assert!(wrong.is_empty() || !answer.text.contains(&format!("value=\"{wrong}\"")));
        assert!(!browser.cookies.contains_key("keepsake_console"));
    }
    // A form of another site has no token, or no cookie of the form.
    let mut browser = Browser::new(&server.url());
    let answer = browser
        .post("/console/sign-in", &[("credential", "ks_live_x")])
        .await;
    assert_eq!(answer.status, 403, "{}", answer.text);
}

#[tokio::test(flavor = "multi_thread")]
async fn session_tokens_do_not_sign_in() {
    let (_deployment, tenant, server, _browser) = console_on(Pair::Sqlite).await;
    let client = server.client(&tenant);
    let made = client
        .post("/v1/sessions", &json!({"agent": "a", "environment_id": "e"}))
        .await;
    let made = made.json();
    let Some(token) = made["token"].as_str() else {
        panic!("no token: {made}");
    };
    let mut browser = Browser::new(&server.url());
    let answer = browser.sign_in(token, "").await;
    assert_eq!(answer.status, 401, "{}", answer.text);
}

#[tokio::test(flavor = "multi_thread")]
async fn revoked_key_ends_the_console() {
    let (_deployment, tenant, server, mut browser) = console_on(Pair::Postgres).await;
    let client = server.client(&tenant);
    let draft = json!({"name": "colleague", "scopes": ["memory:read"]});
    let made = client.post("/v1/api_keys", &draft).await.json();
    let mut colleague = Browser::signed_in(&server.url(), made["api_key"].as_str().unwrap()).await;
    colleague.open("/console/stores").await;
    let id = made["id"].as_str().unwrap();
    let key = browser.open(&format!("/console/keys/{id}")).await;
    browser
        .act(&key, &format!("/console/keys/{id}/revoke"), &[])
        .await;
    eventually(
        "the console ends with its key",
        Duration::from_secs(8),
        async || {
            let mut again = colleague.clone();
            let answer = again.get("/console/stores").await;
            answer.status == 303 && answer.location().starts_with("/console/sign-in?next=")
        },
    )
    .await;
    let post = colleague.post("/console/sign-out", &[]).await;
    assert_eq!(post.status, 401, "{}", post.text);
}

#[tokio::test(flavor = "multi_thread")]
async fn console_is_limited_to_the_keys_scopes_and_stores() {
    let deployment = Deployment::new(Pair::Sqlite).await;
    let provision = deployment.provision().await;
    let tenant = provision.tenant(LimitOverrides::default()).await;
    let other = provision.store(tenant.id).await;
    let key = provision
        .key(tenant.id, &[Scope::MemoryRead], Some(vec![tenant.store_id]))
        .await;
    provision.close().await;
    let server = deployment.start().await;
    let mut browser = Browser::signed_in(&server.url(), &key).await;
    let stores = browser.open("/console/stores").await;
    stores.has(&tenant.store_id.to_string());
    stores.lacks(&other.to_string());
    stores.lacks("Create the store");
    stores.lacks("/console/audit");
    assert_eq!(browser.get(&format!("/console/stores/{other}")).await.status, 404);
    for path in [
        "/console/keys",
        "/console/audit",
        "/console/erasures",
        "/console/audit/export",
    ] {
        assert_eq!(browser.get(path).await.status, 403, "{path}");
    }
    let page = browser.open("/console/usage").await;
    let new = [("path", "/x.md"), ("content", "x"), ("once", "1")];
    let refused = browser
        .submit(&page, &format!("/console/stores/{}/new", tenant.store_id), &new)
        .await;
    assert_eq!(refused.status, 403, "{}", refused.text);
}

#[tokio::test(flavor = "multi_thread")]
async fn altered_and_foreign_cookies_are_refused() {
    let (_deployment, tenant, server, browser) = console_on(Pair::Sqlite).await;
    let cookie = browser.cookies["keepsake_console"].clone();
    let mut changed = cookie.clone().into_bytes();
    let middle = changed.len() / 2;
    changed[middle] = if changed[middle] == b'A' { b'B' } else { b'A' };
    for value in [
        String::from_utf8(changed).unwrap(),
        cookie[1..].to_owned(),
        tenant.key.clone(),
        "x".repeat(5_000),
    ] {
        let mut stranger = Browser::new(&server.url());
        stranger.cookies.insert("keepsake_console".to_owned(), value);
        assert_eq!(stranger.get("/console/stores").await.status, 303);
    }
    // One that another site of the domain has planted, and that the browser sends first, locks nobody out.
    let planted = Browser::new(&server.url()).request(Method::GET, "/console/stores");
    let planted = planted.header(
        "cookie",
        format!("keepsake_console=planted; keepsake_console={cookie}"),
    );
    assert_eq!(planted.send().await.unwrap().status(), 200);
    // The cookie is for the console; the API does not know it.
    let client = server.client(&tenant);
    let request = client.bare(Method::GET, "/v1/memory_stores");
    let answer = send(request.header("cookie", format!("keepsake_console={cookie}"))).await;
    assert_eq!(answer.status, 401, "{}", answer.text);
}

#[tokio::test(flavor = "multi_thread")]
async fn development_server_prints_a_link_that_signs_in_once() {
    let folder = TempDir::new().unwrap();
    let command = ServerCommand::new(binary(), "");
    let listen = format!("127.0.0.1:{}", command.port());
    let data = folder.path().display().to_string();
    let command = command.arguments(&["serve", "--dev", "--data-dir", &data, "--listen", &listen]);
    let server = command.start().await;
    let printed = server.output();
    let link = printed
        .lines()
        .find(|line| line.contains("/console/sign-in/once?token="))
        .unwrap();
    let path = link.trim().strip_prefix(&server.url()).unwrap().to_owned();
    let mut browser = Browser::new(&server.url());
    // As mail servers and chats do that look at a link.
    let looked_at = browser.request(Method::HEAD, &path);
    assert_eq!(browser.send(looked_at).await.status, 405);
    let answer = browser.get(&path).await;
    assert_eq!(
        (answer.status, answer.location()),
        (303, "/console/stores"),
        "{}",
        answer.text
    );
    browser.open("/console/stores").await;
    let mut second = Browser::new(&server.url());
    let used = second.get(&path).await;
    assert_eq!(used.status, 410, "{}", used.text);
    used.has("works once");
    assert!(second.cookies.is_empty());
}
