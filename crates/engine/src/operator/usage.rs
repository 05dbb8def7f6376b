//! What a tenant holds, beside what it may hold.

use keepsake_core::{Limits, TenantId};
use keepsake_index::TenantUsage;

use super::Operator;
use crate::EngineError;

/// What a tenant holds, as its counters say, and its limits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UsageReport {
    /// What it holds.
    pub usage: TenantUsage,
    /// The limits in force: its own where it has some, else the configured.
    pub limits: Limits,
}

impl Operator<'_> {
    /// What a tenant holds and may hold.
    ///
    /// # Errors
    /// [`EngineError::TenantNotFound`], [`EngineError::Index`].
    #[tracing::instrument(name = "engine.usage", level = "debug", skip_all)]
    pub async fn usage(&self, tenant_id: TenantId) -> Result<UsageReport, EngineError> {
        let tenant = self.tenant(tenant_id).await?;
        let usage = self.engine.0.index.tenants.usage(tenant_id).await?;
        Ok(UsageReport {
            usage: usage.ok_or(EngineError::TenantNotFound)?,
            limits: self.engine.0.limits.with(&tenant.limits),
        })
    }
}
