//! Applies a store's sensitive-data policy, and the limit per memory, to new content.
//!
//! Content is scanned before any of it is stored. Without findings the policy
//! is not read. With findings, the policy is read, applied, and named in the
//! commit. The commit refuses when the policy was changed meanwhile; then the
//! change starts over and the policy is applied again.

use std::sync::Arc;

use keepsake_core::sensitive::{Finding, Redacted};
use keepsake_core::tool::Edit;
use keepsake_core::{Content, ObjectKind, Refused, SensitiveDataPolicy};
use keepsake_index::{Head, StoreState};

use super::commit::Text;
use super::{NewContent, Origin, Proposal, Proposed, Write};
use crate::EngineError;

/// The content of a proposal, ready to be stored.
#[derive(Debug, Default)]
pub(super) struct Checked {
    /// For each change; `None`: the change brings no content.
    pub(super) texts: Vec<Option<Text>>,
    /// The edit as it is stored.
    pub(super) edit: Option<Edit>,
    /// The policy under which findings were accepted or redacted.
    pub(super) policy: Option<SensitiveDataPolicy>,
}

enum Verdict {
    /// Contains the policy if there were findings.
    Keep(Option<SensitiveDataPolicy>),
    /// Store this redacted content instead.
    Redact(Redacted),
    Refuse(SensitiveDataPolicy, Vec<Finding>),
}

impl Write<'_> {
    /// Applies policy and limits to the new content of a proposal.
    pub(super) async fn check(&self, proposal: &Proposal) -> Result<Result<Checked, Refused>, EngineError> {
        let mut checked = Checked::default();
        let (mut policy, mut refused) = (None, Vec::new());
        for (place, change) in proposal.changes.iter().enumerate() {
            let (mut edit, text) = match change.to.as_ref().map(|to| &to.content) {
                None | Some(NewContent::Kept) => {
                    checked.texts.push(None);
                    continue;
                }
                Some(NewContent::Edited(edit)) => (Some(edit.clone()), None),
                Some(NewContent::Exact(content)) => (None, Some(Text::New(content.clone()))),
                Some(NewContent::Restored(content, text)) => {
                    (None, Some(Text::Earlier(*content, Arc::clone(text))))
                }
            };
            let after = edit.as_ref().map(|edit| edit.content.as_str());
            let after = after.or(text.as_ref().map(Text::as_str)).unwrap_or_default();
            let before = previous_content(proposal, change);
            match self.apply_policy(before, after, edit.is_some(), &mut policy).await? {
                Verdict::Keep(policy) => checked.policy = policy.or(checked.policy),
                Verdict::Redact(redacted) => {
                    checked.policy = Some(SensitiveDataPolicy::Redact);
                    edit = edit.map(|edit| edit.redacted(redacted));
                }
                Verdict::Refuse(policy, findings) => {
                    let findings = match &edit {
                        Some(edit) => edit.in_lines_sent(findings),
                        None => findings,
                    };
                    refused.push((place, Refused::Sensitive { policy, findings }));
                    continue;
                }
            }
            let text = match (&edit, text) {
                (Some(edit), _) => {
                    match Content::new(edit.content.clone(), self.principal.limits.bytes_per_memory) {
                        Ok(content) => Some(Text::New(content)),
                        Err(rule) => {
                            refused.push((place, Refused::Content(rule)));
                            continue;
                        }
                    }
                }
                (None, text) => text,
            };
            checked.texts.push(text);
            checked.edit = edit;
            if proposal.changes.len() > 1 {
                // Scanning many contents takes long.
                tokio::task::yield_now().await;
            }
        }
        if proposal.changes.len() > 1 && !refused.is_empty() {
            return Ok(Err(Refused::Contents(refused)));
        }
        Ok(refused.pop().map_or(Ok(checked), |(_, refusal)| Err(refusal)))
    }

    /// Applies the policy to the lines of `after` that the memory does not have yet.
    /// Without `may_redact`, redaction is refused too. The policy is read once for all
    /// changes of a commit.
    async fn apply_policy(
        &self,
        before: Option<(StoreState, &Head)>,
        after: &str,
        may_redact: bool,
        read: &mut Option<SensitiveDataPolicy>,
    ) -> Result<Verdict, EngineError> {
        let (context, tenant_id) = (self.context(), self.principal.tenant_id);
        if context.scanner.scan(after).is_empty() {
            return Ok(Verdict::Keep(None));
        }
        let policy = if let Some(policy) = *read {
            policy
        } else {
            let store = context.index.stores.find(tenant_id, self.store_id).await?;
            store.ok_or(EngineError::NotFound(ObjectKind::Store))?.policy
        };
        *read = Some(policy);
        if policy == SensitiveDataPolicy::Off {
            return Ok(Verdict::Keep(Some(policy)));
        }
        let before = match before {
            Some((store, head)) => self.stored(store, head).await?,
            None => None,
        };
        let findings = context.scanner.scan_change(before.as_deref(), after);
        if findings.is_empty() {
            return Ok(Verdict::Keep(None));
        }
        let redacted = (may_redact && policy == SensitiveDataPolicy::Redact)
            .then(|| context.scanner.redact_change(before.as_deref(), after));
        Ok(match redacted.flatten() {
            Some(redacted) => Verdict::Redact(redacted),
            None => Verdict::Refuse(policy, findings),
        })
    }
}

/// The memory that new content is compared with; the whole content of an earlier
/// version counts as new.
fn previous_content<'a>(proposal: &Proposal, change: &'a Proposed) -> Option<(StoreState, &'a Head)> {
    match (&change.from, proposal.store) {
        (Origin::Live(head), Some(store)) if !change.restores() => Some((store, head)),
        _ => None,
    }
}
