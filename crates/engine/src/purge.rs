//! The removal of history: redactions, and deletion of stores.
//!
//! The index first removes it from the rows, in a transaction that queues the
//! blobs and increments the store's purge epoch, so that every cache drops its
//! entries. The blobs are removed afterwards. A blob that cannot be removed at
//! once stays queued.

use std::sync::Arc;

use keepsake_blobs::Erased;
use keepsake_core::{BlobKey, StoreId, VersionId};
use keepsake_index::{DeletionReason, DueDeletion, Redaction, RedactionOutcome, Scope};

use crate::{Engine, EngineError, Principal, ShownVersion};

/// Maximum number of reported versions with the same content.
const SAME_CONTENT_TOLD: u32 = 1000;

/// A version whose content was removed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RedactedVersion {
    /// The version as it is now.
    pub version: ShownVersion,
    /// Versions of the store that still have the same content, newest first, at
    /// most 1,000; `None`: the version was redacted earlier, and its content is
    /// no longer known.
    pub content_also_in: Option<Vec<VersionId>>,
}

impl Engine {
    /// Removes a version's content, path, size and hash, and its blob.
    ///
    /// Idempotent. The blob is removed at once if the object store is
    /// available, otherwise later. It is kept while other versions share it.
    ///
    /// # Errors
    /// [`EngineError::Conflict`] when a live memory has this content now,
    /// [`EngineError::VersionNotFound`], [`EngineError::StoreNotFound`],
    /// [`EngineError::PermissionDenied`]. After a failure of the index it may
    /// have been removed.
    #[tracing::instrument(name = "engine.redact_version", level = "debug", skip_all)]
    pub async fn redact_version(
        &self,
        principal: &Arc<Principal>,
        store_id: StoreId,
        version_id: VersionId,
    ) -> Result<RedactedVersion, EngineError> {
        principal.require(Scope::StoresAdmin)?;
        principal.require_store(store_id)?;
        let (engine, owner) = (self.clone(), Arc::clone(principal));
        self.run_to_end(async move { engine.redact(&owner, store_id, version_id).await })
            .await
    }

    async fn redact(
        &self,
        principal: &Principal,
        store_id: StoreId,
        version_id: VersionId,
    ) -> Result<RedactedVersion, EngineError> {
        let tenant_id = principal.tenant_id;
        // Queried before the redaction, which removes the hash. If this query
        // fails, the client can retry; after the redaction it could not be
        // answered.
        let (_, before) = self.0.find_version(tenant_id, store_id, version_id).await?;
        let mut also_in = match before.content {
            Some(content) => {
                self.0
                    .index
                    .versions
                    .with_content(tenant_id, store_id, content.sha256, SAME_CONTENT_TOLD + 1)
                    .await?
            }
            None => Vec::new(),
        };
        also_in.retain(|other| *other != version_id);
        also_in.truncate(SAME_CONTENT_TOLD as usize);
        let redaction = Redaction {
            store_id,
            version_id,
            audited: self.audited_by(principal),
        };
        let condemned = match self.0.index.redactions.redact(tenant_id, &redaction).await? {
            RedactionOutcome::Redacted { condemned } => condemned,
            RedactionOutcome::AlreadyRedacted => {
                return Ok(RedactedVersion {
                    version: self.shown_bare(principal, store_id, version_id).await?,
                    content_also_in: None,
                });
            }
            RedactionOutcome::HoldsLiveContent { .. } => {
                return Err(EngineError::Conflict(
                    "the version holds a live memory's current content: edit or delete the memory first",
                ));
            }
            RedactionOutcome::NoVersion => return Err(EngineError::VersionNotFound),
            RedactionOutcome::NoStore => return Err(EngineError::StoreNotFound),
        };
        if let Some(blob_id) = condemned {
            let key = BlobKey {
                tenant_id,
                store_id,
                blob_id,
            };
            self.remove_condemned(key).await;
        }
        Ok(RedactedVersion {
            version: self.shown_bare(principal, store_id, version_id).await?,
            content_also_in: Some(also_in),
        })
    }

    async fn shown_bare(
        &self,
        principal: &Principal,
        store_id: StoreId,
        version_id: VersionId,
    ) -> Result<ShownVersion, EngineError> {
        let (_, version) = self
            .0
            .find_version(principal.tenant_id, store_id, version_id)
            .await?;
        Ok(ShownVersion {
            store_id,
            version,
            content: None,
        })
    }

    /// Removes a queued blob at once; on failure it stays in the queue.
    async fn remove_condemned(&self, key: BlobKey) {
        match self.0.blobs.erase(&key).await {
            Ok(erased) => warn_of_kept_versions(&key, erased),
            Err(error) => {
                tracing::warn!(blob.key = %key, error = %error, "blob.erase failed; the deletion queue tries again");
                return;
            }
        }
        let done = DueDeletion {
            key,
            attempts: 0,
            reason: DeletionReason::Redacted,
        };
        let queue = &self.0.index.blob_deletions;
        if let Err(error) = queue.finish(&[done], self.now(), None).await {
            tracing::warn!(blob.key = %key, error = %error, "index.deletions_done failed; the queue removes it again");
        }
    }

    /// Deletes a store. It is invisible to every reader at once.
    ///
    /// The job `purge-stores` removes its memories, versions and blobs
    /// afterwards, in batches.
    ///
    /// # Errors
    /// [`EngineError::StoreNotFound`], [`EngineError::PermissionDenied`]. After
    /// a failure of the index it may have been deleted.
    #[tracing::instrument(name = "engine.delete_store", level = "debug", skip_all)]
    pub async fn delete_store(
        &self,
        principal: &Arc<Principal>,
        store_id: StoreId,
    ) -> Result<(), EngineError> {
        principal.require(Scope::StoresAdmin)?;
        principal.require_store(store_id)?;
        let (engine, tenant_id) = (self.clone(), principal.tenant_id);
        let audited = self.audited_by(principal);
        self.run_to_end(async move {
            let deleted = engine
                .0
                .index
                .store_deletions
                .begin(tenant_id, store_id, &audited)
                .await?;
            if deleted {
                Ok(())
            } else {
                Err(EngineError::StoreNotFound)
            }
        })
        .await
    }
}

/// Warns that the bucket keeps object versions that should be erased.
pub(crate) fn warn_of_kept_versions(key: &BlobKey, erased: Erased) {
    if erased == Erased::OlderVersionsKept {
        tracing::warn!(
            blob.key = %key,
            "blob.erase: the bucket may keep older versions, and lets them not be listed or deleted"
        );
    }
}
