//! What most tests use: a place in a database, and the changes in it.

pub(crate) use std::sync::Arc;
pub(crate) use std::sync::atomic::{AtomicU64, Ordering};
pub(crate) use std::time::Duration;

pub(crate) use futures::future::join_all;
pub(crate) use keepsake_core::{BlobKey, MemoryId, StoreId, TenantId, Timestamp, VersionId};
pub(crate) use keepsake_index::postgres::PostgresOptions;
pub(crate) use keepsake_index::{
    Auditor, Commit, CommitChange, CommitOutcome, Depth, Expiry, ExpiryChange, Head, Index, IndexError,
    LastUse, MemoryListing, MemoryTarget, NewContent, Origin, PostgresIndex, StoreChange, Target,
    TenantStatus, VersionBatch,
};
pub(crate) use sqlx::{AssertSqlSafe, Connection as _};
pub(crate) use uuid::Uuid;

pub(crate) use crate::database::{OwnDatabase, Raw, TextRow, postgres_index, sqlite_index};
pub(crate) use crate::place::{
    NOW, Place, REPLICA, actor, after_seconds, audited, audited_by, by_tenant, committed, count_steps,
    created, deleted, edited, listing, next_uuid, path, renamed,
};
