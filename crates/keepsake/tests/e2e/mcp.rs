//! MCP with third-party clients.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use keepsake_core::limits::LimitOverrides;
use keepsake_index::Scope;
use reqwest::Method;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::Command;

use crate::support::client::send;
use crate::support::script::{self, MCP_NODE_MODULES, MCP_PYTHON};
use crate::support::{Answer, Client, Deployment, Pair, binary, repository, secrets};

#[tokio::test(flavor = "multi_thread")]
async fn clients_are_served_over_http() {
    let deployment = Deployment::new(Pair::Sqlite).await;
    let tenant = deployment.tenant().await;
    let server = deployment.start().await;
    let client = server.client(&tenant);
    let of_store = Reached::Url(format!("{}/mcp/{}", server.url(), tenant.store_id));
    Place::new(of_store, &tenant.key, "/memories", "notes").suites().await;

    let (_, token) = session(&client, &[(&tenant.store_id.to_string(), "read_write")]).await;
    let of_session = Reached::Url(format!("{}/mcp", server.url()));
    let place = Place::new(of_session, &token, "/memories/notes", "notes");
    place.suites().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn folder_is_served_over_stdio() {
    let folder = tempfile::tempdir().unwrap();
    let place = |store: &[&str], slug: &str| {
        let command = ["mcp", "--data", folder.path().to_str().unwrap()];
        let command = command.iter().chain(store).map(ToString::to_string).collect();
        Place::new(Reached::Command(command), "", "/memories", slug)
    };
    place(&["--store", "My Notes"], "my-notes").suites().await;
    place(&[], "dev").typescript().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn server_is_bridged_to_stdio() {
    let deployment = Deployment::new(Pair::Sqlite).await;
    let tenant = deployment.tenant().await;
    let server = deployment.start().await;
    let store = tenant.store_id.to_string();
    let bridge = ["mcp", "--url", &server.url(), "--store", &store].map(str::to_owned);
    let bridge = Reached::Command(bridge.to_vec());
    Place::new(bridge, &tenant.key, "/memories", "notes").suites().await;
}

/// The server under test and the values that a suite needs.
struct Place {
    reached: Reached,
    key: String,
    root: String,
    slug: String,
}

enum Reached {
    Url(String),
    /// Arguments of the binary.
    Command(Vec<String>),
}

impl Place {
    fn new(reached: Reached, key: &str, root: &str, slug: &str) -> Self {
        Self { reached, key: key.to_owned(), root: root.to_owned(), slug: slug.to_owned() }
    }

    async fn suites(&self) {
        self.python().await;
        self.typescript().await;
    }

    fn command(&self, program: impl AsRef<Path>) -> Command {
        let mut command = Command::new(program.as_ref());
        command.env("KEEPSAKE_MCP_ROOT", &self.root).env("KEEPSAKE_MCP_SLUG", &self.slug);
        if !self.key.is_empty() {
            command.env("KEEPSAKE_API_KEY", &self.key);
        }
        match &self.reached {
            Reached::Url(url) => command.env("KEEPSAKE_MCP_URL", url),
            Reached::Command(arguments) => {
                let program = binary().to_str().unwrap();
                let whole: Vec<_> =
                    std::iter::once(program).chain(arguments.iter().map(String::as_str)).collect();
                command.env("KEEPSAKE_MCP_COMMAND", json!(whole).to_string())
            }
        };
        command
    }

    async fn python(&self) {
        let mut command = self.command(script::from_environment(MCP_PYTHON));
        command.args(["-B", "-m", "unittest", "--verbose", "test_server"]).current_dir(suites());
        let output = script::run(&mut command).await;
        assert!(!output.contains("Ran 0 tests"), "{output}");
    }

    async fn typescript(&self) {
        let copy = script::with_packages("tests/mcp/typescript", MCP_NODE_MODULES);
        let output = script::run(self.command("node").arg("--test").current_dir(copy.path())).await;
        assert!(!output.contains("# tests 0\n"), "{output}");
    }
}

fn suites() -> PathBuf {
    repository().join("tests/mcp")
}

/// Makes a session; answers its id and its token.
async fn session(client: &Client, stores: &[(&str, &str)]) -> (String, String) {
    let resource = |(store, access): &(&str, &str)| json!({"type": "memory_store", "memory_store_id": store, "access": access});
    let resources: Vec<_> = stores.iter().map(resource).collect();
    let body = json!({"agent": "agent_1", "environment_id": "env_1", "resources": resources});
    let answer = client.post("/v1/sessions", &body).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    let made = answer.json();
    let token = made["token"].as_str().unwrap().to_owned();
    secrets::remember(&token, "a session's token");
    (made["id"].as_str().unwrap().to_owned(), token)
}

/// Sends a minimal MCP request.
async fn ask(client: &Client, token: &str, path: &str, method: &str, params: Value) -> Answer {
    let message = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
    send(client.bare(Method::POST, path).bearer_auth(token).json(&message)).await
}

async fn call(client: &Client, token: &str, tool: &str, arguments: Value) -> Value {
    let params = json!({"name": tool, "arguments": arguments});
    let answer = ask(client, token, "/mcp", "tools/call", params).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    answer.json()["result"].clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn session_sees_only_its_stores_and_writes_with_write_access() {
    let deployment = Deployment::new(Pair::Sqlite).await;
    let provision = deployment.provision().await;
    let tenant = provision.tenant(LimitOverrides::default()).await;
    let (handbook, elsewhere) = (provision.store(tenant.id).await, provision.store(tenant.id).await);
    let reader = provision.key(tenant.id, &[Scope::MemoryRead], None).await;
    provision.close().await;
    let server = deployment.start().await;
    let client = server.client(&tenant);
    let (notes, handbook) = (tenant.store_id.to_string(), handbook.to_string());
    let rule = json!({"path": "/rules.md", "content": "# Rules"});
    let made = client.post(&format!("/v1/memory_stores/{handbook}/memories"), &rule).await;
    assert_eq!(made.status, 200, "{}", made.text);
    let (session_id, token) = session(&client, &[(&notes, "read_write"), (&handbook, "read_only")]).await;

    let listed = call(&client, &token, "memory_list", json!({})).await;
    let entries = &listed["structuredContent"]["entries"];
    assert_eq!(
        *entries,
        json!([
            {"type": "directory", "path": "/memories/notes/", "read_only": false},
            {"type": "directory", "path": "/memories/notes-2/", "read_only": true},
        ])
    );
    let path = "/memories/notes/log.md";
    let appended = json!({"path": path, "content": "x"});
    let written = call(&client, &token, "memory_append", appended).await;
    assert_eq!(written["isError"], json!(false), "{written}");
    let (mut uris, mut asked) = (Vec::new(), json!({}));
    loop {
        let page = ask(&client, &token, "/mcp", "resources/list", asked).await.json();
        let found = page["result"]["resources"].as_array().unwrap().iter();
        uris.extend(found.map(|resource| resource["uri"].as_str().unwrap().to_owned()));
        let Some(cursor) = page["result"]["nextCursor"].as_str() else {
            break;
        };
        asked = json!({"cursor": cursor});
    }
    assert_eq!(uris, ["memory://notes/log.md", "memory://notes-2/rules.md"]);

    // The session's events have the calls without their content.
    let events = format!("/v1/sessions/{session_id}/events");
    let events = client.get(&events).await.json();
    let events = events["data"].as_array().unwrap().iter();
    let names: Vec<_> = events.map(|event| event["name"].clone()).collect();
    assert_eq!(names, ["memory_list", "memory_append"]);

    paths_lead_to_mounts(&client, &token).await;
    search_covers_the_mounts(&client, &token, &[&notes, &handbook]).await;

    // A token works for its session; a key must name a store.
    let params = json!({"name": "memory_list", "arguments": {}});
    let other = format!("/mcp/{elsewhere}");
    let other = ask(&client, &token, &other, "tools/call", params.clone()).await;
    assert!(matches!(other.status, 403 | 404), "{}", other.text);
    let key = ask(&client, &reader, "/mcp", "tools/call", params).await;
    assert_eq!(key.status, 400, "{}", key.text);
    assert_eq!(key.json()["error"]["type"], "invalid_request_error");
    // A missing scope is a protocol error.
    let params = json!({"name": "memory_write", "arguments": {"path": "/memories/a", "content": "x"}});
    let told = ask(&client, &reader, &format!("/mcp/{notes}"), "tools/call", params).await;
    assert_eq!(told.status, 200);
    let error = told.json()["error"]["message"].as_str().unwrap().to_owned();
    assert!(error.contains("memory:write"), "{error}");
}

async fn paths_lead_to_mounts(client: &Client, token: &str) {
    let listed = json!({"path_prefix": "/mnt/memory/notes-2"});
    let listed = call(client, token, "memory_list", listed).await;
    let entry = &listed["structuredContent"]["entries"][0];
    assert_eq!(entry["path"], "/mnt/memory/notes-2/rules.md", "{listed}");
    let rules = "/memories/notes-2/rules.md";
    let of = |path: &str| json!({"path": path});
    let write = |path: &str| json!({"path": path, "content": "x"});
    let edit = json!({"path": rules, "edits": [{"old_str": "R", "new_str": "r"}]});
    let (read_only, mounted) = ("attached read-only", "a memory store is mounted there");
    let (root, outside) =
        ("Cannot delete the /memories directory itself", "is in no memory store of this session");
    for (tool, arguments, why) in [
        ("memory_write", write(rules), read_only),
        ("memory_append", write(rules), read_only),
        ("memory_edit", edit, read_only),
        ("memory_delete", of(rules), read_only),
        ("memory_delete", of("/memories/notes"), mounted),
        ("memory_delete", of("/memories"), root),
        ("memory_write", write("/memories"), "is a directory"),
        ("memory_write", write("/memories/notes"), "is a directory"),
        ("memory_read", of("/memories/elsewhere/a"), outside),
    ] {
        let refused = call(client, token, tool, arguments).await;
        assert_eq!(refused["isError"], json!(true), "{refused}");
        let text = refused["content"][0]["text"].as_str().unwrap();
        assert!(text.contains(why), "{text}");
    }
}

async fn search_covers_the_mounts(client: &Client, token: &str, stores: &[&str]) {
    for store in stores {
        let tea = json!({"path": "/garden/tea.md", "content": "# Drinks\nGreen tea at four.\n"});
        let memories = format!("/v1/memory_stores/{store}/memories");
        assert_eq!(client.post(&memories, &tea).await.status, 200);
    }
    let found = async |query: Value| {
        let answer = call(client, token, "memory_search", query).await;
        let hits = answer["structuredContent"]["hits"].as_array().unwrap().iter();
        let mut hits: Vec<_> = hits.map(|hit| hit["path"].as_str().unwrap().to_owned()).collect();
        hits.sort();
        hits
    };
    let both = ["/memories/notes-2/garden/tea.md", "/memories/notes/garden/tea.md"];
    assert_eq!(found(json!({"query": "tea"})).await, both);
    let below = json!({"query": "tea", "path_prefix": "/mnt/memory/notes-2"});
    assert_eq!(found(below).await, ["/mnt/memory/notes-2/garden/tea.md"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn only_the_protocol_is_written_to_stdout() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = Command::new(binary());
    command.args(["mcp", "--data"]).arg(folder.path());
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.kill_on_drop(true);
    let mut process = command.spawn().unwrap();
    let initialize = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
        "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}});
    let initialized = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
    let listing = json!({"jsonrpc": "2.0", "id": 2, "method": "tools/list"});
    let mut stdin = process.stdin.take().unwrap();
    for message in [&initialize, &initialized, &listing] {
        let line = format!("{message}\n");
        stdin.write_all(line.as_bytes()).await.unwrap();
    }
    let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
    for id in [1, 2] {
        let line = lines.next_line().await.unwrap().unwrap();
        let answer: Value = serde_json::from_str(&line).unwrap();
        assert_eq!(answer["id"], id, "{line}");
    }
    drop(stdin);
    assert_eq!(lines.next_line().await.unwrap(), None);
    let output = process.wait_with_output().await.unwrap();
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{told}");

    // A bridge without a credential, or with a folder beside it, says why.
    let nothing: &[&str] = &[];
    for (more, why) in [(nothing, "KEEPSAKE_API_KEY"), (&["--data", "x"], "cannot be used with")] {
        let mut command = Command::new(binary());
        command.args(["mcp", "--url", "http://127.0.0.1:1"]).args(more);
        let output = command.env_remove("KEEPSAKE_API_KEY").output().await.unwrap();
        let told = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && told.contains(why), "{told}");
    }
}
