//! `/v1/memory_stores/{memory_store_id}/memories/batch`

use keepsake_core::{MemoryId, StoreId};
use keepsake_engine::{BatchStatus, MAX_OPERATIONS, MemoryBatch, OperationResult};
use serde::Serialize;
use utoipa::ToSchema;

use super::Memory;
use crate::answer::{Answer, Json};
use crate::auth::Caller;
use crate::body::{BodyOfParts, JsonBody};
use crate::error::ApiError;
use crate::path::Path;
use crate::query::{QueryParams, query_params};
use crate::schemas::{self, MemoryBatchResultType, MemoryBatchType};

/// Limit of the body; it replaces the tenant's limits.
const MAX_BYTES: u64 = 8 << 20;
/// An operation has at most 10 JSON values.
const MAX_VALUES: usize = 16 * MAX_OPERATIONS;

query_params! {
    /// How much a batch answers.
    ChangeMemories {
        /// Whether the results have the memories; true if it is omitted.
        memories: Option<bool> = flag("memories"),
    }
}

/// What became of the operations of a batch.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct BatchResults {
    #[schema(inline)]
    r#type: MemoryBatchType,
    /// A result for each operation, in the order sent.
    data: Vec<BatchResult>,
}

/// What became of one operation.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct BatchResult {
    #[schema(inline)]
    r#type: MemoryBatchResultType,
    status: Status,
    /// The memory after the operation, without content; null if it is deleted, if the
    /// operation failed, and with `memories=false`.
    #[schema(required)]
    memory: Option<Box<Memory>>,
    /// The memory; null if a failed operation did not name one.
    #[schema(required)]
    memory_id: Option<MemoryId>,
    /// Why the operation failed.
    #[schema(value_type = Option<schemas::ErrorObject>, required)]
    error: Option<ApiError>,
}

/// What an operation did. If the credential lacks the scope `memory:read`, every
/// `upsert` and `update` that did not fail is `updated`.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
enum Status {
    Created,
    Updated,
    Unchanged,
    Deleted,
    Failed,
}

impl From<OperationResult> for BatchResult {
    fn from(result: OperationResult) -> Self {
        let (status, memory, error) = match result.outcome {
            Ok((status, memory)) => {
                let status = match status {
                    BatchStatus::Created => Status::Created,
                    BatchStatus::Updated => Status::Updated,
                    BatchStatus::Unchanged => Status::Unchanged,
                    BatchStatus::Deleted => Status::Deleted,
                };
                (status, memory.map(|memory| Box::new((*memory).into())), None)
            }
            Err(error) => (Status::Failed, None, Some(ApiError::from(&*error))),
        };
        Self { r#type: MemoryBatchResultType, status, memory, memory_id: result.memory_id, error }
    }
}

/// Change several memories
///
/// Makes all operations in one commit. With `atomic`, they are made as a whole or not
/// at all, and the error of the first refused operation has its index in `operation`.
/// Otherwise refused operations are left out. Each operation is decided on the memories
/// as they were before the call. The body may have 8 MiB.
#[utoipa::path(
    post,
    path = "/memory_stores/{memory_store_id}/memories/batch",
    operation_id = "memories.batch",
    params(ChangeMemories),
    request_body = MemoryBatch,
    responses((status = 200, description = "What became of each operation.", body = BatchResults)),
)]
pub(crate) async fn carry_out(
    Path(store_id): Path<StoreId>,
    QueryParams(params): QueryParams<ChangeMemories>,
    JsonBody(Caller(engine, principal), batch, idempotency): BodyOfParts<MemoryBatch, MAX_VALUES, MAX_BYTES>,
) -> Answer<BatchResults> {
    let batch = MemoryBatch { idempotency, ..batch };
    let results = engine.memories.batch(&principal, store_id, batch).await?;
    let mut data: Vec<_> = results.into_iter().map(BatchResult::from).collect();
    if params.memories == Some(false) {
        for result in &mut data {
            result.memory = None;
        }
    }
    Ok(Json(BatchResults { r#type: MemoryBatchType, data }))
}
