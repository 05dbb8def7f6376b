//! Random edits on both sides while the command runs, is killed, and the server
//! restarts: at the end both sides are equal, and no content is lost.

use std::time::SystemTime;

use keepsake_testkit::Seed;

use super::*;
use crate::commands::copy::{Edits, SECONDS, number};

const ROUNDS: usize = 18;
const EDITS_PER_ROUND: usize = 18;

/// Names that meet each other, by case, or as file and directory.
const NAMES: [&str; 13] = [
    "a.md", "A.md", "b.md", "c", "c/a.md", "c/b.md", "d/a.md", "D/a.md", "d/e/f.md", "é.md", "d/é/x",
    "x y.md", "g",
];

struct Chaos {
    place: Workplace,
    store: Store,
    edits: Edits,
    /// Contents that the folder's user wrote and did not remove.
    written: BTreeSet<String>,
    acknowledged: BTreeSet<String>,
}

#[tokio::test(flavor = "multi_thread")]
async fn random_edits_of_both_sides_are_never_lost() {
    let seed = Seed::new();
    let place = Workplace::new().await;
    fs::create_dir(&place.folder).unwrap();
    let (store, edits) = (place.person.store(), Edits::new(&seed));
    let mut chaos = Chaos { place, store, edits, written: BTreeSet::new(), acknowledged: BTreeSet::new() };
    let (started, seconds) = (Instant::now(), number(SECONDS));
    let is_under_way = |round: usize| match seconds {
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
    async fn round(&mut self, round: usize) {
        let mut running = self.place.start(&[]);
        let restarts_server = round.is_multiple_of(5);
        let killed_after = round.is_multiple_of(4).then(|| self.edits.below(EDITS_PER_ROUND));
        for edit in 0..EDITS_PER_ROUND {
            if self.edits.below(2) == 0 {
                self.edit_folder();
            } else {
                self.acknowledged.extend(self.edits.make(&self.store, &NAMES).await);
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
        let folder = &self.place.folder;
        let [file, to] = [(); 2].map(|()| folder.join(NAMES[self.edits.below(NAMES.len())]));
        let (action, before) = (self.edits.below(10), fs::read_to_string(&file).ok());
        let gone = match action {
            0..=5 => {
                let content = self.edits.content("folder");
                let _ = fs::create_dir_all(file.parent().unwrap());
                let written = if action < 3 {
                    fs::write(&file, &content)
                } else {
                    let temporary = folder.join(".temporary");
                    fs::write(&temporary, &content).and_then(|()| fs::rename(&temporary, &file))
                };
                self.written.insert(content.clone());
                if written.is_ok() { before } else { Some(content) }
            }
            6 | 7 => before.filter(|_| fs::remove_file(&file).is_ok()),
            _ => {
                let replaced = fs::read_to_string(&to).ok();
                let is_moved = file != to && file.is_file() && fs::rename(&file, &to).is_ok();
                replaced.filter(|_| is_moved)
            }
        };
        if let Some(gone) = gone {
            self.written.remove(&gone);
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
