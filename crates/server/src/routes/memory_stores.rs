//! `/v1/memory_stores`

use keepsake_core::{StoreId, Timestamp};
use keepsake_engine::{DiffQuery, MemoryDifference, NamedMoment, StoreDraft, StoreEdit, TestReport};
use keepsake_index::{Store, StoreFilter};
use serde::Deserialize;
use utoipa::ToSchema;

use super::deleted::DeletedMemoryStore;
use super::list::{Created, List, ListPage};
use crate::answer::{Answer, Json};
use crate::auth::Caller;
use crate::body::{Empty, JsonBody, OptionalBody};
use crate::path::Path;
use crate::query::{QueryParams, query_params};

query_params! {
    /// Filters of a store listing.
    ListMemoryStores {
        /// Whether to include archived stores.
        include_archived: Option<bool> = flag("include_archived"),
    }
}

query_params! {
    /// The states that a comparison compares.
    CompareMemoryStore {
        /// The earlier point of the store, as a time not in the future; by default the oldest
        /// point that can be shown or, with `other_store_id`, now.
        from: Option<Timestamp> = instant("from"),
        /// The earlier point of the store, as a sequence number. Not with `from`.
        #[param(minimum = 0)]
        from_seq: Option<u64> = number("from_seq", "0 to the newest sequence number"),
        /// The later point, or that of the other store, as a time; by default now.
        to: Option<Timestamp> = instant("to"),
        /// The later point, or that of the other store, as a sequence number. Not with `to`.
        #[param(minimum = 0)]
        to_seq: Option<u64> = number("to_seq", "0 to the newest sequence number"),
        /// Another store, whose memories are compared by their paths.
        other_store_id: Option<StoreId> = id("other_store_id"),
    }
}

/// The tests to make.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct TestMemoryStore {
    /// A file of tests to use instead of the store's own.
    #[schema(max_length = 65536, examples("tests:\n- max_files: 500\n"))]
    tests: Option<String>,
}

/// Create a memory store
///
/// A retry without an `Idempotency-Key` creates another store.
#[utoipa::path(
    post,
    path = "/memory_stores",
    operation_id = "memory_stores.create",
    request_body = StoreDraft,
    responses((status = 200, description = "The store.", body = Store)),
)]
pub(crate) async fn create(
    JsonBody(Caller(engine, principal), draft, call): JsonBody<StoreDraft>,
) -> Answer<Store> {
    Ok(Json(engine.stores.create(&principal, draft, call).await?))
}

/// List memory stores
///
/// Newest first.
#[utoipa::path(
    get,
    path = "/memory_stores",
    operation_id = "memory_stores.list",
    params(Created, ListMemoryStores, ListPage),
    responses((status = 200, description = "A page of stores.", body = List<Store>)),
)]
pub(crate) async fn list(
    Caller(engine, principal): Caller,
    QueryParams((created, params, page)): QueryParams<(Created, ListMemoryStores, ListPage)>,
) -> Answer<List<Store>> {
    let filter = StoreFilter {
        created_from: created.from,
        created_to: created.to,
        include_archived: params.include_archived.unwrap_or_default(),
    };
    let stores = engine.stores.list(&principal, &filter, &page.into()).await?;
    Ok(Json(stores.into()))
}

/// Retrieve a memory store
#[utoipa::path(
    get,
    path = "/memory_stores/{memory_store_id}",
    operation_id = "memory_stores.retrieve",
    responses((status = 200, description = "The store.", body = Store)),
)]
pub(crate) async fn retrieve(
    Caller(engine, principal): Caller,
    Path(store_id): Path<StoreId>,
) -> Answer<Store> {
    Ok(Json(engine.stores.get(&principal, store_id).await?))
}

/// Update a memory store
///
/// Omitted fields stay unchanged. Metadata is merged; null removes a key.
#[utoipa::path(
    method(post, patch),
    path = "/memory_stores/{memory_store_id}",
    operation_id = "memory_stores.update",
    request_body = StoreEdit,
    responses((status = 200, description = "The updated store.", body = Store)),
)]
pub(crate) async fn update(
    Path(store_id): Path<StoreId>,
    JsonBody(Caller(engine, principal), edit, call): JsonBody<StoreEdit>,
) -> Answer<Store> {
    Ok(Json(engine.stores.update(&principal, store_id, edit, call).await?))
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
    responses((status = 200, description = "The archived store.", body = Store)),
)]
pub(crate) async fn archive(
    Path(store_id): Path<StoreId>,
    JsonBody(Caller(engine, principal), ..): OptionalBody<Empty>,
) -> Answer<Store> {
    Ok(Json(engine.stores.archive(&principal, store_id).await?))
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
    Caller(engine, principal): Caller,
    Path(store_id): Path<StoreId>,
    _: QueryParams<()>,
) -> Answer<DeletedMemoryStore> {
    engine.stores.delete(&principal, store_id).await?;
    Ok(Json(store_id.into()))
}

/// Test a memory store
///
/// Runs the tests in `/.keepsake/tests.yaml` on the memories as they are now. Changes nothing, and counts as no
/// read of a memory.
#[utoipa::path(
    post,
    path = "/memory_stores/{memory_store_id}/test",
    operation_id = "memory_stores.test",
    request_body = Option<TestMemoryStore>,
    responses((status = 200, description = "What became of each test.", body = TestReport)),
)]
pub(crate) async fn test(
    Path(store_id): Path<StoreId>,
    JsonBody(Caller(engine, principal), body, _): OptionalBody<TestMemoryStore>,
) -> Answer<TestReport> {
    Ok(Json(engine.store_tests.run(&principal, store_id, body.tests).await?))
}

/// Compare states of a memory store
///
/// The differences between two points of the store, or between two stores, ordered by path. A
/// page may be shorter than its limit although others follow.
#[utoipa::path(
    get,
    path = "/memory_stores/{memory_store_id}/diff",
    operation_id = "memory_stores.diff",
    params(CompareMemoryStore, ListPage),
    responses((status = 200, description = "A page of differences.", body = List<MemoryDifference>)),
)]
pub(crate) async fn diff(
    Caller(engine, principal): Caller,
    Path(store_id): Path<StoreId>,
    QueryParams((params, page)): QueryParams<(CompareMemoryStore, ListPage)>,
) -> Answer<List<MemoryDifference>> {
    let query = DiffQuery {
        from: NamedMoment::parse(("from", params.from), ("from_seq", params.from_seq))?,
        to: NamedMoment::parse(("to", params.to), ("to_seq", params.to_seq))?,
        other_store_id: params.other_store_id,
        page: page.into(),
    };
    let differences = engine.past.diff(&principal, store_id, &query).await?;
    Ok(Json(differences.into()))
}
