//! A block that is sent again, or at the same time, takes effect once.

use futures::future::join_all;
use keepsake_core::ContentHash;
use serde_json::{Value, json};

use crate::support::{Client, Deployment, Pair, Tenant};

const SENDERS: usize = 8;

#[tokio::test(flavor = "multi_thread")]
async fn same_block_sent_to_two_servers_at_once_takes_effect_once() {
    let deployment = Deployment::new(Pair::PostgresS3).await;
    let tenant = deployment.tenant().await;
    let servers = [deployment.start().await, deployment.start().await];
    let clients = servers.each_ref().map(|server| server.client(&tenant));
    every_command_takes_effect_once(&clients, &tenant).await;

    let database = deployment.database().await;
    let versions = database.versions(tenant.store_id).await;
    let operations: Vec<_> = versions.iter().map(|version| version.op.as_str()).collect();
    let round = [
        "created", "modified", "modified", "modified", "deleted", "created", "modified", "modified",
        "deleted", "created",
    ];
    assert_eq!(operations, round.repeat(ROUNDS));
    database.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn same_block_sent_to_a_server_on_sqlite_at_once_takes_effect_once() {
    let deployment = Deployment::new(Pair::Sqlite).await;
    let tenant = deployment.tenant().await;
    let server = deployment.start().await;
    every_command_takes_effect_once(&[server.client(&tenant)], &tenant).await;
}

const ROUNDS: usize = 5;

async fn every_command_takes_effect_once(clients: &[Client], tenant: &Tenant) {
    for round in 0..ROUNDS {
        let path = format!("/memories/{round}.txt");
        let moved = format!("/memories/moved/{round}.txt");
        let commands = [
            json!({"command": "create", "path": path, "file_text": "one\n"}),
            json!({"command": "insert", "path": path, "insert_line": 1, "insert_text": "two"}),
            json!({"command": "str_replace", "path": path, "old_str": "one", "new_str": "one\none"}),
            json!({"command": "rename", "old_path": path, "new_path": moved}),
            json!({"command": "delete", "path": moved}),
        ];
        let mut calls: Vec<_> = commands.into_iter().map(|command| ("memory", command)).collect();
        calls.extend(calls_of_agent_tools(&format!("/memories/{round}.md")));
        let mut told = Vec::new();
        for (step, (name, input)) in calls.iter().enumerate() {
            let block = json!({"type": "tool_use", "id": format!("toolu_{round}_{step}"), "name": name, "input": input});
            let answer = send_at_once(clients, tenant, &block).await;
            assert_eq!(answer["is_error"], false, "{input}: {answer}");
            if step == 2 {
                let lines = clients[0].lines(tenant, &path).await;
                assert_eq!(lines, ["one", "one", "two", ""]);
            }
            told.push((block, answer));
        }
        // Long after, when the file is gone, the answers are still the same.
        for (block, answer) in &told {
            assert_eq!(send_at_once(clients, tenant, block).await, *answer);
        }
        // The same id with another input is another call.
        let mut other = told[4].0.clone();
        other["input"]["path"] = json!("/memories/never");
        assert_eq!(send_at_once(clients, tenant, &other).await["is_error"], true);
        // So is the same id and input of another tool.
        let (mut other, appended) = told[6].clone();
        other["name"] = json!("memory_write");
        let answer = send_at_once(clients, tenant, &other).await;
        assert_eq!(answer["is_error"], false, "{answer}");
        assert_ne!(answer["content"], appended["content"]);
    }
}

/// Calls that begin and end without the file.
fn calls_of_agent_tools(path: &str) -> [(&'static str, Value); 4] {
    let last = ContentHash::of(b"1\ntwo\n").to_string();
    [
        ("memory_write", json!({"path": path, "content": "one\n"})),
        ("memory_append", json!({"path": path, "content": "two"})),
        ("memory_edit", json!({"path": path, "edits": [{"old_str": "one", "new_str": "1"}]})),
        ("memory_delete", json!({"path": path, "expected_content_sha256": last})),
    ]
}

/// Sends a block from all senders; returns the answer that all of them got.
async fn send_at_once(clients: &[Client], tenant: &Tenant, block: &Value) -> Value {
    let senders = (0..SENDERS).map(|sender| clients[sender % clients.len()].call(tenant.store_id, block));
    let answers = join_all(senders).await;
    for answer in &answers {
        assert_eq!(answer.status, 200, "{}", answer.text);
        assert_eq!(answer.text, answers[0].text);
    }
    answers[0].json()
}
