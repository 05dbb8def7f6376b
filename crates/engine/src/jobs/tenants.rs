//! `delete-tenants`: removes every row and blob of deleted tenants.

use std::time::Duration;

use async_trait::async_trait;
use futures::stream::{self, StreamExt, TryStreamExt};
use keepsake_blobs::ListedBlob;
use keepsake_core::{BlobKey, ObjectVersions};
use keepsake_index::{DeletionState, TenantDeletion, VersionCounts};
use serde_json::{Value, json};

use super::removal::{RemovalScope, Selection, Step, remove_all};
use super::{Job, JobPlan, Lease, MINUTE};
use crate::EngineError;
use crate::context::Context;
use crate::shared::Shared;

const TENANTS: u32 = 10;
/// Rows of one batch. A batch is one transaction, which may block other writers.
const BATCH_ROWS: u32 = 1000;
const BATCH_BLOBS: usize = 1000;
const REMOVALS_AT_ONCE: usize = 16;
/// Delay before the second pass. It is longer than any request that was running
/// at the first removal and could still leave a row or a blob.
const SETTLES_AFTER: Duration = Duration::from_hours(1);

/// Removes deleted tenants every minute, in batches: first the rows, then every
/// blob under the tenant's prefix, named by a row or not, then older object
/// versions of deleted blobs. An hour later it checks again. Only then does it
/// report the deletion as done, together with the object versions that it could
/// not delete.
///
/// It needs no cursor: the next run continues with the data that remains, and
/// the report is updated along with it.
#[derive(Debug, Clone, Copy)]
pub struct DeleteTenants;

#[async_trait]
impl Job for DeleteTenants {
    fn plan(&self) -> JobPlan {
        JobPlan { name: "delete-tenants", schedule: "50 * * * * *", period: MINUTE, can_be_dry: false }
    }

    async fn run(&self, shared: &Shared, lease: &Lease<'_>) -> Result<Value, EngineError> {
        let mut tenants =
            DeletedTenants { context: &shared.context, settling: 0, done: 0, rows: 0, blobs: 0, kept: 0 };
        let failed = remove_all(&mut tenants, lease).await?;
        Ok(json!({
            "settling": tenants.settling,
            "done": tenants.done,
            "rows": tenants.rows,
            "blobs": tenants.blobs,
            "older_versions_kept": tenants.kept,
            "failed": failed,
        }))
    }
}

struct DeletedTenants<'a> {
    context: &'a Context,
    /// Tenants without any data left, to be checked again.
    settling: u64,
    done: u64,
    rows: u64,
    blobs: u64,
    /// Known blobs of which the bucket keeps older versions.
    kept: u64,
}

struct Removal {
    deletion: TenantDeletion,
    versions: VersionCounts,
    phase: Phase,
}

#[derive(Debug, Clone, Copy)]
enum Phase {
    Rows,
    /// Resumes after this key.
    Blobs(Option<BlobKey>),
    Versions(OlderVersions),
    Settled,
}

#[derive(Debug, Clone, Copy)]
struct OlderVersions {
    after: Option<BlobKey>,
    kept: u64,
    is_clean: bool,
}

impl Selection for DeletedTenants<'_> {
    type Item = Removal;

    fn place(removal: &Removal) -> Option<RemovalScope> {
        Some((removal.deletion.tenant_id, None))
    }

    async fn page(&mut self, left: u32) -> Result<Vec<Removal>, EngineError> {
        let (now, limit) = (self.context.now(), TENANTS.saturating_add(left));
        let due = self.context.index.tenant_deletions.due(now, limit).await?;
        let removals = due.into_iter().map(|deletion| Removal {
            versions: deletion.object_versions,
            deletion,
            phase: Phase::Rows,
        });
        Ok(removals.collect())
    }

    async fn batch(&mut self, removal: &mut Removal) -> Result<Step, EngineError> {
        match removal.phase {
            Phase::Rows => self.remove_rows(removal).await?,
            Phase::Blobs(after) => self.remove_blobs(removal, after).await?,
            Phase::Versions(older) => self.remove_versions(removal, older).await?,
            Phase::Settled => return self.end(&removal.deletion).await,
        }
        Ok(Step::More)
    }
}

impl DeletedTenants<'_> {
    async fn remove_rows(&mut self, removal: &mut Removal) -> Result<(), EngineError> {
        let (deletions, tenant_id) = (&self.context.index.tenant_deletions, removal.deletion.tenant_id);
        let batch = deletions.purge(tenant_id, self.context.now(), BATCH_ROWS).await?;
        self.rows += batch.rows();
        if batch.is_done {
            removal.phase = Phase::Blobs(None);
        }
        Ok(())
    }

    /// A batch is counted up to its last key before it is removed. After a kill, the
    /// remaining blobs are listed again but not counted twice.
    async fn remove_blobs(
        &mut self,
        removal: &mut Removal,
        after: Option<BlobKey>,
    ) -> Result<(), EngineError> {
        let Removal { deletion, versions, phase } = removal;
        let (blobs, tenant_id) = (&self.context.blobs, deletion.tenant_id);
        let deletions = &self.context.index.tenant_deletions;
        let batch = blobs.list(Some(tenant_id), after.as_ref(), BATCH_BLOBS).await?;
        let Some(last) = batch.last().map(|blob| blob.key) else {
            *phase = Phase::Versions(OlderVersions { after: None, kept: 0, is_clean: true });
            return Ok(());
        };
        let is_new = |blob: &&ListedBlob| deletion.blob_cursor.is_none_or(|counted| blob.key > counted);
        let (many, bytes) = batch
            .iter()
            .filter(is_new)
            .fold((0, 0), |(many, bytes), blob| (many + 1, bytes + blob.size_bytes));
        if many > 0 {
            deletions.count_blobs(tenant_id, &last, many, bytes).await?;
        }
        self.blobs += batch.len() as u64;
        let became: Vec<_> = stream::iter(batch)
            .map(|blob| async move { blobs.erase(&blob.key).await })
            .buffer_unordered(REMOVALS_AT_ONCE)
            .try_collect()
            .await?;
        for became in became {
            versions.count(became, 1);
        }
        deletions.note_object_versions(tenant_id, versions).await?;
        *phase = Phase::Blobs(Some(last));
        Ok(())
    }

    /// Removes older object versions of deleted blobs, also of those deleted long
    /// before the tenant, and records how many could not be removed.
    async fn remove_versions(
        &mut self,
        removal: &mut Removal,
        older: OlderVersions,
    ) -> Result<(), EngineError> {
        let (versions, tenant_id) = (&mut removal.versions, removal.deletion.tenant_id);
        let blobs = &self.context.blobs;
        let batch = blobs.erase_all(tenant_id, None, older.after.as_ref(), BATCH_BLOBS).await?;
        versions.count(batch.of_gone(), batch.gone);
        let older = OlderVersions {
            after: batch.last,
            kept: older.kept + batch.kept,
            is_clean: older.is_clean && batch.became != ObjectVersions::Kept,
        };
        if older.after.is_none() {
            versions.kept = match older.kept {
                _ if older.is_clean => 0,
                // The object versions could not be listed: at least the blobs just
                // removed have some.
                0 => versions.kept.max(1),
                kept => kept,
            };
            self.kept += versions.kept;
            removal.phase = Phase::Settled;
        } else {
            removal.phase = Phase::Versions(older);
        }
        let deletions = &self.context.index.tenant_deletions;
        Ok(deletions.note_object_versions(tenant_id, &removal.versions).await?)
    }

    /// Advances the deletion once no data of the tenant is left.
    async fn end(&mut self, deletion: &TenantDeletion) -> Result<Step, EngineError> {
        let (deletions, tenant_id) = (&self.context.index.tenant_deletions, deletion.tenant_id);
        let now = self.context.now();
        match deletion.state {
            DeletionState::Removing => {
                deletions.settle(tenant_id, now.plus(SETTLES_AFTER)).await?;
                self.settling += 1;
                Ok(Step::Done)
            }
            DeletionState::Settling if deletions.finish(tenant_id, now).await? => {
                self.done += 1;
                Ok(Step::Done)
            }
            // The tenant has rows again.
            DeletionState::Settling | DeletionState::Done => Ok(Step::Left),
        }
    }
}
