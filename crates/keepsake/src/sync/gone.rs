//! Files that are gone, which `--watch` does not act on at once: editors that save a file
//! may move it away first, and write a new one in its place.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use keepsake_core::MemoryPath;
use tokio::time::Instant;

use super::plan::Action;

/// How long a file must be gone before its memory is moved or deleted.
pub(super) const GONE_FOR: Duration = Duration::from_secs(3);

/// The files that are gone, and since when.
#[derive(Debug, Default)]
pub(super) struct Gone {
    since: BTreeMap<MemoryPath, Instant>,
}

impl Gone {
    /// Notes the files that a plan takes for moved or deleted. Returns the paths that must
    /// wait: those files, and the new ones that have their content.
    pub(super) fn must_wait(&mut self, actions: &[Action], now: Instant) -> BTreeSet<MemoryPath> {
        let (mut since, mut waiting) = (BTreeMap::new(), BTreeSet::new());
        for action in actions {
            let (from, to) = match action {
                Action::MoveRemote { from, to, .. } => (from, Some(to)),
                Action::DeleteRemote { path, .. } => (path, None),
                _ => continue,
            };
            let first = *self.since.get(from).unwrap_or(&now);
            since.insert(from.clone(), first);
            if now < first + GONE_FOR {
                waiting.insert(from.clone());
                waiting.extend(to.cloned());
            }
        }
        self.since = since;
        waiting
    }

    /// When the next file has been gone long enough.
    pub(super) fn next(&self, now: Instant) -> Option<Instant> {
        let ends = self.since.values().map(|first| *first + GONE_FOR);
        ends.filter(|end| *end > now).min()
    }
}

#[cfg(test)]
mod tests {
    use keepsake_core::{ContentHash, MemoryId, VersionId};
    use uuid::Uuid;

    use super::super::plan::Known;
    use super::*;

    #[test]
    fn file_must_be_gone_for_some_time_without_a_break() {
        let path = |text: &str| MemoryPath::parse(text).unwrap();
        let memory = Known {
            memory_id: MemoryId::from_uuid(Uuid::from_u128(1)),
            hash: ContentHash::of(b"1"),
            version_id: Some(VersionId::from_uuid(Uuid::from_u128(2))),
        };
        let moved = Action::MoveRemote {
            from: path("/a.md"),
            to: path("/a.md~"),
            memory,
        };
        let deleted = Action::DeleteRemote {
            path: path("/b.md"),
            memory,
        };
        let (mut gone, start) = (Gone::default(), Instant::now());
        let both = [moved, deleted];
        let all = BTreeSet::from(["/a.md", "/a.md~", "/b.md"].map(path));
        assert_eq!(gone.must_wait(&both, start), all);
        assert_eq!(gone.next(start), Some(start + GONE_FOR));
        let almost = start + GONE_FOR - Duration::from_millis(1);
        assert_eq!(gone.must_wait(&both, almost), all);
        // The moved file was back in between.
        assert_eq!(
            gone.must_wait(&both[1..], almost),
            BTreeSet::from([path("/b.md")])
        );
        let end = start + GONE_FOR;
        let waiting = BTreeSet::from(["/a.md", "/a.md~"].map(path));
        assert_eq!(gone.must_wait(&both, end), waiting);
        assert_eq!(gone.next(end), Some(end + GONE_FOR));
        assert_eq!(gone.must_wait(&both, end + GONE_FOR), BTreeSet::new());
        assert_eq!(gone.next(end + GONE_FOR), None);
    }
}
