//! The operator's console: tenants, limits, keys, audit. `tests/browser/operator.test.mjs` uses it as a person does.

use crate::console::browser::Browser;
use crate::prelude::*;

async fn signed_in() -> (Deployment, Tenant, Server, Operator, Browser) {
    let deployment = Deployment::new(Pair::Sqlite).await;
    let (tenant, operator) = (deployment.tenant().await, Operator::new());
    let server = deployment.start_with(&operator.config).await;
    let browser = Browser::signed_in(&operator.url, &operator.token).await;
    (deployment, tenant, server, operator, browser)
}

#[tokio::test(flavor = "multi_thread")]
async fn limits_are_changed_as_by_the_api_and_taken_back() {
    let (_deployment, tenant, _server, operator, mut browser) = signed_in().await;
    let [path, api] = ["/console/tenants/ID/limits", "/admin/v1/tenants/ID"]
        .map(|it| it.replace("ID", &tenant.id.to_string()));
    let own = async |name: &str| operator.get(&api).await["limits"][name].clone();
    let before = own("stores_per_tenant").await;
    let page = browser.open(&path).await;
    let fields = [("stores_per_tenant", "7"), ("bytes_per_memory", "64KiB")];
    let saved = browser.act(&page, &path, &fields).await;
    assert_eq!([own("stores_per_tenant").await, own("bytes_per_memory").await], [7, 65_536]);
    saved.has("name=\"bytes_per_memory\" value=\"64KiB\"");
    let audit = operator.audit(&format!("{api}/audit")).await;
    assert!(audit.contains(&format!("operator tenant.update {}", tenant.id)), "{audit:?}");
    let changes = "changed a tenant: bytes_per_memory default → 64KiB, stores_per_tenant default → 7<";
    for page in ["/console/audit", &path.replace("limits", "audit")] {
        browser.open(page).await.has(changes);
    }
    let most = "must be at most 9,007,199,254,740,992.";
    for (typed, said) in [("eight", "must be a whole number."), ("9007199254740993", most)] {
        let wrong = [("stores_per_tenant", typed), ("request_burst", "x")];
        let refused = browser.submit(&page, &path, &wrong).await.answered(400);
        says(&refused.text, &["Requests in a burst must", said, &format!("_tenant\" value=\"{typed}\"")]);
        assert_eq!(own("stores_per_tenant").await, 7);
    }
    saved.has("name=\"stores_per_tenant\" value=\"7\"");
    let (undo, _) = saved.text.split_once("Undo</button>").unwrap();
    assert!(undo.contains("name=\"was_stores_per_tenant\" value=\"7\""), "{undo}");
    let old = before.to_string().replace("null", "");
    let undo = [
        ("was_stores_per_tenant", "7"),
        ("stores_per_tenant", old.as_str()),
        ("was_max_view_chars", "9"),
        ("max_view_chars", "9"),
    ];
    operator.send(Method::PATCH, &api, Some(&json!({"limits": {"stores_per_tenant": 8}}))).await;
    let refused = browser.submit(&saved, &path, &undo).await.answered(409);
    refused.has("Somebody changed the same limit");
    refused.has("name=\"was_stores_per_tenant\" value=\"8\"");
    refused.has("name=\"max_view_chars\" value=\"\"");
    assert_eq!(own("stores_per_tenant").await, 8);
    let undo = [("was_stores_per_tenant", "8"), ("stores_per_tenant", old.as_str())];
    let saved = browser.act(&saved, &path, &undo).await;
    saved.has("Undo</button>");
    assert_eq!(own("stores_per_tenant").await, before);
    // A limit that was typed into the form of an ended sign-in comes back after the next one.
    browser.cookies.clear();
    let typed = [("was_stores_per_tenant", old.as_str()), ("stores_per_tenant", "9")];
    let kept = browser.submit(&saved, &path, &typed).await.answered(401);
    kept.has("name=\"stores_per_tenant\" value=\"9\"");
    let (token, action) = (kept.field("token"), kept.field("typed_action"));
    let fields = [("token", token.as_str()), ("credential", &operator.token), ("typed_action", &action)];
    let carried = [("typed.was_stores_per_tenant", old.as_str()), ("typed.stores_per_tenant", "9")];
    let back = browser.post("/console/sign-in", &[&fields[..], &carried].concat()).await.answered(200);
    browser.act(&back, &path, &typed).await;
    assert_eq!(own("stores_per_tenant").await, 9);
}

#[tokio::test(flavor = "multi_thread")]
async fn operator_pages_show_a_tenant_and_forms_need_their_token() {
    let (_deployment, tenant, server, operator, mut browser) = signed_in().await;
    let base = format!("/console/tenants/{}", tenant.id);
    let (_, key_path) = server.client(&tenant).new_key(&["memory:read"]).await;
    let key = format!("{base}/keys/{}", key_path.rsplit('/').next().unwrap());
    for (path, part) in [
        ("/console/tenants?order=writes", "name=\"order\" value=\"writes\""),
        (&format!("/console/tenants?name={}&status=active", tenant.id), base.as_str()),
        (&format!("{base}/keys/new"), &tenant.store_id.to_string()),
        ("/console/audit?action=job", "No entry fits the filter"),
        (&base, "None in these 30 days."),
        (&format!("{base}/keys"), &key),
        (&format!("{base}/audit?action=api_key.create"), &key),
        (&format!("{base}/audit?object=notes"), "<bdi>notes</bdi> <span class=\"id\">"),
        ("/console/jobs?period=week", "Show as table"),
        ("/console/health", "Database connections"),
    ] {
        browser.open(path).await.has(part);
    }
    let forms = ["", "/keys/new", "/limits", "/suspend"].map(|end| format!("{base}{end}"));
    let others = ["/console/tenants/new", "/console/jobs/sweep-blobs/run"].map(str::to_owned);
    for form in forms.into_iter().chain(others).chain([format!("{key}/revoke")]) {
        browser.post(&form, &[("token", "x"), ("stores_per_tenant", "1")]).await.answered(403);
    }
    let page = browser.open(&key).await;
    browser.act(&page, &format!("{key}/revoke"), &[]).await.has("revoked</span>");
    operator.send(Method::DELETE, &format!("/admin/v1/tenants/{}", tenant.id), None).await;
    browser.open(&base).await.has("id=\"deletion\"");
    browser.cookies.clear();
    browser.submit(&page, &format!("{base}/suspend"), &[]).await.answered(401).has("action was not done");
}

#[tokio::test(flavor = "multi_thread")]
async fn operator_makes_a_tenant_and_its_first_key_once() {
    let (_deployment, tenant, server, _operator, mut browser) = signed_in().await;
    let new = "/console/tenants/new";
    let form = browser.open(new).await;
    let id = form.field("once");
    let typed = |name| [("once", id.as_str()), ("name", name), ("external_id", "acme 1")];
    let refused = browser.submit(&form, new, &typed("")).await.answered(400);
    says(&refused.text, &["Name must be 1 to 255 characters", "value=\"acme 1\""]);
    let path = format!("/console/tenants/{id}/keys/new");
    for _ in 0..2 {
        browser.act(&form, new, &typed("Acme")).await.has(&path);
    }
    browser.submit(&form, new, &typed("Other")).await.answered(400).has("sent before");
    let page = format!("/console/tenants/{id}");
    let changed = [("was_name", "Acme"), ("name", "Acme 2"), ("external_id", "acme 1")];
    let changed = browser.act(&form, &page, &changed).await;
    says(&changed.text, &["<bdi>Acme 2</bdi>", "name=\"external_id\" maxlength=\"255\" value=\"acme 1\""]);
    says(
        &changed.text,
        &["name=\"was_name\" value=\"Acme 2\"", "name=\"name\" value=\"Acme\"", "Undo</button>"],
    );
    let undo = [("was_name", "Acme 2"), ("name", "Acme")];
    browser.act(&form, &page, &undo).await.has("<bdi>Acme</bdi>");
    let spaces = [("was_name", " Acme "), ("name", " Acme "), ("external_id", "acme 1")];
    browser.act(&form, &page, &spaces).await.has("Nothing was changed.");
    let other = [("was_name", "Acme 2"), ("name", "Acme 3")];
    let late = browser.submit(&form, &page, &other).await.answered(409);
    says(
        &late.text,
        &["this tenant has <bdi>Acme</bdi>", "name=\"was_name\" value=\"Acme\"", "value=\"Acme 3\""],
    );
    let other = browser.open(new).await.field("once");
    let other = [("once", other.as_str()), ("name", "Other"), ("external_id", "acme 1")];
    let taken = browser.submit(&form, new, &other).await.answered(409);
    taken.has("A tenant with this external id exists already.");
    let form = browser.open(&path).await;
    let once = form.field("once");
    let typed =
        |days| [("once", once.as_str()), ("name", "A"), ("scope", "memory:read"), ("expires_days", days)];
    let refused = browser.submit(&form, &path, &typed("0")).await.answered(400);
    says(&refused.text, &["Expires after days must be at least 1.", "maxlength=\"255\" value=\"A\""]);
    let made = browser.submit(&form, &path, &typed("30")).await.answered(200);
    let client = server.client(&tenant).with_key(&made.after("id=\"secret\">"));
    assert_eq!(client.get("/v1/credential").await.json()["workspace_id"], id.as_str());
    browser.submit(&form, &path, &typed("30")).await.answered(200).lacks("id=\"secret\"");
    for audit in ["/console/audit", &format!("/console/tenants/{id}/audit")] {
        let page = browser.open(audit).await;
        says(&page.text, &["\">created a tenant<", "\"api_key.create\">", &path.replace("new", "apikey_")]);
        let of_tenant = browser.open(&format!("{audit}?action=tenant.create&object={id}&period=1")).await;
        of_tenant.has("title=\"tenant.create\">");
        of_tenant.lacks("title=\"api_key.create\">");
    }
}
