use keepsake_testkit::ProcessClock;
use keepsake_testkit::provider::{Behaviour, CLIENT_ID, CLIENT_SECRET, Provider};
use reqwest::redirect::Policy;

use super::browser::encoded;
use super::*;
use crate::support::client::plain_http;

/// The audience of the API, for which the access token is the credential.
const AUDIENCE: &str = "keepsake";

struct Setup {
    provider: Provider,
    server: Server,
    tenant: Tenant,
    clock: ProcessClock,
    _folder: TempDir,
    _deployment: Deployment,
}

impl Setup {
    /// With API tokens for `audience`, for browsers that reach the server at `host`.
    async fn new(host: &str, audience: &str) -> Self {
        let deployment = Deployment::new(Pair::Sqlite).await;
        let tenant = deployment.tenant().await;
        let claims = json!({
            "sub": "ada@example.com", "tenant": tenant.id.to_string(),
            "scope": "openid memory:read memory:write", "exp": now_secs() + 300,
        });
        let provider = Provider::start(claims).await;
        let url = provider.url();
        let more = format!(
            "[[auth.issuers]]\nissuer = \"{url}\"\naudience = \"{audience}\"\njwks_url = \"{url}/jwks\"\nactor = \"user\"\n\
             [auth.issuers.console]\nclient_id = \"{CLIENT_ID}\"\nclient_secret = \"{CLIENT_SECRET}\"\n\
             name = \"Example\"\nscopes = [\"profile\"]\n{FREE_RATES}"
        );
        let command = deployment.command(&ServerConfig { more, ..ServerConfig::default() });
        let public_url = format!("http://{host}:{}", command.port());
        provider.register(format!("{public_url}/console/sign-in/callback"));
        let folder = TempDir::new().unwrap();
        let clock = ProcessClock::new(folder.path().join("clock"));
        let command = command.env("KEEPSAKE_SERVER_PUBLIC_URL", &public_url);
        let server = Server::start(clock.of(command)).await;
        Self { provider, server, tenant, clock, _folder: folder, _deployment: deployment }
    }

    fn browser(&self) -> Browser {
        Browser::new(&self.server.url())
    }

    /// Opens the form, chooses the issuer, and returns the URL of its page.
    async fn leave(&self, browser: &mut Browser, next: &str) -> String {
        let form = browser.open(&format!("/console/sign-in?next={next}")).await;
        form.has("Sign in with Example");
        let fields = ["token", "next", "issuer"].map(|name| (name, form.field(name)));
        let fields = fields.each_ref().map(|(name, value)| (*name, value.as_str()));
        let page = browser.post("/console/sign-in/issuer", &fields).await.answered(200);
        let url = next_page(&page);
        assert!(url.starts_with(self.provider.url()), "{url}");
        url
    }

    /// Opens the page of the provider, which leads back to this path.
    async fn at_provider(&self, url: &str) -> String {
        let http = plain_http().redirect(Policy::none());
        let answer = http.build().unwrap().get(url).send().await.unwrap();
        assert_eq!(answer.status(), 303, "{}", answer.text().await.unwrap());
        let location = answer.headers()["location"].to_str().unwrap();
        location.strip_prefix(&self.server.url()).unwrap().to_owned()
    }

    async fn sign_in(&self, browser: &mut Browser, next: &str) -> Page {
        let url = self.leave(browser, next).await;
        let path = self.at_provider(&url).await;
        browser.get(&path).await
    }

    async fn sign_in_with(&self, behaviour: Behaviour) -> (Browser, Page) {
        self.provider.behave(behaviour);
        let mut browser = self.browser();
        let page = self.sign_in(&mut browser, "%2Fconsole%2Fusage").await;
        (browser, page)
    }
}

fn next_page(page: &Page) -> String {
    page.after("<meta http-equiv=\"refresh\" content=\"0; url=")
}

fn with(url: &str, field: &str, value: &str) -> String {
    let (before, rest) = url.split_once(&format!("{field}=")).unwrap();
    let rest = rest.split_once('&').map_or("", |(_, rest)| rest);
    format!("{before}{field}={}&{rest}", encoded(value))
}

#[track_caller]
fn assert_refused(page: &Page, browser: &Browser, status: u16, why: &str) {
    assert_eq!(page.status, status, "{why}: {}", page.text);
    says(&page.text, &["<h1>You are not signed in</h1>", why]);
    assert!(!browser.cookies.contains_key("keepsake_console"), "{why}");
}

#[tokio::test(flavor = "multi_thread")]
async fn person_signs_in_at_an_issuer() {
    // With the access token, and with the ID token, as the credential.
    for audience in [AUDIENCE, CLIENT_ID] {
        let setup = Setup::new("127.0.0.1", audience).await;
        let mut browser = setup.browser();
        let page = setup.sign_in(&mut browser, "%2Fconsole%2Fsearch%3Fq%3Da%26b").await.answered(200);
        assert_eq!(next_page(&page), "/console/search?q=a&b");
        assert_eq!(browser.cookies.keys().collect::<Vec<_>>(), ["keepsake_console"]);
        let stores = browser.open("/console/stores").await;
        says(&stores.text, &["ada@example.com", &setup.tenant.store_id.to_string()]);
        // The scopes are those of the token.
        browser.get("/console/keys").await.answered(403);
        let path = format!("/console/stores/{}/new", setup.tenant.store_id);
        let new = [("path", "/x.md"), ("content", "x"), ("once", "1")];
        browser.act(&stores, &path, &new).await;
        let store = Store::of(&setup.server.client(&setup.tenant), &setup.tenant);
        let ada = json!({"type": "user_actor", "user_id": "ada@example.com"});
        assert_eq!(store.history().await[0]["created_by"], ada);
        for foreign in ["https://evil.example/", "/console/%0d%0ax"] {
            let page = setup.sign_in(&mut setup.browser(), foreign).await.answered(200);
            assert_eq!(next_page(&page), "/console/overview", "{foreign}");
        }
        // Past the token's five minutes, and the minute by which clocks may differ.
        setup.clock.set(400);
        let page = browser.get("/console/stores").await.answered(303);
        assert!(page.location().ends_with("&ended=1"), "{}", page.location());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn sign_in_at_an_issuer_of_another_site_works_in_a_browser() {
    let setup = Setup::new("localhost", AUDIENCE).await;
    let url = format!("http://localhost:{}", setup.server.port());
    let mut node = Command::new("node");
    node.env("KEEPSAKE_BASE_URL", url).env("KEEPSAKE_TEST_ISSUER", setup.provider.url());
    script::browser_suite(node, "issuer.test.mjs").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn issuer_answer_is_accepted_once_and_only_from_the_same_browser() {
    let setup = Setup::new("127.0.0.1", AUDIENCE).await;
    // A code signs in once, whatever the issuer does.
    setup.provider.behave(Behaviour { accepts_codes_again: true, ..Behaviour::default() });
    let mut browser = setup.browser();
    let url = setup.leave(&mut browser, "").await;
    let path = setup.at_provider(&url).await;
    let begun = "did not begin this sign-in";
    let mut stranger = setup.browser();
    assert_refused(&stranger.get(&path).await, &stranger, 403, begun);
    // A stranger who has begun another one can still complete that.
    let own = setup.leave(&mut stranger, "").await;
    assert_refused(&stranger.get(&path).await, &stranger, 403, begun);
    let own = setup.at_provider(&own).await;
    stranger.get(&own).await.answered(200);
    for wrong in ["", "x"] {
        assert_refused(&browser.get(&with(&path, "state", wrong)).await, &browser, 403, begun);
    }
    let mut copied = browser.clone();
    browser.get(&path).await.answered(200);
    browser.open("/console/stores").await;
    browser.cookies.remove("keepsake_console");
    assert_refused(&browser.get(&path).await, &browser, 403, begun);
    assert_refused(&copied.get(&path).await, &copied, 401, "The code of the issuer was used before.");
    assert!(!copied.cookies.contains_key("keepsake_issuer"));
}

#[tokio::test(flavor = "multi_thread")]
async fn altered_answers_and_invalid_tokens_do_not_sign_in() {
    let setup = Setup::new("127.0.0.1", AUDIENCE).await;
    for (field, value, why) in [
        ("nonce", "other", "it belongs to another sign-in"),
        ("code_challenge", "other", "invalid_grant"),
        ("code", "other", "invalid_grant"),
        ("code", "", "has no code"),
        ("iss", "https://evil.example", "that of another issuer"),
    ] {
        let mut browser = setup.browser();
        let url = setup.leave(&mut browser, "").await;
        let is_before = url.contains(&format!("{field}="));
        let url = if is_before { with(&url, field, value) } else { url };
        let path = setup.at_provider(&url).await;
        let path = if is_before { path } else { with(&path, field, value) };
        let page = browser.get(&path).await;
        assert_refused(&page, &browser, 401, why);
        assert!(!browser.cookies.contains_key("keepsake_issuer"), "{why}");
    }
    let refusal = "console.sign_in at an issuer failed: the issuer refused the sign-in: invalid_grant";
    soon("the log has the reason", async || setup.server.output().contains(refusal)).await;

    // Null removes a claim.
    let access_token = |claims: Value| Behaviour { access_token: claims, ..Behaviour::default() };
    let id_token = |claims: Value| Behaviour { id_token: claims, ..Behaviour::default() };
    let denial = |code: &'static str| Behaviour { denies_with: Some(code), ..Behaviour::default() };
    let opaque = Behaviour { has_opaque_tokens: true, ..Behaviour::default() };
    let expired = json!({"exp": now_secs() - 61});
    for (behaviour, why) in [
        (id_token(json!({"aud": "another-client"})), "for another audience"),
        (id_token(json!({"aud": [CLIENT_ID, "another"], "azp": "another"})), "for another audience"),
        (id_token(expired.clone()), "has expired"),
        (id_token(json!({"iss": "https://evil.example"})), "issuer is unknown"),
        (id_token(json!({"sub": null})), "no `sub`"),
        (id_token(json!({"nonce": null})), "another sign-in"),
        (access_token(json!({"aud": "another-api"})), "for another audience"),
        (access_token(expired), "has expired"),
        (access_token(json!({"tenant": null})), "names no tenant"),
        (opaque, "access token is not one for this server: the token is malformed"),
        (denial("access_denied"), "refused the sign-in: access_denied."),
        (denial("<script>"), "refused the sign-in: without an error code."),
    ] {
        let (browser, page) = setup.sign_in_with(behaviour).await;
        assert_refused(&page, &browser, 401, why);
        page.has("href=\"/console/sign-in?next=%2Fconsole%2Fusage\"");
    }
    let (browser, page) = setup.sign_in_with(access_token(json!({"groups": "x".repeat(3_000)}))).await;
    page.answered(400).has("is too long for a cookie");
    assert_eq!(browser.cookies.keys().collect::<Vec<_>>(), ["keepsake_sign_in"]);
    let (mut browser, page) = setup.sign_in_with(access_token(json!({"scope": "openid"}))).await;
    page.answered(200);
    browser.get("/console/stores").await.answered(403);
}

#[tokio::test(flavor = "multi_thread")]
async fn unreachable_or_other_issuer_affects_no_other_sign_ins() {
    let setup = Setup::new("127.0.0.1", AUDIENCE).await;
    setup.provider.behave(Behaviour { is_down: true, ..Behaviour::default() });
    let mut browser = setup.browser();
    let form = browser.open("/console/sign-in").await;
    let issuer = form.field("issuer");
    let at = "/console/sign-in/issuer";
    for (issuer, status, why) in [
        (issuer.as_str(), 503, "The issuer cannot be reached at the moment."),
        ("other", 400, "does not sign in with this issuer"),
    ] {
        let page = browser.submit(&form, at, &[("issuer", issuer)]).await;
        assert_refused(&page, &browser, status, why);
    }
    browser.post(at, &[("issuer", &issuer)]).await.answered(403);
    browser.sign_in(&setup.tenant.key, "").await.answered(303);
    let other = json!({"issuer": "https://evil.example"});
    setup.provider.behave(Behaviour { discovery: other, ..Behaviour::default() });
    let file = setup.server.config_file().display().to_string();
    let arguments = ["config", "check", "--connect", "-o", "json", "--config", &file];
    let run = keepsake_with(&arguments, &[("KEEPSAKE_SERVER_PUBLIC_URL", "http://127.0.0.1")]).await;
    let checked: Value = serde_json::from_str(&run.stdout).unwrap();
    let mut steps = checked["steps"].as_array().unwrap().iter();
    let step = steps.find(|step| step["key"] == "auth.issuers[0].console").unwrap();
    assert_eq!([&step["step"], &step["result"]], ["discovery", "failed"]);
}
