//! Sixteen writers edit one file through two servers, at the same time.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use keepsake_core::limits::LimitOverrides;
use reqwest::Method;
use serde_json::{Value, json};

use crate::support::client::{tool_calls, try_send};
use crate::support::counting_proxy::CountingProxy;
use crate::support::deployment::ServerConfig;
use crate::support::{Client, Deployment, Pair, Server, Tenant, eventually, history};

const FILE: &str = "/memories/shared.txt";
const WRITERS: usize = 16;
const EDITS: usize = 30;
/// Blobs that one acknowledged edit may put, but for one edit in a hundred.
const PUTS_AN_EDIT: usize = 3;

/// The outcome of one edit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    Acknowledged,
    /// Answered, and not carried out.
    Refused,
    /// Not answered.
    Unknown,
}

/// Outcomes by the line that the edit adds.
type Outcomes = BTreeMap<String, Outcome>;

/// One writer: unique lines, added at the top of the file one by one.
struct Writer {
    tenant: Tenant,
    home: Client,
    /// The server for retries of unanswered edits; `None`: no retry.
    other: Option<Client>,
    number: usize,
    acknowledged: Arc<AtomicUsize>,
}

impl Writer {
    async fn run(mut self) -> Outcomes {
        let mut outcomes = Outcomes::new();
        for n in 0..EDITS {
            let line = format!("writer {:02} edit {n:02}", self.number);
            let outcome = self.edit(&block(&line)).await;
            outcomes.insert(line, outcome);
            match outcome {
                Outcome::Acknowledged => drop(self.acknowledged.fetch_add(1, Ordering::SeqCst)),
                Outcome::Refused => {}
                Outcome::Unknown => break,
            }
        }
        outcomes
    }

    async fn edit(&mut self, block: &Value) -> Outcome {
        loop {
            let request = self.home.request(Method::POST, &tool_calls(self.tenant.store_id));
            let Ok(answer) = try_send(request.json(block)).await else {
                let Some(other) = self.other.take() else {
                    return Outcome::Unknown;
                };
                self.home = other;
                continue;
            };
            assert_eq!(answer.status, 200, "{}", answer.text);
            let result = answer.tool_result();
            if !result.is_error {
                assert_eq!(result.content, format!("The file {FILE} has been edited."));
                return Outcome::Acknowledged;
            }
            assert!(result.content.contains("was changed by others at the same time"), "{}", result.content);
            return Outcome::Refused;
        }
    }
}

fn block(line: &str) -> Value {
    let input = json!({"command": "insert", "path": FILE, "insert_line": 0, "insert_text": line});
    json!({"type": "tool_use", "id": format!("toolu {line}"), "name": "memory", "input": input})
}

/// Two servers on one database and one bucket, and the file to edit.
struct Fleet {
    deployment: Deployment,
    tenant: Tenant,
    servers: [Server; 2],
}

impl Fleet {
    async fn start(config: &ServerConfig) -> Self {
        let deployment = Deployment::new(Pair::PostgresS3).await;
        let limits = LimitOverrides { max_view_chars: Some(1_000_000), ..LimitOverrides::default() };
        let tenant = deployment.tenant_with(limits).await;
        let servers = [deployment.start_with(config).await, deployment.start_with(config).await];
        let create = json!({"command": "create", "path": FILE, "file_text": ""});
        servers[0].client(&tenant).tool_ok(&tenant, &create).await;
        Self { deployment, tenant, servers }
    }

    /// Half of the writers for each server.
    fn writers(&self, acknowledged: &Arc<AtomicUsize>) -> Vec<Writer> {
        let writer = |number: usize| Writer {
            tenant: self.tenant.clone(),
            home: self.servers[number % 2].client(&self.tenant),
            other: None,
            number,
            acknowledged: Arc::clone(acknowledged),
        };
        (0..WRITERS).map(writer).collect()
    }

    /// Compares file, versions and blobs with the answers to the writers; returns
    /// the number of blobs that no version names.
    async fn check(&self, outcomes: &Outcomes) -> usize {
        let database = self.deployment.database().await;
        let versions = database.versions(self.tenant.store_id).await;
        database.close().await;
        let texts = history::texts(&self.deployment, &self.tenant, &versions).await;

        // Each version is its predecessor with one whole line added.
        assert_eq!((versions[0].seq, versions[0].prev_seq, versions[0].op.as_str()), (1, None, "created"));
        assert_eq!(texts[0].as_deref(), Some(""));
        for (position, pair) in versions.windows(2).enumerate() {
            let [before, after] = pair else { unreachable!("windows of two") };
            assert_eq!((after.seq, after.prev_seq), (before.seq + 1, Some(before.seq)));
            assert_eq!((after.op.as_str(), after.path.as_str()), ("modified", "/shared.txt"));
            assert_eq!(after.blob_id, Some(after.id));
            assert!(after.created_at >= before.created_at);
            let (before, after) =
                (texts[position].as_deref().unwrap(), texts[position + 1].as_deref().unwrap());
            let (line, rest) = after.split_once('\n').unwrap();
            assert!(outcomes.contains_key(line), "nobody wrote {line:?}");
            assert_eq!(rest, before, "version {} lost or changed something", position + 2);
        }

        // Acknowledged edits took effect once, refused ones did not.
        let file = texts.last().unwrap().as_deref().unwrap();
        let mut found: BTreeMap<&str, usize> = BTreeMap::new();
        for line in file.lines() {
            *found.entry(line).or_default() += 1;
        }
        for (line, outcome) in outcomes {
            let count = found.get(line.as_str()).copied().unwrap_or_default();
            match outcome {
                Outcome::Acknowledged => assert_eq!(count, 1, "{line} was acknowledged"),
                Outcome::Refused => assert_eq!(count, 0, "{line} was refused"),
                Outcome::Unknown => assert!(count <= 1, "{line} is there {count} times"),
            }
        }
        // Both databases and what a client sees agree.
        let shown = self.servers[0].client(&self.tenant).lines(&self.tenant, FILE).await;
        assert_eq!(shown, file.split('\n').collect::<Vec<_>>());

        history::orphans(&self.deployment, self.tenant.id, &versions).await.len()
    }
}

async fn finish(writers: Vec<tokio::task::JoinHandle<Outcomes>>) -> Outcomes {
    let mut outcomes = Outcomes::new();
    for writer in writers {
        outcomes.append(&mut writer.await.unwrap());
    }
    outcomes
}

#[tokio::test(flavor = "multi_thread")]
async fn every_acknowledged_edit_is_in_the_file_once_and_costs_few_puts() {
    let proxy = CountingProxy::start().await;
    let config = ServerConfig { endpoint: Some(proxy.url()), ..ServerConfig::default() };
    let fleet = Fleet::start(&config).await;
    let writers = fleet.writers(&Arc::default());
    let outcomes = finish(writers.into_iter().map(|writer| tokio::spawn(writer.run())).collect()).await;
    assert_eq!(outcomes.len(), WRITERS * EDITS);
    assert_eq!(fleet.check(&outcomes).await, 0, "refused attempts left their blobs");

    // The first line of each put object names the edit.
    let bodies = proxy.bodies();
    let mut puts: BTreeMap<&str, usize> = BTreeMap::new();
    for body in &bodies {
        *puts.entry(body.lines().next().unwrap_or_default()).or_default() += 1;
    }
    let is_cheap = |(line, outcome): &(&String, &Outcome)| {
        **outcome == Outcome::Acknowledged && (1..=PUTS_AN_EDIT).contains(&puts[line.as_str()])
    };
    let cheap = outcomes.iter().filter(is_cheap).count();
    let mut by_puts: BTreeMap<usize, usize> = BTreeMap::new();
    for line in outcomes.keys() {
        *by_puts.entry(puts.get(line.as_str()).copied().unwrap_or_default()).or_default() += 1;
    }
    println!("edits by the number of their puts: {by_puts:?}, {} puts in all", bodies.len());
    assert!(
        cheap * 100 >= outcomes.len() * 99,
        "only {cheap} of {} edits were acknowledged with at most {PUTS_AN_EDIT} puts; by puts: {by_puts:?}",
        outcomes.len()
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn kill_of_one_server_midway_loses_and_tears_nothing() {
    let mut fleet = Fleet::start(&ServerConfig::default()).await;
    let acknowledged = Arc::new(AtomicUsize::new(0));
    let mut writers = fleet.writers(&acknowledged);
    for writer in &mut writers {
        // Every second writer of the server that dies continues on the other one.
        if writer.number % 4 == 1 {
            writer.other = Some(fleet.servers[0].client(&fleet.tenant));
        }
    }
    let writers: Vec<_> = writers.into_iter().map(|writer| tokio::spawn(writer.run())).collect();
    let midway = || async { acknowledged.load(Ordering::SeqCst) >= WRITERS * EDITS / 3 };
    eventually("the writers write", Duration::from_mins(1), midway).await;
    fleet.servers[1].kill9().await;
    let outcomes = finish(writers).await;

    let gave_up = outcomes.values().filter(|outcome| **outcome == Outcome::Unknown).count();
    assert_eq!(gave_up, WRITERS / 4, "the kill was to come midway");
    let refused = outcomes.values().filter(|outcome| **outcome == Outcome::Refused).count();
    assert!(refused * 100 <= outcomes.len(), "{refused} of {} edits were refused", outcomes.len());
    let orphans = fleet.check(&outcomes).await;
    println!("{} edits, {gave_up} not answered, {refused} refused, {orphans} orphan blobs", outcomes.len());
    // Each writer of the killed server had at most one attempt under way.
    assert!(orphans <= WRITERS / 2, "{orphans} orphan blobs");
}
