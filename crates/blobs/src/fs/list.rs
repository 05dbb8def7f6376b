//! What a folder of blobs holds, in the order of the keys.

use std::io::{self, ErrorKind};
use std::path::Path;
use std::str::FromStr;
use std::time::{SystemTime, UNIX_EPOCH};

use keepsake_core::{BlobKey, StoreId, TenantId, Timestamp, VersionId};

use super::{Shared, absent_as_none};
use crate::ListedBlob;

impl Shared {
    /// The first blobs of every tenant after a key.
    pub(super) fn list(&self, after: Option<BlobKey>, limit: usize) -> io::Result<Vec<ListedBlob>> {
        let mut listed = Vec::new();
        for tenant_id in sorted_names::<TenantId>(&self.root)? {
            if after.is_some_and(|after| tenant_id < after.tenant_id) {
                continue;
            }
            if listed.len() == limit {
                break;
            }
            listed.extend(self.list_tenant(tenant_id, after, limit - listed.len())?);
        }
        Ok(listed)
    }

    /// The first blobs of one tenant after a key.
    pub(super) fn list_tenant(
        &self,
        tenant_id: TenantId,
        after: Option<BlobKey>,
        limit: usize,
    ) -> io::Result<Vec<ListedBlob>> {
        let mut listed = Vec::new();
        let tenant_folder = self.root.join(tenant_id.to_string());
        for store_id in sorted_names::<StoreId>(&tenant_folder)? {
            if after.is_some_and(|after| (tenant_id, store_id) < (after.tenant_id, after.store_id)) {
                continue;
            }
            let store_folder = tenant_folder.join(store_id.to_string());
            for blob_id in sorted_names::<VersionId>(&store_folder)? {
                if listed.len() == limit {
                    return Ok(listed);
                }
                let key = BlobKey {
                    tenant_id,
                    store_id,
                    blob_id,
                };
                if after.is_none_or(|after| key > after) {
                    listed.extend(listed_blob(key, &store_folder.join(blob_id.to_string()))?);
                }
            }
        }
        Ok(listed)
    }
}

/// The entries of `folder` whose names are ids of one kind, in order.
pub(super) fn sorted_names<T: FromStr + Ord>(folder: &Path) -> io::Result<Vec<T>> {
    let entries = match std::fs::read_dir(folder) {
        Ok(entries) => entries,
        // Gone meanwhile, or a foreign file with a folder's name.
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            return Ok(Vec::new());
        }
        Err(error) => return Err(error),
    };
    let mut names = Vec::new();
    for entry in entries {
        names.extend(entry?.file_name().to_str().and_then(|name| name.parse().ok()));
    }
    names.sort_unstable();
    Ok(names)
}

/// `None` when the file is gone meanwhile or is not a file.
fn listed_blob(key: BlobKey, path: &Path) -> io::Result<Option<ListedBlob>> {
    let Some(metadata) = absent_as_none(std::fs::symlink_metadata(path))? else {
        return Ok(None);
    };
    if !metadata.is_file() {
        return Ok(None);
    }
    let modified_at = timestamp(metadata.modified()?);
    Ok(Some(ListedBlob {
        key,
        size_bytes: metadata.len(),
        modified_at,
    }))
}

fn timestamp(time: SystemTime) -> Timestamp {
    match time.duration_since(UNIX_EPOCH) {
        Ok(since) => Timestamp::default().plus(since),
        Err(before) => Timestamp::default().minus(before.duration()),
    }
}
