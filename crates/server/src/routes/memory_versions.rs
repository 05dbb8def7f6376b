//! `/v1/memory_stores/{memory_store_id}/memory_versions`

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use keepsake_core::actor::ActorKind;
use keepsake_core::{Actor, ApiKeyId, MemoryId, SessionId, StoreId, Timestamp, VersionId};
use keepsake_engine::{Engine, PageRequest, RedactedVersion, Restoration, ShownVersion, VersionQuery, View};
use keepsake_index::Operation;
use serde::{Deserialize, Serialize};

use super::list::List;
use super::memories::{Memory, Viewed};
use crate::auth::Caller;
use crate::body::{Empty, OptionalBody};
use crate::error::ApiError;
use crate::path::{InStore, InVersion};
use crate::precondition::Precondition;
use crate::query::{Asked, FromQuery, Query};

/// The body of a restoration.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RestoreMemoryVersion {
    /// On what condition the memory is changed.
    precondition: Option<Precondition>,
}

/// One change of a memory, as it is kept.
#[derive(Debug, Serialize)]
pub(crate) struct MemoryVersion {
    id: VersionId,
    r#type: &'static str,
    memory_store_id: StoreId,
    memory_id: MemoryId,
    operation: &'static str,
    /// Null once redacted.
    path: Option<String>,
    /// Null with `view=basic`, for a deletion, and once redacted.
    content: Option<Arc<str>>,
    /// Null for a deletion, and once redacted.
    content_size_bytes: Option<u64>,
    /// Null for a deletion, and once redacted.
    content_sha256: Option<String>,
    created_at: String,
    /// Null for a job or the operator.
    created_by: Option<VersionActor>,
    redacted_at: Option<String>,
    /// Null until redacted, and for the operator.
    redacted_by: Option<VersionActor>,
}

/// Who made a change.
#[derive(Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "type")]
pub(crate) enum VersionActor {
    /// A request that carried an API key.
    #[serde(rename = "api_actor")]
    Api { api_key_id: ApiKeyId },
    /// An agent within a session.
    #[serde(rename = "session_actor")]
    Session { session_id: SessionId },
    /// A person.
    #[serde(rename = "user_actor")]
    User { user_id: String },
    /// A workload.
    #[serde(rename = "service_account_actor")]
    ServiceAccount { service_account_id: String },
}

/// The answer to a redaction.
#[derive(Debug, Serialize)]
pub(crate) struct RedactedMemoryVersion {
    #[serde(flatten)]
    version: MemoryVersion,
    /// Versions that still hold the same content, newest first, at most 1,000;
    /// null where the version had been redacted before.
    content_also_in: Option<Vec<VersionId>>,
}

/// What is asked of a store's versions.
#[derive(Debug)]
pub(crate) struct ListMemoryVersions {
    memory_id: Option<MemoryId>,
    operation: Option<Operation>,
    session_id: Option<SessionId>,
    api_key_id: Option<ApiKeyId>,
    service_account_id: Option<String>,
    created_from: Option<Timestamp>,
    created_to: Option<Timestamp>,
    view: Option<View>,
    page: PageRequest,
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
            service_account_id: query.text("service_account_id")?,
            created_from: query.time("created_at", "gte")?,
            created_to: query.time("created_at", "lte")?,
            view: query.view()?,
            page: query.page()?,
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
            page: self.page,
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
            r#type: "memory_version",
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

/// `GET /v1/memory_stores/{memory_store_id}/memory_versions`
pub(crate) async fn list(
    State(engine): State<Engine>,
    Caller(principal): Caller,
    InStore(store_id): InStore,
    Asked(asked): Asked<ListMemoryVersions>,
) -> Result<Json<List<MemoryVersion>>, ApiError> {
    let view = asked.view.unwrap_or(View::Basic);
    let query = asked.into_query();
    let versions = engine.versions(&principal, store_id, &query, view).await?;
    Ok(Json(List::of(versions, MemoryVersion::from)))
}

/// `GET /v1/memory_stores/{memory_store_id}/memory_versions/{memory_version_id}`
pub(crate) async fn retrieve(
    State(engine): State<Engine>,
    Caller(principal): Caller,
    InVersion(store_id, version_id): InVersion,
    Asked(asked): Asked<Viewed>,
) -> Result<Json<MemoryVersion>, ApiError> {
    let view = asked.view.unwrap_or(View::Full);
    let version = engine.version(&principal, store_id, version_id, view).await?;
    Ok(Json(version.into()))
}

/// `POST …/memory_versions/{memory_version_id}/redact`
///
/// Idempotent by itself: a call's name adds nothing.
pub(crate) async fn redact(
    State(engine): State<Engine>,
    Caller(principal): Caller,
    InVersion(store_id, version_id): InVersion,
    OptionalBody { .. }: OptionalBody<Empty>,
) -> Result<Json<RedactedMemoryVersion>, ApiError> {
    let redacted = engine.redact_version(&principal, store_id, version_id).await?;
    Ok(Json(redacted.into()))
}

/// `POST …/memory_versions/{memory_version_id}/restore`
pub(crate) async fn restore(
    State(engine): State<Engine>,
    Caller(principal): Caller,
    InVersion(store_id, version_id): InVersion,
    Asked(asked): Asked<Viewed>,
    OptionalBody { body, call }: OptionalBody<RestoreMemoryVersion>,
) -> Result<Json<Memory>, ApiError> {
    let restoration = Restoration {
        precondition: body.precondition.map(Into::into),
        view: asked.view.unwrap_or(View::Basic),
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
    fn actors_are_told_by_type_and_id() {
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
