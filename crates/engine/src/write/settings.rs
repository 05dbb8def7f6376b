//! The settings of a store: memories below `/.keepsake`, which only its administrators change.

use std::sync::Arc;

use keepsake_core::path::TESTS_PATH;
use keepsake_core::{MemoryPath, Refused, TestFileError};
use keepsake_index::{ExpiryChange, ProposedChange, Scope, StoreState};

use super::{Decision, Write};
use crate::EngineError;
use crate::test_file::parse_tests;

/// The reason that a caller gets who may not read the content.
const NO_TESTS: &str = "the content of the memory is no file of tests";

impl Write<'_> {
    /// The refusal of a decision that changes a setting, if the credential may not change it.
    pub(crate) fn refusal_of_setting(&self, decision: &Decision) -> Option<Refused> {
        if self.principal.require(Scope::StoresAdmin).is_ok() {
            return None;
        }
        let setting = match decision {
            Decision::Commit(proposal) => proposal.changes.iter().find_map(setting_of),
            Decision::Pin(memory, ..) => Some(&memory.head.path).filter(|path| path.is_setting()),
            Decision::Nothing | Decision::ReadAgain => None,
        };
        setting.map(|path| Refused::Setting { path: path.as_str().to_owned() })
    }

    /// Refuses a content of the store's tests that is not a file of tests.
    pub(super) async fn refusal_of_tests(
        &self,
        store: Option<StoreState>,
        change: &ProposedChange,
    ) -> Result<Option<Refused>, EngineError> {
        if change.path.as_ref().is_none_or(|path| path.as_str() != TESTS_PATH) {
            return Ok(None);
        }
        let (text, is_sent) = match (change.content.text(), change.head(), store) {
            (Some(text), ..) => (text.into(), true),
            // The content was checked when it was written.
            (None, Some(head), _) if head.path.as_str() == TESTS_PATH => return Ok(None),
            (None, Some(head), Some(store)) => (self.stored(store, head).await?.unwrap_or_default(), false),
            (None, ..) => (Arc::default(), false),
        };
        let (computations, tenant_id) = (&self.context().computations, self.principal.tenant_id);
        let refused = parse_tests(computations, tenant_id, text).await?.err();
        Ok(refused.map(|error| {
            let is_shown = is_sent || self.principal.may_read();
            Refused::Tests(if is_shown {
                error
            } else {
                TestFileError { rule: NO_TESTS.to_owned(), ..error }
            })
        }))
    }
}

/// The setting that a change touches.
fn setting_of(change: &ProposedChange) -> Option<&MemoryPath> {
    let before = change.head().map(|head| &head.path);
    before.into_iter().chain(&change.path).find(|path| path.is_setting())
}

/// A setting never expires.
pub(super) fn expiry_of(path: &MemoryPath, expiry: ExpiryChange) -> ExpiryChange {
    if path.is_setting() { ExpiryChange { is_pinned: Some(true), expires_at: None } } else { expiry }
}
