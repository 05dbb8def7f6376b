//! The answer to a batch: a result for each operation.
//!
//! The record of an idempotent call contains the status of each operation, without
//! content and paths; the answer to a repeated call is rebuilt from the versions.

use std::sync::Arc;

use futures::FutureExt;
use futures::stream::{self, StreamExt, TryStreamExt};
use keepsake_core::{MemoryId, ObjectKind};
use serde::{Deserialize, Serialize};

use super::{Batch, BatchRead, Change, Decision, Memories, ParsedOperation, READS_AT_ONCE, Write};
use crate::EngineError;
use crate::memories::answer::Answer;
use crate::memories::receipt::conceal_write;
use crate::memories::{ShownMemory, View};
use crate::write::{WriteResult, WrittenChanges};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BatchStatus {
    Created,
    Updated,
    /// The memory already was as requested.
    Unchanged,
    Deleted,
}

#[derive(Debug)]
pub struct OperationResult {
    pub memory_id: Option<MemoryId>,
    /// The memory after the operation, without content; `None`: the memory is deleted, or
    /// its history is removed. An error if the operation was refused.
    pub outcome: Result<(BatchStatus, Option<Box<ShownMemory>>), Arc<EngineError>>,
}

/// The status of one operation in the record of the call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum RecordedStatus {
    Created,
    Updated,
    Deleted,
    /// The pin or expiry time of the memory with this version was changed.
    Pinned(i64),
    /// This version was left unchanged.
    Unchanged(i64),
    Failed,
}

impl RecordedStatus {
    fn of(settled: &Result<&Decision, Arc<EngineError>>) -> Self {
        match settled {
            Ok(Decision::Commit(proposal)) => match proposal.changes.first() {
                Some(change) if change.path.is_none() => Self::Deleted,
                Some(change) if change.head().is_some() => Self::Updated,
                _ => Self::Created,
            },
            Ok(Decision::Pin(memory, expiry, _)) => {
                let seq = memory.head.seq;
                if expiry.is_applied_to(memory) { Self::Unchanged(seq) } else { Self::Pinned(seq) }
            }
            Ok(Decision::Nothing | Decision::ReadAgain) | Err(_) => Self::Failed,
        }
    }

    const fn status(self) -> Option<BatchStatus> {
        match self {
            Self::Created => Some(BatchStatus::Created),
            Self::Updated | Self::Pinned(_) => Some(BatchStatus::Updated),
            Self::Deleted => Some(BatchStatus::Deleted),
            Self::Unchanged(_) => Some(BatchStatus::Unchanged),
            Self::Failed => None,
        }
    }

    const fn has_version(self) -> bool {
        matches!(self, Self::Created | Self::Updated | Self::Deleted)
    }
}

/// The status of each operation, for the record of the call.
pub(super) fn record(settled: &[Result<&Decision, Arc<EngineError>>]) -> Result<String, EngineError> {
    let recorded: Vec<_> = settled.iter().map(RecordedStatus::of).collect();
    serde_json::to_string(&recorded).map_err(|_| EngineError::Internal("results are no JSON"))
}

pub(super) struct Answers<'a> {
    pub(super) memories: &'a Memories,
    pub(super) batch: &'a Batch,
    pub(super) write: &'a Write<'a>,
}

impl Answers<'_> {
    /// The results of a batch whose write ended with `outcome`. `read` is the last read of the batch; a repeated
    /// call needs none.
    pub(super) async fn results_of(
        &self,
        outcome: WriteResult,
        read: Option<BatchRead>,
    ) -> Result<Vec<OperationResult>, EngineError> {
        match (outcome, read) {
            (WriteResult::Written(written), Some(read)) => self.of_read(&read, Some(&written)),
            (WriteResult::Nothing, Some(read)) => self.of_read(&read, None),
            (WriteResult::Replayed(seq), _) => self.rebuild(seq).await,
            _ => Err(EngineError::Internal("a batch set only one pin")),
        }
    }

    /// The results of a batch that was carried out now.
    fn of_read(
        &self,
        read: &BatchRead,
        written: Option<&WrittenChanges>,
    ) -> Result<Vec<OperationResult>, EngineError> {
        let mut versions = written.into_iter().flat_map(WrittenChanges::versions);
        let settled = self.batch.settled(read);
        let expiry = written.map_or(read.found.expiry, |written| written.expiry);
        let results = settled.into_iter().zip(&self.batch.operations);
        results
            .map(|(settled, operation)| {
                let recorded = RecordedStatus::of(&settled);
                let is_use = matches!(settled, Ok(Decision::Pin(_, _, Some(_))));
                let (memory_id, memory) = match settled {
                    Err(error) => {
                        self.write.note_rejection(error.rejection());
                        return Ok(Self::refused(operation, error));
                    }
                    Ok(Decision::Pin(memory, expiry, _)) => {
                        let memory = expiry.applied_to(memory.clone());
                        (memory.head.memory_id, Some(memory))
                    }
                    Ok(_) => {
                        let version = written.zip(versions.next());
                        let (written, version) =
                            version.ok_or(EngineError::Internal("a change has no version"))?;
                        let memory_id = version.0.memory_id;
                        let before = read.found.memories.get(&memory_id);
                        (memory_id, written.memory(version, before.map(|found| &found.target)))
                    }
                };
                let shown = memory.map(|memory| {
                    let (reader, write) = (&self.memories.reader, self.write);
                    let shown = reader.show(write.principal, write.store_id, expiry, memory);
                    if is_use {
                        reader.note_use(write.principal, &shown);
                    }
                    shown
                });
                self.done(operation, recorded, memory_id, shown)
            })
            .collect()
    }

    /// The results of an earlier identical call, whose last version is `last`.
    async fn rebuild(&self, last: i64) -> Result<Vec<OperationResult>, EngineError> {
        let record = self.write.earlier_record().await?;
        let recorded = record.and_then(|record| record.results);
        let recorded: Option<Vec<RecordedStatus>> =
            recorded.and_then(|text| serde_json::from_str(&text).ok());
        let recorded = recorded.filter(|recorded| recorded.len() == self.batch.operations.len());
        let recorded = recorded.ok_or(EngineError::Internal("a batch was recorded without results"))?;
        // Refusals are found again; their causes are not recorded.
        let read = if recorded.contains(&RecordedStatus::Failed) {
            Some(self.batch.read(self.write).await?)
        } else {
            None
        };
        let versions = recorded.iter().filter(|recorded| recorded.has_version()).count();
        let mut seq = last - i64::try_from(versions).unwrap_or_default();
        let mut rebuilt = Vec::with_capacity(recorded.len());
        for (position, (recorded, operation)) in recorded.into_iter().zip(&self.batch.operations).enumerate()
        {
            seq += i64::from(recorded.has_version());
            let refusal = read.as_ref().and_then(|read| read.decided[position].as_ref().err());
            let result = self.rebuild_one(operation, recorded, seq, refusal.cloned());
            rebuilt.push(result.boxed());
        }
        stream::iter(rebuilt).buffered(READS_AT_ONCE).try_collect().await
    }

    async fn rebuild_one(
        &self,
        operation: &ParsedOperation,
        recorded: RecordedStatus,
        seq: i64,
        refusal: Option<Arc<EngineError>>,
    ) -> Result<OperationResult, EngineError> {
        let seq = match recorded {
            RecordedStatus::Failed => {
                let why = "the operation was refused when the call was made first";
                let refusal = refusal.unwrap_or_else(|| Arc::new(EngineError::Conflict(why)));
                return Ok(Self::refused(operation, refusal));
            }
            RecordedStatus::Pinned(seq) | RecordedStatus::Unchanged(seq) => seq,
            RecordedStatus::Created | RecordedStatus::Updated | RecordedStatus::Deleted => seq,
        };
        let shown = match recorded {
            RecordedStatus::Deleted => None,
            _ => match self.answer().rebuild(seq).await {
                Ok(shown) => Some(shown),
                Err(EngineError::NotFound(ObjectKind::Memory)) => None,
                Err(error) => return Err(error),
            },
        };
        let memory_id = shown.as_ref().map(|shown| shown.memory.head.memory_id);
        let memory_id = memory_id.or(operation.memory_id);
        let Some(memory_id) = memory_id else {
            return Ok(OperationResult {
                memory_id: None,
                outcome: Ok((recorded.status().unwrap_or(BatchStatus::Unchanged), None)),
            });
        };
        self.done(operation, recorded, memory_id, shown)
    }

    fn answer(&self) -> Answer<'_> {
        Answer {
            reader: &self.memories.reader,
            principal: self.write.principal,
            store_id: self.write.store_id,
            view: View::Basic,
        }
    }

    fn refused(operation: &ParsedOperation, error: Arc<EngineError>) -> OperationResult {
        OperationResult { memory_id: operation.memory_id, outcome: Err(error) }
    }

    /// The result of an operation that was carried out. A credential that may not read does not
    /// learn whether the memory existed before, or had the content already.
    fn done(
        &self,
        operation: &ParsedOperation,
        recorded: RecordedStatus,
        memory_id: MemoryId,
        shown: Option<ShownMemory>,
    ) -> Result<OperationResult, EngineError> {
        let principal = self.write.principal;
        let status = recorded.status().ok_or(EngineError::Internal("a refusal was made"))?;
        let status = match status {
            BatchStatus::Created if operation.sent.is_creation => status,
            BatchStatus::Deleted => status,
            _ if principal.may_read() => status,
            _ => BatchStatus::Updated,
        };
        let now = self.memories.context.now();
        let shown = shown.map(|shown| conceal_write(principal, Ok(shown), &operation.sent, now));
        Ok(OperationResult {
            memory_id: Some(memory_id),
            outcome: Ok((status, shown.transpose()?.map(Box::new))),
        })
    }
}
