//! What was done, by whom, newest first.

use keepsake_core::{TenantId, Timestamp};
use keepsake_index::{AuditEntry, AuditPlace};
use uuid::Uuid;

use super::Operator;
use crate::cursor::Query;
use crate::{EngineError, Page, PageRequest};

impl Operator<'_> {
    /// What concerns one tenant, newest first.
    ///
    /// # Errors
    /// [`EngineError::TenantNotFound`], [`EngineError::Invalid`],
    /// [`EngineError::Index`].
    #[tracing::instrument(name = "engine.audit", level = "debug", skip_all)]
    pub async fn audit(
        &self,
        tenant_id: TenantId,
        request: &PageRequest,
    ) -> Result<Page<AuditEntry>, EngineError> {
        self.tenant(tenant_id).await?;
        let limit = request.limit(false)?;
        let identity = Query::of(&[b"audit", tenant_id.uuid().as_bytes()]);
        let before = self.place(identity, request).await?;
        let items = self.engine.0.index.audit(tenant_id, before, limit + 1).await?;
        self.engine.page_of(identity, items, limit, position).await
    }

    /// What the operator did, newest first; tenants that are gone included.
    ///
    /// # Errors
    /// [`EngineError::Invalid`], [`EngineError::Index`].
    #[tracing::instrument(name = "engine.operator_audit", level = "debug", skip_all)]
    pub async fn operator_audit(&self, request: &PageRequest) -> Result<Page<AuditEntry>, EngineError> {
        let limit = request.limit(false)?;
        let identity = Query::of(&[b"operator_audit"]);
        let before = self.place(identity, request).await?;
        let items = self.engine.0.index.operator_audit(before, limit + 1).await?;
        self.engine.page_of(identity, items, limit, position).await
    }

    async fn place(&self, identity: Query, request: &PageRequest) -> Result<Option<AuditPlace>, EngineError> {
        match &request.page {
            Some(page) => place_of(&self.engine.unseal(identity, page).await?).map(Some),
            None => Ok(None),
        }
    }
}

/// An entry's place in its order, as a cursor holds it.
fn position(entry: &AuditEntry) -> Vec<u8> {
    let at = entry.at.as_micros().to_be_bytes();
    [at.as_slice(), entry.id.as_bytes()].concat()
}

fn place_of(position: &[u8]) -> Result<AuditPlace, EngineError> {
    let parts = position.split_at_checked(8).and_then(|(at, id)| {
        let at = i64::from_be_bytes(at.try_into().ok()?);
        Some((Timestamp::from_micros(at), Uuid::from_slice(id).ok()?))
    });
    parts.ok_or(EngineError::Internal("a cursor of no entry"))
}
