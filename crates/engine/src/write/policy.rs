//! Applies a store's sensitive-data policy to new content.
//!
//! Content is scanned before any of it is stored. Without findings the policy
//! is not read. With findings, the policy is read, applied, and named in the
//! commit. The commit refuses when the policy was changed meanwhile; then the
//! change starts over and the policy is applied again.

use keepsake_core::sensitive::{Finding, RedactedText};
use keepsake_core::{Content, ObjectKind, Refused, SensitiveDataPolicy};
use keepsake_index::{Head, NewContent, ProposedChange, StoreState};

use super::{Proposal, Write};
use crate::EngineError;

enum Verdict {
    /// Contains the policy if there were findings.
    Keep(Option<SensitiveDataPolicy>),
    /// Store this redacted content instead.
    Redact(RedactedText),
    Refuse(SensitiveDataPolicy, Vec<Finding>),
}

/// The positions of the changes whose contents a refusal is about; `None`: a path is taken, which the
/// next read shows.
pub(crate) fn refused_contents(refusal: Refused) -> Result<Option<Vec<usize>>, EngineError> {
    match refusal {
        Refused::PathTaken { .. } | Refused::PathIsDirectory { .. } | Refused::ParentIsFile { .. } => {
            Ok(None)
        }
        Refused::Contents(refused) => Ok(Some(refused.into_iter().map(|(position, _)| position).collect())),
        Refused::Content(_) | Refused::Sensitive { .. } => Ok(Some(vec![0])),
        refusal => Err(refusal.into()),
    }
}

impl Write<'_> {
    /// Applies the policy to the new content of a proposal, and the limit to redacted content.
    pub(super) async fn check(&self, proposal: &mut Proposal) -> Result<Result<(), Refused>, EngineError> {
        let (mut policy, mut refused) = (None, Vec::new());
        let is_batch = proposal.changes.len() > 1;
        for (place, change) in proposal.changes.iter_mut().enumerate() {
            let Some(after) = change.content.text() else {
                let refusal = self.refusal_of_tests(proposal.store, change).await?;
                refused.extend(refusal.map(|refusal| (place, refusal)));
                continue;
            };
            let before = previous_content(proposal.store, change);
            match self.apply_policy(before, after, proposal.edit.is_some(), &mut policy).await? {
                Verdict::Keep(policy) => proposal.policy = policy.or(proposal.policy),
                Verdict::Redact(redacted) => {
                    proposal.policy = Some(SensitiveDataPolicy::Redact);
                    match Content::new(redacted.text.clone(), self.principal.limits.bytes_per_memory) {
                        Ok(content) => change.content = NewContent::New(content),
                        Err(rule) => {
                            refused.push((place, Refused::Content(rule)));
                            continue;
                        }
                    }
                    proposal.edit = proposal.edit.take().map(|edit| edit.redacted(redacted));
                }
                Verdict::Refuse(policy, findings) => {
                    let findings = match &proposal.edit {
                        Some(edit) => edit.in_lines_sent(findings),
                        None => findings,
                    };
                    refused.push((place, Refused::Sensitive { policy, findings }));
                    continue;
                }
            }
            if let Some(refusal) = self.refusal_of_tests(proposal.store, change).await? {
                refused.push((place, refusal));
                continue;
            }
            if is_batch {
                // Scanning many contents takes long.
                tokio::task::yield_now().await;
            }
        }
        if is_batch && !refused.is_empty() {
            return Ok(Err(Refused::Contents(refused)));
        }
        Ok(refused.pop().map_or(Ok(()), |(_, refusal)| Err(refusal)))
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
fn previous_content(store: Option<StoreState>, change: &ProposedChange) -> Option<(StoreState, &Head)> {
    store.zip(change.head().filter(|_| !change.restores()))
}
