use super::*;
use crate::dev_mode::dev_command;

#[tokio::test(flavor = "multi_thread")]
async fn wrong_credentials_and_altered_cookies_are_refused() {
    let (_deployment, tenant, server, browser) = console_on(Pair::Sqlite).await;
    let new = json!({"agent": "a", "environment_id": "e"});
    let session = new_session(&server.client(&tenant), &new).await;
    let token = text(&session["token"]);
    for wrong in ["nonsense", "ks_live_x", "a.b.c", "", token] {
        let mut browser = Browser::new(&server.url());
        let answer = browser.sign_in(wrong, "").await.answered(401);
        answer.has("role=\"alert\"");
        assert!(wrong.is_empty() || !answer.text.contains(&format!("value=\"{wrong}\"")));
        assert!(!browser.cookies.contains_key("keepsake_console"));
    }
    let cookie = browser.cookies["keepsake_console"].clone();
    let mut changed = cookie.clone().into_bytes();
    let middle = changed.len() / 2;
    changed[middle] = if changed[middle] == b'A' { b'B' } else { b'A' };
    let changed = String::from_utf8(changed).unwrap();
    for value in [changed, cookie[1..].to_owned(), tenant.key.clone(), "x".repeat(5_000)] {
        let mut stranger = Browser::new(&server.url());
        stranger.cookies.insert("keepsake_console".to_owned(), value);
        stranger.get("/console/stores").await.answered(303);
    }
    // A cookie that another site of the domain planted does not prevent a sign-in, even if it is sent first.
    let planted = Browser::new(&server.url()).request(Method::GET, "/console/stores");
    let cookies = format!("keepsake_console=planted; keepsake_console={cookie}");
    assert_eq!(planted.header("cookie", cookies).send().await.unwrap().status(), 200);
    // The cookie is for the console; the API does not know it.
    let request = server.client(&tenant).bare(Method::GET, "/v1/memory_stores");
    let answer = send(request.header("cookie", format!("keepsake_console={cookie}"))).await;
    assert_eq!(answer.status, 401, "{}", answer.text);
}

#[tokio::test(flavor = "multi_thread")]
async fn console_is_limited_to_the_keys_scopes_and_stores() {
    let (_deployment, tenant, server, client) = started(Pair::Sqlite).await;
    let (of_keys, _) = client.new_key(&["keys:admin"]).await;
    let reader = json!({"name": "a", "scopes": ["memory:read"], "memory_store_ids": [tenant.store_id]});
    let reader = ok(&client.post("/v1/api_keys", &reader).await);
    let mut browser = Browser::signed_in(&server.url(), secret(&reader, "api_key")).await;
    let stores = browser.open("/console/stores").await;
    let store = tenant.store_id.to_string();
    stores.has(&store);
    stores.lacks("Create the store");
    stores.lacks("/console/audit");
    let palette = format!("/console/palette?q={store}&store={store}");
    browser.open(&palette).await.has(&store);
    for page in ["keys", "audit", "audit?from=x", "erasures", "audit/export"] {
        browser.get(&format!("/console/{page}")).await.answered(403);
    }
    let new = [("path", "/x.md"), ("content", "x"), ("once", "1")];
    browser.submit(&stores, &format!("/console/stores/{store}/new"), &new).await.answered(403);
    browser.open("/console/transfer").await.lacks("Import an archive");
    let archive = [("store", store.as_str()), ("on_conflict", "skip")];
    browser.submit(&stores, "/console/transfer", &archive).await.answered(403);
    // The stores of a key are shown by their names.
    let mut owner = Browser::signed_in(&server.url(), &tenant.key).await;
    let link = format!("<a href=\"/console/stores/{store}\"><bdi>notes</bdi></a>");
    for page in ["/console/keys".to_owned(), format!("/console/keys/{}", text(&reader["id"]))] {
        owner.open(&page).await.has(&link);
    }
    let form = owner.open("/console/keys").await;
    let refused = owner.submit(&form, "/console/keys", &[("name", "CI"), ("once", "1")]).await.answered(400);
    says(&refused.text, &["thing that the key may do. No key was created.", "value=\"CI\""]);
    for (stores, status, part) in [("no such", 400, "`no such` fits no name"), ("not", 200, link.as_str())] {
        let named = [("name", "CI"), ("scope", "memory:read"), ("other_stores", stores), ("once", "2")];
        owner.submit(&form, "/console/keys", &named).await.answered(status).has(part);
    }
    let (of_tenant, _) = client.new_key(&["tenant:admin"]).await;
    let mut browser = Browser::signed_in(&server.url(), &of_tenant).await;
    browser.open("/console/erasures").await.has("also needs the scope");
    browser.open("/console/audit").await.lacks("href=\"/console/keys");
    let mut browser = Browser::signed_in(&server.url(), &of_keys).await;
    assert_eq!(browser.get("/console/overview").await.answered(303).location(), "/console/keys");
    for hidden in ["/console/search", "href=\"/console/stores"] {
        browser.open("/console/keys").await.lacks(hidden);
    }
    browser.open(&palette).await.lacks(&store);
    for path in ["/console/stores", "/console/search?q=a"] {
        browser.get(path).await.answered(403);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn each_console_accepts_only_its_own_credentials_and_cookies() {
    let deployment = Deployment::new(Pair::Sqlite).await;
    let tenant = deployment.tenant().await;
    let operator = Operator::new();
    let server = deployment.start_with(&operator.config).await;
    Browser::new(&server.url()).sign_in(&operator.token, "").await.answered(401);
    let mut browser = Browser::new(&operator.url);
    browser.get("/console/health").await.answered(303);
    browser.sign_in(&tenant.key, "").await.answered(401);
    browser.sign_in(&operator.token, "").await.answered(303);
    browser.open("/console/health").await;
    browser.get("/console/nothing").await.answered(404).has("/console/jobs");
    let shown = browser.get(&format!("/console/tenants/{}", tenant.id)).await;
    shown.answered(200).has("by words and by meaning (default)");
    let suspend = format!("/console/tenants/{}/suspend", tenant.id);
    browser.post(&suspend, &[("token", "x")]).await.answered(403);
    let mut stranger = Browser::new(&server.url());
    let cookie = browser.cookies["keepsake_operator"].clone();
    stranger.cookies.insert("keepsake_console".to_owned(), cookie);
    stranger.get("/console/stores").await.answered(303);
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
    browser.send(looked_at).await.answered(405);
    let answer = browser.get(&path).await.answered(303);
    assert_eq!(answer.location(), "/console/overview");
    browser.open("/console/stores").await;
    let mut second = Browser::new(&server.url());
    second.get(&path).await.answered(410).has("works once");
    assert!(second.cookies.is_empty());
}
