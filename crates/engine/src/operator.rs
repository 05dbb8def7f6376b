//! Operations of the operator: tenants, keys, usage, audit, and jobs.
//!
//! These need no tenant credential, except that tenants manage their own keys
//! with their credentials. Every change writes its audit entry in the same
//! transaction.

mod audit;
mod jobs;
mod keys;
mod tenants;
mod usage;

use keepsake_core::TenantId;
use keepsake_index::{Audited, Auditor, OverQuota, Store};
use keepsake_telemetry::Quota;

use crate::{Engine, EngineError, Principal, RotatedKey, Rotation, StoreDraft};

pub use jobs::JobState;
pub use keys::{KeyDraft, MadeKey, NewKey};
pub use tenants::{NewTenant, TenantEdit, TenantQuery, limits_of};
pub use usage::UsageReport;

/// The operations of the operator.
#[derive(Debug, Clone, Copy)]
pub struct Operator<'a> {
    engine: &'a Engine,
    has_token: bool,
}

impl<'a> Operator<'a> {
    pub(crate) const fn new(engine: &'a Engine) -> Self {
        Self {
            engine,
            has_token: false,
        }
    }

    /// The same operations, audited as done by the holder of the operator
    /// token.
    #[must_use]
    pub const fn with_token(self) -> Self {
        Self {
            has_token: true,
            ..self
        }
    }

    fn audited(&self) -> Audited {
        self.engine.audited(if self.has_token {
            Auditor::Operator
        } else {
            Auditor::OperatorCli
        })
    }

    /// Runs a change in a separate task, so that it completes even if the client
    /// disconnects. Every change by the operator uses this.
    async fn change<T, F>(&self, change: impl FnOnce(Engine, Audited) -> F) -> Result<T, EngineError>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, EngineError>> + Send + 'static,
    {
        let change = change(self.engine.clone(), self.audited());
        self.engine.run_to_end(change).await
    }

    /// Rotates the token signing key on every replica.
    ///
    /// # Errors
    /// [`EngineError::Secret`], [`EngineError::Contended`],
    /// [`EngineError::Index`].
    #[tracing::instrument(name = "engine.rotate_token_key", level = "debug", skip_all)]
    pub async fn rotate_token_key(&self, why: Rotation) -> Result<RotatedKey, EngineError> {
        self.change(|engine, audited| async move { engine.rotate_token_key(why, &audited).await })
            .await
    }

    /// Creates a store for a tenant.
    ///
    /// # Errors
    /// [`EngineError::TenantNotFound`], [`EngineError::TooManyStores`],
    /// [`EngineError::Index`].
    #[tracing::instrument(name = "engine.create_store", level = "debug", skip_all)]
    pub async fn create_store(&self, tenant_id: TenantId, name: &str) -> Result<Store, EngineError> {
        let tenant = self.tenant(tenant_id).await?;
        let limit = self.engine.0.limits.with(&tenant.limits).stores_per_tenant;
        let store = self.engine.new_store(StoreDraft {
            name: name.to_owned(),
            ..StoreDraft::default()
        })?;
        self.change(|engine, audited| async move {
            let index = &engine.0.index;
            let made = index
                .stores
                .create(tenant_id, &store, limit, None, &audited)
                .await?;
            engine.made_store(tenant_id, &store, limit, made).await
        })
        .await
    }
}

impl Engine {
    /// Makes an audit entry for an action.
    pub(crate) fn audited(&self, by: Auditor) -> Audited {
        let at = self.now();
        Audited {
            id: self.0.ids.uuid(at),
            at,
            by,
            entries_per_day: None,
        }
    }

    /// Makes an audit entry for an action of a tenant's credential.
    pub(crate) fn audited_by(&self, principal: &Principal) -> Audited {
        Audited {
            entries_per_day: Some(principal.limits.audit_entries_per_day),
            ..self.audited(Auditor::Credential(principal.actor.clone()))
        }
    }

    /// Counts a refusal by a quota in the metrics and returns its error.
    pub(crate) fn over_quota(&self, refusal: OverQuota) -> EngineError {
        self.0.metrics.quota_refused(match refusal {
            OverQuota::AuditEntries { .. } => Quota::AuditEntriesPerDay,
            OverQuota::Sessions { .. } => Quota::SessionsPerTenant,
            OverQuota::SessionBytes { .. } => Quota::SessionBytesPerTenant,
            OverQuota::ApiKeys { .. } => Quota::ApiKeysPerTenant,
        });
        EngineError::OverQuota(refusal)
    }
}

/// Validates a display name or an external id.
fn check_text(field: &'static str, text: &str) -> Result<(), EngineError> {
    let is_good = (1..=255).contains(&text.chars().count()) && !text.chars().any(char::is_control);
    if is_good {
        return Ok(());
    }
    let rule = "must be 1 to 255 characters without control characters".to_owned();
    Err(EngineError::Invalid { field, rule })
}
