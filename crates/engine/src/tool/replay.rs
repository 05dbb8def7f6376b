//! The answer to a call that was made before, rebuilt.
//!
//! Nothing of an answer is stored. The request is at hand again, and the
//! version that it made leads to the content it was applied to; the edits are
//! pure, so applying one again gives the words it gave the first time. Whether
//! something was redacted the stored hash tells: it is that of the content as
//! it was sent, or that of what a redaction leaves of it.

use std::sync::Arc;

use keepsake_core::tool::{
    Command, Edit, created_message, deleted_message, insert, inserted_message, renamed_message, str_replace,
};
use keepsake_core::{BlobKey, ContentHash, StoreId};
use keepsake_index::Version;

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
        // What is told where content was redacted or expired since: the edit
        // stands, its snippet is gone.
        let (edit, before, plain) = match command {
            Command::Delete { path } => return Ok(deleted_message(path)),
            Command::Rename { old_path, new_path } => return Ok(renamed_message(old_path, new_path)),
            Command::View { .. } => return Err(EngineError::Internal("a view was recorded as a change")),
            Command::Create { path, file_text } => {
                let edit = Edit::with_message(file_text.clone(), created_message(path));
                (Some(edit), None, created_message(path))
            }
            Command::Insert {
                path,
                insert_line,
                insert_text,
            } => {
                let before = self.content_before(principal, store_id, seq).await?;
                let applied = before
                    .as_deref()
                    .and_then(|text| insert(path, text, *insert_line, insert_text).ok());
                (applied, before, inserted_message(path))
            }
            Command::StrReplace {
                path,
                old_str,
                new_str,
            } => {
                let before = self.content_before(principal, store_id, seq).await?;
                let applied = before
                    .as_deref()
                    .and_then(|text| str_replace(path, text, old_str, new_str).ok());
                (applied, before, inserted_message(path))
            }
        };
        let version = self
            .0
            .index
            .version_at(principal.tenant_id, store_id, seq)
            .await?;
        let told = edit.and_then(|edit| self.told(edit, before.as_deref(), version.as_ref()));
        Ok(told.unwrap_or(plain))
    }

    /// What was answered to an edit that made `version`; `None`: it cannot be
    /// told any more.
    fn told(&self, edit: Edit, before: Option<&str>, version: Option<&Version>) -> Option<String> {
        let stored = version?.content?.sha256;
        if ContentHash::of(edit.content.as_bytes()) == stored {
            return Some(edit.message);
        }
        // The operator's rules may be others by now; then it is not known.
        let redacted = self.0.scanner.redact_change(before, &edit.content)?;
        (ContentHash::of(redacted.text.as_bytes()) == stored).then(|| edit.redacted(redacted).message)
    }

    /// The content that the version `seq` was made from, while it is kept.
    pub(super) async fn content_before(
        &self,
        principal: &Principal,
        store_id: StoreId,
        seq: i64,
    ) -> Result<Option<Arc<str>>, EngineError> {
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
        let key = BlobKey {
            tenant_id,
            store_id,
            blob_id: content.blob_id,
        };
        self.fetch(&key, content.into()).await
    }
}
