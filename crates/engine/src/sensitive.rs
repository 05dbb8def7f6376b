//! What a store's policy makes of secrets in new content.
//!
//! Content is scanned before anything is kept of it. Where nothing is found the
//! policy does not matter and is not read. Where something is, the policy is
//! read, acted on, and named in the commit, which refuses when it is another by
//! then; the change starts over and is judged anew.

use keepsake_core::sensitive::{Finding, Listed, Redacted};
use keepsake_core::{SensitiveDataPolicy, StoreId};

use crate::{Engine, EngineError, Principal};

/// What becomes of new content.
#[derive(Debug)]
pub(crate) enum Verdict {
    /// It is kept as it is; under a policy, where something was found.
    Keep(Option<SensitiveDataPolicy>),
    /// This is kept instead of it.
    Redact(Redacted),
    /// It is refused, for these.
    Refuse(Vec<Finding>),
}

impl Engine {
    /// Judges content on a surface that can say that it was redacted.
    pub(crate) async fn judge(
        &self,
        principal: &Principal,
        store_id: StoreId,
        before: Option<&str>,
        after: &str,
    ) -> Result<Verdict, EngineError> {
        let findings = self.0.scanner.scan_change(before, after);
        if findings.is_empty() {
            return Ok(Verdict::Keep(None));
        }
        Ok(match self.policy(principal, store_id).await? {
            SensitiveDataPolicy::Off => Verdict::Keep(Some(SensitiveDataPolicy::Off)),
            SensitiveDataPolicy::Reject => Verdict::Refuse(findings),
            SensitiveDataPolicy::Redact => match self.0.scanner.redact_change(before, after) {
                Some(redacted) => Verdict::Redact(redacted),
                None => Verdict::Refuse(findings),
            },
        })
    }

    /// Judges content on a surface whose clients rely on its being kept as sent,
    /// where to redact is to refuse. Answers the policy to be committed under.
    ///
    /// `before` is asked for only where it matters.
    ///
    /// # Errors
    /// [`EngineError::Invalid`] when the content is refused, and failures of
    /// the index and of `before`.
    pub(crate) async fn judge_as_sent<B>(
        &self,
        principal: &Principal,
        store_id: StoreId,
        before: B,
        after: &str,
    ) -> Result<Option<SensitiveDataPolicy>, EngineError>
    where
        B: AsyncFnOnce() -> Result<Option<std::sync::Arc<str>>, EngineError>,
    {
        if self.0.scanner.scan(after).is_empty() {
            return Ok(None);
        }
        let policy = self.policy(principal, store_id).await?;
        if policy == SensitiveDataPolicy::Off {
            return Ok(Some(policy));
        }
        let before = before().await?;
        let findings = self.0.scanner.scan_change(before.as_deref(), after);
        if findings.is_empty() {
            return Ok(None);
        }
        Err(EngineError::Invalid {
            field: "content",
            rule: format!(
                "has what the memory store's sensitive-data policy (`{}`) refuses: {}",
                policy.name(),
                Listed(&findings)
            ),
        })
    }

    async fn policy(
        &self,
        principal: &Principal,
        store_id: StoreId,
    ) -> Result<SensitiveDataPolicy, EngineError> {
        let store = self.0.index.store(principal.tenant_id, store_id).await?;
        Ok(store.ok_or(EngineError::StoreNotFound)?.policy)
    }
}
