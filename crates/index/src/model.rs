//! The types of the index's parameters and results.

mod audit;
mod deletion;
mod job;
mod memory;
mod store;
mod tenant;
mod version;

use serde_json::{Map, Value};

pub(crate) use audit::job_action;
pub use audit::{
    AuditAction, AuditEntry, AuditListing, AuditObject, AuditPlace, Audited, Auditor, OverQuota,
    UnknownAuditor, audit_object_id, audit_object_type, parse_audit_object_id,
};
pub use deletion::{DeletionState, TenantDeletion, TenantPurge, VersionCounts};
pub use job::{AccessRow, DeletionReason, DueDeletion, JobRun, RunFence, RunPlace};
pub(crate) use memory::KEPT;
pub use memory::{
    Claim, Depth, Directory, Entry, ExpiresAt, ExpiryChange, FoundMemories, FoundMemory, Head, HeadChange,
    Lookup, Memory, MemoryItem, MemoryListing, MemoryPage, MemoryTarget, Pin, PinOutcome, Replayed, Target,
};
pub use store::{
    Expiry, Grant, NewStore, Store, StoreChange, StoreCreation, StoreListing, StorePurge, StoreState,
    StoreUpdate,
};
pub use tenant::{
    ApiKey, Credential, IssuedKey, KeyCreation, KeyUse, Scope, Tenant, TenantChange, TenantName,
    TenantStanding, TenantStatus, TenantUpdate, TenantUsage,
};
pub use version::{
    FoundVersion, Operation, Redaction, RedactionOutcome, StoredContent, Version, VersionListing, VersionPage,
};

/// Sets metadata pairs, or removes those without a value.
///
/// Fails with the number of pairs if it grows above `limit`. Metadata that exceeds a
/// lowered limit may still shrink.
pub(crate) fn merge_metadata(
    metadata: &mut Map<String, Value>,
    changes: &[(String, Option<String>)],
    limit: usize,
) -> Result<(), usize> {
    let before = metadata.len();
    for (key, value) in changes {
        match value {
            Some(value) => metadata.insert(key.clone(), Value::String(value.clone())),
            None => metadata.remove(key),
        };
    }
    let count = metadata.len();
    if count > limit && count > before { Err(count) } else { Ok(()) }
}
