//! The types of the index's parameters and results.

mod audit;
mod deletion;
mod job;
mod memory;
mod store;
mod tenant;
mod version;

pub(crate) use audit::job_action;
pub use audit::{
    AuditAction, AuditEntry, AuditListing, AuditObject, AuditPlace, Audited, Auditor, OverQuota,
    UnknownAuditor,
};
pub use deletion::{DeletionState, TenantDeletion, TenantPurge, VersionCounts};
pub use job::{AccessRow, DeletionReason, DueDeletion, JobRun, RunFence, RunPlace};
pub use memory::{
    Claim, Depth, Directory, Entry, FoundMemory, Head, Lookup, Memory, MemoryItem, MemoryListing, MemoryPage,
    MemoryTarget, Pin, PinOutcome, Replayed, Target,
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
