//! Archives in one file: tar, compressed with Zstandard.

use std::cell::Cell;
use std::collections::HashSet;
use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::path::Path;
use std::rc::Rc;

use keepsake_config::Failure;
use keepsake_core::{ContentHash, MemoryPath};
use tar::{Archive, Builder, Entry, EntryType, Header};
use tempfile::TempDir;

use super::folder::{Folder, MAX_CONTENT_BYTES};
use super::format::{BLOBS, INDEX, MANIFEST, MEMORIES, VERSIONS};

/// The extension of a packed archive.
const EXTENSION: &str = ".tar.zst";
/// Maximum size of one entry's header, with long names.
const MAX_HEADER_BYTES: u64 = 64 << 10;
/// An archive may always unpack to this size, and beyond it to [`MAX_RATIO`] times its
/// own: memories compress well, but not like a file that was made to fill a disk.
const MAX_UNCHECKED_BYTES: u64 = 1 << 30;
const MAX_RATIO: u64 = 1_000;

/// Whether an archive of this name is one file.
pub(super) fn is_packed(path: &Path) -> bool {
    path.file_name()
        .is_some_and(|name| name.to_string_lossy().ends_with(EXTENSION))
}

/// A file of an archive and the time that it gets, in seconds.
pub(super) struct Packed<'a> {
    pub(super) name: &'a str,
    pub(super) modified_at: u64,
}

/// Packs files of a folder into an archive, which gets its name when it is complete.
///
/// # Errors
/// [`Failure`] if a file cannot be read or the archive cannot be written.
pub(super) fn pack<'a>(
    folder: &Folder,
    files: impl Iterator<Item = Packed<'a>>,
    target: &Path,
) -> Result<(), Failure> {
    let failed = || Failure::of(format!("{} cannot be written", target.display()));
    let file = folder.create_unnamed().map_err(failed())?;
    let mut compressed = zstd::Encoder::new(BufWriter::new(file), 0).map_err(failed())?;
    compressed.include_checksum(true).map_err(failed())?;
    let mut tar = Builder::new(compressed);
    for Packed { name, modified_at } in files {
        let content = folder
            .open(name)
            .map_err(|reason| failed()(io::Error::other(format!("{name} {reason}"))))?;
        let mut header = Header::new_gnu();
        header.set_entry_type(EntryType::Regular);
        header.set_mode(0o644);
        header.set_mtime(modified_at);
        header.set_size(content.metadata().map_err(failed())?.len());
        tar.append_data(&mut header, name, content).map_err(failed())?;
    }
    let mut written = tar
        .into_inner()
        .and_then(zstd::Encoder::finish)
        .map_err(failed())?;
    written.flush().map_err(failed())?;
    folder.name(written.get_ref(), target).map_err(failed())
}

/// Unpacks an archive into a temporary folder.
///
/// Only files that an archive consists of are written, each once.
///
/// # Errors
/// [`Failure`] names the entry that is not part of an archive, or is damaged.
pub(super) fn unpack(archive: &Path) -> Result<TempDir, Failure> {
    let damaged = |reason: String| Failure::new(format!("{} is damaged: {reason}", archive.display()));
    let file =
        File::open(archive).map_err(Failure::of(format_args!("{} cannot be read", archive.display())))?;
    let unpacked = tempfile::Builder::new()
        .prefix("keepsake-import-")
        .tempdir()
        .map_err(Failure::of("no temporary folder can be made"))?;
    let budget = Rc::new(Cell::new(MAX_HEADER_BYTES));
    let bounded = Bounded::new(file, Rc::clone(&budget)).map_err(|error| damaged(error.to_string()))?;
    let mut tar = Archive::new(bounded);
    let mut seen = HashSet::new();
    let mut folder = Folder::new(unpacked.path());
    let entries = tar.entries().map_err(|error| damaged(error.to_string()))?;
    for entry in entries {
        let mut entry = entry.map_err(|error| damaged(error.to_string()))?;
        if entry.header().entry_type().is_dir() && entry.size() == 0 {
            budget.set(MAX_HEADER_BYTES);
            continue;
        }
        let name = name_of(&entry).map_err(damaged)?;
        if !seen.insert(name.clone()) {
            return Err(damaged(format!("{name} is in it twice")));
        }
        budget.set(entry.size().saturating_add(MAX_HEADER_BYTES));
        unpack_entry(&mut entry, &mut folder, &name)?.map_err(|error| damaged(format!("{name}: {error}")))?;
        budget.set(MAX_HEADER_BYTES);
    }
    // The checksum is at the end.
    budget.set(u64::MAX);
    let rest = io::copy(&mut tar.into_inner(), &mut io::sink());
    rest.map_err(|error| damaged(error.to_string()))?;
    Ok(unpacked)
}

/// The name of an entry, if it may be a file of an archive.
fn name_of<R: Read>(entry: &Entry<'_, R>) -> Result<String, String> {
    let bytes = entry.path_bytes();
    let shown = String::from_utf8_lossy(&bytes).into_owned();
    let kind = entry.header().entry_type();
    if !kind.is_file() {
        return Err(format!("{shown} is neither a file nor a directory"));
    }
    let name = shown.strip_prefix("./").unwrap_or(&shown);
    let is_memory = |name: &str| {
        let path = name.strip_prefix(MEMORIES);
        path.is_some_and(|path| MemoryPath::parse(path).is_ok())
    };
    let is_blob = |name: &str| {
        let hash = name.strip_prefix(BLOBS).and_then(|name| name.strip_prefix('/'));
        hash.is_some_and(|hash| hash.parse::<ContentHash>().is_ok())
    };
    let is_list = [MANIFEST, INDEX, VERSIONS].contains(&name);
    if !(is_list || is_memory(name) || is_blob(name)) {
        return Err(format!("{shown} is not a file of an archive"));
    }
    if !is_list && entry.size() > MAX_CONTENT_BYTES {
        return Err(format!("{shown} is larger than {MAX_CONTENT_BYTES} bytes"));
    }
    Ok(name.to_owned())
}

/// Writes one entry; the inner error is that of the archive.
fn unpack_entry<R: Read>(
    entry: &mut Entry<'_, R>,
    folder: &mut Folder,
    name: &str,
) -> Result<io::Result<()>, Failure> {
    let cut_off = |copied: u64, size: u64| {
        if copied < size {
            Err(io::Error::other("it is cut off"))
        } else {
            Ok(())
        }
    };
    let size = entry.size();
    if size > MAX_CONTENT_BYTES {
        let failed = || Failure::of("the archive cannot be unpacked");
        let mut file = folder.create_unnamed().map_err(failed())?;
        return Ok(match io::copy(entry, &mut file) {
            Err(error) => Err(error),
            Ok(copied) => {
                folder.name(&file, &folder.root().join(name)).map_err(failed())?;
                cut_off(copied, size)
            }
        });
    }
    let mut bytes = Vec::new();
    if let Err(error) = entry.read_to_end(&mut bytes) {
        return Ok(Err(error));
    }
    if let Err(error) = cut_off(bytes.len() as u64, size) {
        return Ok(Err(error));
    }
    folder.write(name, &bytes).map(Ok)
}

/// Decompresses a file, as much as its size and the reader's budget allow.
struct Bounded {
    unpacked: zstd::Decoder<'static, BufReader<Counted>>,
    /// Bytes that may be read until the budget is set again.
    budget: Rc<Cell<u64>>,
    packed_bytes: Rc<Cell<u64>>,
    unpacked_bytes: u64,
}

/// Counts the bytes of the file.
struct Counted {
    file: File,
    bytes: Rc<Cell<u64>>,
}

impl Bounded {
    fn new(file: File, budget: Rc<Cell<u64>>) -> io::Result<Self> {
        let packed_bytes = Rc::new(Cell::new(0));
        let counted = Counted {
            file,
            bytes: Rc::clone(&packed_bytes),
        };
        Ok(Self {
            unpacked: zstd::Decoder::with_buffer(BufReader::new(counted))?,
            budget,
            packed_bytes,
            unpacked_bytes: 0,
        })
    }
}

impl Read for Counted {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.file.read(buffer)?;
        self.bytes.set(self.bytes.get() + read as u64);
        Ok(read)
    }
}

impl Read for Bounded {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let allowed = usize::try_from(self.budget.get())
            .unwrap_or(usize::MAX)
            .min(buffer.len());
        if allowed == 0 && !buffer.is_empty() {
            return Err(io::Error::other("the header of an entry is too long"));
        }
        let read = self.unpacked.read(&mut buffer[..allowed])?;
        self.budget.set(self.budget.get() - read as u64);
        self.unpacked_bytes += read as u64;
        let allowed_bytes = (self.packed_bytes.get() * MAX_RATIO).max(MAX_UNCHECKED_BYTES);
        if self.unpacked_bytes > allowed_bytes {
            return Err(io::Error::other(format!(
                "it unpacks to more than {MAX_RATIO} times its size"
            )));
        }
        Ok(read)
    }
}
