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
/// Maximum number of exports that begin after the end of the run, when none was whole before.
const LATE_EXPORTS: u32 = 10;

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

    /// Makes a store, then exports it until the run ends, and on a slow machine until one export is whole.
    pub(crate) async fn run(mut self) {
        let (store_id, memory_ids) = self.fill().await;
        let renaming = self.ending.child_token();
        let renamer = Client::new(&self.controller.shared, self.client.random.fork());
        let others = tokio::spawn(rename(renamer, store_id.clone(), memory_ids, renaming.clone()));
        let fleet = Arc::clone(&self.controller.fleet);
        let archive = fleet.folder().join("export.tar.zst");
        let mut late = 0;
        while !self.ending.is_cancelled() || (late < LATE_EXPORTS && !self.has_exported()) {
            late += u32::from(self.ending.is_cancelled());
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

    fn has_exported(&self) -> bool {
        self.controller.shared.counts().exports > 0
    }

    /// Makes a store, and memories whose contents are their numbers.
    async fn fill(&mut self) -> (String, Vec<String>) {
        let (route, key) = ("/v1/memory_stores".to_owned(), "exported".to_owned());
        let made = self.done(&Request::once(route, json!({"name": "exported"}), key)).await;
        let store_id = made["id"].as_str().unwrap().to_owned();
        let create = |number: u64| json!({"type": "create", "path": format!("/{number}.md"), "content": number.to_string()});
        let body = json!({"operations": (0..MEMORIES).map(create).collect::<Vec<_>>(), "atomic": true});
        let route = format!("/v1/memory_stores/{store_id}/memories/batch");
        let made = self.done(&Request::once(route, body, "exported-memories".to_owned())).await;
        let results = made["data"].as_array().unwrap().iter();
        let memory_ids = results.map(|result| result["memory"]["id"].as_str().unwrap().to_owned());
        (store_id, memory_ids.collect())
    }

    async fn done(&mut self, request: &Request) -> serde_json::Value {
        loop {
            let ended = self.client.call(request).await;
            if ended.outcome == Ending::Done {
                return ended.body;
            }
            tokio::time::sleep(PACE).await;
        }
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
