//! Exports of a store whose memories are renamed meanwhile: each has every memory.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::client::{Client, Ending, Request};
use super::faults::Controller;
use super::random::Random;

const MEMORIES: u64 = 150;
/// Between two renames.
const PACE: Duration = Duration::from_millis(30);

/// The lane of a run that exports, and renames meanwhile.
pub(crate) struct Exports {
    controller: Arc<Controller>,
    client: Client,
    random: Random,
    ending: CancellationToken,
}

impl Exports {
    pub(crate) fn new(controller: &Arc<Controller>, mut random: Random, ending: CancellationToken) -> Self {
        Self {
            client: Client::new(&controller.shared, random.fork()),
            controller: Arc::clone(controller),
            random,
            ending,
        }
    }

    /// Makes a store, then exports it until the run ends.
    pub(crate) async fn run(mut self) {
        let Some((store_id, memory_ids)) = self.fill().await else {
            return;
        };
        let renaming = self.ending.child_token();
        let mut renamer = Renamer {
            client: Client::new(&self.controller.shared, self.random.fork()),
            random: self.random.fork(),
            memories: format!("/v1/memory_stores/{store_id}/memories"),
            memory_ids,
        };
        let stop = renaming.clone();
        let others = tokio::spawn(async move { renamer.run(&stop).await });
        let fleet = Arc::clone(&self.controller.fleet);
        let archive = fleet.folder().join("export.tar.zst");
        while !self.ending.is_cancelled() {
            let Some(gateway) = self.random.pick(&fleet.gateways) else {
                break;
            };
            let _ = std::fs::remove_file(&archive);
            let path = archive.to_string_lossy();
            let is_done = fleet.command(gateway, &store_id, &["export", &path]).await;
            let mut counts = self.controller.shared.counts();
            if is_done {
                let found = contents_of(&archive);
                let missing: Vec<_> = (0..MEMORIES).filter(|number| !found.contains(number)).collect();
                if missing.is_empty() {
                    counts.exports += 1;
                } else {
                    let violation = format!("an export omits the memories {missing:?}");
                    counts.violations.push(violation);
                }
            } else {
                // Such as one whose gateway was killed.
                counts.failed_exports += 1;
            }
        }
        renaming.cancel();
        others.await.unwrap();
    }

    /// Makes a store, and memories whose contents are their numbers; `None`: the run ended.
    async fn fill(&mut self) -> Option<(String, Vec<String>)> {
        let mut store = Request::post("/v1/memory_stores".to_owned(), json!({"name": "exported"}));
        store.idempotency_key = Some("exported".to_owned());
        let made = self.done(&store).await?;
        let store_id = made["id"].as_str()?.to_owned();
        let mut memory_ids = Vec::new();
        for number in 0..MEMORIES {
            let body = json!({"path": format!("/{number}.md"), "content": number.to_string()});
            let mut memory = Request::post(format!("/v1/memory_stores/{store_id}/memories"), body);
            memory.idempotency_key = Some(format!("exported-{number}"));
            memory_ids.push(self.done(&memory).await?["id"].as_str()?.to_owned());
        }
        Some((store_id, memory_ids))
    }

    /// Repeats a request until it is answered.
    async fn done(&mut self, request: &Request) -> Option<serde_json::Value> {
        while !self.ending.is_cancelled() {
            let ended = self.client.call(request).await;
            if ended.outcome == Ending::Done {
                return Some(ended.body);
            }
            tokio::time::sleep(PACE).await;
        }
        None
    }
}

struct Renamer {
    client: Client,
    random: Random,
    /// The route of the memories.
    memories: String,
    memory_ids: Vec<String>,
}

impl Renamer {
    async fn run(&mut self, stop: &CancellationToken) {
        while !stop.is_cancelled() {
            let Some(memory_id) = self.random.pick(&self.memory_ids).cloned() else {
                return;
            };
            // Anywhere in the order of paths.
            let to = format!("/{:04}/{memory_id}.md", self.random.below(10_000));
            let rename = Request::post(format!("{}/{memory_id}", self.memories), json!({"path": to}));
            self.client.call(&rename).await;
            tokio::time::sleep(PACE).await;
        }
    }
}

/// The numbers that the memories of an archive contain.
fn contents_of(archive: &Path) -> BTreeSet<u64> {
    let file = File::open(archive).unwrap();
    let mut archive = tar::Archive::new(zstd::Decoder::new(file).unwrap());
    let mut found = BTreeSet::new();
    for entry in archive.entries().unwrap() {
        let mut text = String::new();
        if entry.unwrap().read_to_string(&mut text).is_ok() {
            found.extend(text.parse::<u64>());
        }
    }
    found
}
