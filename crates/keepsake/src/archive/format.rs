//! The files of an archive that describe it.

use std::io::{self, Read};

use keepsake_core::{ContentHash, MemoryPath};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

/// Describes the archive; written last.
pub(super) const MANIFEST: &str = "keepsake.json";
/// One line for each memory.
pub(super) const INDEX: &str = "index.jsonl";
/// One line for each version.
pub(super) const VERSIONS: &str = "versions.jsonl";
/// The folder of the memories' contents.
pub(super) const MEMORIES: &str = "memories";
/// The folder of contents that have no path.
pub(super) const BLOBS: &str = "blobs";
/// The value of [`Manifest::format`].
pub(super) const FORMAT: &str = "keepsake-archive";
/// The value of [`Manifest::version`].
pub(super) const FORMAT_VERSION: u32 = 1;
/// The longest line of an index. A version's line holds a path, ids and times.
pub(super) const MAX_LINE_BYTES: u64 = 64 << 10;

/// `keepsake.json`
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Manifest {
    /// Always [`FORMAT`].
    pub(super) format: String,
    /// The format's version; a higher one cannot be read.
    pub(super) version: u32,
    pub(super) exported_at: String,
    /// The memory store, as the API shows it.
    pub(super) store: Map<String, Value>,
    pub(super) counts: Counts,
    /// The SHA-256 of `index.jsonl`.
    pub(super) index_sha256: String,
    /// The SHA-256 of `versions.jsonl`, if there is one.
    pub(super) versions_sha256: Option<String>,
}

/// How much an archive holds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Counts {
    pub(super) memories: u64,
    pub(super) content_bytes: u64,
    pub(super) versions: u64,
}

/// A line of `index.jsonl`.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Entry {
    pub(super) path: String,
    pub(super) id: String,
    pub(super) version_id: String,
    pub(super) content_sha256: String,
    pub(super) size_bytes: u64,
    pub(super) created_at: String,
    pub(super) updated_at: String,
    pub(super) expires_at: Option<String>,
    pub(super) pinned: bool,
    /// `blobs/{sha256}` if the path cannot be the name of a file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) file: Option<String>,
}

/// A line of `versions.jsonl`, as far as an import reads it.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct VersionLine {
    pub(super) id: String,
    pub(super) memory_id: String,
    pub(super) operation: String,
    /// Null for a redacted version.
    pub(super) path: Option<String>,
    /// Null for a deletion or a redacted version.
    pub(super) content_sha256: Option<String>,
    pub(super) created_at: String,
    pub(super) created_by: Option<Value>,
    #[serde(default)]
    pub(super) redacted_at: Option<String>,
    #[serde(default)]
    pub(super) redacted_by: Option<Value>,
}

/// The file of a memory's content, relative to the archive.
pub(super) fn memory_file(path: &MemoryPath) -> String {
    format!("{MEMORIES}{}", path.as_str())
}

/// The file of a content that has no file below `memories/`.
pub(super) fn blob_file(hash: ContentHash) -> String {
    format!("{BLOBS}/{hash}")
}

/// Passes bytes on and hashes them.
#[derive(Debug)]
pub(super) struct Hashing<R> {
    inner: R,
    sha256: Sha256,
}

impl<R> Hashing<R> {
    pub(super) fn new(inner: R) -> Self {
        Self {
            inner,
            sha256: Sha256::new(),
        }
    }

    /// The hash of everything that passed, as hexadecimal.
    pub(super) fn finish(self) -> String {
        self.into_parts().1
    }

    /// The inner reader or writer, and the hash of everything that passed.
    pub(super) fn into_parts(self) -> (R, String) {
        let hash: [u8; 32] = self.sha256.finalize().into();
        (self.inner, ContentHash::from(hash).to_string())
    }
}

impl<R: Read> Read for Hashing<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(buffer)?;
        self.sha256.update(&buffer[..read]);
        Ok(read)
    }
}

impl<W: io::Write> io::Write for Hashing<W> {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        let written = self.inner.write(buffer)?;
        self.sha256.update(&buffer[..written]);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}
