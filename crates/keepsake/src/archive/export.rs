//! `keepsake export`: receives the archive that the server makes.

use std::fs::{self, File, TryLockError};
use std::io::{self, BufWriter, Cursor, Read, Write};
use std::path::{Path, PathBuf};

use keepsake_archive::Damage;
use keepsake_archive::format::{INDEX, MANIFEST, Manifest, VERSIONS};
use keepsake_archive::verified::{Prefix, read_manifest, verify};
use keepsake_config::{Failure, cli::Result};
use keepsake_core::words;
use rustix::fs::fstat;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::ExportArgs;
use super::folder::Folder;
use super::packed::{Contents, UnpackedArchive, is_packed};
use super::report::Progress;
use crate::cli::MomentArgs;
use crate::data_dir::{unusable, with_suffix};
use crate::open_folder::{Access, FolderEntry, OpenFolder, if_there, read_at_most};
use crate::output::{Printer, counted, notice, printable};
use crate::people::{failure_of, open_store};
use crate::store_api::StoreApi;

/// In the folder of an unfinished export, whose process locks it; names the store.
const MARKER: &str = "export.json";
/// The archive, if it is one file, in the folder of an unfinished export.
const PACKED: &str = "archive.tar.zst";
/// The end of the name of an unfinished export's folder.
const PARTIAL: &str = ".partial";
/// Parts of an archive between the connection and the disk.
const MAX_PARTS_WAITING: usize = 16;
const MAX_MARKER_BYTES: u64 = 1 << 10;

/// Ends of the names of archives of other kinds.
const OTHER_KINDS: [&str; 6] = [".tar", ".tar.gz", ".tgz", ".tar.xz", ".zip", ".zst"];

/// Writes a memory store into an archive. Fails also if a memory was left out.
pub(crate) async fn run(args: ExportArgs) -> Result<()> {
    // A slash at the end, as of `folder/`, is no part of a name.
    let target: PathBuf = args.target.components().collect();
    let name = target.to_string_lossy().to_lowercase();
    if name == "-" {
        return Err(Failure::usage(
            "an archive is not written to stdout: name a folder, or a file whose name ends in .tar.zst",
        ));
    }
    if !is_packed(&target) && OTHER_KINDS.iter().any(|end| name.ends_with(end)) {
        return Err(Failure::usage(format!(
            "{} was not written: an archive is a folder, or a file whose name ends in .tar.zst",
            target.display()
        )));
    }
    let store = open_store(&args.store).await?.for_backup();
    let manifest = write_to(&store, &target, args.versions, &args.moment).await?;
    let counts = manifest.counts;
    let kind = if is_packed(&target) { "" } else { "the folder " };
    Printer::new(args.store.connection.output.output).done(&json!(manifest), || {
        format!(
            "exported {} ({}) to {kind}{}\n",
            counted(counts.memories, "memory"),
            words::bytes(counts.content_bytes),
            target.display()
        )
    })?;
    require_whole(&manifest.left_out)
}

/// Fails if memories, or contents of versions, were left out. One entry may stand for many of them.
pub(super) fn require_whole(left_out: &[String]) -> Result<()> {
    if left_out.is_empty() {
        return Ok(());
    }
    Err(Failure::new("memories or contents of older versions were left out"))
}

/// Receives the archive of a store, and verifies it before it gets its name.
async fn write_to(
    store: &StoreApi,
    target: &Path,
    has_versions: bool,
    moment: &MomentArgs,
) -> Result<Manifest> {
    // Nobody knows how many memories there were.
    let total = if moment.is_past() { 0 } else { memory_count(store).await? };
    let partial = PartialExport::make(target, &store.id, Access::ByUmask)?;
    let folder = Folder::open(&partial.path, Access::ByUmask)?;
    let (owned_target, store_id) = (target.to_owned(), store.id.clone());
    let require = move |manifest: &Manifest| require_asked_for(manifest, &store_id, has_versions);
    let write = move |received| write(received, folder, &owned_target, total, require);
    let received = receive(store, has_versions, moment, write).await;
    if received.is_err() {
        // The archive is incomplete or damaged, so no part of it is kept.
        let _ = partial.remove();
    }
    let manifest = received?;
    if is_packed(target) {
        let removed = partial.remove();
        removed.map_err(Failure::of(format_args!("{} cannot be removed", partial.path.display())))?;
    }
    for reason in &manifest.left_out {
        notice(&format!("left out: {}", printable(reason)));
    }
    Ok(manifest)
}

/// Fails if a server sent the archive of another store, or one with or without versions.
pub(super) fn require_asked_for(
    manifest: &Manifest,
    store_id: &str,
    has_versions: bool,
) -> Result<(), Damage> {
    let id = manifest.store.get("id").and_then(Value::as_str);
    if id == Some(store_id) && manifest.versions_sha256.is_some() == has_versions {
        return Ok(());
    }
    Err(Damage("it is not the archive that was asked for".to_owned()))
}

/// The number of memories of a store; 0 if the server does not say it.
pub(super) async fn memory_count(store: &StoreApi) -> Result<u64> {
    let store = store.get::<Value>(&[], &[]).await;
    let store = store.map_err(failure_of("the memory store cannot be read"))?;
    Ok(store["memory_count"].as_u64().unwrap_or_default())
}

/// Receives an archive, which `write` reads on another thread.
pub(super) async fn receive<T: Send + 'static>(
    store: &StoreApi,
    has_versions: bool,
    moment: &MomentArgs,
    write: impl FnOnce(ReceivedArchive) -> Result<T> + Send + 'static,
) -> Result<T> {
    let [at, at_seq] = moment.query();
    let query = [("versions", has_versions.then_some("true")), at, at_seq];
    let download = store.client.download(&store.path(&["export"]), &query).await;
    let mut download = download.map_err(failure_of("the memory store cannot be exported"))?;
    let (sender, parts) = mpsc::channel(MAX_PARTS_WAITING);
    let received = ReceivedArchive { parts, part: Cursor::default() };
    let writing = tokio::task::spawn_blocking(move || write(received));
    let broken_off = loop {
        match download.next().await {
            // A writer that fails gets no further part.
            Ok(Some(part)) if sender.send(part.to_vec()).await.is_ok() => {}
            Ok(_) => break None,
            Err(error) => break Some(error),
        }
    };
    drop(sender);
    let written = writing.await.map_err(Failure::of("the archive cannot be written"))?;
    let failed = failure_of("the export was broken off, the same command begins again");
    written.map_err(|failure| broken_off.map_or(failure, failed))
}

/// Whether a folder is an export that was stopped.
pub(super) fn is_unfinished(folder: &Folder) -> bool {
    folder.read(MARKER, MAX_MARKER_BYTES).is_ok_and(|text| is_marker(&text))
}

fn is_marker(text: &[u8]) -> bool {
    serde_json::from_slice::<Value>(text).is_ok_and(|marker| marker["memory_store_id"].is_string())
}

/// The name of an unfinished export's folder. There may be something else of this name.
fn entry_of(partial: &Path) -> io::Result<FolderEntry> {
    let parent = partial.parent().filter(|parent| !parent.as_os_str().is_empty());
    let parent = OpenFolder::open(parent.unwrap_or(Path::new(".")))?;
    parent.entry(partial.file_name().unwrap_or_default())
}

/// The folder of an unfinished export, which is that of this process as long as it holds the
/// lock of the marker.
struct PartialExport {
    path: PathBuf,
    marker: File,
}

impl PartialExport {
    /// Creates the folder, or empties that of an export that was stopped.
    fn make(target: &Path, store_id: &str, access: Access) -> Result<Self> {
        let path = with_suffix(target, PARTIAL);
        let exists = || Failure::conflict(format!("{} exists: choose another name", target.display()));
        let refused = |reason: &str| {
            Failure::conflict(format!("{} exists and {reason}: choose another name", path.display()))
        };
        let in_use = || refused("another export writes it");
        let foreign = || refused("is not an unfinished export");
        if fs::symlink_metadata(target).is_ok() {
            return Err(exists());
        }
        let entry = entry_of(&path).map_err(unusable(&path))?;
        entry.make_directory(access).map_err(unusable(&path))?;
        if !entry.is_directory().map_err(unusable(&path))? {
            return Err(foreign());
        }
        let folder = entry.open_folder().map_err(unusable(&path))?;
        let names = folder.names().map_err(unusable(&path))?;
        // An export may have been stopped before it wrote anything.
        if !names.is_empty() {
            let marker = folder.entry(MARKER).and_then(|marker| marker.open());
            let marker = marker.map_err(|_| foreign())?;
            let marker = lock(&folder, marker).map_err(unusable(&path))?.ok_or_else(in_use)?;
            let text = read_at_most(&marker, MAX_MARKER_BYTES).map_err(unusable(&path))?;
            let is_ours = match text.as_deref() {
                // The export was stopped before it wrote the text of the marker.
                Some([]) => names == [MARKER],
                Some(text) => is_marker(text),
                None => false,
            };
            if !is_ours {
                return Err(foreign());
            }
            empty(&folder).map_err(unusable(&path))?;
        }
        let marker = match folder.entry(MARKER).and_then(|marker| marker.create_new(access)) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Err(in_use()),
            marker => marker.map_err(unusable(&path))?,
        };
        let mut marker = lock(&folder, marker).map_err(unusable(&path))?.ok_or_else(in_use)?;
        let text = json!({ "memory_store_id": store_id }).to_string();
        marker.write_all(text.as_bytes()).map_err(unusable(&path))?;
        let partial = Self { path, marker };
        // Another export may have ended since the first look.
        if fs::symlink_metadata(target).is_ok() {
            let _ = partial.remove();
            return Err(exists());
        }
        Ok(partial)
    }

    /// Removes the folder, and follows no symbolic link. Fails if the folder of this name is
    /// not that of this process: it may have been given the name of the archive.
    fn remove(&self) -> io::Result<()> {
        let entry = entry_of(&self.path)?;
        let folder = entry.open_folder()?;
        if !is_in(&folder, &self.marker)? {
            return Err(io::Error::other("it is the folder of another program"));
        }
        empty(&folder)?;
        entry.remove_directory()
    }
}

/// Locks a marker. `None` if another process has the lock, or has removed the marker.
fn lock(folder: &OpenFolder, marker: File) -> io::Result<Option<File>> {
    match marker.try_lock() {
        Ok(()) => Ok(is_in(folder, &marker)?.then_some(marker)),
        Err(TryLockError::WouldBlock) => Ok(None),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

/// Whether an open file is the marker of a folder.
fn is_in(folder: &OpenFolder, marker: &File) -> io::Result<bool> {
    let Some(named) = if_there(folder.entry(MARKER)?.stat())? else { return Ok(false) };
    let opened = fstat(marker)?;
    Ok((named.st_dev, named.st_ino) == (opened.st_dev, opened.st_ino))
}

/// Removes everything in the folder of an unfinished export. The marker goes last: the next export
/// empties only a folder with a marker.
fn empty(folder: &OpenFolder) -> io::Result<()> {
    for name in folder.names()? {
        let entry = folder.entry(&name)?;
        if entry.is_directory()? {
            entry.remove_all()?;
        } else if name != MARKER {
            entry.remove_file()?;
        }
    }
    folder.entry(MARKER)?.remove_file()
}

pub(super) struct ReceivedArchive {
    parts: mpsc::Receiver<Vec<u8>>,
    part: Cursor<Vec<u8>>,
}

impl Read for ReceivedArchive {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            let read = self.part.read(buffer)?;
            if read > 0 || buffer.is_empty() {
                return Ok(read);
            }
            match self.parts.blocking_recv() {
                Some(part) => self.part = Cursor::new(part),
                None => return Ok(0),
            }
        }
    }
}

/// Also writes the bytes that are read to a file.
struct CopyingReader<R, W> {
    from: R,
    to: W,
}

impl<R: Read, W: Write> Read for CopyingReader<R, W> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.from.read(buffer)?;
        self.to.write_all(&buffer[..read])?;
        Ok(read)
    }
}

/// Writes an archive into the folder of an unfinished export, verifies it and gives it its name.
fn write(
    received: ReceivedArchive,
    folder: Folder,
    target: &Path,
    total: u64,
    require: impl FnOnce(&Manifest) -> Result<(), Damage>,
) -> Result<Manifest> {
    let failed = || Failure::of(format!("{} cannot be written", target.display()));
    let damaged = |damage| Failure::new(format!("the archive of the server is damaged: {damage}"));
    let mut progress = Progress::new("exported", total);
    let partial = folder.root().to_owned();
    let (unpacked, packed) = if is_packed(target) {
        let file = BufWriter::new(folder.create(PACKED).map_err(failed())?);
        let mut copied = CopyingReader { from: received, to: file };
        let unpacked = UnpackedArchive::read(&mut copied, folder, Contents::Hashed, || progress.add(1));
        let unpacked = unpacked.map_err(|stopped| stopped.failure(damaged))?;
        let file = copied.to.into_inner().map_err(|error| failed()(error.into_error()))?;
        (unpacked, Some(file))
    } else {
        let unpacked = UnpackedArchive::read(received, folder, Contents::Kept, || progress.add(1));
        (unpacked.map_err(|stopped| stopped.failure(damaged))?, None)
    };
    verify(&unpacked, &Prefix::new("/"), |_| {}).map_err(damaged)?;
    let manifest = read_manifest(&unpacked).map_err(damaged)?;
    let folder = unpacked.folder;
    require(&manifest).map_err(damaged)?;
    if let Some(file) = packed {
        file.sync_all().and_then(|()| fs::rename(partial.join(PACKED), target)).map_err(failed())?;
    } else {
        // The lists have the hashes of the contents: a content that is lost in a crash is noticed.
        let versions = manifest.versions_sha256.is_some().then_some(VERSIONS);
        for list in [MANIFEST, INDEX].into_iter().chain(versions) {
            let file = folder.open_file(list).map_err(io::Error::other);
            file.and_then(|file| file.sync_all()).map_err(failed())?;
        }
        let named = fs::rename(&partial, target);
        named.and_then(|()| fs::remove_file(target.join(MARKER))).map_err(failed())?;
    }
    Ok(manifest)
}
