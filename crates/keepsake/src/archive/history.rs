//! The history in an archive.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::io::{self, BufWriter, Read, Seek, SeekFrom, Write};

use futures::stream::{FuturesUnordered, StreamExt};
use jiff::Timestamp;
use keepsake_archive::format::{Hashing, VERSIONS, blob_file, without_content};
use keepsake_config::{Failure, FailureClass};
use keepsake_core::ContentHash;
use serde_json::Value;

use super::folder::Folder;
use crate::failures::is_content_lost;
use crate::output::{notice, printable};
use crate::people::{StoreConnection, failure_of};
use crate::whole_store::WRONG_HASH;

/// The versions as the API lists them, newest first.
const NEWEST_FIRST: &str = "versions.newest-first";
const MAX_READS_IN_FLIGHT: usize = 8;

pub(super) struct Versions {
    pub(super) count: u64,
    /// The hash of `versions.jsonl`.
    pub(super) sha256: String,
    /// The files of contents that no memory has now.
    pub(super) blobs: HashSet<String>,
    /// Why contents are left out: the server no longer has them.
    pub(super) missing: Vec<String>,
}

/// Writes `versions.jsonl`, and the contents that are not among the `current` ones. The
/// memories that are `left_out` have no versions; a version whose content is missing is
/// written as a redacted one.
pub(super) async fn read(
    connection: &StoreConnection,
    folder: &mut Folder,
    current: &HashSet<String>,
    left_out: &BTreeMap<String, String>,
) -> Result<Versions, Failure> {
    let failed = || Failure::of(format!("{VERSIONS} cannot be written"));
    let mut list = BufWriter::new(folder.create(NEWEST_FIRST).map_err(failed())?);
    let mut reading = Reading::default();
    let path = connection.path(&["memory_versions"]);
    let mut pages = connection.client.pages(&path, &[]);
    let mut in_flight = FuturesUnordered::new();
    loop {
        let listed = pages.next::<Value>().await;
        let listed = listed.map_err(failure_of("the versions cannot be listed"))?;
        let is_end = listed.is_none();
        let is_kept =
            |version: &&Value| !version["memory_id"].as_str().is_some_and(|id| left_out.contains_key(id));
        if let Some(version) = listed.as_ref().filter(is_kept) {
            let line = format!("{version}\n");
            list.write_all(line.as_bytes()).map_err(failed())?;
            reading.lengths.push(line.len());
            if let Some(wanted) = reading.wants(version, folder, current)? {
                in_flight.push(fetch(connection, wanted));
            }
        }
        while is_end || in_flight.len() >= MAX_READS_IN_FLIGHT {
            let Some(fetched) = in_flight.next().await else {
                break;
            };
            let Fetched { wanted, version } = fetched?;
            match version {
                Ok(version) => {
                    reading.missing.remove(&wanted.sha256);
                    write(folder, &version)?;
                }
                Err(reason) => {
                    notice(&format!("left out the content of {}: {}", wanted.id, printable(&reason)));
                    let other = reading.without(wanted, reason);
                    in_flight.extend(other.map(|other| fetch(connection, other)));
                }
            }
        }
        if is_end {
            break;
        }
    }
    let list = list.into_inner().map_err(|error| failed()(error.into_error()))?;
    drop(list);
    let sha256 = reading.write_oldest_first(folder).map_err(failed())?;
    folder.remove(NEWEST_FIRST)?;
    let (count, missing) = (reading.lengths.len() as u64, reading.missing.into_values().collect());
    Ok(Versions { count, sha256, blobs: reading.blobs, missing })
}

/// The state of a listing of versions.
#[derive(Default)]
struct Reading {
    /// The length of each line, in the order of the list.
    lengths: Vec<usize>,
    blobs: HashSet<String>,
    /// Further versions with a content that is being read, by its hash.
    others: HashMap<String, Vec<Wanted>>,
    /// The hashes of contents that the server does not have, with the reason.
    missing: BTreeMap<String, String>,
}

/// A version whose content is read.
struct Wanted {
    id: String,
    sha256: String,
    file: String,
}

/// A version that was read, or why its content cannot be.
struct Fetched {
    wanted: Wanted,
    version: Result<Value, String>,
}

impl Reading {
    /// The version, if its content must be read.
    fn wants(
        &mut self,
        version: &Value,
        folder: &Folder,
        current: &HashSet<String>,
    ) -> Result<Option<Wanted>, Failure> {
        let id = version["id"].as_str().unwrap_or_default().to_owned();
        let Some(sha256) = version["content_sha256"].as_str() else {
            return Ok(None);
        };
        if current.contains(sha256) {
            return Ok(None);
        }
        let hash: ContentHash =
            sha256.parse().map_err(Failure::of(format_args!("content_sha256 of {id}")))?;
        let wanted = Wanted { id, sha256: sha256.to_owned(), file: blob_file(hash) };
        if !self.blobs.insert(wanted.file.clone()) {
            self.others.entry(wanted.sha256.clone()).or_default().push(wanted);
            return Ok(None);
        }
        Ok((!folder.has(&wanted.file, hash)).then_some(wanted))
    }

    /// Goes on without a content; another version may still have it.
    fn without(&mut self, wanted: Wanted, reason: String) -> Option<Wanted> {
        let other = self.others.get_mut(&wanted.sha256).and_then(Vec::pop);
        if other.is_none() {
            self.blobs.remove(&wanted.file);
            self.missing.insert(wanted.sha256, reason);
        }
        other
    }

    fn line_of(&self, line: Vec<u8>) -> io::Result<Vec<u8>> {
        if self.missing.is_empty() {
            return Ok(line);
        }
        let mut version: Value = serde_json::from_slice(&line)?;
        if !version["content_sha256"].as_str().is_some_and(|sha256| self.missing.contains_key(sha256)) {
            return Ok(line);
        }
        without_content(&mut version, &Timestamp::now().to_string());
        Ok(format!("{version}\n").into_bytes())
    }

    /// Writes the list in reverse; returns the hash.
    fn write_oldest_first(&self, folder: &Folder) -> io::Result<String> {
        let mut list = folder.open_file(NEWEST_FIRST).map_err(io::Error::other)?;
        let mut file = Hashing::new(BufWriter::new(folder.create_unnamed()?));
        let mut end: u64 = self.lengths.iter().map(|length| *length as u64).sum();
        for length in self.lengths.iter().rev() {
            end -= *length as u64;
            let mut line = vec![0; *length];
            list.seek(SeekFrom::Start(end))?;
            list.read_exact(&mut line)?;
            file.write_all(&self.line_of(line)?)?;
        }
        file.flush()?;
        folder.name_and_hash(file, VERSIONS)
    }
}

async fn fetch(connection: &StoreConnection, wanted: Wanted) -> Result<Fetched, Failure> {
    let path = connection.path(&["memory_versions", &wanted.id]);
    let version = match connection.client.get::<Value>(&path, &[("view", Some("full"))]).await {
        Ok(version) if has_wrong_hash(&version) => Err(WRONG_HASH.to_owned()),
        Ok(version) => Ok(version),
        Err(error) if is_content_lost(&error) => Err(error.to_string()),
        Err(error) => return Err(failure_of(format_args!("{} cannot be read", wanted.id))(error)),
    };
    Ok(Fetched { wanted, version })
}

fn write(folder: &mut Folder, version: &Value) -> Result<(), Failure> {
    let id = version["id"].as_str().unwrap_or_default();
    let Some(content) = version["content"].as_str() else {
        let text = format!("{id} was redacted during the export, the same command continues it");
        return Err(Failure::of_class(FailureClass::Conflict, text));
    };
    folder.write(&blob_file(ContentHash::of(content.as_bytes())), content.as_bytes())
}

/// Whether the server states another hash than that of the content.
fn has_wrong_hash(version: &Value) -> bool {
    let content = version["content"].as_str();
    content
        .is_some_and(|content| version["content_sha256"] != ContentHash::of(content.as_bytes()).to_string())
}
