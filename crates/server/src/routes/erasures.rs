//! `/v1/erasures`

use axum::extract::State;
use keepsake_core::{ErasureId, StoreId, Timestamp};
use keepsake_engine::{Engine, ErasureRequest};
use keepsake_index::{Erasure as Kept, ErasureStep as KeptStep, Receipt, VersionCounts};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use utoipa::ToSchema;

use super::list::{List, ListPage};
use crate::answer::Json;
use crate::auth::Caller;
use crate::body::JsonBody;
use crate::error::ApiError;
use crate::path::Path;
use crate::query::QueryParams;
use crate::schemas::{self, ErasureType};

/// The data to erase: a store, all memories that ever had a path below a
/// directory of it, or all stores with certain metadata.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct CreateErasure {
    /// The store; excludes `store_metadata`.
    #[schema(value_type = Option<schemas::MemoryStoreId>)]
    memory_store_id: Option<StoreId>,
    /// Erases every memory of the store that ever had a path below this
    /// directory, and keeps the store.
    #[schema(value_type = Option<schemas::DirectoryPath>)]
    path_prefix: Option<String>,
    /// Erases every store whose metadata has all these pairs, including
    /// archived and recently deleted stores.
    #[schema(value_type = Option<schemas::SelectedMetadata>)]
    store_metadata: Option<Map<String, Value>>,
}

/// An erasure; when it is done, this is the receipt.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Erasure {
    #[schema(value_type = schemas::ErasureId)]
    id: ErasureId,
    #[schema(inline)]
    r#type: ErasureType,
    #[schema(value_type = schemas::ErasureState)]
    state: &'static str,
    #[schema(value_type = schemas::ErasureSelects)]
    selected_by: String,
    /// The stores of the erasure.
    #[schema(value_type = Vec<schemas::MemoryStoreId>)]
    memory_store_ids: Vec<StoreId>,
    #[schema(value_type = schemas::Time)]
    created_at: String,
    #[schema(value_type = Option<schemas::Time>, required)]
    started_at: Option<String>,
    /// When the last of the data was erased.
    #[schema(value_type = Option<schemas::Time>, required)]
    ended_at: Option<String>,
    /// Number of interrupted attempts; the server retries every minute.
    failed_attempts: u64,
    #[schema(value_type = Option<schemas::ErasureError>, required)]
    error: Option<String>,
    removed: Removed,
    object_versions: ObjectVersions,
    /// The completed steps, in order.
    steps: Vec<Step>,
    #[schema(value_type = schemas::ErasureBackups)]
    backups: &'static str,
}

/// Counts of the data erased so far.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = ErasureRemoved)]
struct Removed {
    /// Stores that were erased as a whole.
    memory_stores: u64,
    /// Memories, including deleted ones.
    memories: u64,
    memory_versions: u64,
    /// Bytes of content.
    content_bytes: u64,
    search_documents: u64,
    /// Records of when and by whom memories were last read.
    access_times: u64,
    /// Attachments of the stores to sessions.
    session_resources: u64,
    /// Session events that refer to erased data.
    session_events: u64,
    idempotency_records: u64,
    /// Blobs; their absence from the content storage is verified.
    blobs: u64,
}

/// The state of the object versions of erased blobs.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = ErasureObjectVersions)]
pub(crate) struct ObjectVersions {
    /// Blobs with every object version deleted.
    deleted: u64,
    /// Blobs without older versions: content in the index, or in a bucket
    /// without versioning.
    not_versioned: u64,
    /// Blobs with object versions that may still exist because the bucket does
    /// not allow listing or deleting them. At least 1 if they could not be
    /// counted.
    not_deleted: u64,
}

/// A step and its completion time.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = ErasureStep)]
struct Step {
    #[schema(value_type = schemas::ErasureStepName)]
    name: String,
    #[schema(value_type = schemas::Time)]
    started_at: String,
    #[schema(value_type = Option<schemas::Time>, required)]
    ended_at: Option<String>,
}

impl From<Kept> for Erasure {
    fn from(erasure: Kept) -> Self {
        let receipt = &erasure.receipt;
        Self {
            id: erasure.erasure_id,
            r#type: ErasureType,
            state: erasure.state.name(),
            created_at: erasure.created_at.to_rfc3339(),
            started_at: erasure.started_at.map(Timestamp::to_rfc3339),
            ended_at: erasure.ended_at.map(Timestamp::to_rfc3339),
            failed_attempts: erasure.failed_attempts,
            removed: receipt.into(),
            object_versions: receipt.object_versions.into(),
            steps: receipt.steps.iter().map(Step::from).collect(),
            backups: "outside",
            selected_by: erasure.kind,
            error: erasure.error,
            memory_store_ids: erasure.receipt.memory_store_ids,
        }
    }
}

impl From<&Receipt> for Removed {
    fn from(receipt: &Receipt) -> Self {
        Self {
            memory_stores: receipt.memory_stores,
            memories: receipt.memories,
            memory_versions: receipt.versions,
            content_bytes: receipt.bytes,
            search_documents: receipt.search_documents,
            access_times: receipt.access_times,
            session_resources: receipt.session_resources,
            session_events: receipt.session_events,
            idempotency_records: receipt.idempotency_records,
            blobs: receipt.blobs,
        }
    }
}

impl From<VersionCounts> for ObjectVersions {
    fn from(versions: VersionCounts) -> Self {
        Self { deleted: versions.deleted, not_versioned: versions.not_versioned, not_deleted: versions.kept }
    }
}

impl From<&KeptStep> for Step {
    fn from(step: &KeptStep) -> Self {
        let time = |micros| Timestamp::from_micros(micros).to_rfc3339();
        Self { name: step.name.clone(), started_at: time(step.started_at), ended_at: step.ended_at.map(time) }
    }
}

/// Create an erasure
///
/// The erasure starts at once and continues until all selected data is removed:
/// memories, all their versions, their blobs, and records about them. Erased
/// data cannot be restored.
#[utoipa::path(
    post,
    path = "/erasures",
    operation_id = "erasures.create",
    request_body = CreateErasure,
    responses((status = 200, description = "The erasure, which is running or starts soon.", body = Erasure)),
)]
pub(crate) async fn create(
    State(engine): State<Engine>,
    JsonBody(principal, body, call): JsonBody<CreateErasure>,
) -> Result<Json<Erasure>, ApiError> {
    let request = ErasureRequest {
        store_id: body.memory_store_id,
        path_prefix: body.path_prefix,
        store_metadata: body.store_metadata,
    };
    let erasure = engine.erasures.create(&principal, request, call).await?;
    Ok(Json(erasure.into()))
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
    State(engine): State<Engine>,
    Caller(principal): Caller,
    QueryParams(params): QueryParams<ListPage>,
) -> Result<Json<List<Erasure>>, ApiError> {
    let erasures = engine.erasures.list(&principal, &params.into()).await?;
    Ok(Json(List::of(erasures, Erasure::from)))
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
    State(engine): State<Engine>,
    Caller(principal): Caller,
    Path(erasure_id): Path<ErasureId>,
) -> Result<Json<Erasure>, ApiError> {
    Ok(Json(engine.erasures.get(&principal, erasure_id).await?.into()))
}
