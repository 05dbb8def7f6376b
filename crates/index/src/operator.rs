//! What the operator does to tenants, and what tenants do to their keys.
//!
//! Every change takes an [`Audited`] and writes the audit in its transaction:
//! the tenant's, and where the operator does it the operator's too, which
//! outlives the tenant.

use std::time::Duration;

use async_trait::async_trait;
use keepsake_core::{ApiKeyId, BlobKey, TenantId, Timestamp};

use crate::IndexError;
use crate::commit::Idempotency;
use crate::model::{
    ApiKey, AuditAction, AuditEntry, AuditListing, AuditObject, AuditPlace, Audited, IssuedKey, KeyCreation,
    OverQuota, Tenant, TenantChange, TenantDeletion, TenantPurge, TenantUpdate, TenantUsage, VersionCounts,
};

/// Tenants, for the operator.
#[async_trait]
pub trait OperatorIndex: Send + Sync {
    /// Makes a tenant; `false` when its external id is taken.
    async fn create_tenant(&self, tenant: &Tenant, audited: &Audited) -> Result<bool, IndexError>;

    /// Finds a tenant; one that is about to be gone is still there.
    async fn tenant(&self, tenant_id: TenantId) -> Result<Option<Tenant>, IndexError>;

    /// Lists tenants, the newest id first, from before one on.
    async fn tenants(
        &self,
        external_id: Option<&str>,
        before: Option<TenantId>,
        limit: u32,
    ) -> Result<Vec<Tenant>, IndexError>;

    /// Changes a tenant.
    async fn update_tenant(
        &self,
        tenant_id: TenantId,
        change: &TenantChange,
        audited: &Audited,
    ) -> Result<TenantUpdate, IndexError>;

    /// What a tenant holds; `None`: there is no such tenant.
    async fn usage(&self, tenant_id: TenantId) -> Result<Option<TenantUsage>, IndexError>;
}

/// How long a key counts against its tenant's limit after it was revoked.
pub const REVOKED_KEYS_COUNT_FOR: Duration = Duration::from_hours(30 * 24);

/// API keys of one tenant.
#[async_trait]
pub trait KeyIndex: Send + Sync {
    /// Records an API key under the hash of its secret, unless the tenant has
    /// `keys_limit` of them.
    ///
    /// Keys that were revoked within [`REVOKED_KEYS_COUNT_FOR`] are counted, so
    /// that revoking them does not let a tenant make any number.
    async fn create_api_key(
        &self,
        key: &ApiKey,
        secret_sha256: &[u8; 32],
        keys_limit: u64,
        idempotency: Option<&Idempotency>,
        audited: &Audited,
    ) -> Result<KeyCreation, IndexError>;

    /// Finds a key; one that was revoked is still there.
    async fn api_key(
        &self,
        tenant_id: TenantId,
        api_key_id: ApiKeyId,
    ) -> Result<Option<IssuedKey>, IndexError>;

    /// Lists keys, the newest id first, from before one on.
    async fn api_keys(
        &self,
        tenant_id: TenantId,
        before: Option<ApiKeyId>,
        limit: u32,
    ) -> Result<Vec<IssuedKey>, IndexError>;

    /// Revokes a key; `None`: there is no such key.
    ///
    /// Idempotent: one that was revoked keeps the time of it.
    async fn revoke_api_key(
        &self,
        tenant_id: TenantId,
        api_key_id: ApiKeyId,
        audited: &Audited,
    ) -> Result<Option<IssuedKey>, IndexError>;
}

/// What was done; no method changes an entry.
#[async_trait]
pub trait AuditIndex: Send + Sync {
    /// What concerns one tenant, newest first.
    async fn audit(&self, tenant_id: TenantId, listing: &AuditListing)
    -> Result<Vec<AuditEntry>, IndexError>;

    /// Records an action that writes nothing else, unless the tenant's quota of
    /// entries is used up.
    async fn record(
        &self,
        tenant_id: TenantId,
        audited: &Audited,
        action: AuditAction,
        object: AuditObject,
    ) -> Result<Result<(), OverQuota>, IndexError>;

    /// What the operator did, newest first, from before a place on.
    async fn operator_audit(
        &self,
        before: Option<AuditPlace>,
        limit: u32,
    ) -> Result<Vec<AuditEntry>, IndexError>;
}

/// The end of tenants.
#[async_trait]
pub trait TenantDeletionIndex: Send + Sync {
    /// Marks a tenant as one that is to go; `None`: there is none.
    ///
    /// Costs the same whatever it holds. Its keys are good for nothing from now
    /// on, and it gets no more stores and keys. Idempotent: a second call
    /// answers the deletion that the first began, also when it is done.
    async fn delete_tenant(
        &self,
        tenant_id: TenantId,
        audited: &Audited,
    ) -> Result<Option<TenantDeletion>, IndexError>;

    /// A tenant's deletion.
    async fn tenant_deletion(&self, tenant_id: TenantId) -> Result<Option<TenantDeletion>, IndexError>;

    /// Deletions that have something to do now, the oldest first.
    async fn due_tenant_deletions(
        &self,
        now: Timestamp,
        limit: u32,
    ) -> Result<Vec<TenantDeletion>, IndexError>;

    /// Takes one batch of rows off a tenant that is to go, and counts them.
    ///
    /// Deletes its stores first, each under its lock, so that a commit that is
    /// under way finds no store. Each call is one transaction of at most
    /// `limit` rows. Safe to run twice and at the same time. The tenant's own
    /// row stays: it keeps stores and keys from being made.
    async fn purge_tenant(
        &self,
        tenant_id: TenantId,
        now: Timestamp,
        limit: u32,
    ) -> Result<TenantPurge, IndexError>;

    /// Counts blobs that are about to be removed, up to `last`.
    async fn count_blobs(
        &self,
        tenant_id: TenantId,
        last: &BlobKey,
        blobs: u64,
        bytes: u64,
    ) -> Result<(), IndexError>;

    /// Notes what became of older object versions, in place of what was noted.
    async fn note_object_versions(
        &self,
        tenant_id: TenantId,
        versions: &VersionCounts,
    ) -> Result<(), IndexError>;

    /// Tells that all was removed once, and when to look again for what came
    /// late.
    async fn settle_tenant(&self, tenant_id: TenantId, settles_at: Timestamp) -> Result<(), IndexError>;

    /// Removes the tenant's own row and ends its deletion, if no other row of
    /// it is left; answers whether it did.
    async fn finish_tenant(&self, tenant_id: TenantId, now: Timestamp) -> Result<bool, IndexError>;
}
