//! Applies a store's sensitive-data policy to new content.
//!
//! Content is scanned before any of it is stored. Without findings the policy
//! is not read. With findings, the policy is read, applied, and named in the
//! commit. The commit refuses when the policy was changed meanwhile; then the
//! change starts over and the policy is applied again.

use keepsake_core::sensitive::{Finding, Listed, Redacted};
use keepsake_core::{SensitiveDataPolicy, StoreId};

use crate::{Engine, EngineError, Principal};

/// The result of applying the policy to new content.
#[derive(Debug)]
pub(crate) enum Verdict {
    /// Keep it unchanged; with the policy, if there were findings.
    Keep(Option<SensitiveDataPolicy>),
    /// Store this redacted content instead.
    Redact(Redacted),
    /// Refuse it because of these findings.
    Refuse(Vec<Finding>),
}

impl Engine {
    /// Applies the policy where the answer can say that content was redacted.
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

    /// Applies the policy for clients that rely on content being stored as
    /// sent; for them `redact` refuses too. Returns the policy for the commit.
    ///
    /// `before` is called only if it is needed.
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
        let store = self.0.index.stores.find(principal.tenant_id, store_id).await?;
        Ok(store.ok_or(EngineError::StoreNotFound)?.policy)
    }
}
