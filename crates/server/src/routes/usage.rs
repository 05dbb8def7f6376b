//! `/v1/memory_stores/{id}/usage`

use axum::extract::State;
use keepsake_core::{Limits, MemoryId, StoreId, Timestamp};
use keepsake_engine::{Engine, MemoryUse as FoundUse, StoreUsageReport};
use serde::Serialize;
use utoipa::ToSchema;

use super::memory_versions::VersionActor;
use crate::answer::Json;
use crate::auth::Caller;
use crate::error::ApiError;
use crate::path::Path;
use crate::query::{QueryParams, query_params};
use crate::schemas::{self, MemoryStoreUsageType};

/// The usage of a store.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct MemoryStoreUsage {
    #[schema(value_type = schemas::MemoryStoreId)]
    id: StoreId,
    #[schema(inline)]
    r#type: MemoryStoreUsageType,
    /// Live memories.
    memory_count: u64,
    /// Bytes of the live memories.
    content_bytes: u64,
    /// Versions kept, including those of live memories.
    version_count: u64,
    /// Bytes of all content kept, including that of live memories.
    version_bytes: u64,
    /// The limits in force.
    #[schema(value_type = schemas::Limits)]
    limits: Limits,
    /// Seconds after which an unread memory expires, from the store's period or
    /// else the tenant's; null: never.
    #[schema(required)]
    expires_unused_after: Option<u64>,
    /// When the period starts to count, if it was newly set or shortened.
    #[schema(value_type = Option<schemas::Time>, required)]
    takes_effect_at: Option<String>,
    /// No memory expires before this time, because a session that is not
    /// archived uses the store; null: no session used it within a day.
    #[schema(value_type = Option<schemas::Time>, required)]
    in_use_until: Option<String>,
    /// The memories that would expire next if they were not read again, soonest
    /// first.
    expiring_next: Vec<MemoryUse>,
    /// Live memories that were never read.
    never_read_count: u64,
    /// The oldest of the memories that were never read.
    never_read: Vec<MemoryUse>,
}

/// A memory and its last use.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct MemoryUse {
    #[schema(value_type = schemas::MemoryId)]
    memory_id: MemoryId,
    #[schema(value_type = schemas::MemoryPath)]
    path: String,
    /// Bytes of its content.
    content_size_bytes: u64,
    #[schema(value_type = schemas::Time)]
    last_written_at: String,
    /// Null for a job or the operator.
    #[schema(required)]
    last_written_by: Option<VersionActor>,
    /// Null: never.
    #[schema(value_type = Option<schemas::Time>, required)]
    last_accessed_at: Option<String>,
    /// Null if the memory was never read or the reader is unknown.
    #[schema(required)]
    last_accessed_by: Option<VersionActor>,
    /// When it would expire if it is not read again; null: never.
    #[schema(value_type = Option<schemas::Time>, required)]
    expires_at: Option<String>,
}

impl From<FoundUse> for MemoryUse {
    fn from(found: FoundUse) -> Self {
        Self {
            memory_id: found.memory_id,
            path: found.path.as_str().to_owned(),
            content_size_bytes: found.size_bytes,
            last_written_at: found.updated_at.to_rfc3339(),
            last_written_by: found.written_by.map(VersionActor::from),
            last_accessed_at: found.last_accessed_at.map(Timestamp::to_rfc3339),
            last_accessed_by: found.read_by.map(VersionActor::from),
            expires_at: found.expires_at.map(Timestamp::to_rfc3339),
        }
    }
}

impl From<StoreUsageReport> for MemoryStoreUsage {
    fn from(report: StoreUsageReport) -> Self {
        let uses = |memories: Vec<FoundUse>| memories.into_iter().map(MemoryUse::from).collect();
        let takes_effect_at = report.expiry.in_effect_at();
        let has_period = report.expiry.unused_after_secs.is_some();
        Self {
            id: report.store.store_id,
            r#type: MemoryStoreUsageType,
            memory_count: report.store.memory_count,
            content_bytes: report.store.live_bytes,
            version_count: report.versions,
            version_bytes: report.version_bytes,
            limits: report.limits,
            expires_unused_after: report.expiry.unused_after_secs,
            takes_effect_at: takes_effect_at.filter(|_| has_period).map(Timestamp::to_rfc3339),
            in_use_until: report.in_use_until.map(Timestamp::to_rfc3339),
            expiring_next: uses(report.expiring_next),
            never_read_count: report.never_read_count,
            never_read: uses(report.never_read),
        }
    }
}

query_params! {
    /// Parameters of a store's usage.
    RetrieveUsage {
        /// Memories per list; 20 by default.
        #[param(minimum = 1, maximum = 100)]
        limit: Option<u64> = number("limit", "1 to 100"),
    }
}

/// Retrieve a memory store's usage
///
/// Its usage and limits, the memories that expire next, and the memories that
/// were never read. Read times are accurate to a minute.
#[utoipa::path(
    get,
    path = "/memory_stores/{memory_store_id}/usage",
    operation_id = "memory_stores.usage",
    params(RetrieveUsage),
    responses((status = 200, description = "The store's usage.", body = MemoryStoreUsage)),
)]
pub(crate) async fn retrieve(
    State(engine): State<Engine>,
    Caller(principal): Caller,
    Path(store_id): Path<StoreId>,
    QueryParams(params): QueryParams<RetrieveUsage>,
) -> Result<Json<MemoryStoreUsage>, ApiError> {
    let report = engine.usage.of_store(&principal, store_id, params.limit).await?;
    Ok(Json(report.into()))
}
