//! The answer to a call that was made before, rebuilt.
//!
//! Nothing of an answer is stored. The request is at hand again, and the
//! version that it made leads to the content it was applied to; the edits are
//! pure, so applying one again gives the words it gave the first time.

use keepsake_core::tool::{
    Command, created_message, deleted_message, inserted_message, renamed_message, str_replace,
};
use keepsake_core::{BlobKey, StoreId};

use crate::{Engine, EngineError, Principal};

impl Engine {
    /// What the call that made the version `seq` answered.
    pub(super) async fn replay(
        &self,
        principal: &Principal,
        store_id: StoreId,
        command: &Command,
        seq: i64,
    ) -> Result<String, EngineError> {
        match command {
            Command::Create { path, .. } => Ok(created_message(path)),
            Command::Delete { path } => Ok(deleted_message(path)),
            Command::Rename { old_path, new_path } => Ok(renamed_message(old_path, new_path)),
            Command::Insert { path, .. } => Ok(inserted_message(path)),
            Command::View { .. } => Err(EngineError::Internal("a view was recorded as a change")),
            Command::StrReplace {
                path,
                old_str,
                new_str,
            } => {
                let before = self.content_before(principal, store_id, seq).await?;
                let edit = before.and_then(|text| str_replace(path, &text, old_str, new_str).ok());
                // Redacted or expired since: the edit stands, its snippet is gone.
                Ok(edit.map_or_else(|| inserted_message(path), |edit| edit.message))
            }
        }
    }

    /// The content that the version `seq` was made from, while it is kept.
    async fn content_before(
        &self,
        principal: &Principal,
        store_id: StoreId,
        seq: i64,
    ) -> Result<Option<std::sync::Arc<str>>, EngineError> {
        let tenant_id = principal.tenant_id;
        let Some(version) = self.0.index.version_at(tenant_id, store_id, seq).await? else {
            return Ok(None);
        };
        let Some(prev_seq) = version.prev_seq else {
            return Ok(None);
        };
        let Some(before) = self.0.index.version_at(tenant_id, store_id, prev_seq).await? else {
            return Ok(None);
        };
        let Some(content) = before.content else {
            return Ok(None);
        };
        // Not by way of the cache: this is rare, and names no purge epoch.
        let Some(bytes) = self
            .0
            .blobs
            .get(&BlobKey {
                tenant_id,
                store_id,
                blob_id: content.blob_id,
            })
            .await?
        else {
            return Ok(None);
        };
        if keepsake_core::ContentHash::of(&bytes) != content.sha256 {
            return Err(EngineError::Damaged("its hash is not the recorded one"));
        }
        Ok(std::str::from_utf8(&bytes).ok().map(Into::into))
    }
}
