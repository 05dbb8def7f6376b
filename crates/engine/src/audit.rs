//! The audit of a tenant: which changes were made, and by whom.

use std::sync::Arc;

use keepsake_core::{TenantId, Timestamp};
use keepsake_index::{AuditAction, AuditEntry, AuditListing, Scope};
use uuid::Uuid;

use crate::context::Context;
use crate::cursor::{Query, parse_time_and_id, time_and_id, time_text};
use crate::{EngineError, Page, PageRequest, Principal};

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AuditQuery {
    /// Inclusive.
    pub created_from: Option<Timestamp>,
    /// Inclusive.
    pub created_to: Option<Timestamp>,
    pub action: Option<AuditAction>,
    /// The id of an API key, session, user or service account.
    pub actor_id: Option<String>,
    pub object_id: Option<Uuid>,
    pub page: PageRequest,
}

impl AuditQuery {
    fn identity(&self, tenant_id: TenantId) -> Query {
        Query::of(&[
            b"audit",
            tenant_id.uuid().as_bytes(),
            time_text(self.created_from).as_bytes(),
            time_text(self.created_to).as_bytes(),
            self.action.map_or("", AuditAction::name).as_bytes(),
            self.actor_id.as_deref().unwrap_or_default().as_bytes(),
            self.object_id.unwrap_or_default().as_bytes(),
        ])
    }
}

#[derive(Debug, Clone)]
pub struct Audit {
    context: Arc<Context>,
}

impl Audit {
    pub(crate) const fn new(context: Arc<Context>) -> Self {
        Self { context }
    }

    /// Lists the audit of the credential's tenant, newest first. A credential that is
    /// bound to a list of stores is refused.
    #[tracing::instrument(name = "engine.audit", level = "debug", skip_all)]
    pub async fn list(
        &self,
        principal: &Principal,
        query: &AuditQuery,
    ) -> Result<Page<AuditEntry>, EngineError> {
        principal.require(Scope::TenantAdmin)?;
        if principal.is_bound_to_stores() {
            return Err(EngineError::PermissionDenied(Scope::TenantAdmin));
        }
        self.of_tenant(principal.tenant_id, query).await
    }

    pub(crate) async fn of_tenant(
        &self,
        tenant_id: TenantId,
        query: &AuditQuery,
    ) -> Result<Page<AuditEntry>, EngineError> {
        let limit = query.page.limit(false)?;
        let identity = query.identity(tenant_id);
        let cursors = &self.context.cursors;
        let listing = AuditListing {
            from: query.created_from,
            to: query.created_to,
            action: query.action,
            actor_id: query.actor_id.clone(),
            object_id: query.object_id,
            before: cursors.after(identity, &query.page, parse_time_and_id).await?,
            // One more item shows whether there is another page.
            limit: limit + 1,
        };
        let items = self.context.index.audit.list(tenant_id, &listing).await?;
        cursors.page(identity, items, limit, position).await
    }

    pub(crate) async fn of_operator(&self, request: &PageRequest) -> Result<Page<AuditEntry>, EngineError> {
        let limit = request.limit(false)?;
        let identity = Query::of(&[b"operator_audit"]);
        let cursors = &self.context.cursors;
        let before = cursors.after(identity, request, parse_time_and_id).await?;
        let audit = &self.context.index.audit;
        let items = audit.list_of_operator(before, limit + 1).await?;
        cursors.page(identity, items, limit, position).await
    }
}

fn position(entry: &AuditEntry) -> Vec<u8> {
    time_and_id(entry.at, entry.id)
}
