//! `/v1/memory_stores/{id}/usage`, `/v1/usage/daily`

use keepsake_core::StoreId;
use keepsake_engine::{DailyUseQuery, DailyUseReport, StoreUsageReport};

use crate::answer::{Answer, Json};
use crate::auth::Caller;
use crate::path::Path;
use crate::query::{QueryParams, query_params};

query_params! {
    /// Parameters of a store's usage.
    RetrieveUsage {
        /// Memories per list; 20 by default.
        #[param(minimum = 1, maximum = 100)]
        limit: Option<u64> = number("limit", "1 to 100"),
        /// Bytes of further content, for `fits_tenant`.
        #[param(minimum = 0)]
        added_bytes: Option<u64> = number("added_bytes", "0 on"),
    }
}

query_params! {
    /// Parameters of the daily usage.
    RetrieveDailyUsage {
        /// Days up to today; 30 by default.
        #[param(minimum = 1, maximum = 400)]
        days: Option<u64> = number("days", "1 to 400"),
        /// Only this store.
        memory_store_id: Option<StoreId> = id("memory_store_id"),
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
    responses((status = 200, description = "The store's usage.", body = StoreUsageReport)),
)]
pub(crate) async fn retrieve(
    Caller(engine, principal): Caller,
    Path(store_id): Path<StoreId>,
    QueryParams(params): QueryParams<RetrieveUsage>,
) -> Answer<StoreUsageReport> {
    let report = engine.usage.of_store(&principal, store_id, params.limit, params.added_bytes).await?;
    Ok(Json(report))
}

/// Retrieve the daily usage
///
/// How often versions were shown and written each day (UTC), by surface, in the stores
/// that the credential may see. Counts are at most a minute old, and are kept for 400 days.
#[utoipa::path(
    get,
    path = "/usage/daily",
    operation_id = "usage.daily",
    params(RetrieveDailyUsage),
    responses((status = 200, description = "The counts of each day.", body = DailyUseReport)),
)]
pub(crate) async fn daily(
    Caller(engine, principal): Caller,
    QueryParams(params): QueryParams<RetrieveDailyUsage>,
) -> Answer<DailyUseReport> {
    let RetrieveDailyUsage { days, memory_store_id: store_id } = params;
    let report = engine.usage.daily(&principal, DailyUseQuery { days, store_id }).await?;
    Ok(Json(report))
}
