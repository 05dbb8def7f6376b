//! Random edits on both sides while the command runs, is killed, and the server
//! restarts: at the end both sides are equal, and no content is lost.

use std::collections::BTreeSet;
use std::time::{Duration, Instant, SystemTime};

use keepsake_testkit::Seed;
use proptest::prelude::Rng;
use proptest::test_runner::{Config, TestRunner};
use reqwest::Method;
use serde_json::{Value, json};

use super::{Run, Workplace};
use crate::support::client::try_send;
use crate::support::{Answer, Client, Pair};

/// Set to run for this many seconds instead of [`ROUNDS`].
const SECONDS: &str = "KEEPSAKE_TEST_SYNC_SECONDS";
const ROUNDS: u64 = 18;
const EDITS_PER_ROUND: u64 = 18;

/// Names that meet each other, by case, or as file and directory.
const NAMES: [&str; 13] = [
    "a.md",
    "A.md",
    "b.md",
    "c",
    "c/a.md",
    "c/b.md",
    "d/a.md",
    "D/a.md",
    "d/e/f.md",
    "\u{e9}.md",
    "d/\u{e9}/x.md",
    "long name with spaces.md",
    "g",
];

struct Chaos {
    place: Workplace,
    runner: TestRunner,
    client: Client,
    /// Contents that the folder's user wrote and did not remove.
    written: BTreeSet<String>,
    /// Contents that the store acknowledged.
    acknowledged: BTreeSet<String>,
    edits: u64,
    conflicts: u64,
}

#[tokio::test(flavor = "multi_thread")]
async fn random_edits_of_both_sides_are_never_lost() {
    let seed = Seed::new();
    let place = Workplace::on(Pair::Sqlite).await;
    std::fs::create_dir(&place.folder).unwrap();
    let mut chaos = Chaos {
        client: place.person.server.client(&place.person.tenant),
        place,
        runner: seed.runner(Config::default()),
        written: BTreeSet::new(),
        acknowledged: BTreeSet::new(),
        edits: 0,
        conflicts: 0,
    };
    let started = Instant::now();
    let duration = std::env::var(SECONDS).ok().map(|seconds| seconds.parse().unwrap());
    let duration = duration.map(Duration::from_secs);
    for round in 1.. {
        let is_over = match duration {
            Some(duration) => started.elapsed() >= duration,
            None => round > ROUNDS,
        };
        if is_over {
            break;
        }
        chaos.round(round).await;
        if round % 6 == 0 {
            chaos.check().await;
            chaos.lose_a_side(round % 12 == 0).await;
        }
    }
    chaos.check().await;
    let (edits, conflicts) = (chaos.edits, chaos.conflicts);
    println!("{edits} edits, {conflicts} runs with conflicts");
}

impl Chaos {
    fn below(&mut self, end: u64) -> u64 {
        u64::from(self.runner.rng().next_u32()) % end
    }

    fn name(&mut self) -> &'static str {
        let place = usize::try_from(self.below(NAMES.len() as u64)).unwrap();
        NAMES[place]
    }

    /// Content that nothing had before.
    fn content(&mut self, side: &str) -> String {
        self.edits += 1;
        format!("{side} {}\n", self.edits)
    }

    /// Edits both sides while the command runs.
    async fn round(&mut self, round: u64) {
        let mut running = self.place.start(&[]);
        let restarts_server = round.is_multiple_of(5);
        let killed_after = round.is_multiple_of(4).then(|| self.below(EDITS_PER_ROUND));
        for edit in 0..EDITS_PER_ROUND {
            if self.below(2) == 0 {
                self.edit_folder();
            } else {
                self.edit_store().await;
            }
            if restarts_server && edit == EDITS_PER_ROUND / 2 {
                self.place.person.server.kill9().await;
                self.edit_folder();
                self.place.person.server.restart().await;
            }
            if killed_after == Some(edit) {
                running.kill().await.unwrap();
                running = self.place.start(&[]);
            }
        }
        let status = running.wait().await.unwrap();
        // 1: a name became a file and a directory at once, which the next run sees.
        assert!(matches!(status.code(), Some(0 | 1 | 4 | 6)), "{status}");
        self.conflicts += u64::from(status.code() == Some(4));
    }

    /// Makes a random edit as the folder's user; it may fail because of the other side.
    fn edit_folder(&mut self) {
        let (action, name, other) = (self.below(10), self.name(), self.name());
        let (file, to) = (self.place.folder.join(name), self.place.folder.join(other));
        let before = std::fs::read_to_string(&file).ok();
        match action {
            0..=5 => {
                let content = self.content("folder");
                if let Some(parent) = file.parent() {
                    let _ = std::fs::create_dir_all(parent);
                }
                self.written.insert(content.clone());
                let written = if action < 3 {
                    std::fs::write(&file, &content)
                } else {
                    let temporary = self.place.folder.join(".temporary");
                    std::fs::write(&temporary, &content).and_then(|()| std::fs::rename(&temporary, &file))
                };
                match (written, before) {
                    (Ok(()), Some(before)) => {
                        self.written.remove(&before);
                    }
                    (Ok(()), None) => {}
                    (Err(_), _) => {
                        self.written.remove(&content);
                    }
                }
            }
            6 | 7 => {
                if std::fs::remove_file(&file).is_ok()
                    && let Some(before) = before
                {
                    self.written.remove(&before);
                }
            }
            _ => {
                let replaced = std::fs::read_to_string(&to).ok();
                if file != to
                    && file.is_file()
                    && std::fs::rename(&file, &to).is_ok()
                    && let Some(replaced) = replaced
                {
                    self.written.remove(&replaced);
                }
            }
        }
    }

    /// Makes a random edit as an agent in the store.
    async fn edit_store(&mut self) {
        let memories = self.place.listed("basic").await;
        let action = self.below(10);
        let (content, name) = (self.content("store"), self.name());
        let path = format!("/{name}");
        let which = usize::try_from(self.below(memories.len().max(1) as u64)).unwrap();
        let id = memories.get(which).map(|memory| memory["id"].as_str().unwrap().to_owned());
        let base = format!("/v1/memory_stores/{}/memories", self.place.person.tenant.store_id);
        let acknowledged = match (action, id) {
            (0..=3, _) | (_, None) => self.post(&base, &json!({"path": path, "content": content})).await,
            (4..=6, Some(id)) => self.post(&format!("{base}/{id}"), &json!({"content": content})).await,
            (7, Some(id)) => {
                self.post(&format!("{base}/{id}"), &json!({"path": path, "content": content})).await
            }
            (8, Some(id)) => {
                self.post(&format!("{base}/{id}"), &json!({"path": path})).await;
                return;
            }
            (_, Some(id)) => {
                let request = self.client.request(Method::DELETE, &format!("{base}/{id}"));
                try_send(request).await.unwrap();
                return;
            }
        };
        if acknowledged.status == 200 {
            self.acknowledged.insert(content);
        }
    }

    async fn post(&self, path: &str, body: &Value) -> Answer {
        let answer = self.client.post(path, body).await;
        assert!(matches!(answer.status, 200 | 404 | 409), "{path}: {}", answer.text);
        answer
    }

    /// Synchronises until nothing is left to do, and checks both sides.
    async fn check(&mut self) {
        let mut runs: Vec<Run> = Vec::new();
        loop {
            let run = self.place.sync("--allow-emptying").await;
            let is_done = run.code == Some(0) && run.stdout.contains("nothing to do");
            runs.push(run);
            if is_done {
                break;
            }
            assert!(runs.len() < 8, "no end: {runs:#?}");
        }
        assert_eq!(self.place.files(), self.place.memories().await);
        let before = (self.file_times(), self.place.listed("basic").await);
        self.place.sync("").await.ok();
        assert_eq!((self.file_times(), self.place.listed("basic").await), before);
        let history = self.history().await;
        for content in &self.acknowledged {
            assert!(history.contains(content), "the store lost {content:?}");
        }
        for content in &self.written {
            assert!(history.contains(content), "the folder lost {content:?}");
        }
    }

    /// When each file was written.
    fn file_times(&self) -> Vec<(String, SystemTime)> {
        let time = |name: &String| self.place.folder.join(name).metadata().unwrap().modified();
        let files = self.place.files().into_keys();
        files.map(|name| (name.clone(), time(&name).unwrap())).collect()
    }

    /// Every content that the store ever had.
    async fn history(&self) -> BTreeSet<String> {
        let mut contents = BTreeSet::new();
        let mut page = String::new();
        let store = self.place.person.tenant.store_id;
        loop {
            let path = format!("/v1/memory_stores/{store}/memory_versions?view=full&limit=20{page}");
            let answer = self.client.get(&path).await.json();
            for version in answer["data"].as_array().unwrap() {
                contents.extend(version["content"].as_str().map(str::to_owned));
            }
            match answer["next_page"].as_str() {
                Some(next) => page = format!("&page={next}"),
                None => return contents,
            }
        }
    }

    /// Loses one side, all memories or the folder: the other one stays, and fills it
    /// again without the state.
    async fn lose_a_side(&mut self, is_folder: bool) {
        let before = self.place.memories().await;
        if before.is_empty() {
            return;
        }
        if is_folder {
            for name in self.place.files().keys() {
                self.place.delete(name);
            }
        } else {
            for memory in self.place.listed("basic").await {
                let (store, id) = (self.place.person.tenant.store_id, memory["id"].as_str().unwrap());
                let path = format!("/v1/memory_stores/{store}/memories/{id}");
                let deletion = self.client.request(Method::DELETE, &path);
                assert_eq!(try_send(deletion).await.unwrap().status, 200);
            }
        }
        self.place.sync("").await.ends(4, "");
        let lost = if is_folder { self.place.folder.clone() } else { self.place.folder.join(".keepsake") };
        std::fs::remove_dir_all(lost).unwrap();
        self.place.sync("").await.ok();
        assert_eq!(self.place.files(), before);
        assert_eq!(self.place.memories().await, before);
    }
}
