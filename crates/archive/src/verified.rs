//! Reads an archive and verifies all of it before anything is imported.

use std::collections::HashSet;
use std::io::{BufRead, BufReader, Read};

use keepsake_core::{ContentHash, MemoryPath, PathError, Timestamp, nfc};
use serde::de::DeserializeOwned;

use crate::format::{
    Counts, Entry, FORMAT, FORMAT_VERSION, HashingReader, INDEX, MANIFEST, MAX_LINE_BYTES, Manifest,
    VERSIONS, VersionLine, advice_about, blob_file, memory_file,
};
use crate::plan::{ContentOrigin, SourceMemory};
use crate::report::{Class, Outcome, Report};

/// The largest `keepsake.json`. The metadata of a store has at most 16 short pairs.
pub const MAX_MANIFEST_BYTES: u64 = 256 << 10;

/// The files of an archive. If a file cannot be read, `open` and `content` return the
/// reason, such as `is missing`, without the file's name.
pub trait Files {
    /// Opens a file that describes the archive.
    fn open(&self, name: &str) -> Result<Box<dyn Read + '_>, String>;

    fn content(&self, name: &str) -> Result<(ContentHash, u64), String>;

    /// The names of all contents, below `memories` and `blobs`. The error has the name.
    fn contents(&self) -> Result<Vec<String>, String>;
}

#[derive(Debug, Default)]
pub struct SourceListing {
    pub items: Vec<SourceMemory>,
    /// Files that cannot be imported.
    pub report: Report,
    /// Oldest first.
    pub versions: Vec<VersionLine>,
    /// Why memories of the exported store are not in the archive.
    pub left_out: Vec<String>,
}

impl SourceListing {
    /// Adds an item at its path in the destination, or reports that it has none.
    pub fn place(&mut self, prefix: &Prefix, path: &str, item: impl FnOnce(MemoryPath) -> SourceMemory) {
        match prefix.place(path) {
            (_, Ok(path)) => self.items.push(item(path)),
            (path, Err(reason)) => self.report.add(path, Outcome::refused(Class::Rule, reason)),
        }
    }
}

/// The directory of the destination that receives the memories.
#[derive(Debug)]
pub struct Prefix(String);

impl Prefix {
    /// A directory as the API names it; `/` is the root.
    pub fn new(directory: &str) -> Self {
        Self(directory.trim_end_matches('/').to_owned())
    }

    /// Maps a path of the source to a path of the destination, or to the reason why there
    /// is none.
    pub fn place(&self, path: &str) -> (String, Result<MemoryPath, String>) {
        if !path.starts_with('/') {
            // After a prefix, it would become a part of the directory's name.
            let reason = format!("its path {}", PathError::NotAbsolute);
            return (path.to_owned(), Err(reason));
        }
        let path = nfc(&format!("{}{path}", self.0)).into_owned();
        let parsed = MemoryPath::parse(&path);
        (path, parsed.map_err(|error| format!("its path {error}")))
    }
}

/// Verifies an archive and reads its memories. Calls `progress` for each verified memory
/// with the number of all memories.
pub fn verify(
    files: &impl Files,
    prefix: &Prefix,
    progress: impl FnMut(u64),
) -> Result<SourceListing, crate::Damage> {
    Verification::new(files).run(prefix, progress).map_err(crate::Damage)
}

/// Reads the description of an archive.
pub fn read_manifest(files: &impl Files) -> Result<Manifest, crate::Damage> {
    Verification::new(files).read_manifest().map_err(crate::Damage)
}

/// The reason to refuse an archive: a file's name and its fault.
type Damage = String;

struct Verification<'a, F> {
    files: &'a F,
    /// The files that the index and the versions name.
    named: HashSet<String>,
    contents: HashSet<ContentHash>,
    counts: Counts,
}

impl<'a, F: Files> Verification<'a, F> {
    fn new(files: &'a F) -> Self {
        Self { files, named: HashSet::new(), contents: HashSet::new(), counts: Counts::default() }
    }

    fn run(mut self, prefix: &Prefix, mut progress: impl FnMut(u64)) -> Result<SourceListing, Damage> {
        let manifest = self.read_manifest()?;
        let mut found = SourceListing::default();
        let mut last = String::new();
        let sha256 = self.read_lines(INDEX, |archive, line, entry: Entry| {
            if entry.path <= last && line > 1 {
                return Err(format!("line {line} is not in the order of paths"));
            }
            let item = archive.verify_entry(&entry, line)?;
            last = entry.path;
            found.place(prefix, &last, |path| SourceMemory { path, ..item });
            progress(manifest.counts.memories);
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
        found.left_out = manifest.left_out;
        Ok(found)
    }

    fn read_manifest(&self) -> Result<Manifest, Damage> {
        let unreadable = |reason: String| format!("{MANIFEST} {reason}");
        let mut bytes = Vec::new();
        let file = self.files.open(MANIFEST).map_err(unreadable)?;
        file.take(MAX_MANIFEST_BYTES + 1)
            .read_to_end(&mut bytes)
            .map_err(|error| unreadable(format!("cannot be read: {error}")))?;
        if bytes.len() as u64 > MAX_MANIFEST_BYTES {
            return Err(unreadable(format!("is larger than {MAX_MANIFEST_BYTES} bytes")));
        }
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
        let file = self.files.open(name).map_err(|reason| format!("{name} {reason}"))?;
        let mut reader = HashingReader::new(BufReader::new(file));
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
    fn verify_entry(&mut self, entry: &Entry, line: u64) -> Result<SourceMemory, Damage> {
        let of_line = |reason: String| format!("line {line}: {reason}");
        let path = MemoryPath::parse(&entry.path).map_err(|error| of_line(format!("the path {error}")))?;
        let sha256 = entry.content_sha256.parse::<ContentHash>();
        let sha256 = sha256.map_err(|error| of_line(format!("content_sha256 {error}")))?;
        let expires_at = entry.expires_at.as_deref().map(|at| {
            let rule = || of_line("expires_at is not a time in RFC 3339 format".to_owned());
            Timestamp::parse(at).ok_or_else(rule)
        });
        let expires_at = expires_at.transpose()?;
        let file = match &entry.file {
            None => memory_file(&path),
            Some(file) if *file == blob_file(sha256) => blob_file(sha256),
            Some(_) => return Err(of_line(format!("file is not {}", blob_file(sha256)))),
        };
        let size_bytes = self.verify_content(&file, sha256)?;
        if size_bytes != entry.size_bytes {
            return Err(format!("{file} has {size_bytes} bytes instead of {}", entry.size_bytes));
        }
        self.counts.memories += 1;
        self.counts.content_bytes += size_bytes;
        let origin = ContentOrigin::File(file);
        Ok(SourceMemory { path, sha256, size_bytes, is_pinned: entry.pinned, expires_at, origin })
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
        let (found, size_bytes) = self.files.content(file).map_err(|reason| format!("{file} {reason}"))?;
        expect_hash(file, &found.to_string(), &sha256.to_string())?;
        self.named.insert(file.to_owned());
        self.contents.insert(sha256);
        Ok(size_bytes)
    }

    /// Refuses files that were added to the archive.
    fn refuse_unnamed(&self) -> Result<(), Damage> {
        let mut contents = self.files.contents()?;
        contents.sort_unstable();
        match contents.into_iter().find(|file| !self.named.contains(file)) {
            Some(file) => Err(format!("{file} is not in {INDEX}{}", advice_about(&file))),
            None => Ok(()),
        }
    }
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
    Err(format!("{MANIFEST} counts {expected} {of}, but there are {found}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn path_is_placed_below_the_directory_or_refused() {
        for (directory, path, placed) in [("/", "/a.md", "/a.md"), ("/d", "/a.md", "/d/a.md")] {
            let (shown, found) = Prefix::new(directory).place(path);
            assert_eq!((found.unwrap().as_str(), shown.as_str()), (placed, placed));
        }
        for path in ["a.md", "../a.md", "", "/../a.md"] {
            assert!(Prefix::new("/d").place(path).1.is_err(), "{path}");
        }
    }
}
