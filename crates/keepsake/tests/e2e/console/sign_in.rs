//! Signing in and out.

use keepsake_core::limits::LimitOverrides;
use keepsake_index::Scope;
use reqwest::Method;
use serde_json::json;
use tempfile::TempDir;

use super::browser::{Browser, console_on};
use crate::dev_mode::dev_command;
use crate::support::client::send;
use crate::support::{Deployment, Pair, secrets};

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
    let form = "/console/sign-in?next=%2Fconsole%2Fsearch%3Fq%3Da%2520b";
    assert_eq!((asked.status, asked.location()), (303, form));

    // A second sign-in has other forms: the first one's are refused.
    let mut second = Browser::signed_in(&server.url(), &tenant.key).await;
    assert_ne!(second.cookies, before.cookies);
    let refused = second.submit(&stores, "/console/stores", &[("name", "x")]).await;
    assert_eq!(refused.status, 403, "{}", refused.text);
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_credentials_are_reported_and_not_repeated() {
    let (_deployment, tenant, server, _browser) = console_on(Pair::Sqlite).await;
    let session = json!({"agent": "a", "environment_id": "e"});
    let session = server.client(&tenant).post("/v1/sessions", &session).await.json();
    let token = session["token"].as_str().unwrap();
    secrets::remember(token, "a session's token");
    for wrong in ["nonsense", "ks_live_x", "a.b.c", "", token] {
        let mut browser = Browser::new(&server.url());
        let answer = browser.sign_in(wrong, "").await;
        assert_eq!(answer.status, 401, "{wrong}: {}", answer.text);
        answer.has("role=\"alert\"");
        assert!(wrong.is_empty() || !answer.text.contains(&format!("value=\"{wrong}\"")));
        assert!(!browser.cookies.contains_key("keepsake_console"));
    }
    // A form of another site has no token, or no cookie of the form.
    let mut browser = Browser::new(&server.url());
    let credential = [("credential", "ks_live_x")];
    let answer = browser.post("/console/sign-in", &credential).await;
    assert_eq!(answer.status, 403, "{}", answer.text);
}

#[tokio::test(flavor = "multi_thread")]
async fn console_is_limited_to_the_keys_scopes_and_stores() {
    let deployment = Deployment::new(Pair::Sqlite).await;
    let provision = deployment.provision().await;
    let tenant = provision.tenant(LimitOverrides::default()).await;
    let other = provision.store(tenant.id).await;
    let bound = Some(vec![tenant.store_id]);
    let key = provision.key(tenant.id, &[Scope::MemoryRead], bound).await;
    let of_keys = provision.key(tenant.id, &[Scope::KeysAdmin], None).await;
    provision.close().await;
    let server = deployment.start().await;
    let mut browser = Browser::signed_in(&server.url(), &key).await;
    let stores = browser.open("/console/stores").await;
    stores.has(&tenant.store_id.to_string());
    stores.lacks(&other.to_string());
    stores.lacks("Create the store");
    stores.lacks("/console/audit");
    assert_eq!(browser.get(&format!("/console/stores/{other}")).await.status, 404);
    for page in ["keys", "audit", "erasures", "audit/export"] {
        let path = format!("/console/{page}");
        assert_eq!(browser.get(&path).await.status, 403, "{path}");
    }
    let page = browser.open("/console/usage").await;
    let new = [("path", "/x.md"), ("content", "x"), ("once", "1")];
    let path = format!("/console/stores/{}/new", tenant.store_id);
    let refused = browser.submit(&page, &path, &new).await;
    assert_eq!(refused.status, 403, "{}", refused.text);

    let mut browser = Browser::signed_in(&server.url(), &of_keys).await;
    browser.open("/console/keys").await;
    for path in ["/console/stores", "/console/search?q=a"] {
        assert_eq!(browser.get(path).await.status, 403, "{path}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn altered_and_foreign_cookies_are_refused() {
    let (_deployment, tenant, server, browser) = console_on(Pair::Sqlite).await;
    let cookie = browser.cookies["keepsake_console"].clone();
    let mut changed = cookie.clone().into_bytes();
    let middle = changed.len() / 2;
    changed[middle] = if changed[middle] == b'A' { b'B' } else { b'A' };
    for value in
        [String::from_utf8(changed).unwrap(), cookie[1..].to_owned(), tenant.key.clone(), "x".repeat(5_000)]
    {
        let mut stranger = Browser::new(&server.url());
        stranger.cookies.insert("keepsake_console".to_owned(), value);
        assert_eq!(stranger.get("/console/stores").await.status, 303);
    }
    // One that another site of the domain has planted, and that the browser sends first, locks nobody out.
    let planted = Browser::new(&server.url()).request(Method::GET, "/console/stores");
    let cookies = format!("keepsake_console=planted; keepsake_console={cookie}");
    let planted = planted.header("cookie", cookies);
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
    let server = dev_command(folder.path()).start().await;
    let printed = server.output();
    let is_link = |line: &&str| line.contains("/console/sign-in/once?token=");
    let link = printed.lines().find(is_link).unwrap();
    let path = link.trim().strip_prefix(&server.url()).unwrap().to_owned();
    let mut browser = Browser::new(&server.url());
    // As mail servers and chats do that look at a link.
    let looked_at = browser.request(Method::HEAD, &path);
    assert_eq!(browser.send(looked_at).await.status, 405);
    let answer = browser.get(&path).await;
    assert_eq!((answer.status, answer.location()), (303, "/console/stores"));
    browser.open("/console/stores").await;
    let mut second = Browser::new(&server.url());
    let used = second.get(&path).await;
    assert_eq!(used.status, 410, "{}", used.text);
    used.has("works once");
    assert!(second.cookies.is_empty());
}
