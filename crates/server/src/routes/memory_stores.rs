//! `/v1/memory_stores`

use axum::Json;
use axum::extract::State;
use keepsake_core::{StoreId, Timestamp};
use keepsake_engine::{Engine, PageRequest, StoreDraft, StoreEdit, StoreQuery};
use keepsake_index::Store;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use utoipa::{IntoParams, ToSchema};

use super::list::List;
use crate::auth::Caller;
use crate::body::{Empty, JsonBody, OptionalBody};
use crate::error::ApiError;
use crate::path::InStore;
use crate::query::{FromQuery, NoParams, Query, QueryParams};
use crate::schemas::{self, DeletedMemoryStoreType, MemoryStoreType};

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

/// The response to a deletion.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct DeletedMemoryStore {
    #[schema(value_type = schemas::MemoryStoreId)]
    id: StoreId,
    #[schema(inline)]
    r#type: DeletedMemoryStoreType,
}

/// Filters of a store listing.
#[derive(Debug, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct ListMemoryStores {
    /// Created at or after this time; `created_at_gte` is an alias.
    #[param(rename = "created_at[gte]", value_type = Option<schemas::Time>)]
    created_from: Option<Timestamp>,
    /// Created at or before this time; `created_at_lte` is an alias.
    #[param(rename = "created_at[lte]", value_type = Option<schemas::Time>)]
    created_to: Option<Timestamp>,
    /// Whether to include archived stores.
    include_archived: Option<bool>,
    /// Items per page; 20 by default.
    #[param(minimum = 1, maximum = 100)]
    limit: Option<u64>,
    /// The `next_page` of the previous page.
    #[param(value_type = Option<schemas::Cursor>)]
    page: Option<String>,
}

impl FromQuery for ListMemoryStores {
    fn from_query(query: &mut Query) -> Result<Self, ApiError> {
        Ok(Self {
            created_from: query.time("created_at", "gte")?,
            created_to: query.time("created_at", "lte")?,
            include_archived: query.flag("include_archived")?,
            limit: query.limit()?,
            page: query.text("page")?,
        })
    }
}

impl From<Store> for MemoryStore {
    fn from(store: Store) -> Self {
        Self {
            id: store.store_id,
            r#type: MemoryStoreType::MemoryStore,
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
    tag = "Memory stores",
    request_body = CreateMemoryStore,
    responses((status = 200, description = "The store.", body = MemoryStore)),
)]
pub(crate) async fn create(
    State(engine): State<Engine>,
    JsonBody {
        principal,
        body,
        call,
    }: JsonBody<CreateMemoryStore>,
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

/// List memory stores
///
/// Newest first.
#[utoipa::path(
    get,
    path = "/memory_stores",
    operation_id = "memory_stores.list",
    tag = "Memory stores",
    params(ListMemoryStores),
    responses((status = 200, description = "A page of stores.", body = List<MemoryStore>)),
)]
pub(crate) async fn list(
    State(engine): State<Engine>,
    Caller(principal): Caller,
    QueryParams(params): QueryParams<ListMemoryStores>,
) -> Result<Json<List<MemoryStore>>, ApiError> {
    let query = StoreQuery {
        created_from: params.created_from,
        created_to: params.created_to,
        include_archived: params.include_archived.unwrap_or_default(),
        page: PageRequest {
            limit: params.limit,
            page: params.page,
        },
    };
    let stores = engine.stores(&principal, &query).await?;
    Ok(Json(List::of(stores, MemoryStore::from)))
}

/// Retrieve a memory store
#[utoipa::path(
    get,
    path = "/memory_stores/{memory_store_id}",
    operation_id = "memory_stores.retrieve",
    tag = "Memory stores",
    params(("memory_store_id" = schemas::MemoryStoreId, Path, description = "The store.")),
    responses((status = 200, description = "The store.", body = MemoryStore)),
)]
pub(crate) async fn retrieve(
    State(engine): State<Engine>,
    Caller(principal): Caller,
    InStore(store_id): InStore,
) -> Result<Json<MemoryStore>, ApiError> {
    Ok(Json(engine.store(&principal, store_id).await?.into()))
}

/// Update a memory store
///
/// Omitted fields stay unchanged. Metadata is merged; null removes a key.
#[utoipa::path(
    method(post, patch),
    path = "/memory_stores/{memory_store_id}",
    operation_id = "memory_stores.update",
    tag = "Memory stores",
    params(("memory_store_id" = schemas::MemoryStoreId, Path, description = "The store.")),
    request_body = UpdateMemoryStore,
    responses((status = 200, description = "The updated store.", body = MemoryStore)),
)]
pub(crate) async fn update(
    State(engine): State<Engine>,
    InStore(store_id): InStore,
    JsonBody {
        principal,
        body,
        call,
    }: JsonBody<UpdateMemoryStore>,
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

/// Archive a memory store
///
/// Its memories can still be read and deleted, but not created or changed.
/// Archiving cannot be undone; archiving again changes nothing.
#[utoipa::path(
    post,
    path = "/memory_stores/{memory_store_id}/archive",
    operation_id = "memory_stores.archive",
    tag = "Memory stores",
    params(("memory_store_id" = schemas::MemoryStoreId, Path, description = "The store.")),
    request_body = Option<Empty>,
    responses((status = 200, description = "The archived store.", body = MemoryStore)),
)]
pub(crate) async fn archive(
    State(engine): State<Engine>,
    InStore(store_id): InStore,
    OptionalBody { principal, .. }: OptionalBody<Empty>,
) -> Result<Json<MemoryStore>, ApiError> {
    Ok(Json(engine.archive_store(&principal, store_id).await?.into()))
}

/// Delete a memory store
///
/// The store, its memories and their history become unavailable at once.
#[utoipa::path(
    delete,
    path = "/memory_stores/{memory_store_id}",
    operation_id = "memory_stores.delete",
    tag = "Memory stores",
    params(("memory_store_id" = schemas::MemoryStoreId, Path, description = "The store.")),
    responses((status = 200, description = "The store was deleted.", body = DeletedMemoryStore)),
)]
pub(crate) async fn delete(
    State(engine): State<Engine>,
    Caller(principal): Caller,
    InStore(store_id): InStore,
    QueryParams(NoParams): QueryParams<NoParams>,
) -> Result<Json<DeletedMemoryStore>, ApiError> {
    engine.delete_store(&principal, store_id).await?;
    Ok(Json(DeletedMemoryStore {
        id: store_id,
        r#type: DeletedMemoryStoreType::Deleted,
    }))
}
