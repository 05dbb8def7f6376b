//! The files of an archive that describe it.

use std::io::{self, Read};

use keepsake_core::{ContentHash, MemoryPath};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

/// Describes the archive; written last.
pub const MANIFEST: &str = "keepsake.json";
/// One line for each memory.
pub const INDEX: &str = "index.jsonl";
/// One line for each version.
pub const VERSIONS: &str = "versions.jsonl";
/// The folder of the memories' contents.
pub const MEMORIES: &str = "memories";
/// The folder of contents without a file in [`MEMORIES`]: those of older versions, and those of
/// memories whose path cannot be a file.
pub const BLOBS: &str = "blobs";
pub const FORMAT: &str = "keepsake-archive";
pub const FORMAT_VERSION: u32 = 1;
/// The longest line of an index. A version's line holds a path, ids and times.
pub(crate) const MAX_LINE_BYTES: u64 = 64 << 10;
/// The largest content that is read: far above any server's limit for one memory.
pub const MAX_CONTENT_BYTES: u64 = 64 << 20;

/// `keepsake.json`
#[derive(Debug, Serialize, Deserialize)]
pub struct Manifest {
    /// Always [`FORMAT`].
    pub format: String,
    /// The format's version; a higher one cannot be read.
    pub version: u32,
    /// RFC 3339.
    pub exported_at: String,
    /// The memory store, as the API shows it.
    pub store: Map<String, Value>,
    pub counts: Counts,
    pub index_sha256: String,
    /// The SHA-256 of `versions.jsonl`, if there is one.
    pub versions_sha256: Option<String>,
    /// Why memories of the store, or contents of older versions, are not in the archive.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left_out: Vec<String>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    pub memories: u64,
    pub content_bytes: u64,
    pub versions: u64,
}

impl Manifest {
    pub fn to_text(&self) -> String {
        format!("{:#}\n", serde_json::json!(self))
    }
}

/// A line of `index.jsonl`.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Entry {
    pub path: String,
    pub id: String,
    pub version_id: String,
    pub content_sha256: String,
    pub size_bytes: u64,
    /// RFC 3339.
    pub created_at: String,
    /// RFC 3339.
    pub updated_at: String,
    /// The memory's own expiry time in RFC 3339; `None` if no own time is known. The end
    /// of a store's period is no part of an archive.
    pub expires_at: Option<String>,
    pub pinned: bool,
    /// `blobs/{sha256}` if the path cannot be the name of a file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
}

/// A version in the answers of an API, and a line of `versions.jsonl`, as far as commands read it.
#[derive(Debug, Clone, Deserialize)]
pub struct VersionLine {
    pub id: String,
    pub memory_id: String,
    /// `created`, `modified` or `deleted`.
    pub operation: String,
    /// Null for a redacted version.
    pub path: Option<String>,
    /// Null for a deletion or a redacted version.
    pub content_sha256: Option<String>,
    /// RFC 3339.
    pub created_at: String,
    /// The author, as the API shows it.
    pub created_by: Option<Box<RawValue>>,
    /// RFC 3339; `None` if it is not redacted.
    #[serde(default)]
    pub redacted_at: Option<String>,
    /// Who redacted it, as the API shows it.
    #[serde(default)]
    pub redacted_by: Option<Box<RawValue>>,
}

/// Changes the line of a version whose content is missing to the line of a redacted version.
pub fn without_content(version: &mut Value, at: &str) {
    for field in ["content_sha256", "content_size_bytes", "redacted_by"] {
        version[field] = Value::Null;
    }
    version["redacted_at"] = at.into();
}

pub fn write_lines(
    writer: &mut impl io::Write,
    lines: impl Iterator<Item = impl Serialize>,
) -> io::Result<()> {
    for line in lines {
        serde_json::to_writer(&mut *writer, &line)?;
        writer.write_all(b"\n")?;
    }
    Ok(())
}

/// The file of a memory's content, relative to the archive.
pub fn memory_file(path: &MemoryPath) -> String {
    format!("{MEMORIES}{}", path.as_str())
}

/// The file of a content that has no file below `memories/`.
pub fn blob_file(hash: ContentHash) -> String {
    format!("{BLOBS}/{hash}")
}

/// The advice about a file that does not belong in an archive. Empty, unless an operating
/// system or a file manager made the file.
pub(crate) fn advice_about(file: &str) -> &'static str {
    const PREFIXES: [&str; 4] = ["._", ".nfs", ".fuse_hidden", ".trash-"];
    const NAMES: [&str; 20] = [
        ".ds_store",
        ".appledouble",
        ".spotlight-v100",
        ".trashes",
        ".fseventsd",
        "__macosx",
        "icon\r",
        "thumbs.db",
        "ehthumbs.db",
        "desktop.ini",
        "$recycle.bin",
        ".directory",
        ".localized",
        ".temporaryitems",
        ".documentrevisions-v100",
        ".volumeicon.icns",
        ".apdisk",
        "@eadir",
        "lost+found",
        "system volume information",
    ];
    let is_of_system = |name: &str| {
        let name = name.to_lowercase();
        NAMES.contains(&name.as_str()) || PREFIXES.iter().any(|prefix| name.starts_with(*prefix))
    };
    if file.split('/').any(is_of_system) {
        ": the operating system made it; remove it, or pack the archive without it"
    } else {
        ""
    }
}

/// Passes bytes on and hashes them.
#[derive(Debug)]
pub struct HashingReader<R> {
    inner: R,
    sha256: Sha256,
}

impl<R> HashingReader<R> {
    pub fn new(inner: R) -> Self {
        Self { inner, sha256: Sha256::new() }
    }

    /// The hash of everything that passed, as hexadecimal.
    pub fn finish(self) -> String {
        self.into_parts().1
    }

    /// The inner reader or writer, and the hash as hexadecimal.
    pub fn into_parts(self) -> (R, String) {
        let hash: [u8; 32] = self.sha256.finalize().into();
        (self.inner, ContentHash::from(hash).to_string())
    }
}

impl<R: Read> Read for HashingReader<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(buffer)?;
        self.sha256.update(&buffer[..read]);
        Ok(read)
    }
}

impl<W: io::Write> io::Write for HashingReader<W> {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        let written = self.inner.write(buffer)?;
        self.sha256.update(&buffer[..written]);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}
