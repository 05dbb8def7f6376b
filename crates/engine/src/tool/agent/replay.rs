//! Rebuilds the answer to a repeated call of an agent tool.
//!
//! As with the memory tool, the answer itself is not stored. The version that
//! the call created contains the memory and its content. Applying the request
//! again to the previous content yields the rest of the answer.

use keepsake_core::tool::agent::{
    AgentCall, AgentEdit, AgentResult, EditedFile, WriteOutcome, WrittenFile, append, apply_edits,
    redactions, written,
};
use keepsake_core::{ContentHash, StoreId};
use keepsake_index::{Operation, Version};

use super::super::Stop;
use super::changes::deleted;
use super::missing;
use crate::{Engine, EngineError, Principal};

impl Engine {
    /// Rebuilds the answer of the call that created version `seq`.
    pub(super) async fn replay_for_agent(
        &self,
        principal: &Principal,
        store_id: StoreId,
        call: &AgentCall,
        seq: i64,
    ) -> Result<AgentResult, Stop> {
        let path = call.path();
        if let AgentCall::Delete { path, .. } = call {
            return Ok(deleted(path));
        }
        let before = self.content_before(principal, store_id, seq).await?;
        let tenant_id = principal.tenant_id;
        let Some(version) = self.0.index.versions.find_at(tenant_id, store_id, seq).await? else {
            // The memory was erased since.
            return Err(missing(path).into());
        };
        let text = before.as_deref();
        let is_new = version.operation == Operation::Created;
        let whole = |edit: AgentEdit, outcome| {
            let edit = self.told_to_agent(edit, text, &version);
            AgentResult::Write(WrittenFile {
                path: path.display().to_owned(),
                outcome: if is_new { WriteOutcome::Created } else { outcome },
                memory_id: version.memory_id.to_string(),
                content_sha256: version.content.map(|content| content.sha256.to_string()),
                content_size_bytes: version.content.map(|content| content.size_bytes),
                redactions: edit.map(|edit| redactions(&edit.findings)).unwrap_or_default(),
            })
        };
        Ok(match call {
            AgentCall::Write { content, .. } => whole(written(content.clone()), WriteOutcome::Replaced),
            AgentCall::Append { content, .. } => {
                whole(append(text.unwrap_or_default(), content), WriteOutcome::Appended)
            }
            AgentCall::Edit { path, edits, .. } => {
                let edit = text.and_then(|text| apply_edits(path, text, edits).ok());
                let edit = edit.and_then(|edit| self.told_to_agent(edit, text, &version));
                let max_chars = principal.limits.max_view_chars;
                AgentResult::Edit(EditedFile {
                    path: path.display().to_owned(),
                    edits: edits.len(),
                    memory_id: version.memory_id.to_string(),
                    content_sha256: version.content.map(|content| content.sha256.to_string()),
                    content_size_bytes: version.content.map(|content| content.size_bytes),
                    snippets: edit
                        .as_ref()
                        .map(|edit| edit.snippets(max_chars))
                        .unwrap_or_default(),
                    redactions: edit.map(|edit| redactions(&edit.findings)).unwrap_or_default(),
                })
            }
            AgentCall::List { .. }
            | AgentCall::Search { .. }
            | AgentCall::Read { .. }
            | AgentCall::Delete { .. } => {
                return Err(EngineError::Internal("a read was recorded as a change").into());
            }
        })
    }

    /// The edit as it was stored; `None`: it can no longer be determined.
    fn told_to_agent(&self, edit: AgentEdit, before: Option<&str>, version: &Version) -> Option<AgentEdit> {
        let stored = version.content?.sha256;
        if ContentHash::of(edit.content.as_bytes()) == stored {
            return Some(edit);
        }
        // The operator may have changed the rules; then it is unknown.
        let redacted = self.0.scanner.redact_change(before, &edit.content)?;
        (ContentHash::of(redacted.text.as_bytes()) == stored).then(|| edit.redacted(redacted))
    }
}
