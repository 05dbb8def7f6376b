//! Unpacks an archive that is one file, into a folder or into a temporary file.
//!
//! The temporary file has no name, so no other process can open it. The system removes it when this
//! process ends, also after a crash.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufWriter, Read, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;

use keepsake_archive::Damage;
use keepsake_archive::format::{BLOBS, HashingReader, MAX_CONTENT_BYTES, MEMORIES};
use keepsake_archive::packed::{EXTENSION, UnpackLimit, read_files};
use keepsake_archive::verified::Files;
use keepsake_config::{Failure, cli::Result};
use keepsake_core::{ContentHash, words};

use super::folder::Folder;
use crate::data_dir::unusable;

/// Maximum size of the unpacked files; a large archive may take more.
pub(super) const LIMIT: UnpackLimit = UnpackLimit { bytes: 1 << 30, ratio: 1_000 };
const BUFFER_BYTES: usize = 64 << 10;
/// Maximum bytes of a history that a server sends.
pub(crate) const MAX_HISTORY_BYTES: u64 = 16 << 30;

/// Whether an archive of this name is one file.
pub(super) fn is_packed(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.to_string_lossy().ends_with(EXTENSION))
}

/// The use of an archive's contents while the archive is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Contents {
    /// They are written to the folder.
    Kept,
    Hashed,
}

/// An archive that was read once from one file. Its lists are in a folder.
#[derive(Debug)]
pub(super) struct UnpackedArchive {
    pub(super) folder: Folder,
    contents: HashMap<String, (ContentHash, u64)>,
}

pub(super) enum UnpackFailure {
    Damaged(Damage),
    Failed(Failure),
}

impl From<Damage> for UnpackFailure {
    fn from(damage: Damage) -> Self {
        Self::Damaged(damage)
    }
}

impl UnpackFailure {
    pub(super) fn failure(self, of_damage: impl FnOnce(Damage) -> Failure) -> Failure {
        match self {
            Self::Damaged(damage) => of_damage(damage),
            Self::Failed(failure) => failure,
        }
    }
}

impl UnpackedArchive {
    /// Reads an archive, and calls `progress` after each memory.
    pub(super) fn read(
        packed: impl Read,
        folder: Folder,
        kept: Contents,
        mut progress: impl FnMut(),
    ) -> Result<Self, UnpackFailure> {
        let mut unpacked = Self { folder, contents: HashMap::new() };
        let failed = || Failure::of("the archive cannot be unpacked");
        read_files(packed, LIMIT, |name, size, content| {
            let damaged = |error: io::Error| Damage(format!("{name}: {error}"));
            let folder = &unpacked.folder;
            let create = || folder.create(name).map_err(|error| not_created(name, error));
            if !is_content(name) {
                let mut file = create()?;
                io::copy(content, &mut file).map_err(damaged)?;
                return Ok(());
            }
            let mut bytes = Vec::new();
            content.take(MAX_CONTENT_BYTES).read_to_end(&mut bytes).map_err(damaged)?;
            unpacked.contents.insert(name.to_owned(), (ContentHash::of(&bytes), size));
            if name.starts_with(MEMORIES) {
                progress();
            }
            match kept {
                Contents::Kept => {
                    create()?.write_all(&bytes).map_err(failed()).map_err(UnpackFailure::Failed)
                }
                Contents::Hashed => Ok(()),
            }
        })?;
        Ok(unpacked)
    }
}

/// Why a file of an archive is not created. The folder was empty, and each name occurs once:
/// what exists is a file whose name differs in case, for example.
fn not_created(name: &str, error: io::Error) -> UnpackFailure {
    if error.kind() == io::ErrorKind::AlreadyExists {
        let text = format!("{name} and another file in it have the same name on this file system");
        return UnpackFailure::Damaged(Damage(text));
    }
    UnpackFailure::Failed(Failure::of("the archive cannot be unpacked")(error))
}

/// Whether a file of an archive is a content, rather than a list.
pub(super) fn is_content(name: &str) -> bool {
    name.split_once('/').is_some_and(|(directory, _)| [MEMORIES, BLOBS].contains(&directory))
}

impl Files for UnpackedArchive {
    fn open(&self, name: &str) -> Result<Box<dyn Read + '_>, String> {
        Ok(Box::new(self.folder.open_file(name)?))
    }

    fn content(&self, name: &str) -> Result<(ContentHash, u64), String> {
        self.contents.get(name).copied().ok_or_else(|| "is missing".to_owned())
    }

    fn contents(&self) -> Result<Vec<String>, String> {
        Ok(self.contents.keys().cloned().collect())
    }
}

/// The files of an archive, one after the other. Each was hashed when it was unpacked.
#[derive(Debug)]
pub(crate) struct Spooled {
    file: File,
    limit_bytes: u64,
    parts: HashMap<String, Part>,
}

#[derive(Debug, Clone, Copy)]
struct Part {
    offset: u64,
    size_bytes: u64,
    sha256: ContentHash,
}

impl Spooled {
    /// Unpacks an archive of at most `limit_bytes`, and calls `progress` after each memory.
    pub(super) fn read(
        packed: impl Read,
        limit_bytes: u64,
        mut progress: impl FnMut(),
    ) -> Result<Self, UnpackFailure> {
        let Self { file, mut parts, .. } = Self::new(limit_bytes).map_err(UnpackFailure::Failed)?;
        let failed = |error| UnpackFailure::Failed(Failure::of("the archive cannot be unpacked")(error));
        let (mut to, mut offset) = (BufWriter::new(file), 0);
        let mut buffer = vec![0; BUFFER_BYTES];
        read_files::<UnpackFailure>(packed, LIMIT, |name, size_bytes, content| {
            let damaged = |reason: String| Damage(format!("{name}: {reason}"));
            require_room(offset, size_bytes, limit_bytes).map_err(UnpackFailure::Failed)?;
            let mut hashing = HashingReader::new(&mut to);
            loop {
                let read = content.read(&mut buffer).map_err(|error| damaged(error.to_string()))?;
                if read == 0 {
                    break;
                }
                hashing.write_all(&buffer[..read]).map_err(failed)?;
            }
            let sha256 = hashing.finish().parse::<ContentHash>();
            let sha256 = sha256.map_err(|error| damaged(error.to_string()))?;
            parts.insert(name.to_owned(), Part { offset, size_bytes, sha256 });
            offset += size_bytes;
            if name.starts_with(MEMORIES) {
                progress();
            }
            Ok(())
        })?;
        let file = to.into_inner().map_err(|error| failed(error.into_error()))?;
        Ok(Self { file, limit_bytes, parts })
    }

    /// A file without contents, for [`Spooled::add`].
    pub(crate) fn new(limit_bytes: u64) -> Result<Self> {
        let file = tempfile::tempfile().map_err(unusable(&std::env::temp_dir()))?;
        Ok(Self { file, limit_bytes, parts: HashMap::new() })
    }

    /// Adds a file, unless there is one of this name.
    pub(crate) fn add(&mut self, name: String, sha256: ContentHash, content: &[u8]) -> Result<()> {
        if self.parts.contains_key(&name) {
            return Ok(());
        }
        let failed = || Failure::of("the contents cannot be kept in a temporary file");
        let offset = self.file.metadata().map_err(failed())?.len();
        require_room(offset, content.len() as u64, self.limit_bytes)?;
        self.file.write_all_at(content, offset).map_err(failed())?;
        self.parts.insert(name, Part { offset, size_bytes: content.len() as u64, sha256 });
        Ok(())
    }

    pub(super) fn open(archive: &Path) -> Result<Self> {
        let file =
            File::open(archive).map_err(Failure::of(format_args!("{} cannot be read", archive.display())))?;
        let damaged = |damage| Failure::new(format!("{} is damaged: {damage}", archive.display()));
        Self::read(file, u64::MAX, || {}).map_err(|stopped| stopped.failure(damaged))
    }

    /// Reads a whole file. The error is the reason, without the file's name.
    pub(super) fn bytes(&self, name: &str) -> Result<Vec<u8>, String> {
        let mut bytes = Vec::new();
        let mut part = Files::open(self, name)?;
        part.read_to_end(&mut bytes).map_err(|error| format!("cannot be read: {error}"))?;
        Ok(bytes)
    }

    fn part(&self, name: &str) -> Result<Part, String> {
        self.parts.get(name).copied().ok_or_else(|| "is missing".to_owned())
    }
}

fn require_room(used_bytes: u64, more_bytes: u64, limit_bytes: u64) -> Result<()> {
    if used_bytes.saturating_add(more_bytes) <= limit_bytes {
        return Ok(());
    }
    Err(Failure::new(format!(
        "the history has contents of more than {}, which are not kept in a temporary file: leave out --versions",
        words::bytes(limit_bytes)
    )))
}

impl Files for Spooled {
    fn open(&self, name: &str) -> Result<Box<dyn Read + '_>, String> {
        let Part { offset, size_bytes, .. } = self.part(name)?;
        Ok(Box::new(PartReader { file: &self.file, offset, left_bytes: size_bytes }))
    }

    fn content(&self, name: &str) -> Result<(ContentHash, u64), String> {
        let part = self.part(name)?;
        Ok((part.sha256, part.size_bytes))
    }

    fn contents(&self) -> Result<Vec<String>, String> {
        Ok(self.parts.keys().filter(|name| is_content(name)).cloned().collect())
    }
}

struct PartReader<'a> {
    file: &'a File,
    offset: u64,
    left_bytes: u64,
}

impl Read for PartReader<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let wanted = usize::try_from(self.left_bytes).unwrap_or(usize::MAX).min(buffer.len());
        let read = self.file.read_at(&mut buffer[..wanted], self.offset)?;
        self.offset += read as u64;
        self.left_bytes -= read as u64;
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use keepsake_core::ContentHash;

    use super::Spooled;

    #[test]
    fn no_content_is_kept_beyond_the_limit() {
        let mut spooled = Spooled::new(7).unwrap();
        let mut add =
            |name: &str, content: &[u8]| spooled.add(name.to_owned(), ContentHash::of(content), content);
        add("a", b"four").unwrap();
        add("a", b"four").unwrap();
        let refusal = add("b", b"four").unwrap_err().to_string();
        assert!(refusal.contains("more than 7 B") && refusal.contains("leave out --versions"), "{refusal}");
        add("c", b"has").unwrap();
        assert!(add("d", b"x").is_err());
    }
}
