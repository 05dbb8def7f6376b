//! `/v1/audit`

use keepsake_index::{AuditAction, AuditEntry, AuditFilter, parse_audit_object_id};
use uuid::Uuid;

use super::list::{Created, List, ListPage};
use crate::answer::{Answer, Json};
use crate::auth::Caller;
use crate::query::{QueryParams, query_params};
use crate::schemas;

query_params! {
    /// Filters of the audit listing.
    ListAudit {
        /// Only this action.
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
    Caller(engine, principal): Caller,
    QueryParams((params, created, page)): QueryParams<(ListAudit, Created, ListPage)>,
) -> Answer<List<AuditEntry>> {
    let filter = AuditFilter {
        created_from: created.from,
        created_to: created.to,
        action: params.action,
        actor_id: params.actor_id,
        object_id: params.object_id,
        of_operator: None,
    };
    Ok(Json(engine.audit.list(&principal, &filter, &page.into()).await?.into()))
}
