//! A small write and read through each gateway, several times a second.

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use keepsake_testkit::locked;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::client::Shared;

const INTERVAL: Duration = Duration::from_millis(250);
/// A probe that takes longer has failed; others begin meanwhile.
const PATIENCE: Duration = Duration::from_secs(5);
/// Probes in a row that must succeed before service counts as full.
const STREAK: usize = 4;
const GIVEN_UP_AFTER: Duration = Duration::from_mins(1);

#[derive(Debug)]
pub(crate) struct Prober {
    shared: Arc<Shared>,
    url: String,
    store_id: String,
    http: reqwest::Client,
    probes: Mutex<Vec<Probe>>,
}

#[derive(Debug, Clone, Copy)]
struct Probe {
    began: Duration,
    /// When it ended, and whether it succeeded; `None`: it is under way.
    ended: Option<(Duration, bool)>,
}

impl Prober {
    pub(crate) fn new(shared: &Arc<Shared>, url: String, store_id: &str) -> Arc<Self> {
        Arc::new(Self {
            shared: Arc::clone(shared),
            url,
            store_id: store_id.to_owned(),
            http: reqwest::Client::builder().no_proxy().timeout(PATIENCE).build().unwrap(),
            probes: Mutex::default(),
        })
    }

    pub(crate) async fn run(self: Arc<Self>, stopping: CancellationToken) {
        let mut ticks = tokio::time::interval(INTERVAL);
        while !stopping.is_cancelled() {
            ticks.tick().await;
            let number = {
                let mut all = self.probes();
                all.push(Probe { began: self.shared.now(), ended: None });
                all.len() - 1
            };
            let prober = Arc::clone(&self);
            tokio::spawn(async move {
                let is_ok = prober.probe(number).await.is_some();
                let ended = prober.shared.now();
                prober.probes()[number].ended = Some((ended, is_ok));
            });
        }
    }

    async fn probe(&self, number: usize) -> Option<()> {
        let path = format!("/memories/{}-{}.md", self.url.replace([':', '/'], "-"), number % 100);
        let text = format!("probe {number}\n");
        let write = json!({
            "type": "tool_use", "id": format!("toolu_probe_{}_{number}", self.url), "name": "memory_write",
            "input": {"path": path, "content": text},
        });
        self.send(&write).await?;
        let view = json!({
            "type": "tool_use", "id": "toolu_view", "name": "memory", "input": {"command": "view", "path": path},
        });
        let shown = self.send(&view).await?;
        if shown.contains(&format!("probe {number}")) {
            return Some(());
        }
        self.shared.report(format!("probe {number} read {shown:?} after it wrote {text:?}"));
        None
    }

    async fn send(&self, block: &Value) -> Option<String> {
        let url = format!("{}/v1/memory_stores/{}/tool_calls", self.url, self.store_id);
        let request = self.http.post(url).header("x-api-key", &self.shared.key).json(block);
        let answer: Value = request.send().await.ok()?.error_for_status().ok()?.json().await.ok()?;
        (answer["is_error"] == false).then(|| answer["content"].as_str().map(str::to_owned))?
    }

    /// How long after `since` the gateway serves fully; `None`: not within a minute.
    pub(crate) async fn wait_for_service(&self, since: Duration) -> Option<Duration> {
        while self.shared.now() < since + GIVEN_UP_AFTER {
            if let Some(at) = self.served_since(since) {
                return Some(at.saturating_sub(since));
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        None
    }

    /// When the first probe of a streak ended that began after `since`.
    fn served_since(&self, since: Duration) -> Option<Duration> {
        let probes = self.probes();
        let first = probes.partition_point(|probe| probe.began < since);
        let streak = probes[first..]
            .windows(STREAK)
            .find(|probes| probes.iter().all(|probe| probe.ended.is_some_and(|(_, is_ok)| is_ok)))?;
        streak[0].ended.map(|(at, _)| at)
    }

    fn probes(&self) -> MutexGuard<'_, Vec<Probe>> {
        locked(&self.probes)
    }
}
