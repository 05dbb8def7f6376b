//! Changes of single files.
//!
//! A file leaves its place only by a rename into a private folder, where its content
//! is checked; a file that was edited in the last moment is put back, or beside.
//! Names in that folder tell a later run which contents the store has.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use jiff::{SignedDuration, Timestamp};
use keepsake_archive::format::MAX_CONTENT_BYTES;
use keepsake_core::{ContentHash, MemoryPath};
use rustix::fs::RenameFlags;
use rustix::io::Errno;

use super::super::PRIVATE_FOLDER;
use super::super::plan::conflict_path;
use super::super::store::NotDone;
use super::Folder;
use crate::data_dir::name_of_time;
use crate::open_folder::{Access, FolderEntry, OpenFolder, if_there};
use crate::output::notice;

/// Files on their way into the folder or out of it.
const SWAP: &str = "swap";
/// Contents that were removed though it is not known whether the store has had them. Their
/// names begin with the time.
const REMOVED: &str = "removed";
/// Characters of the hash in the name of a removed content.
const HASH_CHARS: usize = 12;
/// Characters of the file's name in the name of a removed content, at most four bytes
/// each.
const MAX_NAME_CHARS: usize = 50;
const REMOVED_KEPT_FOR: SignedDuration = SignedDuration::from_hours(30 * 24);
/// A download that is not complete.
const INCOMING: &str = "incoming";
/// Edits that a killed run left in the private folder are kept beside this path.
const RECOVERED: &str = "/recovered.md";

impl Folder {
    fn opened(&self) -> io::Result<&OpenFolder> {
        let read_only = || io::Error::other("the folder is only looked at");
        self.opened.as_ref().ok_or_else(read_only)
    }

    fn private(&self, name: &str) -> io::Result<FolderEntry> {
        self.opened()?.entry(Path::new(PRIVATE_FOLDER).join(name))
    }

    /// The file of a path. Its directories must exist.
    fn entry(&self, path: &MemoryPath) -> io::Result<FolderEntry> {
        self.opened()?.entry(self.place(path))
    }

    /// The file of a path. Makes its directories.
    fn new_entry(&self, path: &MemoryPath) -> io::Result<FolderEntry> {
        self.opened()?.make_entry(self.place(path), Access::ByUmask)
    }

    /// The place of a path on the disk, relative to the folder.
    fn place(&self, path: &MemoryPath) -> PathBuf {
        let text = path.as_str();
        let mut end = text.len();
        loop {
            if let Some(place) = self.places.get(&text[..end]) {
                let rest = text[end..].trim_start_matches('/');
                return if rest.is_empty() { place.clone() } else { place.join(rest) };
            }
            match text[..end].rfind('/') {
                Some(slash) if slash > 0 => end = slash,
                _ => return PathBuf::from(text.trim_start_matches('/')),
            }
        }
    }

    /// Cleans up after a run that was killed; returns whether the file system ignores
    /// case.
    pub(super) fn recover(&self) -> io::Result<bool> {
        let swap = Path::new(PRIVATE_FOLDER).join(SWAP);
        let swap = self.opened()?.make_entry(swap, Access::OwnerOnly)?;
        swap.make_directory(Access::OwnerOnly)?;
        let swap = swap.open_folder()?;
        self.private(INCOMING)?.remove_file_if_exists()?;
        for name in swap.names()? {
            let left = swap.entry(&name)?;
            let hash = hash_of(&left)?;
            if hash.is_some_and(|hash| name.to_string_lossy().contains(&hash.to_string())) {
                left.remove_file()?;
            } else {
                let recovered = MemoryPath::parse(RECOVERED).map_err(io::Error::other)?;
                self.keep_beside(&left, &recovered)?;
            }
        }
        self.drop_old_removed()?;
        let case = self.private("case")?;
        case.remove_file_if_exists()?;
        case.create_new(Access::OwnerOnly)?;
        let ignores_case = self.private("CASE")?.stat().is_ok();
        case.remove_file_if_exists()?;
        Ok(ignores_case)
    }

    /// From now on, removed contents stay in the private folder for some time, if there
    /// is a reason.
    pub(in crate::sync) fn keep_removed(&mut self, why: Option<&'static str>) {
        if let Some(why) = why.filter(|_| self.keeps_removed != why) {
            notice(&format!(
                "{why}: files deleted or replaced in the folder stay in {PRIVATE_FOLDER}/{REMOVED} for 30 days"
            ));
        }
        self.keeps_removed = why;
    }

    /// Keeps a file that was taken from `path`, and drops old ones.
    fn keep(&self, taken: &FolderEntry, path: &MemoryPath, hash: ContentHash) -> io::Result<()> {
        let name = path.as_str().rsplit('/').next().unwrap_or_default();
        let name: String = name.chars().take(MAX_NAME_CHARS).collect();
        let hash = hash.to_string();
        let name = format!("{REMOVED}/{}-{}-{name}", time(), &hash[..HASH_CHARS]);
        let kept = Path::new(PRIVATE_FOLDER).join(name);
        taken.rename(&self.opened()?.make_entry(kept, Access::OwnerOnly)?)?;
        self.drop_old_removed()
    }

    fn drop_old_removed(&self) -> io::Result<()> {
        let Some(removed) = if_there(self.private(REMOVED)?.open_folder())? else { return Ok(()) };
        let oldest = name_of_time(Timestamp::now() - REMOVED_KEPT_FOR);
        for name in removed.names()? {
            let entry = removed.entry(&name)?;
            if *name < *OsStr::new(&oldest) && entry.is_file()? {
                entry.remove_file()?;
            }
        }
        Ok(())
    }

    /// The text of a file that still has the expected content.
    pub(in crate::sync) fn read(&self, path: &MemoryPath, expected: ContentHash) -> Result<String, NotDone> {
        match self.entry(path).and_then(|entry| entry.read(self.limit_bytes)) {
            Ok(Some(bytes)) if ContentHash::of(&bytes) == expected => {
                String::from_utf8(bytes).map_err(|_| NotDone::Lost)
            }
            _ => Err(NotDone::Lost),
        }
    }

    /// Whether no file is at a path; a directory may be there.
    pub(in crate::sync) fn has_no_file(&self, path: &MemoryPath) -> bool {
        match self.entry(path).and_then(|entry| entry.is_directory()) {
            Ok(is_directory) => is_directory,
            // Below a file there can be nothing.
            Err(error) => matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory),
        }
    }

    /// Writes a file, if the path still is free or has the expected content.
    pub(in crate::sync) fn write(
        &self,
        path: &MemoryPath,
        content: &str,
        replaces: Option<ContentHash>,
    ) -> Result<(), NotDone> {
        classify(match replaces {
            Some(expected) => self.try_replace(path, content, expected),
            None => self.try_create(path, content),
        })
    }

    fn try_create(&self, path: &MemoryPath, content: &str) -> io::Result<bool> {
        let entry = self.new_entry(path)?;
        let staged = self.stage(content, None)?;
        let placed = rename_over_nothing(&staged, &entry);
        staged.remove_file_if_exists()?;
        placed
    }

    fn try_replace(&self, path: &MemoryPath, content: &str, expected: ContentHash) -> io::Result<bool> {
        let entry = self.entry(path)?;
        let before = entry.stat()?;
        if !entry.is_file()? || hash_of(&entry)? != Some(expected) {
            return Ok(false);
        }
        // A later run removes files from the private folder only if the store surely had them.
        let known = self.keeps_removed.is_none().then_some(expected);
        let staged = self.stage(content, known)?;
        staged.set_mode_of(&before)?;
        match staged.rename_with(&entry, RenameFlags::EXCHANGE) {
            Ok(()) => self.drop_if_known(&staged, path, expected).map(|_| true),
            Err(Errno::INVAL | Errno::NOSYS | Errno::NOTSUP) => {
                let is_placed = self.try_delete(path, expected)? && rename_to_free(&staged, &entry)?;
                staged.remove_file_if_exists()?;
                Ok(is_placed)
            }
            Err(error) => {
                staged.remove_file_if_exists()?;
                Err(error.into())
            }
        }
    }

    /// Deletes a file that still has the expected content, with directories that
    /// become empty.
    pub(in crate::sync) fn delete(&self, path: &MemoryPath, expected: ContentHash) -> Result<(), NotDone> {
        self.left(path, self.try_delete(path, expected))
    }

    fn try_delete(&self, path: &MemoryPath, expected: ContentHash) -> io::Result<bool> {
        let entry = self.entry(path)?;
        if !entry.is_file()? || hash_of(&entry)? != Some(expected) {
            return Ok(false);
        }
        let taken = if self.keeps_removed.is_some() {
            // A new name each time: a file that an earlier error left in the private
            // folder is not replaced.
            let of_path = ContentHash::of(path.as_str().as_bytes()).to_string();
            self.private(&format!("{SWAP}/{}-{}", time(), &of_path[..HASH_CHARS]))?
        } else {
            let taken = self.swap_entry(expected, None)?;
            taken.remove_file_if_exists()?;
            taken
        };
        entry.rename(&taken)?;
        self.drop_if_known(&taken, path, expected)
    }

    /// Moves a file to a free path.
    pub(in crate::sync) fn rename(&self, from: &MemoryPath, to: &MemoryPath) -> Result<(), NotDone> {
        self.left(from, self.try_rename(from, to))
    }

    /// Removes directories that are empty after a file has left its path.
    fn left(&self, path: &MemoryPath, done: io::Result<bool>) -> Result<(), NotDone> {
        if matches!(done, Ok(true)) {
            self.remove_empty_parents(&self.place(path));
        }
        classify(done)
    }

    fn try_rename(&self, from: &MemoryPath, to: &MemoryPath) -> io::Result<bool> {
        let to = self.new_entry(to)?;
        let from = self.entry(from)?;
        // On a file system that ignores case, the two names may be those of one file.
        let is_itself = match (from.stat(), to.stat()) {
            (Ok(from), Ok(to)) => self.ignores_case && (from.st_dev, from.st_ino) == (to.st_dev, to.st_ino),
            _ => false,
        };
        if is_itself { from.rename(&to).map(|()| true) } else { rename_over_nothing(&from, &to) }
    }

    /// Writes a complete file in the private folder.
    fn stage(&self, content: &str, replaces: Option<ContentHash>) -> io::Result<FolderEntry> {
        let incoming = self.private(INCOMING)?;
        incoming.remove_file_if_exists()?;
        // As any program in this folder would create it: the umask decides.
        let mut file = incoming.create_new(Access::ByUmask)?;
        file.write_all(content.as_bytes())?;
        // After a power failure, an empty file would look like an edit.
        file.sync_all()?;
        let staged = self.swap_entry(ContentHash::of(content.as_bytes()), replaces)?;
        incoming.rename(&staged)?;
        Ok(staged)
    }

    /// A file in the private folder whose name has the hashes of contents that the store
    /// has.
    fn swap_entry(&self, one: ContentHash, other: Option<ContentHash>) -> io::Result<FolderEntry> {
        let other = other.map_or_else(String::new, |other| format!("-{other}"));
        self.private(&format!("{SWAP}/{one}{other}"))
    }

    /// Removes a file that was taken from `path` if it has the expected content; else
    /// keeps it at `path` or beside it, and returns `false`.
    pub(super) fn drop_if_known(
        &self,
        taken: &FolderEntry,
        path: &MemoryPath,
        expected: ContentHash,
    ) -> io::Result<bool> {
        if hash_of(taken)? == Some(expected) {
            if self.keeps_removed.is_some() {
                self.keep(taken, path, expected)?;
            } else {
                taken.remove_file()?;
            }
            return Ok(true);
        }
        if !rename_to_free(taken, &self.entry(path)?)? {
            self.keep_beside(taken, path)?;
        }
        Ok(false)
    }

    /// Moves a file out of the private folder, to a free name beside `path`.
    fn keep_beside(&self, taken: &FolderEntry, path: &MemoryPath) -> io::Result<()> {
        let mut tried = BTreeSet::new();
        loop {
            let kept_as = conflict_path(path, path, &time(), &tried);
            if rename_to_free(taken, &self.new_entry(&kept_as)?)? {
                return Ok(());
            }
            tried.insert(kept_as);
        }
    }

    fn remove_empty_parents(&self, place: &Path) {
        let above = place.ancestors().skip(1);
        for directory in above.take_while(|above| !above.as_os_str().is_empty()) {
            let entry = self.opened().and_then(|opened| opened.entry(directory));
            if entry.and_then(|entry| entry.remove_directory()).is_err() {
                return;
            }
        }
    }
}

/// The current time for the name of a kept file.
pub(in crate::sync) fn time() -> String {
    name_of_time(Timestamp::now())
}

fn classify(done: io::Result<bool>) -> Result<(), NotDone> {
    match done {
        Ok(true) => Ok(()),
        Ok(false) => Err(NotDone::Lost),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Err(NotDone::Lost),
        Err(error) => Err(NotDone::Refused(error.to_string())),
    }
}

/// The hash of a file; `None` if it is larger than any memory.
fn hash_of(entry: &FolderEntry) -> io::Result<Option<ContentHash>> {
    Ok(entry.read(MAX_CONTENT_BYTES)?.map(|bytes| ContentHash::of(&bytes)))
}

/// Renames a file to a place where there is nothing, or a directory without files;
/// `false` if the new place is taken.
fn rename_over_nothing(from: &FolderEntry, to: &FolderEntry) -> io::Result<bool> {
    if rename_to_free(from, to)? {
        return Ok(true);
    }
    if !to.is_directory()? {
        return Ok(false);
    }
    to.remove_directories()?;
    rename_to_free(from, to)
}

/// Renames a file; `false` if the new place is taken.
fn rename_to_free(from: &FolderEntry, to: &FolderEntry) -> io::Result<bool> {
    match from.rename_with(to, RenameFlags::NOREPLACE) {
        Ok(()) => {}
        Err(Errno::EXIST) => return Ok(false),
        Err(Errno::INVAL | Errno::NOSYS | Errno::NOTSUP) => {
            if to.stat().is_ok() {
                return Ok(false);
            }
            from.rename(to)?;
        }
        Err(error) => return Err(error.into()),
    }
    // Best effort: without it, a power failure may undo the rename, not the content.
    let _ = to.sync_directory();
    Ok(true)
}
