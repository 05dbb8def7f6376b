//! Archives in one file: tar, compressed with Zstandard.

use std::cell::Cell;
use std::io::{self, BufReader, Read, Write};
use std::rc::Rc;

use keepsake_core::{ContentHash, MemoryPath};
use tar::{Archive, Builder, Entry, EntryType, Header};

use crate::Damage;
use crate::format::{BLOBS, INDEX, MANIFEST, MAX_CONTENT_BYTES, MEMORIES, VERSIONS, advice_about};

pub const EXTENSION: &str = ".tar.zst";
/// The content of a file in tar is padded to a multiple of this.
const BLOCK_BYTES: usize = 512;
/// Maximum size of one entry's header, with long names.
const MAX_HEADER_BYTES: u64 = 64 << 10;
/// Maximum number of entries, because a received archive may be endless. It is far above the
/// number of memories and versions of any store.
const MAX_ENTRIES: usize = 10_000_000;
/// Maximum padding after the last entry: programs pad an archive to whole records.
const MAX_END_BYTES: u64 = 1 << 20;
/// How much larger an archive may be than what it has unpacked to: Zstandard allows any
/// number of frames that are empty or skipped.
const MAX_EXCESS_BYTES: u64 = 1 << 20;
/// Maximum window of the compression, as a power of two: that of `zstd -19`. The
/// window's size is the memory that a file makes its reader allocate.
const MAX_WINDOW_LOG: u32 = 23;
/// Memory that the decompression needs.
pub const WINDOW_BYTES: u64 = 1 << MAX_WINDOW_LOG;

pub struct Writer<W: Write> {
    tar: Builder<zstd::Encoder<'static, W>>,
    /// The size so far of the file that was begun.
    begun_bytes: usize,
}

impl<W: Write> Writer<W> {
    pub fn new(to: W) -> io::Result<Self> {
        let mut compressed = zstd::Encoder::new(to, 0)?;
        compressed.include_checksum(true)?;
        Ok(Self { tar: Builder::new(compressed), begun_bytes: 0 })
    }

    /// Adds a file; `modified_at` is in seconds.
    pub fn add(
        &mut self,
        name: &str,
        modified_at: u64,
        size_bytes: u64,
        content: impl Read,
    ) -> io::Result<()> {
        self.tar.append_data(&mut header(modified_at, size_bytes), name, content)
    }

    /// Begins a file, whose content follows in parts.
    pub fn begin(&mut self, name: &str, size_bytes: u64) -> io::Result<()> {
        let mut header = header(0, size_bytes);
        header.set_path(name)?;
        header.set_cksum();
        self.begun_bytes = 0;
        self.tar.get_mut().write_all(header.as_bytes())
    }

    /// Adds a part of the content of the file that was begun.
    pub fn write(&mut self, part: &[u8]) -> io::Result<()> {
        self.begun_bytes += part.len();
        self.tar.get_mut().write_all(part)
    }

    /// Ends the file that was begun.
    pub fn end(&mut self) -> io::Result<()> {
        let padding = self.begun_bytes.next_multiple_of(BLOCK_BYTES) - self.begun_bytes;
        self.tar.get_mut().write_all(&[0; BLOCK_BYTES][..padding])
    }

    /// Ends a block of the compression, so that a reader can unpack everything that was written so
    /// far. Short blocks compress less, so each call makes the archive larger.
    pub fn flush(&mut self) -> io::Result<()> {
        self.tar.get_mut().flush()
    }

    pub fn get_mut(&mut self) -> &mut W {
        self.tar.get_mut().get_mut()
    }

    pub fn finish(self) -> io::Result<W> {
        self.tar.into_inner()?.finish()
    }
}

fn header(modified_at: u64, size_bytes: u64) -> Header {
    let mut header = Header::new_gnu();
    header.set_entry_type(EntryType::Regular);
    header.set_mode(0o644);
    header.set_mtime(modified_at);
    header.set_size(size_bytes);
    header
}

/// How much an archive may unpack to.
#[derive(Debug, Clone, Copy)]
pub struct UnpackLimit {
    /// Always allowed.
    pub bytes: u64,
    /// Above `bytes`, the allowed multiple of the packed size. Memories compress well, but
    /// not like a file that was made to fill a disk.
    pub ratio: u64,
}

/// Reads the files of a packed archive one by one: their name, their size and their
/// content. The part of a file that `each` does not read is skipped.
///
/// Only files that an archive consists of are accepted, each once.
pub fn read_files<E: From<Damage>>(
    packed: impl Read,
    limit: UnpackLimit,
    mut each: impl FnMut(&str, u64, &mut dyn Read) -> Result<(), E>,
) -> Result<(), E> {
    let damaged = |error: io::Error| E::from(Damage(error.to_string()));
    let budget = Rc::new(Cell::new(MAX_HEADER_BYTES));
    let bounded = BoundedDecoder::new(packed, limit, Rc::clone(&budget)).map_err(damaged)?;
    let mut tar = Archive::new(bounded);
    let mut seen = std::collections::HashSet::new();
    for (number, entry) in tar.entries().map_err(damaged)?.enumerate() {
        let entry = entry.map_err(damaged)?;
        if number >= MAX_ENTRIES {
            return Err(Damage(format!("it has more than {MAX_ENTRIES} entries")).into());
        }
        if entry.header().entry_type().is_dir() && entry.size() == 0 {
            budget.set(MAX_HEADER_BYTES);
            continue;
        }
        let name = name_of(&entry).map_err(Damage)?;
        if !seen.insert(name.clone()) {
            return Err(Damage(format!("{name} is in it twice")).into());
        }
        let size = entry.size();
        budget.set(size.saturating_add(MAX_HEADER_BYTES));
        let mut content = CountingReader::new(entry);
        each(&name, size, &mut content)?;
        let rest = io::copy(&mut content, &mut io::sink());
        rest.map_err(|error| Damage(format!("{name}: {error}")))?;
        if content.bytes.get() < size {
            return Err(Damage(format!("{name}: it is cut off")).into());
        }
        budget.set(MAX_HEADER_BYTES);
    }
    // The compression verifies its checksum when it is read to the end. `MAX_END_BYTES`
    // limits the rest instead of the budget.
    budget.set(u64::MAX);
    let mut end = tar.into_inner().take(MAX_END_BYTES + 1);
    if io::copy(&mut end, &mut io::sink()).map_err(damaged)? > MAX_END_BYTES {
        return Err(Damage("it continues after its end".to_owned()).into());
    }
    Ok(())
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
    if !(is_list(name) || is_memory(name) || is_blob(name)) {
        return Err(format!("{shown} is not a file of an archive{}", advice_about(name)));
    }
    if !is_list(name) && entry.size() > MAX_CONTENT_BYTES {
        return Err(format!("{shown} is larger than {MAX_CONTENT_BYTES} bytes"));
    }
    Ok(name.to_owned())
}

/// Whether a file describes the archive; every other file is a content.
pub(crate) fn is_list(name: &str) -> bool {
    [MANIFEST, INDEX, VERSIONS].contains(&name)
}

/// Decompresses a file within its [`UnpackLimit`] and the reader's budget.
struct BoundedDecoder<R> {
    unpacked: zstd::Decoder<'static, BufReader<PackedFile<R>>>,
    limit: UnpackLimit,
    /// Bytes that may be read until the budget is set again.
    budget: Rc<Cell<u64>>,
    packed_bytes: Rc<Cell<u64>>,
    unpacked_bytes: Rc<Cell<u64>>,
}

/// The file that [`BoundedDecoder`] decompresses. The decompression may read any number of empty
/// frames before it returns a byte, so this reader checks [`MAX_EXCESS_BYTES`].
struct PackedFile<R> {
    inner: CountingReader<R>,
    unpacked_bytes: Rc<Cell<u64>>,
}

struct CountingReader<R> {
    inner: R,
    bytes: Rc<Cell<u64>>,
}

impl<R> CountingReader<R> {
    fn new(inner: R) -> Self {
        let bytes = Rc::new(Cell::new(0));
        Self { inner, bytes }
    }
}

impl<R: Read> BoundedDecoder<R> {
    fn new(packed: R, limit: UnpackLimit, budget: Rc<Cell<u64>>) -> io::Result<Self> {
        let counted = CountingReader::new(packed);
        let packed_bytes = Rc::clone(&counted.bytes);
        let unpacked_bytes = Rc::new(Cell::new(0));
        let packed = PackedFile { inner: counted, unpacked_bytes: Rc::clone(&unpacked_bytes) };
        let mut unpacked = zstd::Decoder::with_buffer(BufReader::new(packed))?;
        unpacked.window_log_max(MAX_WINDOW_LOG)?;
        Ok(Self { unpacked, limit, budget, packed_bytes, unpacked_bytes })
    }
}

impl<R: Read> Read for CountingReader<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(buffer)?;
        self.bytes.set(self.bytes.get() + read as u64);
        Ok(read)
    }
}

impl<R: Read> Read for PackedFile<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(buffer)?;
        if self.inner.bytes.get() > self.unpacked_bytes.get().saturating_add(MAX_EXCESS_BYTES) {
            return Err(io::Error::other("it is much larger than what it unpacks to"));
        }
        Ok(read)
    }
}

impl<R: Read> Read for BoundedDecoder<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let allowed = usize::try_from(self.budget.get()).unwrap_or(usize::MAX).min(buffer.len());
        if allowed == 0 && !buffer.is_empty() {
            return Err(io::Error::other("the header of an entry is too long"));
        }
        let read = self.unpacked.read(&mut buffer[..allowed])?;
        self.budget.set(self.budget.get() - read as u64);
        let unpacked_bytes = self.unpacked_bytes.get() + read as u64;
        self.unpacked_bytes.set(unpacked_bytes);
        let UnpackLimit { bytes, ratio } = self.limit;
        let of_ratio = self.packed_bytes.get().saturating_mul(ratio);
        if unpacked_bytes > of_ratio.max(bytes) {
            let text =
                format!("it unpacks to more than {ratio} times its size and to more than {bytes} bytes");
            return Err(io::Error::other(text));
        }
        Ok(read)
    }
}
