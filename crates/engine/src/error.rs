//! What an operation can end in, other than its answer.

use std::sync::Arc;

use keepsake_blobs::BlobError;
use keepsake_index::{IndexError, Scope};

/// Why an operation was not carried out.
///
/// What a model can mend is not here but in
/// [`ToolError`](keepsake_core::tool::ToolError), which is an answer.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// The credential is none that is good now.
    #[error("{0}")]
    Unauthenticated(&'static str),
    /// The credential may not do this.
    #[error("this credential lacks the scope `{0}`")]
    PermissionDenied(Scope),
    /// There is no such store in this tenant.
    #[error("the memory store was not found")]
    StoreNotFound,
    /// There is no such tenant.
    #[error("the tenant was not found")]
    TenantNotFound,
    /// A tenant of this external id is there already.
    #[error("a tenant with this external id exists already")]
    TenantExists,
    /// A field breaks a rule.
    #[error("`{field}` {rule}")]
    Invalid {
        /// The field.
        field: &'static str,
        /// The rule, as a phrase that follows the field.
        rule: String,
    },
    /// The tenant has as many stores as it may.
    #[error(
        "the tenant has {count} memory stores, its limit is {limit}: delete one that is no longer needed"
    )]
    TooManyStores {
        /// How many it has.
        count: u64,
        /// How many it may have.
        limit: u64,
    },
    /// The index failed.
    #[error(transparent)]
    Index(#[from] IndexError),
    /// The blob store failed.
    #[error(transparent)]
    Blobs(#[from] BlobError),
    /// Stored content is not what the index says it is; it is not served.
    #[error("stored content is damaged: {0}")]
    Damaged(&'static str),
    /// A look-up that several requests shared failed for all of them.
    #[error(transparent)]
    Shared(Arc<EngineError>),
    /// A bug.
    #[error("internal error: {0}")]
    Internal(&'static str),
}
