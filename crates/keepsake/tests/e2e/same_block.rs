//! A block that is sent again, or at the same time, takes effect once.

use crate::prelude::*;

const SENDERS: usize = 8;
const ROUNDS: usize = 5;

on_pairs! { same_block_sent_at_once_takes_effect_once }

async fn same_block_sent_at_once_takes_effect_once(pair: Pair) {
    let (deployment, tenant, server, client) = started(pair).await;
    let second = if pair.has_postgres() { deployment.start().await } else { server };
    let (clients, tenant) = (&[client, second.client(&tenant)], &tenant);
    for round in 0..ROUNDS {
        let mut told = Vec::new();
        for (step, (name, input)) in calls(round).iter().enumerate() {
            let id = format!("toolu_{round}_{step}");
            let block = json!({"type": "tool_use", "id": id, "name": name, "input": input});
            let answer = send_at_once(clients, tenant, &block).await;
            assert_eq!(answer["is_error"], false, "{input}: {answer}");
            told.push((block, answer));
        }
        // Long after, when the file is gone, the answers are still the same.
        for (block, answer) in &told {
            assert_eq!(send_at_once(clients, tenant, block).await, *answer);
        }
        // The same id with another input is another call.
        let (mut other, _) = told[4].clone();
        other["input"]["path"] = json!("/memories/never");
        assert_eq!(send_at_once(clients, tenant, &other).await["is_error"], true);
        // So is the same id and input of another tool.
        let (mut other, appended) = told[6].clone();
        other["name"] = json!("memory_write");
        let answer = send_at_once(clients, tenant, &other).await;
        assert_eq!(answer["is_error"], false, "{answer}");
        assert_ne!(answer["content"], appended["content"]);
    }
    let history = Store::of(&clients[0], tenant).history().await;
    let operations: Vec<_> = history.iter().rev().map(|version| version["operation"].clone()).collect();
    let round = "created modified modified modified deleted created modified modified deleted created";
    assert_eq!(operations, round.split(' ').collect::<Vec<_>>().repeat(ROUNDS));
}

/// Calls of each tool that begin and end without its file.
fn calls(round: usize) -> [(&'static str, Value); 9] {
    let path = format!("/memories/{round}.txt");
    let moved = format!("/memories/moved/{round}.txt");
    let agents = format!("/memories/{round}.md");
    let last = ContentHash::of(b"1\ntwo\n").to_string();
    [
        ("memory", json!({"command": "create", "path": path, "file_text": "one\n"})),
        ("memory", json!({"command": "insert", "path": path, "insert_line": 1, "insert_text": "two"})),
        ("memory", json!({"command": "str_replace", "path": path, "old_str": "one", "new_str": "one\none"})),
        ("memory", json!({"command": "rename", "old_path": path, "new_path": moved})),
        ("memory", json!({"command": "delete", "path": moved})),
        ("memory_write", json!({"path": agents, "content": "one\n"})),
        ("memory_append", json!({"path": agents, "content": "two"})),
        ("memory_edit", json!({"path": agents, "edits": [{"old_str": "one", "new_str": "1"}]})),
        ("memory_delete", json!({"path": agents, "expected_content_sha256": last})),
    ]
}

async fn send_at_once(clients: &[Client], tenant: &Tenant, block: &Value) -> Value {
    let senders = (0..SENDERS).map(|sender| clients[sender % clients.len()].call(tenant.store_id, block));
    let answers = join_all(senders).await;
    for answer in &answers {
        assert_eq!(answer.status, 200, "{}", answer.text);
        assert_eq!(answer.text, answers[0].text);
    }
    answers[0].json()
}
