//! MCP with third-party clients.

use std::path::{Path, PathBuf};

use keepsake_core::limits::LimitOverrides;
use keepsake_index::Scope;
use reqwest::Method;
use serde_json::{Value, json};
use tokio::process::Command;

use crate::support::client::send;
use crate::support::script::{self, MCP_NODE_MODULES, MCP_PYTHON};
use crate::support::{Answer, Client, Deployment, Pair, binary, repository, secrets};

#[tokio::test(flavor = "multi_thread")]
async fn clients_are_served_over_http_on_postgres_and_s3() {
    clients_are_served_over_http(Pair::PostgresS3).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_are_served_over_http_on_sqlite() {
    clients_are_served_over_http(Pair::Sqlite).await;
}

async fn clients_are_served_over_http(pair: Pair) {
    let deployment = Deployment::new(pair).await;
    let tenant = deployment.tenant().await;
    let server = deployment.start().await;
    let client = server.client(&tenant);
    let of_store = Place {
        reached: Reached::Url(format!("{}/mcp/{}", server.url(), tenant.store_id)),
        key: tenant.key.clone(),
        root: "/memories".to_owned(),
        slug: "notes".to_owned(),
    };
    of_store.suites().await;

    let (_, token) = session(&client, &[(&tenant.store_id.to_string(), "read_write")]).await;
    let of_session = Place {
        reached: Reached::Url(format!("{}/mcp", server.url())),
        key: token,
        root: "/memories/notes".to_owned(),
        slug: "notes".to_owned(),
    };
    of_session.suites().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn folder_is_served_over_stdio() {
    let folder = tempfile::tempdir().unwrap();
    let place = |store: &[&str], slug: &str| Place {
        reached: Reached::Command(
            ["mcp", "--data", folder.path().to_str().unwrap()]
                .iter()
                .chain(store)
                .map(ToString::to_string)
                .collect(),
        ),
        key: String::new(),
        root: "/memories".to_owned(),
        slug: slug.to_owned(),
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
    let place = Place {
        reached: Reached::Command(bridge.to_vec()),
        key: tenant.key.clone(),
        root: "/memories".to_owned(),
        slug: "notes".to_owned(),
    };
    place.suites().await;
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
    async fn suites(&self) {
        self.python().await;
        self.typescript().await;
    }

    fn command(&self, program: impl AsRef<Path>) -> Command {
        let mut command = Command::new(program.as_ref());
        command
            .env("KEEPSAKE_MCP_ROOT", &self.root)
            .env("KEEPSAKE_MCP_SLUG", &self.slug);
        if !self.key.is_empty() {
            command.env("KEEPSAKE_API_KEY", &self.key);
        }
        match &self.reached {
            Reached::Url(url) => command.env("KEEPSAKE_MCP_URL", url),
            Reached::Command(arguments) => {
                let program = binary().to_str().unwrap();
                let whole: Vec<_> = std::iter::once(program)
                    .chain(arguments.iter().map(String::as_str))
                    .collect();
                command.env("KEEPSAKE_MCP_COMMAND", json!(whole).to_string())
            }
        };
        command
    }

    async fn python(&self) {
        let mut command = self.command(script::from_environment(MCP_PYTHON));
        command
            .args(["-B", "-m", "unittest", "--verbose", "test_server"])
            .current_dir(suites());
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
    let made = client
        .post(&format!("/v1/memory_stores/{handbook}/memories"), &rule)
        .await;
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
    let written = call(
        &client,
        &token,
        "memory_append",
        json!({"path": path, "content": "x"}),
    )
    .await;
    assert_eq!(written["isError"], json!(false), "{written}");
    let refused = json!({"path": "/memories/notes-2/rules.md", "content": "x"});
    for tool in ["memory_write", "memory_append"] {
        let refused = call(&client, &token, tool, refused.clone()).await;
        assert_eq!(refused["isError"], json!(true), "{refused}");
    }
    let resources = ask(&client, &token, "/mcp", "resources/list", json!({}))
        .await
        .json();
    let mut uris = Vec::new();
    let mut page = resources;
    loop {
        let found = page["result"]["resources"].as_array().unwrap().iter();
        uris.extend(found.map(|resource| resource["uri"].as_str().unwrap().to_owned()));
        let Some(cursor) = page["result"]["nextCursor"].as_str() else {
            break;
        };
        page = ask(
            &client,
            &token,
            "/mcp",
            "resources/list",
            json!({"cursor": cursor}),
        )
        .await
        .json();
    }
    assert_eq!(uris, ["memory://notes/log.md", "memory://notes-2/rules.md"]);

    // The session's events have the calls without their content.
    let events = client
        .get(&format!("/v1/sessions/{session_id}/events"))
        .await
        .json();
    let names: Vec<_> = events["data"]
        .as_array()
        .unwrap()
        .iter()
        .map(|event| event["name"].clone())
        .collect();
    assert_eq!(
        names,
        ["memory_list", "memory_append", "memory_write", "memory_append"]
    );

    // A token works for its session; a key must name a store.
    let params = json!({"name": "memory_list", "arguments": {}});
    let other = ask(
        &client,
        &token,
        &format!("/mcp/{elsewhere}"),
        "tools/call",
        params.clone(),
    )
    .await;
    assert!(matches!(other.status, 403 | 404), "{}", other.text);
    let key = ask(&client, &reader, "/mcp", "tools/call", params).await;
    assert_eq!(
        (key.status, key.json()["error"]["type"].as_str()),
        (400, Some("invalid_request_error"))
    );
    // A missing scope is a protocol error.
    let params = json!({"name": "memory_write", "arguments": {"path": "/memories/a", "content": "x"}});
    let told = ask(&client, &reader, &format!("/mcp/{notes}"), "tools/call", params).await;
    assert_eq!(told.status, 200);
    let error = told.json()["error"]["message"].as_str().unwrap().to_owned();
    assert!(error.contains("memory:write"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn only_the_protocol_is_written_to_stdout() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = Command::new(binary());
    command.args(["mcp", "--data"]).arg(folder.path());
    command
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .kill_on_drop(true);
    let mut process = command.spawn().unwrap();
    let initialize = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
        "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}});
    let initialized = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
    let listing = json!({"jsonrpc": "2.0", "id": 2, "method": "tools/list"});
    let mut stdin = process.stdin.take().unwrap();
    for message in [&initialize, &initialized, &listing] {
        tokio::io::AsyncWriteExt::write_all(&mut stdin, format!("{message}\n").as_bytes())
            .await
            .unwrap();
    }
    let mut lines =
        tokio::io::AsyncBufReadExt::lines(tokio::io::BufReader::new(process.stdout.take().unwrap()));
    for id in [1, 2] {
        let line = lines.next_line().await.unwrap().unwrap();
        let answer: Value = serde_json::from_str(&line).unwrap();
        assert_eq!(answer["id"], id, "{line}");
    }
    drop(stdin);
    assert_eq!(lines.next_line().await.unwrap(), None);
    let output = process.wait_with_output().await.unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );

    // A bridge without a credential, or with a folder beside it, says why.
    for (arguments, why) in [
        (&["mcp", "--url", "http://127.0.0.1:1"][..], "KEEPSAKE_API_KEY"),
        (
            &["mcp", "--url", "http://127.0.0.1:1", "--data", "x"],
            "cannot be used with",
        ),
    ] {
        let mut command = Command::new(binary());
        let output = command
            .args(arguments)
            .env_remove("KEEPSAKE_API_KEY")
            .output()
            .await
            .unwrap();
        let told = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && told.contains(why), "{told}");
    }
}
