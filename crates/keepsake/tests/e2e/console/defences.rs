//! Attacks: forged forms, hostile content, other tenants' ids.

use keepsake_core::limits::LimitOverrides;
use reqwest::Method;
use serde_json::json;

use super::browser::{Browser, console_on, encoded};
use crate::support::{Deployment, Pair};

#[tokio::test(flavor = "multi_thread")]
async fn forms_without_their_token_or_of_other_sites_are_refused() {
    let (_deployment, tenant, server, mut browser) = console_on(Pair::Sqlite).await;
    let page = browser.open("/console/stores").await;
    let token = page.field("token");
    for fields in [
        &[("name", "forged")][..],
        &[("name", "forged"), ("token", "")],
        &[("name", "forged"), ("token", "x")],
    ] {
        let refused = browser.post("/console/stores", fields).await;
        assert_eq!(refused.status, 403, "{}", refused.text);
        refused.has("<h1>This is not allowed</h1>");
    }
    let other = Browser::signed_in(&server.url(), &tenant.key).await;
    let foreign = other.clone().open("/console/stores").await.field("token");
    assert_ne!(foreign, token);
    assert_eq!(
        browser
            .post("/console/stores", &[("name", "forged"), ("token", &foreign)])
            .await
            .status,
        403
    );
    for (name, value) in [
        ("sec-fetch-site", "cross-site"),
        ("sec-fetch-site", "same-site"),
        ("origin", "https://evil.example"),
    ] {
        let request = browser
            .request(Method::POST, "/console/stores")
            .header("content-type", "application/x-www-form-urlencoded")
            .header(name, value)
            .body(format!("name=forged&token={}", encoded(&token)));
        assert_eq!(browser.send(request).await.status, 403, "{name}: {value}");
    }
    let json = browser
        .request(Method::POST, "/console/stores")
        .json(&json!({"name": "forged", "token": token}));
    assert_eq!(browser.send(json).await.status, 415);
    let stores = server.client(&tenant).get("/v1/memory_stores").await.json();
    assert_eq!(stores["data"].as_array().unwrap().len(), 1, "{stores}");
}

#[tokio::test(flavor = "multi_thread")]
async fn other_tenants_ids_are_not_found() {
    let deployment = Deployment::new(Pair::Postgres).await;
    let provision = deployment.provision().await;
    let (mine, theirs) = (
        provision.tenant(LimitOverrides::default()).await,
        provision.tenant(LimitOverrides::default()).await,
    );
    provision.close().await;
    let server = deployment.start().await;
    let client = server.client(&theirs);
    let new = json!({"path": "/theirs.md", "content": "theirs alone"});
    let memory = client
        .post(&format!("/v1/memory_stores/{}/memories", theirs.store_id), &new)
        .await
        .json();
    let (memory, version) = (
        memory["id"].as_str().unwrap(),
        memory["memory_version_id"].as_str().unwrap(),
    );
    let session = client
        .post("/v1/sessions", &json!({"agent": "a", "environment_id": "e"}))
        .await
        .json();
    let session = session["id"].as_str().unwrap();
    let keys = client.get("/v1/api_keys").await.json();
    let key = keys["data"][0]["id"].as_str().unwrap();
    let mut browser = Browser::signed_in(&server.url(), &mine.key).await;
    let (store, own) = (
        format!("/console/stores/{}", theirs.store_id),
        format!("/console/stores/{}", mine.store_id),
    );
    for path in [
        store.clone(),
        format!("{store}?path=%2Ftheirs.md"),
        format!("{store}/settings"),
        format!("{store}/new"),
        format!("{store}/history"),
        format!("{store}/usage"),
        format!("{store}/compare?to={version}"),
        format!("{store}/memories/{memory}"),
        format!("{store}/memories/{memory}/file"),
        format!("{store}/memories/{memory}/edit"),
        format!("{store}/memories/{memory}/delete"),
        format!("{store}/memories/{memory}/history"),
        format!("{store}/versions/{version}"),
        format!("{store}/versions/{version}/redact"),
        format!("{own}/memories/{memory}"),
        format!("{own}/memories/{memory}/history"),
        format!("{own}/versions/{version}"),
        format!("{own}/compare?to={version}"),
        format!("/console/sessions/{session}"),
        format!("/console/keys/{key}"),
        format!("/console/erasures/preview?store={}", theirs.store_id),
        format!("/console/search?q=theirs&store={}", theirs.store_id),
    ] {
        let page = browser.get(&path).await;
        assert_eq!(page.status, 404, "{path}: {}", page.text);
        page.lacks("theirs alone");
    }
    let page = browser.open("/console/stores").await;
    for (path, fields) in [
        (format!("{store}/settings"), &[("name", "mine")][..]),
        (format!("{store}/archive"), &[]),
        (format!("{store}/delete"), &[("confirm", "notes")]),
        (format!("{store}/new"), &[("path", "/x.md"), ("content", "x")]),
        (format!("{store}/memories/{memory}/rename"), &[("path", "/y.md")]),
        (format!("{store}/memories/{memory}/expiry"), &[("action", "pin")]),
        (format!("{own}/memories/{memory}/rename"), &[("path", "/y.md")]),
        (format!("{store}/versions/{version}/restore"), &[]),
        (format!("{own}/versions/{version}/restore"), &[]),
        (
            format!("{own}/versions/{version}/redact"),
            &[("confirm", "redact")],
        ),
        (format!("/console/sessions/{session}/end"), &[]),
        (format!("/console/keys/{key}/revoke"), &[]),
    ] {
        let answer = browser.submit(&page, &path, fields).await;
        assert_eq!(answer.status, 404, "{path}: {}", answer.text);
    }
    browser
        .open("/console/search?q=theirs")
        .await
        .has("Nothing was found");
    browser
        .open("/console/audit")
        .await
        .lacks(&theirs.store_id.to_string());
    let untouched = client
        .get(&format!(
            "/v1/memory_stores/{}/memories/{memory}",
            theirs.store_id
        ))
        .await;
    assert_eq!(untouched.json()["path"], "/theirs.md");
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
    let new = json!({"path": path, "content": content});
    let made = client
        .post(&format!("/v1/memory_stores/{}/memories", tenant.store_id), &new)
        .await;
    assert_eq!(made.status, 200, "{}", made.text);
    let (id, version) = (
        made.json()["id"].as_str().unwrap().to_owned(),
        made.json()["memory_version_id"].as_str().unwrap().to_owned(),
    );
    let name = format!("{script}\"'");
    let edit = json!({"name": name, "description": script});
    let store = format!("/v1/memory_stores/{}", tenant.store_id);
    assert_eq!(client.post(&store, &edit).await.status, 200);
    let console = format!("/console/stores/{}", tenant.store_id);
    for page in [
        "/console/stores".to_owned(),
        console.clone(),
        format!("{console}/settings"),
        format!("{console}/history"),
        format!("{console}/usage"),
        format!("{console}/new?path={}", encoded(script)),
        format!("{console}/memories/{id}"),
        format!("{console}/memories/{id}?raw=1"),
        format!("{console}/memories/{id}/edit"),
        format!("{console}/memories/{id}/delete"),
        format!("{console}/memories/{id}/history"),
        format!("{console}/versions/{version}"),
        format!("{console}/versions/{version}/redact"),
        format!("{console}/compare?to={version}"),
        format!("{console}/compare?to={version}&view=split"),
        format!("/console/search?q=alert&prefix={}", encoded(script)),
        "/console/search?q=alert".to_owned(),
        format!("/console/stores?name={}", encoded(script)),
        format!("/console/audit?actor={}", encoded(script)),
        format!("/console/sessions?store={}", encoded(script)),
        "/console/usage".to_owned(),
        "/console/keys".to_owned(),
        "/console/erasures".to_owned(),
        "/console/transfer".to_owned(),
    ] {
        let shown = browser.get(&page).await;
        assert!([200, 400].contains(&shown.status), "{page}: {}", shown.text);
        for part in [
            "<script>",
            "<img",
            "<svg onload",
            "onclick='x'>",
            "javascript:alert",
            "</textarea><",
        ] {
            let allowed = part == "javascript:alert" && !shown.text.contains("href=\"javascript");
            assert!(
                allowed || !shown.text.contains(part),
                "{part} in {page}: {}",
                shown.text
            );
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
    let (_deployment, tenant, _server, mut browser) = console_on(Pair::Sqlite).await;
    let form = browser.open("/console/sign-in").await;
    let (token, key) = (form.field("token"), encoded(&tenant.key));
    for (proto, is_secure) in [("https", true), ("http", false)] {
        let request = browser
            .request(Method::POST, "/console/sign-in")
            .header("content-type", "application/x-www-form-urlencoded")
            .header("x-forwarded-proto", proto)
            .body(format!("token={}&credential={key}", encoded(&token)));
        let response = request.send().await.unwrap();
        assert_eq!(response.status(), 303);
        let cookie = response.headers()["set-cookie"].to_str().unwrap();
        assert_eq!(cookie.contains("; Secure"), is_secure, "{cookie}");
        assert!(
            cookie.contains("Path=/console;")
                && cookie.contains("HttpOnly")
                && cookie.contains("SameSite=Strict")
        );
    }
}
