//! Upgrades: data of each release is migrated, served and intact.
//!
//! `tests/upgrade/<version>/<database>` has the data of a release. The same
//! checks also run on data that this build wrote.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use reqwest::Method;
use serde_json::{Value, json};
use sqlx::{AssertSqlSafe, Connection, Executor, PgConnection};
use tokio::process::Command;

use crate::support::client::send;
use crate::support::command::keepsake;
use crate::support::deployment::ServerConfig;
use crate::support::history::Database;
use crate::support::script::{PG_DUMP, from_environment, run};
use crate::support::{Client, Deployment, Pair, Server, repository, secrets};

#[tokio::test(flavor = "multi_thread")]
async fn data_of_each_release_is_upgraded_on_postgres() {
    upgrades_work(Pair::Postgres).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn data_of_each_release_is_upgraded_on_sqlite() {
    upgrades_work(Pair::Sqlite).await;
}

#[test]
fn each_release_has_its_data() {
    let mut folders = BTreeSet::new();
    for entry in std::fs::read_dir(releases_folder()).unwrap() {
        let entry = entry.unwrap();
        if entry.path().is_dir() {
            folders.insert(entry.file_name().into_string().unwrap());
        }
    }
    assert_eq!(folders, releases());
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "writes tests/upgrade/<version>, once for each release"]
async fn write_data_of_this_version() {
    for pair in [Pair::Postgres, Pair::Sqlite] {
        let folder = data_of(env!("CARGO_PKG_VERSION"), pair);
        std::fs::create_dir_all(&folder).unwrap();
        write_data(pair, &folder).await;
    }
}

async fn upgrades_work(pair: Pair) {
    let this_build = tempfile::tempdir().unwrap();
    // Also creates the roles, which belong to all databases of a Postgres server.
    write_data(pair, this_build.path()).await;
    assert_is_upgraded(pair, this_build.path()).await;
    for release in releases() {
        assert_is_upgraded(pair, &data_of(&release, pair)).await;
    }
}

/// The versions in the headings of the changelog.
fn releases() -> BTreeSet<String> {
    let changelog = std::fs::read_to_string(repository().join("CHANGELOG.md")).unwrap();
    let headings = changelog.lines().filter_map(|line| line.strip_prefix("## "));
    let versions = headings.filter_map(|heading| heading.split_whitespace().next());
    let releases = versions.filter(|&version| version != "Unreleased");
    releases.map(str::to_owned).collect()
}

fn releases_folder() -> PathBuf {
    repository().join("tests/upgrade")
}

fn data_of(release: &str, pair: Pair) -> PathBuf {
    let database = if pair.has_postgres() { "postgres" } else { "sqlite" };
    releases_folder().join(release).join(database)
}

/// Writes a small deployment of this build into a folder.
async fn write_data(pair: Pair, folder: &Path) {
    let deployment = Deployment::new(pair).await;
    let tenant = deployment.tenant().await;
    let mut server = deployment.start().await;
    let client = server.client(&tenant);
    let store = format!("/v1/memory_stores/{}", tenant.store_id);
    make_history(&client, &store).await;
    let facts = facts(&client, &store).await;
    server.end().await;
    let release = json!({"key": tenant.key, "store": store, "facts": facts});
    write_json(&folder.join("release.json"), &release);
    write_index(&deployment, folder).await;
}

/// Every kind of version, a redacted one, an archived store and a deleted one.
async fn make_history(client: &Client, store: &str) {
    let memories = format!("{store}/memories");
    let create = async |path: &str, content: &str| {
        let memory = json!({"path": path, "content": content});
        let made = ok(client.request(Method::POST, &memories).json(&memory)).await;
        format!("{memories}/{}", made["id"].as_str().unwrap())
    };
    let update = async |memory: &str, edit: Value| {
        ok(client.request(Method::POST, memory).json(&edit)).await;
    };
    let today = create("/notes/today.md", "# Today\none\ntwo\nthree\n").await;
    update(&today, json!({"content": "# Today\n1\ntwo\nthree\n"})).await;
    update(&today, json!({"content": "# Today\n1\n2\nthree\n"})).await;
    let renamed = create("/old.md", "renamed\n").await;
    update(&renamed, json!({"path": "/notes/new.md"})).await;
    let deleted = create("/deleted.md", "deleted\n").await;
    ok(client.request(Method::DELETE, &deleted)).await;
    let secret = create("/secret.md", "a password").await;
    update(&secret, json!({"content": "no password", "pinned": true})).await;
    let of_secret = format!("{store}/memory_versions?memory_id={}", id_of(&secret));
    let versions = get(client, &of_secret).await;
    let first = format!("{store}/memory_versions/{}", text(&versions["data"][1]["id"]));
    ok(client.request(Method::POST, &format!("{first}/redact")).json(&json!({}))).await;
    let once = json!({"path": "/once.md", "content": "once"});
    let once = client.request(Method::POST, &memories).json(&once);
    ok(once.header("idempotency-key", "once")).await;
    for (name, method, action) in [("archived", Method::POST, "/archive"), ("deleted", Method::DELETE, "")] {
        let new = json!({"name": name});
        let made = ok(client.request(Method::POST, "/v1/memory_stores").json(&new)).await;
        let path = format!("/v1/memory_stores/{}{action}", text(&made["id"]));
        ok(client.request(method, &path)).await;
    }
}

/// Fields that clients must still read after every later upgrade.
async fn facts(client: &Client, store: &str) -> Value {
    let fields = async |path: &str, names: &[&str]| {
        let listed = get(client, path).await;
        let rows = listed["data"].as_array().unwrap().iter();
        let rows = rows.map(|row| names.iter().map(|&name| row[name].clone()).collect::<Vec<_>>());
        json!(rows.collect::<Vec<_>>())
    };
    json!({
        "memories": fields(&format!("{store}/memories?view=full"), &["id", "path", "content"]).await,
        "versions": fields(
            &format!("{store}/memory_versions?view=full&limit=100"),
            &["id", "operation", "path", "content", "redacted_at"],
        ).await,
        "stores": fields("/v1/memory_stores?include_archived=true", &["id", "name", "archived_at"]).await,
    })
}

async fn write_index(deployment: &Deployment, folder: &Path) {
    if deployment.pair.has_postgres() {
        let mut command = Command::new(from_environment(PG_DUMP));
        command.args(["--inserts", "--no-owner", "--dbname"]);
        let dump = run(command.arg(deployment.postgres_url())).await;
        // Commands of psql, which only psql understands.
        let lines: Vec<_> = dump.lines().filter(|line| !line.starts_with('\\')).collect();
        std::fs::write(folder.join("index.sql"), lines.join("\n")).unwrap();
    } else {
        let database = deployment.database().await;
        let copy = format!("VACUUM INTO '{}'", folder.join("index.db").display());
        database.execute(copy).await;
        database.close().await;
    }
}

/// Loads data into a new deployment, upgrades it, and checks what clients see.
async fn assert_is_upgraded(pair: Pair, folder: &Path) {
    let deployment = Deployment::unmigrated(pair).await;
    load(&deployment, folder).await;
    let command = deployment.command(&ServerConfig::default());
    let file = command.config_file().display().to_string();
    let released = Schema::of(&deployment).await;
    keepsake(&["migrate", "--config", &file]).await.ok();
    let migrated = Schema::of(&deployment).await;
    released.assert_still_works_in(&migrated);
    keepsake(&["migrate", "--config", &file]).await.ok();
    assert_eq!(Schema::of(&deployment).await, migrated, "a second migration changed it");

    let release = read_json(&folder.join("release.json"));
    secrets::remember(text(&release["key"]), "an API key");
    let mut server = Server::start(command).await;
    let client = Client::new(&server.url(), text(&release["key"]));
    let store = text(&release["store"]);
    assert_eq!(facts(&client, store).await, release["facts"]);
    let edit = json!({"command": "str_replace", "path": "/memories/notes/today.md", "old_str": "2", "new_str": "two"});
    let edited = client.post(&format!("{store}/tool_calls"), &edit).await;
    assert_eq!(edited.status, 200, "{}", edited.text);
    assert!(!edited.tool_result().is_error, "{}", edited.text);
    server.end().await;
    keepsake(&["verify", "--config", &file]).await.ok();
}

async fn load(deployment: &Deployment, folder: &Path) {
    if deployment.pair.has_postgres() {
        let dump = std::fs::read_to_string(folder.join("index.sql")).unwrap();
        let mut connection = PgConnection::connect(&deployment.postgres_url()).await.unwrap();
        let statements = sqlx::raw_sql(AssertSqlSafe(dump));
        connection.execute(statements).await.unwrap();
        connection.close().await.unwrap();
    } else {
        std::fs::copy(folder.join("index.db"), deployment.sqlite_file()).unwrap();
    }
}

/// The parts of the schema that a release's statements use.
#[derive(Debug, PartialEq, Eq)]
struct Schema {
    /// `table.column type`, and the signatures of functions.
    usable: BTreeSet<String>,
    /// `table.column` of each column that an INSERT must name.
    required: BTreeSet<String>,
    /// Version, time and checksum of each migration.
    migrations: BTreeSet<String>,
}

impl Schema {
    async fn of(deployment: &Deployment) -> Self {
        let database = deployment.database().await;
        let schema = match &database {
            Database::Postgres(pool) => {
                let texts = async |query: &'static str| -> BTreeSet<String> {
                    let rows: Vec<String> = sqlx::query_scalar(query).fetch_all(pool).await.unwrap();
                    rows.into_iter().collect()
                };
                Self {
                    usable: texts(
                        "SELECT concat(table_name, '.', column_name, ' ', data_type) \
                         FROM information_schema.columns WHERE table_schema = 'public' \
                         UNION ALL SELECT concat(oid::regprocedure, ' ', pg_get_function_result(oid)) \
                         FROM pg_proc WHERE pronamespace = 'public'::regnamespace",
                    )
                    .await,
                    required: texts(
                        "SELECT concat(table_name, '.', column_name) FROM information_schema.columns \
                         WHERE table_schema = 'public' AND is_nullable = 'NO' AND column_default IS NULL \
                         AND is_identity = 'NO'",
                    )
                    .await,
                    migrations: texts("SELECT concat(version, installed_on, checksum) FROM _sqlx_migrations")
                        .await,
                }
            }
            Database::Sqlite(pool) => {
                let texts = async |query: &'static str| -> BTreeSet<String> {
                    let rows: Vec<String> = sqlx::query_scalar(query).fetch_all(pool).await.unwrap();
                    rows.into_iter().collect()
                };
                Self {
                    usable: texts(
                        "SELECT t.name || '.' || c.name || ' ' || c.type \
                         FROM sqlite_schema t JOIN pragma_table_info(t.name) c WHERE t.type = 'table'",
                    )
                    .await,
                    required: texts(
                        "SELECT t.name || '.' || c.name FROM sqlite_schema t JOIN pragma_table_info(t.name) c \
                         WHERE t.type = 'table' AND c.\"notnull\" AND c.dflt_value IS NULL",
                    )
                    .await,
                    migrations: texts("SELECT version || installed_on || hex(checksum) FROM _sqlx_migrations")
                        .await,
                }
            }
        };
        database.close().await;
        assert!(!schema.usable.is_empty() && !schema.required.is_empty() && !schema.migrations.is_empty());
        schema
    }

    /// Replicas of the release run on the migrated schema until they are replaced.
    fn assert_still_works_in(&self, migrated: &Self) {
        let removed: Vec<_> = self.usable.difference(&migrated.usable).collect();
        assert!(removed.is_empty(), "removed or changed: {removed:?}");
        for column in migrated.required.difference(&self.required) {
            let (table, _) = column.split_once('.').unwrap();
            let is_old_table = self.required.iter().any(|it| it.split('.').next() == Some(table));
            assert!(!is_old_table, "{column} is new and has no default, but old replicas insert");
        }
    }
}

fn write_json(file: &Path, value: &Value) {
    std::fs::write(file, serde_json::to_string_pretty(value).unwrap()).unwrap();
}

fn read_json(file: &Path) -> Value {
    serde_json::from_str(&std::fs::read_to_string(file).unwrap()).unwrap()
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap()
}

fn id_of(path: &str) -> &str {
    path.rsplit('/').next().unwrap()
}

async fn ok(request: reqwest::RequestBuilder) -> Value {
    let answer = send(request).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    answer.json()
}

async fn get(client: &Client, path: &str) -> Value {
    ok(client.request(Method::GET, path)).await
}
