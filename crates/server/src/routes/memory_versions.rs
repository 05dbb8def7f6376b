//! `/v1/memory_stores/{memory_store_id}/memory_versions`

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use keepsake_core::actor::ActorKind;
use keepsake_core::{Actor, ApiKeyId, MemoryId, SessionId, StoreId, Timestamp, VersionId};
use keepsake_engine::{Engine, PageRequest, RedactedVersion, Restoration, ShownVersion, VersionQuery, View};
use keepsake_index::Operation;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::list::List;
use super::memories::{Memory, Viewed};
use crate::auth::Caller;
use crate::body::{Empty, OptionalBody, optional_object};
use crate::error::ApiError;
use crate::path::{InStore, InVersion};
use crate::precondition::Precondition;
use crate::query::{FromQuery, Query, QueryParams};
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
#[derive(Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(tag = "type")]
pub(crate) enum VersionActor {
    /// A request that carried an API key.
    #[serde(rename = "api_actor")]
    Api {
        #[schema(value_type = schemas::ApiKeyId)]
        api_key_id: ApiKeyId,
    },
    /// An agent within a session.
    #[serde(rename = "session_actor")]
    Session {
        #[schema(value_type = schemas::SessionId)]
        session_id: SessionId,
    },
    /// A person.
    #[serde(rename = "user_actor")]
    User { user_id: String },
    /// A workload.
    #[serde(rename = "service_account_actor")]
    ServiceAccount { service_account_id: String },
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

/// Filters of a version listing.
#[derive(Debug, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct ListMemoryVersions {
    /// Only versions of this memory.
    #[param(value_type = Option<schemas::MemoryId>)]
    memory_id: Option<MemoryId>,
    /// Only versions with this operation.
    #[param(value_type = Option<schemas::Operation>)]
    operation: Option<Operation>,
    /// Only versions written in this session.
    #[param(value_type = Option<schemas::SessionId>)]
    session_id: Option<SessionId>,
    /// Only versions written with this API key.
    #[param(value_type = Option<schemas::ApiKeyId>)]
    api_key_id: Option<ApiKeyId>,
    /// Only versions written by this workload.
    #[param(value_type = Option<schemas::GivenName>)]
    service_account_id: Option<String>,
    /// Created at or after this time; `created_at_gte` is an alias.
    #[param(rename = "created_at[gte]", value_type = Option<schemas::Time>)]
    created_from: Option<Timestamp>,
    /// Created at or before this time; `created_at_lte` is an alias.
    #[param(rename = "created_at[lte]", value_type = Option<schemas::Time>)]
    created_to: Option<Timestamp>,
    /// Whether versions include content; with `full`, a page has at most 20
    /// items.
    #[param(value_type = Option<schemas::View>)]
    view: Option<View>,
    /// Items per page; 20 by default.
    #[param(minimum = 1, maximum = 100)]
    limit: Option<u64>,
    /// The `next_page` of the previous page.
    #[param(value_type = Option<schemas::Cursor>)]
    page: Option<String>,
}

impl FromQuery for ListMemoryVersions {
    fn from_query(query: &mut Query) -> Result<Self, ApiError> {
        Ok(Self {
            memory_id: query.id("memory_id")?,
            operation: query.word(
                "operation",
                Operation::parse,
                "`created`, `modified` or `deleted`",
            )?,
            session_id: query.id("session_id")?,
            api_key_id: query.id("api_key_id")?,
            service_account_id: query.name("service_account_id")?,
            created_from: query.time("created_at", "gte")?,
            created_to: query.time("created_at", "lte")?,
            view: query.view()?,
            limit: query.limit()?,
            page: query.text("page")?,
        })
    }
}

impl ListMemoryVersions {
    fn into_query(self) -> VersionQuery {
        let session = self.session_id.map(|id| (ActorKind::Session, id.to_string()));
        let api_key = self.api_key_id.map(|id| (ActorKind::ApiKey, id.to_string()));
        let service_account = self.service_account_id.map(|id| (ActorKind::ServiceAccount, id));
        VersionQuery {
            memory_id: self.memory_id,
            operation: self.operation,
            actors: [session, api_key, service_account]
                .into_iter()
                .flatten()
                .collect(),
            created_from: self.created_from,
            created_to: self.created_to,
            page: PageRequest {
                limit: self.limit,
                page: self.page,
            },
        }
    }
}

impl From<Actor> for VersionActor {
    fn from(actor: Actor) -> Self {
        match actor {
            Actor::ApiKey(api_key_id) => Self::Api { api_key_id },
            Actor::Session(session_id) => Self::Session { session_id },
            Actor::User(user_id) => Self::User { user_id },
            Actor::ServiceAccount(service_account_id) => Self::ServiceAccount { service_account_id },
        }
    }
}

impl From<ShownVersion> for MemoryVersion {
    fn from(shown: ShownVersion) -> Self {
        let version = shown.version;
        Self {
            id: version.version_id,
            r#type: MemoryVersionType::Version,
            memory_store_id: shown.store_id,
            memory_id: version.memory_id,
            operation: version.operation.name(),
            path: version.path.map(|path| path.as_str().to_owned()),
            content: shown.content,
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
        Self {
            version: redacted.version.into(),
            content_also_in: redacted.content_also_in,
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
    tag = "Memory versions",
    params(
        ("memory_store_id" = schemas::MemoryStoreId, Path, description = "The store."),
        ListMemoryVersions
    ),
    responses((status = 200, description = "A page of versions.", body = List<MemoryVersion>)),
)]
pub(crate) async fn list(
    State(engine): State<Engine>,
    Caller(principal): Caller,
    InStore(store_id): InStore,
    QueryParams(params): QueryParams<ListMemoryVersions>,
) -> Result<Json<List<MemoryVersion>>, ApiError> {
    let view = params.view.unwrap_or(View::Basic);
    let query = params.into_query();
    let versions = engine.versions(&principal, store_id, &query, view).await?;
    Ok(Json(List::of(versions, MemoryVersion::from)))
}

/// Retrieve a memory version
#[utoipa::path(
    get,
    path = "/memory_stores/{memory_store_id}/memory_versions/{memory_version_id}",
    operation_id = "memory_versions.retrieve",
    tag = "Memory versions",
    params(
        ("memory_store_id" = schemas::MemoryStoreId, Path, description = "The store."),
        ("memory_version_id" = schemas::MemoryVersionId, Path, description = "The version."),
        Viewed
    ),
    responses((status = 200, description = "The version.", body = MemoryVersion)),
)]
pub(crate) async fn retrieve(
    State(engine): State<Engine>,
    Caller(principal): Caller,
    InVersion(store_id, version_id): InVersion,
    QueryParams(params): QueryParams<Viewed>,
) -> Result<Json<MemoryVersion>, ApiError> {
    let view = params.view.unwrap_or(View::Full);
    let version = engine.version(&principal, store_id, version_id, view).await?;
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
    tag = "Memory versions",
    params(
        ("memory_store_id" = schemas::MemoryStoreId, Path, description = "The store."),
        ("memory_version_id" = schemas::MemoryVersionId, Path, description = "The version.")
    ),
    request_body = Option<Empty>,
    responses((status = 200, description = "The version, and other versions with the same content.", body = RedactedMemoryVersion)),
)]
pub(crate) async fn redact(
    State(engine): State<Engine>,
    InVersion(store_id, version_id): InVersion,
    OptionalBody { principal, .. }: OptionalBody<Empty>,
) -> Result<Json<RedactedMemoryVersion>, ApiError> {
    let redacted = engine.redact_version(&principal, store_id, version_id).await?;
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
    tag = "Memory versions",
    params(
        ("memory_store_id" = schemas::MemoryStoreId, Path, description = "The store."),
        ("memory_version_id" = schemas::MemoryVersionId, Path, description = "The version."),
        Viewed
    ),
    request_body = Option<RestoreMemoryVersion>,
    responses((status = 200, description = "The restored memory.", body = Memory)),
)]
pub(crate) async fn restore(
    State(engine): State<Engine>,
    InVersion(store_id, version_id): InVersion,
    QueryParams(params): QueryParams<Viewed>,
    OptionalBody {
        principal,
        body,
        call,
    }: OptionalBody<RestoreMemoryVersion>,
) -> Result<Json<Memory>, ApiError> {
    let restoration = Restoration {
        precondition: body.precondition.map(Into::into),
        view: params.view.unwrap_or(View::Basic),
        idempotency: call,
    };
    let memory = engine
        .restore_version(&principal, store_id, version_id, restoration)
        .await?;
    Ok(Json(memory.into()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use uuid::Uuid;

    use super::*;

    #[test]
    fn actors_are_shown_by_type_and_id() {
        let uuid = Uuid::from_u128(1);
        for (actor, expected) in [
            (
                Actor::ApiKey(ApiKeyId::from_uuid(uuid)),
                json!({"type": "api_actor", "api_key_id": "apikey_00000000000000000000000001"}),
            ),
            (
                Actor::Session(SessionId::from_uuid(uuid)),
                json!({"type": "session_actor", "session_id": "sesn_00000000000000000000000001"}),
            ),
            (
                Actor::User("ada".to_owned()),
                json!({"type": "user_actor", "user_id": "ada"}),
            ),
            (
                Actor::ServiceAccount("ci".to_owned()),
                json!({"type": "service_account_actor", "service_account_id": "ci"}),
            ),
        ] {
            assert_eq!(serde_json::to_value(VersionActor::from(actor)).unwrap(), expected);
        }
    }
}
