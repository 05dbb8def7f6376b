//! MCP with third-party clients.

use reqwest::Method;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::Command;

use crate::support::client::send;
use crate::support::command::{keepsake, start_keepsake};
use crate::support::deployment::ServerConfig;
use crate::support::script::{self, MCP_NODE_MODULES, MCP_PYTHON};
use crate::support::{Answer, Client, Deployment, Pair, Server, binary, on_sqlite, repository, secrets};

/// How the clients' suites reach a server, and the values that they need.
struct Place<'a> {
    reached: (&'static str, String),
    key: &'a str,
    root: &'a str,
    slug: &'a str,
}

fn by_url(url: String) -> (&'static str, String) {
    ("KEEPSAKE_MCP_URL", url)
}

fn by_command(arguments: &[&str]) -> (&'static str, String) {
    let mut line = vec![binary().to_str().unwrap()];
    line.extend(arguments);
    ("KEEPSAKE_MCP_COMMAND", json!(line).to_string())
}

impl Place<'_> {
    async fn suites(self) {
        let mut python = self.command(&script::from_environment(MCP_PYTHON));
        python.args(["-B", "-m", "unittest", "--verbose", "test_server"]);
        let output = script::run(python.current_dir(repository().join("tests/mcp"))).await;
        assert!(!output.contains("Ran 0 tests"), "{output}");
        self.typescript().await;
    }

    async fn typescript(self) {
        let copy = script::with_packages("tests/mcp/typescript", MCP_NODE_MODULES);
        let output = script::run(self.command("node").arg("--test").current_dir(copy.path())).await;
        assert!(!output.contains("# tests 0\n"), "{output}");
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.env(self.reached.0, &self.reached.1);
        command.envs((!self.key.is_empty()).then_some(("KEEPSAKE_API_KEY", self.key)));
        command.env("KEEPSAKE_MCP_ROOT", self.root).env("KEEPSAKE_MCP_SLUG", self.slug);
        command
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_are_served_over_http() {
    let (_deployment, server, tenant, client) = on_sqlite().await;
    let of_store = by_url(format!("{}/mcp/{}", server.url(), tenant.store_id));
    Place { reached: of_store, key: &tenant.key, root: "/memories", slug: "notes" }.suites().await;

    let (_, token) = session(&client, &[(&tenant.store_id.to_string(), "read_write")]).await;
    let of_session = by_url(format!("{}/mcp", server.url()));
    Place { reached: of_session, key: &token, root: "/memories/notes", slug: "notes" }.suites().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn folder_is_served_over_stdio() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_str().unwrap();
    let named = by_command(&["mcp", "--data", path, "--store", "My Notes"]);
    Place { reached: named, key: "", root: "/memories", slug: "my-notes" }.suites().await;
    let unnamed = by_command(&["mcp", "--data", path]);
    Place { reached: unnamed, key: "", root: "/memories", slug: "dev" }.typescript().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn server_is_bridged_to_stdio() {
    let (_deployment, server, tenant, _) = on_sqlite().await;
    let store = tenant.store_id.to_string();
    let bridge = by_command(&["mcp", "--url", &server.url(), "--store", &store]);
    Place { reached: bridge, key: &tenant.key, root: "/memories", slug: "notes" }.suites().await;
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
    let (_deployment, _server, tenant, client) = on_sqlite().await;
    let notes = tenant.store_id.to_string();
    let handbook = client.post("/v1/memory_stores", &json!({"name": "notes"})).await.json();
    let handbook = handbook["id"].as_str().unwrap();
    let rule = json!({"path": "/rules.md", "content": "# Rules for tea"});
    let made = client.post(&format!("/v1/memory_stores/{handbook}/memories"), &rule).await;
    assert_eq!(made.status, 200, "{}", made.text);
    let (session_id, token) = session(&client, &[(&notes, "read_write"), (handbook, "read_only")]).await;

    let listed = call(&client, &token, "memory_list", json!({})).await;
    let mounts = json!([
        {"type": "directory", "path": "/memories/notes/", "read_only": false},
        {"type": "directory", "path": "/memories/notes-2/", "read_only": true},
    ]);
    assert_eq!(listed["structuredContent"]["entries"], mounts);
    let appended = json!({"path": "/memories/notes/log.md", "content": "tea"});
    let written = call(&client, &token, "memory_append", appended).await;
    assert_eq!(written["isError"], json!(false), "{written}");
    let (mut uris, mut cursor) = (Vec::new(), Some(Value::Null));
    while let Some(given) = cursor {
        let page = ask(&client, &token, "/mcp", "resources/list", json!({"cursor": given})).await.json();
        let found = page["result"]["resources"].as_array().unwrap().iter();
        uris.extend(found.map(|resource| resource["uri"].clone()));
        cursor = Some(page["result"]["nextCursor"].clone()).filter(Value::is_string);
    }
    assert_eq!(uris, ["memory://notes/log.md", "memory://notes-2/rules.md"]);

    // The session's events have the calls without their content.
    let events = format!("/v1/sessions/{session_id}/events");
    let events = client.get(&events).await.json();
    let events = events["data"].as_array().unwrap().iter();
    let names: Vec<_> = events.map(|event| event["name"].clone()).collect();
    assert_eq!(names, ["memory_list", "memory_append"]);

    paths_lead_to_mounts(&client, &token).await;

    // A key must name a store, and a missing scope is a protocol error.
    let draft = json!({"name": "reader", "scopes": ["memory:read"]});
    let reader = client.post("/v1/api_keys", &draft).await.json()["api_key"].as_str().unwrap().to_owned();
    secrets::remember(&reader, "an API key");
    let params = json!({"name": "memory_write", "arguments": {"path": "/memories/a", "content": "x"}});
    let unnamed = ask(&client, &reader, "/mcp", "tools/call", params.clone()).await;
    assert_eq!(unnamed.status, 400, "{}", unnamed.text);
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
    for (place, paths) in [
        (None, vec!["/memories/notes-2/rules.md", "/memories/notes/log.md"]),
        (Some("/mnt/memory/notes-2"), vec!["/mnt/memory/notes-2/rules.md"]),
    ] {
        let query = json!({"query": "tea", "path_prefix": place});
        let found = call(client, token, "memory_search", query).await;
        let hits = found["structuredContent"]["hits"].as_array().unwrap().iter();
        let mut found: Vec<_> = hits.map(|hit| hit["path"].as_str().unwrap()).collect();
        found.sort_unstable();
        assert_eq!(found, paths);
    }
    for (tool, path, why) in [
        ("memory_delete", "/memories/notes-2/rules.md", "attached read-only"),
        ("memory_delete", "/memories/notes", "a memory store is mounted there"),
        ("memory_delete", "/memories", "Cannot delete the /memories directory itself"),
        ("memory_write", "/memories", "is a directory"),
        ("memory_write", "/memories/notes", "is a directory"),
        ("memory_read", "/memories/elsewhere/a", "is in no memory store of this session"),
    ] {
        let mut arguments = json!({"path": path});
        if tool == "memory_write" {
            arguments["content"] = json!("x");
        }
        let refused = call(client, token, tool, arguments).await;
        assert_eq!(refused["isError"], json!(true), "{refused}");
        let text = refused["content"][0]["text"].as_str().unwrap();
        assert!(text.contains(why), "{text}");
    }
}

/// Messages that cannot be served, each with the code and the cause in the answer.
const UNSERVED: [(&[u8], i64, &str); 13] = [
    (b"not JSON", -32_700, "expected ident"),
    (b"{\"text\": \"\xff\"}", -32_700, "utf-8"),
    (b"3", -32_600, "must be an object"),
    (br#"{"jsonrpc": "2.0", "id": {}, "method": "ping"}"#, -32_600, "`id`"),
    (br#"{"jsonrpc": "2.0", "id": 1}"#, -32_600, "`method`"),
    (br#"{"id": 1, "method": "ping"}"#, -32_600, "`jsonrpc`"),
    (b"[]", -32_600, "a batch"),
    (b"[0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0]", -32_600, "at most 20 messages"),
    (br#"{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {}}"#, -32_602, "`name`"),
    (br#"{"jsonrpc": "2.0", "id": 1, "method": "ping", "params": {"a": {"b": 1, "b": 2}}}"#, -32_600, "field `b`"),
    (
        br#"{"jsonrpc":"2.0","id":1,"method":"prompts/get","params":{"name":"memory_protocol","arguments":{"tidy":"true"}}}"#,
        -32_602,
        "`tidy`",
    ),
    (br#"{"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": []}"#, -32_602, "`params`"),
    (br#"{"jsonrpc": "2.0", "id": 1, "method": "tools/lists"}"#, -32_601, "`tools/lists`"),
];

#[tokio::test(flavor = "multi_thread")]
async fn message_that_cannot_be_served_is_answered_and_the_next_is_served() {
    let (_deployment, server, tenant, client) = on_sqlite().await;
    let (store, folder) = (tenant.store_id.to_string(), tempfile::tempdir().unwrap());
    let variables = [("KEEPSAKE_API_KEY", tenant.key.as_str())];
    let ping = |id: Value| json!({"jsonrpc": "2.0", "id": id, "method": "ping"});
    let reply = |id: Value| json!({"jsonrpc": "2.0", "id": id, "result": {}});
    let batch =
        json!([ping(json!(1)), {"jsonrpc": "2.0", "method": "notifications/initialized"}, ping(json!("b"))]);
    for mut process in [
        start_keepsake(&["mcp", "--url", &server.url(), "--store", &store], &variables),
        start_keepsake(&["mcp", "--data", folder.path().to_str().unwrap()], &[]),
    ] {
        let mut stdin = process.stdin.take().unwrap();
        let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
        let mut both = async |message: &[u8]| {
            let by_http = client.bare(Method::POST, &format!("/mcp/{store}")).bearer_auth(&tenant.key);
            let by_http = by_http.header("content-type", "application/json").body(message.to_vec());
            stdin.write_all(&[message, b"\n"].concat()).await.unwrap();
            let line = lines.next_line().await.unwrap().unwrap();
            let answer: Value = serde_json::from_str(&line).unwrap();
            assert_eq!(send(by_http).await.json(), answer);
            answer
        };
        for (message, code, cause) in UNSERVED {
            let error = &both(message).await["error"];
            assert_eq!(error["code"], code, "{error}");
            assert!(error["message"].as_str().unwrap().contains(cause), "{error}");
        }
        let answered = both(batch.to_string().as_bytes()).await;
        assert_eq!(answered, json!([reply(json!(1)), reply(json!("b"))]));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_of_allowed_origins_may_call() {
    let deployment = Deployment::new(Pair::Sqlite).await;
    let tenant = deployment.tenant().await;
    let origins = ("KEEPSAKE_SERVER_MCP_ALLOWED_ORIGINS", "https://app.example.com");
    let command = deployment.command(&ServerConfig::default()).env(origins.0, origins.1);
    let server = Server::start(command).await;
    let client = server.client(&tenant);
    let mcp = format!("/mcp/{}", tenant.store_id);
    let ping = json!({"jsonrpc": "2.0", "id": 1, "method": "ping"});
    let described = format!("/.well-known/oauth-protected-resource{mcp}");
    for (origin, is_allowed) in [(origins.1, true), ("https://evil.example", false)] {
        let asks = client.bare(Method::OPTIONS, &mcp).header("access-control-request-method", "POST");
        let asks = asks.header("access-control-request-headers", "x-api-key,mcp-protocol-version");
        for (request, status) in [
            (asks, 204),
            (client.bare(Method::POST, &mcp).json(&ping), 401),
            (client.request(Method::POST, &mcp).json(&ping), 200),
            (client.bare(Method::GET, &described), 404),
        ] {
            let answer = send(request.header("origin", origin)).await;
            assert_eq!(answer.status, if is_allowed { status } else { 403 }, "{}", answer.text);
            assert_eq!(answer.header("access-control-allow-origin"), if is_allowed { origin } else { "" });
            if answer.status == 204 {
                let names = answer.header("access-control-allow-headers");
                assert_eq!(names, "x-api-key,mcp-protocol-version");
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn only_the_protocol_is_written_to_stdout() {
    let folder = tempfile::tempdir().unwrap();
    let mut process = start_keepsake(&["mcp", "--data", folder.path().to_str().unwrap()], &[]);
    let initialize = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
        "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}});
    let initialized = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
    let listing = json!({"jsonrpc": "2.0", "id": 2, "method": "tools/list"});
    let mut stdin = process.stdin.take().unwrap();
    for message in [&initialize, &initialized, &listing] {
        stdin.write_all(format!("{message}\n").as_bytes()).await.unwrap();
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
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));

    // A bridge without a credential, or with a folder beside it, says why.
    let bridge = ["mcp", "--url", "http://127.0.0.1:1"];
    let with_folder = [bridge.as_slice(), &["--data", "x"]].concat();
    for (arguments, why) in [(&bridge[..], "KEEPSAKE_API_KEY"), (&with_folder[..], "cannot be used with")] {
        let run = keepsake(arguments).await;
        assert!(run.code != Some(0) && run.stderr.contains(why), "{run:?}");
    }
}
