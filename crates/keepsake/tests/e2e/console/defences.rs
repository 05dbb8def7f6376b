//! Attacks: forged forms, planted cookies, foreign addresses, hostile content. Other
//! tenants' ids are tried in `isolation/console.rs`.

use std::time::{Duration, Instant};

use reqwest::{Method, RequestBuilder};
use serde_json::json;

use super::browser::{Browser, Page, console_on, encoded, write};
use super::pages::of_everything;
use crate::operator::Operator;
use crate::support::{Deployment, Pair, Tenant, secrets};

/// The time within which a revocation takes effect.
const TAKES_EFFECT_WITHIN: Duration = Duration::from_secs(5);
/// Paths that lead away from the console, or that browsers may read as such.
const FOREIGN: [&str; 12] = [
    "https://evil.example/",
    "//evil.example",
    "/\\evil.example",
    "/console//evil.example",
    "/console/\\evil.example",
    "/v1/audit",
    "/console/../v1",
    "/console/%2e%2e/v1",
    "/console/\r\nset-cookie: a=b",
    "\t//evil.example",
    "javascript:alert(1)",
    "/console/sign-in/once?token=x",
];

/// The paths of the pages with a method: below the tenant's store, with unknown ids.
fn pages(wanted: &Method, tenant: &Tenant) -> Vec<String> {
    let pages = keepsake_server::console_pages().into_iter();
    let pages = pages.filter(|(method, _)| method == wanted);
    let pages = pages.map(|(_, path)| {
        path.replace("{memory_store_id}", &tenant.store_id.to_string()).replace(['{', '}'], "")
    });
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
    let refused = browser.post("/console/stores", &[("name", "forged")]).await;
    refused.has("<h1>This is not allowed</h1>");
    for path in pages(&Method::POST, &tenant) {
        for fields in [&[][..], &[("token", "")], &[("token", "x")], &[("token", &foreign)]] {
            let refused = browser.post(&path, fields).await;
            assert_eq!(refused.status, 403, "{path} {fields:?}: {}", refused.text);
        }
        for (name, value) in [
            ("sec-fetch-site", "cross-site"),
            ("sec-fetch-site", "same-site"),
            ("sec-fetch-site", "none"),
            ("origin", "https://evil.example"),
        ] {
            let request = browser.form(&path, &[("token", &token)]).header(name, value);
            let refused = browser.send(request).await;
            assert_eq!(refused.status, 403, "{path} {name}: {value}: {}", refused.text);
        }
        // Without the cookie, a form does nothing, whatever its token.
        let mut nobody = Browser::new(&server.url());
        let refused = nobody.post(&path, &[("token", &token)]).await;
        assert_eq!(refused.status, 401, "{path}: {}", refused.text);
        // A link or an image of another site sends a GET.
        let read = browser.get(&path).await;
        assert!([200, 404, 405].contains(&read.status), "{path}: {}", read.status);
    }
    let json = browser.request(Method::POST, "/console/stores");
    let json = json.json(&json!({"name": "forged", "token": token}));
    assert_eq!(browser.send(json).await.status, 415);
    let stores = server.client(&tenant).get("/v1/memory_stores").await.json();
    assert_eq!(stores["data"].as_array().unwrap().len(), 1, "{stores}");
    assert_eq!(stores["data"][0]["archived_at"], json!(null));
    browser.open("/console/stores").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_answer_is_protected_from_frames_caches_and_guessed_types() {
    let (_deployment, tenant, server, mut browser) = console_on(Pair::Sqlite).await;
    let mut answers = Vec::new();
    for path in pages(&Method::GET, &tenant) {
        answers.push((path.clone(), browser.get(&path).await));
        answers.push((path.clone(), Browser::new(&server.url()).get(&path).await));
    }
    for path in pages(&Method::POST, &tenant) {
        answers.push((path.clone(), browser.post(&path, &[]).await));
    }
    let sign_in = Browser::new(&server.url()).get("/console/sign-in").await;
    answers.push(("the sign-in".to_owned(), sign_in));
    for (path, answer) in &answers {
        is_protected(path, answer);
    }
}

pub(super) fn is_protected(path: &str, answer: &Page) {
    let policy = answer.header("content-security-policy");
    for part in [
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "frame-ancestors 'none'",
        "form-action 'self'",
        "base-uri 'none'",
    ] {
        assert!(policy.contains(part), "{path} {}: {policy}", answer.status);
    }
    assert!(!policy.contains("unsafe"), "{path}: {policy}");
    for (name, value) in [
        ("x-frame-options", "DENY"),
        ("x-content-type-options", "nosniff"),
        ("referrer-policy", "no-referrer"),
        ("cache-control", "private, no-store"),
        ("vary", "authorization, x-api-key, cookie"),
        ("cross-origin-opener-policy", "same-origin"),
    ] {
        assert_eq!(answer.header(name), value, "{path} {}: {name}", answer.status);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn sign_in_replaces_a_planted_cookie() {
    let deployment = Deployment::new(Pair::Sqlite).await;
    let (victim, attacker) = (deployment.tenant().await, deployment.tenant().await);
    let server = deployment.start().await;
    let planted = Browser::signed_in(&server.url(), &attacker.key).await;
    let mut browser = planted.clone();
    let before = browser.open("/console/stores").await.field("token");
    let answer = browser.sign_in(&victim.key, "").await;
    assert_eq!(answer.status, 303, "{}", answer.text);
    let [ours, theirs] = [&browser, &planted].map(|browser| &browser.cookies["keepsake_console"]);
    assert_ne!(ours, theirs);
    let stores = browser.open("/console/stores").await;
    stores.has(&victim.store_id.to_string());
    stores.lacks(&attacker.store_id.to_string());
    let forged = [("name", "forged"), ("token", before.as_str())];
    assert_eq!(browser.post("/console/stores", &forged).await.status, 403);

    // The cookie of the sign-in form does not sign in, and the form needs the cookie of
    // its own page.
    let mut stranger = Browser::new(&server.url());
    let form = stranger.open("/console/sign-in").await;
    let cookie = stranger.cookies["keepsake_sign_in"].clone();
    stranger.cookies.insert("keepsake_console".to_owned(), cookie);
    assert_eq!(stranger.get("/console/stores").await.status, 303);
    let mut other = Browser::new(&server.url());
    other.open("/console/sign-in").await;
    let token = form.field("token");
    let fields = [("token", token.as_str()), ("credential", &victim.key)];
    let refused = other.post("/console/sign-in", &fields).await;
    assert_eq!(refused.status, 403, "{}", refused.text);
    assert!(!other.cookies.contains_key("keepsake_console"));
}

#[tokio::test(flavor = "multi_thread")]
async fn sign_in_redirects_only_within_the_consoles() {
    let deployment = Deployment::new(Pair::Sqlite).await;
    let tenant = deployment.tenant().await;
    let operator = Operator::new();
    let server = deployment.start_with(&operator.config).await;
    for (url, credential, home, own) in [
        (server.url(), &tenant.key, "/console/stores", "/console/usage"),
        (operator.url.clone(), &operator.token, "/console/health", "/console/jobs"),
    ] {
        let entered = Browser::new(&url).sign_in(credential, own).await;
        assert_eq!((entered.status, entered.location()), (303, own));
        for foreign in FOREIGN {
            let mut browser = Browser::new(&url);
            let path = format!("/console/sign-in?next={}", encoded(foreign));
            let form = browser.open(&path).await;
            assert_eq!(form.field("next"), home, "{foreign:?}");
            form.lacks("evil");
            // The form may be changed, too.
            let token = form.field("token");
            let fields = [("token", token.as_str()), ("credential", credential), ("next", foreign)];
            let entered = browser.post("/console/sign-in", &fields).await;
            assert_eq!((entered.status, entered.location()), (303, home), "{foreign:?}");
            // A wrong credential shows the form again.
            let mut browser = Browser::new(&url);
            let token = browser.open(&path).await.field("token");
            let fields = [("token", token.as_str()), ("credential", "x"), ("next", foreign)];
            let again = browser.post("/console/sign-in", &fields).await;
            let next = again.field("next");
            assert_eq!((again.status, next.as_str()), (401, home), "{foreign:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_page_is_refused_after_its_credential_is_revoked() {
    let (_deployment, tenant, server, _browser) = console_on(Pair::Postgres).await;
    let client = server.client(&tenant);
    let draft = json!({"name": "ended", "scopes": ["memory:read", "tenant:admin"]});
    let made = client.post("/v1/api_keys", &draft).await.json();
    let key = made["api_key"].as_str().unwrap();
    secrets::remember(key, "an API key");
    let signed_in = Browser::signed_in(&server.url(), key).await;
    let page = signed_in.clone().open("/console/stores").await;
    let token = page.field("token");
    let revoke = format!("/v1/api_keys/{}/revoke", made["id"].as_str().unwrap());
    assert_eq!(client.post(&revoke, &json!({})).await.status, 200);
    let revoked = Instant::now();
    while signed_in.clone().get("/console/stores").await.status == 200 {
        let took = revoked.elapsed();
        assert!(took < TAKES_EFFECT_WITHIN, "{took:?}");
    }
    for path in pages(&Method::GET, &tenant) {
        let answer = signed_in.clone().get(&path).await;
        assert_eq!(answer.status, 303, "{path}: {}", answer.text);
        assert!(answer.location().starts_with("/console/sign-in?"), "{path}");
    }
    for path in pages(&Method::POST, &tenant) {
        let answer = signed_in.clone().post(&path, &[("token", &token)]).await;
        assert_eq!(answer.status, 401, "{path}: {}", answer.text);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn hostile_content_is_text() {
    let (_deployment, tenant, server, mut browser) = console_on(Pair::Sqlite).await;
    let client = server.client(&tenant);
    let script = "<script>alert(1)</script>";
    let content = format!(
        "{script}\n<img src=x onerror=alert(2)>\n[a](javascript:alert(3))\n![b](https://evil.example/x.png)\n\
         </textarea>{script}\n\u{202E}txt.exe\n\"><svg onload=alert(4)>\n{{{{7*7}}}}\n"
    );
    let path = "/a <b onclick='x'> \"q\".md";
    let made = write(&client, tenant.store_id, path, &content).await;
    let [id, version] = ["id", "memory_version_id"].map(|field| made[field].as_str().unwrap());
    let name = format!("{script}\"'");
    let edit = json!({"name": name, "description": script});
    let store = format!("/v1/memory_stores/{}", tenant.store_id);
    assert_eq!(client.post(&store, &edit).await.status, 200);
    let console = format!("/console/stores/{}", tenant.store_id);
    let told = encoded(script);
    let in_forms = [
        format!("{console}/new?path={told}"),
        format!("/console/search?q=alert&prefix={told}"),
        "/console/search?q=alert".to_owned(),
        format!("/console/stores?name={told}"),
        format!("/console/audit?actor={told}"),
        format!("/console/sessions?store={told}"),
    ];
    for page in of_everything(&tenant, id, version).into_iter().chain(in_forms) {
        let shown = browser.get(&page).await;
        assert!([200, 400].contains(&shown.status), "{page}: {}", shown.text);
        for part in ["<script>", "<img", "<svg onload", "onclick='x'>", "javascript:alert", "</textarea><"] {
            let allowed = part == "javascript:alert" && !shown.text.contains("href=\"javascript");
            assert!(allowed || !shown.text.contains(part), "{part} in {page}: {}", shown.text);
        }
    }
    let raw = browser.open(&format!("{console}/memories/{id}?raw=1")).await;
    raw.has("<span class=\"ctl\">U+202E</span>");
    let file = browser.open(&format!("{console}/memories/{id}/file")).await;
    assert_eq!(file.header("content-type"), "text/plain; charset=utf-8");
    assert!(file.header("content-disposition").starts_with("attachment"));
    assert_eq!(file.text, content);
}

#[tokio::test(flavor = "multi_thread")]
async fn cookies_are_secure_behind_tls() {
    let (_deployment, tenant, server, _browser) = console_on(Pair::Sqlite).await;
    for (proto, name, rest) in [
        ("https", "__Host-keepsake_console", "; Path=/; Max-Age=43200; HttpOnly; SameSite=Strict; Secure"),
        ("http", "keepsake_console", "; Path=/console; Max-Age=43200; HttpOnly; SameSite=Strict"),
    ] {
        let mut browser = Browser::new(&server.url());
        let through = |request: RequestBuilder| request.header("x-forwarded-proto", proto);
        let form = through(browser.request(Method::GET, "/console/sign-in"));
        let token = browser.send(form).await.field("token");
        let fields = [("token", token.as_str()), ("credential", &tenant.key)];
        let form = through(browser.form("/console/sign-in", &fields));
        let answer = browser.send(form).await;
        assert_eq!(answer.status, 303, "{}", answer.text);
        assert_eq!(browser.cookies.keys().collect::<Vec<_>>(), [name]);
        let set = format!("{name}={}{rest}", browser.cookies[name]);
        let lines: Vec<_> = answer.headers.get_all("set-cookie").iter().collect();
        assert!(lines.iter().any(|line| *line == &set), "{set}: {lines:?}");
        let page = through(browser.request(Method::GET, "/console/stores"));
        let page = browser.send(page).await;
        assert_eq!(page.status, 200, "{}", page.text);
    }
}

/// A cache in front of the server would give what it keeps to other tenants. Pages are
/// among the protected answers.
#[tokio::test(flavor = "multi_thread")]
async fn answers_are_kept_out_of_shared_caches() {
    let (_deployment, tenant, server, _browser) = console_on(Pair::Sqlite).await;
    let client = server.client(&tenant);
    let nobody = client.with_key("ks_live_unknown");
    for (status, answer) in [
        (200, client.get("/v1/memory_stores").await),
        (404, client.get("/v1/memory_stores/memstore_unknown").await),
        (400, client.get("/v1/memory_stores?limit=0").await),
        (400, client.post("/v1/memory_stores", &json!({})).await),
        (401, nobody.get("/v1/memory_stores").await),
        (404, client.get("/v1/unknown").await),
    ] {
        assert_eq!(answer.status, status, "{}", answer.text);
        assert_eq!(answer.header("cache-control"), "private, no-store");
        assert_eq!(answer.header("vary"), "authorization, x-api-key, cookie");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn forms_of_too_many_fields_are_refused() {
    let (_deployment, tenant, server, mut browser) = console_on(Pair::Sqlite).await;
    let page = browser.open("/console/stores").await;
    let mut fields = vec![("a", ""); 998];
    fields.push(("name", "allowed"));
    let made = browser.submit(&page, "/console/stores", &fields).await;
    assert_eq!(made.status, 303, "{}", made.text);
    fields.push(("a", ""));
    let refused = browser.submit(&page, "/console/stores", &fields).await;
    assert_eq!(refused.status, 400);
    refused.has("the form must have at most 1000 fields");
    let stores = server.client(&tenant).get("/v1/memory_stores").await.json();
    assert_eq!(stores["data"].as_array().unwrap().len(), 2, "{stores}");
}
