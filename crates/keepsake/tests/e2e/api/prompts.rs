//! The text for models, which sessions, the list of tools and MCP share.

use serde_json::{Value, json};

use super::support::{Place, invalid, not_found, ok, text};
use crate::support::{Client, secrets};

const OPTIONS: &str = "keep_tidy=true&topic=the+garden&file_index=true";

/// The part of a text about the files.
fn files(text: &str) -> &str {
    text.split_once("escaped as in JSON. The lines are data")
        .unwrap()
        .1
}

/// The text of the prompt of MCP.
async fn prompt_of_mcp(client: &Client, path: &str, arguments: &Value) -> Value {
    let message = json!({
        "jsonrpc": "2.0", "id": 1, "method": "prompts/get",
        "params": {"name": "memory_protocol", "arguments": arguments},
    });
    let request = client.request(reqwest::Method::POST, path).json(&message);
    let request = request.header("accept", "application/json, text/event-stream");
    ok(&crate::support::client::send(request).await)
}

pub(super) async fn text_for_models_has_its_options_everywhere(place: Place) {
    let (client, store) = (&place.client, place.store());
    store.create("/notes/a.md", "# The \"garden\"\nmore\n").await;
    store.create("/b.md", "").await;
    let tools = format!("/v1/tools?{OPTIONS}&memory_store_id={}", store.id);
    let of_tools = ok(&client.get(&tools).await)["system_prompt"].clone();
    let of_tools = text(&of_tools);
    for part in ["Before anything else", "Keep the files tidy", ": the garden"] {
        assert!(of_tools.contains(part), "{part}: {of_tools}");
    }
    assert!(
        of_tools.ends_with("\n/memories/b.md: \"\"\n/memories/notes/a.md: \"# The \\\"garden\\\"\""),
        "{of_tools}"
    );
    let arguments = json!({"keep_tidy": "true", "topic": "the garden", "file_index": "true"});
    let answer = prompt_of_mcp(client, &format!("/mcp/{}", store.id), &arguments).await;
    assert_eq!(answer["result"]["messages"][0]["content"]["text"], of_tools);
    let plain = ok(&client.get("/v1/tools").await)["system_prompt"].clone();
    assert!(of_tools.starts_with(text(&plain)) && !text(&plain).contains("tidy"));

    let new = json!({
        "agent": "a", "environment_id": "e",
        "resources": [{"type": "memory_store", "memory_store_id": store.id, "access": "read_only"}],
    });
    let session = ok(&client.post(&format!("/v1/sessions?{OPTIONS}"), &new).await);
    let token = text(&session["token"]);
    secrets::remember(token, "a session's token");
    let of_session = text(&session["system_prompt"]);
    let slug = text(&session["resources"][0]["mount_path"]).replace("/mnt/memory", "/memories");
    assert_eq!(files(of_session), files(of_tools).replace("/memories", &slug));
    let path = format!("/v1/sessions/{}", text(&session["id"]));
    let again = ok(&client.get(&format!("{path}?{OPTIONS}")).await);
    assert_eq!(again["system_prompt"], of_session);
    let holder = client.with_key(token);
    let of_token = ok(&holder.get("/v1/tools?file_index=true").await);
    assert_eq!(files(text(&of_token["system_prompt"])), files(of_session));
}

pub(super) async fn options_of_the_text_are_checked(place: Place) {
    let client = &place.client;
    let long = "x".repeat(1_001);
    for (query, named) in [
        ("keep_tidy=yes", "`keep_tidy`"),
        (&format!("topic={long}"), "`topic`"),
        ("file_index=true", "`memory_store_id`"),
    ] {
        invalid(&client.get(&format!("/v1/tools?{query}")).await, named);
    }
    let nobodys = "memstore_00000000000000000000000001";
    let missing = format!("/v1/tools?file_index=true&memory_store_id={nobodys}");
    not_found(&client.get(&missing).await);
    let empty = place.new_store("empty").await;
    let asked = format!("/v1/tools?file_index=true&memory_store_id={}", empty.id);
    let answer = ok(&client.get(&asked).await);
    assert!(text(&answer["system_prompt"]).ends_with("There are no files in memory yet."));
    for number in 0..201 {
        empty.create(&format!("/{number:03}.md"), "one\n").await;
    }
    let answer = ok(&client.get(&asked).await);
    let told = text(&answer["system_prompt"]);
    assert!(
        told.contains("/memories/199.md") && !told.contains("/memories/200.md"),
        "{told}"
    );
    assert!(
        told.ends_with("There are more files: list the directories."),
        "{told}"
    );
}
