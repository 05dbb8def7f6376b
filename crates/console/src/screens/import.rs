//! An archive that a person sends, written into a memory store.
//!
//! The archive stays packed in memory. It is read once to verify all of it, and once more to write
//! the contents in batches. No file is written to a disk.

use std::collections::{HashMap, VecDeque};
use std::io::Read;
use std::sync::Arc;
use std::time::Duration;

use askama::Template;
use axum::Extension;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use bytes::Bytes;
use keepsake_archive::Damage;
use keepsake_archive::packed::{UnpackLimit, WINDOW_BYTES, read_files};
use keepsake_archive::plan::{
    Destination, Existing, MAX_BATCH_BYTES, OnConflict, Origin, Step, decide, is_full_batch,
};
use keepsake_archive::report::{Class, Outcome, Report};
use keepsake_archive::scanned::Scanned;
use keepsake_archive::verified::{Found, Prefix, verify};
use keepsake_core::id::StoreKind;
use keepsake_core::{ContentHash, Refused, StoreId};
use keepsake_engine::{
    BatchStatus, Engine, EngineError, ExpiresAt, FairSlot, Held, MemoryBatch, MemoryOperation, MemoryQuery,
    PageRequest, Precondition, Principal, ShownItem, StoreDraft, View,
};
use keepsake_index::{Scope, Store};
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::frame::Frame;
use crate::page::{PageResult, Refusal, page_with};
use crate::request::{Form, Upload};

/// Limit of a form with an archive.
pub const MAX_UPLOAD_BYTES: u64 = 16 << 20;
/// Maximum size of an unpacked archive as a multiple of its packed size, within these bounds.
const UNPACKED_RATIO: u64 = 50;
const MIN_UNPACKED_BYTES: u64 = 16 << 20;
const MAX_UNPACKED_BYTES: u64 = 256 << 20;
/// Maximum bytes of an archive's lists and names, and the memory charged for each of these bytes.
const MAX_KEPT_BYTES: u64 = 16 << 20;
const MEMORY_PER_KEPT_BYTE: u64 = 5;
/// Memory charged for a memory in the list of the store, besides its path.
const EXISTING_BYTES: u64 = 512;
/// Batches in memory at the same time: read, waiting, and written from a copy.
const BATCHES_IN_MEMORY: u64 = 4;
/// Time that an import leaves for its answer.
const ANSWER_TIME: Duration = Duration::from_secs(2);
/// Maximum number of files on the page.
const MAX_SHOWN: usize = 300;

struct Row {
    result: &'static str,
    path: String,
    reason: String,
}

#[derive(Template)]
#[template(path = "imported.html")]
struct ImportedPage {
    frame: Frame,
    store: Store,
    file: String,
    /// Nothing was imported, because memories of the store have other content.
    is_refused: bool,
    /// Why the import ended early.
    stopped: Option<String>,
    counts: Vec<(&'static str, usize)>,
    rows: Vec<Row>,
    not_shown: usize,
    /// Versions in the archive, which are not imported.
    versions: usize,
    /// Memories that were written without their expiry time.
    lacking: usize,
    /// Why memories of the exported store are not in the archive.
    left_out: Vec<String>,
}

enum Target {
    There(Box<Store>),
    New(StoreDraft),
}

/// `POST /console/transfer`
pub(super) async fn import(
    State(engine): State<Engine>,
    Extension(upload): Extension<Upload>,
    headers: HeaderMap,
    mut form: Form,
) -> PageResult {
    let on_conflict = OnConflict::parse(form.fields.text("on_conflict"));
    let on_conflict = on_conflict
        .ok_or_else(|| Refusal::Invalid("`on_conflict` must be `fail`, `skip` or `replace`".to_owned()))?;
    let target = target_of(&engine, &form).await?;
    let slots = &engine.archive_slots;
    let slot = Arc::new(slots.take(form.caller.principal.tenant_id).await?);
    let (found, held_bytes) = verified(&upload, Arc::clone(&slot)).await?;
    // Another file is another import.
    form.fields.add("file_sha256", ContentHash::of(&upload.file).to_string());
    let principal = &form.caller.principal;
    let store = match target {
        Target::There(store) => *store,
        Target::New(draft) => engine.stores.create(principal, draft, form.call()?).await?,
    };
    let destination = destination_of(&engine, principal, store.store_id, &upload.held).await?;
    let mut report = found.report;
    let steps = decide(found.items, &destination, on_conflict, engine.now(), &mut report);
    drop(destination);
    let is_refused = on_conflict == OnConflict::Fail && report.conflicts().next().is_some();
    let mut stopped = None;
    if is_refused {
        report = report.only_refusals();
    } else {
        let import = Import {
            engine: &engine,
            store_id: store.store_id,
            upload: &upload,
            held_bytes,
            slot,
            credential: credential_of(&headers),
        };
        stopped = import.run(steps, &mut report).await?;
    }
    let status = if is_refused { StatusCode::CONFLICT } else { StatusCode::OK };
    let (rows, not_shown) = rows_of(&mut report);
    let title = format!("Import into {}", store.name);
    page_with(
        status,
        &ImportedPage {
            frame: form.caller.frame(title),
            store,
            file: upload.file_name,
            is_refused,
            stopped,
            counts: report.counts().to_vec(),
            rows,
            not_shown,
            versions: found.versions.len(),
            lacking: report.lacking(),
            left_out: found.left_out,
        },
    )
}

/// Finds the store that the form names and checks that the person may import into it.
async fn target_of(engine: &Engine, form: &Form) -> Result<Target, Refusal> {
    let principal = &form.caller.principal;
    principal.require(Scope::MemoryRead)?;
    if let Some(store_id) = form.fields.id::<StoreKind>("store")? {
        let store = engine.stores.get(principal, store_id).await?;
        principal.require_writable(store_id)?;
        if store.archived_at.is_some() {
            return Err(EngineError::from(Refused::Archived).into());
        }
        return Ok(Target::There(Box::new(store)));
    }
    principal.require(Scope::MemoryWrite)?;
    principal.require(Scope::StoresAdmin)?;
    let name = form.fields.filled("name").map(str::to_owned);
    let name =
        name.ok_or_else(|| Refusal::Invalid("`name` of the new store must not be empty".to_owned()))?;
    Ok(Target::New(StoreDraft { name, ..StoreDraft::default() }))
}

fn unpack_limit(file: &Bytes) -> UnpackLimit {
    let packed_bytes = file.len() as u64;
    UnpackLimit {
        bytes: (UNPACKED_RATIO * packed_bytes).clamp(MIN_UNPACKED_BYTES, MAX_UNPACKED_BYTES),
        ratio: 1,
    }
}

/// Verifies the whole archive. Also returns the memory that the request now holds.
async fn verified(upload: &Upload, slot: Arc<FairSlot>) -> Result<(Found, u64), Refusal> {
    if upload.file.is_empty() {
        let rule = "`file` must be an archive, a file that ends in .tar.zst";
        return Err(Refusal::Invalid(rule.to_owned()));
    }
    if !upload.held.memory.try_grow(WINDOW_BYTES) {
        return Err(EngineError::OverMemory.into());
    }
    let (file, held) = (upload.file.clone(), Arc::clone(&upload.held));
    let work = move || {
        // The work continues if the request ends, and keeps the slot.
        let _slot = slot;
        let (mut kept_bytes, mut is_over_memory) = (0, false);
        let allow = |bytes: u64| {
            kept_bytes += bytes;
            if kept_bytes > MAX_KEPT_BYTES {
                let rule = "the archive has more files or versions than the console imports";
                return Err(format!("{rule}: use `keepsake import`"));
            }
            is_over_memory = !held.memory.try_grow(MEMORY_PER_KEPT_BYTE * bytes);
            if is_over_memory {
                return Err(String::new());
            }
            Ok(())
        };
        let scanned = Scanned::read(&file[..], unpack_limit(&file), allow);
        let found = scanned.and_then(|scanned| verify(&scanned, &Prefix::new("/"), |_| {}));
        (found, kept_bytes, is_over_memory)
    };
    let done = tokio::task::spawn_blocking(work).await;
    let (found, kept_bytes, is_over_memory) = done.map_err(|_| Refusal::Internal)?;
    if is_over_memory {
        return Err(EngineError::OverMemory.into());
    }
    let name = &upload.file_name;
    let refused =
        |damage: Damage| Refusal::Invalid(format!("{name} is damaged: {damage}. Nothing was imported."));
    let found = found.map_err(refused)?;
    let content_bytes: u64 = found.items.iter().map(|item| item.size_bytes).sum();
    let batch_bytes = BATCHES_IN_MEMORY * content_bytes.min(MAX_BATCH_BYTES);
    if !upload.held.memory.try_grow(batch_bytes) {
        return Err(EngineError::OverMemory.into());
    }
    let held_bytes = upload.held_bytes + WINDOW_BYTES + MEMORY_PER_KEPT_BYTE * kept_bytes + batch_bytes;
    Ok((found, held_bytes))
}

async fn destination_of(
    engine: &Engine,
    principal: &Principal,
    store_id: StoreId,
    request: &Held,
) -> Result<Destination, Refusal> {
    let mut destination = Destination::default();
    let mut query =
        MemoryQuery { page: PageRequest { limit: Some(100), page: None }, ..MemoryQuery::default() };
    loop {
        let page = engine.memories.list(principal, store_id, &query, View::Basic).await?;
        for item in page.items {
            if let ShownItem::Memory(shown) = item {
                let memory = shown.memory;
                let head = memory.head;
                if !request.memory.try_grow(EXISTING_BYTES + 2 * head.path.as_str().len() as u64) {
                    return Err(EngineError::OverMemory.into());
                }
                let existing = Existing {
                    id: head.memory_id.to_string(),
                    sha256: head.content.sha256.to_string(),
                    is_pinned: memory.is_pinned,
                    expires_at: memory.expires_at,
                };
                destination.add(&head.path, existing);
            }
        }
        query.page.page = page.next;
        if query.page.page.is_none() {
            return Ok(destination);
        }
    }
}

fn credential_of(headers: &HeaderMap) -> String {
    let value = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    let credential = value.and_then(|value| value.strip_prefix("Bearer "));
    credential.unwrap_or_default().to_owned()
}

/// Contents of the archive on their way to the store.
#[derive(Default)]
struct Batch {
    writes: Vec<(Step, String)>,
    /// Path and reason of contents that cannot be imported.
    refused: Vec<(String, String)>,
    bytes: u64,
}

struct Import<'a> {
    engine: &'a Engine,
    store_id: StoreId,
    upload: &'a Upload,
    /// Memory that the request holds between two batches.
    held_bytes: u64,
    slot: Arc<FairSlot>,
    credential: String,
}

impl Import<'_> {
    /// Carries out the steps. Returns why the import stopped before the end.
    async fn run(&self, steps: Vec<Step>, report: &mut Report) -> Result<Option<String>, Refusal> {
        let total = steps.len();
        let principal = self.authenticated().await?;
        let max_bytes = principal.limits.bytes_per_memory;
        let (sender, mut receiver) = mpsc::channel(1);
        // The list of the store was dropped.
        self.upload.held.memory.set(self.held_bytes);
        let (file, slot) = (self.upload.file.clone(), Arc::clone(&self.slot));
        let reader = tokio::task::spawn_blocking(move || {
            let _slot = slot;
            read_batches(&file, steps, max_bytes, &sender)
        });
        let mut done = 0;
        while let Some(batch) = receiver.recv().await {
            done += batch.refused.len();
            for (path, reason) in batch.refused {
                report.add(path, Outcome::refused(Class::Rule, reason));
            }
            let mut waiting = VecDeque::from([batch.writes]);
            while let Some(mut writes) = waiting.pop_front() {
                let written = self.write(&writes, report).await;
                match written {
                    Ok(()) => done += writes.len(),
                    // Two writes need one path. Written one by one, the first succeeds.
                    Err(EngineError::Invalid { .. }) if writes.len() > 1 => {
                        let second = writes.split_off(writes.len() / 2);
                        waiting.push_front(second);
                        waiting.push_front(writes);
                    }
                    Err(EngineError::Invalid { field, rule }) => {
                        done += writes.len();
                        for (step, _) in writes {
                            let reason = format!("`{field}` {rule}");
                            report.add_step(&step, Outcome::refused(Class::Rule, reason));
                        }
                    }
                    // The server logs its own errors and does not show them.
                    Err(error) if done == 0 || is_of_the_server(&error) => return Err(error.into()),
                    Err(error) => return Ok(Some(stopped(done, total, &error.to_string()))),
                }
            }
            if self.upload.deadline.is_some_and(|at| Instant::now() + ANSWER_TIME >= at) && done < total {
                return Ok(Some(stopped(done, total, "the time of the request is over")));
            }
        }
        match reader.await {
            Ok(Ok(())) => Ok(None),
            Ok(Err(damage)) => Ok(Some(stopped(done, total, &damage.to_string()))),
            Err(_) => Err(Refusal::Internal),
        }
    }

    /// Authenticates again: the credential may be revoked or restricted during an import.
    async fn authenticated(&self) -> Result<Arc<Principal>, EngineError> {
        self.engine.auth.authenticate(&self.credential).await
    }

    async fn write(&self, writes: &[(Step, String)], report: &mut Report) -> Result<(), EngineError> {
        if writes.is_empty() {
            return Ok(());
        }
        let principal = self.authenticated().await?;
        let batch = MemoryBatch {
            operations: writes.iter().map(operation).collect(),
            is_atomic: false,
            idempotency: None,
        };
        let memories = &self.engine.memories;
        let results = memories.batch(&principal, self.store_id, batch).await;
        self.upload.held.memory.set(self.held_bytes);
        for ((step, _), result) in writes.iter().zip(results?) {
            let outcome = match result.outcome {
                Ok((BatchStatus::Created, _)) => Outcome::Created,
                Ok((BatchStatus::Updated | BatchStatus::Deleted, _)) => Outcome::Replaced,
                Ok((BatchStatus::Unchanged, _)) => Outcome::Unchanged,
                Err(error) => Outcome::refused(Class::Rule, error.to_string()),
            };
            report.add_step(step, outcome);
        }
        Ok(())
    }
}

const fn is_of_the_server(error: &EngineError) -> bool {
    matches!(
        error,
        EngineError::Index(_)
            | EngineError::Secret(_)
            | EngineError::Blobs(_)
            | EngineError::Damaged(_)
            | EngineError::Shared(_)
            | EngineError::Internal(_)
    )
}

fn stopped(done: usize, total: usize, why: &str) -> String {
    format!(
        "The import was stopped after {done} of {total} files: {why}. Send the same archive again to continue it."
    )
}

fn operation((step, content): &(Step, String)) -> MemoryOperation {
    let (path, content) = (step.item.path.as_str().to_owned(), content.clone());
    let (pinned, expires_at) =
        (step.item.is_pinned.then_some(true), step.item.expires_at.map(ExpiresAt::Time));
    match &step.replaces {
        Some(existing) => {
            let expected = existing.sha256.parse().ok().map(Precondition::ContentSha256);
            MemoryOperation::Upsert { path, content, pinned, expires_at, precondition: expected }
        }
        None => MemoryOperation::Create { path, content, pinned, expires_at, precondition: None },
    }
}

/// Reads the contents of a verified archive once more, and sends them in batches.
fn read_batches(
    file: &Bytes,
    steps: Vec<Step>,
    max_bytes: u64,
    sender: &mpsc::Sender<Batch>,
) -> Result<(), Damage> {
    let mut wanted: HashMap<String, Vec<Step>> = HashMap::new();
    for step in steps {
        if let Origin::File(name) = &step.item.origin {
            wanted.entry(name.clone()).or_default().push(step);
        }
    }
    let mut batch = Batch::default();
    let send = |batch: Batch| {
        // The receiver was dropped if the import was stopped.
        sender.blocking_send(batch).map_err(|_| Damage("stopped".to_owned()))
    };
    read_files::<Damage>(&file[..], unpack_limit(file), |name, size, content| {
        let Some(steps) = wanted.remove(name) else {
            return Ok(());
        };
        match read_text(size, max_bytes, content) {
            Ok(text) => {
                for step in steps {
                    batch.bytes += size;
                    batch.writes.push((step, text.clone()));
                    if is_full_batch(batch.writes.len(), batch.bytes) {
                        send(std::mem::take(&mut batch))?;
                    }
                }
            }
            Err(reason) => {
                let paths = steps.iter().map(|step| step.item.path.as_str().to_owned());
                batch.refused.extend(paths.map(|path| (path, reason.clone())));
            }
        }
        Ok(())
    })?;
    send(batch)
}

/// Reads the text of a file, or returns why a memory cannot have it.
fn read_text(size: u64, max_bytes: u64, content: &mut dyn Read) -> Result<String, String> {
    if size > max_bytes {
        return Err(format!("has {size} bytes, but a memory may have {max_bytes}"));
    }
    let mut text = String::new();
    match content.read_to_string(&mut text) {
        Ok(_) if !text.contains('\0') => Ok(text),
        _ => Err("is not text".to_owned()),
    }
}

/// The first [`MAX_SHOWN`] files of the report, those with a reason first, and the number of the
/// others.
fn rows_of(report: &mut Report) -> (Vec<Row>, usize) {
    let sorted = report.sorted();
    let (not_written, written): (Vec<_>, Vec<_>) = sorted.iter().partition(|file| file.reason().is_some());
    let rows = not_written.into_iter().chain(written).take(MAX_SHOWN);
    let rows = rows.map(|file| Row {
        result: file.outcome.name(),
        path: file.path.clone(),
        reason: file.reason().unwrap_or_default().to_owned(),
    });
    (rows.collect(), sorted.len().saturating_sub(MAX_SHOWN))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn archive_may_unpack_to_a_multiple_of_its_size_within_bounds() {
        for (packed_mib, unpacked_mib) in [(0_usize, 16_u64), (1, 50), (5, 250), (6, 256), (16, 256)] {
            let file = Bytes::from(vec![0_u8; packed_mib << 20]);
            assert_eq!(unpack_limit(&file).bytes, unpacked_mib << 20, "{packed_mib} MiB");
        }
    }
}
