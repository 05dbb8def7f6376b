//! A memory store as an archive, sent while it is read.
//!
//! The lists are read first and kept in memory. Then the contents are sent one by one: each is the
//! content of the version that the list names, so that changes during the download do not matter.
//! If one of these versions is removed meanwhile, or the credential ends, the download is broken
//! off. The lists are sent last, without contents that are missing.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::Extension;
use axum::body::{Body, Bytes};
use axum::extract::{RawQuery, State};
use axum::http::HeaderMap;
use axum::response::Response;
use futures::stream;
use keepsake_archive::format::{
    BLOBS, Entry, FORMAT, FORMAT_VERSION, Hashing, INDEX, MANIFEST, Manifest, VERSIONS, blob_file,
    without_content, write_lines,
};
use keepsake_archive::index::Index;
use keepsake_archive::packed::Writer;
use keepsake_console::{archive_name, download};
use keepsake_core::{ContentHash, MemoryId, StoreId, Timestamp, VersionId};
use keepsake_engine::{
    Engine, EngineError, Held, MemoryQuery, PageRequest, Principal, ShownItem, ShownMemory, VersionQuery,
    View,
};
use serde_json::{Map, Value};
use tokio::time::Instant;

use crate::admission::Holder;
use crate::auth::{Caller, principal_of};
use crate::error::ApiError;
use crate::path::Path;
use crate::routes::memory_stores::MemoryStore;
use crate::routes::memory_versions::MemoryVersion;

pub(super) const ROUTE: &str = "/console/stores/{memory_store_id}/archive";
/// Packed bytes that are sent at once.
const CHUNK_BYTES: usize = 64 << 10;
const CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// A store that changes while it is read is given up after this many pages of changes.
const MAX_PAGES_OF_CHANGES: usize = 1_000;
/// Memory of a memory in the lists, besides its path: the entry, its line, its file.
const ENTRY_BYTES: usize = 2 << 10;
/// Copies of a content in memory while it is sent: as text, and packed.
const COPIES_OF_CONTENT: usize = 2;
/// Copies of a version's line in memory while the archive begins.
const COPIES_OF_VERSION: usize = 3;

/// `GET /console/stores/{id}/archive?versions=1`
pub(super) async fn export(
    State(engine): State<Engine>,
    Caller(principal): Caller,
    Path(store_id): Path<StoreId>,
    Extension(Holder(held)): Extension<Holder>,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let has_versions = query.is_some_and(|query| query.split('&').any(|field| field == "versions=1"));
    let store = engine.stores.get(&principal, store_id).await?;
    let name = archive_name(&store.name);
    let reading = Reading { engine: &engine, principal: &principal, store_id, held: &held };
    let Ok(Value::Object(store)) = serde_json::to_value(MemoryStore::from(store)) else {
        return Err(ApiError::internal());
    };
    let content_bytes = usize::try_from(principal.limits.bytes_per_memory).unwrap_or(usize::MAX);
    reading.charge(COPIES_OF_CONTENT.saturating_mul(content_bytes))?;
    let slot = engine.export_slots.take(principal.tenant_id).await?;
    let mut lists = reading.memories().await?;
    let versions = if has_versions { Some(reading.versions(&mut lists).await?) } else { None };
    let exported_at = engine.now();
    let ending =
        Ending { exported_at, store, lists, history: versions, missing: BTreeMap::new(), named: None };
    let begin = move || Writer::new(Vec::new()).map(|writer| (writer, files_of(&ending.lists), ending));
    let started = engine.computations.run(principal.tenant_id, begin).await?;
    let (writer, files, ending) = started.map_err(|_| ApiError::internal())?;
    drop(slot);
    let download_state = Download {
        engine,
        credential: headers,
        store_id,
        files: files.into_iter(),
        writer: Some(writer),
        ending: Some(ending),
        checked_at: Instant::now(),
        principal,
    };
    let chunks = stream::unfold(Some(download_state), |state| async move {
        let mut state = state?;
        match state.next().await {
            Ok(Some(chunk)) => Some((Ok(chunk), Some(state))),
            Ok(None) => None,
            Err(error) => {
                tracing::warn!(error.message = %error.message, "http.download was broken off");
                Some((Err(io::Error::other("the archive cannot be completed")), None))
            }
        }
    });
    Ok(download(&name, "application/zstd", Body::from_stream(chunks)))
}

#[derive(Default)]
struct Lists {
    index: Index,
    /// For each file, a version with this content, and the hash of the content.
    contents: HashMap<String, (VersionId, ContentHash)>,
    /// Files of contents that only the history has.
    past: HashSet<String>,
}

/// `versions.jsonl`
struct History {
    text: Vec<u8>,
    count: u64,
}

struct File {
    name: String,
    modified_at: u64,
    version_id: VersionId,
    sha256: ContentHash,
    /// Whether only the history has this content.
    is_past: bool,
}

struct Reading<'a> {
    engine: &'a Engine,
    principal: &'a Arc<Principal>,
    store_id: StoreId,
    held: &'a Held,
}

fn page_after(page: Option<String>) -> PageRequest {
    PageRequest { limit: Some(100), page }
}

impl Reading<'_> {
    /// Charges memory that the request holds until it ends.
    fn charge(&self, bytes: usize) -> Result<(), ApiError> {
        let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
        let is_allowed = self.held.memory.try_grow(bytes);
        is_allowed.then_some(()).ok_or_else(ApiError::over_memory)
    }

    /// The memories of the store at one moment.
    ///
    /// A memory that is renamed during a listing may be on no page of it. So the changes since the
    /// listing began are read until there are no further ones.
    async fn memories(&self) -> Result<Lists, ApiError> {
        let changes = &self.engine.changes;
        let mut place = changes.newest(self.principal, self.store_id).await?;
        let mut memories = self.listed().await?;
        for _ in 0..MAX_PAGES_OF_CHANGES {
            let page = changes.list(self.principal, self.store_id, place, Some(100)).await?;
            place = page.next_after;
            if page.is_history_removed {
                memories = self.listed().await?;
            } else if page.changes.is_empty() {
                let mut memories: Vec<_> = memories.into_values().collect();
                memories.sort_by(|a, b| a.memory.head.path.as_str().cmp(b.memory.head.path.as_str()));
                let mut lists = Lists::default();
                for shown in &memories {
                    lists.add(shown);
                }
                return Ok(lists);
            }
            let touched: BTreeSet<MemoryId> = page.changes.iter().map(|version| version.memory_id).collect();
            for memory_id in touched {
                let read = self.engine.memories.get(self.principal, self.store_id, memory_id, View::Basic);
                match read.await {
                    Ok(shown) => {
                        self.charge_entry(&shown)?;
                        memories.insert(memory_id, shown);
                    }
                    Err(EngineError::MemoryNotFound) => {
                        memories.remove(&memory_id);
                    }
                    Err(error) => return Err(error.into()),
                }
            }
        }
        Err(ApiError::from(EngineError::Conflict(
            "the store changes faster than it can be read: try again later",
        )))
    }

    fn charge_entry(&self, shown: &ShownMemory) -> Result<(), ApiError> {
        self.charge(ENTRY_BYTES + 4 * shown.memory.head.path.as_str().len())
    }

    async fn listed(&self) -> Result<BTreeMap<MemoryId, ShownMemory>, ApiError> {
        let mut listed = BTreeMap::new();
        let mut query = MemoryQuery::default();
        loop {
            query.page = page_after(query.page.page);
            let memories = &self.engine.memories;
            let page = memories.list(self.principal, self.store_id, &query, View::Basic).await?;
            for item in page.items {
                if let ShownItem::Memory(shown) = item {
                    self.charge_entry(&shown)?;
                    listed.insert(shown.memory.head.memory_id, *shown);
                }
            }
            if page.next.is_none() {
                return Ok(listed);
            }
            query.page.page = page.next;
        }
    }

    /// Reads the history, oldest first, and adds to `lists` the contents that no memory has now.
    async fn versions(&self, lists: &mut Lists) -> Result<History, ApiError> {
        let current = lists.index.contents();
        let mut lines = Vec::new();
        let mut query = VersionQuery::default();
        loop {
            query.page = page_after(query.page.page);
            let versions = &self.engine.versions;
            let page = versions.list(self.principal, self.store_id, &query, View::Basic).await?;
            for shown in page.items {
                let version_id = shown.version.version_id;
                if let Some(content) = shown.version.content
                    && !current.contains(&content.sha256.to_string())
                {
                    let name = blob_file(content.sha256);
                    lists.past.insert(name.clone());
                    lists.contents.insert(name, (version_id, content.sha256));
                }
                let line = serde_json::to_value(MemoryVersion::from(shown));
                let line = format!("{}\n", line.map_err(|_| ApiError::internal())?);
                self.charge(COPIES_OF_VERSION * line.len())?;
                lines.push(line);
            }
            if page.next.is_none() {
                break;
            }
            query.page.page = page.next;
        }
        let count = u64::try_from(lines.len()).unwrap_or(u64::MAX);
        lines.reverse();
        let text = lines.concat().into_bytes();
        Ok(History { text, count })
    }
}

impl Lists {
    fn add(&mut self, shown: &ShownMemory) {
        let (memory, head) = (&shown.memory, &shown.memory.head);
        let name = self.index.file_of(&head.path, head.sha256);
        self.contents.insert(name.clone(), (head.version_id, head.sha256));
        self.index.record(Entry {
            path: head.path.as_str().to_owned(),
            id: head.memory_id.to_string(),
            version_id: head.version_id.to_string(),
            content_sha256: head.sha256.to_string(),
            size_bytes: head.size_bytes,
            created_at: memory.created_at.to_rfc3339(),
            updated_at: memory.updated_at.to_rfc3339(),
            expires_at: memory.expires_at.map(Timestamp::to_rfc3339),
            pinned: memory.is_pinned,
            file: name.starts_with(BLOBS).then_some(name),
        });
    }
}

/// In the order of the archive: contents of memories, then contents of the history.
fn files_of(lists: &Lists) -> Vec<File> {
    let current = lists.index.files();
    let past: BTreeSet<_> = lists.past.iter().filter(|name| !current.contains_key(*name)).cloned().collect();
    let current = current.into_iter().map(|(name, modified_at)| (name, modified_at, false));
    let past = past.into_iter().map(|name| (name, 0, true));
    let files = current.chain(past).filter_map(|(name, modified_at, is_past)| {
        let (version_id, sha256) = *lists.contents.get(&name)?;
        Some(File { name, modified_at, version_id, sha256, is_past })
    });
    files.collect()
}

/// The lists at the end of the archive.
struct Ending {
    exported_at: Timestamp,
    store: Map<String, Value>,
    lists: Lists,
    history: Option<History>,
    /// Files of contents that are missing or damaged, with the reason.
    missing: BTreeMap<String, String>,
    /// Hashes of the contents that the history names once the memories with missing content are
    /// left out.
    named: Option<HashSet<String>>,
}

impl Ending {
    /// Removes the memories whose content is missing, with their versions. An older version whose
    /// content is missing becomes a redacted one.
    fn leave_out(&mut self) -> serde_json::Result<()> {
        let lists = &mut self.lists;
        let missing = |file: &str| self.missing.contains_key(file);
        let gone = lists.index.entries().filter(|entry| missing(&entry.content_file()));
        let gone: HashSet<String> = gone.map(|entry| entry.id.clone()).collect();
        for id in &gone {
            lists.index.remove(id);
        }
        let current = lists.index.contents();
        let hashes = self.missing.keys().filter_map(|file| Some(lists.contents.get(file)?.1.to_string()));
        let hashes: HashSet<String> = hashes.filter(|sha256| !current.contains(sha256)).collect();
        let Some(history) = self.history.as_mut() else {
            return Ok(());
        };
        let at = self.exported_at.to_rfc3339();
        let mut text = Vec::with_capacity(history.text.len());
        let mut named = HashSet::new();
        history.count = 0;
        for line in history.text.split_inclusive(|byte| *byte == b'\n') {
            let mut version: Value = serde_json::from_slice(line)?;
            let is_in = |field: &str, of: &HashSet<String>| {
                version[field].as_str().is_some_and(|value| of.contains(value))
            };
            if is_in("memory_id", &gone) {
                continue;
            }
            if is_in("content_sha256", &hashes) {
                without_content(&mut version, &at);
                text.extend_from_slice(format!("{version}\n").as_bytes());
            } else {
                named.extend(version["content_sha256"].as_str().map(str::to_owned));
                text.extend_from_slice(line);
            }
            history.count += 1;
        }
        history.text = text;
        self.named = Some(named);
        Ok(())
    }
}

fn end(mut writer: Writer<Vec<u8>>, mut ending: Ending) -> io::Result<Writer<Vec<u8>>> {
    if !ending.missing.is_empty() {
        ending.leave_out()?;
    }
    let Ending { exported_at, store, lists, history, missing, named: _ } = ending;
    let mut index = Hashing::new(Vec::new());
    write_lines(&mut index, lists.index.entries())?;
    let (index, index_sha256) = index.into_parts();
    let manifest = Manifest {
        format: FORMAT.to_owned(),
        version: FORMAT_VERSION,
        exported_at: exported_at.to_rfc3339(),
        store,
        counts: lists.index.counts(history.as_ref().map_or(0, |history| history.count)),
        index_sha256,
        versions_sha256: history.as_ref().map(|history| ContentHash::of(&history.text).to_string()),
        left_out: missing.into_values().collect(),
    };
    let manifest = manifest.to_text();
    writer.add(MANIFEST, 0, manifest.len() as u64, manifest.as_bytes())?;
    writer.add(INDEX, 0, index.len() as u64, &index[..])?;
    if let Some(history) = history {
        writer.add(VERSIONS, 0, history.text.len() as u64, &history.text[..])?;
    }
    Ok(writer)
}

struct Download {
    engine: Engine,
    credential: HeaderMap,
    principal: Arc<Principal>,
    checked_at: Instant,
    store_id: StoreId,
    files: std::vec::IntoIter<File>,
    /// `None`: the archive is complete.
    writer: Option<Writer<Vec<u8>>>,
    /// `None`: the lists were written to the archive.
    ending: Option<Ending>,
}

impl Download {
    /// Whether the history names the content once the memories with missing content are left out.
    async fn names(&mut self, file: &File) -> Result<bool, ApiError> {
        let is_whole = |ending: &Ending| ending.missing.is_empty();
        if self.ending.as_ref().is_none_or(is_whole) {
            return Ok(true);
        }
        if let Some(mut ending) = self.ending.take_if(|ending| ending.named.is_none()) {
            let leave_out = move || ending.leave_out().map(|()| ending);
            let left_out = self.engine.computations.run(self.principal.tenant_id, leave_out).await?;
            self.ending = Some(left_out.map_err(|_| ApiError::internal())?);
        }
        let named = self.ending.as_ref().and_then(|ending| ending.named.as_ref());
        Ok(named.is_none_or(|named| named.contains(&file.sha256.to_string())))
    }

    /// `None`: the archive is complete.
    ///
    /// Takes a slot of the tenant for one chunk only: the client decides when it reads the next
    /// one.
    async fn next(&mut self) -> Result<Option<Bytes>, ApiError> {
        let _slot = self.engine.export_slots.take(self.principal.tenant_id).await?;
        let unpackable = |_: io::Error| ApiError::internal();
        while let Some(mut writer) = self.writer.take() {
            if writer.get_mut().len() >= CHUNK_BYTES {
                let chunk = std::mem::take(writer.get_mut());
                self.writer = Some(writer);
                return Ok(Some(chunk.into()));
            }
            if self.checked_at.elapsed() > CHECK_INTERVAL {
                self.principal = principal_of(&self.engine, &self.credential).await?;
                self.checked_at = Instant::now();
            }
            let Some(file) = self.files.next() else {
                let Some(ending) = self.ending.take() else {
                    return Ok(Some(writer.finish().map_err(unpackable)?.into()));
                };
                let end = move || end(writer, ending);
                let ended = self.engine.computations.run(self.principal.tenant_id, end).await?;
                self.writer = Some(ended.map_err(unpackable)?);
                continue;
            };
            if file.is_past && !self.names(&file).await? {
                self.writer = Some(writer);
                continue;
            }
            let versions = &self.engine.versions;
            let version = versions.get(&self.principal, self.store_id, file.version_id, View::Full).await;
            let version = match (version, &mut self.ending) {
                (
                    Err(error @ (EngineError::ContentMissing { .. } | EngineError::ContentDamaged { .. })),
                    Some(ending),
                ) => {
                    ending.missing.insert(file.name, error.to_string());
                    self.writer = Some(writer);
                    continue;
                }
                (version, _) => version?,
            };
            let sha256 = version.version.content.map(|content| content.sha256);
            let content = version.content.filter(|_| sha256 == Some(file.sha256));
            let content =
                content.ok_or_else(|| ApiError::not_found("a version was redacted during the export"))?;
            let pack = move || {
                let size_bytes = content.len() as u64;
                let added = writer.add(&file.name, file.modified_at, size_bytes, content.as_bytes());
                added.map(|()| writer)
            };
            let packed = self.engine.computations.run(self.principal.tenant_id, pack).await?;
            self.writer = Some(packed.map_err(unpackable)?);
        }
        Ok(None)
    }
}
