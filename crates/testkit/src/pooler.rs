//! PgBouncer before a Postgres server.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use sqlx::postgres::PgConnectOptions;
use sqlx::{Connection, PgConnection};
use tempfile::TempDir;
use tokio::sync::OnceCell;

use crate::keepsake_server::free_port;
use crate::owned_postgres::run_command;
use crate::postgres::URL_VARIABLE;
use crate::{repository, required_variable, run};

/// Whether end-to-end tests reach Postgres through PgBouncer.
const THROUGH_VARIABLE: &str = "KEEPSAKE_TEST_THROUGH_PGBOUNCER";
/// The most connections to Postgres for each login and database.
pub const POOL_SIZE: u32 = 6;
const START_TIMEOUT: Duration = Duration::from_secs(30);
const POLL_INTERVAL: Duration = Duration::from_millis(50);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Login {
    /// The role of the test server, which may do everything.
    Owner,
    Requests,
    Jobs,
}

/// A running PgBouncer in transaction mode; ended when dropped.
#[derive(Debug)]
pub struct Pooler {
    process: Child,
    folder: TempDir,
    port: u16,
    /// `user:password` for each [`Login`].
    logins: [String; 3],
}

impl Pooler {
    /// Lets the roles log in, as an operator does, and starts PgBouncer.
    ///
    /// `postgres_url` has a role that may create roles. `settings` are lines of the
    /// section `[pgbouncer]`, which override those of the test.
    pub async fn start(postgres_url: &str, settings: &str) -> Self {
        let passwords = ["a role's password"; 2].map(|kind| {
            let password = uuid::Uuid::new_v4().simple().to_string();
            run::remember(&password, kind);
            password
        });
        let [app_password, jobs_password] = &passwords;
        create_logins(postgres_url, app_password, jobs_password).await;
        let authority = postgres_url.split_once("://").and_then(|(_, rest)| rest.rsplit_once('@'));
        let owner = authority.expect("the URL has no user").0.to_owned();
        let logins =
            [owner, format!("keepsake_app:{app_password}"), format!("keepsake_jobs:{jobs_password}")];
        let folder =
            tempfile::Builder::new().prefix("keepsake-pooler.").tempdir().expect("no temporary folder");
        let port = free_port();
        let configuration = write_configuration(folder.path(), postgres_url, port, &logins, settings);
        let mut pooler = Self { process: spawn(&configuration, folder.path()), folder, port, logins };
        pooler.wait_until_ready().await;
        pooler
    }

    /// The PgBouncer of this process before the test server; `None`: the test run has
    /// none.
    pub async fn shared() -> Option<&'static Self> {
        static SHARED: OnceCell<Pooler> = OnceCell::const_new();
        std::env::var_os(THROUGH_VARIABLE)?;
        let start = async || {
            let url = required_variable(URL_VARIABLE, "postgres://postgres:password@127.0.0.1:5432/postgres");
            Self::start(&url, "").await
        };
        Some(SHARED.get_or_init(start).await)
    }

    pub fn url(&self, login: Login, database: &str) -> String {
        let login = &self.logins[login as usize];
        format!("postgres://{login}@127.0.0.1:{}/{database}", self.port)
    }

    async fn wait_until_ready(&mut self) {
        let url = self.url(Login::Owner, "postgres");
        let ready = tokio::time::timeout(START_TIMEOUT, async {
            while self.process.try_wait().expect("PgBouncer's state is unknown").is_none() {
                if can_connect(&url).await {
                    return true;
                }
                tokio::time::sleep(POLL_INTERVAL).await;
            }
            false
        });
        let is_ready = ready.await.unwrap_or(false);
        let log = std::fs::read_to_string(self.folder.path().join("log")).unwrap_or_default();
        assert!(is_ready, "PgBouncer did not start: {log}");
    }
}

impl Drop for Pooler {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

async fn can_connect(url: &str) -> bool {
    // PgBouncer refuses this parameter.
    let options: Result<PgConnectOptions, _> = url.parse();
    let options = options.expect("a bad URL").extra_float_digits(None);
    PgConnection::connect_with(&options).await.is_ok()
}

/// Runs the script that operators run.
async fn create_logins(postgres_url: &str, app_password: &str, jobs_password: &str) {
    let pg_dump = required_variable("KEEPSAKE_TEST_PG_DUMP", "the `pg_dump` beside `psql`");
    let mut psql = tokio::process::Command::new(PathBuf::from(pg_dump).with_file_name("psql"));
    psql.args(["--quiet", "--no-psqlrc"])
        .args(["--set", &format!("app_password={app_password}")])
        .args(["--set", &format!("jobs_password={jobs_password}")])
        .arg("--file")
        .arg(repository().join("deploy/postgres/login-roles.sql"))
        .arg(postgres_url);
    run_command(&mut psql).await;
}

/// Writes PgBouncer's configuration and its list of users.
fn write_configuration(
    folder: &Path,
    postgres_url: &str,
    port: u16,
    logins: &[String],
    settings: &str,
) -> PathBuf {
    let mut users = String::new();
    for login in logins {
        let (user, password) = login.split_once(':').expect("a user without a password");
        writeln!(users, "\"{user}\" \"{password}\"").expect("a text takes every line");
    }
    let users_file = folder.join("users");
    std::fs::write(&users_file, users).expect("PgBouncer's users cannot be written");
    let postgres: PgConnectOptions = postgres_url.parse().expect("a bad URL");
    // Each test has its own database, so few connections serve each.
    let configuration = format!(
        "[databases]\n* = host={} port={}\n[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\n\
         unix_socket_dir =\nauth_type = scram-sha-256\nauth_file = {}\npool_mode = transaction\n\
         max_prepared_statements = 200\nmax_client_conn = 4000\ndefault_pool_size = {POOL_SIZE}\n\
         server_idle_timeout = 5\n{settings}\n",
        postgres.get_host(),
        postgres.get_port(),
        users_file.display(),
    );
    let file = folder.join("pgbouncer.ini");
    std::fs::write(&file, configuration).expect("PgBouncer's configuration cannot be written");
    file
}

fn spawn(configuration: &Path, folder: &Path) -> Child {
    let program = required_variable("KEEPSAKE_TEST_PGBOUNCER", "PgBouncer 1.21 or later");
    let log = std::fs::File::create(folder.join("log")).expect("PgBouncer's log cannot be written");
    // PgBouncer refuses to run as root. The other user keeps the right to read the
    // folders of the test and of its program.
    let command = "if [ \"$(id -u)\" = 0 ]; then \
        exec setpriv --reuid nobody --regid \"$(id -g nobody)\" --clear-groups --inh-caps +dac_read_search \
        --ambient-caps +dac_read_search --pdeathsig KILL \"$@\"; fi; exec setpriv --pdeathsig KILL \"$@\"";
    let mut command_line = Command::new("sh");
    command_line
        .args(["-c", command, "sh", &program])
        .arg(configuration)
        .stdin(Stdio::null())
        .stdout(log.try_clone().expect("PgBouncer's log cannot be shared"))
        .stderr(log);
    // The signal comes at the end of the thread that started the process: tests end
    // theirs, so this one lives as long as the test run.
    let (sender, receiver) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        sender.send(command_line.spawn()).expect("the test waits");
        loop {
            std::thread::park();
        }
    });
    let spawned = receiver.recv().expect("the thread answers");
    spawned.expect("PgBouncer cannot be run")
}
