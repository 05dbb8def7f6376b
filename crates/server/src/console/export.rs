//! A memory store as an archive, sent while it is read.
//!
//! The lists are made first, because the archive begins with them; they are in memory.
//! Contents follow one by one: each is the content of the version that the index names,
//! so that changes during the download do not matter. If one of these versions is
//! removed meanwhile, or the credential ends, the download is broken off.

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
    write_lines,
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

/// The path of an archive.
pub(super) const ROUTE: &str = "/console/stores/{memory_store_id}/archive";
/// Packed bytes that are sent at once.
const CHUNK_BYTES: usize = 64 << 10;
/// The interval at which the credential is checked.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// Pages of changes after which a store is given up that changes while it is read.
const MAX_PAGES_OF_CHANGES: usize = 1_000;
/// Memory of a memory in the lists, besides its path: the entry, its line, its file.
const ENTRY_BYTES: usize = 2 << 10;
/// Times that a content is in memory while it is sent: as text, and packed.
const COPIES_OF_CONTENT: usize = 2;
/// Times that the line of a version is in memory while the archive begins.
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
    let begin = move || begin(exported_at, store, &lists, versions).map(|writer| (writer, files_of(&lists)));
    let started = engine.computations.run(principal.tenant_id, begin).await?;
    let (writer, files) = started.map_err(|_| ApiError::internal())?;
    drop(slot);
    let download_state = Download {
        engine,
        credential: headers,
        store_id,
        files: files.into_iter(),
        writer: Some(writer),
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

/// What the archive lists.
#[derive(Default)]
struct Lists {
    index: Index,
    /// A version with the content of each file; the hash of the content.
    contents: HashMap<String, (VersionId, ContentHash)>,
    /// The files of contents that only the history has.
    past: HashSet<String>,
}

/// `versions.jsonl`
struct History {
    text: Vec<u8>,
    count: u64,
}

/// A content that is still to be sent.
struct File {
    name: String,
    modified_at: u64,
    version_id: VersionId,
    sha256: ContentHash,
}

/// The reads before the answer begins.
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
    /// Counts memory that the request needs until it ends.
    fn charge(&self, bytes: usize) -> Result<(), ApiError> {
        let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
        let is_allowed = self.held.memory.try_grow(bytes);
        is_allowed.then_some(()).ok_or_else(ApiError::over_memory)
    }

    /// The memories of the store at one moment.
    ///
    /// A memory that is renamed during a listing may be on no page of it. So what changed
    /// since the listing began is read again, until nothing did.
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

    /// The memories that the pages of a listing show.
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

    /// Reads the history, oldest first, and adds the contents that no memory has now.
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
            expires_at: shown.expires_at.map(Timestamp::to_rfc3339),
            pinned: memory.is_pinned,
            file: name.starts_with(BLOBS).then_some(name),
        });
    }
}

/// The contents in the order of the archive.
fn files_of(lists: &Lists) -> Vec<File> {
    let mut times: BTreeMap<String, u64> = lists.index.files();
    for name in &lists.past {
        times.entry(name.clone()).or_default();
    }
    let files = times.into_iter().filter_map(|(name, modified_at)| {
        let (version_id, sha256) = *lists.contents.get(&name)?;
        Some(File { name, modified_at, version_id, sha256 })
    });
    files.collect()
}

/// Begins the archive with its lists.
fn begin(
    exported_at: Timestamp,
    store: Map<String, Value>,
    lists: &Lists,
    history: Option<History>,
) -> io::Result<Writer<Vec<u8>>> {
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
    };
    let manifest = manifest.to_text();
    let mut writer = Writer::new(Vec::new())?;
    writer.add(MANIFEST, 0, manifest.len() as u64, manifest.as_bytes())?;
    writer.add(INDEX, 0, index.len() as u64, &index[..])?;
    if let Some(history) = history {
        writer.add(VERSIONS, 0, history.text.len() as u64, &history.text[..])?;
    }
    Ok(writer)
}

/// The archive while it is sent.
struct Download {
    engine: Engine,
    /// The headers with the credential.
    credential: HeaderMap,
    principal: Arc<Principal>,
    checked_at: Instant,
    store_id: StoreId,
    files: std::vec::IntoIter<File>,
    /// `None`: the archive is complete.
    writer: Option<Writer<Vec<u8>>>,
}

impl Download {
    /// The next bytes of the archive; `None`: it is complete.
    ///
    /// Takes a slot of the tenant for this step only: the client decides when it asks for the
    /// next one.
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
                return Ok(Some(writer.finish().map_err(unpackable)?.into()));
            };
            let versions = &self.engine.versions;
            let version = versions.get(&self.principal, self.store_id, file.version_id, View::Full).await?;
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
