//! Operations of the operator: tenants, keys, usage, audit, and jobs.
//!
//! These need no tenant credential. Every change writes its audit entry in the
//! same transaction.

mod jobs;
mod keys;
mod tenants;

use std::sync::Arc;

use keepsake_core::TenantId;
use keepsake_index::{AuditEntry, Audited, Auditor, Store};
use tokio_util::sync::CancellationToken;

use crate::context::Context;
use crate::jobs::Jobs;
use crate::{
    ApiKeys, Audit, AuditQuery, EngineError, Page, PageRequest, RotatedKey, Rotation, StoreDraft, Stores,
    Tokens,
};

pub use jobs::{JobState, ManualJobs};
pub use keys::TenantKeys;
pub use tenants::{NewTenant, TenantEdit, TenantQuery, Tenants, UsageReport, limits_of};

/// The context of an operation of the operator, and the actor in its audit entry.
#[derive(Debug, Clone)]
struct Operation {
    context: Arc<Context>,
    by: Auditor,
}

impl Operation {
    /// Runs a change in a separate task, so that the change completes even if the client
    /// disconnects. Every change by the operator uses this.
    async fn run<T, F>(&self, change: impl FnOnce(Audited) -> F) -> Result<T, EngineError>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, EngineError>> + Send + 'static,
    {
        let audited = self.context.audited(self.by.clone());
        self.context.run_to_end(change(audited)).await
    }
}

/// The services that the operator uses besides its own.
#[derive(Debug, Clone)]
pub(crate) struct Operated {
    pub(crate) stores: Stores,
    pub(crate) keys: ApiKeys,
    pub(crate) audit: Audit,
    pub(crate) tokens: Tokens,
    pub(crate) jobs: Jobs,
    /// Cancelled at shutdown, which stops manual runs of jobs.
    pub(crate) stopping: CancellationToken,
}

#[derive(Debug, Clone)]
pub struct Operator {
    pub tenants: Tenants,
    pub keys: TenantKeys,
    pub jobs: ManualJobs,
    operation: Operation,
    operated: Operated,
}

impl Operator {
    /// The operations are audited as commands with access to the database.
    pub(crate) fn new(context: Arc<Context>, operated: Operated) -> Self {
        Self::audited_as(Auditor::OperatorCli, context, operated)
    }

    /// The same operations, audited as done by the holder of the operator
    /// token.
    #[must_use]
    pub fn with_token(&self) -> Self {
        let context = Arc::clone(&self.operation.context);
        Self::audited_as(Auditor::Operator, context, self.operated.clone())
    }

    fn audited_as(by: Auditor, context: Arc<Context>, operated: Operated) -> Self {
        let operation = Operation { context, by };
        let tenants = Tenants::new(operation.clone());
        let (keys, jobs) = (operated.keys.clone(), operated.jobs.clone());
        Self {
            keys: TenantKeys::new(operation.clone(), tenants.clone(), keys),
            jobs: ManualJobs::new(operation.clone(), jobs, operated.stopping.clone()),
            tenants,
            operation,
            operated,
        }
    }

    /// Takes effect on every replica.
    #[tracing::instrument(name = "engine.rotate_token_key", level = "debug", skip_all)]
    pub async fn rotate_token_key(&self, why: Rotation) -> Result<RotatedKey, EngineError> {
        let tokens = self.operated.tokens.clone();
        let rotate = |audited| async move { tokens.rotate_key(why, &audited).await };
        self.operation.run(rotate).await
    }

    #[tracing::instrument(name = "engine.create_store", level = "debug", skip_all)]
    pub async fn create_store(&self, tenant_id: TenantId, name: &str) -> Result<Store, EngineError> {
        let tenant = self.tenants.get(tenant_id).await?;
        let limits = self.operation.context.limits.with(&tenant.limits);
        let draft = StoreDraft { name: name.to_owned(), ..StoreDraft::default() };
        let (stores, limit) = (self.operated.stores.clone(), limits.stores_per_tenant);
        let create = |audited| async move { stores.create_for(tenant_id, draft, limit, &audited).await };
        self.operation.run(create).await
    }

    /// Newest first.
    #[tracing::instrument(name = "engine.audit", level = "debug", skip_all)]
    pub async fn audit(
        &self,
        tenant_id: TenantId,
        query: &AuditQuery,
    ) -> Result<Page<AuditEntry>, EngineError> {
        self.tenants.get(tenant_id).await?;
        self.operated.audit.of_tenant(tenant_id, query).await
    }

    /// Lists the operator's actions, newest first, also on deleted tenants.
    #[tracing::instrument(name = "engine.operator_audit", level = "debug", skip_all)]
    pub async fn operator_audit(&self, request: &PageRequest) -> Result<Page<AuditEntry>, EngineError> {
        self.operated.audit.of_operator(request).await
    }
}

/// Validates a display name or an external id.
pub(crate) fn check_text(field: &'static str, text: &str) -> Result<(), EngineError> {
    let is_good = (1..=255).contains(&text.chars().count()) && !text.chars().any(char::is_control);
    if is_good {
        return Ok(());
    }
    let rule = "must be 1 to 255 characters without control characters".to_owned();
    Err(EngineError::Invalid { field, rule })
}
