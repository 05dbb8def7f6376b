//! The answer to an undo.

use std::collections::HashMap;

use keepsake_core::actor::VersionActor;
use keepsake_core::schemas::MemoryUndoType;
use keepsake_core::{Actor, MemoryId, MemoryPath, MemoryUndoId, Timestamp, VersionId};
use keepsake_index::Version;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::MAX_SHOWN;
use super::plan::{UndoAction, UndoSkipReason, UndoStep};
use crate::EngineError;
use crate::test_report::{BrokenTests, TestResult};

keepsake_core::named_enum! {
    /// How far an undo in several commits is.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum UndoStatus {
        InProgress = "in_progress",
        Done = "done",
        /// It was broken off. Commits that were made stay.
        Failed = "failed",
        /// A person ended it. Commits that were made stay.
        Cancelled = "cancelled",
    }
}

keepsake_core::shown_by_name! {
    UndoStatus as "MemoryUndoStatus" => "How far an undo in several commits is.";
}

/// What an undo did, or would do with `dry_run`.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct MemoryUndo {
    /// The author of the undo; `None` for the operator.
    #[serde(skip)]
    pub actor: Option<Actor>,
    #[schema(inline)]
    pub r#type: MemoryUndoType,
    pub dry_run: bool,
    /// Only there if the undo needs several commits: it goes on after this answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = MemoryUndoId, required = false)]
    pub id: Option<MemoryUndoId>,
    /// Only there with `id`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = UndoStatus, required = false)]
    pub status: Option<UndoStatus>,
    /// Why it was broken off; only there if it was.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(required = false)]
    pub error: Option<String>,
    /// The newest change of the store that a plan takes into account; only there with `dry_run`. Send it as `until_seq`
    /// to change nothing that the plan does not show.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(required = false)]
    pub seq: Option<u64>,
    /// Why the plan would be refused: the tests of the store do not allow it, or it changes a setting of the store
    /// that the credential may not change. Only there with `dry_run` if it would be.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = UndoRefusal, required = false)]
    pub refusal: Option<UndoRefusal>,
    pub counts: UndoCounts,
    /// The number of memories whose change is still to be made.
    pub left: u64,
    /// In the order of the paths, at most 500. Memories that are already as they were are left out.
    #[schema(max_items = 500)]
    pub data: Vec<UndoneMemory>,
    /// The number of memories that `data` leaves out.
    pub not_shown: u64,
}

/// Why an undo would be refused.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
#[schema(as = MemoryUndoRefusal)]
pub struct UndoRefusal {
    /// The message of the error.
    pub message: String,
    /// The first of the tests that would not hold; none if the plan changes a setting, or needs several commits, which
    /// no gate takes.
    #[schema(max_items = 20)]
    pub tests: Vec<TestResult>,
}

/// The number of memories by what becomes of them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = MemoryUndoCounts)]
pub struct UndoCounts {
    pub restored: u64,
    pub deleted: u64,
    pub recreated: u64,
    pub renamed: u64,
    pub skipped: u64,
}

/// What becomes of one memory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = UndoneMemory)]
pub struct UndoneMemory {
    pub memory_id: MemoryId,
    /// Its path after the undo; if it is deleted or skipped, its last path. Null if that was
    /// redacted.
    #[schema(required)]
    pub path: Option<MemoryPath>,
    pub action: UndoAction,
    /// Its last version before the undo.
    pub from_version_id: VersionId,
    /// The version whose state comes back; null if the memory did not exist.
    #[schema(required)]
    pub to_version_id: Option<VersionId>,
    /// Null if it is not skipped.
    #[schema(required)]
    pub reason: Option<UndoSkipReason>,
    /// With the reason `changed_later`, the last change; null otherwise.
    #[schema(required)]
    pub changed_by: Option<LaterChange>,
}

/// A change that followed the changes that an undo takes back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct LaterChange {
    pub memory_version_id: VersionId,
    pub created_at: Timestamp,
    /// Null for a job or the operator.
    #[schema(value_type = Option<VersionActor>, required)]
    pub created_by: Option<Actor>,
}

impl UndoRefusal {
    pub(super) fn of(broken: BrokenTests) -> Self {
        Self { message: broken.to_string(), tests: broken.shown }
    }
}

impl UndoCounts {
    pub(super) fn add(&mut self, action: UndoAction, count: u64) {
        *match action {
            UndoAction::Restored => &mut self.restored,
            UndoAction::Deleted => &mut self.deleted,
            UndoAction::Recreated => &mut self.recreated,
            UndoAction::Renamed => &mut self.renamed,
            UndoAction::Skipped => &mut self.skipped,
        } += count;
    }

    pub(super) fn of<'s>(steps: impl IntoIterator<Item = &'s UndoStep>) -> Self {
        let mut counts = Self::default();
        for step in steps {
            counts.add(step.action, 1);
        }
        counts
    }

    pub(super) const fn made(&self) -> u64 {
        self.restored + self.deleted + self.recreated + self.renamed
    }

    pub(super) const fn all(&self) -> u64 {
        self.made() + self.skipped
    }
}

/// The counts of all steps of an undo, and the steps that its answer shows. The idempotency record of
/// a call stores this rather than all steps, so that its size is bounded.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct UndoOutcome {
    pub(super) counts: UndoCounts,
    pub(super) steps: Vec<UndoStep>,
}

impl UndoOutcome {
    pub(super) fn of(mut steps: Vec<UndoStep>) -> Self {
        let counts = UndoCounts::of(&steps);
        steps.truncate(MAX_SHOWN);
        Self { counts, steps }
    }

    pub(super) fn parse(text: &str) -> Result<Self, EngineError> {
        serde_json::from_str(text).map_err(|_| EngineError::Internal("the outcome of an undo is no JSON"))
    }
}

impl UndoneMemory {
    /// `versions` are the versions that the step names, by sequence number, as far as they still exist.
    pub(super) fn of(step: &UndoStep, versions: &HashMap<i64, Version>) -> Self {
        let from = versions.get(&step.from_seq);
        let to = step.to_seq.and_then(|seq| versions.get(&seq));
        let is_made = step.action != UndoAction::Skipped;
        let path = to.filter(|_| is_made).or(from).and_then(|version| version.path.clone());
        let later = from.filter(|_| step.reason == Some(UndoSkipReason::ChangedLater));
        Self {
            memory_id: step.memory_id,
            path,
            action: step.action,
            from_version_id: step.from,
            to_version_id: to.map(|version| version.version_id),
            reason: step.reason,
            changed_by: later.map(|version| LaterChange {
                memory_version_id: version.version_id,
                created_at: version.created_at,
                created_by: version.created_by.clone(),
            }),
        }
    }
}
