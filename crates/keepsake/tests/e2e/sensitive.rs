//! Secrets in new content are refused or redacted, and stored nowhere.

use keepsake_core::sensitive::Scanner;

use crate::erasure::text_occurrences;
use crate::prelude::*;
use crate::support::client::ToolResult;

const CLEAN: &str = "nothing secret in here\n";

/// A secret, with a part that must show nowhere. The servers' output is searched for
/// this part at their end.
struct Secret {
    kind: &'static str,
    text: String,
    part: String,
}

fn secrets_of_each_kind() -> [Secret; 5] {
    let random = "q7XkP2mZ9vRtL4wNc8YsB3hJ6dF1gT5eKpWu";
    let label = "EC PRIVATE KEY";
    let key = format!("-----BEGIN {label}-----\n{random}x{random}\n-----END {label}-----");
    let part_of_key = format!("{random}x");
    [
        ("github_token", format!("ghp_{random}"), random),
        ("payment_card", "4539 5787 6362 1486".to_owned(), "5787 6362 1486"),
        ("connection_string", "postgres://app:vN3kRw81Ttq@db.test/app".to_owned(), "vN3kRw81Ttq"),
        ("employee_id", "EMP-004711".to_owned(), "EMP-004711"),
        ("private_key", key, &*part_of_key),
    ]
    .map(|(kind, text, part)| {
        secrets::remember(part, kind);
        Secret { kind, text, part: part.to_owned() }
    })
}

on_pairs! { secrets_are_refused_or_redacted_and_kept_nowhere }

async fn secrets_are_refused_or_redacted_and_kept_nowhere(pair: Pair) {
    let deployment = Deployment::new(pair).await;
    let tenant = deployment.tenant().await;
    let config = ServerConfig { log_filter: "trace", ..ServerConfig::default() };
    let rules = "[{ kind = 'employee_id', pattern = 'EMP-[0-9]{6}' }]";
    let command = deployment.command(&config).env("KEEPSAKE_SENSITIVE_DATA_RULES", rules);
    let mut server = Server::start(command).await;
    let client = server.client(&tenant);
    let secrets = secrets_of_each_kind();
    for policy in ["reject", "redact"] {
        let place = Place::new(&client, policy).await;
        for secret in &secrets {
            let memory = place.store.create(&format!("/kept-{}.md", secret.kind), CLEAN).await;
            place.api_refuses(secret, &memory).await;
            place.batch_leaves_out(secret).await;
            place.tools_refuse_or_redact(secret).await;
            let redacted = Scanner::default().redact_change(None, &secret.text);
            let shown = redacted.map_or(format!("[redacted:{}]", secret.kind), |redacted| redacted.text);
            let left = format!("\n{shown}\n\n\n{shown}\n{shown}\n");
            let left = if policy == "reject" { CLEAN } else { &left };
            assert_eq!(place.store.read(&memory).await["content"], left, "{policy}");
        }
    }
    server.end().await;

    let (index, blobs) = (deployment.index_bytes().await, deployment.content_bytes().await);
    let are_held = text_occurrences(&index, "kept-github_token") > 0 && text_occurrences(&blobs, CLEAN) > 0;
    assert!(are_held, "the stored content is not found");
    for Secret { kind, part, .. } in &secrets {
        assert_eq!(text_occurrences(&index, part), 0, "the index has a {kind}");
        assert_eq!(text_occurrences(&blobs, part), 0, "a blob has a {kind}");
    }
}

/// A store, and the policy that it was made with.
struct Place {
    store: Store,
    policy: &'static str,
}

impl Place {
    async fn new(client: &Client, policy: &'static str) -> Self {
        let new = json!({"name": policy, "sensitive_data_policy": policy});
        Self { store: Store::make_with(client, &new).await, policy }
    }

    async fn set_policy(&self, policy: &str) {
        ok(&self.store.client.post(&self.store.path, &json!({"sensitive_data_policy": policy})).await);
    }

    async fn call(&self, tool: &str, input: &Value) -> ToolResult {
        let block = json!({"type": "tool_use", "id": "toolu_1", "name": tool, "input": input});
        let answer = self.store.client.call(&self.store.id, &block).await;
        assert_eq!(answer.status, 200, "{}", answer.text);
        answer.tool_result()
    }

    async fn api_refuses(&self, Secret { kind, text, part }: &Secret, memory: &Value) {
        let (store, content) = (&self.store, format!("{CLEAN}but {text}\n"));
        let new = json!({"path": "/new.md", "content": content});
        for refused in [
            store.try_create("/new.md", &content).await,
            store.upsert(&format!("/kept-{kind}.md"), &content).await,
            post_with(&store.client, &store.memories(), &new, ("idempotency-key", *kind)).await,
            store.try_update(memory, &json!({"content": content})).await,
            store.try_update(memory, &json!({"content": content, "path": "/moved.md"})).await,
        ] {
            assert!(!refused.text.contains(part), "the answer has a {kind}");
            invalid(&refused, &format!("policy (`{}`) refuses: {kind} in line 2", self.policy));
            invalid(&refused, "`content`");
        }
    }

    async fn batch_leaves_out(&self, Secret { kind, text, part }: &Secret) {
        let content = format!("{CLEAN}but {text}\n");
        let mut body = json!({"atomic": true, "operations": [
            {"type": "create", "path": format!("/clean/{kind}.md"), "content": "clean"},
            {"type": "create", "path": "/new.md", "content": content},
            {"type": "upsert", "path": format!("/kept-{kind}.md"), "content": content},
        ]});
        let refused = self.store.batch(&body).await;
        assert_eq!((refused.status, &refused.json()["error"]["operation"]), (400, &json!(1)), "{kind}");
        body["atomic"] = json!(false);
        let made = self.store.batch(&body).await;
        assert!(!made.text.contains(part) && !refused.text.contains(part), "an answer has a {kind}");
        let [clean, new, over] = [0, 1, 2].map(|position: usize| made.json()["data"][position].clone());
        assert_eq!(clean["status"], "created", "{}", made.text);
        for failed in [new, over] {
            let message = failed["error"]["message"].as_str().unwrap();
            assert!(message.ends_with(&format!("refuses: {kind} in line 2")), "{message}");
        }
    }

    async fn tools_refuse_or_redact(&self, Secret { kind, text, part }: &Secret) {
        let file = format!("/memories/kept-{kind}.md");
        let other = format!("/memories/other-{kind}.md");
        let new = format!("\n\n{text}\n");
        let edits = json!([{"old_str": "here\n", "new_str": new}]);
        let replace = json!({"command": "str_replace", "path": file, "old_str": "here\n", "new_str": new});
        for (tool, input, line) in [
            ("memory", json!({"command": "create", "path": other, "file_text": text}), 1),
            ("memory", json!({"command": "insert", "path": file, "insert_line": 1, "insert_text": text}), 2),
            ("memory", replace, 3),
            ("memory_write", json!({"path": file, "content": format!("\n{text}\nhere\n")}), 2),
            // The line of the text that is appended.
            ("memory_append", json!({"path": file, "content": text}), 1),
            ("memory_edit", json!({"path": file, "edits": edits}), 3),
        ] {
            let told = self.call(tool, &input).await;
            assert!(!told.content.contains(part), "the answer has a {kind}");
            let is_refused = self.policy == "reject";
            assert_eq!(told.is_error, is_refused, "{told:?}");
            let redaction = format!("requires: {kind} in line");
            let found = if is_refused { format!("refuses {kind} in line {line} of") } else { redaction };
            assert!(told.content.contains(&found), "{told:?}");
            assert_eq!(self.call(tool, &input).await, told, "sent again");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn only_new_lines_are_judged_by_the_policy_of_their_time() {
    let (_deployment, _server, _, client) = on_sqlite().await;
    let [Secret { text: token, .. }, ..] = secrets_of_each_kind();
    let place = Place::new(&client, "off").await;
    let memory = place.store.create("/kept.md", CLEAN).await;
    let content = async || place.store.read(&memory).await["content"].clone();
    let update = async |content: &str| place.store.try_update(&memory, &json!({"content": content})).await;
    let first = format!("head\n{token}\n");
    let written = update(&first).await.json();
    assert_eq!(content().await, first, "no policy refuses it");

    place.set_policy("reject").await;
    let file = "/memories/kept.md";
    let insert = |line: usize, text: &str| json!({"command": "insert", "path": file, "insert_line": line, "insert_text": text});
    let replace = |old: &str, new: &str| json!({"command": "str_replace", "path": file, "old_str": old, "new_str": new});
    let whole = |content: &str| json!({"path": file, "content": content});
    for (tool, input, is_refused) in [
        ("memory", insert(0, "new"), false),
        ("memory", replace("head", "other head"), false),
        ("memory_append", whole("more"), false),
        ("memory_write", whole(&format!("before\n{token}\n")), false),
        // The line is new.
        ("memory", replace("ghp_", "x ghp_"), true),
        ("memory_write", json!({"path": "/memories/new", "content": token}), true),
    ] {
        assert_eq!(place.call(tool, &input).await.is_error, is_refused, "{tool} {input}");
    }
    let kept = format!("all new\n{token}\n");
    assert_eq!(update(&kept).await.status, 200);
    invalid(&update(&format!("{kept}{token}\n")).await, "github_token in line 3");

    place.set_policy("redact").await;
    let redacted = insert(2, &token);
    let told = place.call("memory", &redacted).await;
    assert!(told.content.contains("1 secret replaced"), "{told:?}");
    for policy in ["reject", "off", "redact"] {
        place.set_policy(policy).await;
        assert_eq!(place.call("memory", &redacted).await, told, "the same call under {policy}");
    }
    // A text that is redacted to the content of the file makes no version.
    let version = async || place.store.basic(&memory).await["memory_version_id"].clone();
    let before = version().await;
    let told = place.call("memory_write", &whole(&format!("{kept}{token}\n"))).await;
    assert!(told.content.contains("1 secret replaced"), "{told:?}");
    assert_eq!(version().await, before);
    assert_eq!(content().await, format!("{kept}[redacted:github_token]\n"));
    // A restored version is new as a whole.
    assert_eq!(update("clean").await.status, 200);
    let restore = async || place.store.try_restore(&written["memory_version_id"], &json!({})).await;
    for policy in ["reject", "redact"] {
        place.set_policy(policy).await;
        invalid(&restore().await, "github_token in line 2");
        assert_eq!(content().await, "clean", "{policy}");
    }
    place.set_policy("off").await;
    ok(&restore().await);
    assert_eq!(content().await, first);
}
