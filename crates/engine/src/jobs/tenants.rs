//! `delete-tenants`: removes every row and blob of deleted tenants.

use std::collections::HashSet;
use std::time::Duration;

use async_trait::async_trait;
use futures::stream::{self, StreamExt, TryStreamExt};
use keepsake_blobs::{Erased, ListedBlob};
use keepsake_core::TenantId;
use keepsake_index::{DeletionState, TenantDeletion, VersionCounts};
use serde_json::{Value, json};

use super::{Job, Lease};
use crate::{Engine, EngineError};

/// Tenants read per query.
const TENANTS: u32 = 10;
/// Rows of one batch: one transaction, which may block other writers.
const BATCH_ROWS: u32 = 1000;
/// Blobs listed per call.
const BATCH_BLOBS: usize = 1000;
/// Blobs removed concurrently.
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
    fn name(&self) -> &'static str {
        "delete-tenants"
    }

    fn schedule(&self) -> &'static str {
        "50 * * * * *"
    }

    fn period(&self) -> Duration {
        Duration::from_mins(1)
    }

    async fn run(&self, engine: &Engine, lease: &Lease<'_>) -> Result<Value, EngineError> {
        let mut removed = Removed::default();
        loop {
            let limit = TENANTS.saturating_add(removed.failed_count());
            let due = engine.0.index.tenant_deletions.due(engine.now(), limit).await?;
            let before = removed.tried();
            for deletion in due {
                if removed.failed.contains(&deletion.tenant_id) {
                    continue;
                }
                match remove(engine, lease, &deletion, &mut removed).await {
                    Ok(true) => {}
                    Ok(false) => return Ok(removed.counts()),
                    Err(error) => {
                        removed.failed.insert(deletion.tenant_id);
                        tracing::warn!(
                            tenant.id = %deletion.tenant_id, error = %error,
                            "job.delete_tenants: a tenant could not be removed; the next run tries again"
                        );
                    }
                }
            }
            if removed.tried() == before {
                return Ok(removed.counts());
            }
        }
    }
}

/// The counts of a run.
#[derive(Debug, Default)]
struct Removed {
    /// Tenants without any data left, to be checked again.
    settling: u64,
    /// Tenants whose deletion is done.
    done: u64,
    rows: u64,
    blobs: u64,
    /// Known blobs of which the bucket keeps older versions.
    kept: u64,
    /// Tenants that failed; a run skips them, so that the others are removed.
    failed: HashSet<TenantId>,
}

impl Removed {
    fn failed_count(&self) -> u32 {
        u32::try_from(self.failed.len()).unwrap_or(u32::MAX)
    }

    /// Number of tenants that the run finished or failed with.
    fn tried(&self) -> u64 {
        self.settling + self.done + u64::from(self.failed_count())
    }

    fn counts(&self) -> Value {
        json!({
            "settling": self.settling,
            "done": self.done,
            "rows": self.rows,
            "blobs": self.blobs,
            "older_versions_kept": self.kept,
            "failed": self.failed.len(),
        })
    }
}

/// Removes one tenant as far as possible now; `false`: the run must stop.
async fn remove(
    engine: &Engine,
    lease: &Lease<'_>,
    deletion: &TenantDeletion,
    removed: &mut Removed,
) -> Result<bool, EngineError> {
    let mut versions = deletion.object_versions;
    if !remove_rows(engine, lease, deletion, removed).await?
        || !remove_blobs(engine, lease, deletion, &mut versions, removed).await?
        || !remove_versions(engine, lease, deletion, versions, removed).await?
    {
        return Ok(false);
    }
    let (index, tenant_id) = (&engine.0.index, deletion.tenant_id);
    match deletion.state {
        DeletionState::Removing => {
            let settles_at = engine.now().plus(SETTLES_AFTER);
            index.tenant_deletions.settle(tenant_id, settles_at).await?;
            removed.settling += 1;
        }
        DeletionState::Settling => {
            removed.done += u64::from(index.tenant_deletions.finish(tenant_id, engine.now()).await?);
        }
        DeletionState::Done => {}
    }
    Ok(true)
}

async fn remove_rows(
    engine: &Engine,
    lease: &Lease<'_>,
    deletion: &TenantDeletion,
    removed: &mut Removed,
) -> Result<bool, EngineError> {
    loop {
        let batch = engine
            .0
            .index
            .tenant_deletions
            .purge(deletion.tenant_id, engine.now(), BATCH_ROWS)
            .await?;
        removed.rows += batch.rows;
        if !lease.renew(None).await? {
            return Ok(false);
        }
        if batch.is_done {
            return Ok(true);
        }
    }
}

/// Removes the blobs that the blob store lists for the tenant.
///
/// A batch is counted up to its last key before it is removed. After a kill,
/// the remaining blobs are listed again but not counted twice.
async fn remove_blobs(
    engine: &Engine,
    lease: &Lease<'_>,
    deletion: &TenantDeletion,
    versions: &mut VersionCounts,
    removed: &mut Removed,
) -> Result<bool, EngineError> {
    let (blobs, tenant_id) = (&engine.0.blobs, deletion.tenant_id);
    let mut after = None;
    loop {
        let batch = blobs.list_tenant(tenant_id, after.as_ref(), BATCH_BLOBS).await?;
        let Some(last) = batch.last().map(|blob| blob.key) else {
            return Ok(true);
        };
        let is_new = |blob: &&ListedBlob| deletion.blob_cursor.is_none_or(|counted| blob.key > counted);
        let (many, bytes) = batch
            .iter()
            .filter(is_new)
            .fold((0, 0), |(many, bytes), blob| (many + 1, bytes + blob.size_bytes));
        if many > 0 {
            engine
                .0
                .index
                .tenant_deletions
                .count_blobs(tenant_id, &last, many, bytes)
                .await?;
        }
        removed.blobs += batch.len() as u64;
        let became: Vec<_> = stream::iter(batch)
            .map(|blob| async move { blobs.erase(&blob.key).await })
            .buffer_unordered(REMOVALS_AT_ONCE)
            .try_collect()
            .await?;
        for became in became {
            match became {
                Erased::EveryVersion => versions.deleted += 1,
                Erased::NotVersioned => versions.not_versioned += 1,
                Erased::OlderVersionsKept => versions.kept += 1,
            }
        }
        engine
            .0
            .index
            .tenant_deletions
            .note_object_versions(tenant_id, versions)
            .await?;
        after = Some(last);
        if !lease.renew(None).await? {
            return Ok(false);
        }
    }
}

/// Removes older object versions of deleted blobs, also of those deleted long
/// before the tenant, and records how many could not be removed.
async fn remove_versions(
    engine: &Engine,
    lease: &Lease<'_>,
    deletion: &TenantDeletion,
    mut versions: VersionCounts,
    removed: &mut Removed,
) -> Result<bool, EngineError> {
    let (index, tenant_id) = (&engine.0.index, deletion.tenant_id);
    let (mut after, mut kept, mut is_clean) = (None, 0, true);
    loop {
        let blobs = &engine.0.blobs;
        let batch = blobs.erase_tenant(tenant_id, after.as_ref(), BATCH_BLOBS).await?;
        match batch.became {
            Erased::NotVersioned => versions.not_versioned += batch.gone,
            Erased::EveryVersion | Erased::OlderVersionsKept => versions.deleted += batch.gone,
        }
        kept += batch.kept;
        is_clean &= batch.became != Erased::OlderVersionsKept;
        after = batch.last;
        if after.is_none() {
            break;
        }
        index
            .tenant_deletions
            .note_object_versions(tenant_id, &versions)
            .await?;
        if !lease.renew(None).await? {
            return Ok(false);
        }
    }
    versions.kept = match kept {
        _ if is_clean => 0,
        // They could not be listed: at least the blobs just removed have some.
        0 => versions.kept.max(1),
        kept => kept,
    };
    index
        .tenant_deletions
        .note_object_versions(tenant_id, &versions)
        .await?;
    removed.kept += versions.kept;
    lease.renew(None).await
}
