//! The faults of a run, one after the other on each gateway.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use keepsake_testkit::{FaultProxy, StopMode};
use reqwest::Method;
use serde_json::json;
use tokio::sync::RwLock;
use tokio_util::sync::CancellationToken;

use super::client::Shared;
use super::fleet::{Fleet, Gateway, Pair, TERMINATION_LIMIT};
use super::probe::Prober;
use super::random::Random;
use super::report::Faults;

/// Pauses between faults on one gateway.
const PAUSE_MILLIS: u64 = 400;
/// How long faults last that end by themselves.
const LASTING: Duration = Duration::from_millis(1_200);
/// A step of a gateway's clock: less than the life of tokens and idempotency keys.
const CLOCK_STEP_SECS: i64 = 6 * 3_600;
/// Between two restarts of Postgres.
const BETWEEN_RESTARTS: Duration = Duration::from_secs(25);
const BETWEEN_JOBS: Duration = Duration::from_secs(4);

/// A fault on one gateway.
#[derive(Debug, Clone, Copy)]
enum Fault {
    Kill,
    Terminate,
    TerminateDuringOutage,
    Pause,
    ClockStep,
    Network(Link, Network),
}

/// The connections that a network fault hits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Link {
    Clients,
    Postgres,
    S3,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Network {
    Reset,
    ResetOne,
    Refuse,
    Delay,
    Cut,
    Stall,
    /// Connections of now go silent; new ones work.
    Silence,
    SilenceOne,
    /// Connections of now and new ones go silent.
    SilenceAll,
}

const NETWORK: [Network; 9] = [
    Network::Reset,
    Network::ResetOne,
    Network::Refuse,
    Network::Delay,
    Network::Cut,
    Network::Stall,
    Network::Silence,
    Network::SilenceOne,
    Network::SilenceAll,
];

/// Injects faults until it is stopped.
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
    /// Injects faults into one gateway.
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
            self.note(fault.name(), number, recovery).await;
        }
    }

    /// Restarts Postgres now and then.
    pub(crate) async fn torture_postgres(self: Arc<Self>, mut random: Random, stopping: CancellationToken) {
        let Some(postgres) = &self.fleet.postgres else {
            return;
        };
        loop {
            tokio::select! {
                () = tokio::time::sleep(BETWEEN_RESTARTS) => {}
                () = stopping.cancelled() => return,
            }
            let _turn = self.everything.write().await;
            let kind = match random.below(5) {
                0 | 1 => {
                    postgres.lock().await.restart(StopMode::Fast).await;
                    "Postgres restarted"
                }
                2 | 3 => {
                    postgres.lock().await.restart(StopMode::Immediate).await;
                    "Postgres crashed"
                }
                _ => {
                    self.fleet.fail_over().await;
                    "Postgres failed over"
                }
            };
            let since = self.shared.now();
            for (number, prober) in self.probers.iter().enumerate() {
                let recovery = prober.wait_for_service(since).await;
                self.note(kind, number, recovery).await;
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

    async fn note(&self, kind: &'static str, number: usize, recovery: Option<Duration>) {
        {
            let mut faults = self.faults.lock().unwrap_or_else(PoisonError::into_inner);
            faults.add(kind, recovery.unwrap_or(Duration::from_mins(1)));
        }
        if recovery.is_none() {
            let output = self.fleet.gateways[number].output().await;
            let end: Vec<_> = output.lines().rev().take(5).collect();
            let violation =
                format!("gateway {number} did not serve again after `{kind}`; its log ends: {end:?}");
            self.shared.counts().violations.push(violation);
            // The others are tried on a gateway that works.
            self.fleet.gateways[number].kill_and_restart().await;
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
                gateway.signal("STOP").await;
                tokio::time::sleep(LASTING).await;
                gateway.signal("CONT").await;
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
                if self.disturb(proxy, network, random).await {
                    tokio::time::sleep(LASTING).await;
                    proxy.heal().await;
                    return self.shared.now();
                }
            }
        }
        began
    }

    /// Whether the fault lasts until the proxy is healed.
    async fn disturb(&self, proxy: &FaultProxy, network: Network, random: &mut Random) -> bool {
        // Ends the silent connections of an earlier fault.
        proxy.heal().await;
        let connections = proxy.connections();
        match network {
            Network::Reset => proxy.reset_connections(),
            Network::ResetOne => {
                if let Some(connection) = random.pick(&connections) {
                    connection.reset();
                }
            }
            Network::Refuse => {
                proxy.refuse_connections().await;
                proxy.reset_connections();
            }
            Network::Delay => proxy.delay(Duration::from_millis(20 + random.below(300))),
            Network::Cut => proxy.cut_after(random.below(2_000)),
            Network::Stall => proxy.stall(),
            Network::Silence => proxy.silence_connections(),
            Network::SilenceAll => proxy.silence_all(),
            Network::SilenceOne => {
                if let Some(connection) = random.pick(&connections) {
                    connection.silence();
                }
            }
        }
        matches!(
            network,
            Network::Refuse | Network::Delay | Network::Cut | Network::Stall | Network::SilenceAll
        )
    }

    async fn terminate(&self, gateway: &Gateway) {
        if gateway.terminate().await.is_none() {
            let violation =
                format!("gateway {} did not end within {TERMINATION_LIMIT:?} of SIGTERM", gateway.number);
            self.shared.counts().violations.push(violation);
        }
    }
}

/// Every fault of a pair, in random order; kills are more frequent.
fn shuffled_faults(random: &mut Random, pair: Pair) -> Vec<Fault> {
    let links: &[Link] = match pair {
        Pair::Sqlite => &[Link::Clients],
        Pair::PostgresS3 => &[Link::Clients, Link::Postgres, Link::S3],
    };
    let mut faults = vec![
        Fault::Kill,
        Fault::Kill,
        Fault::Kill,
        Fault::Terminate,
        Fault::TerminateDuringOutage,
        Fault::Pause,
        Fault::ClockStep,
        Fault::ClockStep,
    ];
    for link in links {
        faults.extend(NETWORK.iter().map(|network| Fault::Network(*link, *network)));
    }
    random.shuffle(&mut faults);
    faults
}

impl Fault {
    const fn name(self) -> &'static str {
        match self {
            Self::Kill => "gateway killed",
            Self::Terminate => "gateway terminated",
            Self::TerminateDuringOutage => "gateway terminated amid a fault",
            Self::Pause => "gateway frozen",
            Self::ClockStep => "clock set off and back",
            Self::Network(Link::Clients, network) => network.name([
                "clients: reset",
                "clients: one reset",
                "clients: refused",
                "clients: delayed",
                "clients: cut",
                "clients: stalled",
                "clients: silent",
                "clients: one silent",
                "clients: all silent",
            ]),
            Self::Network(Link::Postgres, network) => network.name([
                "Postgres: reset",
                "Postgres: one reset",
                "Postgres: refused",
                "Postgres: delayed",
                "Postgres: cut",
                "Postgres: stalled",
                "Postgres: silent",
                "Postgres: one silent",
                "Postgres: all silent",
            ]),
            Self::Network(Link::S3, network) => network.name([
                "S3: reset",
                "S3: one reset",
                "S3: refused",
                "S3: delayed",
                "S3: cut",
                "S3: stalled",
                "S3: silent",
                "S3: one silent",
                "S3: all silent",
            ]),
        }
    }
}

impl Network {
    /// Its name in a list that has the order of [`NETWORK`].
    const fn name(self, names: [&'static str; 9]) -> &'static str {
        names[self as usize]
    }
}
