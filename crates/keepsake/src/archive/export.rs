//! `keepsake export`

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, DirBuilder};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use futures::stream::{FuturesUnordered, StreamExt};
use indicatif::{HumanBytes, HumanCount};
use jiff::Timestamp;
use keepsake_archive::format::{
    BLOBS, Entry, FORMAT, FORMAT_VERSION, Hashing, INDEX, MANIFEST, MEMORIES, Manifest, VERSIONS, write_lines,
};
use keepsake_archive::index::Index;
use keepsake_config::{Failure, FailureClass};
use keepsake_core::{ContentHash, MemoryPath};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::folder::Folder;
use super::history;
use super::packed::{self, Packed};
use super::progress::Progress;
use crate::cli::ExportArgs;
use crate::data_dir::unusable;
use crate::open_folder::Access;
use crate::output::{notice, printable};
use crate::people::{StoreConnection, failure_of};
use crate::whole_store::{self, Read, Reader, WRONG_HASH};

/// In the folder of an unfinished export; names the store.
const MARKER: &str = "export.json";
/// The end of the name of an unfinished export's folder.
const PARTIAL: &str = ".partial";
const MAX_READS_IN_FLIGHT: usize = 8;

/// Writes a memory store into an archive. After a failure, the same command continues.
/// Fails also if a memory was left out.
pub(crate) async fn run(args: ExportArgs) -> Result<(), Failure> {
    let connection = StoreConnection::open(&args.store).await?;
    let written = write_to(&connection, &args.target, args.versions, Access::ByUmask).await?;
    let counts = written.manifest.counts;
    let kind = if packed::is_packed(&args.target) { "" } else { "the folder " };
    connection.printer.done(&json!(written.manifest), || {
        format!(
            "exported {} memories ({}) to {kind}{}\n",
            HumanCount(counts.memories),
            HumanBytes(counts.content_bytes),
            args.target.display()
        )
    })?;
    written.result()
}

pub(super) struct Exported {
    pub(super) manifest: Manifest,
    /// Memories that were left out.
    refused: usize,
    /// Older versions without their content.
    missing: usize,
}

impl Exported {
    /// Fails if memories, or contents of versions, were left out.
    pub(super) fn result(&self) -> Result<(), Failure> {
        match (self.refused, self.missing) {
            (0, 0) => Ok(()),
            (refused, 0) => Err(Failure::new(format!("{refused} memories were left out"))),
            (refused, missing) => Err(Failure::new(format!(
                "{refused} memories and the contents of {missing} older versions were left out"
            ))),
        }
    }
}

/// Writes the archive, or continues to write it. A memory whose path is invalid is left
/// out.
pub(super) async fn write_to(
    connection: &StoreConnection,
    target: &Path,
    has_versions: bool,
    access: Access,
) -> Result<Exported, Failure> {
    let store = connection
        .client
        .get::<Map<String, Value>>(&connection.path(&[]), &[])
        .await
        .map_err(failure_of("the memory store cannot be read"))?;
    let partial = partial_of(target);
    let mut folder = open_partial(target, &partial, &connection.store_id, access)?;
    let total = store["memory_count"].as_u64().unwrap_or_default();
    let memories = Memories::read(connection, &mut folder, total).await?;
    let index = &memories.index;
    let versions = if has_versions {
        Some(history::read(connection, &mut folder, &index.contents(), &memories.refused).await?)
    } else {
        None
    };
    let counts = index.counts(versions.as_ref().map_or(0, |versions| versions.count));
    let of_versions = versions.as_ref().map(|versions| versions.missing.clone()).unwrap_or_default();
    let (refused, missing) = (memories.refused.len(), of_versions.len());
    let left_out = memories.refused.values().cloned().chain(of_versions).collect();
    let mut files = index.files();
    let past = versions.iter().flat_map(|versions| &versions.blobs);
    let past: BTreeSet<_> = past.filter(|blob| !files.contains_key(*blob)).cloned().collect();
    let current: Vec<_> = files.clone().into_iter().collect();
    files.extend(past.iter().map(|blob| (blob.clone(), 0)));
    remove_others(&folder, &files)?;
    let files: Vec<_> = current.into_iter().chain(past.into_iter().map(|blob| (blob, 0))).collect();
    let manifest = Manifest {
        format: FORMAT.to_owned(),
        version: FORMAT_VERSION,
        exported_at: Timestamp::now().to_string(),
        store,
        counts,
        index_sha256: write_list(&folder, INDEX, index.entries())?,
        versions_sha256: versions.map(|versions| versions.sha256),
        left_out,
    };
    folder.write(MANIFEST, manifest.to_text().as_bytes())?;
    finish(&folder, target, manifest.versions_sha256.is_some(), &files)?;
    Ok(Exported { manifest, refused, missing })
}

/// Whether a folder is an export that was stopped.
pub(super) fn is_unfinished(folder: &Folder) -> bool {
    folder.open_file(MARKER).is_ok()
}

fn partial_of(target: &Path) -> PathBuf {
    let mut name = target.as_os_str().to_owned();
    name.push(PARTIAL);
    PathBuf::from(name)
}

#[derive(Serialize, Deserialize)]
struct Marker {
    memory_store_id: String,
}

/// Creates the folder of an unfinished export, or opens the one of an earlier run.
fn open_partial(target: &Path, partial: &Path, store_id: &str, access: Access) -> Result<Folder, Failure> {
    let conflict = |text: String| Err(Failure::of_class(FailureClass::Conflict, text));
    if fs::symlink_metadata(target).is_ok() {
        return conflict(format!("{} exists: choose another name", target.display()));
    }
    match DirBuilder::new().mode(access.directory_mode()).create(partial) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        made => made.map_err(unusable(partial))?,
    }
    let is_folder = fs::symlink_metadata(partial).map_err(unusable(partial))?.is_dir();
    let taken =
        || format!("{} exists and is not an unfinished export: choose another name", partial.display());
    if !is_folder {
        return conflict(taken());
    }
    let mut folder = Folder::open(partial, access)?;
    let is_empty = fs::read_dir(partial).map_err(unusable(partial))?.next().is_none();
    if is_empty {
        let marker = json!({"memory_store_id": store_id});
        folder.write(MARKER, marker.to_string().as_bytes())?;
        return Ok(folder);
    }
    let marker = folder.read(MARKER, 1 << 10).ok();
    match marker.and_then(|marker| serde_json::from_slice::<Marker>(&marker).ok()) {
        Some(marker) if marker.memory_store_id == store_id => Ok(folder),
        Some(marker) => conflict(format!(
            "{} is an unfinished export of {}: remove it or choose another name",
            partial.display(),
            marker.memory_store_id
        )),
        None => conflict(taken()),
    }
}

/// A memory as the API shows it.
#[derive(Deserialize)]
struct Shown {
    id: String,
    memory_version_id: String,
    path: String,
    content: Option<String>,
    content_sha256: String,
    content_size_bytes: u64,
    created_at: String,
    updated_at: String,
    /// The memory's own expiry time; `expires_at` of the API may be the end of the
    /// store's period.
    #[serde(default)]
    expiry_time: Option<String>,
    #[serde(default)]
    pinned: Option<bool>,
}

/// The memories whose contents are in the folder.
#[derive(Default)]
struct Memories {
    index: Index,
    /// Why memories are left out, by id: their path is invalid, or their content is
    /// missing.
    refused: BTreeMap<String, String>,
}

/// Reads the memories of a store into a folder.
struct Reading<'a> {
    connection: &'a StoreConnection,
    folder: &'a mut Folder,
    /// The number of memories, for the progress.
    total: u64,
    memories: Memories,
}

impl Reader for Reading<'_> {
    async fn list(&mut self) -> Result<(), Failure> {
        self.memories = Memories::read_listed(self.connection, self.folder, self.total).await?;
        Ok(())
    }

    async fn read_again(&mut self, id: &str) -> Result<(), Failure> {
        let (client, store) = (&self.connection.client, self.connection.path(&[]));
        match whole_store::read(client, &store, id, "full").await? {
            Read::Memory(memory) => self.memories.write(self.folder, &memory, None)?,
            Read::Deleted => self.memories.index.remove(id),
            Read::ContentLost(reason) => self.memories.leave_out(id, &reason),
        }
        Ok(())
    }

    fn fits(&self) -> bool {
        !self.memories.index.has_displaced()
    }
}

impl Memories {
    /// Lists the store, and reads the contents that are not in the folder yet.
    async fn read(connection: &StoreConnection, folder: &mut Folder, total: u64) -> Result<Self, Failure> {
        let mut reading = Reading { connection, folder, total, memories: Self::default() };
        whole_store::read_all(&connection.client, &connection.path(&[]), &mut reading).await?;
        Ok(reading.memories)
    }

    /// The content and the hash of a memory are those of one answer.
    async fn read_listed(
        connection: &StoreConnection,
        folder: &mut Folder,
        total: u64,
    ) -> Result<Self, Failure> {
        let mut memories = Self::default();
        let mut progress = Progress::new("exported", total);
        let path = connection.path(&["memories"]);
        let mut pages = connection.client.pages(&path, &[]);
        let mut in_flight = FuturesUnordered::new();
        loop {
            let listed = pages.next::<Shown>().await;
            let listed = listed.map_err(failure_of("the memories cannot be listed"))?;
            let is_end = listed.is_none();
            if let Some(listed) = listed {
                let Some((name, hash)) = memories.place(&listed)? else {
                    progress.add(1);
                    continue;
                };
                if folder.has(&name, hash) {
                    memories.record(&listed, name);
                    progress.add(1);
                } else {
                    in_flight.push(fetch(connection, listed, name));
                }
            }
            while is_end || in_flight.len() >= MAX_READS_IN_FLIGHT {
                let Some(fetched) = in_flight.next().await else {
                    break;
                };
                progress.add(1);
                let Fetched { id, read, listed } = fetched?;
                match read {
                    Read::Memory(memory) => memories.write(folder, &memory, Some(listed))?,
                    Read::Deleted => {}
                    Read::ContentLost(reason) => memories.leave_out(&id, &reason),
                }
            }
            if is_end {
                return Ok(memories);
            }
        }
    }

    /// Leaves a memory out, and prints the reason once.
    fn leave_out(&mut self, id: &str, reason: &str) {
        self.index.remove(id);
        if self.refused.insert(id.to_owned(), format!("{id}: {reason}")).is_none() {
            notice(&format!("left out {}: {}", printable(id), printable(reason)));
        }
    }

    /// The file of a memory's content, and its hash. `None` if the memory is left out,
    /// because a wrong or hostile server named a path that leads elsewhere.
    fn place(&mut self, memory: &Shown) -> Result<Option<(String, ContentHash)>, Failure> {
        let path = match MemoryPath::parse(&memory.path) {
            Ok(path) => path,
            Err(error) => {
                self.leave_out(&memory.id, &format!("its path {} {error}", memory.path));
                return Ok(None);
            }
        };
        let hash = memory.content_sha256.parse();
        let hash = hash.map_err(Failure::of(format_args!("content_sha256 of {}", memory.id)))?;
        Ok(Some((self.index.file_of(&path, hash), hash)))
    }

    /// Writes a content that was read; `listed` has the path and the file that the memory
    /// had in a listing.
    fn write(
        &mut self,
        folder: &mut Folder,
        memory: &Shown,
        listed: Option<(String, String)>,
    ) -> Result<(), Failure> {
        let content = memory.content.as_deref().unwrap_or_default();
        if ContentHash::of(content.as_bytes()).to_string() != memory.content_sha256 {
            self.leave_out(&memory.id, &format!("{}: {WRONG_HASH}", memory.path));
            return Ok(());
        }
        // The listed file is used unless the memory moved since then. A blob is named by
        // its content, which may have changed.
        let listed = listed.filter(|(path, name)| *path == memory.path && !name.starts_with(BLOBS));
        let name = match listed {
            Some((_, name)) => name,
            None => match self.place(memory)? {
                Some((name, _)) => name,
                None => return Ok(()),
            },
        };
        folder.write(&name, content.as_bytes())?;
        self.record(memory, name);
        Ok(())
    }

    fn record(&mut self, memory: &Shown, name: String) {
        self.refused.remove(&memory.id);
        self.index.record(Entry {
            path: memory.path.clone(),
            id: memory.id.clone(),
            version_id: memory.memory_version_id.clone(),
            content_sha256: memory.content_sha256.clone(),
            size_bytes: memory.content_size_bytes,
            created_at: memory.created_at.clone(),
            updated_at: memory.updated_at.clone(),
            expires_at: memory.expiry_time.clone(),
            pinned: memory.pinned.unwrap_or_default(),
            file: name.starts_with(BLOBS).then_some(name),
        });
    }
}

struct Fetched {
    id: String,
    read: Read<Shown>,
    /// The path and the file that the memory had in the listing.
    listed: (String, String),
}

async fn fetch(connection: &StoreConnection, listed: Shown, name: String) -> Result<Fetched, Failure> {
    let store = connection.path(&[]);
    let read = whole_store::read(&connection.client, &store, &listed.id, "full").await?;
    Ok(Fetched { id: listed.id, read, listed: (listed.path, name) })
}

/// Writes a file of JSON lines; returns its hash.
fn write_list(
    folder: &Folder,
    name: &str,
    lines: impl Iterator<Item = impl Serialize>,
) -> Result<String, Failure> {
    let write = || -> io::Result<String> {
        let mut file = Hashing::new(BufWriter::new(folder.create_unnamed()?));
        write_lines(&mut file, lines)?;
        file.flush()?;
        folder.name_and_hash(file, name)
    };
    write().map_err(Failure::of(format_args!("{name} cannot be written")))
}

/// Removes the contents that an earlier run wrote and that no memory has any more.
fn remove_others(folder: &Folder, files: &BTreeMap<String, u64>) -> Result<(), Failure> {
    for directory in [MEMORIES, BLOBS] {
        for file in folder.files_below(directory)? {
            if !files.contains_key(&file) {
                folder.remove(&file)?;
            }
        }
    }
    Ok(())
}

/// Gives the complete archive its name.
fn finish(
    folder: &Folder,
    target: &Path,
    has_versions: bool,
    files: &[(String, u64)],
) -> Result<(), Failure> {
    let partial = folder.root();
    if packed::is_packed(target) {
        let lists = [Some(MANIFEST), Some(INDEX), has_versions.then_some(VERSIONS)];
        let lists = lists.into_iter().flatten().map(|name| (name, 0));
        let contents = files.iter().map(|(name, modified_at)| (name.as_str(), *modified_at));
        let packed_files = contents.chain(lists).map(|(name, modified_at)| Packed { name, modified_at });
        packed::pack(folder, packed_files, target)?;
        return fs::remove_dir_all(partial)
            .map_err(Failure::of(format_args!("{} cannot be removed", partial.display())));
    }
    fs::rename(partial, target)
        .and_then(|()| fs::remove_file(target.join(MARKER)))
        .map_err(Failure::of(format_args!("{} cannot be written", target.display())))
}
