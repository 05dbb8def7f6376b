//! `/v1/memory_stores/{id}/usage`

use axum::extract::State;
use keepsake_core::StoreId;
use keepsake_engine::{Engine, StoreUsageReport};

use crate::answer::Json;
use crate::auth::Caller;
use crate::error::ApiError;
use crate::path::Path;
use crate::query::{QueryParams, query_params};

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
    responses((status = 200, description = "The store's usage.", body = StoreUsageReport)),
)]
pub(crate) async fn retrieve(
    State(engine): State<Engine>,
    Caller(principal): Caller,
    Path(store_id): Path<StoreId>,
    QueryParams(params): QueryParams<RetrieveUsage>,
) -> Result<Json<StoreUsageReport>, ApiError> {
    let report = engine.usage.of_store(&principal, store_id, params.limit).await?;
    Ok(Json(report))
}
