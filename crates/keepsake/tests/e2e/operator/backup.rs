use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};

use rustix::process::geteuid;

use crate::prelude::*;

#[tokio::test(flavor = "multi_thread")]
async fn backup_of_a_serving_database_comes_back() {
    let (deployment, tenant, mut server, client) = started(Pair::Sqlite).await;
    let store = Store::of(&client, &tenant);
    let folder = TempDir::new().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let (backup, newer) = (path("backup.db"), path("newer.db"));
    store.create("/before.md", "before").await;

    let made = server.beside(&format!("backup {backup} -o json")).await.json();
    let counts = ["tenants", "memory_stores", "memories", "memory_versions", "contents_elsewhere"];
    assert_eq!(counts.map(|count| made[count].as_i64().unwrap()), [1, 1, 1, 1, 0], "{made}");
    assert_eq!(fs::metadata(&backup).unwrap().permissions().mode() & 0o777, 0o600);
    let written = fs::read(&backup).unwrap();
    server.beside(&format!("backup {backup}")).await.ends(4, "backup.db exists: ");
    assert_eq!(fs::read(&backup).unwrap(), written);
    server.beside(&format!("backup {} --force", path(""))).await.ends(2, "is a directory");
    server.beside(&format!("backup {backup} --force")).await.ok();
    store.create("/after.md", "after").await;
    server.beside(&format!("restore {backup}")).await.ends(1, "another process is using the folder");

    server.end().await;
    deployment
        .execute(
            "INSERT INTO _sqlx_migrations (version, description, success, checksum, execution_time) \
            VALUES (99, 'later', 1, x'00', 0)",
        )
        .await;
    server.beside(&format!("backup {newer}")).await.ok();
    let database = fs::read(deployment.sqlite_file()).unwrap();
    let mut damaged = fs::read(&newer).unwrap();
    let middle = damaged.len() / 2;
    damaged[middle..middle + 4096].fill(0xff);
    fs::write(path("damaged.db"), damaged).unwrap();
    fs::write(path("text.db"), "text".repeat(2_000)).unwrap();
    fs::write(path("empty.db"), "").unwrap();
    for (file, code, why) in [
        ("newer.db", 4, "has the schema 99, and this version of Keepsake knows 1"),
        ("damaged.db", 1, "is damaged"),
        ("text.db", 1, "is damaged, or no database"),
        ("empty.db", 1, "is no database of Keepsake"),
        ("missing.db", 3, "missing.db does not exist: FILE is a backup of the whole database"),
    ] {
        server.beside(&format!("restore {}", path(file))).await.ends(code, why);
        assert!(fs::read(deployment.sqlite_file()).unwrap() == database, "{file}");
    }
    let new = path("new");
    keepsake(&["restore", &path("text.db"), "--data-dir", &new]).await.ends(1, "is damaged, or no database");
    assert!(!Path::new(&new).exists());
    // A log that an earlier database left is not written into the backup, nor into the restored database.
    let log = |file: &str| format!("{file}-wal");
    fs::write(log(&backup), "a log").unwrap();
    server.beside(&format!("backup {backup} --force")).await.ends(4, "backup.db-wal is the log of an");
    fs::remove_file(log(&backup)).unwrap();
    let beside = log(deployment.sqlite_file().to_str().unwrap());
    fs::rename(deployment.sqlite_file(), path("moved.db")).unwrap();
    fs::write(&beside, "a log").unwrap();
    // Root restores into a folder of another user.
    let home = deployment.sqlite_file().parent().unwrap().to_owned();
    let owner = if geteuid().is_root() { 12_345 } else { home.metadata().unwrap().uid() };
    chown(&home, Some(owner), None).unwrap();
    assert_eq!(server.beside(&format!("restore {backup} -o json")).await.json()["replaced"], Value::Null);
    assert_eq!(fs::metadata(deployment.sqlite_file()).unwrap().uid(), owner);
    assert!(!Path::new(&beside).exists());
    fs::rename(path("moved.db"), deployment.sqlite_file()).unwrap();

    let restored = server.beside(&format!("restore {backup} -o json")).await.json();
    assert_eq!(fs::metadata(deployment.sqlite_file()).unwrap().permissions().mode() & 0o777, 0o600);
    assert!(fs::read(restored["replaced"].as_str().unwrap()).unwrap() == database);
    server.restart().await;
    assert_eq!(store.paths().await, ["/before.md"]);
    server.end().await;
    deployment.execute("UPDATE server_secret SET wrapped_key = randomblob(61)").await;
    server.beside(&format!("backup {backup} --force")).await.ok();
    server.beside(&format!("restore {backup}")).await.ends(0, "secrets.master_key: a server with this");
    let names = fs::read_dir(deployment.sqlite_file().parent().unwrap()).unwrap();
    let mut names = names.map(|name| name.unwrap().file_name().into_string().unwrap());
    assert!(names.all(|name| !name.contains(".partial")));
}

#[tokio::test(flavor = "multi_thread")]
async fn backup_says_where_the_rest_is() {
    let (_deployment, tenant, server, client) = started(Pair::SqliteS3).await;
    Store::of(&client, &tenant).create("/a.md", "a").await;
    let folder = TempDir::new().unwrap();
    let backup = folder.path().join("it's.db").display().to_string();
    let run = server.beside(&format!("backup {backup}")).await;
    run.ends(0, "the content of 1 version is in s3://");
    run.ends(0, "and not in the file: back it up now, after the database");
    secrets::remember("hunter2hunter2", "the database's password");
    let config = "[index]\nurl = \"postgres://app:hunter2hunter2@db/k?sslmode=require\"\n";
    let config = ServerCommand::new(binary(), config);
    for (command, printed) in [
        ("backup", "pg_dump --format custom --file '"),
        ("restore", "pg_restore --clean --if-exists --single-transaction --exit-on-error --dbname '"),
    ] {
        let line = format!("{command} {backup} -o json --config {}", config.config_file().display());
        let run = keepsake(&words(&line)).await;
        run.ends(1, "nothing was done: the database is on Postgres");
        let commands: Value = serde_json::from_str(&run.stdout).unwrap();
        let commands = commands["commands"].as_array().unwrap().iter();
        let commands: Vec<_> = commands.filter(|line| line.as_str().unwrap().contains(printed)).collect();
        let [command] = commands[..] else { panic!("{}", run.stdout) };
        says(text(command), &["postgres://app@db/k?sslmode=require'", r"it'\''s.db'"]);
        secrets::assert_none_in(&(run.stdout + &run.stderr), &line);
    }
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn printed_commands_of_postgres_copy_the_database() {
    let (deployment, tenant, server, client) = started(Pair::Postgres).await;
    Store::of(&client, &tenant).create("/a.md", "a").await;
    let folder = TempDir::new().unwrap();
    let backup = folder.path().join("it's.dump").display().to_string();
    paste(&deployment, &server.beside(&format!("backup {backup}")).await).await;
    assert_eq!(fs::metadata(&backup).unwrap().permissions().mode() & 0o777, 0o600);
    let other = Deployment::new(Pair::Postgres).await;
    let mut restored = other.start().await;
    restored.end().await;
    paste(&other, &restored.beside(&format!("restore {backup}")).await).await;
    restored.restart().await;
    let client = restored.client(&tenant);
    assert_eq!(Store::of(&client, &tenant).paths().await, ["/a.md"]);
}

/// Runs the printed commands, for a person who has Postgres's tools and the password.
async fn paste(deployment: &Deployment, printed: &Run) {
    printed.ends(1, "nothing was done: the database is on Postgres");
    let url = reqwest::Url::parse(&deployment.postgres_url()).unwrap();
    let pg_dump = script::from_environment(script::PG_DUMP);
    let folders = [Path::new(&pg_dump), binary()].map(|program| program.parent().unwrap().to_string_lossy());
    let path = format!("{}:{}", folders.join(":"), std::env::var("PATH").unwrap());
    let mut shell = Command::new("sh");
    shell.args(["-ec", &printed.stdout]).env("PATH", path);
    script::run(shell.env("PGPASSWORD", url.password().unwrap_or_default())).await;
}
