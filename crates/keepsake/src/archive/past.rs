//! The import of an archive with its history.
//!
//! The server writes the versions part by part, and only into a store whose versions
//! were all imported. An import that was stopped continues after the versions that the
//! store has, if the archive begins with them.

use std::collections::HashMap;

use futures::stream::{StreamExt, TryStreamExt, iter};
use indicatif::HumanCount;
use keepsake_archive::format::{VersionLine, blob_file};
use keepsake_archive::plan::{ContentOrigin, SourceMemory};
use keepsake_archive::report::{Class, Outcome, Report};
use keepsake_archive::verified::SourceListing;
use keepsake_config::{Failure, cli::Result};
use keepsake_core::ContentHash;
use keepsake_engine::{Clock, SystemClock};
use serde_json::{Value, json};

use super::report::Progress;
use super::room::Room;
use super::source::Source;
use super::upload::expiry_of;
use crate::output::notice;
use crate::people::failure_of;
use crate::store_api::{ListedMemory, StoreApi};

/// Versions of a call; the server takes 500.
const MAX_PART_VERSIONS: usize = 250;
/// Bytes of a call's contents. The server takes 8 MiB of JSON, where text is longer.
const MAX_PART_BYTES: u64 = 3 << 20;
const MAX_PART_REDACTIONS: usize = 500;
const MAX_CHANGES_IN_FLIGHT: usize = 8;

/// A version of the archive, as it is sent.
struct ImportVersion {
    line: VersionLine,
    /// `None` for a deletion. A redacted version has the memory's earlier path or a
    /// made-up one.
    path: Option<String>,
    /// The file with the content, and its hash. `None` for a deletion, and for a redacted version,
    /// which is sent with a made-up content and redacted at the end.
    file: Option<(String, ContentHash)>,
}

/// Imports a verified archive into a store. Returns the outcome of each memory, which is a refusal
/// if the store is not as the archive at the end.
pub(crate) async fn import_into(
    store: &StoreApi,
    source: &Source,
    mut found: SourceListing,
    is_dry_run: bool,
) -> Result<Report> {
    if found.versions.is_empty() {
        let text = "the source has no versions: `keepsake export --versions` writes them";
        return Err(Failure::usage(text));
    }
    let lines = std::mem::take(&mut found.versions);
    let (history, left_out) = history_of(lines, &found.items)?;
    if left_out > 0 {
        notice(&format!(
            "{} deletions of memories without earlier versions are left out",
            HumanCount(left_out)
        ));
    }
    let done = count_imported(store, &history).await?;
    if let Some(room) = Room::of(store).await? {
        let bytes = found.items.iter().map(|item| item.size_bytes).sum();
        room.emptied().check(found.items.len() as u64, bytes).await?;
    }
    let now = SystemClock.now();
    let outcome = if done == history.len() { Outcome::Unchanged } else { Outcome::Created };
    let lacks: Vec<_> = found.items.iter_mut().map(|item| item.remove_unsettable_expiry(now)).collect();
    if is_dry_run {
        for (item, lacks) in found.items.iter().zip(lacks) {
            found.report.add_with(item.path.as_str(), outcome.clone(), lacks);
        }
    } else {
        write(store, source, &history, done).await?;
        redact(store, &history).await?;
        let memories = store.list().await?.0.into_values();
        let memories: HashMap<_, _> = memories.map(|memory| (memory.path.clone(), memory)).collect();
        set_expiry(store, &found.items, &memories).await?;
        verify(&mut found, &lacks, &memories, &outcome);
    }
    notice(&format!(
        "{} of {} versions {}imported",
        HumanCount((history.len() - done) as u64),
        HumanCount(history.len() as u64),
        if is_dry_run { "would be " } else { "" }
    ));
    Ok(found.report)
}

/// The versions to send. The deletion of a memory whose other versions were removed is
/// left out; the second value counts these deletions.
fn history_of(lines: Vec<VersionLine>, items: &[SourceMemory]) -> Result<(Vec<ImportVersion>, u64)> {
    let current = items.iter().filter_map(|item| match &item.origin {
        ContentOrigin::File(name) => Some((item.sha256, name.as_str())),
        ContentOrigin::Memory(_) => None,
    });
    let files: HashMap<_, _> = current.collect();
    let (mut history, mut left_out) = (Vec::with_capacity(lines.len()), 0);
    // The path of each memory that is live after the versions so far.
    let mut paths: HashMap<String, String> = HashMap::new();
    // The places of the last versions of these memories, whose path is only assumed: that of the version before.
    let mut assumed: HashMap<String, Vec<usize>> = HashMap::new();
    for line in lines {
        if line.operation == "deleted" {
            assumed.remove(&line.memory_id);
            if paths.remove(&line.memory_id).is_none() {
                left_out += 1;
                continue;
            }
            history.push(ImportVersion { line, path: None, file: None });
            continue;
        }
        let file = match &line.content_sha256 {
            Some(sha256) => {
                let sha256: ContentHash = sha256.parse().map_err(Failure::of(&line.id))?;
                let name = files.get(&sha256).copied();
                Some((name.map_or_else(|| blob_file(sha256), str::to_owned), sha256))
            }
            None => None,
        };
        let path = match (&line.path, paths.get(&line.memory_id)) {
            (Some(path), _) => {
                assumed.remove(&line.memory_id);
                // A memory that was assumed to be there had moved away with a redacted version.
                let is_moved = |memory_id: &&String| {
                    paths.get(*memory_id).is_some_and(|other| exclude_each_other(other, path))
                };
                let moved: Vec<_> = assumed.keys().filter(is_moved).cloned().collect();
                for memory_id in moved {
                    let places = assumed.remove(&memory_id).unwrap_or_default();
                    let elsewhere = made_up_path(places.first().copied().unwrap_or_default());
                    for place in places {
                        history[place].path = Some(elsewhere.clone());
                    }
                    paths.insert(memory_id, elsewhere);
                }
                path.clone()
            }
            (None, Some(path)) => {
                assumed.entry(line.memory_id.clone()).or_default().push(history.len());
                path.clone()
            }
            (None, None) => made_up_path(history.len()),
        };
        paths.insert(line.memory_id.clone(), path.clone());
        history.push(ImportVersion { line, path: Some(path), file });
    }
    Ok((history, left_out))
}

/// A path for a redacted version at a place of the history.
fn made_up_path(place: usize) -> String {
    format!("/.redacted-{}", place + 1)
}

/// Whether the paths are the same, or one is below the other.
fn exclude_each_other(one: &str, other: &str) -> bool {
    let (short, long) = if one.len() <= other.len() { (one, other) } else { (other, one) };
    long.strip_prefix(short).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// How many versions the store has. All of them must be the archive's first ones.
async fn count_imported(store: &StoreApi, history: &[ImportVersion]) -> Result<usize> {
    let path = store.path(&["memory_versions"]);
    let failed = failure_of("the versions of the memory store cannot be listed");
    let listed = store.client.pages(&path, &[]).take(usize::MAX).await;
    let mut listed: Vec<VersionLine> = listed.map_err(failed)?;
    listed.reverse();
    let is_same = |(has, past): (&VersionLine, &ImportVersion)| {
        let is_redacted = has.redacted_at.is_some() || past.line.redacted_at.is_some();
        let is_same_path = past.path.is_none() || has.path == past.path;
        is_redacted || (is_same_path && has.content_sha256 == past.line.content_sha256)
    };
    let begins_with = listed.len() <= history.len() && listed.iter().zip(history).all(is_same);
    if begins_with {
        return Ok(listed.len());
    }
    Err(Failure::conflict(
        "the memory store has versions that are not the first ones of the archive: a history is \
         imported into an empty memory store",
    ))
}

/// Sends the versions after the first `done` ones.
async fn write(store: &StoreApi, source: &Source, history: &[ImportVersion], done: usize) -> Result<()> {
    let mut progress = Progress::new("imported", history.len() as u64);
    progress.add(done as u64);
    let mut position = done;
    let (mut part, mut bytes) = (Vec::new(), 0);
    for (place, past) in history.iter().enumerate().skip(done) {
        let version = version_of(source, past, place)?;
        bytes += version["content"].as_str().map_or(0, str::len) as u64;
        if part.len() == MAX_PART_VERSIONS || (bytes > MAX_PART_BYTES && !part.is_empty()) {
            let sent = std::mem::take(&mut part);
            position = send(store, history, position, sent, &mut progress).await?;
            bytes = version["content"].as_str().map_or(0, str::len) as u64;
        }
        part.push(version);
    }
    if !part.is_empty() {
        send(store, history, position, part, &mut progress).await?;
    }
    Ok(())
}

/// `place` is that of the version in the history.
fn version_of(source: &Source, past: &ImportVersion, place: usize) -> Result<Value> {
    let line = &past.line;
    let mut version = json!({
        "memory_id": line.memory_id,
        "operation": line.operation,
        "created_at": line.created_at,
        "created_by": line.created_by,
    });
    if let Some(path) = &past.path {
        version["path"] = path.as_str().into();
        version["content"] = match &past.file {
            Some((name, sha256)) => {
                let text = source.text(name, *sha256);
                text.map_err(|reason| Failure::new(format!("{name} {reason}")))?.into()
            }
            // A version with the same content would share it, and could keep it from being redacted.
            None => format!("(redacted version {})", place + 1).into(),
        };
    }
    Ok(version)
}

/// Sends a part of the history; returns the next position.
async fn send(
    store: &StoreApi,
    history: &[ImportVersion],
    position: usize,
    versions: Vec<Value>,
    progress: &mut Progress,
) -> Result<usize> {
    let count = versions.len();
    let body = json!({"position": position, "versions": versions});
    let sent = store.post::<Value>(&["import"], &body).await;
    sent.map_err(|error| {
        let (all, failed) = (history.len(), failure_of("a part was not imported")(error));
        failed.within(format!(
            "the import was stopped after {position} of {all} versions, the same command continues it"
        ))
    })?;
    progress.add(count as u64);
    Ok(position + count)
}

async fn redact(store: &StoreApi, history: &[ImportVersion]) -> Result<()> {
    let redacted = history.iter().enumerate().filter_map(|(place, past)| {
        let redacted_at = past.line.redacted_at.as_ref()?;
        Some(json!({
            "version": place + 1,
            "redacted_at": redacted_at,
            "redacted_by": past.line.redacted_by,
        }))
    });
    let redacted: Vec<_> = redacted.collect();
    for redactions in redacted.chunks(MAX_PART_REDACTIONS) {
        let body = json!({"position": history.len(), "redactions": redactions});
        let sent = store.post::<Value>(&["import"], &body).await;
        sent.map_err(failure_of("the redactions were not imported"))?;
    }
    Ok(())
}

/// Sets the pins and expiry times of the archive, which are no versions.
async fn set_expiry(
    store: &StoreApi,
    items: &[SourceMemory],
    memories: &HashMap<String, ListedMemory>,
) -> Result<()> {
    let set = items.iter().filter_map(|item| {
        let expiry = expiry_of(item);
        (!expiry.is_empty()).then_some((memories.get(item.path.as_str())?, Value::Object(expiry)))
    });
    let changes = iter(set).map(|(memory, expiry)| async move {
        let changed = store.post::<Value>(&["memories", &memory.id], &expiry).await;
        let failed = format!("{} was not pinned or has no expiry time", memory.path);
        changed.map(drop).map_err(failure_of(failed))
    });
    let changes = changes.buffer_unordered(MAX_CHANGES_IN_FLIGHT);
    changes.try_collect().await
}

/// Compares the store with the archive's index, memory by memory; `equal` is the outcome of an equal one.
fn verify(
    found: &mut SourceListing,
    lacks: &[Option<&'static str>],
    memories: &HashMap<String, ListedMemory>,
    equal: &Outcome,
) {
    for (item, lacks) in found.items.iter().zip(lacks) {
        let memory = memories.get(item.path.as_str());
        let is_equal = memory.is_some_and(|memory| memory.content_sha256 == item.sha256.to_string());
        let outcome = if is_equal {
            equal.clone()
        } else {
            Outcome::refused(Class::Rule, "is not as the archive's index has it")
        };
        found.report.add_with(item.path.as_str(), outcome, *lacks);
    }
}
