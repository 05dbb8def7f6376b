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
const PACE: Duration = Duration::from_millis(30);

/// The lane of a run that exports, and renames meanwhile.
pub(crate) struct Exports {
    controller: Arc<Controller>,
    client: Client,
    ending: CancellationToken,
}

impl Exports {
    pub(crate) fn new(controller: &Arc<Controller>, random: Random, ending: CancellationToken) -> Self {
        let client = Client::new(&controller.shared, random);
        Self { controller: Arc::clone(controller), client, ending }
    }

    /// Makes a store, then exports it until the run ends.
    pub(crate) async fn run(mut self) {
        let Some((store_id, memory_ids)) = self.fill().await else { return };
        let renaming = self.ending.child_token();
        let renamer = Client::new(&self.controller.shared, self.client.random.fork());
        let others = tokio::spawn(rename(renamer, store_id.clone(), memory_ids, renaming.clone()));
        let fleet = Arc::clone(&self.controller.fleet);
        let archive = fleet.folder().join("export.tar.zst");
        while !self.ending.is_cancelled() {
            let Some(gateway) = self.client.random.pick(&fleet.gateways) else { break };
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
                    counts.violations.push(format!("an export omits the memories {missing:?}"));
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
        let (route, key) = ("/v1/memory_stores".to_owned(), "exported".to_owned());
        let store = Request::once(route, json!({"name": "exported"}), key);
        let made = self.done(&store).await?;
        let store_id = made["id"].as_str()?.to_owned();
        let mut memory_ids = Vec::new();
        for number in 0..MEMORIES {
            let body = json!({"path": format!("/{number}.md"), "content": number.to_string()});
            let route = format!("/v1/memory_stores/{store_id}/memories");
            let memory = Request::once(route, body, format!("exported-{number}"));
            memory_ids.push(self.done(&memory).await?["id"].as_str()?.to_owned());
        }
        Some((store_id, memory_ids))
    }

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

/// Renames memories to anywhere in the order of paths.
async fn rename(mut client: Client, store_id: String, memory_ids: Vec<String>, stop: CancellationToken) {
    while !stop.is_cancelled() {
        let Some(memory_id) = client.random.pick(&memory_ids) else { return };
        let to = format!("/{:04}/{memory_id}.md", client.random.below(10_000));
        let route = format!("/v1/memory_stores/{store_id}/memories/{memory_id}");
        client.call(&Request::post(route, json!({"path": to}))).await;
        tokio::time::sleep(PACE).await;
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
