//! Secrets in new content are refused or redacted, and stored nowhere.

use keepsake_core::sensitive::Scanner;
use memchr::memmem;
use reqwest::Method;
use serde_json::{Value, json};
use sqlx::{AssertSqlSafe, Connection, PgConnection};

use crate::support::client::send;
use crate::support::deployment::ServerConfig;
use crate::support::{Answer, Client, Deployment, Pair, Server, secrets};

const STORES: &str = "/v1/memory_stores";

#[tokio::test(flavor = "multi_thread")]
async fn secrets_are_refused_or_redacted_and_kept_nowhere_on_postgres_and_s3() {
    secrets_are_kept_nowhere(Pair::PostgresS3).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn secrets_are_refused_or_redacted_and_kept_nowhere_on_sqlite() {
    secrets_are_kept_nowhere(Pair::Sqlite).await;
}

/// Secrets of several kinds, each with its text and a part that must show
/// nowhere. The servers' output is searched for the latter at their end.
fn secrets_of_each_kind() -> Vec<(&'static str, String, String)> {
    let random = "q7XkP2mZ9vRtL4wNc8YsB3hJ6dF1gT5eKpWu";
    let label = "EC PRIVATE KEY";
    let secrets = [
        ("github_token", format!("ghp_{random}"), random.to_owned()),
        ("payment_card", "4539 5787 6362 1486".to_owned(), "5787 6362 1486".to_owned()),
        ("connection_string", "postgres://app:vN3kRw81Ttq@db.test/app".to_owned(), "vN3kRw81Ttq".to_owned()),
        ("employee_id", "EMP-004711".to_owned(), "EMP-004711".to_owned()),
        (
            "private_key",
            format!("-----BEGIN {label}-----\n{random}x{random}\n-----END {label}-----"),
            format!("{random}x"),
        ),
    ];
    for (kind, _, part) in &secrets {
        secrets::remember(part, kind);
    }
    secrets.into()
}

async fn secrets_are_kept_nowhere(pair: Pair) {
    let deployment = Deployment::new(pair).await;
    let tenant = deployment.tenant().await;
    let config = ServerConfig { log_filter: "trace", ..ServerConfig::default() };
    let command = deployment
        .command(&config)
        .env("KEEPSAKE_SENSITIVE_DATA_RULES", "[{ kind = 'employee_id', pattern = 'EMP-[0-9]{6}' }]");
    let mut server = Server::start(command).await;
    let client = server.client(&tenant);
    let rejecting = Place::new(&client, "reject").await;
    let redacting = Place::new(&client, "redact").await;
    for (kind, secret, part) in secrets_of_each_kind() {
        rejecting.api_refuses(kind, &secret, &part).await;
        rejecting.tool_refuses(kind, &secret, &part).await;
        redacting.api_refuses(kind, &secret, &part).await;
        redacting.tool_redacts(kind, &secret, &part).await;
    }
    for place in [&rejecting, &redacting] {
        let versions = client.get(&format!("{}/memory_versions?view=full", place.path)).await;
        assert_eq!(versions.status, 200, "{}", versions.text);
        for (kind, _, part) in secrets_of_each_kind() {
            assert!(!versions.text.contains(&part), "a version has a {kind}");
        }
    }
    server.end().await;

    // The search finds the stored content.
    assert!(is_in_index(&deployment, "kept-by-its-path").await);
    assert!(is_in_blobs(&deployment, "nothing secret in here").await);
    for (kind, _, part) in secrets_of_each_kind() {
        assert!(!is_in_index(&deployment, &part).await, "the index has a {kind}");
        assert!(!is_in_blobs(&deployment, &part).await, "a blob has a {kind}");
    }
}

/// A store with a policy, and a memory in it.
struct Place<'a> {
    client: &'a Client,
    path: String,
    policy: &'static str,
    memory: String,
}

impl<'a> Place<'a> {
    async fn new(client: &'a Client, policy: &'static str) -> Self {
        let store = json!({"name": policy, "sensitive_data_policy": policy});
        let store = client.post(STORES, &store).await.json();
        let path = format!("{STORES}/{}", store["id"].as_str().unwrap());
        let memory = json!({"path": "/kept-by-its-path.md", "content": "nothing secret in here\n"});
        let memory = client.post(&format!("{path}/memories"), &memory).await.json();
        Self { memory: format!("{path}/memories/{}", memory["id"].as_str().unwrap()), client, path, policy }
    }

    async fn api_refuses(&self, kind: &str, secret: &str, part: &str) {
        let content = format!("nothing secret in here\nbut {secret}\n");
        let new = json!({"path": "/new.md", "content": content});
        let over = json!({"path": "/kept-by-its-path.md", "content": content});
        let memories = format!("{}/memories", self.path);
        let upsert = self
            .client
            .request(Method::POST, &memories)
            .header("anthropic-beta", "managed-agents-2026-04-01");
        let keyed = self.client.request(Method::POST, &memories).header("idempotency-key", kind);
        self.batch_leaves_out(kind, &content, part).await;
        for refused in [
            self.client.post(&memories, &new).await,
            send(upsert.json(&over)).await,
            send(keyed.json(&new)).await,
            self.client.post(&self.memory, &json!({"content": content})).await,
            self.client.post(&self.memory, &json!({"content": content, "path": "/moved.md"})).await,
        ] {
            assert_eq!(refused.status, 400, "{kind}: {}", refused.text);
            assert!(!refused.text.contains(part), "the answer has a {kind}");
            let error = refused.json()["error"].clone();
            assert_eq!(error["type"], "invalid_request_error");
            assert_eq!(
                error["message"],
                format!(
                    "`content` has what the memory store's sensitive-data policy (`{}`) refuses: {kind} in line 2",
                    self.policy
                )
            );
        }
    }

    async fn set_policy(&self, policy: &str) {
        let edit = json!({"sensitive_data_policy": policy});
        let answer = self.client.post(&self.path, &edit).await;
        assert_eq!(answer.status, 200, "{}", answer.text);
    }

    async fn batch_leaves_out(&self, kind: &str, content: &str, part: &str) {
        let batch = async |is_atomic: bool| {
            let body = json!({"atomic": is_atomic, "operations": [
                {"type": "create", "path": "/new.md", "content": content},
                {"type": "create", "path": format!("/clean/{kind}.md"), "content": "clean"},
                {"type": "upsert", "path": "/kept-by-its-path.md", "content": content},
            ]});
            let path = format!("{}/memories/batch", self.path);
            let answer = self.client.post(&path, &body).await;
            assert!(!answer.text.contains(part), "the answer has a {kind}");
            answer
        };
        let refused = batch(true).await;
        assert_eq!(refused.status, 400, "{kind}: {}", refused.text);
        assert_eq!(refused.json()["error"]["operation"], 0, "{kind}");
        let made = batch(false).await;
        assert_eq!(made.status, 200, "{kind}: {}", made.text);
        let data = made.json()["data"].clone();
        let statuses = [0_usize, 1, 2].map(|position| data[position]["status"].clone());
        assert_eq!(statuses, ["failed", "created", "failed"], "{kind}: {data}");
        for failed in [&data[0], &data[2]] {
            let message = failed["error"]["message"].as_str().unwrap();
            assert!(message.ends_with(&format!("refuses: {kind} in line 2")), "{message}");
        }
    }

    async fn call(&self, input: &Value) -> Answer {
        self.call_tool("memory", input).await
    }

    async fn call_tool(&self, name: &str, input: &Value) -> Answer {
        let block = json!({"type": "tool_use", "id": "toolu_1", "name": name, "input": input});
        let answer = self.client.post(&format!("{}/tool_calls", self.path), &block).await;
        assert_eq!(answer.status, 200, "{}", answer.text);
        answer
    }

    async fn tool_refuses(&self, kind: &str, secret: &str, part: &str) {
        let file = "/memories/kept-by-its-path.md";
        let edits = json!([{"old_str": "here\n", "new_str": format!("\n\n{secret}")}]);
        for (tool, input, line) in [
            ("memory", json!({"command": "create", "path": "/memories/new.md", "file_text": secret}), 1),
            (
                "memory",
                json!({"command": "insert", "path": file, "insert_line": 1, "insert_text": secret}),
                2,
            ),
            (
                "memory",
                json!({"command": "str_replace", "path": file, "old_str": "here\n", "new_str": format!("\n\n{secret}")}),
                3,
            ),
            ("memory_write", json!({"path": file, "content": format!("\n{secret}")}), 2),
            // The line of the text that is appended.
            ("memory_append", json!({"path": file, "content": secret}), 1),
            ("memory_edit", json!({"path": file, "edits": edits}), 3),
        ] {
            let answer = self.call_tool(tool, &input).await;
            assert!(!answer.text.contains(part), "the answer has a {kind}");
            let result = answer.tool_result();
            assert!(result.is_error && result.content.starts_with("Error: "), "{}", result.content);
            assert!(
                result.content.contains(&format!("refuses {kind} in line {line} of")),
                "{}",
                result.content
            );
        }
    }

    async fn tool_redacts(&self, kind: &str, secret: &str, part: &str) {
        let file = format!("/memories/{kind}.md");
        let marker = format!("[redacted:{kind}]");
        let shown = |secret: &str| {
            Scanner::default().redact_change(None, secret).map_or(marker.clone(), |redacted| redacted.text)
        };
        let agents_file = format!("/memories/agents/{kind}.md");
        let whole = format!("a\n{secret}\nb\n");
        let edits = json!([{"old_str": "b\n", "new_str": format!("{secret}\n")}]);
        for (tool, input) in [
            ("memory", json!({"command": "create", "path": file, "file_text": whole})),
            ("memory", json!({"command": "insert", "path": file, "insert_line": 0, "insert_text": secret})),
            (
                "memory",
                json!({"command": "str_replace", "path": file, "old_str": "b\n", "new_str": format!("{secret}\n")}),
            ),
            ("memory_write", json!({"path": agents_file, "content": whole})),
            ("memory_append", json!({"path": agents_file, "content": secret})),
            ("memory_edit", json!({"path": agents_file, "edits": edits})),
        ] {
            let answer = self.call_tool(tool, &input).await;
            assert!(!answer.text.contains(part), "the answer has a {kind}");
            let result = answer.tool_result();
            assert!(!result.is_error, "{}", result.content);
            assert!(result.content.contains(&format!("requires: {kind} in line")), "{}", result.content);
            let again = self.call_tool(tool, &input).await;
            assert_eq!(again.tool_result(), result, "sent again");
        }
        let secret = shown(secret);
        for (file, content) in [
            (file, format!("{secret}\na\n{secret}\n{secret}\n")),
            (agents_file, format!("a\n{secret}\n{secret}\n{secret}\n")),
        ] {
            let view = json!({"command": "view", "path": file});
            let view = self.call(&view).await.tool_result();
            let lines: Vec<_> =
                view.content.lines().skip(1).map(|line| line.split_once('\t').unwrap().1).collect();
            assert_eq!(lines.join("\n"), content);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn only_new_lines_are_judged_by_the_policy_of_their_time() {
    let deployment = Deployment::new(Pair::Sqlite).await;
    let tenant = deployment.tenant().await;
    let server = deployment.start().await;
    let client = server.client(&tenant);
    let (_, token, _) = secrets_of_each_kind().remove(0);
    let place = Place::new(&client, "off").await;
    let content = async || client.get(&place.memory).await.json()["content"].clone();
    let first = format!("head\n{token}\n");
    let written = client.post(&place.memory, &json!({"content": first})).await.json();
    assert_eq!(content().await, first, "no policy refuses it");

    place.set_policy("reject").await;
    let file = "/memories/kept-by-its-path.md";
    let insert = |line: usize, text: &str| json!({"command": "insert", "path": file, "insert_line": line, "insert_text": text});
    let other = json!({"command": "str_replace", "path": file, "old_str": "head", "new_str": "other head"});
    for input in [insert(0, "new"), other] {
        assert!(!place.call(&input).await.tool_result().is_error, "{input}");
    }
    let kept = format!("all new\n{token}\n");
    let edited = client.post(&place.memory, &json!({"content": kept})).await;
    assert_eq!(edited.status, 200, "{}", edited.text);
    let touched = json!({"command": "str_replace", "path": file, "old_str": "ghp_", "new_str": "x ghp_"});
    assert!(place.call(&touched).await.tool_result().is_error, "the line is new");
    let copied = json!({"content": format!("{kept}{token}\n")});
    let copied = client.post(&place.memory, &copied).await;
    assert_eq!(copied.status, 400, "{}", copied.text);
    assert!(copied.text.contains("github_token in line 3"), "{}", copied.text);

    place.set_policy("redact").await;
    let redacted = insert(2, &token);
    let told = place.call(&redacted).await.tool_result();
    assert!(told.content.contains("1 secret replaced"), "{told:?}");
    for policy in ["reject", "off", "redact"] {
        place.set_policy(policy).await;
        let again = place.call(&redacted).await.tool_result();
        assert_eq!(again, told, "the same call under {policy}");
    }
    assert_eq!(content().await, format!("{kept}[redacted:github_token]\n"));

    // A restored version is new as a whole.
    let clean = client.post(&place.memory, &json!({"content": "clean"})).await;
    assert_eq!(clean.status, 200, "{}", clean.text);
    let version = written["memory_version_id"].as_str().unwrap();
    let restore = format!("{}/memory_versions/{version}/restore", place.path);
    for (policy, status, left) in
        [("reject", 400, "clean"), ("redact", 400, "clean"), ("off", 200, first.as_str())]
    {
        place.set_policy(policy).await;
        let answer = client.post(&restore, &json!({})).await;
        assert_eq!(answer.status, status, "{policy}: {}", answer.text);
        let is_named = answer.text.contains("github_token in line 2");
        assert_eq!(is_named, status == 400, "{policy}: {}", answer.text);
        assert_eq!(content().await, left, "{policy}");
    }

    // The limit is that of the stored content: this one is too long only before its redaction.
    place.set_policy("redact").await;
    let long = format!("{}\n{token}\n", "x".repeat(102_400 - token.len()));
    let create = json!({"command": "create", "path": "/memories/long/a.md", "file_text": long});
    let told = place.call(&create).await.tool_result();
    assert!(!told.is_error, "{told:?}");
    let listed = client.get(&format!("{}/memories?path_prefix=/long/&view=full", place.path)).await.json();
    let stored = long.replace(&token, "[redacted:github_token]");
    assert!(listed["data"][0]["content"] == stored, "{told:?}");
}

/// Whether any row of any table, or any page of the file, has the text.
async fn is_in_index(deployment: &Deployment, text: &str) -> bool {
    if !deployment.pair.has_postgres() {
        let file = deployment.sqlite_file();
        let log = file.with_extension("db-wal");
        let holds = |file| {
            let bytes = std::fs::read(file).unwrap_or_default();
            memmem::find(&bytes, text.as_bytes()).is_some()
        };
        return holds(file) || holds(log);
    }
    let mut database = PgConnection::connect(&deployment.postgres_url()).await.unwrap();
    let tables: Vec<String> = sqlx::query_scalar(
        "SELECT format('%I.%I', table_schema, table_name) FROM information_schema.tables \
         WHERE table_type = 'BASE TABLE' AND table_schema NOT IN ('pg_catalog', 'information_schema')",
    )
    .fetch_all(&mut database)
    .await
    .unwrap();
    assert!(tables.len() > 10, "{tables:?}");
    for table in tables {
        // Bytes are shown as their hexadecimal digits.
        let query = format!(
            "SELECT EXISTS (SELECT 1 FROM {table} AS r WHERE position($1 IN r::text) > 0 \
             OR position(encode(convert_to($1, 'UTF8'), 'hex') IN r::text) > 0)"
        );
        let is_there: bool =
            sqlx::query_scalar(AssertSqlSafe(query)).bind(text).fetch_one(&mut database).await.unwrap();
        if is_there {
            return true;
        }
    }
    false
}

async fn is_in_blobs(deployment: &Deployment, text: &str) -> bool {
    let blobs = deployment.blobs().await;
    for listed in blobs.list(None, None, 100_000).await.unwrap() {
        let bytes = blobs.get(&listed.key, listed.size_bytes).await.unwrap().unwrap();
        if memmem::find(&bytes, text.as_bytes()).is_some() {
            return true;
        }
    }
    false
}
