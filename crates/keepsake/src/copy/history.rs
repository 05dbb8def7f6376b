//! `--versions`: the history of the source, written into an empty store of a Keepsake.
//!
//! Another Keepsake sends its history as an archive. From other servers, the versions are listed
//! with their contents, which are kept in a temporary file without a name.

use std::collections::BTreeMap;

use keepsake_archive::format::{VersionLine, blob_file};
use keepsake_archive::plan::{ContentOrigin, SourceMemory};
use keepsake_archive::report::Report;
use keepsake_archive::verified::{Prefix, SourceListing};
use keepsake_config::{Failure, cli::Result};
use keepsake_core::ContentHash;
use serde::Deserialize;
use serde_json::Value;

use super::listing::StoreListing;
use crate::archive::packed::{MAX_HISTORY_BYTES, Spooled};
use crate::archive::past;
use crate::archive::source::Source;
use crate::failures::failure_of;
use crate::store_api::StoreApi;

/// Copies all versions. Returns the outcome of each live memory.
pub(super) async fn copy(source: &StoreListing, target: &StoreApi) -> Result<Report> {
    let prefix = Prefix::new("/");
    let url = source.store.client.url();
    let (contents, found) = if source.is_keepsake {
        Source::receive_store(url, &source.store, &prefix).await?
    } else {
        listed(&source.store, &prefix).await.map_err(|failure| failure.within(url))?
    };
    if found.versions.is_empty() {
        return Ok(Report::default());
    }
    past::import_into(target, &contents, found, false).await
}

/// Lists the versions with their contents, and derives the live memories from them.
async fn listed(store: &StoreApi, prefix: &Prefix) -> Result<(Source, SourceListing)> {
    let path = store.path(&["memory_versions"]);
    let mut pages = store.client.pages(&path, &[("view", Some("full"))]);
    let (mut spooled, mut versions) = (Spooled::new(MAX_HISTORY_BYTES)?, Vec::new());
    let failed = || failure_of("the versions cannot be listed");
    while let Some(mut version) = pages.next::<Value>().await.map_err(failed())? {
        let content = version["content"].take().as_str().map(str::to_owned);
        let mut line = VersionLine::deserialize(version).map_err(Failure::of("a version"))?;
        if let Some(content) = &content {
            let sha256 = ContentHash::of(content.as_bytes());
            if line.content_sha256.as_ref().is_some_and(|stated| *stated != sha256.to_string()) {
                return Err(Failure::new(format!(
                    "{}: its content does not have the stated SHA-256",
                    line.id
                )));
            }
            spooled.add(blob_file(sha256), sha256, content.as_bytes())?;
            line.content_sha256 = Some(sha256.to_string());
        }
        versions.push((line, content.map_or(0, |content| content.len() as u64)));
    }
    // The list begins with the newest.
    versions.reverse();
    let mut live = BTreeMap::new();
    for (line, size_bytes) in &versions {
        match (&line.path, &line.content_sha256) {
            _ if line.operation == "deleted" => drop(live.remove(&line.memory_id)),
            (Some(path), Some(sha256)) => {
                let sha256: ContentHash = sha256.parse().map_err(Failure::of(&line.id))?;
                live.insert(line.memory_id.clone(), (path.clone(), sha256, *size_bytes));
            }
            _ => {}
        }
    }
    let mut found = SourceListing::default();
    for (path, sha256, size_bytes) in live.into_values() {
        let origin = ContentOrigin::File(blob_file(sha256));
        found.place(prefix, &path, |path| SourceMemory {
            path,
            sha256,
            size_bytes,
            is_pinned: false,
            expires_at: None,
            origin,
        });
    }
    found.versions = versions.into_iter().map(|(line, _)| line).collect();
    Ok((Source::Packed(spooled), found))
}
