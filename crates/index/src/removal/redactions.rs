//! Redactions: the removal of one version's content.

use keepsake_core::{MemoryId, ObjectKind, Refused, StoreId, TenantId, VersionId};
use sqlx::AssertSqlSafe;

use super::reads::forget_readers;
use super::{Queue, Removal, VersionSelection, begin_removal};
use crate::database::{Database, Role, RowLock, Tx};
use crate::model::{AuditAction, AuditObject, AuditedAction, DeletionReason, RedactionOutcome, Version};
use crate::versions::VERSION_COLUMNS;
use crate::{ChangeError, audit};

/// Selects the version with `$3` as its id or its sequence number.
pub(super) fn version_with(key: &str) -> String {
    format!("SELECT {VERSION_COLUMNS} FROM version WHERE tenant_id = $1 AND store_id = $2 AND {key} = $3")
}

/// Selects a live memory with its content in a blob: its head is the version that
/// introduced the blob, or one that shares it. The memory is a subquery per
/// version, so that no plan starts with all live memories.
pub(super) const BLOB_IS_LIVE: &str = "SELECT v.memory_id FROM version v \
    WHERE v.tenant_id = $1 AND v.store_id = $2 AND v.version_id = $3 AND v.blob_id = $3 AND v.version_id = ( \
        SELECT CASE WHEN m.deleted_at IS NULL THEN m.version_id END FROM memory m \
        WHERE m.tenant_id = $1 AND m.store_id = $2 AND m.memory_id = v.memory_id) \
    UNION ALL SELECT v.memory_id FROM version v \
    WHERE v.tenant_id = $1 AND v.store_id = $2 AND v.blob_id BETWEEN $3 AND $3 AND v.blob_id <> v.version_id AND v.version_id = ( \
        SELECT CASE WHEN m.deleted_at IS NULL THEN m.version_id END FROM memory m \
        WHERE m.tenant_id = $1 AND m.store_id = $2 AND m.memory_id = v.memory_id) \
    LIMIT 1";

#[derive(Debug, Clone)]
pub struct Redactions(pub(crate) Database);

impl Redactions {
    /// Removes a version's content, path, size and hash from its row.
    ///
    /// The same transaction, under the store's lock, queues the version's blob, unless
    /// another version still references it. A version whose blob holds a live memory's
    /// content is refused. Idempotent. The records of who was shown the version are removed
    /// afterwards. Redacting the version that deleted a memory also
    /// clears the memory's path.
    pub async fn redact(
        &self,
        tenant_id: TenantId,
        store_id: StoreId,
        version_id: VersionId,
        audited: &AuditedAction,
    ) -> Result<RedactionOutcome, ChangeError> {
        let mut tx = self.0.write("redact", Role::Tenant(tenant_id)).await?;
        begin_removal(&mut tx).await?;
        let mut removal = Removal::of(&mut tx, tenant_id, store_id);
        if removal.lock_live(RowLock::Update).await?.is_none() {
            return Err(ChangeError::NotFound(ObjectKind::Store));
        }
        let query = removal.query(AssertSqlSafe(version_with("version_id")));
        let version: Option<Version> = query.bind(version_id).optional().await?;
        let seq = version.as_ref().map(|version| version.seq);
        let outcome = removal.redact_version(version, audited).await?;
        if let RedactionOutcome::Redacted { .. } = outcome {
            let object = AuditObject::in_store(version_id.uuid(), store_id);
            audit::record(&mut tx, tenant_id, audited, AuditAction::VersionRedacted, object).await?;
            tx.commit().await?;
        } else {
            drop(tx);
        }
        // From now on no further ones are written. An earlier redaction may have been
        // interrupted here.
        if let Some(seq) = seq {
            forget_readers(&self.0, (tenant_id, store_id), seq).await?;
        }
        Ok(outcome)
    }
}

/// Redacts an imported version as its own server did, in a transaction that holds the
/// store's lock.
pub(crate) async fn redact_imported(
    tx: &mut Tx,
    (tenant_id, store_id): (TenantId, StoreId),
    seq: i64,
    audited: &AuditedAction,
) -> Result<RedactionOutcome, ChangeError> {
    begin_removal(tx).await?;
    let mut removal = Removal::of(tx, tenant_id, store_id);
    let query = removal.query(AssertSqlSafe(version_with("seq")));
    let version = query.bind(seq).optional().await?;
    removal.redact_version(version, audited).await
}

impl Removal<'_> {
    /// Redacts a version, unless a live memory has its content.
    async fn redact_version(
        &mut self,
        version: Option<Version>,
        audited: &AuditedAction,
    ) -> Result<RedactionOutcome, ChangeError> {
        let version = version.ok_or(ChangeError::NotFound(ObjectKind::Version))?;
        if version.redacted_at.is_some() {
            return Ok(RedactionOutcome::AlreadyRedacted);
        }
        if let Some(content) = version.content
            && self.query(BLOB_IS_LIVE).bind(content.blob_id).optional_scalar::<MemoryId>().await?.is_some()
        {
            return Err(Refused::HoldsLiveContent.into());
        }
        let selected = VersionSelection::Content { version: &version, audited };
        let queue = Queue::drained(DeletionReason::Redacted, audited.at);
        let mut removed = self.remove_versions(selected, queue).await?;
        Ok(RedactionOutcome::Redacted { condemned: removed.blobs.pop() })
    }
}
