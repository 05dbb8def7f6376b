//! The default limits, met through the front door.

use serde_json::json;

use crate::support::client::{send, tool_calls};
use crate::support::{Client, Deployment, Pair, Tenant};

const MAX_VIEW_CHARS: usize = 16_000;
const BYTES_PER_MEMORY: usize = 102_400;

#[tokio::test(flavor = "multi_thread")]
async fn long_file_is_read_whole_page_by_page() {
    let deployment = Deployment::new(Pair::Sqlite).await;
    let tenant = deployment.tenant().await;
    let server = deployment.start().await;
    let client = server.client(&tenant);
    let lines: Vec<_> = (0..1500)
        .map(|n| format!("{n}: {}", "é".repeat(n % 50)))
        .collect();
    let text = lines.join("\n");
    assert!(text.len() <= BYTES_PER_MEMORY && text.chars().count() > 2 * MAX_VIEW_CHARS);
    let create = json!({"command": "create", "path": "/memories/long.txt", "file_text": text});
    client.tool_ok(&tenant, &create).await;

    let mut read: Vec<String> = Vec::new();
    let mut pages = 0;
    let mut range = None;
    loop {
        let view = json!({"command": "view", "path": "/memories/long.txt", "view_range": range});
        let shown = client.tool_ok(&tenant, &view).await;
        pages += 1;
        let (header, body) = shown.split_once('\n').unwrap();
        assert_eq!(
            header,
            "Here's the content of /memories/long.txt with line numbers:"
        );
        let (numbered, note) = body.split_once("\n\n").unwrap_or((body, ""));
        assert!(numbered.chars().count() <= MAX_VIEW_CHARS);
        let first = read.len() + 1;
        for line in numbered.lines() {
            let (number, line) = line.split_once('\t').unwrap();
            assert_eq!(number, format!("{:>6}", read.len() + 1));
            read.push(line.to_owned());
        }
        if note.is_empty() {
            break;
        }
        let last = read.len();
        let expected = format!(
            "[Lines {first}-{last} of 1500 shown. Continue with view_range [{}, -1].]",
            last + 1
        );
        assert_eq!(note, expected);
        // No further whole line would have fitted.
        let next = 8 + lines[last].chars().count();
        assert!(numbered.chars().count() + next > MAX_VIEW_CHARS);
        range = Some([i64::try_from(last + 1).unwrap(), -1]);
    }
    assert_eq!(read, lines);
    assert!(pages >= 3, "{pages} pages");
}

#[tokio::test(flavor = "multi_thread")]
async fn long_listing_stops_at_a_whole_entry() {
    let deployment = Deployment::new(Pair::Sqlite).await;
    let tenant = deployment.tenant().await;
    let server = deployment.start().await;
    let client = server.client(&tenant);
    let long_name = "n".repeat(190);
    let creates = (0..100).map(|n| {
        let path = format!("/memories/d{}/{long_name}{n:03}", n % 4);
        let (client, tenant) = (client.clone(), tenant.clone());
        async move {
            let input = json!({"command": "create", "path": path, "file_text": "x"});
            client.tool_ok(&tenant, &input).await;
        }
    });
    futures::future::join_all(creates).await;
    let shown = client
        .tool_ok(&tenant, &json!({"command": "view", "path": "/memories"}))
        .await;
    let (listing, note) = shown.split_once("\n\n").unwrap();
    let entries = listing.lines().count() - 2;
    let left = 104 - entries;
    assert_eq!(
        note,
        format!("[{left} more entries not shown. View a subdirectory to see them.]")
    );
    assert!(entries > 60 && left > 10, "{entries} entries, {left} left");
    let directory = |number: usize| format!("25B\t/memories/d{number}/");
    let file = |number: usize| format!("1B\t/memories/d{}/{long_name}{number:03}", number % 4);
    let expected: Vec<_> = (0..4)
        .flat_map(|of| {
            let files = (0..100).filter(move |number| number % 4 == of).map(file);
            std::iter::once(directory(of)).chain(files)
        })
        .collect();
    let shown: Vec<_> = listing.lines().skip(2).collect();
    assert_eq!(
        shown,
        expected[..entries],
        "an entry is cut, missing or out of order"
    );
    // The next whole entry would not have fitted.
    let chars: usize = listing.lines().skip(1).map(|line| line.chars().count() + 1).sum();
    assert!(chars - 1 <= MAX_VIEW_CHARS && chars + expected[entries].chars().count() > MAX_VIEW_CHARS);
}

#[tokio::test(flavor = "multi_thread")]
async fn escaped_body_may_be_six_times_its_content() {
    for pair in [Pair::PostgresS3, Pair::Sqlite] {
        let deployment = Deployment::new(pair).await;
        let tenant = deployment.tenant().await;
        let server = deployment.start().await;
        let client = server.client(&tenant);
        // Characters that JSON can only write as six.
        let most = "\u{1}".repeat(BYTES_PER_MEMORY - 4) + "tail";
        create_ok(&client, &tenant, "/memories/most", &most).await;
        let path = tool_calls(tenant.store_id);
        let escaped = format!(
            r#"{{"command":"create","path":"/memories/escaped","file_text":"{}"}}"#,
            r"\u0041".repeat(BYTES_PER_MEMORY)
        );
        let request = client
            .request(reqwest::Method::POST, &path)
            .header("content-type", "application/json");
        let answer = send(request.body(escaped)).await;
        assert_eq!(answer.status, 200, "{}", answer.text);
        assert!(!answer.tool_result().is_error, "{}", answer.text);
        let store = client
            .get(&format!("/v1/memory_stores/{}", tenant.store_id))
            .await
            .json();
        assert_eq!(store["content_bytes"], 2 * BYTES_PER_MEMORY);
        // The whole of it can be worked with.
        let replace =
            json!({"command": "str_replace", "path": "/memories/most", "old_str": "tail", "new_str": "TAIL"});
        client.tool_ok(&tenant, &replace).await;

        let over = "x".repeat(BYTES_PER_MEMORY + 1);
        let input = json!({"command": "create", "path": "/memories/over", "file_text": over});
        let result = client.tool(&tenant, &input).await;
        assert!(result.is_error, "{}", result.content);
        assert!(
            result.content.contains("102401 bytes") && result.content.contains("102400"),
            "{}",
            result.content
        );
    }
}

async fn create_ok(client: &Client, tenant: &Tenant, path: &str, text: &str) {
    let input = json!({"command": "create", "path": path, "file_text": text});
    client.tool_ok(tenant, &input).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nul_is_refused_and_stored_nowhere() {
    for pair in [Pair::PostgresS3, Pair::Sqlite] {
        let deployment = Deployment::new(pair).await;
        let tenant = deployment.tenant().await;
        let server = deployment.start().await;
        let client = server.client(&tenant);
        create_ok(&client, &tenant, "/memories/a", "one\n").await;
        for input in [
            json!({"command": "create", "path": "/memories/b", "file_text": "x\u{0}y"}),
            json!({"command": "insert", "path": "/memories/a", "insert_line": 0, "insert_text": "\u{0}"}),
            json!({"command": "str_replace", "path": "/memories/a", "old_str": "one", "new_str": "\u{0}"}),
        ] {
            let result = client.tool(&tenant, &input).await;
            assert!(result.is_error && result.content.contains("NUL"), "{result:?}");
        }
        let by_path = json!({"command": "create", "path": "/memories/\u{0}", "file_text": "x"});
        assert!(client.tool(&tenant, &by_path).await.is_error);
        let looked_for =
            json!({"command": "str_replace", "path": "/memories/a", "old_str": "\u{0}", "new_str": ""});
        assert!(client.tool(&tenant, &looked_for).await.is_error);
        assert_eq!(client.lines(&tenant, "/memories/a").await, ["one", ""]);
        let store = client
            .get(&format!("/v1/memory_stores/{}", tenant.store_id))
            .await
            .json();
        assert_eq!(
            (&store["memory_count"], &store["content_bytes"]),
            (&json!(1), &json!(4))
        );
        let named = json!({"name": "a\u{0}b"});
        assert_eq!(client.post("/v1/memory_stores", &named).await.status, 400);
        let described = json!({"name": "a", "description": "\u{0}"});
        assert_eq!(client.post("/v1/memory_stores", &described).await.status, 400);
    }
}
