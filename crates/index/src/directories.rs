//! The effect of changed memories on directory rows.

use std::collections::BTreeMap;

use keepsake_core::DirPath;
use keepsake_core::path::is_visible;

use crate::commit::DirectoryDelta;

/// The changes of directories, including new and removed ones.
#[derive(Debug)]
pub(crate) struct Directories {
    pub(crate) moved: BTreeMap<DirPath, DirectoryDelta>,
    /// Directories that lost their last file.
    pub(crate) emptied: Vec<DirPath>,
}

impl Directories {
    /// Completes the deltas with new and removed directories, each of which changes the
    /// number of children of its parent.
    ///
    /// `existing` are the current rows, with their numbers of files.
    pub(crate) fn of(deltas: &BTreeMap<DirPath, DirectoryDelta>, existing: &BTreeMap<String, i64>) -> Self {
        let mut moved = deltas.clone();
        let mut emptied = Vec::new();
        for (directory, delta) in deltas {
            let before = existing.get(directory.as_str()).copied();
            let (appears, goes) = (before.is_none(), before.is_some_and(|files| files + delta.files == 0));
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
