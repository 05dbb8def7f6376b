//! Carries out an undo in several commits.
//!
//! Each part of the plan is one commit. The commit has an idempotency record, so a part that was
//! made before a crash is not made again.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use keepsake_core::{ObjectKind, Timestamp};
use keepsake_index::{Auditor, Idempotency, PlannedUndo, StoredUndo, UndoKey, UndoPart, UndoPartState};

use super::answer::UndoOutcome;
use super::change::{Source, UndoChange};
use super::plan::UndoStep;
use crate::cursor::digest;
use crate::long_work::{COMMITS_PER_TURN, Turn, begin_work, ends_work};
use crate::shared::Shared;
use crate::write::WriteResult;
use crate::{EngineError, Principal};

/// How long a worker holds an undo after its last part.
pub(crate) const HELD_FOR: Duration = Duration::from_mins(2);

/// Begins an undo in the background, which this replica holds until `held_until`. The job `undo` continues
/// the undo if this replica cannot.
pub(crate) fn begin_undo(shared: &Arc<Shared>, key: UndoKey, held_until: Timestamp) {
    begin_work(shared, key.tenant_id, HELD_FOR, move |shared| async move {
        let work = Work { shared: &shared, key };
        if let Err(error) = work.run(held_until, usize::MAX).await {
            work.warn(&error);
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
    fn warn(self, error: &EngineError) {
        tracing::warn!(
            tenant.id = %self.key.tenant_id, store.id = %self.key.store_id, undo.id = %self.key.undo_id,
            error = %error, "engine.undo could not continue; the job does"
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
        let open: Vec<_> = parts.iter().filter(|part| !part.is_done).collect();
        for (number, part) in (1..).zip(&open) {
            if self.shared.stopping.is_cancelled() {
                return Ok(Turn::Stopping);
            }
            let done = match self.make(&principal, &undo, part).await {
                Ok(done) => done,
                Err(error) if ends_work(&error) => {
                    self.warn(&error);
                    jobs.end(self.key, context.now(), Some(&error.to_string()), held_until).await?;
                    return Ok(Turn::Ended);
                }
                Err(error) => return Err(error),
            };
            let (now, pauses) = (context.now(), number == commits && number < open.len());
            let until = if pauses { now } else { held_until.max(now.plus(HELD_FOR)) };
            if !jobs.finish_part(self.key, (part.part, &done), held_until, until).await? {
                return Ok(Turn::Ended);
            }
            if pauses {
                return Ok(Turn::Paused);
            }
            held_until = until;
        }
        jobs.end(self.key, context.now(), None, held_until).await?;
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
            UndoChange::new(Source::Plan(planned.iter().map(UndoStep::planned).collect()), &write, true);
        let done = match write.run_once(&change).await? {
            (WriteResult::Replayed(_), _) => {
                let recorded = write.earlier_record().await?.and_then(|earlier| earlier.results);
                match recorded {
                    Some(text) => UndoOutcome::parse(&text)?.steps,
                    None => planned,
                }
            }
            (_, Some(read)) => read.steps(),
            (_, None) => return Err(EngineError::Internal("an undo has no read")),
        };
        part_of(&done, true)
    }

    /// Identifies the commit of a part.
    fn call(self, undo: &StoredUndo, part: i64) -> Idempotency {
        let id = digest(&[b"undo", self.key.undo_id.uuid().as_bytes(), &part.to_be_bytes()]);
        Idempotency { scope_sha256: id, request_sha256: id, since: undo.created_at.minus(HELD_FOR) }
    }
}

pub(super) fn steps_of(text: &str) -> Result<Vec<UndoStep>, EngineError> {
    serde_json::from_str(text).map_err(|_| EngineError::Internal("the steps of an undo are no JSON"))
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
