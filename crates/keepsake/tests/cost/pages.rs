//! Every page and every form of the console, from the list of its routes, each at its most
//! costly.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use futures::future::join_all;
use keepsake_server::console_pages;
use reqwest::{Method, RequestBuilder};
use serde_json::{Value, json};

use crate::attacks::{BODY_BYTES, BROWSERS, HostileTexts, POLL, is_stopped, open_session};
use crate::browser::{Browser, encoded};
use crate::support::{Client, Tenant};

/// Rows of lists.
const ROWS: usize = 200;
/// The directory of the memories.
const DIRECTORY: &str = "/d/d/d/d/d/d/d/d";
/// How long an answer is read.
const PATIENCE: Duration = Duration::from_secs(1);
/// Lines of a text, each of which differs from those of another text.
const LINES: usize = 25_600;

/// Posts until the rate admits it.
async fn insist(client: &Client, path: &str, body: &Value) {
    loop {
        let answer = client.post(path, body).await;
        match answer.status {
            200 => return,
            429 | 529 => tokio::time::sleep(POLL).await,
            other => panic!("{path}: {other}: {}", answer.text),
        }
    }
}

/// A form as it is sent.
enum Body {
    /// Accepted, and the same each time.
    Valid(Vec<(&'static str, String)>),
    /// Refused, as late as possible, since the form would end the attack.
    Fields,
}

/// The attacker: the ids of its objects, and a browser that is signed in.
pub(super) struct Console {
    browser: Browser,
    token: String,
    /// The placeholders of routes, and what replaces them.
    ids: Vec<(&'static str, String)>,
    compare: String,
}

impl Console {
    /// Fills a tenant with what makes pages costly.
    pub(super) async fn filled(url: &str, client: &Client, tenant: &Tenant, texts: &HostileTexts) -> Self {
        let store = format!("/v1/memory_stores/{}", tenant.store_id);
        let session = open_session(client, tenant.store_id).await;
        let call = json!({"command": "view", "path": format!("/memories/{}", "x".repeat(900))});
        for row in 0..ROWS {
            let path = format!("{DIRECTORY}/{row}.md");
            let memory = json!({"path": path, "content": "<b>&".repeat(200)});
            insist(client, &format!("{store}/memories"), &memory).await;
            let new = json!({"name": "<n>".repeat(30), "description": "&".repeat(1_000)});
            insist(client, "/v1/memory_stores", &new).await;
            insist(client, &format!("{session}/tool_calls"), &call).await;
        }
        let erasure = json!({"memory_store_id": tenant.store_id, "path_prefix": "/none/"});
        let erasure = client.post("/v1/erasures", &erasure).await.json();
        let keys = client.get("/v1/api_keys").await.json();
        let id = |object: &Value| object["id"].as_str().unwrap().to_owned();
        let mut browser = Browser::signed_in(url, &tenant.key).await;
        let token = browser.open("/console/stores").await.field("token");
        let ids = vec![
            ("{memory_store_id}", tenant.store_id.to_string()),
            ("{memory_id}", texts.memory_ids[0].clone()),
            ("{memory_version_id}", texts.version_id.clone()),
            ("{session_id}", session.trim_start_matches("/v1/sessions/").to_owned()),
            ("{api_key_id}", id(&keys["data"][0])),
            ("{erasure_id}", id(&erasure)),
        ];
        Self { browser, token, ids, compare: texts.compare.clone() }
    }

    fn path(&self, route: &str) -> String {
        let mut path = route.to_owned();
        for (placeholder, id) in &self.ids {
            path = path.replace(placeholder, id);
        }
        assert!(!path.contains('{'), "the attack has nothing for {route}");
        path
    }

    /// The requests of the attack with this method: one or more of each route.
    fn requests(&self, method: &Method) -> Vec<RequestBuilder> {
        let routes = console_pages();
        let routes = routes.iter().filter(|(of_route, _)| of_route == method);
        let requests = routes.flat_map(|(_, route)| {
            if *method == Method::GET {
                let path = self.path(route);
                let queries = self.queries(route).into_iter();
                let get = |query| self.browser.request(Method::GET, &format!("{path}{query}"));
                queries.map(get).collect()
            } else {
                vec![self.form(route)]
            }
        });
        requests.collect()
    }

    /// The queries of a page.
    fn queries(&self, route: &str) -> Vec<String> {
        let name = route.replace("/console", "");
        let name = name.replace("/stores/{memory_store_id}", "{store}");
        match name.replace("/memories/{memory_id}", "{memory}").as_str() {
            "{store}" => vec![String::new(), format!("?path={}", encoded(&format!("{DIRECTORY}/")))],
            "{store}/compare" => vec![format!("?{}", self.compare), format!("?{}&view=inline", self.compare)],
            "{store}{memory}" => vec![String::new(), "?raw=1".to_owned()],
            "/search" => vec![format!("?q={}", encoded(&"b ".repeat(500))), "?q=b&prefix=%2Fd".to_owned()],
            "/erasures/preview" => vec![format!("?store={}&prefix=%2F", self.ids[0].1)],
            "/audit/export" => vec!["?format=csv".to_owned()],
            ""
            | "/stores"
            | "{store}/settings"
            | "{store}/new"
            | "{store}/history"
            | "{store}/usage"
            | "{store}{memory}/file"
            | "{store}{memory}/edit"
            | "{store}{memory}/delete"
            | "{store}{memory}/history"
            | "{store}/versions/{memory_version_id}"
            | "{store}/versions/{memory_version_id}/redact"
            | "/sessions"
            | "/sessions/{session_id}"
            | "/sessions/{session_id}/events"
            | "{store}/archive"
            | "/usage"
            | "/keys"
            | "/keys/{api_key_id}"
            | "/audit"
            | "/erasures"
            | "/erasures/{erasure_id}"
            | "/transfer" => vec![String::new()],
            other => panic!("the attack has no case for the page {route} ({other})"),
        }
    }

    /// The request with a form.
    fn form(&self, route: &str) -> RequestBuilder {
        let name = route.replace("/console", "");
        let name = name.replace("/stores/{memory_store_id}", "{store}");
        let text = "b\na\n".repeat(LINES / 2);
        let body = match name.replace("/memories/{memory_id}", "{memory}").as_str() {
            // A conflict, which shows a comparison.
            "{store}{memory}/edit" => Body::Valid(vec![("content", text), ("base_sha256", "0".repeat(64))]),
            // A path that is taken, so that the form is shown again.
            "{store}/new" => Body::Valid(vec![("path", "/0.md".to_owned()), ("content", text)]),
            "{store}{memory}/rename" => Body::Valid(vec![("path", "/0.md".to_owned())]),
            "{store}{memory}/expiry" => Body::Valid(vec![("action", "pin".to_owned())]),
            "{store}/settings" => {
                Body::Valid(vec![("name", "x".repeat(100)), ("description", "<".repeat(1_000))])
            }
            "/transfer" => {
                let fields = [("token", self.token.as_str()), ("name", "x")];
                // Not an archive, as large as a form may be.
                return self.browser.form_with_file(&fields, &vec![b'x'; BODY_BYTES]);
            }
            "/stores"
            | "/sign-out"
            | "{store}/archive"
            | "{store}/delete"
            | "{store}{memory}/delete"
            | "{store}/versions/{memory_version_id}/restore"
            | "{store}/versions/{memory_version_id}/redact"
            | "/sessions/{session_id}/end"
            | "/keys"
            | "/keys/{api_key_id}/revoke"
            | "/erasures" => Body::Fields,
            other => panic!("the attack has no case for the form {route} ({other})"),
        };
        let path = self.path(route);
        match body {
            Body::Valid(fields) => {
                let mut all = vec![("token", self.token.as_str()), ("once", "1")];
                all.extend(fields.iter().map(|(name, value)| (*name, value.as_str())));
                self.browser.form(&path, &all)
            }
            Body::Fields => self
                .browser
                .request(Method::POST, &path)
                .header("content-type", "application/x-www-form-urlencoded")
                .body("a&".repeat(BODY_BYTES / 2)),
        }
    }

    /// Sends the requests with this method in turn, from several browsers: most of the time
    /// they wait for the most costly.
    pub(super) async fn send_all(&self, method: Method, stop: Arc<AtomicBool>) {
        let requests = self.requests(&method);
        let senders = (0..BROWSERS).map(|number| {
            let (requests, stop) = (&requests, &stop);
            async move {
                let mut turn = number * requests.len() / BROWSERS;
                while !is_stopped(stop) {
                    let request = requests[turn % requests.len()].try_clone().unwrap();
                    let read = async {
                        if let Ok(mut answer) = request.send().await {
                            while let Ok(Some(_)) = answer.chunk().await {}
                        }
                    };
                    // A stream has no end.
                    let _ = tokio::time::timeout(PATIENCE, read).await;
                    turn += 1;
                }
            }
        });
        join_all(senders).await;
    }
}
