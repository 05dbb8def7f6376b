//! The history in an archive.

use std::collections::HashSet;
use std::io::{self, BufWriter, Read, Seek, SeekFrom, Write};

use futures::stream::{FuturesUnordered, StreamExt};
use keepsake_archive::format::{Hashing, VERSIONS, blob_file};
use keepsake_config::{Failure, FailureClass};
use keepsake_core::ContentHash;
use serde_json::Value;

use super::folder::Folder;
use crate::people::{StoreConnection, failure_of};

/// The versions as the API lists them, newest first.
const NEWEST_FIRST: &str = "versions.newest-first";
/// Contents that are read at the same time.
const MAX_READS_IN_FLIGHT: usize = 8;

/// The history that was written.
pub(super) struct Versions {
    pub(super) count: u64,
    /// The hash of `versions.jsonl`.
    pub(super) sha256: String,
    /// The files of contents that no memory has now.
    pub(super) blobs: HashSet<String>,
}

/// Writes `versions.jsonl`, and the contents that are not among the `current` ones.
///
/// # Errors
/// [`Failure`] if a file cannot be written or a request fails.
pub(super) async fn read(
    connection: &StoreConnection,
    folder: &mut Folder,
    current: &HashSet<String>,
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
        if let Some(version) = &listed {
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
            write(folder, &fetched?)?;
        }
        if is_end {
            break;
        }
    }
    let list = list.into_inner().map_err(|error| failed()(error.into_error()))?;
    drop(list);
    let sha256 = reading.write_oldest_first(folder).map_err(failed())?;
    folder.remove(NEWEST_FIRST)?;
    Ok(Versions { count: reading.lengths.len() as u64, sha256, blobs: reading.blobs })
}

/// The state of a listing of versions.
#[derive(Default)]
struct Reading {
    /// The length of each line, in the order of the list.
    lengths: Vec<usize>,
    blobs: HashSet<String>,
}

impl Reading {
    /// The id of a version whose content must be read.
    fn wants(
        &mut self,
        version: &Value,
        folder: &Folder,
        current: &HashSet<String>,
    ) -> Result<Option<String>, Failure> {
        let id = version["id"].as_str().unwrap_or_default().to_owned();
        let Some(sha256) = version["content_sha256"].as_str() else {
            return Ok(None);
        };
        if current.contains(sha256) {
            return Ok(None);
        }
        let hash: ContentHash =
            sha256.parse().map_err(Failure::of(format_args!("content_sha256 of {id}")))?;
        let is_new = self.blobs.insert(blob_file(hash));
        Ok((is_new && !folder.has(&blob_file(hash), hash)).then_some(id))
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
            file.write_all(&line)?;
        }
        file.flush()?;
        folder.name_and_hash(file, VERSIONS)
    }
}

/// Reads a version with its content.
async fn fetch(connection: &StoreConnection, id: String) -> Result<Value, Failure> {
    let path = connection.path(&["memory_versions", &id]);
    let version = connection.client.get::<Value>(&path, &[("view", Some("full"))]).await;
    version.map_err(failure_of(format_args!("{id} cannot be read")))
}

/// Writes the content of a version.
fn write(folder: &mut Folder, version: &Value) -> Result<(), Failure> {
    let id = version["id"].as_str().unwrap_or_default();
    let Some(content) = version["content"].as_str() else {
        let text = format!("{id} was redacted during the export, the same command continues it");
        return Err(Failure::of_class(FailureClass::Conflict, text));
    };
    let hash = ContentHash::of(content.as_bytes());
    if version["content_sha256"] != hash.to_string() {
        let text = format!("the content of {id} does not have its content_sha256");
        return Err(Failure::new(text));
    }
    folder.write(&blob_file(hash), content.as_bytes())
}
