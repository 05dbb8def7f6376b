//! MCP with third-party clients.

use tokio::io::{AsyncBufReadExt, BufReader};

use crate::api::sessions::{attached, open};
use crate::prelude::*;
use crate::support::script::{MCP_NODE_MODULES, MCP_PYTHON};

/// Runs the test suites of the clients. The variables name the server, its credential and its memory store.
async fn suites(variables: &[(&str, &str)]) {
    let mut python = Command::new(script::from_environment(MCP_PYTHON));
    python.args(["-B", "-m", "unittest", "--verbose", "test_server"]).envs(variables.iter().copied());
    let output = script::run(python.current_dir(repository().join("tests/mcp"))).await;
    assert!(!output.contains("Ran 0 tests"), "{output}");
    typescript(variables).await;
}

async fn typescript(variables: &[(&str, &str)]) {
    let copy = script::with_packages("tests/mcp/typescript", MCP_NODE_MODULES);
    let mut node = Command::new("node");
    let output =
        script::run(node.arg("--test").envs(variables.iter().copied()).current_dir(copy.path())).await;
    assert!(!output.contains("# tests 0\n"), "{output}");
}

const ROOT: (&str, &str) = ("KEEPSAKE_MCP_ROOT", "/memories");
const SLUG: &str = "KEEPSAKE_MCP_SLUG";

fn command(arguments: &[&str]) -> String {
    json!([&[binary().to_str().unwrap()], arguments].concat()).to_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_are_served_over_http() {
    let (_deployment, server, tenant, client) = on_sqlite().await;
    let of_session = format!("{}/mcp", server.url());
    let of_store = format!("{of_session}/{}", tenant.store_id);
    let (session, ..) = open(&client, &[attached(&Store::of(&client, &tenant), "read_write")]).await;
    let mounted = ("KEEPSAKE_MCP_ROOT", "/memories/notes");
    for (url, key, root) in
        [(&of_store, tenant.key.as_str(), ROOT), (&of_session, text(&session["token"]), mounted)]
    {
        suites(&[("KEEPSAKE_MCP_URL", url), ("KEEPSAKE_API_KEY", key), root, (SLUG, "notes")]).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn folder_is_served_over_stdio() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_str().unwrap();
    let named = command(&["mcp", "--data", path, "--store", "My Notes"]);
    suites(&[("KEEPSAKE_MCP_COMMAND", &named), ROOT, (SLUG, "my-notes")]).await;
    let unnamed = command(&["mcp", "--data", path]);
    typescript(&[("KEEPSAKE_MCP_COMMAND", &unnamed), ROOT, (SLUG, "dev")]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn server_is_bridged_to_stdio() {
    let (_deployment, server, tenant, _) = on_sqlite().await;
    let bridge = command(&["mcp", "--url", &server.url(), "--store", &tenant.store_id.to_string()]);
    let key = ("KEEPSAKE_API_KEY", tenant.key.as_str());
    suites(&[("KEEPSAKE_MCP_COMMAND", &bridge), key, ROOT, (SLUG, "notes")]).await;
}

pub(crate) async fn ask(client: &Client, path: &str, method: &str, params: Value) -> Answer {
    client.post(path, &json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params})).await
}

/// All resources, whose pages fit into the view limit.
async fn resources(client: &Client, path: &str) -> Vec<Value> {
    let (mut listed, mut cursor) = (Vec::new(), Value::Null);
    loop {
        let page =
            ok(&ask(client, path, "resources/list", json!({"cursor": cursor})).await)["result"].clone();
        assert!(page.to_string().chars().count() <= 16_000);
        listed.extend(page["resources"].as_array().unwrap().clone());
        cursor = page["nextCursor"].clone();
        if cursor.is_null() {
            return listed;
        }
    }
}

async fn call(client: &Client, tool: &str, arguments: Value) -> Value {
    let params = json!({"name": tool, "arguments": arguments});
    ok(&ask(client, "/mcp", "tools/call", params).await)["result"].clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn session_sees_its_stores_and_reads_resources_in_parts() {
    let (_deployment, _server, tenant, client) = on_sqlite().await;
    let (notes, handbook) = (Store::of(&client, &tenant), Store::make(&client, "notes").await);
    handbook.create("/rules.md", "# Rules for tea").await;
    let both = [attached(&notes, "read_write"), attached(&handbook, "read_only")];
    let (_, session, holder) = open(&client, &both).await;

    let listed = call(&holder, "memory_list", json!({})).await;
    let mounts = json!([
        {"type": "directory", "path": "/memories/notes/", "read_only": false},
        {"type": "directory", "path": "/memories/notes-2/", "read_only": true},
    ]);
    assert_eq!(listed["structuredContent"]["entries"], mounts);
    let appended = json!({"path": "/memories/notes/log.md", "content": "tea"});
    let written = call(&holder, "memory_append", appended).await;
    assert_eq!(written["isError"], json!(false), "{written}");
    let uris = strings(&resources(&holder, "/mcp").await, "uri");
    assert_eq!(uris, ["memory://notes/log.md", "memory://notes-2/rules.md"]);
    // The session's events have the calls without their content.
    let events = client.get(&format!("{session}/events")).await.json();
    assert_eq!(strings(events["data"].as_array().unwrap(), "name"), ["memory_list", "memory_append"]);
    paths_lead_to_mounts(&holder).await;
    // A key must name a store, and a missing scope is a protocol error.
    let reader = client.with_key(&client.new_key(&["memory:read"]).await.0);
    let params = json!({"name": "memory_write", "arguments": {"path": "/memories/a", "content": "x"}});
    let unnamed = ask(&reader, "/mcp", "tools/call", params.clone()).await;
    assert_eq!(unnamed.status, 400, "{}", unnamed.text);
    let mcp = format!("/mcp/{}", notes.id);
    let told = ok(&ask(&reader, &mcp, "tools/call", params).await);
    says(text(&told["error"]["message"]), &["memory:write"]);

    let content = "é\n".repeat(20_000);
    let long_names = (0..12).map(|number| format!("/{number}{}", "é".repeat(450)));
    for path in long_names.chain(["/long.md".to_owned()]) {
        notes.create(&path, &content).await;
    }
    // As many settings as a page has resources.
    for number in 0..3 {
        notes.create(&format!("/.keepsake/{number}"), "").await;
    }
    assert_eq!(resources(&client, &mcp).await.len(), 13 + 1, "with that of the session");
    let (mut read, mut uri) = (String::new(), json!("memory://notes/long.md"));
    while uri.is_string() {
        let page = ok(&ask(&client, &mcp, "resources/read", json!({"uri": uri})).await);
        let contents = page["result"]["contents"].clone();
        assert!(strings(contents.as_array().unwrap(), "text").concat().chars().count() <= 16_000);
        read.push_str(text(&contents[0]["text"]));
        uri = contents[1]["uri"].clone();
    }
    assert!(read == content, "{} of {} bytes", read.len(), content.len());
}

async fn paths_lead_to_mounts(holder: &Client) {
    let listed = call(holder, "memory_list", json!({"path_prefix": "/mnt/memory/notes-2"})).await;
    let entry = &listed["structuredContent"]["entries"][0];
    assert_eq!(entry["path"], "/mnt/memory/notes-2/rules.md", "{listed}");
    for (place, paths) in [
        (None, vec!["/memories/notes-2/rules.md", "/memories/notes/log.md"]),
        (Some("/mnt/memory/notes-2"), vec!["/mnt/memory/notes-2/rules.md"]),
    ] {
        let query = json!({"query": "tea", "path_prefix": place});
        let found = call(holder, "memory_search", query).await;
        let mut found = strings(found["structuredContent"]["hits"].as_array().unwrap(), "path");
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
        let refused = call(holder, tool, arguments).await;
        assert_eq!(refused["isError"], json!(true), "{refused}");
        says(text(&refused["content"][0]["text"]), &[why]);
    }
    for to in ["/memories", "/memories/notes-2"] {
        let rename = json!({"command": "rename", "old_path": "/memories/notes/log.md", "new_path": to});
        let refused = call(holder, "memory", rename).await;
        assert_eq!(refused["content"][0]["text"], format!("Error: The destination {to} already exists"));
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
    let notification = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
    let initialize = json!({"jsonrpc": "2.0", "id": 2, "method": "initialize"});
    let (first, last) = (ping(json!(1)), ping(json!("b")));
    let batch = format!(r#"[{first}, {{"id": 1e999}}, {initialize}, {notification}, {last}]"#);
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
            says(text(&error["message"]), &[cause]);
        }
        // A message that cannot be served does not affect the other messages of its batch.
        let answered = both(batch.as_bytes()).await;
        assert_eq!([&answered[0], &answered[3]], [&reply(json!(1)), &reply(json!("b"))]);
        assert_eq!((&answered[1]["error"]["code"], &answered[2]["id"]), (&json!(-32_700), &json!(2)));
        says(text(&answered[2]["error"]["message"]), &["`initialize`"]);
        // A large message is parsed elsewhere.
        let mut large = ping(json!(3));
        large["params"] = json!({"_meta": {"padding": "x".repeat(200_000)}});
        assert_eq!(both(large.to_string().as_bytes()).await, reply(json!(3)));
        // Nothing else was written, and the end of the input ends it.
        drop(stdin);
        assert_eq!(lines.next_line().await.unwrap(), None);
        assert!(process.wait().await.unwrap().success());
    }
    // A bridge without a credential, or with a folder beside it, says why.
    let bridge = ["mcp", "--url", "http://127.0.0.1:1"];
    let with_folder = [bridge.as_slice(), &["--data", "x"]].concat();
    for (arguments, why) in [(&bridge[..], "KEEPSAKE_API_KEY"), (&with_folder[..], "cannot be used with")] {
        let run = keepsake(arguments).await;
        assert!(run.code != Some(0) && run.stderr.contains(why), "{run:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_of_allowed_origins_may_call() {
    let deployment = Deployment::new(Pair::Sqlite).await;
    let tenant = deployment.tenant().await;
    let allowed = "https://app.example.com";
    let command = deployment.command(&ServerConfig::default());
    let server = Server::start(command.env("KEEPSAKE_SERVER_MCP_ALLOWED_ORIGINS", allowed)).await;
    let client = server.client(&tenant);
    let mcp = format!("/mcp/{}", tenant.store_id);
    let ping = json!({"jsonrpc": "2.0", "id": 1, "method": "ping"});
    let described = format!("/.well-known/oauth-protected-resource{mcp}");
    for (origin, is_allowed) in [(allowed, true), ("https://evil.example", false)] {
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
