//! Attacks: forged forms, planted cookies. Other tenants' ids are tried in
//! `isolation/console.rs`, hostile texts and addresses in `tests/browser`.

use super::*;
use crate::streams::text_until;

const TAKES_EFFECT_WITHIN: Duration = Duration::from_secs(5);

/// The paths of the pages with a method: below the tenant's store, with unknown ids.
fn pages(wanted: &Method, tenant: &Tenant) -> Vec<String> {
    let pages = keepsake_server::console_pages().into_iter().filter(|(method, _)| method == wanted);
    let store = tenant.store_id.to_string();
    let pages = pages.map(|(_, path)| path.replace("{memory_store_id}", &store).replace(['{', '}'], ""));
    let pages: Vec<_> = pages.collect();
    assert!(pages.len() > 10, "{pages:?}");
    pages
}

#[tokio::test(flavor = "multi_thread")]
async fn every_form_needs_the_token_of_its_sign_in() {
    let (_deployment, tenant, server, mut browser) = console_on(Pair::Sqlite).await;
    let token = browser.open("/console/stores").await.field("token");
    let mut other = Browser::signed_in(&server.url(), &tenant.key).await;
    let foreign = other.open("/console/stores").await.field("token");
    for path in pages(&Method::POST, &tenant) {
        for fields in [&[][..], &[("token", "")], &[("token", "x")], &[("token", &foreign)]] {
            let refused = browser.post(&path, fields).await;
            assert_eq!(refused.status, 403, "{path} {fields:?}: {}", refused.text);
        }
        for said in [("sec-fetch-site", "cross-site"), ("origin", "https://evil.example")] {
            let refused = browser.post_as(said, &path, &[("token", &token)]).await;
            assert_eq!(refused.status, 403, "{path} {said:?}: {}", refused.text);
        }
        // Without the cookie, a form does nothing, whatever its token.
        Browser::new(&server.url()).post(&path, &[("token", &token)]).await.answered(401);
        // A link or an image of another site sends a GET.
        let read = browser.get(&path).await;
        assert!([200, 404, 405].contains(&read.status), "{path}: {}", read.status);
    }
    let json = browser.request(Method::POST, "/console/stores");
    let json = json.json(&json!({"name": "forged", "token": token}));
    browser.send(json).await.answered(415);
    let stores = server.client(&tenant).get("/v1/memory_stores").await.json();
    assert_eq!(stores["data"].as_array().unwrap().len(), 1, "{stores}");
    assert_eq!(stores["data"][0]["archived_at"], json!(null));
    browser.open("/console/stores").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_answer_is_protected_and_forms_of_too_many_fields_are_refused() {
    let (_deployment, tenant, server, mut browser) = console_on(Pair::Sqlite).await;
    let mut answers = vec![Browser::new(&server.url()).open("/console/sign-in").await];
    for path in pages(&Method::GET, &tenant) {
        answers.push(browser.get(&path).await);
        answers.push(Browser::new(&server.url()).get(&path).await);
    }
    for path in pages(&Method::POST, &tenant) {
        answers.push(browser.post(&path, &[]).await);
    }
    for answer in &answers {
        let shown = format!("{} {}", answer.status, answer.text);
        let policy = answer.header("content-security-policy");
        let none = ["default-src", "frame-ancestors", "base-uri"].map(|place| format!("{place} 'none'"));
        let own = ["script-src", "style-src", "form-action"].map(|place| format!("{place} 'self'"));
        for part in none.iter().chain(&own) {
            assert!(policy.contains(part), "{policy}: {shown}");
        }
        assert!(!policy.contains("unsafe"), "{policy}: {shown}");
        for (name, value) in [
            ("x-frame-options", "DENY"),
            ("x-content-type-options", "nosniff"),
            ("referrer-policy", "same-origin"),
            ("cache-control", "private, no-store"),
            ("vary", "authorization, x-api-key, cookie"),
            ("cross-origin-opener-policy", "same-origin"),
        ] {
            assert_eq!(answer.header(name), value, "{name}: {shown}");
        }
    }
    let page = browser.open("/console/stores").await;
    let mut fields = vec![("a", ""); 998];
    fields.push(("name", "allowed"));
    browser.submit(&page, "/console/stores", &fields).await.answered(303);
    fields.push(("a", ""));
    let sign_in = browser.open("/console/sign-in").await;
    for (page, path) in [(&page, "/console/stores"), (&sign_in, "/console/sign-in")] {
        browser.submit(page, path, &fields).await.answered(400).has("1000 fields");
    }
    let stores = server.client(&tenant).get("/v1/memory_stores").await.json();
    assert_eq!(stores["data"].as_array().unwrap().len(), 2, "{stores}");
}

#[tokio::test(flavor = "multi_thread")]
async fn sign_in_replaces_a_planted_cookie() {
    let deployment = Deployment::new(Pair::Sqlite).await;
    let (victim, attacker) = (deployment.tenant().await, deployment.tenant().await);
    let server = deployment.start().await;
    let mut browser = Browser::signed_in(&server.url(), &attacker.key).await;
    let before = browser.open("/console/stores").await.field("token");
    browser.sign_in(&victim.key, "").await.answered(303);
    let stores = browser.open("/console/stores").await;
    stores.has(&victim.store_id.to_string());
    stores.lacks(&attacker.store_id.to_string());
    let forged = [("name", "forged"), ("token", before.as_str())];
    browser.post("/console/stores", &forged).await.answered(403);
    // The cookie of the sign-in form does not sign in, and the form needs the cookie of
    // its own page.
    let mut stranger = Browser::new(&server.url());
    let token = stranger.open("/console/sign-in").await.field("token");
    let cookie = stranger.cookies["keepsake_sign_in"].clone();
    stranger.cookies.insert("keepsake_console".to_owned(), cookie);
    stranger.get("/console/stores").await.answered(303);
    let mut other = Browser::new(&server.url());
    other.open("/console/sign-in").await;
    let fields = [("token", token.as_str()), ("credential", &victim.key)];
    other.post("/console/sign-in", &fields).await.answered(403);
    assert!(!other.cookies.contains_key("keepsake_console"));
}

/// The browser shows that the stream has the rows of the page, and ends with the session.
#[tokio::test(flavor = "multi_thread")]
async fn every_page_and_stream_ends_with_its_credential() {
    let (_deployment, tenant, server, _browser) = console_on(Pair::Postgres).await;
    let client = server.client(&tenant);
    let (session, _) = open_session(&client, &[tenant.store_id]).await;
    let (key, key_path) = client.new_key(&["memory:read", "tenant:admin"]).await;
    let signed_in = Browser::signed_in(&server.url(), &key).await;
    let token = signed_in.clone().open("/console/stores").await.field("token");
    let href = session.replace("/v1", "/console");
    let empty = signed_in.clone().open(&href).await;
    empty.has(&format!("data-live=\"{href}/events\""));
    let after = empty.after("data-after=\"");
    // A call between the page and its stream is not lost.
    view_in(&client, &session, "/memories/<b>between</b>").await;
    let events = || signed_in.request(Method::GET, &format!("{href}/events?after={after}"));
    let mut stream = events().send().await.unwrap();
    assert_eq!(stream.headers()["content-type"], "text/event-stream");
    assert_eq!(stream.headers()["cache-control"], "private, no-store");
    assert_eq!(stream.headers()["x-content-type-options"], "nosniff");
    let row = text_until(&mut stream, "</tr>").await;
    assert!(!row.contains("<b>"), "{row}");
    client.revoke(&key_path).await;
    let revoked = Instant::now();
    while signed_in.clone().get("/console/stores").await.status == 200 {
        let took = revoked.elapsed();
        assert!(took < TAKES_EFFECT_WITHIN, "{took:?}");
    }
    let end = text_until(&mut stream, "authentication_error").await;
    assert!(end.contains("event: error"), "{end}");
    assert_eq!(stream.chunk().await.unwrap(), None);
    // A new one leads to the sign-in, which is no stream.
    assert_eq!(events().send().await.unwrap().status(), 303);
    for path in pages(&Method::GET, &tenant) {
        let answer = signed_in.clone().get(&path).await.answered(303);
        assert!(answer.location().starts_with("/console/sign-in?"), "{path}");
    }
    for path in pages(&Method::POST, &tenant) {
        signed_in.clone().post(&path, &[("token", &token)]).await.answered(401);
    }
}
