//! Upgrades: data of each release, in `tests/upgrade/<version>/<database>`, and of this build is
//! migrated, served and intact.

use sqlx::{AssertSqlSafe, Connection, Executor, PgConnection};

use crate::prelude::*;
use crate::support::history::Database;
use crate::support::script::{PG_DUMP, from_environment, run};

on_pairs! { data_of_each_release_is_upgraded: Postgres, Sqlite }

#[tokio::test(flavor = "multi_thread")]
#[ignore = "writes tests/upgrade/<version>, once for each release"]
async fn write_data_of_this_version() {
    for pair in [Pair::Postgres, Pair::Sqlite] {
        let folder = data_of(env!("CARGO_PKG_VERSION"), pair);
        std::fs::create_dir_all(&folder).unwrap();
        write_data(pair, &folder).await;
    }
}

async fn data_of_each_release_is_upgraded(pair: Pair) {
    let this_build = tempfile::tempdir().unwrap();
    // Also creates the roles, which belong to all databases of a Postgres server.
    write_data(pair, this_build.path()).await;
    assert_is_upgraded(pair, this_build.path()).await;
    let entries = std::fs::read_dir(repository().join("tests/upgrade")).unwrap().map(Result::unwrap);
    let folders = entries.filter(|entry| entry.path().is_dir());
    let folders = folders.map(|folder| folder.file_name().into_string().unwrap());
    assert_eq!(folders.collect::<BTreeSet<_>>(), releases(), "each release has its data");
    for release in releases() {
        assert_is_upgraded(pair, &data_of(&release, pair)).await;
    }
}

fn releases() -> BTreeSet<String> {
    let changelog = std::fs::read_to_string(repository().join("CHANGELOG.md")).unwrap();
    let headings = changelog.lines().filter_map(|line| line.strip_prefix("## "));
    let versions = headings.filter_map(|heading| heading.split_whitespace().next());
    versions.filter(|&version| version != "Unreleased").map(str::to_owned).collect()
}

fn data_of(release: &str, pair: Pair) -> PathBuf {
    let database = if pair.has_postgres() { "postgres" } else { "sqlite" };
    repository().join("tests/upgrade").join(release).join(database)
}

/// Writes a small deployment of this build into a folder.
async fn write_data(pair: Pair, folder: &Path) {
    let (deployment, tenant, mut server, client) = started(pair).await;
    let store = Store::of(&client, &tenant);
    make_history(&store).await;
    let facts = facts(&client, &store.path).await;
    server.end().await;
    let release = json!({"key": tenant.key, "store": store.path, "facts": facts});
    let release = serde_json::to_string_pretty(&release).unwrap();
    std::fs::write(folder.join("release.json"), release).unwrap();
    if deployment.pair.has_postgres() {
        let mut command = Command::new(from_environment(PG_DUMP));
        command.args(["--inserts", "--no-owner", "--dbname"]);
        let dump = run(command.arg(deployment.postgres_url())).await;
        // Commands of psql, which only psql understands.
        let lines: Vec<_> = dump.lines().filter(|line| !line.starts_with('\\')).collect();
        std::fs::write(folder.join("index.sql"), lines.join("\n")).unwrap();
    } else {
        deployment.execute(format!("VACUUM INTO '{}'", folder.join("index.db").display())).await;
    }
}

/// Every kind of version, a redacted one, an archived store and a deleted one.
async fn make_history(store: &Store) {
    let today = store.create("/notes/today.md", "# Today\none\ntwo\nthree\n").await;
    store.update(&today, &json!({"content": "# Today\n1\ntwo\nthree\n"})).await;
    store.update(&today, &json!({"content": "# Today\n1\n2\nthree\n"})).await;
    let renamed = store.create("/old.md", "renamed\n").await;
    store.update(&renamed, &json!({"path": "/notes/new.md"})).await;
    store.delete(&store.create("/deleted.md", "deleted\n").await).await;
    let secret = store.create("/secret.md", "a password").await;
    store.update(&secret, &json!({"content": "no password", "pinned": true})).await;
    store.redact(&secret["memory_version_id"]).await;
    let once = json!({"path": "/once.md", "content": "once"});
    ok(&store.client.post_patiently(&store.memories(), &once, "once").await);
    Store::make(&store.client, "archived").await.archive().await;
    ok(&delete(&store.client, &Store::make(&store.client, "deleted").await.path).await);
}

/// Fields that clients must still read after every later upgrade.
async fn facts(client: &Client, store: &str) -> Value {
    let fields = async |path: &str, names: &[&str]| {
        let listed = client.all(path).await;
        let row = |row: &Value| names.iter().map(|&name| row[name].clone()).collect::<Value>();
        listed.iter().map(row).collect::<Value>()
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

    let release = std::fs::read_to_string(folder.join("release.json")).unwrap();
    let release: Value = serde_json::from_str(&release).unwrap();
    secrets::remember(text(&release["key"]), "an API key");
    let mut server = Server::start(command).await;
    let client = Client::new(&server.url(), text(&release["key"]));
    let store = text(&release["store"]);
    assert_eq!(facts(&client, store).await, release["facts"]);
    let edit = json!({"command": "str_replace", "path": "/memories/notes/today.md", "old_str": "2", "new_str": "two"});
    let edited = client.post(&format!("{store}/tool_calls"), &edit).await;
    assert_eq!(ok(&edited)["is_error"], false, "{}", edited.text);
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

/// Columns and functions, on Postgres and on SQLite.
const USABLE: [&str; 2] = [
    "SELECT concat(table_name, '.', column_name, ' ', data_type) \
     FROM information_schema.columns WHERE table_schema = 'public' \
     UNION ALL SELECT concat(oid::regprocedure, ' ', pg_get_function_result(oid)) \
     FROM pg_proc WHERE pronamespace = 'public'::regnamespace",
    "SELECT t.name || '.' || c.name || ' ' || c.type \
     FROM sqlite_schema t JOIN pragma_table_info(t.name) c WHERE t.type = 'table'",
];
const REQUIRED: [&str; 2] = [
    "SELECT concat(table_name, '.', column_name) FROM information_schema.columns \
     WHERE table_schema = 'public' AND is_nullable = 'NO' AND column_default IS NULL AND is_identity = 'NO'",
    "SELECT t.name || '.' || c.name FROM sqlite_schema t JOIN pragma_table_info(t.name) c \
     WHERE t.type = 'table' AND c.\"notnull\" AND c.dflt_value IS NULL",
];
const MIGRATIONS: [&str; 2] = [
    "SELECT concat(version, installed_on, checksum) FROM _sqlx_migrations",
    "SELECT version || installed_on || hex(checksum) FROM _sqlx_migrations",
];

impl Schema {
    async fn of(deployment: &Deployment) -> Self {
        let database = deployment.database().await;
        let texts = async |[on_postgres, on_sqlite]: [&'static str; 2]| -> BTreeSet<String> {
            let texts: Vec<String> = match &database {
                Database::Postgres(pool) => sqlx::query_scalar(on_postgres).fetch_all(pool).await.unwrap(),
                Database::Sqlite(pool) => sqlx::query_scalar(on_sqlite).fetch_all(pool).await.unwrap(),
            };
            assert!(!texts.is_empty(), "{on_postgres}");
            texts.into_iter().collect()
        };
        let schema = Self {
            usable: texts(USABLE).await,
            required: texts(REQUIRED).await,
            migrations: texts(MIGRATIONS).await,
        };
        database.close().await;
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
