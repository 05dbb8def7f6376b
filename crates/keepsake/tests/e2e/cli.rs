//! The operator's commands: configuration, schema, tenants, keys, stores.

use std::time::Duration;

use keepsake_testkit::ServerCommand;
use serde_json::json;

use crate::support::command::{keepsake, keepsake_with, words};
use crate::support::deployment::ServerConfig;
use crate::support::{Client, Deployment, Pair, Server, binary, secrets};

/// Writes a server's configuration; answers where it is.
fn config_file(command: &ServerCommand) -> String {
    command.config_file().display().to_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn tenant_store_and_key_made_by_commands_work() {
    let deployment = Deployment::new(Pair::Sqlite).await;
    let command = deployment.command(&ServerConfig::default());
    let file = config_file(&command);
    let run = async |line: &str| {
        let line = format!("{line} --config {file}");
        keepsake(&words(&line)).await
    };
    let create = "tenant create --name Acme --external-id acme";
    let made = format!("{create} --limit bytes_per_memory=10 -o json");
    let tenant = run(&made).await.json();
    let tenant_id = tenant["id"].as_str().unwrap().to_owned();
    let expected = json!({
        "id": tenant_id, "type": "tenant", "name": "Acme", "external_id": "acme", "status": "active",
        "limits": {"bytes_per_memory": 10}, "created_at": tenant["created_at"],
    });
    assert_eq!(tenant, expected);
    run(create).await.ends(4, "external id exists");

    let store = format!("store create notes --tenant {tenant_id} -o json");
    let store = run(&store).await.json();
    let store_id = store["id"].as_str().unwrap().to_owned();
    let make_key = async |options: &str| {
        let line = format!("key create --tenant {tenant_id} --name agent -o json {options}");
        let made = run(&line).await;
        assert_eq!(made.stderr, "");
        let key = made.json();
        secrets::remember(key["api_key"].as_str().unwrap(), "an API key");
        assert_eq!(key["workspace_id"], tenant_id);
        assert_eq!(key["scopes"], json!(["memory:read", "memory:write"]));
        key
    };
    let key = make_key("--scope memory:read --scope memory:write").await;
    let bound = make_key(&format!("--store {store_id} --expires-in-days 1")).await;
    let nobody = "key create --tenant wrkspc_00000000000000000000000001 --name k";
    run(nobody).await.ends(3, "tenant was not found");

    let server = Server::start(command).await;
    for key in [key, bound] {
        let client = Client::new(&server.url(), key["api_key"].as_str().unwrap());
        let answer = client.call(&store_id, &json!({"command": "view", "path": "/memories"})).await;
        assert_eq!(answer.status, 200, "{}", answer.text);
        assert_eq!(answer.header("anthropic-workspace-id"), tenant_id);
        let long = json!({"command": "create", "path": "/memories/a", "file_text": "x".repeat(11)});
        let result = client.call(&store_id, &long).await.tool_result();
        assert!(result.is_error, "{result:?}");
        assert!(result.content.contains("limit of 10 bytes"), "{result:?}");
        let store = client.post("/v1/memory_stores", &json!({"name": "a"})).await;
        assert_eq!(store.status, 403, "{}", store.text);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn config_check_prints_everything_but_secrets() {
    let deployment = Deployment::unmigrated(Pair::PostgresS3).await;
    let command = deployment.command(&ServerConfig::default());
    let file = config_file(&command);
    let variables = [("KEEPSAKE_INDEX_MAX_CONNECTIONS", "7")];
    let run = keepsake_with(&["config", "check", "--config", &file], &variables).await;
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    assert_eq!(run.stderr, "");
    for shown in [
        "max_connections = 7 # KEEPSAKE_INDEX_MAX_CONNECTIONS\n",
        "bytes_per_memory = 102400 # default\n",
        "secret_access_key = \"***\"",
        "url = \"postgres://",
    ] {
        assert!(run.stdout.contains(shown), "{shown}: {}", run.stdout);
    }
    secrets::assert_none_in(&run.stdout, "keepsake config check");
}

#[tokio::test(flavor = "multi_thread")]
async fn unknown_keys_are_refused_with_their_origin() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("keepsake.toml");
    let config = "[index]\nurl = \"sqlite:///tmp/x.db\"\n[blobs]\nurll = \"index:\"\n";
    std::fs::write(&file, config).unwrap();
    let file = file.display().to_string();
    for command in ["config check", "serve", "migrate"] {
        let line = format!("{command} --config {file}");
        let run = keepsake_with(&words(&line), &[("KEEPSAKE_LISTEN", "x")]).await;
        run.ends(1, &format!("unknown key blobs.urll ({file}, line 4)"));
        run.ends(1, "unknown variable KEEPSAKE_LISTEN");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn unmigrated_postgres_is_refused_until_it_is_migrated() {
    let deployment = Deployment::unmigrated(Pair::Postgres).await;
    let command = deployment.command(&ServerConfig::default());
    let file = config_file(&command);

    assert_refused(&command, 1, "run `keepsake migrate`").await;

    for (start, end) in [("created the schema in ", ""), ("the schema in ", " is up to date")] {
        let run = keepsake(&["migrate", "--config", &file]).await;
        secrets::assert_none_in(&(run.stderr.clone() + &run.stdout), "keepsake migrate");
        let told = run.ok();
        assert!(told.starts_with(start), "{told}");
        assert!(told.trim_end().ends_with(end), "{told}");
    }
    let server = Server::start(command).await;
    assert!(server.output().contains("listens on"));
}

#[tokio::test(flavor = "multi_thread")]
async fn several_servers_may_migrate_at_once() {
    let deployment = Deployment::unmigrated(Pair::Postgres).await;
    let commands: Vec<_> = (0..3)
        .map(|_| {
            let command = deployment.command(&ServerConfig::default());
            let file = config_file(&command);
            command.arguments(&["serve", "--migrate", "--config", &file])
        })
        .collect();
    let servers = futures::future::join_all(commands.into_iter().map(Server::start)).await;
    for server in servers {
        let ready = Client::new(&server.url(), "");
        let ready = crate::support::client::send(ready.bare(reqwest::Method::GET, "/readyz")).await;
        assert_eq!(ready.status, 200, "{}", ready.text);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn unreachable_database_ends_a_start_without_its_password() {
    let port = keepsake_testkit::keepsake_server::free_port();
    let config = config_of(&format!("postgres://app:hunter2hunter2@127.0.0.1:{port}/k"));
    secrets::remember("hunter2hunter2", "the database's password");
    let command = ServerCommand::new(binary(), &config);
    assert_refused(&command, 6, "the database is not available").await;
    for url in ["postgres://user:hunter2hunter2@host:port/x", "mysql://user:hunter2hunter2@host/x"] {
        let command = ServerCommand::new(binary(), &config_of(url));
        assert_refused(&command, 1, "index.url").await;
    }
}

/// A server that ends by itself, and tells why without a secret.
async fn assert_refused(command: &ServerCommand, code: i32, why: &str) {
    let mut server = command.spawn();
    let ended = tokio::time::timeout(Duration::from_secs(30), server.wait()).await;
    assert_eq!(ended.unwrap().code(), Some(code), "{}", server.output());
    assert!(server.output().contains(why), "{}", server.output());
    secrets::assert_none_in(&server.output(), "keepsake serve");
}

fn config_of(index_url: &str) -> String {
    format!("[server]\nlisten = \"127.0.0.1:{{port}}\"\n[index]\nurl = \"{index_url}\"\n")
}

/// What the commands for people take from the environment.
const CLIENT_VARIABLES: [(&str, &str); 4] = [
    ("KEEPSAKE_URL", "http://127.0.0.1:9"),
    ("KEEPSAKE_API_KEY", "ks_live_x"),
    ("KEEPSAKE_STORE", "notes"),
    ("KEEPSAKE_CONTEXT", "work"),
];

#[tokio::test(flavor = "multi_thread")]
async fn clients_variables_stop_neither_a_server_nor_the_operators_commands() {
    let deployment = Deployment::unmigrated(Pair::Sqlite).await;
    let mut command = deployment.command(&ServerConfig::default());
    let file = config_file(&command);
    let run = async |line: &str| {
        let line = format!("{line} --config {file}");
        let run = keepsake_with(&words(&line), &CLIENT_VARIABLES).await;
        assert_eq!(run.code, Some(0), "{line}: {}", run.stderr);
        run
    };
    run("config check").await;
    run("migrate").await;
    let tenant = run("tenant create --name t -o json").await.json();
    let tenant = tenant["id"].as_str().unwrap();
    let key = run(&format!("key create --tenant {tenant} --name k -o json")).await.json();
    secrets::remember(key["api_key"].as_str().unwrap(), "an API key");
    for line in ["job list", "verify", "token-key rotate", &format!("store create notes --tenant {tenant}")] {
        run(line).await;
    }
    for (name, value) in CLIENT_VARIABLES {
        command = command.env(name, value);
    }
    let server = Server::start(command).await;
    assert!(server.output().contains("listens on"));

    let line = format!("store create notes --tenant {tenant} --url http://127.0.0.1:1");
    let refused = keepsake_with(&words(&line), &CLIENT_VARIABLES).await;
    refused.ends(2, "--url cannot be used with --tenant");
}

#[tokio::test(flavor = "multi_thread")]
async fn failed_statement_is_reported_without_a_line_of_postgres_itself() {
    let deployment = Deployment::unmigrated(Pair::Postgres).await;
    let command = deployment.command(&ServerConfig::default());
    let file = config_file(&command);
    let database = deployment.database().await;
    database.execute("CREATE TABLE tenant (id int)".to_owned()).await;
    database.close().await;
    let refused = keepsake(&["migrate", "--config", &file]).await;
    assert_eq!(refused.code, Some(1), "{}", refused.stdout);
    let told = refused.stderr;
    assert!(told.contains("already exists"), "{told}");
    assert!(!told.contains("at line"), "{told}");
}
