//! Files that are gone. `--watch` does not act on them at once: editors that save a file
//! may move it away first, and write a new one in its place.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use keepsake_core::MemoryPath;
use tokio::time::Instant;

use super::plan::Action;

/// How long a file must be gone before its memory is moved or deleted.
pub(super) const GONE_FOR: Duration = Duration::from_secs(3);

#[derive(Debug, Default)]
pub(super) struct GoneFiles {
    files: BTreeMap<MemoryPath, GoneFile>,
}

#[derive(Debug)]
struct GoneFile {
    since: Instant,
    /// The file that had the content of the gone file when it was first missed.
    moved_to: Option<MemoryPath>,
}

impl GoneFiles {
    /// Notes the files that a plan takes for moved or deleted. Returns the paths that must
    /// wait: those files, and the new ones that had their content.
    pub(super) fn must_wait(&mut self, actions: &[Action], now: Instant) -> BTreeSet<MemoryPath> {
        let created = created_by(actions);
        let (mut files, mut waiting) = (BTreeMap::new(), BTreeSet::new());
        for action in actions {
            let (path, target) = match action {
                Action::MoveRemote { from, to, .. } => (from, Some(to.clone())),
                Action::DeleteRemote { path, .. } => (path, None),
                _ => continue,
            };
            let before = self.files.remove(path);
            let since = before.as_ref().map_or(now, |before| before.since);
            // A moved file that was edited since.
            let edited = before.and_then(|before| before.moved_to);
            let moved_to = target.or(edited.filter(|path| created.contains(path)));
            if now < since + GONE_FOR {
                waiting.insert(path.clone());
                waiting.extend(moved_to.clone());
            }
            files.insert(path.clone(), GoneFile { since, moved_to });
        }
        self.files = files;
        waiting
    }

    /// The same plan, in which the memory of a file that was moved and edited since is moved
    /// and replaced, instead of deleted beside a new one.
    pub(super) fn follow(&self, mut actions: Vec<Action>) -> Vec<Action> {
        let created = created_by(&actions);
        let mut replaced = BTreeMap::new();
        for action in &mut actions {
            let Action::DeleteRemote { path, memory } = action else {
                continue;
            };
            let moved_to = self.files.get(path).and_then(|file| file.moved_to.clone());
            let Some(to) = moved_to.filter(|to| created.contains(to)) else {
                continue;
            };
            replaced.insert(to.clone(), *memory);
            *action = Action::MoveRemote { from: path.clone(), to, memory: *memory };
        }
        for action in &mut actions {
            if let Action::Create { path, hash } = action
                && let Some(memory) = replaced.remove(path)
            {
                *action = Action::Replace { path: path.clone(), memory, hash: *hash };
            }
        }
        actions
    }

    /// When the next file has been gone long enough.
    pub(super) fn next(&self, now: Instant) -> Option<Instant> {
        let ends = self.files.values().map(|file| file.since + GONE_FOR);
        ends.filter(|end| *end > now).min()
    }
}

fn created_by(actions: &[Action]) -> BTreeSet<MemoryPath> {
    let created = actions.iter().filter_map(|action| match action {
        Action::Create { path, .. } => Some(path.clone()),
        _ => None,
    });
    created.collect()
}

#[cfg(test)]
mod tests {
    use keepsake_core::{ContentHash, MemoryId, VersionId};
    use uuid::Uuid;

    use super::super::plan::KnownMemory;
    use super::super::plan::tests::path;
    use super::*;

    fn memory() -> KnownMemory {
        KnownMemory {
            memory_id: MemoryId::from_uuid(Uuid::from_u128(1)),
            hash: ContentHash::of(b"1"),
            version_id: Some(VersionId::from_uuid(Uuid::from_u128(2))),
        }
    }

    #[test]
    fn moved_file_that_is_edited_stays_one_memory() {
        let (mut gone, start, memory) = (GoneFiles::default(), Instant::now(), memory());
        let moved = Action::MoveRemote { from: path("/a.md"), to: path("/b.md"), memory };
        let both = BTreeSet::from(["/a.md", "/b.md"].map(path));
        assert_eq!(gone.must_wait(std::slice::from_ref(&moved), start), both);
        let hash = ContentHash::of(b"2");
        let (path, new) = (path("/a.md"), path("/b.md"));
        let deleted = Action::DeleteRemote { path, memory };
        let created = Action::Create { path: new.clone(), hash };
        let edited = [deleted, created];
        assert_eq!(gone.must_wait(&edited, start), both);
        assert_eq!(gone.must_wait(&edited, start + GONE_FOR), BTreeSet::new());
        let replaced = Action::Replace { path: new, memory, hash };
        assert_eq!(gone.follow(edited.to_vec()), [moved, replaced]);
        // The new file is gone too.
        gone.must_wait(&edited[..1], start + GONE_FOR);
        assert_eq!(gone.follow(edited.to_vec()), edited);
    }

    #[test]
    fn file_must_be_gone_for_some_time_without_a_break() {
        let memory = memory();
        let moved = Action::MoveRemote { from: path("/a.md"), to: path("/a.md~"), memory };
        let deleted = Action::DeleteRemote { path: path("/b.md"), memory };
        let (mut gone, start) = (GoneFiles::default(), Instant::now());
        let both = [moved, deleted];
        let all = BTreeSet::from(["/a.md", "/a.md~", "/b.md"].map(path));
        assert_eq!(gone.must_wait(&both, start), all);
        assert_eq!(gone.next(start), Some(start + GONE_FOR));
        let almost = start + GONE_FOR - Duration::from_millis(1);
        assert_eq!(gone.must_wait(&both, almost), all);
        // The moved file was back in between.
        assert_eq!(gone.must_wait(&both[1..], almost), BTreeSet::from([path("/b.md")]));
        let end = start + GONE_FOR;
        assert_eq!(gone.must_wait(&both, end), BTreeSet::from(["/a.md", "/a.md~"].map(path)));
        assert_eq!(gone.next(end), Some(end + GONE_FOR));
        assert_eq!(gone.must_wait(&both, end + GONE_FOR), BTreeSet::new());
        assert_eq!(gone.next(end + GONE_FOR), None);
    }
}
