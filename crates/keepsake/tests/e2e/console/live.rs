//! The live view of a session.

use std::time::Duration;

use reqwest::{Method, Response};
use serde_json::json;

use super::browser::{Browser, console_on};
use crate::support::{Pair, secrets};

/// The time within which an event comes.
const WITHIN: Duration = Duration::from_secs(30);

/// Reads a stream until it has the text or ends.
async fn read_until(response: &mut Response, text: &str) -> String {
    let mut read = String::new();
    let reading = async {
        while !read.contains(text)
            && let Some(part) = response.chunk().await.unwrap()
        {
            read += std::str::from_utf8(&part).unwrap();
        }
    };
    let is_in_time = tokio::time::timeout(WITHIN, reading).await.is_ok();
    assert!(is_in_time, "{text:?} is not in {read:?}");
    read
}

/// The browser shows that the stream has the rows of the page, and ends with the session.
#[tokio::test(flavor = "multi_thread")]
async fn stream_begins_where_the_page_ends_and_ends_with_its_credential() {
    let (_deployment, tenant, server, _browser) = console_on(Pair::Postgres).await;
    let client = server.client(&tenant);
    let session = json!({"agent": "a", "environment_id": "e", "resources": [
        {"type": "memory_store", "memory_store_id": tenant.store_id}]});
    let session = client.post("/v1/sessions", &session).await.json();
    let session = session["id"].as_str().unwrap();
    let draft = json!({"name": "reader", "scopes": ["memory:read"]});
    let made = client.post("/v1/api_keys", &draft).await.json();
    let key = made["api_key"].as_str().unwrap();
    secrets::remember(key, "an API key");
    let mut reader = Browser::signed_in(&server.url(), key).await;
    let href = format!("/console/sessions/{session}");
    let empty = reader.open(&href).await;
    empty.has(&format!("data-live=\"{href}/events\""));
    let (_, after) = empty.text.split_once("data-after=\"").unwrap();
    let after = after.split('"').next().unwrap();

    // A call between the page and its stream is not lost.
    let call = json!({"command": "view", "path": "/memories/<b>between</b>"});
    let called = client.post(&format!("/v1/sessions/{session}/tool_calls"), &call).await;
    assert_eq!(called.status, 200, "{}", called.text);
    let events = || reader.request(Method::GET, &format!("{href}/events?after={after}"));
    let mut response = events().send().await.unwrap();
    assert_eq!(response.headers()["content-type"], "text/event-stream");
    assert_eq!(response.headers()["cache-control"], "private, no-store");
    assert_eq!(response.headers()["x-content-type-options"], "nosniff");
    let row = read_until(&mut response, "</tr>").await;
    assert!(!row.contains("<b>"), "{row}");

    let revoke = format!("/v1/api_keys/{}/revoke", made["id"].as_str().unwrap());
    assert_eq!(client.post(&revoke, &json!({})).await.status, 200);
    let end = read_until(&mut response, "authentication_error").await;
    assert!(end.contains("event: error"), "{end}");
    assert_eq!(read_until(&mut response, "no more").await, "");
    // A new one leads to the sign-in, which is no stream.
    assert_eq!(events().send().await.unwrap().status(), 303);
}
