//! Carries out an undo in several commits.
//!
//! Each part of the plan is one commit. The commit has an idempotency record, so a part that was
//! made before a crash is not made again.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use keepsake_core::{ObjectKind, Timestamp};
use keepsake_index::{
    Auditor, Idempotency, IndexError, PlannedUndo, StoredUndo, UndoKey, UndoPart, UndoPartState, UndoSource,
};

use super::answer::UndoOutcome;
use super::change::UndoChange;
use super::plan::UndoStep;
use crate::cursor::digest;
use crate::long_work::{COMMITS_PER_TURN, Turn, begin_work, ends_work, reason_of};
use crate::shared::Shared;
use crate::write::WriteResult;
use crate::{EngineError, Principal};

/// How long a worker holds an undo after its last part.
pub(crate) const HELD_FOR: Duration = Duration::from_mins(2);

/// How long the server may fail to make the next commit of an undo, before the undo ends.
const MAX_FAILING: Duration = Duration::from_hours(1);

/// Begins an undo in the background, which this replica holds until `held_until`. The job `undo` continues
/// the undo if this replica cannot.
pub(crate) fn begin_undo(shared: &Arc<Shared>, key: UndoKey, held_until: Timestamp) {
    begin_work(shared, key.tenant_id, HELD_FOR, move |shared| async move {
        let work = Work { shared: &shared, key };
        if let Err(error) = work.run(held_until, usize::MAX).await {
            work.warn(&error, "the job does");
        }
    });
}

/// Continues an undo that no worker holds for a turn.
pub(crate) async fn continue_undo(shared: &Shared, key: UndoKey) -> Result<Turn, EngineError> {
    let (jobs, now) = (&shared.context.index.undo_jobs, shared.context.now());
    let until = now.plus(HELD_FOR);
    if !jobs.hold(key, now, until).await? {
        return Ok(Turn::Ended);
    }
    Work { shared, key }.run(until, COMMITS_PER_TURN).await
}

#[derive(Debug, Clone, Copy)]
struct Work<'a> {
    shared: &'a Shared,
    key: UndoKey,
}

impl Work<'_> {
    fn warn(self, error: &EngineError, next: &str) {
        tracing::warn!(
            tenant.id = %self.key.tenant_id, store.id = %self.key.store_id, undo.id = %self.key.undo_id,
            error = %error, "engine.undo could not continue; {next}"
        );
    }

    /// Makes up to `commits` of the parts that are not made yet, until another worker takes over.
    #[tracing::instrument(name = "engine.make_undo", skip_all, fields(tenant.id = %self.key.tenant_id, gen_ai.memory.store.id = %self.key.store_id, undo.id = %self.key.undo_id))]
    async fn run(self, mut held_until: Timestamp, commits: usize) -> Result<Turn, EngineError> {
        let context = &self.shared.context;
        let jobs = &context.index.undo_jobs;
        let Some((undo, parts)) = jobs.find(self.key).await? else {
            return Ok(Turn::Ended);
        };
        if undo.ended_at.is_some() {
            return Ok(Turn::Ended);
        }
        let Some(principal) = self.principal(&undo).await? else {
            return Ok(Turn::Ended);
        };
        if undo.is_cancelled {
            record_last_part(self.shared, self.key, &principal, (&undo, &parts)).await?;
            jobs.end(self.key, context.now(), None, held_until).await?;
            return Ok(Turn::Ended);
        }
        let mut failing_since = undo.failing_since;
        let open: Vec<_> = parts.iter().filter(|part| !part.is_done).collect();
        for (number, part) in (1..).zip(&open) {
            if self.shared.stopping.is_cancelled() {
                return Ok(Turn::Stopping);
            }
            let done = match self.make(&principal, &undo, part).await {
                Ok(done) => done,
                Err(error) if ends_work(&error) => {
                    self.warn(&error, "it has failed");
                    jobs.end(self.key, context.now(), Some(&reason_of(&error)), held_until).await?;
                    return Ok(Turn::Ended);
                }
                Err(error) => return self.fail(error, failing_since, held_until).await,
            };
            let (now, pauses) = (context.now(), number == commits && number < open.len());
            let until = if pauses { now } else { held_until.max(now.plus(HELD_FOR)) };
            if !jobs.finish_part(self.key, (part.part, &done), held_until, until).await? {
                return Ok(Turn::Ended);
            }
            if pauses {
                return Ok(Turn::Paused);
            }
            (held_until, failing_since) = (until, None);
        }
        jobs.end(self.key, context.now(), None, held_until).await?;
        Ok(Turn::Ended)
    }

    /// Notes that the server failed to make a part, which another turn makes. After [`MAX_FAILING`] without a
    /// commit, it ends the undo, which keeps other undos from the store.
    async fn fail(
        self,
        error: EngineError,
        since: Option<Timestamp>,
        held_until: Timestamp,
    ) -> Result<Turn, EngineError> {
        let (jobs, now) = (&self.shared.context.index.undo_jobs, self.shared.context.now());
        // A clock that was ahead noted a time in the future.
        let Some(since) = since.filter(|since| *since <= now) else {
            jobs.note_failure(self.key, now, held_until).await?;
            return Err(error);
        };
        if now < since.plus(MAX_FAILING) {
            return Err(error);
        }
        self.warn(&error, "it has failed");
        let why = format!("no commit was possible for an hour: {}", reason_of(&error));
        jobs.end(self.key, now, Some(&why), held_until).await?;
        Ok(Turn::Ended)
    }

    /// The caller of the undo, with the tenant's limits of now; `None`: the tenant is gone.
    async fn principal(self, undo: &StoredUndo) -> Result<Option<Principal>, EngineError> {
        let context = &self.shared.context;
        let tenant = context.index.tenants.find(self.key.tenant_id).await?;
        let by = undo.actor.clone().map_or(Auditor::Job, Auditor::Credential);
        Ok(tenant.map(|tenant| {
            let limits = context.limits.with(&tenant.limits);
            Principal::of_operator(self.key.tenant_id, by, limits)
        }))
    }

    async fn make(
        self,
        principal: &Principal,
        undo: &StoredUndo,
        part: &UndoPartState,
    ) -> Result<UndoPart, EngineError> {
        let steps = self.shared.context.index.undo_jobs.steps(self.key, part.part).await?;
        let text = steps.ok_or(EngineError::NotFound(ObjectKind::Undo))?;
        let planned = steps_of(&text)?;
        let call = self.call(undo, part.part);
        let write = self.shared.writer.write(principal, self.key.store_id, Some(call));
        let change =
            UndoChange::new(UndoSource::Plan(planned.iter().map(UndoStep::planned).collect()), &write, true);
        let done = match write.run_once(&change).await? {
            (WriteResult::Replayed(_), _) => {
                let earlier = write.earlier_record().await?;
                self.recorded_steps(earlier.and_then(|earlier| earlier.results)).unwrap_or(planned)
            }
            (_, Some(read)) => read.steps(),
            (_, None) => return Err(EngineError::Internal("an undo has no read")),
        };
        part_of(&done, true)
    }

    /// The steps in the record of a commit; `None`: the record does not tell them.
    fn recorded_steps(self, record: Option<String>) -> Option<Vec<UndoStep>> {
        match UndoOutcome::parse(&record?) {
            Ok(outcome) => Some(outcome.steps),
            Err(error) => {
                tracing::warn!(
                    tenant.id = %self.key.tenant_id, store.id = %self.key.store_id,
                    undo.id = %self.key.undo_id, error = %error,
                    "engine.undo cannot read the record of a commit; the plan counts"
                );
                None
            }
        }
    }

    /// Identifies the commit of a part.
    fn call(self, undo: &StoredUndo, part: i64) -> Idempotency {
        let id = digest(&[b"undo", self.key.undo_id.uuid().as_bytes(), &part.to_be_bytes()]);
        Idempotency { scope_sha256: id, request_sha256: id, since: undo.created_at.minus(HELD_FOR) }
    }
}

/// Records the part of a cancelled undo that a worker committed, if the worker did not record it.
pub(super) async fn record_last_part(
    shared: &Shared,
    key: UndoKey,
    principal: &Principal,
    (undo, parts): (&StoredUndo, &[UndoPartState]),
) -> Result<(), EngineError> {
    let Some(part) = parts.iter().find(|part| !part.is_done) else {
        return Ok(());
    };
    let (work, jobs) = (Work { shared, key }, &shared.context.index.undo_jobs);
    let write = shared.writer.write(principal, key.store_id, Some(work.call(undo, part.part)));
    let Some(earlier) = write.earlier_record().await? else {
        return Ok(());
    };
    let done = if let Some(steps) = work.recorded_steps(earlier.results) {
        part_of(&steps, true)?
    } else {
        // The commit was made, so the plan says nearly what became of it.
        let steps = jobs.steps(key, part.part).await?.unwrap_or_default();
        UndoPart { is_done: true, counts: part.counts.clone(), steps }
    };
    Ok(jobs.finish_last_part(key, (part.part, &done)).await?)
}

pub(super) fn steps_of(text: &str) -> Result<Vec<UndoStep>, EngineError> {
    let damaged = IndexError::Corrupt { table: "memory_undo_part", what: "`steps` is no plan" };
    serde_json::from_str(text).map_err(|_| damaged.into())
}

pub(super) fn part_of(steps: &[UndoStep], is_done: bool) -> Result<UndoPart, EngineError> {
    let mut counts = BTreeMap::<_, u64>::new();
    for step in steps {
        *counts.entry(step.action.name().to_owned()).or_default() += 1;
    }
    let steps = serde_json::to_string(steps).map_err(|_| EngineError::Internal("steps are no JSON"))?;
    Ok(UndoPart { is_done, counts, steps })
}

impl UndoStep {
    fn planned(&self) -> PlannedUndo {
        PlannedUndo { memory_id: self.memory_id, from: self.from, undoes: self.undoes, to: self.to_seq }
    }
}
