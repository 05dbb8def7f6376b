//! `/v1/memory_stores/{memory_store_id}/memories/batch`

use axum::extract::State;
use keepsake_core::{ContentHash, MemoryId, StoreId, duplicate_field};
use keepsake_engine::{
    self as engine, BatchStatus, Engine, ExpiresAt, MAX_OPERATIONS, MemoryBatch, MemoryOperation, OnTaken,
    OperationResult,
};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;
use utoipa::ToSchema;

use super::{Memory, parse_expires_at};
use crate::answer::Json;
use crate::body::{BodyOfParts, Object, optional_object};
use crate::error::ApiError;
use crate::path::Path;
use crate::precondition::{CreatePrecondition, Precondition};
use crate::schemas::{self, MemoryBatchResultType, MemoryBatchType};

/// Limit of the body; it replaces the tenant's limits.
const MAX_BYTES: u64 = 8 << 20;
/// An operation has at most 10 JSON values.
const MAX_VALUES: usize = 16 * MAX_OPERATIONS;

/// The body of a batch.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Batch {
    /// Whether one refused operation refuses all; true by default.
    #[serde(default = "yes")]
    #[schema(default = true)]
    atomic: bool,
    /// The operations, at most one for each memory and path.
    // Each operation is parsed separately: unless the batch is atomic, a malformed operation does
    // not refuse the others.
    #[schema(value_type = Vec<Operation>, min_items = 1, max_items = 500)]
    operations: Vec<Box<RawValue>>,
}

/// One operation of a batch.
#[derive(Debug, Deserialize, ToSchema)]
// The schema `Operation` is that of a version's operation.
#[schema(as = BatchOperation)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
enum Operation {
    /// Creates a memory; a taken path is refused.
    Create {
        /// The path of the memory.
        #[schema(value_type = schemas::MemoryPath)]
        path: String,
        /// The content; may be empty.
        #[schema(value_type = schemas::Content)]
        content: String,
        /// Whether the memory never expires.
        pinned: Option<bool>,
        /// When the memory expires, even if it is used; never by default.
        #[serde(default, deserialize_with = "optional_expiry")]
        #[schema(value_type = Option<schemas::ExpiresAt>)]
        expires_at: Option<ExpiresAt>,
        /// The condition for the creation.
        #[serde(default, deserialize_with = "optional_object")]
        precondition: Option<CreatePrecondition>,
    },
    /// Creates a memory, or replaces the content of the memory at the path.
    Upsert {
        /// The path of the memory.
        #[schema(value_type = schemas::MemoryPath)]
        path: String,
        /// The content; may be empty.
        #[schema(value_type = schemas::Content)]
        content: String,
        /// Whether the memory never expires; unchanged by default.
        pinned: Option<bool>,
        /// When the memory expires, even if it is used; unchanged by default.
        #[serde(default, deserialize_with = "optional_expiry")]
        #[schema(value_type = Option<schemas::ExpiresAt>)]
        expires_at: Option<ExpiresAt>,
        /// The condition for the change.
        #[serde(default, deserialize_with = "optional_object")]
        precondition: Option<Precondition>,
    },
    /// Changes a memory; omitted fields stay unchanged.
    Update {
        /// The memory.
        #[serde(deserialize_with = "memory_id")]
        #[schema(value_type = schemas::MemoryId)]
        memory_id: MemoryId,
        /// The new content.
        #[schema(value_type = Option<schemas::Content>)]
        content: Option<String>,
        /// The new path.
        #[schema(value_type = Option<schemas::MemoryPath>)]
        path: Option<String>,
        /// Whether the memory never expires.
        pinned: Option<bool>,
        /// When the memory expires, even if it is used.
        #[serde(default, deserialize_with = "optional_expiry")]
        #[schema(value_type = Option<schemas::ExpiresAt>)]
        expires_at: Option<ExpiresAt>,
        /// The condition for the change.
        #[serde(default, deserialize_with = "optional_object")]
        precondition: Option<Precondition>,
    },
    /// Deletes a memory.
    Delete {
        /// The memory.
        #[serde(deserialize_with = "memory_id")]
        #[schema(value_type = schemas::MemoryId)]
        memory_id: MemoryId,
        /// Delete the memory only if its content has this hash.
        #[serde(default, deserialize_with = "optional_hash")]
        #[schema(value_type = Option<schemas::ContentSha256>)]
        expected_content_sha256: Option<ContentHash>,
    },
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
    /// The memory after the operation, without content; null if it is deleted or the
    /// operation failed.
    #[schema(required)]
    memory: Option<Box<Memory>>,
    /// The memory; null if a failed operation did not name one.
    #[schema(value_type = Option<schemas::MemoryId>, required)]
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

const fn yes() -> bool {
    true
}

fn memory_id<'de, D: Deserializer<'de>>(deserializer: D) -> Result<MemoryId, D::Error> {
    let text = String::deserialize(deserializer)?;
    text.parse().map_err(|rule| D::Error::custom(format!("`memory_id` {rule}")))
}

fn optional_expiry<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<ExpiresAt>, D::Error> {
    let text = Option::<String>::deserialize(deserializer)?;
    parse_expires_at(text.as_deref()).map_err(|error| D::Error::custom(error.message))
}

fn optional_hash<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<ContentHash>, D::Error> {
    let text = Option::<String>::deserialize(deserializer)?;
    let hash = text.map(|text| text.parse());
    hash.transpose().map_err(|rule| D::Error::custom(format!("`expected_content_sha256` {rule}")))
}

fn operation_of((index, text): (usize, Box<RawValue>)) -> MemoryOperation {
    let malformed = |why: &str| MemoryOperation::Malformed { rule: format!("{index} is malformed: {why}") };
    if let Some(field) = duplicate_field(text.get().as_bytes()) {
        return malformed(&format!("duplicate field `{field}`"));
    }
    match serde_json::from_str::<Object<Operation>>(text.get()) {
        Ok(Object(operation)) => operation.into(),
        Err(error) => {
            // This position counts from the operation, not from the body.
            let position = format!(" at line {} column {}", error.line(), error.column());
            let why = error.to_string();
            malformed(why.strip_suffix(&position).unwrap_or(&why))
        }
    }
}

impl From<Operation> for MemoryOperation {
    fn from(operation: Operation) -> Self {
        match operation {
            Operation::Create { path, content, pinned, expires_at, precondition } => Self::Put {
                path,
                content,
                pinned,
                expires_at,
                on_taken: match precondition {
                    Some(CreatePrecondition::NotExists {}) => OnTaken::RefuseAsPrecondition,
                    None => OnTaken::Refuse,
                },
                expected: None,
            },
            Operation::Upsert { path, content, pinned, expires_at, precondition } => {
                let (on_taken, expected) = match precondition {
                    Some(Precondition(engine::Precondition::NotExists)) => {
                        (OnTaken::RefuseAsPrecondition, None)
                    }
                    Some(Precondition(engine::Precondition::ContentSha256(hash))) => {
                        (OnTaken::Replace, Some(hash))
                    }
                    None => (OnTaken::Replace, None),
                };
                Self::Put { path, content, pinned, expires_at, on_taken, expected }
            }
            Operation::Update { memory_id, content, path, pinned, expires_at, precondition } => {
                Self::Update {
                    memory_id,
                    content,
                    path,
                    pinned,
                    expires_at,
                    precondition: precondition.map(|Precondition(precondition)| precondition),
                }
            }
            Operation::Delete { memory_id, expected_content_sha256 } => {
                Self::Delete { memory_id, expected: expected_content_sha256 }
            }
        }
    }
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
    request_body = Batch,
    responses((status = 200, description = "What became of each operation.", body = BatchResults)),
)]
pub(crate) async fn carry_out(
    State(engine): State<Engine>,
    Path(store_id): Path<StoreId>,
    BodyOfParts(principal, body, call): BodyOfParts<Batch, MAX_VALUES, MAX_BYTES>,
) -> Result<Json<BatchResults>, ApiError> {
    let batch = MemoryBatch {
        operations: body.operations.into_iter().enumerate().map(operation_of).collect(),
        is_atomic: body.atomic,
        idempotency: call,
    };
    let results = engine.memories.batch(&principal, store_id, batch).await?;
    Ok(Json(BatchResults {
        r#type: MemoryBatchType,
        data: results.into_iter().map(BatchResult::from).collect(),
    }))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn operation_refuses_fields_that_it_does_not_have() {
        let id = "mem_00000000000000000000000001";
        for (operation, named) in [
            (json!({"type": "create", "path": "/a"}), "content"),
            (json!({"type": "create", "path": "/a", "content": "", "memory_id": id}), "memory_id"),
            (json!({"type": "delete", "memory_id": id, "content": "x"}), "content"),
            (json!({"type": "delete", "memory_id": "mem_1"}), "`memory_id`"),
            (json!({"type": "upsert", "path": "/a", "content": "", "expires_at": "soon"}), "`expires_at`"),
            (json!({}), "type"),
        ] {
            let refused = serde_json::from_value::<Operation>(operation).unwrap_err();
            assert!(refused.to_string().contains(named), "{refused}");
        }
    }
}
