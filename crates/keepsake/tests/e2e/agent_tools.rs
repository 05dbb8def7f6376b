//! The agent tools over HTTP, beside the memory tool.

use serde_json::{Value, json};

use crate::support::{Client, Deployment, Pair, Tenant};

#[tokio::test(flavor = "multi_thread")]
async fn agent_tools_answer_on_postgres_and_s3() {
    agent_tools_answer(Pair::PostgresS3).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn agent_tools_answer_on_sqlite() {
    agent_tools_answer(Pair::Sqlite).await;
}

async fn agent_tools_answer(pair: Pair) {
    let deployment = Deployment::new(pair).await;
    let tenant = deployment.tenant().await;
    let server = deployment.start().await;
    let client = server.client(&tenant);
    let tools = offered_tools(&client).await;
    let mut used = every_tool_works_on_the_files_of_the_others(&client, &tenant).await;
    used.sort_unstable();
    used.dedup();
    let mut offered: Vec<_> = tools.iter().map(|tool| tool["name"].as_str().unwrap()).collect();
    offered.sort_unstable();
    assert_eq!(used, offered, "every offered tool can be called");
}

/// What a harness sends as `tools`.
async fn offered_tools(client: &Client) -> Vec<Value> {
    let answer = client.get("/v1/tools").await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    let body = answer.json();
    assert_eq!(body["next_page"], Value::Null);
    let tools = body["data"].as_array().unwrap().clone();
    assert_eq!(tools[0], json!({"type": "memory_20250818", "name": "memory"}));
    for tool in &tools[1..] {
        let fields: Vec<_> = tool.as_object().unwrap().keys().map(String::as_str).collect();
        assert_eq!(fields.len(), 3, "{fields:?}");
        assert_eq!(tool["input_schema"]["type"], "object", "{tool}");
        assert!(tool["description"].as_str().unwrap().len() > 40, "{tool}");
    }
    tools
}

/// Calls each tool; answers the names of all.
async fn every_tool_works_on_the_files_of_the_others(client: &Client, tenant: &Tenant) -> Vec<&'static str> {
    let path = "/memories/day.md";
    let edits = json!([{"old_str": "one", "new_str": "1"}, {"old_str": "two", "new_str": "2"}]);
    let calls = [
        (
            "memory_write",
            json!({"path": path, "content": "# Day\none\n", "precondition": {"type": "not_exists"}}),
            "File /memories/day.md has been created (10 bytes, content_sha256 ",
        ),
        (
            "memory_append",
            json!({"path": path, "content": "two"}),
            "The text has been added at the end of /memories/day.md (14 bytes",
        ),
        (
            "memory",
            json!({"command": "insert", "path": path, "insert_line": 3, "insert_text": "three"}),
            "The file /memories/day.md has been edited.",
        ),
        (
            "memory_edit",
            json!({"path": path, "edits": edits}),
            "The file /memories/day.md has been edited, 2 edits (16 bytes",
        ),
        ("memory_read", json!({"path": path}), "/memories/day.md: 16 bytes"),
        ("memory_list", json!({}), "Files below /memories"),
        (
            "memory_search",
            json!({"query": "day"}),
            "Matching memories, best first",
        ),
        (
            "memory",
            json!({"command": "view", "path": path}),
            "Here's the content of /memories/day.md with line numbers:\n     1\t# Day\n     2\t1\n     3\t2\n     4\tthree",
        ),
        (
            "memory_delete",
            json!({"path": path}),
            "Successfully deleted /memories/day.md",
        ),
    ];
    for (position, (name, input, begins)) in calls.iter().enumerate() {
        let id = format!("toolu_{position}");
        let block = json!({"type": "tool_use", "id": id, "name": name, "input": input});
        let first = client.call(tenant.store_id, &block).await;
        assert_eq!(first.json()["tool_use_id"], id);
        let result = first.tool_result();
        assert!(
            !result.is_error && result.content.starts_with(begins),
            "{result:?}"
        );
        if *name != "memory_read"
            && *name != "memory_list"
            && *name != "memory_search"
            && input["command"] != "view"
        {
            let again = client.call(tenant.store_id, &block).await;
            assert_eq!(again.text, first.text, "the same block does nothing twice");
        }
    }
    let read = json!({"type": "tool_use", "name": "memory_read", "input": {"path": path}});
    let result = client.tool(tenant, &read).await;
    assert!(result.is_error, "{result:?}");
    // A bare input is the memory tool's.
    let bare = client.call(tenant.store_id, &json!({"path": path})).await;
    assert_eq!(bare.status, 400, "{}", bare.text);
    calls.map(|(name, ..)| name).to_vec()
}
