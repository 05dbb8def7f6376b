//! Every page and every form of the console, from the list of its routes, with what makes
//! them costly.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use keepsake_server::console_pages;
use reqwest::{Method, RequestBuilder};
use serde_json::{Value, json};

use crate::attacks::{BODY_BYTES, insist, repeat};
use crate::browser::{Browser, encoded};
use crate::support::client::ok;
use crate::support::sessions::open_session;
use crate::support::{Client, Tenant};

const BROWSERS: usize = 8;
/// The directory of the memories.
const DIRECTORY: &str = "/d/d/d/d/d/d/d/d";
/// How long an answer is read.
const PATIENCE: Duration = Duration::from_secs(1);
/// Lines of a text, each of which differs from those of another text.
const LINES: usize = 25_600;
/// Pages that no query makes more costly, at first the one without a name. A new page is added here or gets queries.
const PLAIN_PAGES: &str = " /overview /stores /usage /audit /transfer /keys /keys/{api_key_id} \
    /erasures /erasures/{erasure_id} \
    /sessions /sessions/{session_id} /sessions/{session_id}/events /sessions/{session_id}/reads \
    {store}/settings {store}/new {store}/history {store}/deleted {store}/fork {store}/tests {store}/usage \
    {store}/archive {store}/undo/{undo_id} \
    {store}{memory}/file {store}{memory}/edit {store}{memory}/delete {store}{memory}/secret \
    {store}{memory}/history {store}{memory}/readers \
    {store}{version} {store}{version}/redact {store}{version}/readers";
/// Forms that would end the attack, so they are sent with too many fields.
const REFUSED_FORMS: &str = "/stores /sign-out /keys /keys/{api_key_id}/revoke /erasures /sessions/{session_id}/end \
    {store}/archive {store}/delete {store}/undo {store}/undo/{undo_id}/cancel {store}/tests {store}/restore {store}{memory}/delete \
    {store}{version}/restore {store}{version}/undo {store}{version}/redact";

fn id_of(object: &Value) -> String {
    object["id"].as_str().unwrap().to_owned()
}

/// Makes memories whose pages take as long to make as any; answers their ids, and the two
/// versions that are the most costly to compare.
async fn fill_with_hostile_texts(client: &Client, tenant: &Tenant) -> (Vec<String>, [String; 2]) {
    let memories = format!("/v1/memory_stores/{}/memories", tenant.store_id);
    let create = async |path: &str, content: String| {
        ok(&client.post(&memories, &json!({"path": path, "content": content})).await)
    };
    let mut ids = Vec::new();
    let texts = [("> ", 48), ("> ", 12), ("<a ", 32), ("[", 96), ("*_", 48), ("`", 96), ("|a", 40)];
    for (text, kibi_times) in texts {
        let path = format!("/{}.md", ids.len());
        ids.push(id_of(&create(&path, text.repeat(kibi_times << 10)).await));
    }
    let made = create("/lines.md", "a\n".repeat(2 * LINES)).await;
    let edit = json!({"content": "b\na\n".repeat(LINES)});
    let edited = ok(&client.post(&format!("{memories}/{}", id_of(&made)), &edit).await);
    let version = |memory: &Value| memory["memory_version_id"].as_str().unwrap().to_owned();
    (ids, [version(&made), version(&edited)])
}

/// The attacker: its objects, and a browser that is signed in.
pub(super) struct Console {
    browser: Browser,
    token: String,
    store: String,
    /// Memories with hostile texts.
    memory_ids: Vec<String>,
    /// The query of the most costly comparison.
    compare: String,
    /// The placeholders of routes, and what replaces them.
    ids: Vec<(&'static str, String)>,
}

impl Console {
    /// Fills a tenant with what makes pages costly.
    pub(super) async fn filled(url: &str, client: &Client, tenant: &Tenant) -> Self {
        let (memory_ids, [from, to]) = fill_with_hostile_texts(client, tenant).await;
        let store = format!("/v1/memory_stores/{}", tenant.store_id);
        let (session, _) = open_session(client, &[tenant.store_id]).await;
        let call = json!({"command": "view", "path": format!("/memories/{}", "x".repeat(900))});
        for row in 0..200 {
            let path = format!("{DIRECTORY}/{row}.md");
            let memory = json!({"path": path, "content": "<b>&".repeat(200)});
            insist(client, &format!("{store}/memories"), &memory).await;
            let new = json!({"name": "<n>".repeat(30), "description": "&".repeat(1_000)});
            insist(client, "/v1/memory_stores", &new).await;
            insist(client, &format!("{session}/tool_calls"), &call).await;
        }
        for part in 0..2 {
            let operation = |n| json!({"type": "create", "path": format!("/undone/{part}/{n}"), "content": "<b>&".repeat(200)});
            let operations: Vec<_> = (0..251).map(operation).collect();
            insist(client, &format!("{store}/memories/batch"), &json!({"operations": operations})).await;
        }
        // Of so many memories that it has an id.
        let undo = ok(&client.post(&format!("{store}/undo"), &json!({"path_prefix": "/undone/"})).await);
        let erasure = json!({"memory_store_id": tenant.store_id, "path_prefix": "/none/"});
        let erasure = ok(&client.post("/v1/erasures", &erasure).await);
        let keys = ok(&client.get("/v1/api_keys").await);
        let mut browser = Browser::signed_in(url, &tenant.key).await;
        let token = browser.open("/console/stores").await.field("token");
        let ids = vec![
            ("{memory_store_id}", tenant.store_id.to_string()),
            ("{memory_id}", memory_ids[0].clone()),
            ("{memory_version_id}", to.clone()),
            ("{undo_id}", id_of(&undo)),
            ("{session_id}", session.trim_start_matches("/v1/sessions/").to_owned()),
            ("{api_key_id}", id_of(&keys["data"][0])),
            ("{erasure_id}", id_of(&erasure)),
        ];
        let (store, compare) = (tenant.store_id.to_string(), format!("from={from}&to={to}"));
        Self { browser, token, store, memory_ids, compare, ids }
    }

    /// The pages with hostile texts.
    pub(super) fn hostile_pages(&self) -> Vec<RequestBuilder> {
        let store = format!("/console/stores/{}", self.store);
        let of_memories = self.memory_ids.iter().map(|id| format!("{store}/memories/{id}"));
        let pages = of_memories.chain([format!("{store}/compare?{}", self.compare)]);
        pages.map(|page| self.browser.request(Method::GET, &page)).collect()
    }

    /// A request or more of each route with this method.
    pub(super) fn requests(&self, method: &Method) -> Vec<RequestBuilder> {
        let routes = console_pages();
        let routes = routes.iter().filter(|(of_route, _)| of_route == method);
        let requests = routes.flat_map(|(_, route)| {
            let ids = self.ids.iter();
            let path = ids.fold(route.clone(), |path, (placeholder, id)| path.replace(placeholder, id));
            assert!(!path.contains('{'), "the attack has nothing for {route}");
            if *method == Method::GET {
                let queries = self.queries(route).into_iter();
                queries.map(|query| self.browser.request(Method::GET, &format!("{path}{query}"))).collect()
            } else {
                vec![self.form(route, &path)]
            }
        });
        requests.collect()
    }

    /// The costly queries of a page.
    fn queries(&self, route: &str) -> Vec<String> {
        let compare = &self.compare;
        match name_of(route).as_str() {
            "{store}" => {
                let directory = format!("?path={}", encoded(&format!("{DIRECTORY}/")));
                vec![String::new(), format!("{directory}&at_seq=0"), "?at_seq=100".to_owned(), directory]
            }
            "{store}/branch" => vec![String::new(), format!("?path={}", encoded(&format!("{DIRECTORY}/")))],
            "{store}/diff" => vec!["?from_seq=0".to_owned()],
            "{store}/undo" => vec!["?after_seq=0&overwrite=1".to_owned()],
            "{store}/restore" => vec!["?at_seq=0".to_owned()],
            "{store}/compare" => vec![format!("?{compare}"), format!("?{compare}&view=inline")],
            "{store}{memory}" => vec![String::new(), "?raw=1".to_owned(), "?at_seq=100".to_owned()],
            "/palette" => {
                // Each character is folded to six others; more of them are not in one address.
                let texts = ["d".to_owned(), "none".to_owned(), encoded(&"㌖".repeat(800))];
                let of_store = texts.map(|text| format!("?q={text}&store={}", self.store));
                of_store.into_iter().chain(["?q=none".to_owned()]).collect()
            }
            "/search" => vec![format!("?q={}", encoded(&"b ".repeat(500))), "?q=b&prefix=%2Fd".to_owned()],
            "/erasures/preview" => vec![format!("?store={}&prefix=%2F", self.store)],
            "/audit/export" => vec!["?format=csv".to_owned()],
            name if PLAIN_PAGES.split(' ').any(|page| page == name) => vec![String::new()],
            name => panic!("the attack has no case for the page {route} ({name})"),
        }
    }

    /// A form that is accepted, and does the same each time; or one that is refused, as late
    /// as possible.
    fn form(&self, route: &str, path: &str) -> RequestBuilder {
        let text = "b\na\n".repeat(LINES / 2);
        let fields = match name_of(route).as_str() {
            // A conflict, which shows a comparison.
            "{store}{memory}/edit" => vec![("content", text), ("base_sha256", "0".repeat(64))],
            // A path that is taken, so that the form is shown again.
            "{store}/new" => vec![("path", "/0.md".to_owned()), ("content", text)],
            "{store}{memory}/rename" => vec![("path", "/0.md".to_owned())],
            "{store}{memory}/expiry" => vec![("action", "pin".to_owned())],
            // The preview, which removes nothing.
            "{store}{memory}/secret" => vec![("secret", "> > >".to_owned())],
            "{store}/settings" => vec![("name", "x".repeat(100)), ("description", "<".repeat(1_000))],
            "/transfer" => {
                let fields = [("token", self.token.as_str()), ("name", "x")];
                // Not an archive, as large as a form may be.
                return self.browser.form_with_file(&fields, &vec![b'x'; BODY_BYTES]);
            }
            name if REFUSED_FORMS.split(' ').any(|form| form == name) => {
                let request = self.browser.request(Method::POST, path);
                let request = request.header("content-type", "application/x-www-form-urlencoded");
                return request.body("a&".repeat(BODY_BYTES / 2));
            }
            name => panic!("the attack has no case for the form {route} ({name})"),
        };
        let mut all = vec![("token", self.token.as_str()), ("once", "1")];
        all.extend(fields.iter().map(|(name, value)| (*name, value.as_str())));
        self.browser.form(path, &all)
    }
}

/// A route with short names for its first placeholders.
fn name_of(route: &str) -> String {
    let name = route.replace("/console", "").replace("/stores/{memory_store_id}", "{store}");
    name.replace("/memories/{memory_id}", "{memory}").replace("/versions/{memory_version_id}", "{version}")
}

/// Sends the requests in turn, from several browsers: most of the time they wait for the
/// most costly.
pub(super) async fn send_all(requests: &[RequestBuilder], stop: Arc<AtomicBool>) {
    repeat(BROWSERS, Duration::ZERO, &stop, async |number, turn| {
        let begin = number * requests.len() / BROWSERS;
        let request = requests[(begin + turn) % requests.len()].try_clone().unwrap();
        let read = async {
            if let Ok(mut answer) = request.send().await {
                while let Ok(Some(_)) = answer.chunk().await {}
            }
        };
        // A stream has no end.
        let _ = tokio::time::timeout(PATIENCE, read).await;
    })
    .await;
}
