//! Reads an archive and verifies all of it before anything is imported.

use std::collections::HashSet;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;

use keepsake_config::Failure;
use keepsake_core::{ContentHash, MemoryPath};
use serde::de::DeserializeOwned;

use super::folder::{Folder, MAX_CONTENT_BYTES};
use super::format::{
    BLOBS, Counts, Entry, FORMAT, FORMAT_VERSION, Hashing, INDEX, MANIFEST, MAX_LINE_BYTES, MEMORIES,
    Manifest, VERSIONS, VersionLine, blob_file, memory_file,
};
use super::plan::{Item, Origin};
use super::progress::Progress;
use super::source::{Found, Prefix};

/// The largest `keepsake.json`.
const MAX_MANIFEST_BYTES: u64 = 1 << 20;

/// Reads the memories of an archive.
///
/// # Errors
/// [`Failure`] names the first file that is missing, damaged or not in the index.
pub(super) fn read(folder: &Folder, shown: &Path, prefix: &Prefix) -> Result<Found, Failure> {
    let archive = Verification::new(folder);
    archive
        .run(prefix)
        .map_err(|reason| Failure::new(format!("{} is damaged: {reason}", shown.display())))
}

/// The reason to refuse an archive: a file's name and its fault.
type Damage = String;

struct Verification<'a> {
    folder: &'a Folder,
    /// The files that the index and the versions name.
    named: HashSet<String>,
    contents: HashSet<ContentHash>,
    counts: Counts,
}

impl<'a> Verification<'a> {
    fn new(folder: &'a Folder) -> Self {
        Self {
            folder,
            named: HashSet::new(),
            contents: HashSet::new(),
            counts: Counts::default(),
        }
    }

    fn run(mut self, prefix: &Prefix) -> Result<Found, Damage> {
        let manifest = self.read_manifest()?;
        let mut found = Found::default();
        let mut progress = Progress::new("verified", manifest.counts.memories);
        let mut last = String::new();
        let sha256 = self.read_lines(INDEX, |archive, line, entry: Entry| {
            if entry.path <= last && line > 1 {
                return Err(format!("line {line} is not in the order of paths"));
            }
            let item = archive.verify_entry(&entry).map_err(|reason| match reason {
                Wrong::Line(reason) => format!("line {line}: {reason}"),
                Wrong::File(reason) => reason,
            })?;
            last = entry.path;
            found.place(prefix, &last, |path| Item { path, ..item });
            progress.add(1);
            Ok(())
        })?;
        expect_hash(INDEX, &sha256, &manifest.index_sha256)?;
        let (expected, counts) = (manifest.counts, self.counts);
        expect_count("memories", counts.memories, expected.memories)?;
        expect_count("bytes of content", counts.content_bytes, expected.content_bytes)?;
        if let Some(expected) = &manifest.versions_sha256 {
            let sha256 = self.read_lines(VERSIONS, |archive, line, version: VersionLine| {
                archive
                    .verify_version(&version)
                    .map_err(|reason| format!("{VERSIONS}: line {line}: {reason}"))?;
                found.versions.push(version);
                Ok(())
            })?;
            expect_hash(VERSIONS, &sha256, expected)?;
        }
        let (expected, versions) = (manifest.counts.versions, self.counts.versions);
        expect_count("versions", versions, expected)?;
        self.refuse_unnamed()?;
        Ok(found)
    }

    fn read_manifest(&self) -> Result<Manifest, Damage> {
        let bytes = self
            .folder
            .read(MANIFEST, MAX_MANIFEST_BYTES)
            .map_err(|reason| format!("{MANIFEST} {reason}"))?;
        let manifest: Manifest =
            serde_json::from_slice(&bytes).map_err(|error| format!("{MANIFEST}: {error}"))?;
        if manifest.format != FORMAT || manifest.version != FORMAT_VERSION {
            return Err(format!(
                "{MANIFEST} names the format {} {}, but this program reads {FORMAT} {FORMAT_VERSION}",
                manifest.format, manifest.version
            ));
        }
        Ok(manifest)
    }

    /// Reads a file of JSON lines; returns its hash.
    fn read_lines<T: DeserializeOwned>(
        &mut self,
        name: &str,
        mut each: impl FnMut(&mut Self, u64, T) -> Result<(), Damage>,
    ) -> Result<String, Damage> {
        let file = self
            .folder
            .open(name)
            .map_err(|reason| format!("{name} {reason}"))?;
        let mut reader = Hashing::new(BufReader::new(file));
        let mut lines = BufReader::new(&mut reader);
        let mut line = Vec::new();
        for number in 1.. {
            line.clear();
            let failed = |error: std::io::Error| format!("{name} cannot be read: {error}");
            let mut bounded = (&mut lines).take(MAX_LINE_BYTES);
            if bounded.read_until(b'\n', &mut line).map_err(failed)? == 0 {
                break;
            }
            if !line.ends_with(b"\n") {
                return Err(format!("{name}: line {number} is cut off or too long"));
            }
            let parsed = serde_json::from_slice(&line);
            let parsed = parsed.map_err(|error| format!("{name}: line {number}: {error}"))?;
            each(self, number, parsed)?;
        }
        drop(lines);
        Ok(reader.finish())
    }

    /// Verifies a line of the index and its content.
    fn verify_entry(&mut self, entry: &Entry) -> Result<Item, Wrong> {
        let of_line = |reason: String| Wrong::Line(reason);
        let path = MemoryPath::parse(&entry.path).map_err(|error| of_line(format!("the path {error}")))?;
        let sha256 = entry.content_sha256.parse::<ContentHash>();
        let sha256 = sha256.map_err(|error| of_line(format!("content_sha256 {error}")))?;
        let file = match &entry.file {
            None => memory_file(&path),
            Some(file) if *file == blob_file(sha256) => blob_file(sha256),
            Some(_) => return Err(of_line(format!("file is not {}", blob_file(sha256)))),
        };
        let size_bytes = self.verify_content(&file, sha256).map_err(Wrong::File)?;
        if size_bytes != entry.size_bytes {
            return Err(Wrong::File(format!(
                "{file} has {size_bytes} bytes instead of {}",
                entry.size_bytes
            )));
        }
        self.counts.memories += 1;
        self.counts.content_bytes += size_bytes;
        Ok(Item {
            path,
            sha256,
            size_bytes,
            is_pinned: entry.pinned,
            origin: Origin::File(file),
        })
    }

    fn verify_version(&mut self, version: &VersionLine) -> Result<(), Damage> {
        self.counts.versions += 1;
        let Some(sha256) = &version.content_sha256 else {
            return Ok(());
        };
        let sha256 = sha256.parse::<ContentHash>();
        let sha256 = sha256.map_err(|error| format!("{}: content_sha256 {error}", version.id))?;
        if !self.contents.contains(&sha256) {
            self.verify_content(&blob_file(sha256), sha256)?;
        }
        Ok(())
    }

    /// Verifies the hash of a file; returns its size.
    fn verify_content(&mut self, file: &str, sha256: ContentHash) -> Result<u64, Damage> {
        let content = self
            .folder
            .read(file, MAX_CONTENT_BYTES)
            .map_err(|reason| format!("{file} {reason}"))?;
        expect_hash(file, &ContentHash::of(&content).to_string(), &sha256.to_string())?;
        self.named.insert(file.to_owned());
        self.contents.insert(sha256);
        Ok(content.len() as u64)
    }

    /// Refuses files that were added to the archive.
    fn refuse_unnamed(&self) -> Result<(), Damage> {
        for directory in [MEMORIES, BLOBS] {
            let files = self.folder.files_below(directory);
            let files = files.map_err(|failure| failure.to_string())?;
            if let Some(file) = files.iter().find(|file| !self.named.contains(*file)) {
                return Err(format!("{file} is not in {INDEX}"));
            }
        }
        Ok(())
    }
}

/// What is wrong with an entry.
enum Wrong {
    /// A field of its line.
    Line(String),
    /// The file that it names.
    File(String),
}

fn expect_hash(name: &str, found: &str, expected: &str) -> Result<(), Damage> {
    if found == expected {
        return Ok(());
    }
    Err(format!("{name} has the SHA-256 {found} instead of {expected}"))
}

fn expect_count(of: &str, found: u64, expected: u64) -> Result<(), Damage> {
    if found == expected {
        return Ok(());
    }
    Err(format!(
        "{MANIFEST} counts {expected} {of}, but there are {found}"
    ))
}
