//! Exports: archives of stores, sent while they are read.
//!
//! The memories are listed first, as they are at one moment. Then their contents are sent one by
//! one: each is the content of the listed version, so that later changes do not matter. The
//! contents that only the history has follow, and at last the lists, without missing contents. If a
//! listed version is removed before the archive is complete, the export is broken off; so it is if
//! any version is removed while the history is read.
//!
//! An export keeps a short record of each memory and of each content that only the history has,
//! charged to its request. The lines of the lists are read twice, to state their size and to send
//! them.

use std::collections::{BTreeMap, HashSet};
use std::io::{self, Write};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use keepsake_archive::format::{
    BLOBS, Counts, Entry, FORMAT, FORMAT_VERSION, Hashing, INDEX, MANIFEST, Manifest, VERSIONS, blob_file,
    memory_file, without_content, write_lines,
};
use keepsake_archive::packed::Writer;
use keepsake_archive::placement::Placement;
use keepsake_core::{
    ContentHash, DirPath, MemoryId, MemoryPath, ObjectKind, StoreId, TenantId, Timestamp, VersionId,
};
use keepsake_index::{ChangePage, Depth, Memory, MemoryItem, MemoryListing, MemoryTarget, Scope, Version};
use serde_json::{Map, Value};
use tokio::sync::mpsc;
use tracing::Instrument;

use crate::content::{ContentLoss, Contents};
use crate::context::Context;
use crate::fair::{FairSlot, FairSlots};
use crate::work::{Held, charge, held};
use crate::{EngineError, Principal, ShownVersion};

/// Packed bytes that are sent at once.
const CHUNK_BYTES: usize = 64 << 10;
/// Memories or versions that are read or written at once.
const PAGE: u32 = 500;
/// A store that changes while it is listed is given up after this many pages of changes.
const MAX_PAGES_OF_CHANGES: usize = 1_000;
/// Memory of the compression, and of a page of lines.
const PACKING_BYTES: usize = 4 << 20;
/// Copies of a content in memory while it is sent: as text, packed, in the chunk that waits for the
/// client, and in the chunk that the connection sends.
const COPIES_OF_CONTENT: usize = 4;
/// Memory of a listed memory, besides its path.
const MEMORY_BYTES: usize = 384;
/// Memory of a content that only the history has.
const PAST_CONTENT_BYTES: usize = 128;
/// After this time, bytes are sent that fill no chunk, so that the connection is not taken for dead.
const MAX_SILENCE: Duration = Duration::from_secs(10);
/// Reasons in `keepsake.json`, which no reader accepts above 256 KiB.
const MAX_REASON_BYTES: usize = 128 << 10;
/// What `keepsake.json` has between two reasons.
const REASON_SEPARATOR_BYTES: usize = 8;

/// What an archive contains in the form of the API.
#[derive(Debug, Clone)]
pub struct ExportForm {
    pub store: Map<String, Value>,
    pub version: fn(ShownVersion) -> serde_json::Result<Value>,
}

/// An archive that is being sent.
#[derive(Debug)]
pub struct Export(mpsc::Receiver<Sent>);

/// The next bytes of an archive, its end, or why it is broken off.
type Sent = Result<Option<Bytes>, EngineError>;

impl Export {
    /// `None`: the archive is complete. Nothing follows an error.
    pub async fn next(&mut self) -> Result<Option<Bytes>, EngineError> {
        let ended_early = || Err(EngineError::Internal("an export ended before its archive"));
        self.0.recv().await.unwrap_or_else(ended_early)
    }
}

#[derive(Debug, Clone)]
pub struct Exports {
    context: Arc<Context>,
    contents: Arc<Contents>,
    /// For the steps of exports: one for each tenant. A slot is held for one step only, because
    /// the client decides when the next one follows.
    slots: Arc<FairSlots>,
}

impl Exports {
    pub(crate) const fn new(context: Arc<Context>, contents: Arc<Contents>, slots: Arc<FairSlots>) -> Self {
        Self { context, contents, slots }
    }

    /// Whether a credential may export a store. Called again while an archive is sent.
    pub fn allow(&self, principal: &Principal, store_id: StoreId) -> Result<(), EngineError> {
        principal.require(Scope::MemoryRead)?;
        principal.require_store(store_id)?;
        principal.require_no_session()
    }

    /// Lists the memories of a store, and begins to send its archive. Exports are no use of the
    /// memories.
    #[tracing::instrument(name = "engine.export", level = "debug", skip_all)]
    pub async fn begin(
        &self,
        principal: &Principal,
        store_id: StoreId,
        has_versions: bool,
        form: ExportForm,
    ) -> Result<Export, EngineError> {
        self.allow(principal, store_id)?;
        let tenant_id = principal.tenant_id;
        let content_bytes = usize::try_from(principal.limits.bytes_per_memory).unwrap_or(usize::MAX);
        charge(COPIES_OF_CONTENT.saturating_mul(content_bytes).saturating_add(PACKING_BYTES))?;
        let slot = self.slots.take(tenant_id).await?;
        let (memories, last) = self.listed(tenant_id, store_id).await?;
        let begin = move || {
            let memories = placed(memories.into_values().collect());
            Writer::new(Vec::new()).map(|writer| (writer, memories))
        };
        let (writer, memories) =
            self.context.computations.run(tenant_id, begin).await?.map_err(unpackable)?;
        drop(slot);
        let (sender, receiver) = mpsc::channel(1);
        let sending = Sending {
            history: has_versions.then_some(last.seq),
            purge_epoch: last.purge_epoch,
            exported_at: self.context.now(),
            exports: self.clone(),
            tenant_id,
            store_id,
            form,
            writer: Some(writer),
            sent_at: Instant::now(),
            sender: sender.clone(),
            held: held(),
        };
        let run = async move {
            let ended = tokio::select! {
                ended = sending.run(memories) => ended,
                // Nobody receives what a step would send.
                () = sender.closed() => return,
            };
            let end = match ended {
                Ok(()) => Ok(None),
                Err(BrokenOff::ByReader) => return,
                Err(BrokenOff::Failed(error)) => Err(error),
            };
            // The client may have gone away.
            let _ = sender.send(end).await;
        };
        tokio::spawn(run.in_current_span());
        Ok(Export(receiver))
    }

    /// The memories of a store at one moment, and the state of its history then: a page without
    /// changes.
    ///
    /// A memory that is renamed during a listing may be on no page of it. So the changes since the
    /// listing began are read until there are no further ones.
    async fn listed(
        &self,
        tenant_id: TenantId,
        store_id: StoreId,
    ) -> Result<(BTreeMap<MemoryId, ListedMemory>, ChangePage), EngineError> {
        let newest = self.changes(tenant_id, store_id, i64::MAX).await?;
        let (mut seq, mut purge_epoch) = (newest.seq, newest.purge_epoch);
        let mut memories = Memories::default();
        self.list(tenant_id, store_id, &mut memories).await?;
        for _ in 0..MAX_PAGES_OF_CHANGES {
            let page = self.changes(tenant_id, store_id, seq).await?;
            if page.purge_epoch != purge_epoch {
                // Some changes may be missing.
                (seq, purge_epoch) = (page.seq, page.purge_epoch);
                self.list(tenant_id, store_id, &mut memories).await?;
                continue;
            }
            let Some(last) = page.versions.last() else {
                return Ok((memories.by_id, page));
            };
            seq = last.seq;
            let touched: HashSet<MemoryId> = page.versions.iter().map(|version| version.memory_id).collect();
            for memory_id in touched {
                match self.context.find_memory(tenant_id, store_id, memory_id).await?.target {
                    MemoryTarget::Live(memory) => memories.insert(memory)?,
                    MemoryTarget::Deleted { .. } | MemoryTarget::Missing => memories.remove(memory_id),
                }
            }
        }
        Err(EngineError::Conflict("the store changes faster than it can be read: try again later"))
    }

    /// Lists the memories in place of those that were listed before.
    async fn list(
        &self,
        tenant_id: TenantId,
        store_id: StoreId,
        memories: &mut Memories,
    ) -> Result<(), EngineError> {
        memories.clear();
        let mut listing =
            MemoryListing { below: DirPath::root(), depth: Depth::All, after: None, limit: PAGE };
        loop {
            let page = self.context.index.memories.list(tenant_id, store_id, &listing).await?;
            let items = page.ok_or(EngineError::NotFound(ObjectKind::Store))?.items;
            listing.after = items.last().map(|item| item.path().to_owned());
            if listing.after.is_none() {
                return Ok(());
            }
            for item in items {
                if let MemoryItem::Memory { memory, .. } = item {
                    memories.insert(*memory)?;
                }
            }
        }
    }

    async fn changes(
        &self,
        tenant_id: TenantId,
        store_id: StoreId,
        after: i64,
    ) -> Result<ChangePage, EngineError> {
        let page = self.context.index.changes.after(tenant_id, store_id, after, PAGE).await?;
        page.ok_or(EngineError::NotFound(ObjectKind::Store))
    }
}

/// A memory of the archive, as short as possible.
#[derive(Debug)]
struct ListedMemory {
    path: MemoryPath,
    memory_id: MemoryId,
    version_id: VersionId,
    sha256: ContentHash,
    size_bytes: u64,
    created_at: Timestamp,
    updated_at: Timestamp,
    expires_at: Option<Timestamp>,
    is_pinned: bool,
    /// Whether its content is in `blobs/`, because its path cannot be a file.
    is_blob: bool,
}

/// The memories of a store while they are listed, charged to the request.
#[derive(Debug, Default)]
struct Memories {
    by_id: BTreeMap<MemoryId, ListedMemory>,
    bytes: usize,
    /// The most bytes so far. Nothing is released before the request ends, so a listing that
    /// begins again is charged only for what it needs beyond them.
    charged_bytes: usize,
}

impl Memories {
    /// Keeps what the archive needs of a memory.
    fn insert(&mut self, memory: Memory) -> Result<(), EngineError> {
        let head = memory.head;
        let memory = ListedMemory {
            path: head.path,
            memory_id: head.memory_id,
            version_id: head.version_id,
            sha256: head.sha256,
            size_bytes: head.size_bytes,
            created_at: memory.created_at,
            updated_at: memory.updated_at,
            expires_at: memory.expires_at,
            is_pinned: memory.is_pinned,
            is_blob: false,
        };
        self.remove(memory.memory_id);
        self.bytes += memory.bytes();
        if self.bytes > self.charged_bytes {
            charge(self.bytes - self.charged_bytes)?;
            self.charged_bytes = self.bytes;
        }
        self.by_id.insert(memory.memory_id, memory);
        Ok(())
    }

    fn remove(&mut self, memory_id: MemoryId) {
        if let Some(memory) = self.by_id.remove(&memory_id) {
            self.bytes -= memory.bytes();
        }
    }

    fn clear(&mut self) {
        self.by_id.clear();
        self.bytes = 0;
    }
}

/// Sorts memories by path, and decides where their contents are.
fn placed(mut memories: Vec<ListedMemory>) -> Vec<ListedMemory> {
    memories.sort_unstable_by(|one, other| one.path.as_str().cmp(other.path.as_str()));
    let mut placement = Placement::default();
    for memory in &mut memories {
        memory.is_blob = placement.file_of(&memory.path, memory.sha256).starts_with(BLOBS);
    }
    memories
}

impl ListedMemory {
    fn bytes(&self) -> usize {
        MEMORY_BYTES + self.path.as_str().len()
    }

    fn file(&self) -> String {
        if self.is_blob { blob_file(self.sha256) } else { memory_file(&self.path) }
    }

    fn entry(&self) -> Entry {
        Entry {
            path: self.path.as_str().to_owned(),
            id: self.memory_id.to_string(),
            version_id: self.version_id.to_string(),
            content_sha256: self.sha256.to_string(),
            size_bytes: self.size_bytes,
            created_at: self.created_at.to_rfc3339(),
            updated_at: self.updated_at.to_rfc3339(),
            expires_at: self.expires_at.map(Timestamp::to_rfc3339),
            pinned: self.is_pinned,
            file: self.is_blob.then(|| blob_file(self.sha256)),
        }
    }
}

/// What is not in an archive, because its content is missing or damaged.
#[derive(Debug, Default)]
struct LeftOut {
    memories: HashSet<MemoryId>,
    /// Contents that only the history has, by hash.
    contents: HashSet<[u8; 32]>,
    reasons: Vec<String>,
    reason_bytes: usize,
    /// Reasons that `keepsake.json` has no room for.
    further: u64,
}

impl LeftOut {
    fn add(&mut self, reason: String) {
        let bytes = Value::from(reason.as_str()).to_string().len() + REASON_SEPARATOR_BYTES;
        if self.reason_bytes + bytes > MAX_REASON_BYTES {
            self.further += 1;
        } else {
            self.reason_bytes += bytes;
            self.reasons.push(reason);
        }
    }

    fn reasons(&self) -> Vec<String> {
        let further = self.further;
        let count = || {
            format!(
                "the contents of {further} further memories or older versions are missing or damaged in the \
                 content store"
            )
        };
        let further = (further > 0).then(count);
        self.reasons.iter().cloned().chain(further).collect()
    }
}

/// An archive while it is sent.
struct Sending {
    exports: Exports,
    tenant_id: TenantId,
    store_id: StoreId,
    form: ExportForm,
    /// The sequence number of the history's last version; `None` if the archive has no history.
    history: Option<i64>,
    /// The number of removals of the store's history when the listed versions were last known to
    /// exist.
    purge_epoch: i64,
    exported_at: Timestamp,
    /// `None` while a step runs.
    writer: Option<Writer<Vec<u8>>>,
    /// When bytes were last sent, or there were none to send.
    sent_at: Instant,
    sender: mpsc::Sender<Sent>,
    /// The shares of the request.
    held: Option<Arc<Held>>,
}

enum BrokenOff {
    /// The client went away.
    ByReader,
    Failed(EngineError),
}

impl From<EngineError> for BrokenOff {
    fn from(error: EngineError) -> Self {
        Self::Failed(error)
    }
}

fn unpackable(_: io::Error) -> EngineError {
    EngineError::Internal("a part of an archive cannot be packed")
}

const fn history_removed() -> EngineError {
    EngineError::Conflict("a version was removed during the export")
}

impl Sending {
    async fn run(mut self, mut memories: Vec<ListedMemory>) -> Result<(), BrokenOff> {
        let mut left_out = LeftOut::default();
        let mut blobs = HashSet::new();
        for memory in &memories {
            if memory.is_blob && blobs.contains(&memory.sha256) {
                continue;
            }
            let modified_at = u64::try_from(memory.updated_at.as_micros() / 1_000_000).unwrap_or_default();
            match self.send_content(memory.file(), modified_at, memory.version_id, memory.sha256).await? {
                Some(reason) => {
                    left_out.memories.insert(memory.memory_id);
                    left_out.add(reason);
                }
                None if memory.is_blob => drop(blobs.insert(memory.sha256)),
                None => {}
            }
        }
        let has_history = self.history.is_some();
        let keep = move || {
            memories.retain(|memory| !left_out.memories.contains(&memory.memory_id));
            let counts = Counts {
                memories: memories.len() as u64,
                content_bytes: memories.iter().map(|memory| memory.size_bytes).sum(),
                versions: 0,
            };
            let hashes = || memories.iter().map(|memory| memory.sha256).collect::<HashSet<_>>();
            let current = has_history.then(hashes);
            (memories, left_out, counts, current)
        };
        let (memories, mut left_out, mut counts, current) = self.compute(keep).await?;
        if let Some(current) = current {
            self.require_listed(&memories).await?;
            for (sha256, version_id) in self.past_contents(&current, &left_out, &mut counts).await? {
                let hash = ContentHash::from(sha256);
                if let Some(reason) = self.send_content(blob_file(hash), 0, version_id, hash).await? {
                    left_out.contents.insert(sha256);
                    left_out.add(reason);
                }
            }
        }
        let (memories, left_out) = (Arc::new(memories), Arc::new(left_out));
        let lines = Lines::Index { memories: Arc::clone(&memories), next: 0 };
        let index_sha256 = self.send_list(INDEX, &lines).await?;
        let versions_sha256 = if has_history {
            let lines = Lines::Versions { after: 0, left_out: Arc::clone(&left_out) };
            Some(self.send_list(VERSIONS, &lines).await?)
        } else {
            self.require_listed(&memories).await?;
            None
        };
        let manifest = Manifest {
            format: FORMAT.to_owned(),
            version: FORMAT_VERSION,
            exported_at: self.exported_at.to_rfc3339(),
            store: std::mem::take(&mut self.form.store),
            counts,
            index_sha256,
            versions_sha256,
            left_out: left_out.reasons(),
        };
        let manifest = manifest.to_text();
        self.pack(move |writer| writer.add(MANIFEST, 0, manifest.len() as u64, manifest.as_bytes())).await?;
        let writer = self.take_writer()?;
        let rest = self.compute(move || writer.finish()).await?;
        self.send(rest.map_err(unpackable)?).await
    }

    /// Sends a content, or returns why it is missing.
    async fn send_content(
        &mut self,
        name: String,
        modified_at: u64,
        version_id: VersionId,
        sha256: ContentHash,
    ) -> Result<Option<String>, BrokenOff> {
        let slot = self.slot().await?;
        let content = match self.read(version_id, sha256).await {
            Ok(content) => content,
            Err(error) => {
                let why = error.to_string();
                ContentLoss::of(error)?;
                drop(slot);
                self.flush().await?;
                return Ok(Some(why));
            }
        };
        let add = move |writer: &mut Writer<Vec<u8>>| {
            writer.add(&name, modified_at, content.len() as u64, content.as_bytes())
        };
        self.pack(add).await?;
        drop(slot);
        self.flush().await?;
        Ok(None)
    }

    async fn slot(&self) -> Result<FairSlot, EngineError> {
        self.exports.slots.take(self.tenant_id).await
    }

    async fn read(&self, version_id: VersionId, sha256: ContentHash) -> Result<Arc<str>, EngineError> {
        let (tenant_id, store_id) = (self.tenant_id, self.store_id);
        let (store, version) = self.exports.context.find_version(tenant_id, store_id, version_id).await?;
        let contents = &self.exports.contents;
        let content = contents.of_version(tenant_id, store_id, store.purge_epoch, &version).await?;
        let is_same = version.content.is_some_and(|content| content.sha256 == sha256);
        content.filter(|_| is_same).ok_or_else(history_removed)
    }

    /// Breaks the export off if a listed version was redacted or removed since the listing.
    async fn require_listed(&mut self, memories: &[ListedMemory]) -> Result<(), BrokenOff> {
        let newest = self.exports.changes(self.tenant_id, self.store_id, i64::MAX).await?;
        if newest.purge_epoch == self.purge_epoch {
            return Ok(());
        }
        for memory in memories {
            let slot = self.slot().await?;
            let found = self.exports.context.find_version(self.tenant_id, self.store_id, memory.version_id);
            if found.await?.1.content.is_none() {
                return Err(history_removed().into());
            }
            drop(slot);
            self.flush().await?;
        }
        self.purge_epoch = newest.purge_epoch;
        Ok(())
    }

    /// The contents that only the history has, each with a version that has it. Counts the
    /// versions.
    async fn past_contents(
        &mut self,
        current: &HashSet<ContentHash>,
        left_out: &LeftOut,
        counts: &mut Counts,
    ) -> Result<BTreeMap<[u8; 32], VersionId>, BrokenOff> {
        let (mut past, mut after) = (BTreeMap::new(), 0);
        loop {
            let slot = self.slot().await?;
            let Some(versions) = self.versions_after(&mut after).await? else {
                return Ok(past);
            };
            for version in versions {
                if left_out.memories.contains(&version.memory_id) {
                    continue;
                }
                counts.versions += 1;
                let Some(content) = version.content.filter(|content| !current.contains(&content.sha256))
                else {
                    continue;
                };
                let is_new = past.insert(*content.sha256.as_bytes(), version.version_id).is_none();
                let grow = |held: &Arc<Held>| held.memory.try_grow(PAST_CONTENT_BYTES as u64);
                if is_new && !self.held.as_ref().is_none_or(grow) {
                    return Err(EngineError::OverMemory.into());
                }
            }
            drop(slot);
            self.flush().await?;
        }
    }

    /// A page of the archive's versions after a sequence number, which becomes that of the last
    /// one.
    async fn versions_after(&self, after: &mut i64) -> Result<Option<Vec<Version>>, EngineError> {
        let Some(until) = self.history else {
            return Ok(None);
        };
        let page = self.exports.changes(self.tenant_id, self.store_id, *after).await?;
        if page.purge_epoch != self.purge_epoch {
            return Err(history_removed());
        }
        let versions: Vec<_> = page.versions.iter().filter(|version| version.seq <= until).cloned().collect();
        Ok(versions.last().map(|last| last.seq).map(|seq| {
            *after = seq;
            versions
        }))
    }

    /// Sends a list; returns its hash.
    async fn send_list(&mut self, name: &'static str, lines: &Lines) -> Result<String, BrokenOff> {
        let mut size_bytes = 0;
        let mut measured = lines.clone();
        loop {
            let slot = self.slot().await?;
            let Some(page) = self.next_lines(&mut measured).await? else {
                break;
            };
            size_bytes += page.len() as u64;
            drop(slot);
            self.flush().await?;
        }
        self.pack(move |writer| writer.begin(name, size_bytes)).await?;
        let mut hashing = Hashing::new(io::sink());
        let mut lines = lines.clone();
        loop {
            let slot = self.slot().await?;
            let Some(page) = self.next_lines(&mut lines).await? else {
                break;
            };
            size_bytes = size_bytes.checked_sub(page.len() as u64).ok_or_else(history_removed)?;
            hashing = self
                .pack(move |writer| {
                    hashing.write_all(&page)?;
                    writer.write(&page).map(|()| hashing)
                })
                .await?;
            drop(slot);
            self.flush().await?;
        }
        if size_bytes > 0 {
            return Err(history_removed().into());
        }
        self.pack(Writer::end).await?;
        Ok(hashing.finish())
    }

    async fn next_lines(&self, lines: &mut Lines) -> Result<Option<Vec<u8>>, EngineError> {
        let written = match lines {
            Lines::Index { memories, next } => {
                let begin = *next;
                *next = memories.len().min(begin + PAGE as usize);
                if begin == *next {
                    return Ok(None);
                }
                let (memories, page) = (Arc::clone(memories), begin..*next);
                let write = move || lines_of(memories[page].iter().map(|memory| Ok(memory.entry())));
                self.compute(write).await?
            }
            Lines::Versions { after, left_out } => {
                let Some(versions) = self.versions_after(after).await? else {
                    return Ok(None);
                };
                let (store_id, form, left_out) = (self.store_id, self.form.version, Arc::clone(left_out));
                let at = self.exported_at.to_rfc3339();
                let write = move || {
                    let kept = |version: &Version| !left_out.memories.contains(&version.memory_id);
                    lines_of(versions.into_iter().filter(kept).map(|version| {
                        let sha256 = version.content.map(|content| *content.sha256.as_bytes());
                        let is_lost = sha256.is_some_and(|sha256| left_out.contents.contains(&sha256));
                        let mut line = form(ShownVersion { store_id, version, content: None, lost: None })?;
                        if is_lost {
                            without_content(&mut line, &at);
                        }
                        Ok(line)
                    }))
                };
                self.compute(write).await?
            }
        };
        written.map(Some).map_err(unpackable)
    }

    /// Runs a step of the packing.
    async fn pack<T: Send + 'static>(
        &mut self,
        step: impl FnOnce(&mut Writer<Vec<u8>>) -> io::Result<T> + Send + 'static,
    ) -> Result<T, EngineError> {
        let mut writer = self.take_writer()?;
        let run = move || step(&mut writer).map(|done| (writer, done));
        let packed = self.compute(run).await?;
        let (writer, done) = packed.map_err(unpackable)?;
        self.writer = Some(writer);
        Ok(done)
    }

    /// Runs a computation. It keeps the shares of the request to its end, also if the client goes
    /// away meanwhile.
    async fn compute<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, EngineError> {
        let held = self.held.clone();
        let run = move || {
            let done = work();
            drop(held);
            done
        };
        self.exports.context.computations.run(self.tenant_id, run).await
    }

    fn take_writer(&mut self) -> Result<Writer<Vec<u8>>, EngineError> {
        self.writer.take().ok_or(EngineError::Internal("a step of an archive did not end"))
    }

    /// Sends the packed bytes, if they fill a chunk or nothing was sent for long.
    async fn flush(&mut self) -> Result<(), BrokenOff> {
        let is_late = self.sent_at.elapsed() >= MAX_SILENCE;
        if is_late {
            self.pack(Writer::flush).await?;
        }
        let is_due = |packed: &&mut Vec<u8>| packed.len() >= CHUNK_BYTES || (is_late && !packed.is_empty());
        let packed = self.writer.as_mut().map(Writer::get_mut);
        match packed.filter(is_due).map(std::mem::take) {
            Some(chunk) => self.send(chunk).await?,
            None if is_late => {}
            None => return Ok(()),
        }
        self.sent_at = Instant::now();
        Ok(())
    }

    async fn send(&self, chunk: Vec<u8>) -> Result<(), BrokenOff> {
        self.sender.send(Ok(Some(chunk.into()))).await.map_err(|_| BrokenOff::ByReader)
    }
}

/// The lines of a list that were not read yet.
#[derive(Clone)]
enum Lines {
    Index {
        memories: Arc<Vec<ListedMemory>>,
        next: usize,
    },
    Versions {
        /// The sequence number of the last version that was read.
        after: i64,
        left_out: Arc<LeftOut>,
    },
}

fn lines_of(lines: impl Iterator<Item = serde_json::Result<impl serde::Serialize>>) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    for line in lines {
        write_lines(&mut text, std::iter::once(line?))?;
    }
    Ok(text)
}
