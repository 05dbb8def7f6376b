//! Changes of single files.
//!
//! A file leaves its place only by a rename into a private folder, where its content
//! is checked; a file that was edited in the last moment is put back, or beside.
//! Names in that folder tell a later run which contents the store has.

use std::collections::BTreeSet;
use std::fs::{File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use keepsake_core::{ContentHash, MemoryPath};
use rustix::fs::{CWD, RenameFlags, renameat_with};
use rustix::io::Errno;

use super::super::PRIVATE_FOLDER;
use super::super::plan::conflict_path;
use super::super::store::Attempt;
use super::Folder;
use crate::data_dir::make_private_folder;

/// Files on their way into the folder or out of it.
const SWAP: &str = "swap";
/// A download that is not complete.
const INCOMING: &str = "incoming";

impl Folder {
    fn private(&self, name: &str) -> PathBuf {
        self.root.join(PRIVATE_FOLDER).join(name)
    }

    /// The place of a path on the disk.
    fn place(&self, path: &MemoryPath) -> PathBuf {
        let text = path.as_str();
        let mut end = text.len();
        loop {
            if let Some(place) = self.places.get(&text[..end]) {
                let rest = text[end..].trim_start_matches('/');
                return if rest.is_empty() {
                    place.clone()
                } else {
                    place.join(rest)
                };
            }
            match text[..end].rfind('/') {
                Some(slash) if slash > 0 => end = slash,
                _ => return self.root.join(text.trim_start_matches('/')),
            }
        }
    }

    /// Cleans up after a run that was killed; returns whether the file system ignores
    /// case.
    pub(super) fn recover(&self) -> io::Result<bool> {
        let swap = self.private(SWAP);
        make_private_folder(&swap).map_err(|failure| io::Error::other(failure.to_string()))?;
        remove_if_exists(&self.private(INCOMING))?;
        for entry in swap.read_dir()? {
            let place = entry?.path();
            let hash = ContentHash::of(&std::fs::read(&place)?).to_string();
            let name = place.file_name().unwrap_or_default().to_string_lossy();
            if name.contains(&hash) {
                std::fs::remove_file(&place)?;
            } else {
                self.keep_beside(&place, &MemoryPath::from_trusted("/recovered.md".to_owned()))?;
            }
        }
        std::fs::write(self.private("case"), "")?;
        let ignores_case = self.private("CASE").exists();
        remove_if_exists(&self.private("case"))?;
        Ok(ignores_case)
    }

    /// The text of a file that still has the expected content.
    pub(in crate::sync) fn read(&self, path: &MemoryPath, expected: ContentHash) -> Attempt<String> {
        match std::fs::read(self.place(path)) {
            Ok(bytes) if ContentHash::of(&bytes) == expected => match String::from_utf8(bytes) {
                Ok(text) => Attempt::Done(text),
                Err(_) => Attempt::Lost,
            },
            _ => Attempt::Lost,
        }
    }

    /// Whether no file is at a path; a directory may be there.
    pub(in crate::sync) fn has_no_file(&self, path: &MemoryPath) -> bool {
        match self.place(path).symlink_metadata() {
            Ok(found) => found.is_dir(),
            // Also below a file, where there can be nothing.
            Err(error) => matches!(
                error.kind(),
                io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
            ),
        }
    }

    /// Writes a file, if the place still is free or has the expected content.
    pub(in crate::sync) fn write(
        &self,
        path: &MemoryPath,
        content: &str,
        replaces: Option<ContentHash>,
    ) -> Attempt<()> {
        classify(self.try_write(path, content, replaces))
    }

    fn try_write(&self, path: &MemoryPath, content: &str, replaces: Option<ContentHash>) -> io::Result<bool> {
        let place = self.place(path);
        self.make_parents(&place)?;
        let Some(expected) = replaces else {
            let staged = self.stage(content, None)?;
            let placed = rename_over_nothing(&staged, &place);
            remove_if_exists(&staged)?;
            return placed;
        };
        let before = place.symlink_metadata()?;
        if !before.is_file() || hash_of(&place)? != expected {
            return Ok(false);
        }
        let staged = self.stage(content, Some(expected))?;
        std::fs::set_permissions(&staged, Permissions::from_mode(before.mode() & 0o7777))?;
        match renameat_with(CWD, &staged, CWD, &place, RenameFlags::EXCHANGE) {
            Ok(()) => self.drop_if_known(&staged, path, expected).map(|_| true),
            Err(Errno::INVAL | Errno::NOSYS | Errno::NOTSUP) => {
                let is_placed = self.try_delete(path, expected)? && rename_to_free(&staged, &place)?;
                remove_if_exists(&staged)?;
                Ok(is_placed)
            }
            Err(error) => {
                remove_if_exists(&staged)?;
                Err(error.into())
            }
        }
    }

    /// Deletes a file that still has the expected content, with directories that
    /// become empty.
    pub(in crate::sync) fn delete(&self, path: &MemoryPath, expected: ContentHash) -> Attempt<()> {
        let deleted = self.try_delete(path, expected);
        if matches!(deleted, Ok(true)) {
            self.remove_empty_parents(&self.place(path));
        }
        classify(deleted)
    }

    fn try_delete(&self, path: &MemoryPath, expected: ContentHash) -> io::Result<bool> {
        let place = self.place(path);
        if !place.symlink_metadata()?.is_file() || hash_of(&place)? != expected {
            return Ok(false);
        }
        let taken = self.swap_place(expected, None);
        remove_if_exists(&taken)?;
        std::fs::rename(&place, &taken)?;
        self.drop_if_known(&taken, path, expected)
    }

    /// Moves a file to a free path.
    pub(in crate::sync) fn rename(&self, from: &MemoryPath, to: &MemoryPath) -> Attempt<()> {
        let (from, to) = (self.place(from), self.place(to));
        let renamed = self.make_parents(&to).and_then(|()| {
            // On a file system that ignores case, a file meets itself.
            let is_itself = match (from.symlink_metadata(), to.symlink_metadata()) {
                (Ok(from), Ok(to)) => from.dev() == to.dev() && from.ino() == to.ino() && self.ignores_case,
                _ => false,
            };
            if is_itself {
                std::fs::rename(&from, &to).map(|()| true)
            } else {
                rename_over_nothing(&from, &to)
            }
        });
        if matches!(renamed, Ok(true)) {
            self.remove_empty_parents(&from);
        }
        classify(renamed)
    }

    /// A complete file in the private folder.
    fn stage(&self, content: &str, replaces: Option<ContentHash>) -> io::Result<PathBuf> {
        let incoming = self.private(INCOMING);
        remove_if_exists(&incoming)?;
        // As any program in this folder would create it: the umask decides.
        let mut file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o666)
            .open(&incoming)?;
        file.write_all(content.as_bytes())?;
        // After a power failure, an empty file would look like an edit.
        file.sync_all()?;
        let staged = self.swap_place(ContentHash::of(content.as_bytes()), replaces);
        std::fs::rename(&incoming, &staged)?;
        Ok(staged)
    }

    /// A path in the private folder that names the contents that the store has.
    fn swap_place(&self, one: ContentHash, other: Option<ContentHash>) -> PathBuf {
        let other = other.map_or_else(String::new, |other| format!("-{other}"));
        self.private(SWAP).join(format!("{one}{other}"))
    }

    /// Removes a file that was taken from `path` if it has the expected content;
    /// else keeps it at `path` or beside, and returns `false`.
    fn drop_if_known(&self, taken: &Path, path: &MemoryPath, expected: ContentHash) -> io::Result<bool> {
        if hash_of(taken)? == expected {
            std::fs::remove_file(taken)?;
            return Ok(true);
        }
        if !rename_to_free(taken, &self.place(path))? {
            self.keep_beside(taken, path)?;
        }
        Ok(false)
    }

    /// Moves a file out of the private folder, to a free name beside `path`.
    fn keep_beside(&self, taken: &Path, path: &MemoryPath) -> io::Result<()> {
        let mut tried = BTreeSet::new();
        loop {
            let kept_as = conflict_path(path, path, &time(), &tried);
            let place = self.place(&kept_as);
            self.make_parents(&place)?;
            if rename_to_free(taken, &place)? {
                return Ok(());
            }
            tried.insert(kept_as);
        }
    }

    /// Creates the directories above a place; none of them may be a symbolic link.
    fn make_parents(&self, place: &Path) -> io::Result<()> {
        let Some(parent) = place.parent() else {
            return Ok(());
        };
        std::fs::create_dir_all(parent)?;
        for directory in parent.ancestors().take_while(|above| *above != self.root) {
            if directory.symlink_metadata()?.is_symlink() {
                return Err(io::Error::other("a directory above it is a symbolic link"));
            }
        }
        Ok(())
    }

    fn remove_empty_parents(&self, place: &Path) {
        let above = place.ancestors().skip(1).take_while(|above| *above != self.root);
        for directory in above {
            if std::fs::remove_dir(directory).is_err() {
                return;
            }
        }
    }
}

/// The time in the name of a kept file.
pub(in crate::sync) fn time() -> String {
    Timestamp::now().strftime("%Y%m%dT%H%M%SZ").to_string()
}

fn classify(done: io::Result<bool>) -> Attempt<()> {
    match done {
        Ok(true) => Attempt::Done(()),
        Ok(false) => Attempt::Lost,
        Err(error) if error.kind() == io::ErrorKind::NotFound => Attempt::Lost,
        Err(error) => Attempt::Refused(error.to_string()),
    }
}

fn hash_of(place: &Path) -> io::Result<ContentHash> {
    Ok(ContentHash::of(&std::fs::read(place)?))
}

/// Renames a file to a place where there is nothing, or a directory without files;
/// `false` if the new place is taken.
fn rename_over_nothing(from: &Path, to: &Path) -> io::Result<bool> {
    if rename_to_free(from, to)? {
        return Ok(true);
    }
    if !to.symlink_metadata()?.is_dir() {
        return Ok(false);
    }
    remove_empty_directory(to)?;
    rename_to_free(from, to)
}

/// Removes a directory without files, with the directories below it.
fn remove_empty_directory(directory: &Path) -> io::Result<()> {
    for entry in directory.read_dir()? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            remove_empty_directory(&entry.path())?;
        }
    }
    std::fs::remove_dir(directory)
}

/// Renames a file; `false` if the new place is taken.
fn rename_to_free(from: &Path, to: &Path) -> io::Result<bool> {
    match renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE) {
        Ok(()) => {}
        Err(Errno::EXIST) => return Ok(false),
        Err(Errno::INVAL | Errno::NOSYS | Errno::NOTSUP) => {
            if to.symlink_metadata().is_ok() {
                return Ok(false);
            }
            std::fs::rename(from, to)?;
        }
        Err(error) => return Err(error.into()),
    }
    // Best effort: without it, a power failure may undo the rename, not the content.
    if let Some(parent) = to.parent() {
        let _ = File::open(parent).and_then(|parent| parent.sync_all());
    }
    Ok(true)
}

fn remove_if_exists(file: &Path) -> io::Result<()> {
    match std::fs::remove_file(file) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}
