//! Random edits on both sides while the command runs, is killed, and the server
//! restarts: at the end both sides are equal, and no content is lost.

use std::time::SystemTime;

use keepsake_testkit::Seed;
use proptest::prelude::Rng;
use proptest::test_runner::{Config, TestRunner};

use super::{Run, Workplace};
use crate::prelude::*;

/// Set to run for this many seconds instead of [`ROUNDS`].
const SECONDS: &str = "KEEPSAKE_TEST_SYNC_SECONDS";
const ROUNDS: u64 = 18;
const EDITS_PER_ROUND: u64 = 18;

/// Names that meet each other, by case, or as file and directory.
const NAMES: [&str; 13] = [
    "a.md", "A.md", "b.md", "c", "c/a.md", "c/b.md", "d/a.md", "D/a.md", "d/e/f.md", "é.md", "d/é/x",
    "x y.md", "g",
];

struct Chaos {
    place: Workplace,
    runner: TestRunner,
    client: Client,
    /// Contents that the folder's user wrote and did not remove.
    written: BTreeSet<String>,
    acknowledged: BTreeSet<String>,
    edits: u64,
}

#[tokio::test(flavor = "multi_thread")]
async fn random_edits_of_both_sides_are_never_lost() {
    let seed = Seed::new();
    let place = Workplace::new().await;
    std::fs::create_dir(&place.folder).unwrap();
    let mut chaos = Chaos {
        client: place.person.client(),
        place,
        runner: seed.runner(Config::default()),
        written: BTreeSet::new(),
        acknowledged: BTreeSet::new(),
        edits: 0,
    };
    let started = Instant::now();
    let seconds = std::env::var(SECONDS).ok().map(|seconds| seconds.parse().unwrap());
    let is_under_way = |round: u64| match seconds {
        Some(seconds) => started.elapsed() < Duration::from_secs(seconds),
        None => round <= ROUNDS,
    };
    for round in (1..).take_while(|round| is_under_way(*round)) {
        chaos.round(round).await;
        if round % 6 == 0 {
            chaos.check().await;
        }
    }
    chaos.check().await;
}

impl Chaos {
    fn below(&mut self, end: u64) -> u64 {
        u64::from(self.runner.rng().next_u32()) % end
    }

    fn name(&mut self) -> &'static str {
        NAMES[usize::try_from(self.below(NAMES.len() as u64)).unwrap()]
    }

    fn content(&mut self, side: &str) -> String {
        self.edits += 1;
        format!("{side} {}\n", self.edits)
    }

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
    }

    /// Makes a random edit as the folder's user; it may fail because of the other side.
    fn edit_folder(&mut self) {
        let (action, name, other) = (self.below(10), self.name(), self.name());
        let (file, to) = (self.place.folder.join(name), self.place.folder.join(other));
        let before = std::fs::read_to_string(&file).ok();
        let gone = match action {
            0..=5 => {
                let content = self.content("folder");
                let _ = std::fs::create_dir_all(file.parent().unwrap());
                let written = if action < 3 {
                    std::fs::write(&file, &content)
                } else {
                    let temporary = self.place.folder.join(".temporary");
                    std::fs::write(&temporary, &content).and_then(|()| std::fs::rename(&temporary, &file))
                };
                self.written.insert(content.clone());
                if written.is_ok() { before } else { Some(content) }
            }
            6 | 7 => before.filter(|_| std::fs::remove_file(&file).is_ok()),
            _ => {
                let replaced = std::fs::read_to_string(&to).ok();
                let is_moved = file != to && file.is_file() && std::fs::rename(&file, &to).is_ok();
                replaced.filter(|_| is_moved)
            }
        };
        if let Some(gone) = gone {
            self.written.remove(&gone);
        }
    }

    async fn edit_store(&mut self) {
        let memories = self.place.person.listed("memories?view=basic").await;
        let (action, content, name) = (self.below(10), self.content("store"), self.name());
        let which = usize::try_from(self.below(memories.len().max(1) as u64)).unwrap();
        let all = self.place.person.store().memories();
        let one = memories.get(which).map(|memory| format!("{all}/{}", memory["id"].as_str().unwrap()));
        let path = format!("/{name}");
        let (at, body) = match (action, one) {
            (0..=3, _) | (_, None) => (all, json!({"path": path, "content": content})),
            (4..=6, Some(one)) => (one, json!({"content": content})),
            (7, Some(one)) => (one, json!({"path": path, "content": content})),
            (8, Some(one)) => (one, json!({"path": path})),
            (_, Some(one)) => {
                send(self.client.request(Method::DELETE, &one)).await;
                return;
            }
        };
        let answer = self.client.post(&at, &body).await;
        assert!(matches!(answer.status, 200 | 404 | 409), "{at}: {}", answer.text);
        if answer.status == 200 && body["content"].is_string() {
            self.acknowledged.insert(content);
        }
    }

    /// Synchronises until nothing is left to do, and checks both sides.
    async fn check(&mut self) {
        let mut runs: Vec<Run> = Vec::new();
        let is_done = |run: &Run| run.code == Some(0) && run.stdout.contains("nothing to do");
        while runs.last().is_none_or(|run| !is_done(run)) {
            assert!(runs.len() < 8, "no end: {runs:#?}");
            runs.push(self.place.sync("--allow-emptying").await);
        }
        assert_eq!(self.place.files(), self.place.memories().await);
        let before = (self.file_times(), self.place.person.listed("memories?view=basic").await);
        self.place.sync("").await.ok();
        assert_eq!((self.file_times(), self.place.person.listed("memories?view=basic").await), before);
        // Every content that the store ever had.
        let versions = self.place.person.listed("memory_versions?view=full").await;
        let history: BTreeSet<_> = versions.iter().filter_map(|it| it["content"].as_str()).collect();
        for content in self.acknowledged.iter().chain(&self.written) {
            assert!(history.contains(content.as_str()), "{content:?} is lost");
        }
    }

    fn file_times(&self) -> Vec<(String, SystemTime)> {
        let time = |name: &String| self.place.folder.join(name).metadata().unwrap().modified();
        let files = self.place.files().into_keys();
        files.map(|name| (name.clone(), time(&name).unwrap())).collect()
    }
}
