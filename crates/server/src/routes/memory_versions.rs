//! `/v1/memory_stores/{memory_store_id}/memory_versions`

use std::sync::Arc;

use axum::extract::State;
use keepsake_core::actor::ActorKind;
use keepsake_core::{Actor, ApiKeyId, MemoryId, SessionId, StoreId, Timestamp, VersionId};
use keepsake_engine::{Engine, RedactedVersion, Restoration, ShownVersion, VersionQuery, View};
use keepsake_index::Operation;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::list::{Created, List, ListPage, Viewed};
use super::memories::Memory;
use crate::answer::Json;
use crate::auth::Caller;
use crate::body::{Empty, OptionalBody, optional_object};
use crate::error::ApiError;
use crate::path::Path;
use crate::precondition::Precondition;
use crate::query::{QueryParams, query_params};
use crate::schemas::{self, MemoryVersionType};

/// The body of a restore request.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RestoreMemoryVersion {
    /// The condition for the change.
    #[serde(default, deserialize_with = "optional_object")]
    precondition: Option<Precondition>,
}

/// One recorded change of a memory.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct MemoryVersion {
    #[schema(value_type = schemas::MemoryVersionId)]
    id: VersionId,
    #[schema(inline)]
    r#type: MemoryVersionType,
    #[schema(value_type = schemas::MemoryStoreId)]
    memory_store_id: StoreId,
    #[schema(value_type = schemas::MemoryId)]
    memory_id: MemoryId,
    #[schema(value_type = schemas::Operation)]
    operation: &'static str,
    /// Null if redacted.
    #[schema(value_type = Option<schemas::MemoryPath>, required)]
    path: Option<String>,
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
    #[schema(value_type = Option<schemas::ContentSha256>, required)]
    content_sha256: Option<String>,
    #[schema(value_type = schemas::Time)]
    created_at: String,
    /// Null for a job or the operator.
    #[schema(required)]
    created_by: Option<VersionActor>,
    #[schema(value_type = Option<schemas::Time>, required)]
    redacted_at: Option<String>,
    /// Null if not redacted, or if redacted by the operator.
    #[schema(required)]
    redacted_by: Option<VersionActor>,
}

/// The author of a change.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "type", deny_unknown_fields)]
pub(crate) enum VersionActor {
    /// A request that carried an API key.
    #[serde(rename = "api_actor")]
    Api {
        #[schema(value_type = schemas::ForeignId)]
        api_key_id: String,
        /// Only there if true: an imported history names this author, with any id.
        #[serde(default, skip_serializing_if = "is_false")]
        imported: bool,
    },
    /// An agent within a session.
    #[serde(rename = "session_actor")]
    Session {
        #[schema(value_type = schemas::ForeignId)]
        session_id: String,
        /// Only there if true: an imported history names this author, with any id.
        #[serde(default, skip_serializing_if = "is_false")]
        imported: bool,
    },
    /// A person.
    #[serde(rename = "user_actor")]
    User {
        user_id: String,
        /// Only there if true: an imported history names this author, with any id.
        #[serde(default, skip_serializing_if = "is_false")]
        imported: bool,
    },
    /// A workload.
    #[serde(rename = "service_account_actor")]
    ServiceAccount {
        service_account_id: String,
        /// Only there if true: an imported history names this author, with any id.
        #[serde(default, skip_serializing_if = "is_false")]
        imported: bool,
    },
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_false(value: &bool) -> bool {
    !value
}

/// The response to a redaction.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct RedactedMemoryVersion {
    #[serde(flatten)]
    version: MemoryVersion,
    /// Other versions with the same content, newest first, at most 1,000; null
    /// if the version was already redacted.
    #[schema(value_type = Option<Vec<schemas::MemoryVersionId>>, required)]
    content_also_in: Option<Vec<VersionId>>,
}

query_params! {
    /// Filters of a version listing.
    ListMemoryVersions {
        /// Only versions of this memory.
        #[param(value_type = Option<schemas::MemoryId>)]
        memory_id: Option<MemoryId> = id("memory_id"),
        /// Only versions with this operation.
        #[param(value_type = Option<schemas::Operation>)]
        operation: Option<Operation> = word("operation", Operation::parse, "`created`, `modified` or `deleted`"),
        /// Only versions written in this session.
        #[param(value_type = Option<schemas::SessionId>)]
        session_id: Option<SessionId> = id("session_id"),
        /// Only versions written with this API key.
        #[param(value_type = Option<schemas::ApiKeyId>)]
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

impl From<Actor> for VersionActor {
    fn from(actor: Actor) -> Self {
        match actor {
            Actor::ApiKey(api_key_id) => Self::of(ActorKind::ApiKey, api_key_id.to_string(), false),
            Actor::Session(session_id) => Self::of(ActorKind::Session, session_id.to_string(), false),
            Actor::User(user_id) => Self::of(ActorKind::User, user_id, false),
            Actor::ServiceAccount(id) => Self::of(ActorKind::ServiceAccount, id, false),
            Actor::Imported(kind, id) => Self::of(kind, id, true),
        }
    }
}

impl VersionActor {
    fn of(kind: ActorKind, id: String, imported: bool) -> Self {
        match kind {
            ActorKind::ApiKey => Self::Api { api_key_id: id, imported },
            ActorKind::Session => Self::Session { session_id: id, imported },
            ActorKind::User => Self::User { user_id: id, imported },
            ActorKind::ServiceAccount => Self::ServiceAccount { service_account_id: id, imported },
        }
    }

    pub(crate) fn into_parts(self) -> (ActorKind, String) {
        match self {
            Self::Api { api_key_id, .. } => (ActorKind::ApiKey, api_key_id),
            Self::Session { session_id, .. } => (ActorKind::Session, session_id),
            Self::User { user_id, .. } => (ActorKind::User, user_id),
            Self::ServiceAccount { service_account_id, .. } => {
                (ActorKind::ServiceAccount, service_account_id)
            }
        }
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
            operation: version.operation.name(),
            path: version.path.map(|path| path.as_str().to_owned()),
            content: shown.content,
            content_error,
            content_size_bytes: version.content.map(|content| content.size_bytes),
            content_sha256: version.content.map(|content| content.sha256.to_string()),
            created_at: version.created_at.to_rfc3339(),
            created_by: version.created_by.map(VersionActor::from),
            redacted_at: version.redacted_at.map(Timestamp::to_rfc3339),
            redacted_by: version.redacted_by.map(VersionActor::from),
        }
    }
}

impl From<RedactedVersion> for RedactedMemoryVersion {
    fn from(redacted: RedactedVersion) -> Self {
        Self { version: redacted.version.into(), content_also_in: redacted.content_also_in }
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
    State(engine): State<Engine>,
    Caller(principal): Caller,
    Path(store_id): Path<StoreId>,
    QueryParams((params, created, Viewed { view }, page)): QueryParams<(
        ListMemoryVersions,
        Created,
        Viewed,
        ListPage,
    )>,
) -> Result<Json<List<MemoryVersion>>, ApiError> {
    let query = VersionQuery {
        memory_id: params.memory_id,
        operation: params.operation,
        includes_imported: params.include_imported.unwrap_or_default(),
        actors: params.actors(),
        created_from: created.from,
        created_to: created.to,
        page: page.into(),
    };
    let view = view.unwrap_or(View::Basic);
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
    State(engine): State<Engine>,
    Caller(principal): Caller,
    Path((store_id, version_id)): Path<(StoreId, VersionId)>,
    QueryParams(Viewed { view }): QueryParams<Viewed>,
) -> Result<Json<MemoryVersion>, ApiError> {
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
    State(engine): State<Engine>,
    Path((store_id, version_id)): Path<(StoreId, VersionId)>,
    OptionalBody(principal, ..): OptionalBody<Empty>,
) -> Result<Json<RedactedMemoryVersion>, ApiError> {
    let redacted = engine.versions.redact(&principal, store_id, version_id).await?;
    Ok(Json(redacted.into()))
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
    request_body = Option<RestoreMemoryVersion>,
    responses((status = 200, description = "The restored memory.", body = Memory)),
)]
pub(crate) async fn restore(
    State(engine): State<Engine>,
    Path((store_id, version_id)): Path<(StoreId, VersionId)>,
    QueryParams(Viewed { view }): QueryParams<Viewed>,
    OptionalBody(principal, body, call): OptionalBody<RestoreMemoryVersion>,
) -> Result<Json<Memory>, ApiError> {
    let restoration = Restoration {
        precondition: body.precondition.map(|Precondition(precondition)| precondition),
        view: view.unwrap_or(View::Basic),
        idempotency: call,
    };
    let memory = engine.memories.restore(&principal, store_id, version_id, restoration).await?;
    Ok(Json(memory.into()))
}
