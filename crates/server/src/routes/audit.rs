//! `/v1/audit`

use axum::extract::State;
use keepsake_core::{Actor, ApiKeyId, AuditEntryId, SessionId, StoreId};
use keepsake_engine::Engine;
use keepsake_index::{
    AuditAction, AuditEntry as FoundEntry, AuditFilter, Auditor, audit_object_id, audit_object_type,
    parse_audit_object_id,
};
use serde::Serialize;
use utoipa::ToSchema;
use uuid::Uuid;

use super::list::{Created, List, ListPage};
use crate::answer::Json;
use crate::auth::Caller;
use crate::error::ApiError;
use crate::query::{QueryParams, query_params};
use crate::schemas::{self, AuditEntryType};

/// One action. It holds no content, path, name or secret.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct AuditEntry {
    #[schema(value_type = schemas::AuditEntryId)]
    id: AuditEntryId,
    #[schema(inline)]
    r#type: AuditEntryType,
    #[schema(value_type = schemas::Time)]
    created_at: String,
    /// The actor; null for a job of the server.
    #[schema(required)]
    actor: Option<AuditActor>,
    /// Object type and verb, with a dot between them.
    #[schema(value_type = schemas::AuditAction)]
    action: String,
    /// The object of the action.
    #[schema(required)]
    object: Option<AuditObject>,
    /// The memory store of a redacted version or of a session's resource; null for
    /// other actions.
    #[schema(value_type = Option<schemas::MemoryStoreId>, required)]
    memory_store_id: Option<StoreId>,
}

/// The actor of an action.
#[derive(Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(tag = "type")]
pub(crate) enum AuditActor {
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
    /// Who runs the server.
    #[serde(rename = "operator_actor")]
    Operator,
}

/// The object of an action; it may have been deleted since.
#[derive(Debug, PartialEq, Eq, Serialize, ToSchema)]
pub(crate) struct AuditObject {
    #[schema(value_type = schemas::AuditObjectId)]
    id: String,
    #[schema(value_type = schemas::AuditObjectType)]
    r#type: String,
}

impl AuditActor {
    fn of(auditor: Auditor) -> Option<Self> {
        match auditor {
            Auditor::Credential(Actor::ApiKey(api_key_id)) => Some(Self::Api { api_key_id }),
            Auditor::Credential(Actor::Session(session_id)) => Some(Self::Session { session_id }),
            Auditor::Credential(Actor::User(user_id)) => Some(Self::User { user_id }),
            Auditor::Credential(Actor::ServiceAccount(service_account_id)) => {
                Some(Self::ServiceAccount { service_account_id })
            }
            Auditor::Operator | Auditor::OperatorCli => Some(Self::Operator),
            // The answer names no actor for a job. The author of an imported version belongs to
            // another server and performs no action on this one, so no entry has this actor.
            Auditor::Job | Auditor::Credential(Actor::Imported(..)) => None,
        }
    }
}

impl From<FoundEntry> for AuditEntry {
    fn from(entry: FoundEntry) -> Self {
        let object = entry.object_id.map(|id| AuditObject {
            id: audit_object_id(&entry.action, id),
            r#type: audit_object_type(&entry.action).to_owned(),
        });
        Self {
            id: AuditEntryId::from_uuid(entry.id),
            r#type: AuditEntryType,
            created_at: entry.at.to_rfc3339(),
            actor: entry.actor.parse().ok().and_then(AuditActor::of),
            object,
            action: entry.action,
            memory_store_id: entry.store_id,
        }
    }
}

query_params! {
    /// Filters of the audit listing.
    ListAudit {
        /// Only this action.
        #[param(value_type = Option<schemas::AuditAction>)]
        action: Option<AuditAction> = word("action", AuditAction::parse, "an action such as `memory_store.delete`"),
        /// Only actions of this API key or session, or of the user or service account
        /// with this subject.
        #[param(value_type = Option<schemas::GivenName>)]
        actor_id: Option<String> = name("actor_id"),
        /// Only actions on this object: a memory store, memory version, session, API
        /// key, erasure or the tenant.
        #[param(value_type = Option<schemas::AuditObjectId>)]
        object_id: Option<Uuid> = word("object_id", parse_audit_object_id, "the id of an object"),
    }
}

/// List audit entries
///
/// Newest first: actions on the tenant's memory stores, sessions, API keys,
/// redactions and erasures, with their actors. Writes of memories are in the
/// version history. Needs the scope `tenant:admin` and a credential that is not
/// bound to memory stores.
#[utoipa::path(
    get,
    path = "/audit",
    operation_id = "audit.list",
    params(ListAudit, Created, ListPage),
    responses((status = 200, description = "A page of entries.", body = List<AuditEntry>)),
)]
pub(crate) async fn list(
    State(engine): State<Engine>,
    Caller(principal): Caller,
    QueryParams((params, created, page)): QueryParams<(ListAudit, Created, ListPage)>,
) -> Result<Json<List<AuditEntry>>, ApiError> {
    let filter = AuditFilter {
        created_from: created.from,
        created_to: created.to,
        action: params.action,
        actor_id: params.actor_id,
        object_id: params.object_id,
    };
    let entries = engine.audit.list(&principal, &filter, &page.into()).await?;
    Ok(Json(List::of(entries, AuditEntry::from)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stored_actors_round_trip() {
        for auditor in [
            Auditor::Operator,
            Auditor::OperatorCli,
            Auditor::Job,
            Auditor::Credential(Actor::Session(SessionId::from_uuid(Uuid::from_u128(7)))),
            Auditor::Credential(Actor::User("a:b".to_owned())),
        ] {
            assert_eq!(auditor.to_string().parse(), Ok(auditor));
        }
        assert_eq!("robot:x".parse::<Auditor>().ok(), None);
    }
}
