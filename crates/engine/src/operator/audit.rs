//! The audit, newest first.

use keepsake_core::TenantId;
use keepsake_index::AuditEntry;

use super::Operator;
use crate::audit::audit_position;
use crate::cursor::Query;
use crate::{AuditQuery, EngineError, Page, PageRequest};

impl Operator<'_> {
    /// Lists the audit entries of one tenant, newest first.
    ///
    /// # Errors
    /// [`EngineError::TenantNotFound`], [`EngineError::Invalid`],
    /// [`EngineError::Index`].
    #[tracing::instrument(name = "engine.audit", level = "debug", skip_all)]
    pub async fn audit(
        &self,
        tenant_id: TenantId,
        query: &AuditQuery,
    ) -> Result<Page<AuditEntry>, EngineError> {
        self.tenant(tenant_id).await?;
        self.engine.list_audit(tenant_id, query).await
    }

    /// Lists the operator's actions, newest first, also on deleted tenants.
    ///
    /// # Errors
    /// [`EngineError::Invalid`], [`EngineError::Index`].
    #[tracing::instrument(name = "engine.operator_audit", level = "debug", skip_all)]
    pub async fn operator_audit(&self, request: &PageRequest) -> Result<Page<AuditEntry>, EngineError> {
        let limit = request.limit(false)?;
        let identity = Query::of(&[b"operator_audit"]);
        let before = self.engine.audit_place(identity, request).await?;
        let items = self
            .engine
            .0
            .index
            .audit
            .list_of_operator(before, limit + 1)
            .await?;
        self.engine.page_of(identity, items, limit, audit_position).await
    }
}
