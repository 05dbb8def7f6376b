//! The faults of a run, one after the other on each gateway.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use keepsake_testkit::{FaultProxy, StopMode, locked};
use reqwest::Method;
use serde_json::json;
use tokio::process::Command;
use tokio::sync::RwLock;
use tokio_util::sync::CancellationToken;

use super::client::Shared;
use super::fleet::{Database, Fleet, Gateway, Pair, TERMINATION_LIMIT};
use super::probe::Prober;
use super::random::Random;
use super::report::Faults;

const PAUSE_MILLIS: u64 = 400;
/// How long faults last that end by themselves.
const LASTING: Duration = Duration::from_millis(1_200);
/// A step of a gateway's clock: less than the life of tokens and idempotency keys.
const CLOCK_STEP_SECS: i64 = 6 * 3_600;
const BETWEEN_RESTARTS: Duration = Duration::from_secs(25);
const BETWEEN_JOBS: Duration = Duration::from_secs(4);

#[derive(Debug, Clone, Copy)]
enum Fault {
    Kill,
    Terminate,
    TerminateDuringOutage,
    Pause,
    ClockStep,
    Network(Link, &'static str),
}

/// The connections that a network fault hits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Link {
    Clients,
    Postgres,
    S3,
}

impl Fault {
    fn name(self) -> String {
        match self {
            Self::Network(link, fault) => format!("{link:?}: {fault}"),
            other => format!("{other:?}"),
        }
    }
}

/// Faults of the connections of now, or of one of them.
const MOMENTARY: [&str; 4] = ["reset", "one reset", "silent", "one silent"];
/// Faults of new connections too, until they are healed.
const PERSISTENT: [&str; 5] = ["refused", "delayed", "cut", "stalled", "all silent"];

#[derive(Debug)]
pub(crate) struct Controller {
    pub(crate) fleet: Arc<Fleet>,
    pub(crate) shared: Arc<Shared>,
    pub(crate) probers: Vec<Arc<Prober>>,
    pub(crate) faults: Mutex<Faults>,
    /// Held for writing while a fault hits all gateways.
    pub(crate) everything: RwLock<()>,
}

impl Controller {
    pub(crate) async fn torture_gateway(
        self: Arc<Self>,
        number: usize,
        mut random: Random,
        stopping: CancellationToken,
    ) {
        let gateway = &self.fleet.gateways[number];
        let mut faults = Vec::new();
        while !stopping.is_cancelled() {
            tokio::time::sleep(Duration::from_millis(random.below(PAUSE_MILLIS))).await;
            let Some(fault) = faults.pop() else {
                faults = shuffled_faults(&mut random, self.fleet.pair);
                continue;
            };
            let _turn = self.everything.read().await;
            let since = self.inject(gateway, fault, &mut random).await;
            let recovery = self.probers[number].wait_for_service(since).await;
            self.note(&fault.name(), number, recovery).await;
        }
    }

    pub(crate) async fn torture_postgres(self: Arc<Self>, mut random: Random, stopping: CancellationToken) {
        let Some(postgres) = &self.fleet.postgres else { return };
        let disturbance = std::env::var("KEEPSAKE_TORTURE_DISTURB").unwrap_or_default();
        if disturbance.is_empty() && matches!(postgres, Database::Distributed(_)) {
            return;
        }
        loop {
            tokio::select! {
                () = tokio::time::sleep(BETWEEN_RESTARTS) => {}
                () = stopping.cancelled() => return,
            }
            let _turn = self.everything.write().await;
            let kind = match postgres {
                Database::Owned(postgres) => {
                    let kind = ["restarts", "restarts", "crashes", "crashes", "fails over"];
                    let kind = random.pick(&kind).copied().unwrap_or_default();
                    match kind {
                        "restarts" => postgres.lock().await.restart(StopMode::Fast).await,
                        "crashes" => postgres.lock().await.restart(StopMode::Immediate).await,
                        _ => self.fleet.fail_over(postgres).await,
                    }
                    kind
                }
                Database::Distributed(_) => {
                    let done = Command::new("sh").args(["-c", &disturbance]).status().await;
                    assert!(done.is_ok_and(|status| status.success()), "`{disturbance}` failed");
                    "is disturbed"
                }
            };
            let since = self.shared.now();
            for (number, prober) in self.probers.iter().enumerate() {
                let recovery = prober.wait_for_service(since).await;
                self.note(&format!("Postgres {kind}"), number, recovery).await;
            }
        }
    }

    /// Runs jobs as an operator would; refusals and lost answers are expected.
    pub(crate) async fn run_jobs(self: Arc<Self>, mut random: Random, stopping: CancellationToken) {
        let jobs = [
            "drain-deletions",
            "sweep-blobs",
            "expire-unused",
            "expire-versions",
            "reconcile-usage",
            "purge-stores",
            "prune",
            "index-memories",
            "embed-memories",
            "count-totals",
        ];
        while !stopping.is_cancelled() {
            tokio::time::sleep(BETWEEN_JOBS).await;
            let (Some(job), Some(gateway)) = (random.pick(&jobs), random.pick(&self.fleet.gateways)) else {
                return;
            };
            gateway.operator(Method::POST, &format!("/jobs/{job}/run"), Some(&json!({}))).await;
        }
    }

    async fn note(&self, kind: &str, number: usize, recovery: Option<Duration>) {
        locked(&self.faults).add(kind, recovery.unwrap_or(Duration::from_mins(1)));
        if recovery.is_none() {
            let gateway = &self.fleet.gateways[number];
            let output = gateway.running.lock().await.output();
            let end: Vec<_> = output.lines().rev().take(5).collect();
            self.shared.report(format!(
                "gateway {number} did not serve again after `{kind}`; its log ends: {end:?}"
            ));
            // The others are tried on a gateway that works.
            gateway.kill_and_restart().await;
        }
    }

    /// Injects a fault, and ends it; the time from which recovery counts.
    async fn inject(&self, gateway: &Gateway, fault: Fault, random: &mut Random) -> Duration {
        let began = self.shared.now();
        match fault {
            Fault::Kill => gateway.kill_and_restart().await,
            Fault::Terminate => {
                self.terminate(gateway).await;
                gateway.start_again().await;
                return self.shared.now();
            }
            Fault::TerminateDuringOutage => {
                let proxy = gateway.postgres.as_ref().or(gateway.s3.as_ref()).unwrap_or(&gateway.clients);
                proxy.silence_all();
                self.terminate(gateway).await;
                gateway.heal().await;
                gateway.start_again().await;
                return self.shared.now();
            }
            Fault::Pause => {
                gateway.running.lock().await.signal("STOP").await;
                tokio::time::sleep(LASTING).await;
                gateway.running.lock().await.signal("CONT").await;
                return self.shared.now();
            }
            Fault::ClockStep => {
                let steps = [CLOCK_STEP_SECS, -CLOCK_STEP_SECS, 61, -61];
                gateway.set_clock(random.pick(&steps).copied().unwrap_or_default());
                tokio::time::sleep(LASTING).await;
                gateway.set_clock(0);
            }
            Fault::Network(link, network) => {
                let proxy = match link {
                    Link::Clients => &gateway.clients,
                    Link::Postgres => gateway.postgres.as_ref().unwrap(),
                    Link::S3 => gateway.s3.as_ref().unwrap(),
                };
                disturb(proxy, network, random).await;
                if PERSISTENT.contains(&network) {
                    tokio::time::sleep(LASTING).await;
                    proxy.heal().await;
                    return self.shared.now();
                }
            }
        }
        began
    }

    async fn terminate(&self, gateway: &Gateway) {
        if gateway.terminate().await.is_none() {
            let number = gateway.number;
            self.shared
                .report(format!("gateway {number} did not end within {TERMINATION_LIMIT:?} of SIGTERM"));
        }
    }
}

async fn disturb(proxy: &FaultProxy, fault: &str, random: &mut Random) {
    // Ends the silent connections of an earlier fault.
    proxy.heal().await;
    let connections = proxy.connections();
    let one = random.pick(&connections);
    match fault {
        "reset" => proxy.reset_connections(),
        "one reset" => {
            if let Some(connection) = one {
                connection.reset();
            }
        }
        "silent" => proxy.silence_connections(),
        "one silent" => {
            if let Some(connection) = one {
                connection.silence();
            }
        }
        "refused" => {
            proxy.refuse_connections().await;
            proxy.reset_connections();
        }
        "delayed" => proxy.delay(Duration::from_millis(20 + random.below(300))),
        "cut" => proxy.cut_after(random.below(2_000)),
        "stalled" => proxy.stall(),
        "all silent" => proxy.silence_all(),
        _ => unreachable!("no such fault: {fault}"),
    }
}

/// Every fault of a pair, in random order; kills are more frequent.
fn shuffled_faults(random: &mut Random, pair: Pair) -> Vec<Fault> {
    let links: &[Link] = match pair {
        Pair::Sqlite => &[Link::Clients],
        Pair::PostgresS3 => &[Link::Clients, Link::Postgres, Link::S3],
    };
    let mut faults = vec![Fault::Kill, Fault::Kill, Fault::Kill, Fault::Terminate];
    faults.extend([Fault::TerminateDuringOutage, Fault::Pause, Fault::ClockStep, Fault::ClockStep]);
    for link in links {
        faults.extend(MOMENTARY.iter().chain(&PERSISTENT).map(|fault| Fault::Network(*link, fault)));
    }
    random.shuffle(&mut faults);
    faults
}
