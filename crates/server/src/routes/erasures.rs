//! `/v1/erasures`

use keepsake_core::ErasureId;
use keepsake_engine::ErasureRequest;
use keepsake_index::Erasure;

use super::list::{List, ListPage};
use crate::answer::{Answer, Json};
use crate::auth::Caller;
use crate::body::JsonBody;
use crate::path::Path;
use crate::query::QueryParams;

/// Create an erasure
///
/// The erasure starts at once and continues until all selected data is removed:
/// memories, all their versions, their blobs, and records about them. Erased
/// data cannot be restored.
#[utoipa::path(
    post,
    path = "/erasures",
    operation_id = "erasures.create",
    request_body = ErasureRequest,
    responses((status = 200, description = "The erasure, which is running or starts soon.", body = Erasure)),
)]
pub(crate) async fn create(
    JsonBody(Caller(engine, principal), request, call): JsonBody<ErasureRequest>,
) -> Answer<Erasure> {
    Ok(Json(engine.erasures.create(&principal, request, call).await?))
}

/// List erasures
///
/// Newest first.
#[utoipa::path(
    get,
    path = "/erasures",
    operation_id = "erasures.list",
    params(ListPage),
    responses((status = 200, description = "A page of erasures.", body = List<Erasure>)),
)]
pub(crate) async fn list(
    Caller(engine, principal): Caller,
    QueryParams(params): QueryParams<ListPage>,
) -> Answer<List<Erasure>> {
    Ok(Json(engine.erasures.list(&principal, &params.into()).await?.into()))
}

/// Retrieve an erasure
///
/// The counts and times of the erased data, without content and paths.
#[utoipa::path(
    get,
    path = "/erasures/{erasure_id}",
    operation_id = "erasures.retrieve",
    responses((status = 200, description = "The erasure.", body = Erasure)),
)]
pub(crate) async fn retrieve(
    Caller(engine, principal): Caller,
    Path(erasure_id): Path<ErasureId>,
) -> Answer<Erasure> {
    Ok(Json(engine.erasures.get(&principal, erasure_id).await?))
}
