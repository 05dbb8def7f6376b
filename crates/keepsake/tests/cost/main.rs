//! The cost suite: one tenant attacks, and another must hardly notice.
//!
//! Each test starts a real server, measures a victim's calls without and beside an attack in
//! alternating rounds, and compares the p99 of both. The server's peak memory (`VmHWM`) must stay
//! below the chart's limit. A cgroup would be stricter, but not every machine lets a test make
//! one, and `RLIMIT_DATA` counts what the allocator only reserves.

#![expect(clippy::unwrap_used, reason = "a test's helpers fail the test by panicking, as the test does")]

mod attacks;
#[path = "../e2e/console/browser.rs"]
#[expect(dead_code, reason = "the end-to-end tests use all of it")]
mod browser;
mod pages;
#[path = "../e2e/support/mod.rs"]
#[expect(dead_code, reason = "the end-to-end tests use all of it")]
mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use reqwest::Method;
use serde_json::json;
use tokio::sync::{Mutex, MutexGuard};

use self::pages::{Console, send_all};
use self::support::client::{ok, send, tool_calls};
use self::support::deployment::ServerConfig;
use self::support::{Client, Deployment, Pair, Server, Tenant};

/// The memory limit of the chart's gateway.
const MAX_PROCESS_BYTES: u64 = 1 << 30;
/// The bound for pages, comparisons, forms and exports.
const MAX_BYTES_OF_PAGES: u64 = 512 << 20;
/// How many times slower the victim's p99 may become.
const MAX_RATIO: f64 = 2.0;
/// A p99 below this is scheduling noise: the server, its database, the attacker
/// and the victim share the processors of one machine.
const FLOOR: Duration = Duration::from_millis(10);
/// Rounds without and with the attack. One round that meets the bound is
/// enough: other processes may disturb some rounds, a defect disturbs all.
const ROUNDS: usize = 5;
const ROUND: Duration = Duration::from_secs(4);
const MIN_CALLS: usize = 100;
const SEARCHED_STORES: usize = 24;
const STORES: &str = "/v1/memory_stores";
/// One test at a time, and no other target: they measure latencies.
static ONE_AT_A_TIME: Mutex<()> = Mutex::const_new(());

/// One server with a tenant that attacks and one that does its work.
struct Neighbours {
    server: Server,
    attacker: Tenant,
    victim: Tenant,
    client: Client,
    /// Stores of the victim that it searches in turn, so that each is used rarely.
    searched: Vec<String>,
    next_search: AtomicUsize,
    max_bytes: u64,
    _deployment: Deployment,
    _alone: MutexGuard<'static, ()>,
}

impl Neighbours {
    async fn start(pair: Pair, more: &str) -> Self {
        let alone = ONE_AT_A_TIME.lock().await;
        let deployment = Deployment::new(pair).await;
        let (attacker, victim) = (deployment.tenant().await, deployment.tenant().await);
        // The default rates are part of what protects the victim.
        let more = more.to_owned();
        let config = ServerConfig { more, log_filter: "warn", ..ServerConfig::default() };
        let server = deployment.start_with(&config).await;
        let client = server.client(&victim);
        let notes = json!({"path": "/notes.md", "content": "a quiet evening\n"});
        ok(&client.post(&format!("{STORES}/{}/memories", victim.store_id), &notes).await);
        let mut searched = Vec::new();
        for _ in 0..SEARCHED_STORES {
            let made = ok(&client.post(STORES, &json!({"name": "searched"})).await);
            let store = format!("{STORES}/{}", made["id"].as_str().unwrap());
            ok(&client.post(&format!("{store}/memories"), &notes).await);
            searched.push(store);
        }
        Self {
            server,
            attacker,
            victim,
            client,
            searched,
            next_search: AtomicUsize::new(0),
            max_bytes: MAX_PROCESS_BYTES,
            _deployment: deployment,
            _alone: alone,
        }
    }

    /// Compares the victim's p99 with and without what `attack` does until it is
    /// told to stop.
    async fn compare(&self, name: &str, attack: impl AsyncFn(Arc<AtomicBool>)) {
        let mut ratios = Vec::new();
        for _ in 0..ROUNDS {
            let without = self.p99(None).await;
            let stop = Arc::new(AtomicBool::new(false));
            let (with, ()) = tokio::join!(self.p99(Some(&stop)), attack(Arc::clone(&stop)));
            let ratio = with.as_secs_f64() / without.max(FLOOR).as_secs_f64();
            println!("{name}: p99 without {without:.1?}, with {with:.1?}, ratio {ratio:.2}, floor {FLOOR:?}");
            self.assert_memory(name);
            if ratio <= MAX_RATIO {
                return;
            }
            ratios.push(ratio);
        }
        panic!("{name}: the victim's p99 grew {ratios:.1?} times");
    }

    /// The p99 of the victim's calls in one round; sets `stop` at its end.
    async fn p99(&self, stop: Option<&AtomicBool>) -> Duration {
        let begun = Instant::now();
        let mut took = Vec::new();
        while begun.elapsed() < ROUND || took.len() < MIN_CALLS {
            took.extend(self.work().await);
        }
        if let Some(stop) = stop {
            stop.store(true, Ordering::Relaxed);
        }
        took.sort_unstable();
        took[took.len() * 99 / 100]
    }

    /// One round of the victim's calls: a read, a search, a listing.
    async fn work(&self) -> [Duration; 3] {
        let turn = self.next_search.fetch_add(1, Ordering::Relaxed) % self.searched.len();
        let store_id = self.victim.store_id;
        let view = json!({"command": "view", "path": "/memories/notes.md"});
        let requests = [
            self.client.request(Method::POST, &tool_calls(store_id)).json(&view),
            self.client.request(Method::GET, &format!("{}/search?query=evening", self.searched[turn])),
            self.client.request(Method::GET, &format!("{STORES}/{store_id}/memories?depth=1")),
        ];
        let mut took = [Duration::ZERO; 3];
        for (took, request) in took.iter_mut().zip(requests) {
            let begun = Instant::now();
            let answer = send(request).await;
            *took = begun.elapsed();
            assert_eq!(answer.status, 200, "the victim: {}", answer.text);
            assert!(answer.text.contains("notes.md"), "the victim: {}", answer.text);
        }
        took
    }

    /// That the server never had more physical memory than it may use.
    fn assert_memory(&self, name: &str) {
        let pid = self.server.pid().expect("the server is gone");
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("the server is gone");
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let kib: u64 = line.unwrap().trim().trim_end_matches(" kB").parse().unwrap();
        println!("{name}: peak memory {} MiB", kib >> 10);
        assert!(kib << 10 < self.max_bytes, "{name}: the server used {} MiB", kib >> 10);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_of_a_hostile_tenant_cost_the_others_little() {
    for pair in [Pair::Sqlite, Pair::PostgresS3] {
        let neighbours = Neighbours::start(pair, "").await;
        let (server, attacker) = (&neighbours.server, &neighbours.attacker);
        let (client, port) = (server.client(attacker), server.port());
        // Content that takes six times as much in an answer.
        for number in 0..20 {
            let path = format!("/memories/{number}");
            client.create_file(attacker, &path, &"\u{1}".repeat(100 << 10)).await;
        }
        let unread = attacks::leave_answers_unread(port, attacker).await;
        neighbours.assert_memory("unread answers");
        neighbours.compare("unread answers", async |_| {}).await;
        drop(unread);

        let attack = async |stop| attacks::send_slow_bodies(port, attacker, stop).await;
        neighbours.compare("slow bodies", attack).await;
        let attack = async |stop| attacks::post_many_values(&client, attacker.store_id, stop).await;
        neighbours.compare("bodies of many values", attack).await;
        attacks::fill_with_sessions(&client).await;
        let attack = async |stop| attacks::list_sessions(&client, stop).await;
        neighbours.compare("pages of sessions with hostile agents", attack).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn searches_of_cold_stores_cost_the_others_little() {
    for pair in [Pair::Sqlite, Pair::PostgresS3] {
        // So little that the attacker's stores never fit together.
        let neighbours = Neighbours::start(pair, "[cache]\nsearch_bytes = 2_000_000\n").await;
        let client = neighbours.server.client(&neighbours.attacker);
        let stores = attacks::fill_stores(&client).await;
        let attack = async |stop| attacks::search_stores(&client, &stores, stop).await;
        neighbours.compare("searches of cold stores", attack).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_and_forms_of_the_console_cost_the_others_little() {
    for pair in [Pair::Sqlite, Pair::PostgresS3] {
        let mut neighbours = Neighbours::start(pair, "").await;
        neighbours.max_bytes = MAX_BYTES_OF_PAGES;
        let client = neighbours.server.client(&neighbours.attacker);
        let console = Console::filled(&neighbours.server.url(), &client, &neighbours.attacker).await;
        for (name, requests) in [
            ("hostile pages", console.hostile_pages()),
            ("every page", console.requests(&Method::GET)),
            ("every form", console.requests(&Method::POST)),
        ] {
            neighbours.compare(name, async |stop| send_all(&requests, stop).await).await;
        }
    }
}
