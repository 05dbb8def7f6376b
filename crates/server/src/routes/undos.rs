//! `/v1/memory_stores/{memory_store_id}/undo` and `…/restore`

use keepsake_core::{MemoryUndoId, StoreId};
use keepsake_engine::{MemoryUndo, StoreRestoration, UndoRequest};

use crate::answer::{Answer, Json};
use crate::auth::Caller;
use crate::body::JsonBody;
use crate::path::Path;
use crate::query::QueryParams;

/// Take back changes
///
/// For each memory whose last changes are selected, its state before the first of them comes back:
/// content, path and existence. A memory that was changed afterwards is skipped, unless `overwrite`
/// is true; one that is already as it was is left out. Up to 500 memories and 8 MiB of content are
/// one commit. More are made in several commits, after the answer, which has an `id`.
#[utoipa::path(
    post,
    path = "/memory_stores/{memory_store_id}/undo",
    operation_id = "memory_stores.undo",
    request_body = UndoRequest,
    responses((status = 200, description = "What becomes of each memory.", body = MemoryUndo)),
)]
pub(crate) async fn create(
    Path(store_id): Path<StoreId>,
    JsonBody(Caller(engine, principal), request, idempotency): JsonBody<UndoRequest>,
) -> Answer<MemoryUndo> {
    let request = UndoRequest { idempotency, ..request };
    Ok(Json(engine.undos.undo(&principal, store_id, request).await?))
}

/// Retrieve an undo
///
/// How far an undo in several commits is. Of each store, the last 20 that have ended are kept, for 7 days.
#[utoipa::path(
    get,
    path = "/memory_stores/{memory_store_id}/undo/{undo_id}",
    operation_id = "memory_stores.retrieve_undo",
    responses((status = 200, description = "The undo.", body = MemoryUndo)),
)]
pub(crate) async fn retrieve(
    Caller(engine, principal): Caller,
    Path((store_id, undo_id)): Path<(StoreId, MemoryUndoId)>,
    _: QueryParams<()>,
) -> Answer<MemoryUndo> {
    Ok(Json(engine.undos.get(&principal, store_id, undo_id).await?))
}

/// Cancel an undo
///
/// Ends an undo in several commits. Commits that are made stay, and one that is under way is still made; `left` is the
/// number of memories that stay as they are. An undo that has ended stays as it is.
#[utoipa::path(
    delete,
    path = "/memory_stores/{memory_store_id}/undo/{undo_id}",
    operation_id = "memory_stores.cancel_undo",
    responses((status = 200, description = "The undo.", body = MemoryUndo)),
)]
pub(crate) async fn cancel(
    Caller(engine, principal): Caller,
    Path((store_id, undo_id)): Path<(StoreId, MemoryUndoId)>,
    _: QueryParams<()>,
) -> Answer<MemoryUndo> {
    Ok(Json(engine.undos.cancel(&principal, store_id, undo_id).await?))
}

/// Restore a memory store
///
/// Makes the store as it was at a time or after a change, like an undo of all changes since.
#[utoipa::path(
    post,
    path = "/memory_stores/{memory_store_id}/restore",
    operation_id = "memory_stores.restore",
    request_body = StoreRestoration,
    responses((status = 200, description = "What becomes of each memory.", body = MemoryUndo)),
)]
pub(crate) async fn restore(
    Path(store_id): Path<StoreId>,
    JsonBody(Caller(engine, principal), request, idempotency): JsonBody<StoreRestoration>,
) -> Answer<MemoryUndo> {
    let request = StoreRestoration { idempotency, ..request };
    Ok(Json(engine.undos.restore(&principal, store_id, request).await?))
}
