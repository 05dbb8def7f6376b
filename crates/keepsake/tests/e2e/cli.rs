//! The operator's commands: configuration, schema, tenants, keys, stores.

use std::time::Duration;

use keepsake_testkit::ServerCommand;
use serde_json::{Value, json};

use crate::support::command::{keepsake, keepsake_with};
use crate::support::deployment::ServerConfig;
use crate::support::{Client, Deployment, Pair, Server, binary, secrets};

/// Writes a server's configuration; answers where it is.
fn config_file(command: &ServerCommand) -> String {
    command.config_file().display().to_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn tenant_store_and_key_made_by_commands_work_on_postgres_and_s3() {
    made_by_commands_work(Pair::PostgresS3).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn tenant_store_and_key_made_by_commands_work_on_sqlite() {
    made_by_commands_work(Pair::Sqlite).await;
}

async fn made_by_commands_work(pair: Pair) {
    let deployment = Deployment::new(pair).await;
    let command = deployment.command(&ServerConfig::default());
    let file = config_file(&command);
    let tenant = keepsake(&[
        "tenant",
        "create",
        "--config",
        &file,
        "--name",
        "Acme",
        "--external-id",
        "acme",
        "--limit",
        "bytes_per_memory=10",
        "-o",
        "json",
    ])
    .await
    .json();
    let tenant_id = tenant["id"].as_str().unwrap().to_owned();
    let expected = json!({
        "id": tenant_id, "type": "tenant", "name": "Acme", "external_id": "acme", "status": "active",
        "limits": {"bytes_per_memory": 10}, "created_at": tenant["created_at"],
    });
    assert_eq!(tenant, expected);
    let again = [
        "tenant",
        "create",
        "--config",
        &file,
        "--name",
        "B",
        "--external-id",
        "acme",
    ];
    let again = keepsake(&again).await;
    assert_eq!(again.code, Some(4));
    assert!(again.stderr.contains("external id exists"), "{}", again.stderr);

    let store = [
        "store", "create", "notes", "--config", &file, "--tenant", &tenant_id, "-o", "json",
    ];
    let store = keepsake(&store).await.json();
    let store_id = store["id"].as_str().unwrap().to_owned();
    let key = make_key(
        &file,
        &tenant_id,
        &["--scope", "memory:read", "--scope", "memory:write"],
    )
    .await;
    let bound = make_key(
        &file,
        &tenant_id,
        &["--store", &store_id, "--expires-in-days", "1"],
    )
    .await;
    let nobody = "wrkspc_00000000000000000000000001";
    let refused = keepsake(&[
        "key", "create", "--config", &file, "--tenant", nobody, "--name", "k",
    ])
    .await;
    assert_eq!(refused.code, Some(3));
    assert!(
        refused.stderr.contains("tenant was not found"),
        "{}",
        refused.stderr
    );

    let server = Server::start(command).await;
    for key in [key, bound] {
        let client = Client::new(&server.url(), key["api_key"].as_str().unwrap());
        let answer = client
            .call(&store_id, &json!({"command": "view", "path": "/memories"}))
            .await;
        assert_eq!(answer.status, 200, "{}", answer.text);
        assert_eq!(answer.header("anthropic-workspace-id"), tenant_id);
        let long = json!({"command": "create", "path": "/memories/a", "file_text": "x".repeat(11)});
        let result = client.call(&store_id, &long).await.tool_result();
        assert!(
            result.is_error && result.content.contains("limit of 10 bytes"),
            "{result:?}"
        );
        assert_eq!(
            client
                .post("/v1/memory_stores", &json!({"name": "a"}))
                .await
                .status,
            403
        );
    }
}

async fn make_key(file: &str, tenant_id: &str, options: &[&str]) -> Value {
    let arguments = [
        "key", "create", "--config", file, "--tenant", tenant_id, "--name", "agent", "-o", "json",
    ];
    let run = keepsake(&[arguments.as_slice(), options].concat()).await;
    assert_eq!(run.stderr, "");
    let key = run.json();
    let secret = key["api_key"].as_str().unwrap();
    secrets::remember(secret, "an API key");
    assert_eq!(key["workspace_id"], tenant_id);
    assert_eq!(key["scopes"], json!(["memory:read", "memory:write"]));
    key
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
    assert!(
        run.stdout
            .contains("max_connections = 7 # KEEPSAKE_INDEX_MAX_CONNECTIONS\n"),
        "{}",
        run.stdout
    );
    assert!(
        run.stdout.contains("bytes_per_memory = 102400 # default\n"),
        "{}",
        run.stdout
    );
    assert!(
        run.stdout.contains("secret_access_key = \"***\""),
        "{}",
        run.stdout
    );
    assert!(run.stdout.contains("url = \"postgres://"), "{}", run.stdout);
    secrets::assert_none_in(&run.stdout, "keepsake config check");
}

#[tokio::test(flavor = "multi_thread")]
async fn unknown_keys_are_refused_with_their_origin() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("keepsake.toml");
    std::fs::write(
        &file,
        "[index]\nurl = \"sqlite:///tmp/x.db\"\n[blobs]\nurll = \"index:\"\n",
    )
    .unwrap();
    let file = file.display().to_string();
    for arguments in [["config", "check"].as_slice(), &["serve"], &["migrate"]] {
        let run = keepsake_with(
            &[arguments, &["--config", &file]].concat(),
            &[("KEEPSAKE_LISTEN", "x")],
        )
        .await;
        assert_eq!(run.code, Some(1), "{arguments:?}: {}", run.stdout);
        let place = format!("unknown key blobs.urll ({file}, line 4)");
        assert!(run.stderr.contains(&place), "{arguments:?}: {}", run.stderr);
        assert!(
            run.stderr.contains("unknown variable KEEPSAKE_LISTEN"),
            "{arguments:?}: {}",
            run.stderr
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn unmigrated_postgres_is_refused_until_it_is_migrated() {
    let deployment = Deployment::unmigrated(Pair::Postgres).await;
    let command = deployment.command(&ServerConfig::default());
    let file = config_file(&command);

    let mut refused = command.spawn();
    assert_eq!(refused.wait().await.code(), Some(1), "{}", refused.output());
    assert!(
        refused.output().contains("run `keepsake migrate`"),
        "{}",
        refused.output()
    );
    secrets::assert_none_in(&refused.output(), "keepsake serve");

    for (start, end) in [
        ("created the schema in ", ""),
        ("the schema in ", " is up to date"),
    ] {
        let run = keepsake(&["migrate", "--config", &file]).await;
        secrets::assert_none_in(&(run.stderr.clone() + &run.stdout), "keepsake migrate");
        let told = run.ok();
        assert!(
            told.starts_with(start) && told.trim_end().ends_with(end),
            "{told}"
        );
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
    let mut refused = command.spawn();
    let ended = tokio::time::timeout(Duration::from_secs(30), refused.wait())
        .await
        .unwrap();
    assert_eq!(ended.code(), Some(6), "{}", refused.output());
    assert!(
        refused.output().contains("the database is not available"),
        "{}",
        refused.output()
    );
    secrets::assert_none_in(&refused.output(), "keepsake serve");
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
        let words: Vec<_> = line.split(' ').chain(["--config", &file]).collect();
        let run = keepsake_with(&words, &CLIENT_VARIABLES).await;
        assert_eq!(run.code, Some(0), "{line}: {}", run.stderr);
        run
    };
    run("config check").await;
    run("migrate").await;
    let tenant = run("tenant create --name t -o json").await.json();
    let tenant = tenant["id"].as_str().unwrap();
    let key = run(&format!("key create --tenant {tenant} --name k -o json"))
        .await
        .json();
    secrets::remember(key["api_key"].as_str().unwrap(), "an API key");
    for line in [
        "job list",
        "verify",
        "token-key rotate",
        &format!("store create notes --tenant {tenant}"),
    ] {
        run(line).await;
    }
    for (name, value) in CLIENT_VARIABLES {
        command = command.env(name, value);
    }
    let server = Server::start(command).await;
    assert!(server.output().contains("listens on"));

    let line = [
        "store",
        "create",
        "notes",
        "--tenant",
        tenant,
        "--url",
        "http://127.0.0.1:1",
    ];
    let refused = keepsake_with(&line, &CLIENT_VARIABLES).await;
    assert_eq!(refused.code, Some(2));
    assert!(
        refused.stderr.contains("--url cannot be used with --tenant"),
        "{}",
        refused.stderr
    );
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
    assert!(
        told.contains("already exists") && !told.contains("at line"),
        "{told}"
    );
}
