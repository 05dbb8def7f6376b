//! A Postgres server that one test owns: it may stop, crash and fail over.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use sqlx::{Connection, PgConnection};
use tempfile::TempDir;
use tokio::process::{Child, Command};

use crate::keepsake_server::{free_port, signal};
use crate::{required_variable, run};

const START_TIMEOUT: Duration = Duration::from_mins(1);
const STOP_TIMEOUT: Duration = Duration::from_secs(30);
const POLL_INTERVAL: Duration = Duration::from_millis(50);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StopMode {
    /// Open connections are closed, everything is written (SIGINT).
    Fast,
    /// As after a crash: the next start recovers from the log (SIGQUIT).
    Immediate,
}

/// A server with its own data folder and port; stopped and removed when
/// dropped.
///
/// Commits are flushed to disk, as in production.
#[derive(Debug)]
pub struct OwnedPostgres {
    binaries: PathBuf,
    folder: TempDir,
    /// User and group, where the test runs as root: Postgres refuses that.
    user: Option<(String, String)>,
    port: u16,
    password: String,
    process: Option<Child>,
}

impl OwnedPostgres {
    /// Makes a data folder and starts a server on it.
    ///
    /// The programs are those in the folder of `KEEPSAKE_TEST_PG_DUMP`.
    pub async fn start() -> Self {
        let mut server = Self::new().await;
        let password_file = server.folder.path().join("password");
        std::fs::write(&password_file, &server.password).expect("the password file cannot be written");
        server.give_to_user(&password_file).await;
        let (data, password_file) = (server.data(), password_file.to_string_lossy().into_owned());
        let mut arguments = vec!["--pgdata", &data, "--username=postgres", "--auth=scram-sha-256"];
        arguments.extend(["--pwfile", &password_file, "--encoding=UTF8", "--locale=C.UTF-8"]);
        arguments.extend(["--no-sync", "--no-instructions"]);
        server.run("initdb", &arguments).await;
        server.start_again().await;
        server
    }

    /// Copies this server's data and starts a standby that follows it.
    ///
    /// From then on a commit of the primary waits until the standby has it, so
    /// that a failover loses nothing.
    pub async fn start_standby(&self) -> Self {
        let mut standby = Self { password: self.password.clone(), ..Self::new().await };
        let source = format!("{} application_name=standby", self.connection_string());
        let arguments =
            ["--pgdata", &standby.data(), "--dbname", &source, "--write-recovery-conf", "--no-sync"];
        standby.run("pg_basebackup", &arguments).await;
        standby.start_again().await;
        self.execute("ALTER SYSTEM SET synchronous_standby_names = 'standby'").await;
        self.execute("SELECT pg_reload_conf()").await;
        let follows = self.execute(
            "DO $$ BEGIN WHILE NOT EXISTS (SELECT FROM pg_stat_replication WHERE sync_state = 'sync') LOOP \
             PERFORM pg_sleep(0.01); END LOOP; END $$",
        );
        let follows = tokio::time::timeout(START_TIMEOUT, follows).await;
        assert!(follows.is_ok(), "the standby does not follow: {}", standby.log());
        // The checkpointer is the process that makes commits wait.
        self.execute("CHECKPOINT").await;
        // Waits, so that the standby has all commits before this one.
        self.execute("SELECT pg_logical_emit_message(true, 'standby', 'follows')").await;
        standby
    }

    pub async fn promote(&self) {
        // The setting came with the copied configuration or with the log.
        self.execute("ALTER SYSTEM RESET synchronous_standby_names").await;
        self.execute("SELECT pg_promote(true, 60)").await;
        self.execute("SELECT pg_reload_conf()").await;
    }

    async fn new() -> Self {
        let pg_dump =
            required_variable("KEEPSAKE_TEST_PG_DUMP", "the `pg_dump` beside `initdb` and `postgres`");
        let binaries = Path::new(&pg_dump).parent().expect("KEEPSAKE_TEST_PG_DUMP has no folder").to_owned();
        let folder =
            tempfile::Builder::new().prefix("keepsake-postgres.").tempdir().expect("no temporary folder");
        let password = uuid::Uuid::new_v4().simple().to_string();
        run::remember(&password, "a database's password");
        let server = Self {
            binaries,
            folder,
            user: user_for_postgres().await,
            port: free_port(),
            password,
            process: None,
        };
        server.give_to_user(server.folder.path()).await;
        server
    }

    /// Starts a server that was stopped, and waits until it takes connections.
    pub async fn start_again(&mut self) {
        let started = tokio::time::timeout(START_TIMEOUT, async {
            loop {
                let mut process = self.spawn();
                while process.try_wait().expect("the server's state is unknown").is_none() {
                    if PgConnection::connect(&self.url()).await.is_ok() {
                        self.process = Some(process);
                        return;
                    }
                    tokio::time::sleep(POLL_INTERVAL).await;
                }
                // The last server's processes may still hold its shared memory.
                tokio::time::sleep(POLL_INTERVAL).await;
            }
        });
        let is_started = started.await.is_ok();
        assert!(is_started, "Postgres did not start: {}", self.log());
    }

    pub async fn stop(&mut self, mode: StopMode) {
        let name = match mode {
            StopMode::Fast => "INT",
            StopMode::Immediate => "QUIT",
        };
        let Some(mut process) = self.process.take() else { return };
        if let Some(pid) = process.id() {
            signal(pid, name).await;
        }
        let ended = tokio::time::timeout(STOP_TIMEOUT, process.wait()).await;
        assert!(ended.is_ok(), "Postgres did not stop: {}", self.log());
    }

    pub async fn restart(&mut self, mode: StopMode) {
        self.stop(mode).await;
        self.start_again().await;
    }

    /// The URL of its database `postgres`, with a role that may do everything.
    pub fn url(&self) -> String {
        format!("postgres://postgres:{}@{}/postgres", self.password, self.address())
    }

    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    pub async fn execute(&self, statement: &str) {
        crate::postgres::execute(&self.url(), statement).await;
    }

    fn connection_string(&self) -> String {
        format!("host=127.0.0.1 port={} user=postgres password={}", self.port, self.password)
    }

    /// The folder with all its data, which may be copied while it is stopped.
    pub fn data_folder(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    fn data(&self) -> String {
        self.data_folder().to_string_lossy().into_owned()
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }

    fn spawn(&self) -> Child {
        let log = std::fs::File::options()
            .create(true)
            .append(true)
            .open(self.folder.path().join("log"))
            .expect("Postgres's log cannot be written");
        let port = self.port.to_string();
        let mut command = self.command("postgres");
        command.args(["-D", &self.data(), "-h", "127.0.0.1", "-p", &port, "-c", "unix_socket_directories="]);
        command.args(["-c", "max_connections=200"]);
        command
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("Postgres's log cannot be shared"))
            .stderr(log)
            .kill_on_drop(true)
            .spawn()
            .expect("Postgres cannot be run")
    }

    /// One of Postgres's programs, as a user that it accepts.
    fn command(&self, program: &str) -> Command {
        let program = self.binaries.join(program);
        let mut command = match &self.user {
            Some((user, group)) => {
                let mut command = Command::new("setpriv");
                command.args(["--reuid", user, "--regid", group, "--clear-groups", "--pdeathsig", "QUIT"]);
                command.arg(program);
                command
            }
            None => Command::new(program),
        };
        command.current_dir("/");
        command
    }

    async fn run(&self, program: &str, arguments: &[&str]) {
        run_command(self.command(program).args(arguments)).await;
    }

    async fn give_to_user(&self, path: &Path) {
        if let Some((user, _)) = &self.user {
            run_command(Command::new("chown").arg(user).arg(path)).await;
        }
    }
}

/// The user and group that Postgres runs as; `None`: those of the test.
async fn user_for_postgres() -> Option<(String, String)> {
    if id(&["-u"]).await.as_deref() != Some("0") {
        return None;
    }
    let user = if id(&["postgres"]).await.is_some() { "postgres" } else { "nobody" };
    let group = id(&["-g", user]).await?;
    Some((user.to_owned(), group))
}

/// The output of `id`; `None`: it failed.
async fn id(arguments: &[&str]) -> Option<String> {
    let output = Command::new("id").args(arguments).output().await.expect("`id` cannot be run");
    let text = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    output.status.success().then_some(text)
}

pub(crate) async fn run_command(command: &mut Command) {
    let output = command.stdin(Stdio::null()).output().await;
    let output =
        output.unwrap_or_else(|error| panic!("{}: {error}", command.as_std().get_program().display()));
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}
