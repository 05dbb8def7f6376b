use std::fmt::Display;

use super::*;

/// Opens a session with stores; answers its path, and the directories of the stores.
pub(crate) async fn open_session(client: &Client, stores: &[impl Display]) -> (String, Vec<String>) {
    let attached = stores.iter().map(|it| json!({"type": "memory_store", "memory_store_id": it.to_string()}));
    let attached: Vec<_> = attached.collect();
    let new = json!({"agent": "a", "environment_id": "e", "resources": attached});
    let made = ok(&client.post("/v1/sessions", &new).await);
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    secrets::remember(&text(&made["token"]), "a session's token");
    let mounts = made["resources"].as_array().unwrap().iter().map(|resource| text(&resource["mount_path"]));
    (format!("/v1/sessions/{}", text(&made["id"])), mounts.collect())
}

pub(crate) async fn view_in(client: &Client, session: &str, path: &str) {
    let view = json!({"command": "view", "path": path});
    ok(&client.post(&format!("{session}/tool_calls"), &view).await);
}
