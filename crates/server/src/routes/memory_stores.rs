//! `/v1/memory_stores`

use axum::extract::State;
use keepsake_core::{StoreId, Timestamp};
use keepsake_engine::{Engine, StoreDraft, StoreEdit, StoreQuery};
use keepsake_index::Store;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use utoipa::ToSchema;

use super::deleted::DeletedMemoryStore;
use super::list::{Created, List, ListPage};
use crate::answer::Json;
use crate::auth::Caller;
use crate::body::{Empty, JsonBody, OptionalBody};
use crate::error::ApiError;
use crate::path::Path;
use crate::query::{QueryParams, query_params};
use crate::schemas::{self, MemoryStoreType};

/// The body of a create request.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct CreateMemoryStore {
    /// 1 to 255 characters without control characters.
    #[schema(value_type = schemas::StoreName)]
    name: String,
    /// The purpose of the store.
    #[schema(value_type = Option<schemas::Description>)]
    description: Option<String>,
    /// At most 16 of your own key-value pairs.
    #[schema(value_type = Option<schemas::Metadata>)]
    metadata: Option<Map<String, Value>>,
    /// Seconds after which an unused memory expires; 0: the store has no expiry
    /// period.
    #[schema(value_type = Option<schemas::Seconds>)]
    expires_unused_after: Option<u64>,
    /// How sensitive data in written content is handled.
    #[schema(value_type = Option<schemas::SensitiveDataPolicy>)]
    sensitive_data_policy: Option<String>,
}

/// The body of an update; omitted fields stay unchanged.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct UpdateMemoryStore {
    /// 1 to 255 characters without control characters.
    #[schema(value_type = Option<schemas::StoreName>)]
    name: Option<String>,
    /// The purpose of the store.
    #[schema(value_type = Option<schemas::Description>)]
    description: Option<String>,
    /// Pairs to set; null removes a pair, and omitted pairs stay unchanged.
    #[schema(value_type = Option<schemas::MetadataPatch>)]
    metadata: Option<Map<String, Value>>,
    /// Seconds after which an unused memory expires; 0: the store has no expiry
    /// period.
    #[schema(value_type = Option<schemas::Seconds>)]
    expires_unused_after: Option<u64>,
    /// How sensitive data in written content is handled.
    #[schema(value_type = Option<schemas::SensitiveDataPolicy>)]
    sensitive_data_policy: Option<String>,
}

/// A memory store.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct MemoryStore {
    #[schema(value_type = schemas::MemoryStoreId)]
    id: StoreId,
    #[schema(inline)]
    r#type: MemoryStoreType,
    name: String,
    /// Empty when unset.
    description: String,
    #[schema(value_type = schemas::Metadata)]
    metadata: Map<String, Value>,
    #[schema(value_type = schemas::Time)]
    created_at: String,
    /// When its name, description, metadata or archiving last changed.
    #[schema(value_type = schemas::Time)]
    updated_at: String,
    /// When it was archived; since then it accepts no new content.
    #[schema(value_type = Option<schemas::Time>, required)]
    archived_at: Option<String>,
    /// Live memories.
    memory_count: u64,
    /// Bytes of the live memories.
    content_bytes: u64,
    /// Seconds after which an unused memory expires; null: the store has no
    /// expiry period.
    #[schema(required)]
    expires_unused_after: Option<u64>,
    /// How sensitive data in written content is handled.
    #[schema(value_type = schemas::SensitiveDataPolicy)]
    sensitive_data_policy: &'static str,
}

query_params! {
    /// Filters of a store listing.
    ListMemoryStores {
        /// Whether to include archived stores.
        include_archived: Option<bool> = flag("include_archived"),
    }
}

impl From<Store> for MemoryStore {
    fn from(store: Store) -> Self {
        Self {
            id: store.store_id,
            r#type: MemoryStoreType,
            name: store.name,
            description: store.description,
            metadata: store.metadata,
            created_at: store.created_at.to_rfc3339(),
            updated_at: store.updated_at.to_rfc3339(),
            archived_at: store.archived_at.map(Timestamp::to_rfc3339),
            memory_count: store.memory_count,
            content_bytes: store.live_bytes,
            expires_unused_after: store.expires_unused_after,
            sensitive_data_policy: store.policy.name(),
        }
    }
}

/// Create a memory store
///
/// A retry without an `Idempotency-Key` creates another store.
#[utoipa::path(
    post,
    path = "/memory_stores",
    operation_id = "memory_stores.create",
    request_body = CreateMemoryStore,
    responses((status = 200, description = "The store.", body = MemoryStore)),
)]
pub(crate) async fn create(
    State(engine): State<Engine>,
    JsonBody(principal, body, call): JsonBody<CreateMemoryStore>,
) -> Result<Json<MemoryStore>, ApiError> {
    let draft = StoreDraft {
        name: body.name,
        description: body.description.unwrap_or_default(),
        metadata: body.metadata.unwrap_or_default(),
        policy: body.sensitive_data_policy,
        expires_unused_after: body.expires_unused_after,
    };
    let store = engine.stores.create(&principal, draft, call).await?;
    Ok(Json(store.into()))
}

/// List memory stores
///
/// Newest first.
#[utoipa::path(
    get,
    path = "/memory_stores",
    operation_id = "memory_stores.list",
    params(Created, ListMemoryStores, ListPage),
    responses((status = 200, description = "A page of stores.", body = List<MemoryStore>)),
)]
pub(crate) async fn list(
    State(engine): State<Engine>,
    Caller(principal): Caller,
    QueryParams((created, params, page)): QueryParams<(Created, ListMemoryStores, ListPage)>,
) -> Result<Json<List<MemoryStore>>, ApiError> {
    let query = StoreQuery {
        created_from: created.from,
        created_to: created.to,
        include_archived: params.include_archived.unwrap_or_default(),
        page: page.into(),
    };
    let stores = engine.stores.list(&principal, &query).await?;
    Ok(Json(List::of(stores, MemoryStore::from)))
}

/// Retrieve a memory store
#[utoipa::path(
    get,
    path = "/memory_stores/{memory_store_id}",
    operation_id = "memory_stores.retrieve",
    responses((status = 200, description = "The store.", body = MemoryStore)),
)]
pub(crate) async fn retrieve(
    State(engine): State<Engine>,
    Caller(principal): Caller,
    Path(store_id): Path<StoreId>,
) -> Result<Json<MemoryStore>, ApiError> {
    Ok(Json(engine.stores.get(&principal, store_id).await?.into()))
}

/// Update a memory store
///
/// Omitted fields stay unchanged. Metadata is merged; null removes a key.
#[utoipa::path(
    method(post, patch),
    path = "/memory_stores/{memory_store_id}",
    operation_id = "memory_stores.update",
    request_body = UpdateMemoryStore,
    responses((status = 200, description = "The updated store.", body = MemoryStore)),
)]
pub(crate) async fn update(
    State(engine): State<Engine>,
    Path(store_id): Path<StoreId>,
    JsonBody(principal, body, call): JsonBody<UpdateMemoryStore>,
) -> Result<Json<MemoryStore>, ApiError> {
    let edit = StoreEdit {
        name: body.name,
        description: body.description,
        metadata: body.metadata.unwrap_or_default(),
        policy: body.sensitive_data_policy,
        expires_unused_after: body.expires_unused_after,
    };
    let store = engine.stores.update(&principal, store_id, edit, call).await?;
    Ok(Json(store.into()))
}

/// Archive a memory store
///
/// Its memories can still be read and deleted, but not created or changed.
/// Archiving cannot be undone; archiving again changes nothing.
#[utoipa::path(
    post,
    path = "/memory_stores/{memory_store_id}/archive",
    operation_id = "memory_stores.archive",
    request_body = Option<Empty>,
    responses((status = 200, description = "The archived store.", body = MemoryStore)),
)]
pub(crate) async fn archive(
    State(engine): State<Engine>,
    Path(store_id): Path<StoreId>,
    OptionalBody(principal, ..): OptionalBody<Empty>,
) -> Result<Json<MemoryStore>, ApiError> {
    Ok(Json(engine.stores.archive(&principal, store_id).await?.into()))
}

/// Delete a memory store
///
/// The store, its memories and their history become unavailable at once.
#[utoipa::path(
    delete,
    path = "/memory_stores/{memory_store_id}",
    operation_id = "memory_stores.delete",
    responses((status = 200, description = "The store was deleted.", body = DeletedMemoryStore)),
)]
pub(crate) async fn delete(
    State(engine): State<Engine>,
    Caller(principal): Caller,
    Path(store_id): Path<StoreId>,
    _: QueryParams<()>,
) -> Result<Json<DeletedMemoryStore>, ApiError> {
    engine.stores.delete(&principal, store_id).await?;
    Ok(Json(store_id.into()))
}
