//! `/v1/memory_stores/{memory_store_id}/readers` and `/v1/sessions/{session_id}/reads`: who was
//! shown which version

use keepsake_core::{MemoryId, MemoryPath, SessionId, StoreId, VersionId};
use keepsake_engine::{ReaderList, ReaderQuery};

use super::list::ListPage;
use crate::answer::{Answer, Json};
use crate::auth::Caller;
use crate::path::Path;
use crate::query::{QueryParams, query_params};

query_params! {
    /// Filters of a listing of readers; several must all be true.
    ListReaders {
        /// Only readers of this version.
        memory_version_id: Option<VersionId> = id("memory_version_id"),
        /// Only readers of versions of this memory.
        memory_id: Option<MemoryId> = id("memory_id"),
        /// Only readers of versions of the memory at this path.
        #[param(value_type = Option<MemoryPath>)]
        path: Option<String> = text("path"),
    }
}

/// List readers
///
/// Who was shown which version of the store's memories, where, and how often: of the newest
/// memory and version first.
#[utoipa::path(
    get,
    path = "/memory_stores/{memory_store_id}/readers",
    operation_id = "memory_readers.list",
    params(ListReaders, ListPage),
    responses((status = 200, description = "A page of readers.", body = ReaderList)),
)]
pub(crate) async fn of_store(
    Caller(engine, principal): Caller,
    Path(store_id): Path<StoreId>,
    QueryParams((params, page)): QueryParams<(ListReaders, ListPage)>,
) -> Answer<ReaderList> {
    let query = ReaderQuery {
        memory_id: params.memory_id,
        version_id: params.memory_version_id,
        path: params.path,
        page: page.into(),
    };
    Ok(Json(engine.readers.of_store(&principal, store_id, &query).await?))
}

/// List what a session was shown
///
/// The versions that the session was shown, the last one first.
#[utoipa::path(
    get,
    path = "/sessions/{session_id}/reads",
    operation_id = "sessions.reads.list",
    params(ListPage),
    responses((status = 200, description = "A page of versions with their reader.", body = ReaderList)),
)]
pub(crate) async fn of_session(
    Caller(engine, principal): Caller,
    Path(session_id): Path<SessionId>,
    QueryParams(page): QueryParams<ListPage>,
) -> Answer<ReaderList> {
    Ok(Json(engine.readers.of_session(&principal, session_id, &page.into()).await?))
}
