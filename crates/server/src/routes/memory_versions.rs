//! `/v1/memory_stores/{memory_store_id}/memory_versions`

use std::sync::Arc;

use keepsake_core::actor::{ActorKind, VersionActor};
use keepsake_core::{
    Actor, ApiKeyId, ContentHash, MemoryId, MemoryPath, SessionId, StoreId, Timestamp, VersionId,
};
use keepsake_engine::{Restoration, ShownVersion, VersionQuery, View};
use keepsake_index::Operation;
use serde::Serialize;
use utoipa::ToSchema;

use super::list::{Created, List, ListPage, Viewed};
use super::memories::Memory;
use crate::answer::{Answer, Json};
use crate::auth::Caller;
use crate::body::{Empty, JsonBody, OptionalBody};
use crate::error::ApiError;
use crate::path::Path;
use crate::query::{QueryParams, query_params};
use crate::schemas::{self, MemoryVersionType};

/// One recorded change of a memory.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct MemoryVersion {
    id: VersionId,
    #[schema(inline)]
    r#type: MemoryVersionType,
    memory_store_id: StoreId,
    memory_id: MemoryId,
    /// Its place among the changes of the store.
    seq: i64,
    operation: Operation,
    /// Null if redacted.
    #[schema(required)]
    path: Option<MemoryPath>,
    /// Null with `view=basic`, for a deletion, or if redacted.
    #[schema(value_type = Option<schemas::Content>, required)]
    content: Option<Arc<str>>,
    /// Why the content is null with `view=full`, although it was not redacted; left out
    /// otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = schemas::ErrorObject, required = false)]
    content_error: Option<ApiError>,
    /// Null for a deletion or if redacted.
    #[schema(required)]
    content_size_bytes: Option<u64>,
    /// Null for a deletion or if redacted.
    #[schema(required)]
    content_sha256: Option<ContentHash>,
    created_at: Timestamp,
    /// Null for a job or the operator.
    #[schema(value_type = Option<VersionActor>, required)]
    created_by: Option<Actor>,
    #[schema(required)]
    redacted_at: Option<Timestamp>,
    /// Null if not redacted, or if redacted by the operator.
    #[schema(value_type = Option<VersionActor>, required)]
    redacted_by: Option<Actor>,
    /// Only there if the version undoes changes: the oldest version that it takes back.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = VersionId, required = false)]
    undoes: Option<VersionId>,
}

/// The response to a redaction.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct RedactedMemoryVersion {
    #[serde(flatten)]
    version: MemoryVersion,
    /// Other versions with the same content, newest first, at most 1,000; null
    /// if the version was already redacted.
    #[schema(required)]
    content_also_in: Option<Vec<VersionId>>,
}

query_params! {
    /// Filters of a version listing.
    ListMemoryVersions {
        /// Only versions of this memory.
        memory_id: Option<MemoryId> = id("memory_id"),
        /// Only versions with this operation.
        operation: Option<Operation> = word("operation", Operation::parse, "`created`, `modified` or `deleted`"),
        /// Only versions written in this session.
        session_id: Option<SessionId> = id("session_id"),
        /// Only versions written with this API key.
        api_key_id: Option<ApiKeyId> = id("api_key_id"),
        /// Only versions written by this workload.
        #[param(value_type = Option<schemas::GivenName>)]
        service_account_id: Option<String> = name("service_account_id"),
        /// Whether imported versions that name this session, key or workload as their author
        /// count, too. Whoever imports a history may claim any author.
        include_imported: Option<bool> = flag("include_imported"),
    }
}

impl ListMemoryVersions {
    /// The actors that may have written a version. Empty: any actor.
    fn actors(self) -> Vec<(ActorKind, String)> {
        let session = self.session_id.map(|id| (ActorKind::Session, id.to_string()));
        let api_key = self.api_key_id.map(|id| (ActorKind::ApiKey, id.to_string()));
        let service_account = self.service_account_id.map(|id| (ActorKind::ServiceAccount, id));
        let actors = [session, api_key, service_account];
        actors.into_iter().flatten().collect()
    }
}

impl From<ShownVersion> for MemoryVersion {
    fn from(shown: ShownVersion) -> Self {
        let content_error = shown.content_error().map(ApiError::from);
        let version = shown.version;
        Self {
            id: version.version_id,
            r#type: MemoryVersionType,
            memory_store_id: shown.store_id,
            memory_id: version.memory_id,
            seq: version.seq,
            operation: version.operation,
            path: version.path,
            content: shown.content,
            content_error,
            content_size_bytes: version.content.map(|content| content.size_bytes),
            content_sha256: version.content.map(|content| content.sha256),
            created_at: version.created_at,
            created_by: version.created_by,
            redacted_at: version.redacted_at,
            redacted_by: version.redacted_by,
            undoes: version.undoes,
        }
    }
}

/// List memory versions
///
/// Newest first, in the store's commit order.
#[utoipa::path(
    get,
    path = "/memory_stores/{memory_store_id}/memory_versions",
    operation_id = "memory_versions.list",
    params(ListMemoryVersions, Created, Viewed, ListPage),
    responses((status = 200, description = "A page of versions.", body = List<MemoryVersion>)),
)]
pub(crate) async fn list(
    Caller(engine, principal): Caller,
    Path(store_id): Path<StoreId>,
    QueryParams((params, created, Viewed { view }, page)): QueryParams<(
        ListMemoryVersions,
        Created,
        Viewed,
        ListPage,
    )>,
) -> Answer<List<MemoryVersion>> {
    let query = VersionQuery {
        memory_id: params.memory_id,
        operation: params.operation,
        includes_imported: params.include_imported.unwrap_or_default(),
        actors: params.actors(),
        created_from: created.from,
        created_to: created.to,
        page: page.into(),
    };
    let view = view.unwrap_or_default();
    let versions = engine.versions.list(&principal, store_id, &query, view).await?;
    Ok(Json(List::of(versions, MemoryVersion::from)))
}

/// Retrieve a memory version
#[utoipa::path(
    get,
    path = "/memory_stores/{memory_store_id}/memory_versions/{memory_version_id}",
    operation_id = "memory_versions.retrieve",
    params(Viewed),
    responses((status = 200, description = "The version.", body = MemoryVersion)),
)]
pub(crate) async fn retrieve(
    Caller(engine, principal): Caller,
    Path((store_id, version_id)): Path<(StoreId, VersionId)>,
    QueryParams(Viewed { view }): QueryParams<Viewed>,
) -> Answer<MemoryVersion> {
    let view = view.unwrap_or(View::Full);
    let version = engine.versions.get(&principal, store_id, version_id, view).await?;
    Ok(Json(version.into()))
}

/// Redact a memory version
///
/// Permanently removes its content, path, size and hash. Redacting again
/// changes nothing.
#[utoipa::path(
    post,
    path = "/memory_stores/{memory_store_id}/memory_versions/{memory_version_id}/redact",
    operation_id = "memory_versions.redact",
    request_body = Option<Empty>,
    responses((status = 200, description = "The version, and other versions with the same content.", body = RedactedMemoryVersion)),
)]
pub(crate) async fn redact(
    Path((store_id, version_id)): Path<(StoreId, VersionId)>,
    JsonBody(Caller(engine, principal), ..): OptionalBody<Empty>,
) -> Answer<RedactedMemoryVersion> {
    let (version, content_also_in) = engine.versions.redact(&principal, store_id, version_id).await?;
    Ok(Json(RedactedMemoryVersion { version: version.into(), content_also_in }))
}

/// Restore a memory version
///
/// Writes its content and path as a new version of the same memory. A deleted
/// memory is created again.
#[utoipa::path(
    post,
    path = "/memory_stores/{memory_store_id}/memory_versions/{memory_version_id}/restore",
    operation_id = "memory_versions.restore",
    params(Viewed),
    request_body = Option<Restoration>,
    responses((status = 200, description = "The restored memory.", body = Memory)),
)]
pub(crate) async fn restore(
    Path((store_id, version_id)): Path<(StoreId, VersionId)>,
    QueryParams(Viewed { view }): QueryParams<Viewed>,
    JsonBody(Caller(engine, principal), restoration, idempotency): OptionalBody<Restoration>,
) -> Answer<Memory> {
    let restoration = Restoration { view: view.unwrap_or_default(), idempotency, ..restoration };
    let memory = engine.memories.restore(&principal, store_id, version_id, restoration).await?;
    Ok(Json(memory.into()))
}
