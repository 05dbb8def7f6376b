//! The live view of a session.

use super::browser::{Browser, console_on};
use crate::prelude::*;
use crate::streams::text_until;

/// The browser shows that the stream has the rows of the page, and ends with the session.
#[tokio::test(flavor = "multi_thread")]
async fn stream_begins_where_the_page_ends_and_ends_with_its_credential() {
    let (_deployment, tenant, server, _browser) = console_on(Pair::Postgres).await;
    let client = server.client(&tenant);
    let (session, _) = open_session(&client, &[tenant.store_id]).await;
    let (key, key_path) = client.new_key(&["memory:read"]).await;
    let mut reader = Browser::signed_in(&server.url(), &key).await;
    let href = session.replace("/v1", "/console");
    let empty = reader.open(&href).await;
    empty.has(&format!("data-live=\"{href}/events\""));
    let (_, after) = empty.text.split_once("data-after=\"").unwrap();
    let after = after.split('"').next().unwrap();

    // A call between the page and its stream is not lost.
    view_in(&client, &session, "/memories/<b>between</b>").await;
    let events = || reader.request(Method::GET, &format!("{href}/events?after={after}"));
    let mut response = events().send().await.unwrap();
    assert_eq!(response.headers()["content-type"], "text/event-stream");
    assert_eq!(response.headers()["cache-control"], "private, no-store");
    assert_eq!(response.headers()["x-content-type-options"], "nosniff");
    let row = text_until(&mut response, "</tr>").await;
    assert!(!row.contains("<b>"), "{row}");

    client.revoke(&key_path).await;
    let end = text_until(&mut response, "authentication_error").await;
    assert!(end.contains("event: error"), "{end}");
    assert_eq!(response.chunk().await.unwrap(), None);
    // A new one leads to the sign-in, which is no stream.
    assert_eq!(events().send().await.unwrap().status(), 303);
}
