//! Finds memories by words of their paths, without the rows of their contents.

use std::cmp::Reverse;

use keepsake_core::{MemoryId, MemoryPath};

use crate::postings::{Budget, Postings};
use crate::query::{QueryTooLong, folded_path};
use crate::rank::MAX_READS;

/// Maximum number of words; further ones are ignored.
const MAX_WORDS: usize = 16;
/// Bytes of a path that cost one read of the budget when they are folded, or compared with a word.
const BYTES_PER_READ: usize = 16;
/// Minimum number of found paths before all but the best are dropped.
const MANY: usize = 512;

/// Parts of paths, in any case. A memory is found if its path has all of them.
#[derive(Debug, Clone)]
pub struct PathWords {
    /// The whole text, if it begins like a path.
    start: Option<String>,
    words: Vec<String>,
}

/// The position of a word in a path, from the worst to the best.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum WordPosition {
    Directories,
    Name,
    /// At the beginning of the file's name, or of a directory before it.
    NameStart,
    PathStart,
}

/// A memory that was found by its path. In order, the best one is first.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct FoundPath {
    /// Of equally good positions, the shortest path is the best.
    rank: (Reverse<WordPosition>, usize),
    pub path: MemoryPath,
    pub memory: MemoryId,
}

impl PathWords {
    /// Without words, all memories are found.
    pub fn parse(text: &str) -> Result<Self, QueryTooLong> {
        QueryTooLong::check(text)?;
        let folded = folded_path(text.trim());
        let words = folded.split_whitespace().take(MAX_WORDS).map(str::to_owned).collect();
        Ok(Self { start: folded.starts_with('/').then_some(folded), words })
    }

    /// The worst position of a word in the folded `path`; `None`: a word is missing.
    fn position(&self, path: &str) -> Option<WordPosition> {
        if self.start.as_deref().is_some_and(|start| path.starts_with(start)) {
            return Some(WordPosition::PathStart);
        }
        let name = path.rfind('/').map_or(0, |slash| slash + 1);
        let mut words = self.words.iter();
        words.try_fold(WordPosition::NameStart, |worst, word| Some(worst.min(position_of(word, path, name)?)))
    }

    /// The cost of comparing one path with the words, in reads of the budget.
    fn reads(&self, path: &str) -> u64 {
        (1 + path.len() * (1 + self.words.len()) / BYTES_PER_READ) as u64
    }
}

/// The position of a word in a folded path, whose last segment begins at `name`.
fn position_of(word: &str, path: &str, name: usize) -> Option<WordPosition> {
    // A search takes time for each byte of the word, and the budget counts those of the path only.
    if word.len() > path.len() {
        return None;
    }
    let at = path.rfind(word)?;
    let is_start = word.starts_with('/') || path[..at].ends_with('/') || path[name..].starts_with(word);
    Some(if at + word.len() <= name {
        WordPosition::Directories
    } else if is_start {
        WordPosition::NameStart
    } else {
        WordPosition::Name
    })
}

/// Drops all but the best `limit`, which stay unordered.
fn keep_best<T: Ord>(found: &mut Vec<T>, limit: usize) {
    if found.len() > limit {
        found.select_nth_unstable(limit);
        found.truncate(limit);
    }
}

impl Postings {
    /// Returns the best `limit` memories by their paths.
    ///
    /// Only memories are found whose paths have the words. Paths that begin with the whole text are first; paths
    /// that have a word only in their directories are last. `None`: the words need more work than the limit of a
    /// query allows.
    pub fn paths_with(&self, words: &PathWords, limit: usize) -> Option<Vec<FoundPath>> {
        let budget = Budget::of(MAX_READS);
        let mut found = Vec::new();
        for slot in self.slots().iter().filter(|slot| slot.is_live) {
            let path = slot.path.as_str();
            if !budget.take(words.reads(path)) {
                return None;
            }
            if let Some(position) = words.position(&folded_path(path)) {
                found.push(((Reverse(position), path.len()), &*slot.path, slot.memory));
            }
            if found.len() >= MANY.max(2 * limit) {
                keep_best(&mut found, limit);
            }
        }
        keep_best(&mut found, limit);
        found.sort_unstable();
        let found = found.into_iter();
        Some(found.map(|(rank, path, memory)| FoundPath { rank, path: path.clone(), memory }).collect())
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    #[test]
    fn names_come_before_directories_and_short_paths_before_long_ones() {
        let mut index = Postings::default();
        let paths = ["/plan/a", "/x/my-plan", "/Plan.md", "/x/plan.md", "/x/plan/b c", "/other"];
        for (number, path) in (0..).zip(paths) {
            let memory = MemoryId::from_uuid(Uuid::from_u128(number));
            index.set(memory, MemoryPath::parse(path).unwrap(), None).unwrap();
        }
        for (text, limit, expected) in [
            ("PLAN", 4, ["/Plan.md", "/x/plan.md", "/x/my-plan", "/plan/a"].as_slice()),
            ("/plan", 3, &["/plan/a", "/Plan.md", "/x/plan.md"]),
            ("plan/ c", 9, &["/x/plan/b c"]),
            ("x/plan", 1, &["/x/plan.md"]),
        ] {
            let found = index.paths_with(&PathWords::parse(text).unwrap(), limit).unwrap();
            let found: Vec<_> = found.iter().map(|one| one.path.as_str()).collect();
            assert_eq!(found, expected, "{text}");
        }
    }
}
