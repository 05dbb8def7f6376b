//! `/v1/memory_stores`

use axum::Json;
use axum::extract::State;
use keepsake_core::{StoreId, Timestamp};
use keepsake_engine::{Engine, PageRequest, StoreDraft, StoreEdit, StoreQuery};
use keepsake_index::Store;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::list::List;
use crate::auth::Caller;
use crate::body::{Empty, JsonBody, OptionalBody};
use crate::error::ApiError;
use crate::path::InStore;
use crate::query::{Asked, FromQuery, Nothing, Query};

/// The body of a creation.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct CreateMemoryStore {
    /// 1 to 255 characters, none of them a control character.
    name: String,
    /// What the store is for.
    description: Option<String>,
    /// At most 16 pairs of your own.
    metadata: Option<Map<String, Value>>,
    /// Seconds after which a memory that is not read expires; 0: never.
    expires_unused_after: Option<u64>,
    /// What is done about sensitive data in what is written.
    sensitive_data_policy: Option<String>,
}

/// The body of an update; what is left out stays.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct UpdateMemoryStore {
    /// 1 to 255 characters, none of them a control character.
    name: Option<String>,
    /// What the store is for.
    description: Option<String>,
    /// Pairs to set, or with null to remove; others stay.
    metadata: Option<Map<String, Value>>,
    /// Seconds after which a memory that is not read expires; 0: never.
    expires_unused_after: Option<u64>,
    /// What is done about sensitive data in what is written.
    sensitive_data_policy: Option<String>,
}

/// A memory store.
#[derive(Debug, Serialize)]
pub(crate) struct MemoryStore {
    id: StoreId,
    r#type: &'static str,
    name: String,
    /// Empty when unset.
    description: String,
    metadata: Map<String, Value>,
    created_at: String,
    /// When its name, description, metadata or archiving last changed.
    updated_at: String,
    /// Since when it takes no new content.
    archived_at: Option<String>,
    /// Live memories.
    memory_count: u64,
    /// Bytes of the live memories.
    content_bytes: u64,
    /// Seconds after which a memory that is not read expires; null: never.
    expires_unused_after: Option<u64>,
    /// What is done about sensitive data in what is written.
    sensitive_data_policy: String,
}

/// The answer to a deletion.
#[derive(Debug, Serialize)]
pub(crate) struct DeletedMemoryStore {
    id: StoreId,
    r#type: &'static str,
}

/// What is asked of a tenant's stores.
#[derive(Debug)]
pub(crate) struct ListMemoryStores {
    created_from: Option<Timestamp>,
    created_to: Option<Timestamp>,
    include_archived: Option<bool>,
    page: PageRequest,
}

impl FromQuery for ListMemoryStores {
    fn from_query(query: &mut Query) -> Result<Self, ApiError> {
        Ok(Self {
            created_from: query.time("created_at", "gte")?,
            created_to: query.time("created_at", "lte")?,
            include_archived: query.flag("include_archived")?,
            page: query.page()?,
        })
    }
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
            archived_at: store.archived_at.map(Timestamp::to_rfc3339),
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
    JsonBody { body, call }: JsonBody<CreateMemoryStore>,
) -> Result<Json<MemoryStore>, ApiError> {
    let draft = StoreDraft {
        name: body.name,
        description: body.description.unwrap_or_default(),
        metadata: body.metadata.unwrap_or_default(),
        policy: body.sensitive_data_policy,
        expires_unused_after: body.expires_unused_after,
    };
    let store = engine.create_store(&principal, draft, call).await?;
    Ok(Json(store.into()))
}

/// `GET /v1/memory_stores`
pub(crate) async fn list(
    State(engine): State<Engine>,
    Caller(principal): Caller,
    Asked(asked): Asked<ListMemoryStores>,
) -> Result<Json<List<MemoryStore>>, ApiError> {
    let query = StoreQuery {
        created_from: asked.created_from,
        created_to: asked.created_to,
        include_archived: asked.include_archived.unwrap_or_default(),
        page: asked.page,
    };
    let stores = engine.stores(&principal, &query).await?;
    Ok(Json(List::of(stores, MemoryStore::from)))
}

/// `GET /v1/memory_stores/{memory_store_id}`
pub(crate) async fn retrieve(
    State(engine): State<Engine>,
    Caller(principal): Caller,
    InStore(store_id): InStore,
) -> Result<Json<MemoryStore>, ApiError> {
    Ok(Json(engine.store(&principal, store_id).await?.into()))
}

/// `POST` and `PATCH /v1/memory_stores/{memory_store_id}`
pub(crate) async fn update(
    State(engine): State<Engine>,
    Caller(principal): Caller,
    InStore(store_id): InStore,
    JsonBody { body, call }: JsonBody<UpdateMemoryStore>,
) -> Result<Json<MemoryStore>, ApiError> {
    let edit = StoreEdit {
        name: body.name,
        description: body.description,
        metadata: body.metadata.unwrap_or_default(),
        policy: body.sensitive_data_policy,
        expires_unused_after: body.expires_unused_after,
    };
    let store = engine.update_store(&principal, store_id, edit, call).await?;
    Ok(Json(store.into()))
}

/// `POST /v1/memory_stores/{memory_store_id}/archive`
///
/// Idempotent by itself: a call's name adds nothing.
pub(crate) async fn archive(
    State(engine): State<Engine>,
    Caller(principal): Caller,
    InStore(store_id): InStore,
    OptionalBody { .. }: OptionalBody<Empty>,
) -> Result<Json<MemoryStore>, ApiError> {
    Ok(Json(engine.archive_store(&principal, store_id).await?.into()))
}

/// `DELETE /v1/memory_stores/{memory_store_id}`
pub(crate) async fn delete(
    State(engine): State<Engine>,
    Caller(principal): Caller,
    InStore(store_id): InStore,
    Asked(Nothing): Asked<Nothing>,
) -> Result<Json<DeletedMemoryStore>, ApiError> {
    engine.delete_store(&principal, store_id).await?;
    Ok(Json(DeletedMemoryStore {
        id: store_id,
        r#type: "memory_store_deleted",
    }))
}
