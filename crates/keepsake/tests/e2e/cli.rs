//! The operator's commands: configuration, schema, tenants, keys, stores.

use crate::prelude::*;

/// What the commands for people take from the environment, and operators' ones do not.
const CLIENT_VARIABLES: [(&str, &str); 4] = [
    ("KEEPSAKE_URL", "http://127.0.0.1:9"),
    ("KEEPSAKE_API_KEY", "ks_live_x"),
    ("KEEPSAKE_STORE", "notes"),
    ("KEEPSAKE_CONTEXT", "work"),
];

#[tokio::test(flavor = "multi_thread")]
async fn tenant_store_and_key_made_by_commands_work() {
    let deployment = Deployment::new(Pair::Sqlite).await;
    let mut command = deployment.command(&ServerConfig::default());
    let file = command.config_file().display().to_string();
    let run = async |line: &str| {
        let line = format!("{line} --config {file}");
        keepsake_with(&words(&line), &CLIENT_VARIABLES).await
    };
    let create = "tenant create --name Acme --external-id acme";
    let made = format!("{create} --limit bytes_per_memory=10 -o json");
    let tenant = run(&made).await.json();
    let tenant_id = tenant["id"].as_str().unwrap();
    shows(&tenant, &json!({"name": "Acme", "external_id": "acme", "limits": {"bytes_per_memory": 10}}));
    run(create).await.ends(4, "external id exists");
    run("migrate --distributed").await.ends(1, "is a file, which cannot be distributed");
    for given in ["Acme", "acme", tenant_id.split_at(30).0] {
        let shown = run(&format!("tenant get {given} -o json")).await.json();
        assert_eq!(shown["id"], tenant["id"], "{given}");
    }
    run("tenant usage nobody").await.ends(3, "no tenant has the id, the name or the external id `nobody`");
    let new_store = "store create notes --tenant Acme";
    let store = run(&format!("{new_store} -o json")).await.json();
    let store_id = store["id"].as_str().unwrap();
    let elsewhere = format!("{new_store} --url http://127.0.0.1:1");
    run(&elsewhere).await.ends(2, "--url cannot be used with --tenant");
    let make_key = async |options: &str| {
        let line = format!("key create --tenant {tenant_id} --name agent -o json {options}");
        secret(&run(&line).await.json(), "api_key").to_owned()
    };
    let key = make_key("--scope memory:read --scope memory:write").await;
    let bound = make_key("--store notes --expires-in-days 1").await;
    make_key(&format!("--store {}", &store_id[..30])).await;
    let unknown = "key create --tenant Acme --name k --store nothing";
    run(unknown).await.ends(3, "no memory store has the id or the name `nothing`");
    let nobody = "key create --tenant wrkspc_00000000000000000000000001 --name k";
    run(nobody).await.ends(3, "tenant was not found");

    for (name, value) in CLIENT_VARIABLES {
        command = command.env(name, value);
    }
    let server = Server::start(command).await;
    for key in [key, bound] {
        let client = Client::new(&server.url(), &key);
        let answer = client.call(store_id, &json!({"command": "view", "path": "/memories"})).await;
        assert_eq!((answer.status, answer.header("anthropic-workspace-id")), (200, tenant_id));
        let long = json!({"command": "create", "path": "/memories/a", "file_text": "x".repeat(11)});
        let result = client.call(store_id, &long).await.tool_result();
        assert!(result.is_error && result.content.contains("limit of 10 bytes"), "{result:?}");
        refused(&client.post(STORES, &json!({"name": "a"})).await, 403, "permission_error");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn unmigrated_postgres_is_refused_until_it_is_migrated() {
    let deployment = Deployment::unmigrated(Pair::PostgresS3).await;
    let command = deployment.command(&ServerConfig::default());
    let file = command.config_file().display().to_string();
    assert_refused(&command, 1, "run `keepsake migrate`").await;
    for (line, shown) in [
        ("config check", "secret_access_key = \"***\""),
        ("migrate", "created the schema in "),
        ("migrate", " is up to date"),
    ] {
        let run = keepsake(&words(&format!("{line} --config {file}"))).await;
        secrets::assert_none_in(&(run.stderr.clone() + &run.stdout), line);
        let told = run.ok();
        assert!(told.contains(shown), "{told}");
    }
    if !keepsake_testkit::is_distributed() {
        let distribute = format!("migrate --distributed --config {file}");
        keepsake(&words(&distribute)).await.ends(1, "the database has no extension `citus`");
    }
    Server::start(command).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn several_servers_may_migrate_at_once() {
    let deployment = Deployment::unmigrated(Pair::Postgres).await;
    let commands = (0..3).map(|_| {
        let command = deployment.command(&ServerConfig::default());
        let file = command.config_file().display().to_string();
        command.arguments(&["serve", "--migrate", "--config", &file])
    });
    for server in join_all(commands.map(Server::start)).await {
        ok(&Client::new(&server.url(), "").get("/readyz").await);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn server_that_cannot_start_says_why_without_the_password() {
    secrets::remember("hunter2hunter2", "the database's password");
    let port = keepsake_testkit::keepsake_server::free_port();
    let unreachable = format!("postgres://app:hunter2hunter2@127.0.0.1:{port}/k");
    for (url, code, why) in [
        (unreachable.as_str(), 6, "the database is not available"),
        ("postgres://user:hunter2hunter2@host:port/x", 1, "index.url"),
        ("mysql://user:hunter2hunter2@host/x", 1, "index.url"),
        ("sqlite:///tmp/x.db\"\nurll = \"x", 1, "unknown key index.urll"),
    ] {
        let config = format!("[server]\nlisten = \"127.0.0.1:{{port}}\"\n[index]\nurl = \"{url}\"\n");
        assert_refused(&ServerCommand::new(binary(), &config), code, why).await;
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
