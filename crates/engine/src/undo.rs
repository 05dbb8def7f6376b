//! Undo: takes back a set of changes, or makes a store as it was.
//!
//! For each memory whose last changes are in the set, its state before the first of them comes
//! back, as a new version by the caller. A memory that was changed afterwards is skipped, unless
//! the request says otherwise; one that is already as it was is left out. A plan (`plan`), made
//! from one snapshot, says what becomes of each memory; one commit carries it out (`change`). A
//! larger plan is recorded in parts (`parts`), which `work` makes one after the other.
//!
//! Nothing keeps a plan between two requests: it would have to be read again to know whether it still holds.
//! Each request plans in the tenant's slot for pages, reads at most [`keepsake_index::MAX_READ_VERSIONS`] versions,
//! and computes off the runtime.

mod answer;
mod change;
mod parts;
mod plan;
mod request;
mod work;

use std::sync::Arc;

use keepsake_core::schemas::MemoryUndoType;
use keepsake_core::{MemoryPath, MemoryUndoId, ObjectKind, Refused, StoreId, TenantId, VersionId};
use keepsake_index::{
    Idempotency, NewUndo, PlannedUndo, Scope, StoredUndo, UndoKey, UndoPart, UndoPartState, UndoSelection,
    UndoSource, Version,
};

use self::change::UndoChange;
use self::parts::{PartLimits, split};
use self::plan::{PlannedStep, UndoStep};
use self::request::{is_own, only_own};
use crate::past::refusal;
use crate::shared::service;
use crate::store_tests::StoreTests;
use crate::work::charge;
use crate::write::{Write, WriteResult};
use crate::{EngineError, Principal};

use answer::UndoOutcome;
pub use answer::{LaterChange, MemoryUndo, UndoCounts, UndoRefusal, UndoStatus, UndoneMemory};
pub use plan::{UndoAction, UndoSkipReason};
pub use request::{CreatedAt, StoreRestoration, UndoRequest};
pub(crate) use work::{HELD_FOR, begin_undo, continue_undo};

/// Memories that one commit changes.
const MAX_CHANGES: usize = 500;
/// Bytes of the contents that come back in one commit.
const MAX_BYTES: u64 = 8 << 20;
/// Memories that an answer shows.
const MAX_SHOWN: usize = 500;
// So the outcome of one commit has all its steps.
const _: () = assert!(MAX_CHANGES <= MAX_SHOWN);
/// Why an undo in several commits is refused or broken off.
const GATED: &str = "the tests of the memory store are a gate, which only takes an undo of at most 500 memories \
    and 8 MiB of content: select fewer changes";
/// Answers a repeated call that began an undo in several commits before.
const WITHOUT_REPORT: &str = "this request began an undo before, whose report is removed by now: the history of the \
    memory store shows what it changed";
/// Memory charged for each memory of a plan.
const BYTES_PER_MEMORY: usize = 1 << 10;

service!(pub Undos(shared, tests: &StoreTests) { tests: StoreTests = tests.clone() });

/// An undo as it was requested.
struct Wanted {
    store_id: StoreId,
    source: UndoSource,
    idempotency: Option<Idempotency>,
}

impl Undos {
    /// Takes back the selected changes, each as a new version by the caller. After a failure of the
    /// index they may have been taken back.
    ///
    /// The scope `memory:write` takes back changes of the caller; for those of others,
    /// `stores:admin` is required.
    #[tracing::instrument(name = "engine.undo", level = "debug", skip_all, fields(gen_ai.memory.store.id = %store_id))]
    pub async fn undo(
        &self,
        principal: &Arc<Principal>,
        store_id: StoreId,
        request: UndoRequest,
    ) -> Result<MemoryUndo, EngineError> {
        require(principal, store_id)?;
        let selection = request.selection()?;
        if !is_own(principal, &selection) {
            let allowed = principal.require(Scope::StoresAdmin);
            allowed.map_err(|refusal| only_own(principal).unwrap_or(refusal))?;
        }
        let source = UndoSource::Selection(selection);
        let wanted = Wanted { store_id, source, idempotency: request.idempotency };
        self.answer(principal, wanted, request.dry_run.unwrap_or_default()).await
    }

    /// Makes a store as it was, like [`Self::undo`] of all changes since.
    #[tracing::instrument(name = "engine.restore_store", level = "debug", skip_all, fields(gen_ai.memory.store.id = %store_id))]
    pub async fn restore(
        &self,
        principal: &Arc<Principal>,
        store_id: StoreId,
        request: StoreRestoration,
    ) -> Result<MemoryUndo, EngineError> {
        require(principal, store_id)?;
        principal.require(Scope::StoresAdmin)?;
        let at = request.moment()?;
        let moment = at.checked(self.context.now())?;
        let point = self.context.index.past.point(principal.tenant_id, store_id, moment).await;
        let point = point.map_err(refusal(at.field))?;
        let selection = UndoSelection {
            after_seq: point.seq,
            until_seq: request.until_seq.map(request::seq_of),
            below: request.below()?,
            takes_whole_memories: true,
            ..UndoSelection::default()
        };
        let source = UndoSource::Selection(selection);
        let wanted = Wanted { store_id, source, idempotency: request.idempotency };
        self.answer(principal, wanted, request.dry_run.unwrap_or_default()).await
    }

    /// Takes back one change. The memory is skipped if another change followed, unless it is already as it was.
    #[tracing::instrument(name = "engine.undo_version", level = "debug", skip_all, fields(gen_ai.memory.store.id = %store_id))]
    pub async fn undo_version(
        &self,
        principal: &Arc<Principal>,
        store_id: StoreId,
        version_id: VersionId,
    ) -> Result<MemoryUndo, EngineError> {
        require(principal, store_id)?;
        let (_, version) = self.context.find_version(principal.tenant_id, store_id, version_id).await?;
        if version.created_by.as_ref() != principal.actor() {
            principal.require(Scope::StoresAdmin)?;
        }
        let Version { memory_id, prev_seq: to, .. } = version;
        let planned = PlannedUndo { memory_id, from: version_id, undoes: version_id, to };
        let source = UndoSource::Plan(vec![planned]);
        self.answer(principal, Wanted { store_id, source, idempotency: None }, false).await
    }

    /// How far an undo in several commits is.
    #[tracing::instrument(name = "engine.undo_progress", level = "debug", skip_all, fields(gen_ai.memory.store.id = %store_id))]
    pub async fn get(
        &self,
        principal: &Principal,
        store_id: StoreId,
        undo_id: MemoryUndoId,
    ) -> Result<MemoryUndo, EngineError> {
        principal.require_outside_session(Scope::MemoryRead, store_id)?;
        let key = UndoKey { tenant_id: principal.tenant_id, store_id, undo_id };
        let found = self.context.index.undo_jobs.find(key).await?;
        let (undo, parts) = found.ok_or(EngineError::NotFound(ObjectKind::Undo))?;
        self.of_parts(key, &undo, &parts).await
    }

    /// Ends an undo in several commits, whatever is left of it. Commits that are made stay, and one that is under way
    /// is still made. An undo that has ended stays as it is. Idempotent.
    ///
    /// The scope `memory:write` ends an undo of the caller; for those of others, `stores:admin` is required.
    #[tracing::instrument(name = "engine.cancel_undo", level = "debug", skip_all, fields(gen_ai.memory.store.id = %store_id))]
    pub async fn cancel(
        &self,
        principal: &Principal,
        store_id: StoreId,
        undo_id: MemoryUndoId,
    ) -> Result<MemoryUndo, EngineError> {
        require(principal, store_id)?;
        let key = UndoKey { tenant_id: principal.tenant_id, store_id, undo_id };
        let jobs = &self.context.index.undo_jobs;
        let (undo, _) = jobs.find(key).await?.ok_or(EngineError::NotFound(ObjectKind::Undo))?;
        if undo.actor.as_ref() != principal.actor() {
            principal.require(Scope::StoresAdmin)?;
        }
        if jobs.cancel(key).await?
            && let Some((undo, parts)) = jobs.find(key).await?
        {
            work::record_last_part(&self.shared, key, principal, (&undo, &parts)).await?;
        }
        self.get(principal, store_id, undo_id).await
    }

    async fn answer(
        &self,
        principal: &Arc<Principal>,
        wanted: Wanted,
        is_dry: bool,
    ) -> Result<MemoryUndo, EngineError> {
        if is_dry {
            return self.plan(principal, wanted).await;
        }
        let (undos, owner) = (self.clone(), Arc::clone(principal));
        self.context.run_to_end(async move { undos.carry_out(&owner, wanted).await }).await
    }

    /// The plan of the undo, with the refusal if it changes a setting that the credential may not change, or if the
    /// store's tests would not hold.
    async fn plan(&self, principal: &Principal, wanted: Wanted) -> Result<MemoryUndo, EngineError> {
        let Wanted { store_id, source, .. } = wanted;
        let _slot = self.pages.take(principal.tenant_id).await?;
        let write = self.writer.write(principal, store_id, None);
        let change = UndoChange::new(source, &write, false);
        let found = change.found(&write).await?;
        charge(BYTES_PER_MEMORY * found.memories.len())?;
        let mut seq = found.seq;
        let computed = self.context.computations.run(principal.tenant_id, move || {
            let plan = change.plan(&found);
            let outcome = UndoOutcome::of(plan.iter().map(PlannedStep::step).collect());
            let is_small = is_one_commit(&plan);
            let setting = plan.iter().find_map(PlannedStep::setting).cloned();
            drop(plan);
            (change, outcome, is_small, setting)
        });
        let (change, mut outcome, is_small, setting) = computed.await?;
        let tests = self.tests.stored(principal, store_id).await?;
        let refused = refusal_of_setting(principal, setting).map(|refused| refused.to_string());
        let mut refusal = refused.map(|message| UndoRefusal { message, tests: Vec::new() });
        if let Some(gate) = tests.gate().filter(|_| refusal.is_none() && outcome.counts.made() > 0) {
            if is_small {
                // The plan is that of the state that is tested.
                let (read, proposal) = write.preview(&change).await?;
                (seq, outcome) = (read.seq(), UndoOutcome::of(read.steps()));
                drop(read);
                if let Some(proposal) = &proposal {
                    refusal = self.tests.broken_by(&write, gate, proposal).await?.map(UndoRefusal::of);
                }
            } else {
                refusal = Some(UndoRefusal { message: GATED.to_owned(), tests: Vec::new() });
            }
        }
        let plan = self.of_outcome(principal, store_id, &outcome, true).await?;
        Ok(MemoryUndo { seq: u64::try_from(seq).ok(), refusal, ..plan })
    }

    async fn carry_out(&self, principal: &Principal, wanted: Wanted) -> Result<MemoryUndo, EngineError> {
        let Wanted { store_id, source, idempotency } = wanted;
        let _slot = self.pages.take(principal.tenant_id).await?;
        let write = self.writer.write(principal, store_id, idempotency);
        if let Some(earlier) = write.earlier_record().await? {
            return match (earlier.seq, earlier.object_id) {
                (None, Some(undo_id)) => {
                    let begun = self.get(principal, store_id, MemoryUndoId::from_uuid(undo_id)).await;
                    begun.map_err(|error| match error {
                        EngineError::NotFound(ObjectKind::Undo) => EngineError::Conflict(WITHOUT_REPORT),
                        error => error,
                    })
                }
                _ => self.replayed(&write).await,
            };
        }
        let change = UndoChange::new(source, &write, idempotency.is_some()).gated_by(&self.tests);
        let found = change.found(&write).await?;
        charge(BYTES_PER_MEMORY * found.memories.len())?;
        let planned = self.context.computations.run(principal.tenant_id, move || {
            let plan = change.plan(&found);
            let is_small = is_one_commit(&plan);
            let parts = if is_small { Ok(Vec::new()) } else { parts_of(&plan) };
            let setting = plan.iter().find_map(PlannedStep::setting).cloned();
            drop(plan);
            (change, is_small, setting, parts)
        });
        let (change, is_small, setting, parts) = planned.await?;
        if !is_small {
            if let Some(refused) = refusal_of_setting(principal, setting) {
                return Err(refused.into());
            }
            // Its commits are made one after the other, so the outcome cannot be tested first.
            if self.tests.stored(principal, store_id).await?.gate().is_some() {
                return Err(EngineError::Conflict(GATED));
            }
            return self.record(principal, store_id, parts?, idempotency.as_ref()).await;
        }
        let outcome = match write.run_once(&change).await? {
            (WriteResult::Replayed(_), _) => return self.replayed(&write).await,
            (_, Some(read)) => UndoOutcome::of(read.steps()),
            (_, None) => return Err(EngineError::Internal("an undo has no read")),
        };
        self.of_outcome(principal, store_id, &outcome, false).await
    }

    /// The answer to an earlier identical call, from its record.
    async fn replayed(&self, write: &Write<'_>) -> Result<MemoryUndo, EngineError> {
        let recorded = write.earlier_record().await?.and_then(|earlier| earlier.results);
        let recorded = recorded.ok_or(EngineError::Internal("an undo was recorded without its outcome"))?;
        let outcome = UndoOutcome::parse(&recorded)?;
        self.of_outcome(write.principal, write.store_id, &outcome, false).await
    }

    /// Records an undo in parts and begins it.
    async fn record(
        &self,
        principal: &Principal,
        store_id: StoreId,
        parts: Vec<UndoPart>,
        idempotency: Option<&Idempotency>,
    ) -> Result<MemoryUndo, EngineError> {
        let now = self.context.now();
        let undo = NewUndo {
            undo_id: MemoryUndoId::from_uuid(self.context.ids.uuid(now)),
            store_id,
            actor: principal.actor().cloned(),
            created_at: now,
            lease_until: now.plus(HELD_FOR),
            parts,
        };
        let recorded = self.context.index.undo_jobs.create(principal.tenant_id, &undo, idempotency).await?;
        let undo_id = recorded.ok_or(EngineError::Conflict(
            "another undo of the memory store is under way: wait until it is done",
        ))?;
        if undo_id == undo.undo_id {
            let key = UndoKey { tenant_id: principal.tenant_id, store_id, undo_id };
            begin_undo(&self.shared, key, undo.lease_until);
        }
        self.get(principal, store_id, undo_id).await
    }

    async fn of_outcome(
        &self,
        principal: &Principal,
        store_id: StoreId,
        UndoOutcome { counts, steps }: &UndoOutcome,
        dry_run: bool,
    ) -> Result<MemoryUndo, EngineError> {
        let counts = *counts;
        Ok(MemoryUndo {
            actor: principal.actor().cloned(),
            r#type: MemoryUndoType,
            dry_run,
            id: None,
            status: None,
            error: None,
            seq: None,
            refusal: None,
            counts,
            left: if dry_run { counts.made() } else { 0 },
            data: self.shown(principal.tenant_id, store_id, steps).await?,
            not_shown: counts.all().saturating_sub(steps.len() as u64),
        })
    }

    async fn of_parts(
        &self,
        key: UndoKey,
        undo: &StoredUndo,
        parts: &[UndoPartState],
    ) -> Result<MemoryUndo, EngineError> {
        let (mut counts, mut left) = (UndoCounts::default(), 0);
        for part in parts {
            let mut of_part = UndoCounts::default();
            for (action, count) in &part.counts {
                if let Some(action) = UndoAction::parse(action) {
                    of_part.add(action, *count);
                    counts.add(action, *count);
                }
            }
            left += if part.is_done { 0 } else { of_part.made() };
        }
        let mut steps = Vec::new();
        for part in parts {
            if steps.len() >= MAX_SHOWN {
                break;
            }
            if let Some(text) = self.context.index.undo_jobs.steps(key, part.part).await? {
                // A damaged plan has ended the undo, whose report is still read.
                steps.extend(work::steps_of(&text).unwrap_or_default());
            }
        }
        steps.truncate(MAX_SHOWN);
        let status = match (&undo.ended_at, &undo.error) {
            _ if undo.is_cancelled => UndoStatus::Cancelled,
            (None, _) => UndoStatus::InProgress,
            (Some(_), None) => UndoStatus::Done,
            (Some(_), Some(_)) => UndoStatus::Failed,
        };
        Ok(MemoryUndo {
            actor: undo.actor.clone(),
            r#type: MemoryUndoType,
            dry_run: false,
            id: Some(undo.undo_id),
            status: Some(status),
            error: undo.error.clone().filter(|_| !undo.is_cancelled),
            seq: None,
            refusal: None,
            counts,
            left,
            data: self.shown(key.tenant_id, key.store_id, &steps).await?,
            not_shown: counts.all().saturating_sub(steps.len() as u64),
        })
    }

    async fn shown(
        &self,
        tenant_id: TenantId,
        store_id: StoreId,
        steps: &[UndoStep],
    ) -> Result<Vec<UndoneMemory>, EngineError> {
        let seqs: Vec<_> =
            steps.iter().flat_map(|step| [Some(step.from_seq), step.to_seq]).flatten().collect();
        let versions = self.context.index.undos.versions(tenant_id, store_id, &seqs).await?;
        let mut shown: Vec<_> = steps.iter().map(|step| UndoneMemory::of(step, &versions)).collect();
        shown.sort_by(|one, other| (&one.path, one.memory_id).cmp(&(&other.path, other.memory_id)));
        Ok(shown)
    }
}

/// An undo shows paths, and changes what others wrote: session tokens may not.
fn require(principal: &Principal, store_id: StoreId) -> Result<(), EngineError> {
    principal.require_writable(store_id)?;
    principal.require(Scope::MemoryRead)?;
    principal.require_no_session()
}

/// The refusal of a plan that changes a setting of the store, if the credential may not change it.
fn refusal_of_setting(principal: &Principal, setting: Option<MemoryPath>) -> Option<Refused> {
    let path = setting.filter(|_| principal.require(Scope::StoresAdmin).is_err())?;
    Some(Refused::Setting { path: path.as_str().to_owned() })
}

/// Whether a plan is small enough for one commit.
fn is_one_commit(plan: &[PlannedStep<'_>]) -> bool {
    plan.iter().filter(|step| step.is_made()).count() <= MAX_CHANGES
        && plan.iter().map(PlannedStep::bytes).sum::<u64>() <= MAX_BYTES
}

/// The parts of a plan that is too large for one commit: first the memories that are skipped, as
/// far as answers show them, then a part for each commit.
fn parts_of(plan: &[PlannedStep<'_>]) -> Result<Vec<UndoPart>, EngineError> {
    let split = split(plan, PartLimits { steps: MAX_CHANGES, bytes: MAX_BYTES });
    let entangled = split.entangled.iter().map(|place| plan[*place].without_room());
    let skipped: Vec<_> = plan
        .iter()
        .filter(|step| !step.is_made())
        .copied()
        .chain(entangled)
        .map(|step| step.step())
        .collect();
    let shown = skipped[..skipped.len().min(MAX_SHOWN)].to_vec();
    let mut of_skipped = work::part_of(&shown, true)?;
    of_skipped.counts.insert(UndoAction::Skipped.name().to_owned(), skipped.len() as u64);
    let mut parts = vec![of_skipped];
    for places in split.parts {
        let steps: Vec<_> = places.iter().map(|place| plan[*place].step()).collect();
        parts.push(work::part_of(&steps, false)?);
    }
    Ok(parts)
}
