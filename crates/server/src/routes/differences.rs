//! `/v1/memory_stores/{memory_store_id}/diff`

use keepsake_core::{StoreId, Timestamp};
use keepsake_engine::{DiffQuery, MemoryDifference, NamedMoment};

use super::list::{List, ListPage};
use crate::answer::{Answer, Json};
use crate::auth::Caller;
use crate::path::Path;
use crate::query::{QueryParams, query_params};

query_params! {
    /// The states that a comparison compares.
    CompareMemoryStore {
        /// The earlier point of the store, as a time not in the future; by default the oldest
        /// point that can be shown or, with `other_store_id`, now.
        from: Option<Timestamp> = instant("from"),
        /// The earlier point of the store, as a sequence number. Not with `from`.
        #[param(minimum = 0)]
        from_seq: Option<u64> = number("from_seq", "0 to the newest sequence number"),
        /// The later point, or that of the other store, as a time; by default now.
        to: Option<Timestamp> = instant("to"),
        /// The later point, or that of the other store, as a sequence number. Not with `to`.
        #[param(minimum = 0)]
        to_seq: Option<u64> = number("to_seq", "0 to the newest sequence number"),
        /// Another store, whose memories are compared by their paths.
        other_store_id: Option<StoreId> = id("other_store_id"),
    }
}

/// Compare states of a memory store
///
/// The differences between two points of the store, or between two stores, ordered by path. A
/// page may be shorter than its limit although others follow.
#[utoipa::path(
    get,
    path = "/memory_stores/{memory_store_id}/diff",
    operation_id = "memory_stores.diff",
    params(CompareMemoryStore, ListPage),
    responses((status = 200, description = "A page of differences.", body = List<MemoryDifference>)),
)]
pub(crate) async fn list(
    Caller(engine, principal): Caller,
    Path(store_id): Path<StoreId>,
    QueryParams((params, page)): QueryParams<(CompareMemoryStore, ListPage)>,
) -> Answer<List<MemoryDifference>> {
    let query = DiffQuery {
        from: NamedMoment::parse(("from", params.from), ("from_seq", params.from_seq))?,
        to: NamedMoment::parse(("to", params.to), ("to_seq", params.to_seq))?,
        other_store_id: params.other_store_id,
        page: page.into(),
    };
    let differences = engine.past.diff(&principal, store_id, &query).await?;
    Ok(Json(differences.into()))
}
