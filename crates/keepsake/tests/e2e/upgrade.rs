//! From the previous release to this one: what it left is brought up to date,
//! served and whole, and its own statements still run beside the new ones.
//!
//! `tests/upgrade` has what the previous release's server left behind.

use std::path::Path;

use serde_json::{Value, json};
use sqlx::{AssertSqlSafe, Connection, Executor, PgConnection, SqlSafeStr, SqliteConnection};

use crate::support::command::keepsake;
use crate::support::deployment::ServerConfig;
use crate::support::{Client, Deployment, Pair, Server, secrets};

/// What the previous release left with one of the databases.
struct Left {
    index: &'static str,
    blobs: &'static str,
    client: &'static str,
    statements: &'static str,
}

const POSTGRES: Left = Left {
    index: include_str!("../../../../tests/upgrade/postgres/index.sql"),
    blobs: include_str!("../../../../tests/upgrade/postgres/blobs.json"),
    client: include_str!("../../../../tests/upgrade/postgres/client.json"),
    statements: include_str!("../../../../tests/upgrade/postgres/statements.sql"),
};
const SQLITE: Left = Left {
    index: include_str!("../../../../tests/upgrade/sqlite/index.sql"),
    blobs: include_str!("../../../../tests/upgrade/sqlite/blobs.json"),
    client: include_str!("../../../../tests/upgrade/sqlite/client.json"),
    statements: include_str!("../../../../tests/upgrade/sqlite/statements.sql"),
};

#[tokio::test(flavor = "multi_thread")]
async fn previous_release_is_taken_over_on_postgres_and_files() {
    let deployment = Deployment::unmigrated(Pair::PostgresFiles).await;
    let mut database = PgConnection::connect(&deployment.postgres_url()).await.unwrap();
    database.execute(sqlx::raw_sql(POSTGRES.index)).await.unwrap();
    // The dump leaves its session without a search path.
    database.close().await.unwrap();
    let mut database = PgConnection::connect(&deployment.postgres_url()).await.unwrap();
    let statements = statements_of(&POSTGRES);
    let all = statements.len();
    // Without the types of what is bound, a few cannot be prepared anywhere.
    let mut known = Vec::new();
    for statement in statements {
        if prepared(&mut database, statement).await.is_ok() {
            known.push(statement);
        }
    }
    assert!(known.len() + 8 > all, "{} of {all}", known.len());
    database.close().await.unwrap();
    is_taken_over(&deployment, &POSTGRES).await;
    let mut database = PgConnection::connect(&deployment.postgres_url()).await.unwrap();
    for statement in known {
        let outcome = prepared(&mut database, statement).await;
        assert!(outcome.is_ok(), "{statement}: {:?}", outcome.err());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn previous_release_is_taken_over_on_sqlite_and_files() {
    let deployment = Deployment::unmigrated(Pair::SqliteFiles).await;
    let url = format!("sqlite://{}?mode=rwc", deployment.sqlite_file().display());
    let mut database = SqliteConnection::connect(&url).await.unwrap();
    database.execute(sqlx::raw_sql(SQLITE.index)).await.unwrap();
    database.close().await.unwrap();
    is_taken_over(&deployment, &SQLITE).await;
    let mut database = SqliteConnection::connect(&url).await.unwrap();
    for statement in statements_of(&SQLITE) {
        let prepared = database.prepare(AssertSqlSafe(statement).into_sql_str()).await;
        assert!(prepared.is_ok(), "{statement}: {:?}", prepared.err());
    }
}

async fn prepared(database: &mut PgConnection, statement: &'static str) -> Result<(), sqlx::Error> {
    let statement = AssertSqlSafe(statement).into_sql_str();
    database.prepare(statement).await.map(|_| ())
}

/// The statements of the previous release, which its last replicas run while the
/// first new ones do.
fn statements_of(left: &Left) -> Vec<&'static str> {
    let statements: Vec<_> = left.statements.split_terminator(";\n").collect();
    assert!(statements.len() > 50, "{}", statements.len());
    statements
}

async fn is_taken_over(deployment: &Deployment, left: &Left) {
    put_blobs(&deployment.blobs_folder(), left);
    let command = deployment.command(&ServerConfig::default());
    let file = command.config_file().display().to_string();
    keepsake(&["migrate", "--config", &file]).await.ok();
    // Twice changes nothing.
    keepsake(&["migrate", "--config", &file]).await.ok();
    let mut server = Server::start(command).await;
    let known: Value = serde_json::from_str(left.client).unwrap();
    let key = known["key"].as_str().unwrap();
    secrets::remember(key, "an API key");
    let client = Client::new(&server.url(), key);
    let store = format!("/v1/memory_stores/{}", known["memory_store_id"].as_str().unwrap());
    what_was_there_is_there(&client, &store).await;
    what_is_new_works(&client, &store).await;
    server.end().await;
    let run = keepsake(&["verify", "--config", &file]).await;
    assert_eq!(run.code, Some(0), "{}{}", run.stdout, run.stderr);
}

fn put_blobs(folder: &Path, left: &Left) {
    let blobs: Value = serde_json::from_str(left.blobs).unwrap();
    for (name, content) in blobs.as_object().unwrap() {
        let file = folder.join(name);
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(file, content.as_str().unwrap()).unwrap();
    }
}

async fn what_was_there_is_there(client: &Client, store: &str) {
    let listed = get(client, &format!("{store}/memories?view=full")).await;
    let listed: Vec<_> = listed["data"]
        .as_array()
        .unwrap()
        .iter()
        .map(|memory| {
            (
                memory["path"].as_str().unwrap(),
                memory["content"].as_str().unwrap(),
            )
        })
        .collect();
    assert_eq!(
        listed,
        [
            ("/notes/kept.md", "it moves\n"),
            ("/notes/today.md", "# Today\none\n2\nthree\n"),
            ("/once.md", "once"),
            ("/secret.md", "what is left"),
        ]
    );
    let versions = get(client, &format!("{store}/memory_versions?limit=100")).await;
    let versions = versions["data"].as_array().unwrap();
    let of_path = versions
        .iter()
        .filter(|version| version["path"] == "/notes/today.md");
    let redacted = versions
        .iter()
        .filter(|version| version["redacted_at"].is_string());
    assert_eq!((of_path.count(), redacted.count()), (3, 1), "{versions:?}");
    let stores = get(client, "/v1/memory_stores?include_archived=true").await;
    let names: Vec<_> = stores["data"]
        .as_array()
        .unwrap()
        .iter()
        .map(|store| &store["name"])
        .collect();
    assert_eq!(names.len(), 2, "the deleted one stays deleted: {stores}");
    assert!(names.contains(&&json!("archived")), "{stores}");
}

async fn what_is_new_works(client: &Client, store: &str) {
    let edit = json!({"command": "str_replace", "path": "/memories/notes/today.md", "old_str": "2", "new_str": "two"});
    let edited = client.post(&format!("{store}/tool_calls"), &edit).await;
    assert_eq!(edited.status, 200, "{}", edited.text);
    assert_ne!(edited.json()["is_error"], true, "{}", edited.text);
    let policy = json!({"sensitive_data_policy": "reject"});
    assert_eq!(client.post(store, &policy).await.status, 200);
    let token = format!("ghp_{}", "q7XkP2mZ9vRtL4wNc8YsB3hJ6dF1gT5eKpWu");
    let secret = json!({"path": "/key", "content": token});
    let refused = client.post(&format!("{store}/memories"), &secret).await;
    assert_eq!(refused.status, 400, "{}", refused.text);
    let used = get(client, &format!("{store}/usage")).await;
    assert_eq!(used["memory_count"].as_u64(), Some(4), "{used}");
}

async fn get(client: &Client, path: &str) -> Value {
    let answer = client.get(path).await;
    assert_eq!(answer.status, 200, "{path}: {}", answer.text);
    answer.json()
}
