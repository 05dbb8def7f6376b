//! Exports: archives of stores, sent while they are read.
//!
//! The memories are listed first, as they are at one moment. Then their contents are sent one by
//! one: each is the content of the listed version, so that later changes do not matter. The
//! contents that only the history has follow, and at last the lists, without missing contents. The
//! export is broken off if a listed version is removed before the archive is complete. An export
//! with history is also broken off if any other version is removed while the history is read.
//!
//! An export keeps a short record of each memory and of each content that only the history has,
//! charged to its request. In a tar, the size of a file precedes its content. So the lines of the
//! lists are read twice: to count their bytes, and to send them.

mod history;
mod left_out;
mod listing;
mod packing;

use std::collections::HashSet;
use std::io::{self, Write};
use std::sync::Arc;

use bytes::Bytes;
use keepsake_archive::format::{
    Counts, FORMAT, FORMAT_VERSION, HashingReader, INDEX, MANIFEST, Manifest, VERSIONS, blob_file,
    without_content, write_lines,
};
use keepsake_archive::packed::Writer;
use keepsake_core::{ContentHash, Purpose, StoreId, Timestamp, VersionId};
use keepsake_index::{Scope, Version};
use serde_json::{Map, Value};
use tokio::sync::mpsc;
use tracing::Instrument;

use crate::access::AccessTimes;
use crate::compute::cores;
use crate::content::ContentLoss;
use crate::fair::FairSlots;
use crate::shared::service;
use crate::work::charge;
use crate::{EngineError, NamedMoment, Principal, ShownVersion};

use history::{History, history_removed};
use left_out::Omissions;
use listing::{ListedMemory, Listing, PAGE, placed};
use packing::{ArchiveChunk, ArchivePacker, ExportAbort, unpackable};

/// Memory of the compression, and of a page of lines.
const PACKING_BYTES: usize = 4 << 20;
/// Copies of a content in memory while it is sent: as text, packed, in the chunk that waits for the
/// client, and in the chunk that the connection sends.
const COPIES_OF_CONTENT: usize = 4;

/// The parts of an archive that have the form of the API's answers: the store, and each version.
#[derive(Debug, Clone)]
pub struct ExportForm {
    pub store: Map<String, Value>,
    pub version: fn(ShownVersion) -> serde_json::Result<Value>,
}

/// The content of an archive.
#[derive(Debug, Clone, Copy, Default)]
pub struct ExportExtent {
    /// Whether it has the history, too.
    pub has_versions: bool,
    /// The moment whose memories it has, without the history; `None`: the present.
    pub at: Option<NamedMoment>,
}

/// An archive that is being sent.
#[derive(Debug)]
pub struct Export(mpsc::Receiver<ArchiveChunk>);

impl Export {
    /// `None`: the archive is complete. Nothing follows an error.
    pub async fn next(&mut self) -> Result<Option<Bytes>, EngineError> {
        let ended_early = || Err(EngineError::Internal("an export ended before its archive"));
        self.0.recv().await.unwrap_or_else(ended_early)
    }
}

service! {
    pub Exports(shared) {
        /// For the steps of exports: one for each tenant. A slot is held for one step only, because
        /// the client decides when the next one follows.
        slots: Arc<FairSlots> = Arc::new(FairSlots::new(cores().max(2), 1)),
    }
}

impl Exports {
    /// Whether a credential may export a store. Called again while an archive is sent.
    pub fn allow(&self, principal: &Principal, store_id: StoreId) -> Result<(), EngineError> {
        principal.require_outside_session(Scope::MemoryRead, store_id)
    }

    /// Lists the memories of a store, and begins to send its archive. An export does not count
    /// as a use of the memories.
    #[tracing::instrument(name = "engine.export", level = "debug", skip_all, fields(gen_ai.memory.store.id = %store_id))]
    pub async fn begin(
        &self,
        principal: &Principal,
        store_id: StoreId,
        extent: ExportExtent,
        form: ExportForm,
    ) -> Result<Export, EngineError> {
        self.allow(principal, store_id)?;
        let (tenant_id, has_versions) = (principal.tenant_id, extent.has_versions);
        if let Some(at) = extent.at.filter(|_| has_versions) {
            let rule = "cannot be combined with `versions`".to_owned();
            return Err(EngineError::Invalid { field: at.field, rule });
        }
        let content_bytes = usize::try_from(principal.limits.bytes_per_memory).unwrap_or(usize::MAX);
        charge(COPIES_OF_CONTENT.saturating_mul(content_bytes).saturating_add(PACKING_BYTES))?;
        let slot = self.slots.take(tenant_id).await?;
        let listing = Listing::new(&self.context, tenant_id, store_id);
        let mut left_out = Omissions::default();
        let (memories, last) = match extent.at {
            Some(at) => listing.read_past(at, &mut left_out).await?,
            None => listing.read().await?,
        };
        let begin = move || Writer::new(Vec::new()).map(|writer| (writer, placed(memories)));
        let computations = self.context.computations.clone();
        let (writer, memories) = computations.run(tenant_id, begin).await?.map_err(unpackable)?;
        drop(slot);
        let (sender, receiver) = mpsc::channel(1);
        let slots = Arc::clone(&self.slots);
        let sending = ArchiveSender {
            history: History {
                context: Arc::clone(&self.context),
                contents: Arc::clone(&self.contents),
                tenant_id,
                store_id,
                last_seq: last.seq,
                purge_epoch: last.purge_epoch,
            },
            exported_at: self.context.now(),
            access: self.access.clone(),
            reader: principal.reading_for(Purpose::Backup),
            form,
            packing: ArchivePacker::new(computations, slots, tenant_id, writer, sender.clone()),
        };
        let run = async move {
            let ended = tokio::select! {
                ended = sending.run(memories, left_out, has_versions) => ended,
                // Nobody receives what a step would send.
                () = sender.closed() => return,
            };
            let end = match ended {
                Ok(()) => Ok(None),
                Err(ExportAbort::ByReader) => return,
                Err(ExportAbort::Failed(error)) => Err(error),
            };
            // The client may have gone away.
            let _ = sender.send(end).await;
        };
        tokio::spawn(run.in_current_span());
        Ok(Export(receiver))
    }
}

/// An archive while it is sent.
struct ArchiveSender {
    history: History,
    access: AccessTimes,
    /// Whoever gets the archive.
    reader: Principal,
    form: ExportForm,
    exported_at: Timestamp,
    packing: ArchivePacker,
}

impl ArchiveSender {
    async fn run(
        mut self,
        mut memories: Vec<ListedMemory>,
        mut left_out: Omissions,
        has_versions: bool,
    ) -> Result<(), ExportAbort> {
        let mut blobs = HashSet::new();
        for memory in &memories {
            if memory.is_blob && blobs.contains(&memory.sha256) {
                self.record(memory.version_id);
                continue;
            }
            let modified_at = u64::try_from(memory.updated_at.as_micros() / 1_000_000).unwrap_or_default();
            let lost =
                self.send_content(memory.file(), modified_at, memory.version_id, memory.sha256).await?;
            if let Some(reason) = lost {
                left_out.memories.insert(memory.memory_id);
                left_out.add(reason);
                continue;
            }
            self.record(memory.version_id);
            if memory.is_blob {
                blobs.insert(memory.sha256);
            }
        }
        let keep = move || {
            memories.retain(|memory| !left_out.memories.contains(&memory.memory_id));
            let counts = Counts {
                memories: memories.len() as u64,
                content_bytes: memories.iter().map(|memory| memory.size_bytes).sum(),
                versions: 0,
            };
            let hashes = || memories.iter().map(|memory| memory.sha256).collect::<HashSet<_>>();
            let current = has_versions.then(hashes);
            (memories, left_out, counts, current)
        };
        let (memories, mut left_out, mut counts, current) = self.packing.compute(keep).await?;
        if let Some(current) = current {
            self.history.require_listed(&memories, &mut self.packing).await?;
            let past = self.history.past_contents(&current, &left_out, &mut counts, &mut self.packing);
            for (sha256, version_id) in past.await? {
                let hash = ContentHash::from(sha256);
                if let Some(reason) = self.send_content(blob_file(hash), 0, version_id, hash).await? {
                    left_out.contents.insert(sha256);
                    left_out.add(reason);
                } else {
                    self.record(version_id);
                }
            }
        }
        let (memories, left_out) = (Arc::new(memories), Arc::new(left_out));
        let lines = Lines::Index { memories: Arc::clone(&memories), next: 0 };
        let index_sha256 = self.send_list(INDEX, &lines).await?;
        let versions_sha256 = if has_versions {
            let lines = Lines::Versions { after: 0, left_out: Arc::clone(&left_out) };
            Some(self.send_list(VERSIONS, &lines).await?)
        } else {
            self.history.require_listed(&memories, &mut self.packing).await?;
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
        let add = move |writer: &mut Writer<Vec<u8>>| {
            writer.add(MANIFEST, 0, manifest.len() as u64, manifest.as_bytes())
        };
        self.packing.pack(add).await?;
        self.packing.finish().await
    }

    /// Records that the archive has the content of a version.
    fn record(&self, version_id: VersionId) {
        self.access.record_version(&self.reader, self.history.store_id, version_id);
    }

    /// Sends a content, or returns why it is missing.
    async fn send_content(
        &mut self,
        name: String,
        modified_at: u64,
        version_id: VersionId,
        sha256: ContentHash,
    ) -> Result<Option<String>, ExportAbort> {
        let slot = self.packing.slot().await?;
        let content = match self.history.content(version_id, sha256).await {
            Ok(content) => content,
            Err(error) => {
                let why = error.to_string();
                ContentLoss::of(error)?;
                drop(slot);
                self.packing.flush().await?;
                return Ok(Some(why));
            }
        };
        let add = move |writer: &mut Writer<Vec<u8>>| {
            writer.add(&name, modified_at, content.len() as u64, content.as_bytes())
        };
        self.packing.pack(add).await?;
        drop(slot);
        self.packing.flush().await?;
        Ok(None)
    }

    /// Sends a list; returns its hash.
    async fn send_list(&mut self, name: &'static str, lines: &Lines) -> Result<String, ExportAbort> {
        let mut size_bytes = 0;
        let mut measured = lines.clone();
        loop {
            let slot = self.packing.slot().await?;
            let Some(page) = self.next_lines(&mut measured).await? else {
                break;
            };
            size_bytes += page.len() as u64;
            drop(slot);
            self.packing.flush().await?;
        }
        self.packing.pack(move |writer| writer.begin(name, size_bytes)).await?;
        let mut hashing = HashingReader::new(io::sink());
        let mut lines = lines.clone();
        loop {
            let slot = self.packing.slot().await?;
            let Some(page) = self.next_lines(&mut lines).await? else {
                break;
            };
            size_bytes = size_bytes.checked_sub(page.len() as u64).ok_or_else(history_removed)?;
            hashing = self
                .packing
                .pack(move |writer| {
                    hashing.write_all(&page)?;
                    writer.write(&page).map(|()| hashing)
                })
                .await?;
            drop(slot);
            self.packing.flush().await?;
        }
        if size_bytes > 0 {
            return Err(history_removed().into());
        }
        self.packing.pack(Writer::end).await?;
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
                self.packing.compute(write).await?
            }
            Lines::Versions { after, left_out } => {
                let Some(versions) = self.history.versions_after(after).await? else {
                    return Ok(None);
                };
                let (store_id, form, left_out) =
                    (self.history.store_id, self.form.version, Arc::clone(left_out));
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
                self.packing.compute(write).await?
            }
        };
        written.map(Some).map_err(unpackable)
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
        left_out: Arc<Omissions>,
    },
}

fn lines_of(lines: impl Iterator<Item = serde_json::Result<impl serde::Serialize>>) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    for line in lines {
        write_lines(&mut text, std::iter::once(line?))?;
    }
    Ok(text)
}
