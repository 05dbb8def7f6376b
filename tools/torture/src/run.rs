//! One run: start everything, disturb it, let it rest, compare.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::future::join_all;
use keepsake_testkit::locked;
use serde_json::json;
use tokio::sync::RwLock;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::Settings;
use super::audit::{self, Reader};
use super::client::{Client, Counts, Request, Shared};
use super::exports::Exports;
use super::faults::Controller;
use super::fleet::{Fleet, Pair};
use super::probe::Prober;
use super::random::Random;
use super::report::{self, Faults, RECOVERY_LIMIT};
use super::workload::{Group, LAST_CALLS};

const GROUPS: usize = 3;
/// Of each client: about a hundred steps a second in all, so that comparing takes
/// less time than the run.
const PACE: Duration = Duration::from_millis(150);
/// After the last fault, everything works from then on.
const REST: Duration = RECOVERY_LIMIT;
const WATCHED: Duration = Duration::from_secs(5);

const SHOWN: usize = 100;

/// Runs clients and faults on a pair, and fails on any violation.
pub(crate) async fn run(pair: Pair, settings: Settings) {
    println!("torture: {pair:?}, seed {}, {:?}", settings.seed, settings.duration);
    let mut random = Random::new(settings.seed);
    let fleet = Arc::new(Fleet::start(pair).await);
    let shared = Shared::new(fleet.endpoints(), &fleet.key);
    let stopping = CancellationToken::new();
    let probing = CancellationToken::new();
    let probers = start_probers(&fleet, &shared, &mut random, &probing).await;
    let logs = Arc::default();
    let clients: Vec<_> =
        (0..GROUPS).flat_map(|_| Group::new(&shared, &logs, PACE).start(&mut random, &stopping)).collect();

    let controller = Arc::new(Controller {
        fleet: Arc::clone(&fleet),
        shared: Arc::clone(&shared),
        probers,
        faults: Mutex::default(),
        everything: RwLock::default(),
    });
    disturb(&controller, &mut random, settings.duration).await;
    fleet.heal().await;
    watch_undisturbed(&shared).await;
    stopping.cancel();
    let took = shared.now();
    let is_over = tokio::time::timeout(LAST_CALLS, join_all(clients)).await.is_ok();
    probing.cancel();
    if !is_over {
        shared.report(format!("calls did not end within {LAST_CALLS:?}"));
    }

    let logs: Vec<_> = locked(&logs).clone();
    let reader = Reader::new(&fleet.gateways[0].url(), &fleet.key);
    let mut violations = reader.check_stores(&logs).await;
    violations.extend(audit::check_fleet(&fleet).await);
    let mut counts = shared.counts().clone();
    counts.violations.extend(violations);
    let faults = locked(&controller.faults).clone();
    conclude(pair, settings, took, &counts, &faults);
}

/// Prints the figures, and fails where they are not good.
fn conclude(pair: Pair, settings: Settings, took: Duration, counts: &Counts, faults: &Faults) {
    println!("{}", report::text(pair, settings.seed, took, counts, faults));
    for violation in counts.violations.iter().take(SHOWN) {
        println!("VIOLATION {violation}");
    }
    let is_tested = counts.done > 0 && faults.count() > 0 && counts.exports > 0;
    assert!(is_tested, "nothing was tested");
    assert!(counts.violations.is_empty(), "{} violations, seed {}", counts.violations.len(), settings.seed);
    assert_eq!(faults.too_long(), 0, "recoveries over {RECOVERY_LIMIT:?}, seed {}", settings.seed);
}

/// Injects faults for the given time.
async fn disturb(controller: &Arc<Controller>, random: &mut Random, duration: Duration) {
    let ending = CancellationToken::new();
    let mut lanes = JoinSet::new();
    for number in 0..controller.fleet.gateways.len() {
        lanes.spawn(Arc::clone(controller).torture_gateway(number, random.fork(), ending.clone()));
    }
    lanes.spawn(Arc::clone(controller).torture_postgres(random.fork(), ending.clone()));
    lanes.spawn(Arc::clone(controller).run_jobs(random.fork(), ending.clone()));
    lanes.spawn(Exports::new(controller, random.fork(), ending.clone()).run());
    tokio::time::sleep(duration).await;
    ending.cancel();
    lanes.join_all().await;
}

/// Once faults are over for a while, no request fails.
async fn watch_undisturbed(shared: &Shared) {
    tokio::time::sleep(REST).await;
    let failed = |counts: &Counts| -> u64 {
        counts.statuses.iter().filter(|(status, _)| **status >= 500).map(|(_, count)| count).sum()
    };
    let before = failed(&shared.counts());
    tokio::time::sleep(WATCHED).await;
    let failures = failed(&shared.counts()) - before;
    if failures > 0 {
        shared.report(format!("{failures} requests failed more than {REST:?} after the last fault"));
    }
}

async fn start_probers(
    fleet: &Fleet,
    shared: &Arc<Shared>,
    random: &mut Random,
    probing: &CancellationToken,
) -> Vec<Arc<Prober>> {
    let mut client = Client::new(shared, random.fork());
    let store = json!({"name": "probes"});
    let request = Request::once("/v1/memory_stores".to_owned(), store, "probes".to_owned());
    let made = client.call(&request).await.body;
    let store_id = made["id"].as_str().unwrap().to_owned();
    let mut probers = Vec::new();
    for gateway in &fleet.gateways {
        let prober = Prober::new(shared, gateway.url(), &store_id);
        tokio::spawn(Arc::clone(&prober).run(probing.clone()));
        probers.push(prober);
    }
    probers
}
