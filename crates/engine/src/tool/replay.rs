//! Rebuilds the answer to a repeated call.
//!
//! The answer itself is not stored. The repeated call sends the request again, and the
//! version that it created leads to the previous content. Edits are pure functions, so
//! applying the edit again yields the same answer as the first time. The stored hash
//! shows whether something was redacted: it is the hash of the content as sent, or the
//! hash of that content after redaction. A call that changed nothing has recorded the
//! version that it left unchanged.

use std::sync::Arc;

use keepsake_core::tool::Edit;
use keepsake_core::tool::agent::WrittenVersion;
use keepsake_core::{BlobKey, ContentHash};
use keepsake_index::{Operation, Version};

use super::{Stop, ToolAnswer, ToolCommand};
use crate::EngineError;
use crate::write::Write;

/// The call created version `seq`, or left it unchanged if `is_kept`.
pub(super) async fn answer(
    write: &Write<'_>,
    call: &impl ToolCommand,
    seq: i64,
    is_kept: bool,
) -> Result<ToolAnswer, Stop> {
    if matches!(call.edit(None), Ok(None)) {
        // A deletion or a rename.
        return call.answer(write.principal, None, None);
    }
    let Some(version) = version_at(write, seq).await? else {
        return call.answer(write.principal, None, None);
    };
    let before = match version.prev_seq {
        _ if is_kept => content_of(write, Some(&version)).await?,
        Some(prev_seq) => content_of(write, version_at(write, prev_seq).await?.as_ref()).await?,
        None => None,
    };
    let edit = edit_of(write, call, before.as_deref(), &version);
    let made = WrittenVersion {
        memory_id: version.memory_id,
        content: version.content.map(|content| (content.sha256, content.size_bytes)),
        is_new: version.operation == Operation::Created && !is_kept,
    };
    call.answer(write.principal, edit.as_ref(), Some(made))
}

/// The edit from `before` to the content of `version`; `None`: the call makes another
/// edit, or the edit can no longer be determined.
fn edit_of(
    write: &Write<'_>,
    call: &impl ToolCommand,
    before: Option<&str>,
    version: &Version,
) -> Option<Edit> {
    let edit = call.edit(before).ok().flatten()?;
    let stored = version.content?.sha256;
    if ContentHash::of(edit.content.as_bytes()) == stored {
        return Some(edit);
    }
    // If the operator changed the rules since, the edit can no longer be determined.
    let redacted = write.context().scanner.redact_change(before, &edit.content)?;
    (ContentHash::of(redacted.text.as_bytes()) == stored).then(|| edit.redacted(redacted))
}

/// The content of a version, while it is kept.
async fn content_of(write: &Write<'_>, version: Option<&Version>) -> Result<Option<Arc<str>>, EngineError> {
    let Some(content) = version.and_then(|version| version.content) else {
        return Ok(None);
    };
    // Without the cache: this is rare, and no purge epoch is known here.
    let (tenant_id, store_id) = (write.principal.tenant_id, write.store_id);
    let key = BlobKey { tenant_id, store_id, blob_id: content.blob_id };
    write.contents().fetch(&key, content).await
}

async fn version_at(write: &Write<'_>, seq: i64) -> Result<Option<Version>, EngineError> {
    let versions = &write.context().index.versions;
    Ok(versions.find_at(write.principal.tenant_id, write.store_id, seq).await?)
}
