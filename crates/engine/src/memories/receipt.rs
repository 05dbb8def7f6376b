//! Answers to writes by credentials without the scope `memory:read`.
//!
//! Such an answer shows only what the request itself sent, and the id of the memory
//! it changed. It leaves out hash, size, path, times and pin that others wrote, and
//! the ids of conflicting memories.

use keepsake_core::{Content, ContentHash, MemoryPath, Timestamp};
use keepsake_index::{ExpiresAt, ExpiryChange};

use super::ShownMemory;
use super::decisions::{Creation, Update};
use super::requests::OnExistingMemory;
use crate::{EngineError, Principal};

/// The parts of a memory that an answer may show to a write-only credential.
#[expect(clippy::struct_excessive_bools, reason = "each flag stands for one part of the answer")]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryReceipt {
    /// The call created the memory, so its version and times are the call's.
    pub is_new: bool,
    /// The memory is at the path that the call sent.
    pub has_path: bool,
    /// The memory has the content that the call sent.
    pub has_content: bool,
    /// The memory's pin is what the call requested.
    pub has_pin: bool,
}

/// The fields that a write request sent.
#[derive(Debug, Default)]
pub(super) struct SentFields {
    pub(super) is_creation: bool,
    pub(super) path: Option<MemoryPath>,
    pub(super) content: Option<ContentHash>,
    pub(super) expiry: ExpiryChange,
}

impl SentFields {
    pub(super) fn by_creation(creation: &Creation) -> Self {
        Self {
            is_creation: creation.on_taken != OnExistingMemory::Replace,
            path: Some(creation.path.clone()),
            content: Some(creation.content.hash()),
            expiry: creation.expiry,
        }
    }

    pub(super) fn by_update(update: &Update) -> Self {
        Self {
            is_creation: false,
            path: update.path.clone(),
            content: update.content.as_ref().map(Content::hash),
            expiry: update.expiry,
        }
    }

    fn receipt(&self, shown: &ShownMemory) -> MemoryReceipt {
        let memory = &shown.memory;
        MemoryReceipt {
            is_new: self.is_creation,
            has_path: self.path.as_ref() == Some(&memory.head.path),
            has_content: self.content == Some(memory.head.content.sha256),
            has_pin: self.is_creation || self.expiry.is_pinned == Some(memory.is_pinned),
        }
    }
}

/// Removes the details that the credential may not read.
pub(super) fn conceal_write(
    principal: &Principal,
    outcome: Result<ShownMemory, EngineError>,
    sent: &SentFields,
    now: Timestamp,
) -> Result<ShownMemory, EngineError> {
    if principal.may_read() {
        return outcome;
    }
    let mut shown = outcome.map_err(|error| conceal_refusal(principal, error, sent.path.as_ref()))?;
    let receipt = sent.receipt(&shown);
    if !receipt.is_new {
        (shown.memory.created_at, shown.memory.updated_at) = (now, now);
    }
    Ok(ShownMemory {
        last_accessed_at: None,
        expires_at: sent.expiry.expires_at.and_then(ExpiresAt::time),
        content: None,
        receipt: Some(receipt),
        ..shown
    })
}

/// Removes the details that the credential may not read. `path` is the path of the
/// request.
pub(super) fn conceal_refusal(
    principal: &Principal,
    error: EngineError,
    path: Option<&MemoryPath>,
) -> EngineError {
    if principal.may_read() {
        return error;
    }
    match error {
        EngineError::PreconditionFailed { why, .. } => {
            EngineError::PreconditionFailed { why, memory_id: None, current_sha256: None }
        }
        EngineError::Refused(refusal) => refusal.concealed(path).into(),
        other => other,
    }
}
