//! Why changes are refused. A refused change changes nothing.

use std::fmt;

use serde::Deserialize;

use crate::content::ContentError;
use crate::id::MemoryId;
use crate::policy::SensitiveDataPolicy;
use crate::sensitive::Finding;

/// Why a change of memories is refused.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(tag = "outcome", rename_all = "snake_case")]
pub enum Refused {
    /// The store is archived.
    Archived,
    PathTaken {
        path: String,
        #[serde(deserialize_with = "crate::id::from_uuid")]
        memory_id: MemoryId,
    },
    PathIsDirectory {
        /// The directory, ending in `/`.
        path: String,
    },
    /// A parent of the path is a file.
    ParentIsFile {
        /// The path of the file.
        path: String,
        #[serde(deserialize_with = "crate::id::from_uuid")]
        memory_id: MemoryId,
    },
    OverLimit(OverLimit),
    #[serde(skip)]
    Content(ContentError),
    /// The store's policy refuses the content; lines are those of the request.
    #[serde(skip)]
    Sensitive {
        policy: SensitiveDataPolicy,
        findings: Vec<Finding>,
    },
    /// The contents of some changes are refused, each with the change's index.
    #[serde(skip)]
    Contents(Vec<(usize, Refused)>),
    /// Other changes of the same memory won the race every time.
    #[serde(skip)]
    Contended,
}

crate::named_enum! {
    /// A limit of an amount that a store or a tenant has.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
    #[serde(rename_all = "snake_case")]
    pub enum Quota {
        MemoriesPerStore = "memories_per_store",
        BytesPerStore = "bytes_per_store",
        BytesPerTenant = "bytes_per_tenant",
        StoresPerTenant = "stores_per_tenant",
        SessionsPerTenant = "sessions_per_tenant",
        /// Bytes of the descriptions of a tenant's sessions.
        SessionBytesPerTenant = "session_bytes_per_tenant",
        ApiKeysPerTenant = "api_keys_per_tenant",
        AuditEntriesPerDay = "audit_entries_per_day",
    }
}

/// A limit that a change exceeds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub struct OverLimit {
    pub limit: Quota,
    /// The amount with the change; `None`: the caller may not learn it.
    pub wanted: Option<u64>,
    pub maximum: u64,
}

impl OverLimit {
    pub const fn new(limit: Quota, wanted: u64, maximum: u64) -> Self {
        Self { limit, wanted: Some(wanted), maximum }
    }

    /// The same for a caller that may write but not read: without the bytes of what
    /// exists.
    #[must_use]
    pub const fn concealed(self) -> Self {
        match self.limit {
            Quota::BytesPerStore | Quota::BytesPerTenant => Self { wanted: None, ..self },
            _ => self,
        }
    }

    /// The number of bytes with the change, before the limit.
    pub(crate) fn bytes_over(&self) -> String {
        self.wanted.map_or_else(|| "more than".to_owned(), |bytes| format!("{bytes} bytes, over"))
    }
}

impl fmt::Display for OverLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const DELETE: &str = "delete some that are no longer needed";
        let (wanted, maximum) = (self.wanted.unwrap_or_default(), self.maximum);
        let of_bytes = |f: &mut fmt::Formatter<'_>, whose: &str| {
            let over = self.bytes_over();
            write!(f, "{whose} would hold {over} the limit of {maximum} bytes: delete or shorten memories")
        };
        match self.limit {
            Quota::MemoriesPerStore => {
                write!(f, "the memory store would hold {wanted} memories, its limit is {maximum}: {DELETE}")
            }
            Quota::BytesPerStore => of_bytes(f, "the memory store"),
            Quota::BytesPerTenant => of_bytes(f, "the workspace"),
            Quota::StoresPerTenant => write!(
                f,
                "the tenant has {wanted} memory stores, its limit is {maximum}: delete one that is no longer needed"
            ),
            Quota::SessionsPerTenant => {
                write!(f, "the tenant would have {wanted} sessions, its limit is {maximum}: {DELETE}")
            }
            Quota::SessionBytesPerTenant => write!(
                f,
                "the tenant's sessions would be described with {wanted} bytes, its limit is {maximum} bytes: {DELETE}"
            ),
            Quota::ApiKeysPerTenant => write!(
                f,
                "the tenant would have {wanted} API keys, those revoked within 30 days included, its limit is {maximum}"
            ),
            Quota::AuditEntriesPerDay => write!(
                f,
                "the tenant's credentials have made the {maximum} changes that they may make in a day (UTC): \
                 only what ends or removes something is still done today"
            ),
        }
    }
}
