//! Blobs as files: one folder per tenant and store, one file per blob.
//!
//! ```text
//! {root}/tmp/{random}                  a blob being written
//! {root}/{tenant}/{store}/{version}    a blob
//! ```
//!
//! A blob appears under its name only when it is whole and on disk. Folders of
//! stores whose last blob is gone stay, empty.

mod list;

use std::collections::HashSet;
use std::fs::{DirBuilder, File, TryLockError};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use bytes::Bytes;
use keepsake_core::{BlobKey, StoreId, TenantId, VersionId};
use tracing::instrument;

use self::list::sorted_names;
use crate::{BlobError, BlobStore, Erased, ErasedBatch, ListedBlob};

/// The folder of blobs being written; no tenant's id looks like it.
const TEMP_FOLDER: &str = "tmp";
/// What names of files being written begin with.
const TEMP_PREFIX: &str = "put-";
/// Only the user that the server runs as may look inside.
const FOLDER_MODE: u32 = 0o700;
/// Bytes that a check writes: a block of most file systems.
const CHECKED_BYTES: usize = 4096;
/// Folders remembered as durable before the memory of them is dropped.
const MAX_KNOWN_FOLDERS: usize = 65_536;

/// A [`BlobStore`] in a folder of a local file system.
#[derive(Debug, Clone)]
pub struct FileBlobs {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    root: PathBuf,
    temp_folder: PathBuf,
    /// Stores whose folders are on disk in their parents too.
    known_folders: Mutex<HashSet<(TenantId, StoreId)>>,
}

impl FileBlobs {
    /// Opens the store below `root`, which is created when missing.
    ///
    /// Removes what writes cut short by a crash left behind; what another
    /// process is writing right now is left alone.
    ///
    /// # Errors
    /// [`BlobError`] when the folder cannot be made, read or written.
    pub async fn open(root: PathBuf) -> Result<Self, BlobError> {
        let root = std::path::absolute(root).map_err(BlobError::reading("find the blob folder"))?;
        let shared = Arc::new(Shared {
            temp_folder: root.join(TEMP_FOLDER),
            root,
            known_folders: Mutex::default(),
        });
        let store = Self { shared };
        store.writing("open the blob folder", Shared::prepare).await?;
        Ok(store)
    }

    /// Runs file system calls that read.
    async fn reading<T: Send + 'static>(
        &self,
        action: &'static str,
        work: impl FnOnce(&Shared) -> io::Result<T> + Send + 'static,
    ) -> Result<T, BlobError> {
        self.blocking(work).await.map_err(BlobError::reading(action))
    }

    /// Runs file system calls that write or delete.
    async fn writing<T: Send + 'static>(
        &self,
        action: &'static str,
        work: impl FnOnce(&Shared) -> io::Result<T> + Send + 'static,
    ) -> Result<T, BlobError> {
        self.blocking(work).await.map_err(BlobError::writing(action))
    }

    /// Runs file system calls where they may block, to their end even when the
    /// caller goes away.
    async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Shared) -> io::Result<T> + Send + 'static,
    ) -> io::Result<T> {
        let shared = Arc::clone(&self.shared);
        let outcome = tokio::task::spawn_blocking(move || work(&shared)).await;
        outcome.unwrap_or_else(|gone| Err(io::Error::other(gone)))
    }
}

#[async_trait]
impl BlobStore for FileBlobs {
    /// Refuses a key that exists, and leaves its bytes as they are.
    #[instrument(name = "blob.put", level = "debug", skip_all, fields(tenant.id = %key.tenant_id))]
    async fn put(&self, key: &BlobKey, bytes: Bytes) -> Result<(), BlobError> {
        let key = *key;
        self.writing("write a blob", move |shared| shared.put(&key, &bytes))
            .await
    }

    #[instrument(name = "blob.get", level = "debug", skip_all, fields(tenant.id = %key.tenant_id))]
    async fn get(&self, key: &BlobKey, max_bytes: u64) -> Result<Option<Bytes>, BlobError> {
        let key = *key;
        let read = self.reading("read a blob", move |shared| {
            let Some(file) = absent_as_none(File::open(shared.path(&key)))? else {
                return Ok(Ok(None));
            };
            let found_bytes = file.metadata()?.len();
            if found_bytes > max_bytes {
                return Ok(Err(BlobError::TooLarge {
                    found_bytes,
                    max_bytes,
                }));
            }
            let mut bytes = Vec::new();
            file.take(max_bytes).read_to_end(&mut bytes)?;
            Ok(Ok(Some(Bytes::from(bytes))))
        });
        read.await?
    }

    #[instrument(name = "blob.delete", level = "debug", skip_all, fields(tenant.id = %key.tenant_id))]
    async fn delete(&self, key: &BlobKey) -> Result<(), BlobError> {
        let key = *key;
        self.writing("delete a blob", move |shared| shared.delete(&key))
            .await
    }

    #[instrument(name = "blob.erase", level = "debug", skip_all, fields(tenant.id = %key.tenant_id))]
    async fn erase(&self, key: &BlobKey) -> Result<Erased, BlobError> {
        self.delete(key).await?;
        Ok(Erased::NotVersioned)
    }

    #[instrument(name = "blob.erase_store", level = "debug", skip_all, fields(tenant.id = %tenant_id))]
    async fn erase_store(&self, tenant_id: TenantId, store_id: StoreId) -> Result<ErasedBatch, BlobError> {
        self.writing("delete the blobs of a store", move |shared| {
            let gone = shared.erase_store(tenant_id, store_id)?;
            Ok(erased(gone, None))
        })
        .await
    }

    /// A folder keeps no older versions.
    async fn list_removed(
        &self,
        _: TenantId,
        _: StoreId,
        _: Option<&BlobKey>,
        _: usize,
    ) -> Result<Option<Vec<BlobKey>>, BlobError> {
        Ok(Some(Vec::new()))
    }

    #[instrument(name = "blob.erase_tenant", level = "debug", skip_all, fields(tenant.id = %tenant_id))]
    async fn erase_tenant(
        &self,
        tenant_id: TenantId,
        after: Option<&BlobKey>,
        limit: usize,
    ) -> Result<ErasedBatch, BlobError> {
        let after = after.copied();
        self.writing("delete the blobs of a tenant", move |shared| {
            let listed = shared.list_tenant(tenant_id, after, limit)?;
            for blob in &listed {
                shared.delete(&blob.key)?;
            }
            let last = listed.last().map(|blob| blob.key);
            Ok(erased(
                listed.len() as u64,
                last.filter(|_| listed.len() == limit),
            ))
        })
        .await
    }

    #[instrument(name = "blob.list", level = "debug", skip_all)]
    async fn list(&self, after: Option<&BlobKey>, limit: usize) -> Result<Vec<ListedBlob>, BlobError> {
        let after = after.copied();
        self.reading("list the blobs", move |shared| shared.list(after, limit))
            .await
    }

    #[instrument(name = "blob.list", level = "debug", skip_all, fields(tenant.id = %tenant_id))]
    async fn list_tenant(
        &self,
        tenant_id: TenantId,
        after: Option<&BlobKey>,
        limit: usize,
    ) -> Result<Vec<ListedBlob>, BlobError> {
        let after = after.copied();
        self.reading("list the blobs", move |shared| {
            shared.list_tenant(tenant_id, after, limit)
        })
        .await
    }

    /// Writes and removes a small file, so a full or read-only disk shows.
    #[instrument(name = "blob.check", level = "debug", skip_all)]
    async fn check(&self) -> Result<(), BlobError> {
        self.writing("write to the blob folder", |shared| {
            let mut temp = shared.new_temp_file()?;
            // A full disk may still have room for an empty file.
            temp.write_all(&[0; CHECKED_BYTES])?;
            temp.close()
        })
        .await
    }
}

impl Shared {
    fn path(&self, key: &BlobKey) -> PathBuf {
        self.store_folder(key).join(key.blob_id.to_string())
    }

    fn tenant_folder(&self, key: &BlobKey) -> PathBuf {
        self.root.join(key.tenant_id.to_string())
    }

    fn store_folder(&self, key: &BlobKey) -> PathBuf {
        self.tenant_folder(key).join(key.store_id.to_string())
    }

    fn prepare(&self) -> io::Result<()> {
        let missing_folders = self
            .root
            .ancestors()
            .take_while(|folder| !folder.exists())
            .count();
        DirBuilder::new()
            .recursive(true)
            .mode(FOLDER_MODE)
            .create(&self.temp_folder)?;
        // A folder is durable when the folder that lists it is.
        for folder in self.root.ancestors().take(1 + missing_folders) {
            fsync_folder(folder)?;
        }
        for entry in std::fs::read_dir(&self.temp_folder)? {
            let entry = entry?;
            let is_ours = entry.file_name().to_string_lossy().starts_with(TEMP_PREFIX);
            if is_ours && entry.file_type()?.is_file() {
                remove_leftover(&entry.path())?;
            }
        }
        Ok(())
    }

    /// Mode 0600, and removed when dropped. Locked while it is written, so
    /// that another process that opens the store knows it is not a leftover.
    fn new_temp_file(&self) -> io::Result<tempfile::NamedTempFile> {
        loop {
            let temp = tempfile::Builder::new()
                .prefix(TEMP_PREFIX)
                .tempfile_in(&self.temp_folder)?;
            temp.as_file().lock()?;
            // Until it is locked it looks like a leftover: one that lost its
            // name to a process that opened the store is none to write to.
            if temp.as_file().metadata()?.nlink() > 0 {
                return Ok(temp);
            }
        }
    }

    fn put(&self, key: &BlobKey, bytes: &[u8]) -> io::Result<()> {
        let mut temp = self.new_temp_file()?;
        temp.write_all(bytes)?;
        temp.as_file().sync_all()?;
        let folder = self.store_folder(key);
        self.ensure_folder(key)?;
        let temp = match temp.persist_noclobber(folder.join(key.blob_id.to_string())) {
            Ok(_) => None,
            // Someone removed the folder since it became known.
            Err(failed) if failed.error.kind() == ErrorKind::NotFound => Some(failed.file),
            Err(failed) => return Err(failed.error),
        };
        if let Some(temp) = temp {
            self.known_folders().remove(&(key.tenant_id, key.store_id));
            self.ensure_folder(key)?;
            temp.persist_noclobber(self.path(key))
                .map_err(|failed| failed.error)?;
        }
        fsync_folder(&folder)
    }

    /// Makes the store's folder, durable in its parents; costs nothing later.
    fn ensure_folder(&self, key: &BlobKey) -> io::Result<()> {
        let known_as = (key.tenant_id, key.store_id);
        if self.known_folders().contains(&known_as) {
            return Ok(());
        }
        DirBuilder::new()
            .recursive(true)
            .mode(FOLDER_MODE)
            .create(self.store_folder(key))?;
        // Even if the folders were there: who made them may not have come to
        // the fsync yet.
        fsync_folder(&self.tenant_folder(key))?;
        fsync_folder(&self.root)?;
        let mut known_folders = self.known_folders();
        if known_folders.len() >= MAX_KNOWN_FOLDERS {
            known_folders.clear();
        }
        known_folders.insert(known_as);
        Ok(())
    }

    fn known_folders(&self) -> std::sync::MutexGuard<'_, HashSet<(TenantId, StoreId)>> {
        self.known_folders.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn delete(&self, key: &BlobKey) -> io::Result<()> {
        match absent_as_none(std::fs::remove_file(self.path(key)))? {
            Some(()) => fsync_folder(&self.store_folder(key)),
            None => Ok(()),
        }
    }

    fn erase_store(&self, tenant_id: TenantId, store_id: StoreId) -> io::Result<u64> {
        let folder = self.root.join(tenant_id.to_string()).join(store_id.to_string());
        let blobs = sorted_names::<VersionId>(&folder)?;
        for blob_id in &blobs {
            absent_as_none(std::fs::remove_file(folder.join(blob_id.to_string())))?;
        }
        if !blobs.is_empty() {
            fsync_folder(&folder)?;
        }
        Ok(blobs.len() as u64)
    }
}

/// A folder keeps no versions: what is deleted is gone.
const fn erased(gone: u64, last: Option<BlobKey>) -> ErasedBatch {
    ErasedBatch {
        gone,
        kept: 0,
        became: Erased::NotVersioned,
        last,
    }
}

fn absent_as_none<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

fn fsync_folder(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

/// Removes a file being written unless its writer still lives.
fn remove_leftover(path: &Path) -> io::Result<()> {
    let Some(file) = absent_as_none(File::open(path))? else {
        return Ok(());
    };
    match file.try_lock() {
        Ok(()) => absent_as_none(std::fs::remove_file(path)).map(drop),
        Err(TryLockError::WouldBlock) => Ok(()),
        Err(TryLockError::Error(error)) => Err(error),
    }
}
