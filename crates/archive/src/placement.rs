//! Decides which file of an archive holds a memory's content.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use keepsake_core::{ContentHash, MemoryPath};

use crate::format::{blob_file, memory_file};

/// The longest file name of common file systems.
const MAX_NAME_BYTES: usize = 255;

/// Finds paths that cannot be files beside the paths before them.
///
/// Two paths that differ only in case are one file on systems that ignore case, so the
/// second gets no file, on any system. A path that was a directory before gets none
/// either.
#[derive(Debug, Default)]
pub struct Placement {
    /// The hash of the exact spelling of each path and directory, by the hash of its lower-case
    /// spelling. If two hashes collide, a content is only moved to `blobs/`.
    spellings: HashMap<u64, u64>,
}

impl Placement {
    pub fn file_of(&mut self, path: &MemoryPath, hash: ContentHash) -> String {
        if self.is_file(path) { memory_file(path) } else { blob_file(hash) }
    }

    /// Whether the memory at `path` can have a file at this path.
    fn is_file(&mut self, path: &MemoryPath) -> bool {
        let text = path.as_str();
        if text.split('/').any(|name| name.len() > MAX_NAME_BYTES || name.contains('\\')) {
            return false;
        }
        // The exact hash includes whether the name is a directory: a file and a directory of
        // the same name exclude each other.
        let directories = || path.ancestor_files().map(|name| (name, true));
        let prefixes = || directories().chain([(text, false)]);
        let hashes = || {
            prefixes()
                .map(|(name, is_directory)| (hash_of(&name.to_lowercase()), hash_of(&(name, is_directory))))
        };
        let is_free = |(folded, exact)| self.spellings.get(&folded).is_none_or(|known| *known == exact);
        if !hashes().all(is_free) {
            return false;
        }
        self.spellings.extend(hashes());
        true
    }
}

fn hash_of(name: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    name.hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_that_cannot_be_files_are_detected() {
        let mut placement = Placement::default();
        let long = format!("/{}", "n".repeat(MAX_NAME_BYTES + 1));
        let others = "/notes/c.md /Notes/A.md /notes /Notes /Notes/a.md/c /a\\b";
        for (paths, is_file) in
            [("/Notes/a.md /Notes/b.md", true), (others, false), ("/x", true), (long.as_str(), false)]
        {
            for path in paths.split(' ') {
                let path = MemoryPath::parse(path).unwrap();
                assert_eq!(placement.is_file(&path), is_file, "{}", path.as_str());
            }
        }
    }
}
