//! Usage and limits of a tenant.

use keepsake_core::{Limits, TenantId};
use keepsake_index::TenantUsage;

use super::Operator;
use crate::EngineError;

/// A tenant's usage according to its counters, and its limits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UsageReport {
    /// The usage.
    pub usage: TenantUsage,
    /// The limits in force: the tenant's own, or else the configured defaults.
    pub limits: Limits,
}

impl Operator<'_> {
    /// Returns the usage and the limits of a tenant.
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
