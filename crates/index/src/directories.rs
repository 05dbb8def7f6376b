//! What directory rows become when memories come, go and move.

use std::collections::BTreeMap;

use keepsake_core::DirPath;
use keepsake_core::path::is_visible;

use crate::commit::DirectoryDelta;

/// How directories move, those included that appear or go.
#[derive(Debug)]
pub(crate) struct Directories {
    pub(crate) moved: BTreeMap<DirPath, DirectoryDelta>,
    /// Those that have lost their last file.
    pub(crate) emptied: Vec<DirPath>,
}

impl Directories {
    /// Adds to the deltas which directories appear and which go, since each
    /// moves the count of children of the one above it.
    ///
    /// `existing` are the rows there are, with their files.
    pub(crate) fn of(deltas: &BTreeMap<DirPath, DirectoryDelta>, existing: &BTreeMap<String, i64>) -> Self {
        let mut moved = deltas.clone();
        let mut emptied = Vec::new();
        for (directory, delta) in deltas {
            let before = existing.get(directory.as_str()).copied();
            let (appears, goes) = (
                before.is_none(),
                before.is_some_and(|files| files + delta.files == 0),
            );
            if directory.is_root() || !(appears || goes) {
                continue;
            }
            if goes {
                emptied.push(directory.clone());
            }
            if let Some(parent) = directory.parent().filter(|_| is_visible(directory.name())) {
                moved.entry(parent).or_default().visible_children += if appears { 1 } else { -1 };
            }
        }
        Self { moved, emptied }
    }
}
