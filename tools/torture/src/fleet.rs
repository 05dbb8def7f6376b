//! The gateways of a run, their stores, and the proxies in between.

use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use keepsake_testkit::keepsake_server::{built_program, free_port};
use keepsake_testkit::{
    FaultProxy, OwnedPostgres, ProcessClock, RunningServer, ServerCommand, StopMode, TestDatabase,
    bare_command, fresh_database, is_distributed, run, s3, s3_options, s3_section,
};
use reqwest::Method;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::sync::Mutex;

use super::client::Endpoint;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pair {
    /// With content in the index.
    Sqlite,
    PostgresS3,
}

const INDEX_FOLDER: &str = "index";
const INDEX: &str = "index:";
const IN_INDEX: &str = "url = \"index:\"\n";
const DRAIN_SECONDS: u64 = 1;
const SHUTDOWN_DEADLINE_SECONDS: u64 = 10;
/// Within which a process ends after SIGTERM, whatever else is wrong.
pub(crate) const TERMINATION_LIMIT: Duration =
    Duration::from_secs(DRAIN_SECONDS + SHUTDOWN_DEADLINE_SECONDS + 5);

#[derive(Debug)]
pub(crate) struct Fleet {
    pub(crate) pair: Pair,
    pub(crate) gateways: Vec<Arc<Gateway>>,
    pub(crate) postgres: Option<Database>,
    pub(crate) key: String,
    stores: Stores,
    /// For commands beside the servers, around the gateways' proxies.
    direct: ServerCommand,
    /// Leads those commands to the Postgres of the moment; no fault is injected.
    direct_postgres: Option<FaultProxy>,
    folder: TempDir,
}

/// The Postgres of a run.
#[derive(Debug)]
pub(crate) enum Database {
    Owned(Box<Mutex<OwnedPostgres>>),
    /// On a cluster that runs already.
    Distributed(TestDatabase),
}

/// One gateway process, and the proxies around it.
#[derive(Debug)]
pub(crate) struct Gateway {
    pub(crate) number: usize,
    command: ServerCommand,
    pub(crate) running: Mutex<RunningServer>,
    /// Between clients and the gateway.
    pub(crate) clients: FaultProxy,
    pub(crate) postgres: Option<FaultProxy>,
    pub(crate) s3: Option<FaultProxy>,
    clock: ProcessClock,
    operator_port: u16,
    operator_token: String,
    http: reqwest::Client,
}

#[derive(Debug, Clone)]
struct Stores {
    index_url: String,
    blobs: String,
}

impl Fleet {
    pub(crate) async fn start(pair: Pair) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let postgres = match pair {
            Pair::PostgresS3 => Some(Database::start().await),
            Pair::Sqlite => None,
        };
        std::fs::create_dir(folder.path().join(INDEX_FOLDER)).unwrap();
        let url = match &postgres {
            Some(postgres) => Some(postgres.url().await),
            None => None,
        };
        let stores = Stores::of(url, folder.path());
        let mut beside = stores.clone();
        let mut direct_postgres = None;
        if pair == Pair::PostgresS3 {
            let (proxy, url) = FaultProxy::before_url(&stores.index_url).await;
            (direct_postgres, beside.index_url) = (Some(proxy), url);
        }
        let direct = ServerCommand::new(&built_program(), &beside.config(free_port(), &fresh_token()));
        if pair == Pair::PostgresS3 {
            let migrate: &[&str] =
                if is_distributed() { &["migrate", "--distributed"] } else { &["migrate"] };
            keepsake(&direct, migrate).await.unwrap();
        }
        let key = make_key(&direct).await;
        let mut gateways = Vec::new();
        for number in 0..if pair == Pair::PostgresS3 { 2 } else { 1 } {
            let clock = ProcessClock::new(folder.path().join(format!("clock-{number}")));
            gateways.push(Arc::new(Gateway::start(number, &stores, pair, clock).await));
        }
        Self { pair, gateways, postgres, key, stores, direct, direct_postgres, folder }
    }

    /// Where clients reach the gateways: directly, and through a proxy.
    pub(crate) fn endpoints(&self) -> Vec<Endpoint> {
        let of = |gateway: &Arc<Gateway>| {
            let direct = Endpoint { url: gateway.url(), is_faulty: false };
            let proxied = format!("http://{}", gateway.clients.address());
            [direct.clone(), direct, Endpoint { url: proxied, is_faulty: true }]
        };
        self.gateways.iter().flat_map(of).collect()
    }

    pub(crate) async fn heal(&self) {
        for gateway in &self.gateways {
            gateway.heal().await;
        }
    }

    /// Makes a standby, crashes Postgres, and leads everything to the standby.
    pub(crate) async fn fail_over(&self, postgres: &Mutex<OwnedPostgres>) {
        let mut postgres = postgres.lock().await;
        let standby = postgres.start_standby().await;
        postgres.stop(StopMode::Immediate).await;
        standby.promote().await;
        let gateways = self.gateways.iter().filter_map(|gateway| gateway.postgres.as_ref());
        for proxy in gateways.chain(&self.direct_postgres) {
            proxy.set_upstream(&standby.address());
        }
        *postgres = standby;
    }

    /// Runs a command of people on a gateway; whether it ended well.
    pub(crate) async fn command(&self, gateway: &Gateway, store_id: &str, arguments: &[&str]) -> bool {
        let output = bare_command(&built_program())
            .args(arguments)
            .env("KEEPSAKE_URL", gateway.url())
            .env("KEEPSAKE_API_KEY", &self.key)
            .env("KEEPSAKE_STORE", store_id)
            .env("XDG_CONFIG_HOME", self.folder.path())
            .output()
            .await;
        output.unwrap().status.success()
    }

    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn servers_of_both_places(&self) -> [ServerCommand; 2] {
        let [in_s3, in_index] = [self.stores.blobs.as_str(), IN_INDEX].map(|blobs| {
            let stores = Stores { blobs: blobs.to_owned(), ..self.stores.clone() };
            ServerCommand::new(&built_program(), &stores.config(free_port(), &fresh_token()))
        });
        [in_s3, in_index]
    }

    /// Starts to move the content from S3 into the index, or back.
    pub(crate) fn start_move(&self, is_into_index: bool) -> tokio::process::Child {
        let s3 = self.stores.blobs.split('"').nth(1).unwrap_or_default();
        let (from, to) = if is_into_index { (s3, INDEX) } else { (INDEX, s3) };
        bare_command(&built_program())
            .args(["blobs", "move", "--from", from, "--to", to, "--config"])
            .arg(self.direct.config_file())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap()
    }

    /// Stops everything, copies the index, and goes on.
    pub(crate) async fn back_up(&self, backup: &Path) {
        self.beside_stopped(|index| replace(index, backup)).await;
    }

    /// Stops everything, puts a copy in the place of the index, and goes on.
    pub(crate) async fn restore(&self, backup: &Path) {
        self.beside_stopped(|index| replace(backup, index)).await;
    }

    /// Hands the folder of the index to `work` while no process uses it.
    async fn beside_stopped(&self, work: impl FnOnce(&Path)) {
        for gateway in &self.gateways {
            gateway.terminate().await;
        }
        if let Some(postgres) = &self.postgres {
            let Database::Owned(postgres) = postgres else { panic!("a distributed database is not copied") };
            let mut postgres = postgres.lock().await;
            postgres.stop(StopMode::Fast).await;
            work(&postgres.data_folder());
            postgres.start_again().await;
        } else {
            work(&self.folder.path().join(INDEX_FOLDER));
        }
        for gateway in &self.gateways {
            gateway.start_again().await;
        }
    }

    /// The problems that `keepsake verify` finds; on SQLite no server may run.
    pub(crate) async fn verify(&self) -> Result<Value, String> {
        keepsake(&self.direct, &["verify", "-o", "json"]).await
    }

    pub(crate) async fn postgres_url(&self) -> Option<String> {
        match &self.postgres {
            Some(postgres) => Some(postgres.url().await),
            None => None,
        }
    }
}

impl Database {
    async fn start() -> Self {
        if is_distributed() {
            Self::Distributed(fresh_database().await)
        } else {
            Self::Owned(Box::new(Mutex::new(OwnedPostgres::start().await)))
        }
    }

    async fn url(&self) -> String {
        match self {
            Self::Owned(postgres) => postgres.lock().await.url(),
            Self::Distributed(database) => database.url(),
        }
    }
}

impl Gateway {
    async fn start(number: usize, stores: &Stores, pair: Pair, clock: ProcessClock) -> Self {
        let (mut postgres, mut s3) = (None, None);
        let mut own = stores.clone();
        if pair == Pair::PostgresS3 {
            let (proxy, url) = FaultProxy::before_url(&stores.index_url).await;
            (postgres, own.index_url) = (Some(proxy), url);
            let endpoint = s3_options("").settings.endpoint.unwrap();
            let (proxy, url) = FaultProxy::before_url(&endpoint).await;
            (s3, own.blobs) = (Some(proxy), stores.blobs.replace(&endpoint, &url));
        }
        let (operator_port, operator_token) = (free_port(), fresh_token());
        let command = ServerCommand::new(&built_program(), &own.config(operator_port, &operator_token));
        let command = clock.of(command);
        let running = command.start().await;
        let clients = FaultProxy::start(&format!("127.0.0.1:{}", command.port())).await;
        let http = reqwest::Client::builder().no_proxy().timeout(Duration::from_secs(20)).build().unwrap();
        let running = Mutex::new(running);
        Self { number, command, running, clients, postgres, s3, clock, operator_port, operator_token, http }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.command.port())
    }

    pub(crate) async fn kill_and_restart(&self) {
        let mut running = self.running.lock().await;
        running.kill9().await;
        *running = self.command.start().await;
    }

    /// Asks the process to end; how long that took, or `None`: it had to be killed.
    pub(crate) async fn terminate(&self) -> Option<Duration> {
        let mut running = self.running.lock().await;
        let began_at = tokio::time::Instant::now();
        running.terminate().await;
        let is_ended = tokio::time::timeout(TERMINATION_LIMIT, running.wait()).await.is_ok();
        if !is_ended {
            running.kill9().await;
        }
        is_ended.then(|| began_at.elapsed())
    }

    pub(crate) async fn start_again(&self) {
        *self.running.lock().await = self.command.start().await;
    }

    pub(crate) fn set_clock(&self, seconds: i64) {
        self.clock.set(seconds);
    }

    /// Ends the faults of all its proxies, and sets its clock right.
    pub(crate) async fn heal(&self) {
        self.set_clock(0);
        for proxy in [Some(&self.clients), self.postgres.as_ref(), self.s3.as_ref()].into_iter().flatten() {
            proxy.heal().await;
        }
    }

    /// Sends a request to the operator's listener; `None`: no answer.
    pub(crate) async fn operator(&self, method: Method, path: &str, body: Option<&Value>) -> Option<Value> {
        let url = format!("http://127.0.0.1:{}/admin/v1{path}", self.operator_port);
        let mut request = self.http.request(method, url).bearer_auth(&self.operator_token);
        if let Some(body) = body {
            request = request.json(body);
        }
        request.send().await.ok()?.json().await.ok()
    }
}

impl Stores {
    fn of(postgres_url: Option<String>, folder: &Path) -> Self {
        let Some(index_url) = postgres_url else {
            return Self {
                index_url: format!("sqlite://{}", folder.join(INDEX_FOLDER).join("index.db").display()),
                blobs: IN_INDEX.to_owned(),
            };
        };
        Self { index_url, blobs: s3_section(s3_options(&s3::unique_prefix())) }
    }

    fn config(&self, operator_port: u16, operator_token: &str) -> String {
        format!(
            "[operator]\nlisten = \"127.0.0.1:{operator_port}\"\ntoken = \"{operator_token}\"\n\
             [server]\nlisten = \"127.0.0.1:{{port}}\"\ndrain_seconds = {DRAIN_SECONDS}\n\
             shutdown_deadline_seconds = {SHUTDOWN_DEADLINE_SECONDS}\n\
             [index]\nurl = \"{}\"\n[blobs]\n{}[log]\nfilter = \"warn\"\n\
             [limits]\nrequests_per_second = 1_000_000\nrequest_burst = 1_000_000\n\
             memories_per_store = 1_000_000\n",
            self.index_url, self.blobs
        )
    }
}

fn fresh_token() -> String {
    let token = format!("{}{}", uuid::Uuid::new_v4().simple(), uuid::Uuid::new_v4().simple());
    run::remember(&token, "an operator's token");
    token
}

fn replace(from: &Path, to: &Path) {
    let copy = "rm -rf \"$2\" && cp -a \"$1\" \"$2\"";
    let status = std::process::Command::new("sh").args(["-c", copy, "sh"]).args([from, to]).status();
    assert!(status.unwrap().success(), "{} cannot be copied", from.display());
}

/// Makes a tenant, and a key with every scope.
async fn make_key(direct: &ServerCommand) -> String {
    let tenant = keepsake(direct, &["tenant", "create", "--name", "torture", "-o", "json"]).await.unwrap();
    let id = tenant["id"].as_str().unwrap().to_owned();
    let mut arguments = vec!["key", "create", "--tenant", &id, "--name", "torture", "-o", "json"];
    for scope in ["memory:read", "memory:write", "stores:admin", "sessions:write"] {
        arguments.extend(["--scope", scope]);
    }
    let key = keepsake(direct, &arguments).await.unwrap();
    let secret = key["api_key"].as_str().unwrap().to_owned();
    run::remember(&secret, "an API key");
    secret
}

/// Runs a command on the stores themselves; what it printed as JSON.
async fn keepsake(direct: &ServerCommand, arguments: &[&str]) -> Result<Value, String> {
    let config = direct.config_file();
    let output = bare_command(&built_program()).args(arguments).arg("--config").arg(config).output().await;
    let output = output.unwrap();
    let stdout = String::from_utf8_lossy(&output.stdout);
    if output.status.success() {
        Ok(serde_json::from_str(&stdout).unwrap_or_else(|_| json!(stdout)))
    } else {
        Err(format!("{arguments:?} failed: {stdout}{}", String::from_utf8_lossy(&output.stderr)))
    }
}
