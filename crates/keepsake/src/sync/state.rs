//! What both sides had at the last synchronisation, kept in the folder.

use std::collections::BTreeMap;
use std::fs::Metadata;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use jiff::Timestamp;
use keepsake_config::{Failure, cli::Result};
use keepsake_core::{ContentHash, MemoryId, MemoryPath, VersionId};
use keepsake_engine::ChangePlace;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

use super::lineage::Lineage;
use super::plan::{Base, KnownMemory};
use super::store::VersionState;
use crate::data_dir::{unusable, write_private_file};
use crate::open_folder::read_named;

/// The version of the file's format.
const FORMAT: u32 = 1;
/// File systems with coarse times may not show a change within this time.
const TIME_GRANULARITY_SECS: i64 = 2;

#[derive(Debug)]
pub(super) struct State {
    file: PathBuf,
    url: String,
    store_id: String,
    /// What both sides had at the last synchronisation.
    entries: BTreeMap<MemoryPath, Entry>,
    /// A place among the changes of the store that all versions of the entries are before.
    place: Option<ChangePlace>,
    /// Entries of the file that were left out, with the reason.
    ignored: Vec<(String, String)>,
    /// Whether the file is up to date with this value.
    is_saved: bool,
    exists: bool,
}

/// Attributes of a file that show that it is unchanged, without reading it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Hint {
    size_bytes: u64,
    inode: u64,
    /// Seconds and nanoseconds of the last change of the content.
    modified: (i64, i64),
    /// Seconds and nanoseconds of the last change of the content or the attributes.
    changed: (i64, i64),
}

impl Hint {
    pub(super) fn of(metadata: &Metadata) -> Self {
        Self {
            size_bytes: metadata.size(),
            inode: metadata.ino(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        }
    }

    /// Whether a later change of the file certainly changes the hint.
    pub(super) fn is_settled(&self, now: Timestamp) -> bool {
        self.modified.0.max(self.changed.0) + TIME_GRANULARITY_SECS < now.as_second()
    }
}

/// The file; `M` is a map of [`Entry`] by path.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct File<M> {
    format: u32,
    url: String,
    memory_store_id: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    place: Option<String>,
    memories: M,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    id: MemoryId,
    #[serde(deserialize_with = "parse_hash")]
    content_sha256: ContentHash,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    version_id: Option<VersionId>,
    /// Why the store does not have the version; `None`: it has it, or this was not looked up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    missing: Option<VersionState>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    file: Option<Hint>,
}

fn parse_hash<'de, D: Deserializer<'de>>(deserializer: D) -> Result<ContentHash, D::Error> {
    let hash = String::deserialize(deserializer)?.parse();
    hash.map_err(|error| D::Error::custom(format_args!("content_sha256 {error}")))
}

impl Entry {
    /// Parses the entry of a path; the error is the reason if the entry is malformed.
    fn parse(path: &str, entry: Value) -> Result<(MemoryPath, Self), String> {
        let path = MemoryPath::parse(path).map_err(|error| format!("the path {error}"))?;
        let entry = serde_json::from_value(entry).map_err(|error| error.to_string())?;
        Ok((path, entry))
    }

    fn known(&self) -> KnownMemory {
        KnownMemory { memory_id: self.id, hash: self.content_sha256, version_id: self.version_id }
    }
}

impl State {
    /// Reads the state; without a file nothing was synchronised.
    ///
    /// A malformed entry is left out, as if its file was never synchronised: the state may
    /// be older than a rule of paths. No edit is lost by that.
    pub(super) fn read(file: PathBuf, url: &str, store_id: &str) -> Result<Self> {
        let mut state = Self {
            url: url.to_owned(),
            store_id: store_id.to_owned(),
            entries: BTreeMap::new(),
            place: None,
            ignored: Vec::new(),
            is_saved: false,
            exists: false,
            file,
        };
        let anew = "remove it, and the next run compares both sides anew: it deletes nothing, and keeps both \
                    contents of a file that differs";
        // Refuses a named pipe: reading it would block until another process writes to it.
        let bytes = match read_named(&state.file, u64::MAX) {
            Ok(bytes) => bytes.unwrap_or_default(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(state),
            Err(error) if error.kind() == io::ErrorKind::NotADirectory => {
                return Err(unusable(state.file.parent().unwrap_or(&state.file))(error));
            }
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                return Err(state.failed("cannot be read")(error));
            }
            Err(error) => return Err(state.failed("cannot be read")(format_args!("{error}; {anew}"))),
        };
        let read: File<BTreeMap<String, Value>> = serde_json::from_slice(&bytes)
            .map_err(|error| state.failed("is damaged")(format_args!("{error}; {anew}")))?;
        if read.format != FORMAT {
            let other = format!("{}; use a newer keepsake, or {anew}", read.format);
            return Err(state.failed("is of another version")(other));
        }
        if read.url != url || read.memory_store_id != store_id {
            return Err(Failure::usage(format!(
                "the folder belongs to the memory store {} of {}, not to {store_id} of {url}; \
                     to use it with this one, remove {}",
                read.memory_store_id,
                read.url,
                state.file.display()
            )));
        }
        state.place = read.place.and_then(|place| place.parse().ok());
        for (path, entry) in read.memories {
            match Entry::parse(&path, entry) {
                Ok((path, entry)) => drop(state.entries.insert(path, entry)),
                Err(reason) => {
                    let reason = format!("{} has a malformed entry: {reason}", state.file.display());
                    state.ignored.push((path, reason));
                }
            }
        }
        (state.is_saved, state.exists) = (state.ignored.is_empty(), true);
        Ok(state)
    }

    fn failed<E: std::fmt::Display>(&self, what: &str) -> impl FnOnce(E) -> Failure + use<E> {
        Failure::of(format!("the state {} {what}", self.file.display()))
    }

    /// Replaces the file atomically, unless it is up to date.
    pub(super) fn save(&mut self) -> Result<()> {
        if self.is_saved {
            return Ok(());
        }
        let file = File {
            format: FORMAT,
            url: self.url.clone(),
            memory_store_id: self.store_id.clone(),
            place: self.place.map(|place| place.to_string()),
            memories: &self.entries,
        };
        let text = serde_json::to_string_pretty(&file).map_err(self.failed("cannot be written"))?;
        write_private_file(&self.file, &text).map_err(self.failed("cannot be written"))?;
        (self.is_saved, self.exists) = (true, true);
        Ok(())
    }

    /// Checks that the folder with the state still exists.
    pub(super) fn check_exists(&self) -> Result<()> {
        if self.exists && !self.file.exists() {
            return Err(Failure::new(format!(
                "{} is gone: the folder was removed or replaced; nothing was deleted in the store",
                self.file.display()
            )));
        }
        Ok(())
    }

    pub(super) fn ignored(&self) -> &[(String, String)] {
        &self.ignored
    }

    /// What both sides had at the last synchronisation.
    pub(super) fn base(&self) -> Base {
        self.entries.iter().map(|(path, entry)| (path.clone(), entry.known())).collect()
    }

    pub(super) fn known(&self, path: &MemoryPath) -> Option<KnownMemory> {
        self.entries.get(path).map(Entry::known)
    }

    pub(super) fn count(&self) -> usize {
        self.entries.len()
    }

    pub(super) fn lineage(&self) -> Lineage {
        let there = self.entries.values().filter(|entry| entry.missing.is_none());
        let versions = there.filter_map(|entry| entry.version_id);
        Lineage { newest: versions.max(), place: self.place }
    }

    /// Notes that all versions of the base are before a place among the changes of the
    /// store.
    pub(super) fn note_place(&mut self, place: ChangePlace) {
        self.is_saved &= self.place == Some(place);
        self.place = Some(place);
    }

    /// Notes the state of the version of a path of the base, if it is missing in the store.
    pub(super) fn note(&mut self, path: &MemoryPath, state: VersionState) {
        if let Some(entry) = self.entries.get_mut(path).filter(|_| state.is_missing()) {
            self.is_saved &= entry.missing == Some(state);
            entry.missing = Some(state);
        }
    }

    /// Why the version of a path of the base is missing in the store, if that was found.
    pub(super) fn missing(&self, path: &MemoryPath) -> Option<VersionState> {
        self.entries.get(path)?.missing
    }

    /// The hash of an unchanged file, without reading it.
    pub(super) fn hash_of_unchanged(&self, path: &MemoryPath, hint: &Hint) -> Option<ContentHash> {
        let entry = self.entries.get(path)?;
        (entry.file == Some(*hint)).then_some(entry.content_sha256)
    }

    /// Notes that both sides have `known` at the path.
    pub(super) fn record(&mut self, path: &MemoryPath, known: KnownMemory, file: Option<Hint>) {
        let KnownMemory { memory_id: id, hash: content_sha256, version_id } = known;
        self.entries.insert(path.clone(), Entry { id, content_sha256, version_id, missing: None, file });
        // The version may be after the place.
        self.place = None;
        self.is_saved = false;
    }

    /// Notes that neither side has the path, or that it is no longer synchronised.
    pub(super) fn forget(&mut self, path: &MemoryPath) {
        if self.entries.remove(path).is_some() {
            self.is_saved = false;
        }
    }

    /// Notes that both sides moved from one path to another.
    pub(super) fn rename(&mut self, from: &MemoryPath, to: &MemoryPath) {
        if let Some(entry) = self.entries.remove(from) {
            self.entries.insert(to.clone(), Entry { file: None, ..entry });
            self.is_saved = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "mem_00000000000000000000000001";
    const VERSION_ID: &str = "memver_00000000000000000000000001";

    fn state(folder: &tempfile::TempDir) -> Result<State> {
        State::read(folder.path().join("state.json"), "http://a", "memstore_1")
    }

    #[test]
    fn state_is_refused_for_another_store() {
        let folder = tempfile::tempdir().unwrap();
        let mut written = state(&folder).unwrap();
        let path = MemoryPath::parse("/a.md").unwrap();
        let known = KnownMemory {
            memory_id: ID.parse().unwrap(),
            hash: ContentHash::of(b"a"),
            version_id: Some(VERSION_ID.parse().unwrap()),
        };
        let hint = Hint::of(&folder.path().metadata().unwrap());
        written.record(&path, known, Some(hint));
        written.save().unwrap();
        let read = state(&folder).unwrap();
        assert_eq!(read.base(), written.base());
        assert_eq!(read.hash_of_unchanged(&path, &hint), Some(known.hash));
        let file = folder.path().join("state.json");
        for (url, store) in [("http://b", "memstore_1"), ("http://a", "memstore_2")] {
            let refused = State::read(file.clone(), url, store).unwrap_err();
            assert_eq!(refused.exit_code(), 2);
            assert!(refused.to_string().contains("http://a"), "{refused}");
        }
        written.forget(&path);
        written.save().unwrap();
        assert!(state(&folder).unwrap().base().is_empty());
        std::fs::remove_file(&file).unwrap();
        assert!(read.check_exists().is_err());
    }

    #[test]
    fn damaged_state_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let other = br#"{"format":2,"url":"","memory_store_id":"","memories":{}}"#;
        for text in [b"" as &[u8], b"{}", other, b"\xff"] {
            std::fs::write(folder.path().join("state.json"), text).unwrap();
            let refused = state(&folder).unwrap_err().to_string();
            assert!(refused.contains("state.json") && refused.contains("remove it"), "{refused}");
        }
        let file = folder.path().join("state.json");
        std::fs::remove_file(&file).unwrap();
        std::process::Command::new("mkfifo").arg(&file).status().unwrap();
        assert!(state(&folder).unwrap_err().to_string().contains("is not a regular file; remove it"));
    }

    #[test]
    fn malformed_entry_is_left_out_and_the_others_are_kept() {
        let folder = tempfile::tempdir().unwrap();
        let hash = ContentHash::of(b"a").to_string();
        let good = serde_json::json!({"id": ID, "content_sha256": hash});
        let text = serde_json::json!({
            "format": FORMAT, "url": "http://a", "memory_store_id": "memstore_1",
            "memories": {
                "/a.md": good, "../proj/x.py": good, "/../y": good,
                "/b.md": {"id": "mem_x", "content_sha256": hash},
                "/c.md": {"id": ID, "content_sha256": "x"},
            },
        });
        std::fs::write(folder.path().join("state.json"), text.to_string()).unwrap();
        let mut read = state(&folder).unwrap();
        let base = read.base();
        let kept: Vec<_> = base.keys().map(MemoryPath::as_str).collect();
        assert_eq!(kept, ["/a.md"]);
        let ignored: Vec<_> = read.ignored().iter().map(|(path, _)| path.as_str()).collect();
        assert_eq!(ignored, ["../proj/x.py", "/../y", "/b.md", "/c.md"]);
        read.save().unwrap();
        assert!(state(&folder).unwrap().ignored().is_empty());
    }
}
