//! The live view of a session.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use reqwest::{Method, RequestBuilder, Response};
use serde_json::json;

use super::browser::{Browser, console_on};
use crate::support::{Client, Pair, Tenant, secrets};

/// The time within which an event comes.
const WITHIN: Duration = Duration::from_secs(30);
/// The time within which a stream ends with its credential.
const ENDS_WITHIN: Duration = Duration::from_secs(5);

/// A session that has the tenant's store; answers its id.
async fn session_of(client: &Client, tenant: &Tenant) -> String {
    let session = json!({"agent": "a", "environment_id": "e", "resources": [
        {"type": "memory_store", "memory_store_id": tenant.store_id}]});
    let made = client.post("/v1/sessions", &session).await.json();
    made["id"].as_str().unwrap().to_owned()
}

async fn call(client: &Client, session: &str, path: &str) {
    let input = json!({"command": "view", "path": path});
    let called = client.post(&format!("/v1/sessions/{session}/tool_calls"), &input).await;
    assert_eq!(called.status, 200, "{}", called.text);
}

/// The stream of a session, read as text.
struct Stream {
    response: Response,
    text: String,
}

impl Stream {
    async fn open(browser: &Browser, path: &str) -> Self {
        Self::of(browser.request(Method::GET, path)).await
    }

    async fn of(request: RequestBuilder) -> Self {
        let response = request.send().await.unwrap();
        assert_eq!(response.status(), 200);
        Self { response, text: String::new() }
    }

    /// The next event, as its lines.
    async fn next(&mut self) -> String {
        loop {
            if let Some((event, rest)) = self.text.split_once("\n\n") {
                let (event, rest) = (event.to_owned(), rest.to_owned());
                self.text = rest;
                if !event.starts_with(':') {
                    return event;
                }
                continue;
            }
            let part = tokio::time::timeout(WITHIN, self.response.chunk()).await;
            let part = part.unwrap().unwrap().unwrap();
            self.text.push_str(std::str::from_utf8(&part).unwrap());
        }
    }

    /// The next event, which is a line of the table: its id and its HTML.
    async fn row(&mut self) -> (String, String) {
        let event = self.next().await;
        let line = |name: &str| {
            let found = event.lines().find_map(|line| line.strip_prefix(name));
            found.unwrap_or_else(|| panic!("no {name} in {event}")).to_owned()
        };
        (line("id: "), serde_json::from_str(&line("data: ")).unwrap())
    }

    /// The event that says why the stream ends, and that it is the last.
    async fn end(mut self) -> String {
        let event = self.next().await;
        assert!(event.contains("event: error"), "{event}");
        let rest = tokio::time::timeout(WITHIN, self.response.chunk()).await;
        assert_eq!(rest.unwrap().unwrap(), None);
        event
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn new_calls_appear_as_rows_of_the_page() {
    let (_deployment, tenant, server, mut browser) = console_on(Pair::Sqlite).await;
    let client = server.client(&tenant);
    let session = session_of(&client, &tenant).await;
    let href = format!("/console/sessions/{session}");
    let empty = browser.open(&href).await;
    empty.has(&format!("data-live=\"{href}/events\""));
    let (_, after) = empty.text.split_once("data-after=\"").unwrap();
    let after = after.split('"').next().unwrap();

    // A call between the page and its stream is not lost.
    call(&client, &session, "/memories/<b>between</b>").await;
    let mut stream = Stream::open(&browser, &format!("{href}/events?after={after}")).await;
    let headers = stream.response.headers().clone();
    assert_eq!(headers["content-type"], "text/event-stream");
    assert_eq!(headers["cache-control"], "private, no-store");
    assert_eq!(headers["x-content-type-options"], "nosniff");
    let mut rows = vec![stream.row().await];
    for n in 0..3 {
        call(&client, &session, &format!("/memories/live-{n}")).await;
        rows.push(stream.row().await);
    }
    let page = browser.open(&href).await;
    let mut ids = BTreeSet::new();
    for (id, row) in &rows {
        assert!(ids.insert(id), "{id} came twice");
        assert!(row.starts_with(&format!("<tr id=\"{id}\"")), "{row}");
        assert!(!row.contains("<b>"), "{row}");
        // But for the times, which pass.
        let (_, rest) = row.split_once("</td>").unwrap();
        page.has(rest.trim_end());
    }
    // In the order of the table.
    let place = |id: &str| page.text.find(&format!("<tr id=\"{id}\"")).unwrap();
    assert!(rows.iter().map(|(id, _)| place(id)).is_sorted(), "{}", page.text);

    // After a break, the following ones come, and known ones may.
    let request = browser
        .request(Method::GET, &format!("{href}/events?after={after}"))
        .header("last-event-id", &rows[0].0);
    let mut again = Stream::of(request).await;
    let mut ids = BTreeSet::new();
    while ids.len() < 3 {
        let (id, _) = again.row().await;
        assert!(id != rows[0].0 && ids.insert(id));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn stream_ends_with_its_session() {
    let (_deployment, tenant, server, mut browser) = console_on(Pair::Sqlite).await;
    let client = server.client(&tenant);
    let session = session_of(&client, &tenant).await;
    let href = format!("/console/sessions/{session}");
    let stream = Stream::open(&browser, &format!("{href}/events")).await;
    let page = browser.open(&href).await;
    let ended = browser.act(&page, &format!("{href}/end"), &[]).await;
    ended.lacks("data-live");
    let end = stream.end().await;
    assert!(end.contains("the session is archived"), "{end}");
}

#[tokio::test(flavor = "multi_thread")]
async fn stream_ends_with_its_credential() {
    let (_deployment, tenant, server, _browser) = console_on(Pair::Postgres).await;
    let client = server.client(&tenant);
    let session = session_of(&client, &tenant).await;
    let draft = json!({"name": "reader", "scopes": ["memory:read"]});
    let made = client.post("/v1/api_keys", &draft).await.json();
    let key = made["api_key"].as_str().unwrap();
    secrets::remember(key, "an API key");
    let reader = Browser::signed_in(&server.url(), key).await;
    let path = format!("/console/sessions/{session}/events");
    let stream = Stream::open(&reader, &path).await;
    let revoke = format!("/v1/api_keys/{}/revoke", made["id"].as_str().unwrap());
    assert_eq!(client.post(&revoke, &json!({})).await.status, 200);
    let revoked = Instant::now();
    let end = stream.end().await;
    let took = revoked.elapsed();
    assert!(end.contains("authentication_error"), "{end}");
    assert!(took < ENDS_WITHIN, "{took:?}");
    // A new one leads to the sign-in, which is no stream.
    let answer = reader.request(Method::GET, &path).send().await.unwrap();
    assert_eq!(answer.status(), 303);
}
