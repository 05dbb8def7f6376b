//! `/v1/memory_stores/{memory_store_id}/memories/deleted`

use keepsake_core::{MemoryPath, StoreId};
use keepsake_engine::MemoryDeletion;

use crate::answer::{Answer, Json};
use crate::auth::Caller;
use crate::path::Path;
use crate::query::{QueryParams, query_params};
use crate::routes::list::{List, ListPage};

query_params! {
    /// Filters of a listing of deleted memories.
    ListDeletions {
        /// Only memories that were at this path when they were deleted.
        #[param(value_type = Option<MemoryPath>)]
        path: Option<String> = text("path"),
    }
}

/// List deleted memories
///
/// The memories that can be restored, the last deleted first.
#[utoipa::path(
    get,
    path = "/memory_stores/{memory_store_id}/memories/deleted",
    operation_id = "memories.list_deleted",
    params(ListDeletions, ListPage),
    responses((status = 200, description = "A page of deleted memories.", body = List<MemoryDeletion>)),
)]
pub(crate) async fn list(
    Caller(engine, principal): Caller,
    Path(store_id): Path<StoreId>,
    QueryParams((params, page)): QueryParams<(ListDeletions, ListPage)>,
) -> Answer<List<MemoryDeletion>> {
    let versions = &engine.versions;
    let deletions = versions.deletions(&principal, store_id, params.path.as_deref(), &page.into()).await?;
    Ok(Json(deletions.into()))
}
