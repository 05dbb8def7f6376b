//! Requests of several operations.

use std::collections::HashMap;
use std::sync::Arc;

use keepsake_core::{Content, ContentHash, MemoryId, Timestamp};
use keepsake_index::{ExpiresAt, ExpiryChange, Idempotency};

use super::{Creation, OnTaken, Operation, Precondition, Sent, Updated, together};
use crate::memories::decisions::Update;
use crate::memories::requests::{parse_content, parse_path, parse_update};
use crate::{EngineError, Principal};

pub const MAX_OPERATIONS: usize = 500;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemoryBatch {
    /// At most one for each memory and path.
    pub operations: Vec<MemoryOperation>,
    /// Whether one refused operation refuses all.
    pub is_atomic: bool,
    pub idempotency: Option<Idempotency>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MemoryOperation {
    /// Creates a memory, or replaces the content of the memory at the path.
    Put {
        path: String,
        content: String,
        /// `None`: not pinned, or unchanged.
        pinned: Option<bool>,
        /// `None`: no expiry time, or unchanged.
        expires_at: Option<ExpiresAt>,
        on_taken: OnTaken,
        /// The hash that the content to replace must have.
        expected: Option<ContentHash>,
    },
    /// `None` leaves a field unchanged.
    Update {
        memory_id: MemoryId,
        content: Option<String>,
        path: Option<String>,
        pinned: Option<bool>,
        expires_at: Option<ExpiresAt>,
        precondition: Option<Precondition>,
    },
    Delete {
        memory_id: MemoryId,
        /// The hash that the memory's content must have.
        expected: Option<ContentHash>,
    },
    /// An operation that cannot be parsed, and is refused.
    Malformed {
        /// A phrase that follows `operations`.
        rule: String,
    },
}

/// A checked operation, or the refusal that holds whatever the store contains.
pub(super) struct Parsed {
    pub(super) operation: Result<Operation, Arc<EngineError>>,
    pub(super) sent: Sent,
    /// The memory that the request names.
    pub(super) memory_id: Option<MemoryId>,
}

pub(super) fn parse(
    principal: &Principal,
    operations: Vec<MemoryOperation>,
    now: Timestamp,
) -> Result<Vec<Parsed>, EngineError> {
    if !(1..=MAX_OPERATIONS).contains(&operations.len()) {
        return Err(EngineError::Invalid {
            field: "operations",
            rule: format!("must be 1 to {MAX_OPERATIONS} operations"),
        });
    }
    let parsed = operations.into_iter().map(|operation| {
        let memory_id = match &operation {
            MemoryOperation::Put { .. } | MemoryOperation::Malformed { .. } => None,
            MemoryOperation::Update { memory_id, .. } | MemoryOperation::Delete { memory_id, .. } => {
                Some(*memory_id)
            }
        };
        let parsed = parse_one(principal, operation, now).map_err(Arc::new);
        Parsed { sent: parsed.as_ref().map(sent_by).unwrap_or_default(), operation: parsed, memory_id }
    });
    Ok(parsed.collect())
}

fn parse_one(
    principal: &Principal,
    operation: MemoryOperation,
    now: Timestamp,
) -> Result<Operation, EngineError> {
    Ok(match operation {
        MemoryOperation::Put { path, content, pinned, expires_at, on_taken, expected } => {
            Operation::Put(Creation {
                path: parse_path(&path)?,
                content: parse_content(principal, content)?,
                expiry: ExpiryChange { is_pinned: pinned, expires_at },
                on_taken,
                expected,
                now,
            })
        }
        MemoryOperation::Update { memory_id, content, path, pinned, expires_at, precondition } => {
            let (path, expiry) = (path.as_deref(), ExpiryChange { is_pinned: pinned, expires_at });
            let update = parse_update(principal, content, path, expiry, precondition, now)?;
            Operation::Update(Updated(memory_id, update))
        }
        MemoryOperation::Delete { memory_id, expected } => {
            Operation::Update(Updated(memory_id, Update::deletion(expected)))
        }
        MemoryOperation::Malformed { rule } => {
            return Err(EngineError::Invalid { field: "operations", rule });
        }
    })
}

fn sent_by(operation: &Operation) -> Sent {
    match operation {
        Operation::Put(creation) => Sent {
            is_creation: creation.on_taken != OnTaken::Replace,
            path: Some(creation.path.clone()),
            content: Some(creation.content.hash()),
            pinned: creation.expiry.is_pinned,
            expires_at: creation.expiry.expires_at,
        },
        Operation::Update(Updated(_, update)) => Sent {
            is_creation: false,
            path: update.path.clone(),
            content: update.content.as_ref().map(Content::hash),
            pinned: update.expiry.is_pinned,
            expires_at: update.expiry.expires_at,
        },
    }
}

/// Refuses two operations that name one memory, one path, or a path and one below it.
pub(super) fn require_apart(operations: &[Parsed]) -> Result<(), EngineError> {
    let (mut by_id, mut by_path) = (HashMap::new(), HashMap::new());
    for (place, operation) in operations.iter().enumerate() {
        let earlier = operation.memory_id.and_then(|id| by_id.insert(id, place));
        if let Some(earlier) = earlier {
            return Err(together(earlier, place, "are about the same memory"));
        }
        let path = operation.sent.path.as_ref();
        let earlier = path.and_then(|path| by_path.insert(path.as_str(), place));
        if let Some(earlier) = earlier {
            return Err(together(earlier, place, "are about the same path"));
        }
    }
    for (place, operation) in operations.iter().enumerate() {
        let mut above = operation.sent.path.iter().flat_map(keepsake_core::MemoryPath::ancestor_files);
        if let Some(file) = above.find_map(|file| by_path.get(file)) {
            let (one, other) = ((*file).min(place), (*file).max(place));
            let why = "need one path as a memory and as a directory";
            return Err(together(one, other, why));
        }
    }
    Ok(())
}
