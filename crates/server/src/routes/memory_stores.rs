//! `/v1/memory_stores`

use axum::Json;
use axum::extract::State;
use keepsake_core::StoreId;
use keepsake_engine::{Engine, StoreDraft};
use keepsake_index::Store;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::body::{Caller, InStore, JsonBody};
use crate::error::ApiError;

/// The body of a creation.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct CreateMemoryStore {
    name: String,
    description: Option<String>,
    metadata: Option<Map<String, Value>>,
}

/// A memory store as the API shows it.
#[derive(Debug, Serialize)]
pub(crate) struct MemoryStore {
    id: StoreId,
    r#type: &'static str,
    name: String,
    description: String,
    metadata: Map<String, Value>,
    created_at: String,
    updated_at: String,
    archived_at: Option<String>,
    memory_count: u64,
    content_bytes: u64,
    expires_unused_after: Option<u64>,
    sensitive_data_policy: String,
}

impl From<Store> for MemoryStore {
    fn from(store: Store) -> Self {
        Self {
            id: store.store_id,
            r#type: "memory_store",
            name: store.name,
            description: store.description,
            metadata: store.metadata,
            created_at: store.created_at.to_rfc3339(),
            updated_at: store.updated_at.to_rfc3339(),
            archived_at: store.archived_at.map(keepsake_core::Timestamp::to_rfc3339),
            memory_count: store.memory_count,
            content_bytes: store.live_bytes,
            expires_unused_after: store.expires_unused_after,
            sensitive_data_policy: store.policy,
        }
    }
}

/// `POST /v1/memory_stores`
pub(crate) async fn create(
    State(engine): State<Engine>,
    Caller(principal): Caller,
    JsonBody(body): JsonBody<CreateMemoryStore>,
) -> Result<Json<MemoryStore>, ApiError> {
    let draft = StoreDraft {
        name: body.name,
        description: body.description.unwrap_or_default(),
        metadata: body.metadata.unwrap_or_default(),
    };
    Ok(Json(engine.create_store(&principal, draft).await?.into()))
}

/// `GET /v1/memory_stores/{memory_store_id}`
pub(crate) async fn retrieve(
    State(engine): State<Engine>,
    Caller(principal): Caller,
    InStore(store_id): InStore,
) -> Result<Json<MemoryStore>, ApiError> {
    Ok(Json(engine.store(&principal, store_id).await?.into()))
}
