//! Rebuilds the answer to a repeated call.
//!
//! The answer itself is not stored. The repeated call sends the request again,
//! and the version that it created leads to the previous content. Edits are
//! pure functions, so applying the edit again yields the same message as the
//! first time. The stored hash shows whether something was redacted: it is the
//! hash of the content as sent, or the hash of that content after redaction.

use std::sync::Arc;

use keepsake_core::tool::{
    Command, Edit, created_message, deleted_message, insert, inserted_message, renamed_message, str_replace,
};
use keepsake_core::{BlobKey, ContentHash, StoreId};
use keepsake_index::Version;

use crate::{Engine, EngineError, Principal};

impl Engine {
    /// Rebuilds the answer of the call that created version `seq`.
    pub(super) async fn replay(
        &self,
        principal: &Principal,
        store_id: StoreId,
        command: &Command,
        seq: i64,
    ) -> Result<String, EngineError> {
        // `plain` is the answer when the content was redacted or expired since:
        // the edit succeeded, but its snippet is no longer available.
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
            .versions
            .find_at(principal.tenant_id, store_id, seq)
            .await?;
        let told = edit.and_then(|edit| self.told(edit, before.as_deref(), version.as_ref()));
        Ok(told.unwrap_or(plain))
    }

    /// The answer to the edit that created `version`; `None`: it can no longer
    /// be determined.
    fn told(&self, edit: Edit, before: Option<&str>, version: Option<&Version>) -> Option<String> {
        let stored = version?.content?.sha256;
        if ContentHash::of(edit.content.as_bytes()) == stored {
            return Some(edit.message);
        }
        // The operator may have changed the rules; then it is unknown.
        let redacted = self.0.scanner.redact_change(before, &edit.content)?;
        (ContentHash::of(redacted.text.as_bytes()) == stored).then(|| edit.redacted(redacted).message)
    }

    /// The content before version `seq`, while it is kept.
    pub(super) async fn content_before(
        &self,
        principal: &Principal,
        store_id: StoreId,
        seq: i64,
    ) -> Result<Option<Arc<str>>, EngineError> {
        let tenant_id = principal.tenant_id;
        let versions = &self.0.index.versions;
        let Some(version) = versions.find_at(tenant_id, store_id, seq).await? else {
            return Ok(None);
        };
        let Some(prev_seq) = version.prev_seq else {
            return Ok(None);
        };
        let Some(before) = versions.find_at(tenant_id, store_id, prev_seq).await? else {
            return Ok(None);
        };
        let Some(content) = before.content else {
            return Ok(None);
        };
        // Without the cache: this is rare, and no purge epoch is known here.
        let key = BlobKey {
            tenant_id,
            store_id,
            blob_id: content.blob_id,
        };
        self.fetch(&key, content.into()).await
    }
}
