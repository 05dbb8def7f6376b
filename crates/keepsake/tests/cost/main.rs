//! The cost suite: one tenant attacks, and another must hardly notice.
//!
//! Each test starts a real server, measures a victim's calls without and beside
//! an attack in alternating rounds, and compares the p99 of both. The server's
//! peak memory (`VmHWM`, which the kernel keeps for the process) must stay below
//! the chart's limit. A cgroup would be stricter, but not every machine lets a
//! test make one, and `RLIMIT_DATA` counts what the allocator only reserves.
//!
//! The tests are a separate target and run one after the other, because other tests
//! would disturb their measurements.

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

use keepsake_core::limits::LimitOverrides;
use reqwest::Method;
use serde_json::json;
use tokio::sync::{Mutex, MutexGuard};

use self::browser::Browser;
use self::pages::Console;
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
/// One test at a time: they measure latencies.
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
    /// The most memory that the server may use.
    max_bytes: u64,
    _deployment: Deployment,
    _alone: MutexGuard<'static, ()>,
}

impl Neighbours {
    async fn start(pair: Pair, more: &str) -> Self {
        let alone = ONE_AT_A_TIME.lock().await;
        let deployment = Deployment::new(pair).await;
        let provision = deployment.provision().await;
        let attacker = provision.tenant(LimitOverrides::default()).await;
        let victim = provision.tenant(LimitOverrides::default()).await;
        provision.close().await;
        let config = ServerConfig {
            // The default rates: they are part of what protects the victim.
            more: more.to_owned(),
            log_filter: "warn",
            ..ServerConfig::default()
        };
        let server = deployment.start_with(&config).await;
        let client = server.client(&victim);
        let notes =
            json!({"command": "create", "path": "/memories/notes.md", "file_text": "a quiet evening\n"});
        client.tool_ok(&victim, &notes).await;
        let mut searched = Vec::new();
        for _ in 0..SEARCHED_STORES {
            let made = client.post("/v1/memory_stores", &json!({"name": "searched"})).await;
            let store = format!("/v1/memory_stores/{}", made.json()["id"].as_str().unwrap());
            let memory = json!({"path": "/notes.md", "content": "a quiet evening\n"});
            let made = client.post(&format!("{store}/memories"), &memory).await;
            assert_eq!(made.status, 200, "{}", made.text);
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
            println!(
                "{name}: p99 without {without:.1?}, with {with:.1?}, ratio {ratio:.2} (floor {FLOOR:?})"
            );
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
        let store = format!("/v1/memory_stores/{}", self.victim.store_id);
        let view = async {
            let input = json!({"command": "view", "path": "/memories/notes.md"});
            self.client.call(self.victim.store_id, &input).await
        };
        let turn = self.next_search.fetch_add(1, Ordering::Relaxed) % self.searched.len();
        let (search, list) =
            (format!("{}/search?query=evening", self.searched[turn]), format!("{store}/memories?depth=1"));
        let mut took = [Duration::ZERO; 3];
        let mut time = async |place: usize, call: &mut (dyn Future<Output = _> + Unpin)| {
            let begun = Instant::now();
            let answer: crate::support::Answer = call.await;
            took[place] = begun.elapsed();
            assert_eq!(answer.status, 200, "the victim: {}", answer.text);
            assert!(answer.text.contains("notes.md"), "the victim: {}", answer.text);
        };
        time(0, &mut Box::pin(view)).await;
        time(1, &mut Box::pin(self.client.get(&search))).await;
        time(2, &mut Box::pin(self.client.get(&list))).await;
        took
    }

    fn assert_memory(&self, name: &str) {
        let peak = self.peak_bytes();
        println!("{name}: peak memory {} MiB", peak >> 20);
        assert!(peak < self.max_bytes, "{name}: the server used {} MiB", peak >> 20);
    }

    /// The most physical memory that the server ever had.
    fn peak_bytes(&self) -> u64 {
        let pid = self.server.pid().expect("the server is gone");
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("the server is gone");
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let kib: u64 = line.unwrap().trim().trim_end_matches(" kB").parse().unwrap();
        kib << 10
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_of_sessions_with_hostile_agents_cost_the_others_little() {
    for pair in [Pair::Sqlite, Pair::PostgresS3] {
        let neighbours = Neighbours::start(pair, "").await;
        attacks::fill_with_sessions(&neighbours.server.client(&neighbours.attacker)).await;
        let client = neighbours.server.client(&neighbours.attacker);
        let attack = async |stop| attacks::list_sessions(client.clone(), stop).await;
        neighbours.compare("pages of sessions", attack).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn bodies_of_many_values_cost_the_others_little() {
    for pair in [Pair::Sqlite, Pair::PostgresS3] {
        let neighbours = Neighbours::start(pair, "").await;
        let client = neighbours.server.client(&neighbours.attacker);
        let store_id = neighbours.attacker.store_id;
        let attack = async |stop| attacks::post_many_values(client.clone(), store_id, stop).await;
        neighbours.compare("bodies of many values", attack).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn answers_that_are_not_read_cost_the_others_little() {
    for pair in [Pair::Sqlite, Pair::PostgresS3] {
        let neighbours = Neighbours::start(pair, "").await;
        let client = neighbours.server.client(&neighbours.attacker);
        attacks::fill_with_escapes(&client, &neighbours.attacker).await;
        let (port, attacker) = (neighbours.server.port(), &neighbours.attacker);
        let unread = attacks::leave_answers_unread(port, attacker).await;
        neighbours.assert_memory("unread answers");
        neighbours.compare("unread answers", async |_| {}).await;
        drop(unread);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn slow_bodies_cost_the_others_little() {
    let neighbours = Neighbours::start(Pair::Sqlite, "").await;
    let (port, attacker) = (neighbours.server.port(), &neighbours.attacker);
    let attack = async |stop| attacks::send_slow_bodies(port, attacker.clone(), stop).await;
    neighbours.compare("slow bodies", attack).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn searches_of_cold_stores_cost_the_others_little() {
    for pair in [Pair::Sqlite, Pair::PostgresS3] {
        // So little that the attacker's stores never fit together.
        let neighbours = Neighbours::start(pair, "[cache]\nsearch_bytes = 2_000_000\n").await;
        let client = neighbours.server.client(&neighbours.attacker);
        let stores = attacks::fill_stores(&client).await;
        let attack = async |stop| attacks::search_stores(client.clone(), stores.clone(), stop).await;
        neighbours.compare("searches of cold stores", attack).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_and_forms_of_the_console_cost_the_others_little() {
    for pair in [Pair::Sqlite, Pair::PostgresS3] {
        let mut neighbours = Neighbours::start(pair, "").await;
        neighbours.max_bytes = MAX_BYTES_OF_PAGES;
        let (client, attacker) = (neighbours.server.client(&neighbours.attacker), &neighbours.attacker);
        let texts = attacks::HostileTexts::fill(&client, attacker).await;
        let url = neighbours.server.url();
        let browser = Browser::signed_in(&url, &attacker.key).await;
        let pages = texts.pages(attacker);
        let attack = async |stop| attacks::open_pages(browser.clone(), &pages, stop).await;
        neighbours.compare("hostile pages", attack).await;
        let console = Console::filled(&url, &client, attacker, &texts).await;
        let attack = async |stop| console.send_all(Method::GET, stop).await;
        neighbours.compare("every page", attack).await;
        let attack = async |stop| console.send_all(Method::POST, stop).await;
        neighbours.compare("every form", attack).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_calls_evict_no_event_of_another_tenant() {
    let neighbours = Neighbours::start(Pair::Sqlite, "").await;
    let victim = attacks::open_session(&neighbours.client, neighbours.victim.store_id).await;
    for _ in 0..5 {
        let input = json!({"command": "view", "path": "/memories"});
        let answer = neighbours.client.post(&format!("{victim}/tool_calls"), &input).await;
        assert_eq!(answer.status, 200, "{}", answer.text);
    }
    let client = neighbours.server.client(&neighbours.attacker);
    let attacker = attacks::open_session(&client, neighbours.attacker.store_id).await;
    attacks::post_invalid_calls(&client, &attacker).await;
    let listed = neighbours.client.get(&format!("{victim}/events?limit=100")).await.json();
    let events = listed["data"].as_array().unwrap().len();
    assert_eq!(events, 5, "{listed}");
    neighbours.assert_memory("invalid calls");
}
