//! The audit of a tenant: which changes were made, and by whom.

use std::sync::Arc;

use keepsake_index::{AuditAction, AuditEntry, AuditFilter, Scope};

use crate::context::Context;
use crate::cursor::{Query, parse_time_and_id, time_and_id, time_text};
use crate::{EngineError, Page, PageRequest, Principal};

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
        filter: &AuditFilter,
        request: &PageRequest,
    ) -> Result<Page<AuditEntry>, EngineError> {
        principal.require(Scope::TenantAdmin)?;
        if principal.is_bound_to_stores() {
            return Err(EngineError::PermissionDenied(Scope::TenantAdmin));
        }
        let (limit, tenant_id) = (request.limit(false)?, principal.tenant_id);
        let identity = Query::of(&[
            b"audit",
            tenant_id.uuid().as_bytes(),
            time_text(filter.created_from).as_bytes(),
            time_text(filter.created_to).as_bytes(),
            filter.action.map_or("", AuditAction::name).as_bytes(),
            filter.actor_id.as_deref().unwrap_or_default().as_bytes(),
            filter.object_id.unwrap_or_default().as_bytes(),
        ]);
        let cursors = &self.context.cursors;
        let before = cursors.after(identity, request, parse_time_and_id).await?;
        // One more item shows whether there is another page.
        let items = self.context.index.audit.list(tenant_id, filter, before, limit + 1).await?;
        cursors.page(identity, items, limit, position).await
    }

    /// Lists the operator's actions, newest first, also on deleted tenants.
    #[tracing::instrument(name = "engine.operator_audit", level = "debug", skip_all)]
    pub async fn of_operator(&self, request: &PageRequest) -> Result<Page<AuditEntry>, EngineError> {
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
    time_and_id(entry.at, entry.id.uuid())
}
