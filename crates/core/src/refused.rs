//! Why changes are refused. A refused change changes nothing.

use std::fmt;

use serde::Deserialize;

use crate::content::ContentError;
use crate::id::MemoryId;
use crate::path::{MemoryPath, TESTS_PATH};
use crate::policy::SensitiveDataPolicy;
use crate::sensitive::{Finding, FindingList};
use crate::test_file::TestFileError;

/// Why a change is refused.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, thiserror::Error)]
#[serde(tag = "outcome", rename_all = "snake_case")]
pub enum Refused {
    /// The store is archived.
    #[error("the memory store is archived: its memories can be read and deleted, not created or changed")]
    Archived,
    #[error("another memory exists at the path: `{path}`")]
    PathTaken {
        path: String,
        /// `None`, here and below: the caller may not read it.
        #[serde(deserialize_with = "crate::id::some_from_uuid")]
        memory_id: Option<MemoryId>,
    },
    #[error("the path is a directory: a memory exists below it: `{path}`")]
    PathIsDirectory {
        /// The path of the memory; without its id, perhaps the directory, ending in `/`.
        path: String,
        #[serde(skip)]
        memory_id: Option<MemoryId>,
    },
    #[error("a parent of the path is a memory, not a directory: `{path}`")]
    ParentIsFile {
        /// The path of the file.
        path: String,
        #[serde(deserialize_with = "crate::id::some_from_uuid")]
        memory_id: Option<MemoryId>,
    },
    #[error("{0}")]
    OverLimit(OverLimit),
    #[error("`Idempotency-Key` was used for a request with another body within the last 24 hours")]
    KeyReused,
    #[serde(skip)]
    #[error("`content` {0}")]
    Content(ContentError),
    /// The store's policy refuses the content; lines are those of the request.
    #[serde(skip)]
    #[error(
        "`content` has what the memory store's sensitive-data policy (`{policy}`) refuses: {}",
        FindingList(.findings)
    )]
    Sensitive { policy: SensitiveDataPolicy, findings: Vec<Finding> },
    /// A setting of the store, which the caller may not change.
    #[serde(skip)]
    #[error(
        "`{path}` is a setting of the memory store: only a credential with the scope `stores:admin` changes it"
    )]
    Setting { path: String },
    #[serde(skip)]
    #[error("`content` of {TESTS_PATH} is refused: {0}")]
    Tests(TestFileError),
    /// The contents of some changes are refused, each with the change's index.
    #[serde(skip)]
    #[error("the contents of {} changes are refused", .0.len())]
    Contents(Vec<(usize, Refused)>),
    /// Other changes of the same memory won the race every time.
    #[serde(skip)]
    #[error("the memory was changed by others again and again meanwhile: read it and try again")]
    Contended,
    #[serde(skip)]
    #[error("the version holds a live memory's current content: edit or delete the memory first")]
    HoldsLiveContent,
    #[serde(skip)]
    #[error("the session is archived: it can be read and deleted, not changed or used")]
    SessionArchived,
    /// The API key that makes another one has ended meanwhile.
    #[serde(skip)]
    #[error("the API key has been revoked, or its time is over")]
    KeyEnded,
    #[serde(skip)]
    #[error("{maximum} erasures of the tenant are under way: wait until one is done")]
    TooManyErasures { maximum: u64 },
    #[serde(skip)]
    #[error("a tenant with this external id exists already")]
    TenantExists,
    #[serde(skip)]
    #[error("the tenant is being deleted")]
    TenantDeleting,
    /// A change names the values that it replaces, and the tenant has others.
    #[serde(skip)]
    #[error("another change of the tenant came first")]
    TenantChanged,
}

impl Refused {
    pub const fn over(limit: Quota, wanted: u64, maximum: u64) -> Self {
        Self::OverLimit(OverLimit::new(limit, wanted, maximum))
    }

    /// The same for a caller that may write but not read; `sent` is the path of its
    /// request.
    #[must_use]
    pub fn concealed(mut self, sent: Option<&MemoryPath>) -> Self {
        match &mut self {
            Self::PathTaken { path, memory_id }
            | Self::PathIsDirectory { path, memory_id }
            | Self::ParentIsFile { path, memory_id } => {
                *memory_id = None;
                // The name of a memory below the path was not part of the request.
                if let Some(sent) = sent
                    && !sent.as_str().starts_with(path.as_str())
                {
                    sent.as_str().clone_into(path);
                }
            }
            Self::OverLimit(over) => *over = over.concealed(),
            _ => {}
        }
        self
    }

    /// The same for a caller that may see some stores of the tenant only.
    #[must_use]
    pub fn without_sums_of_tenant(mut self) -> Self {
        if let Self::OverLimit(over) = &mut self {
            *over = over.without_sums_of_tenant();
        }
        self
    }
}

crate::named_enum! {
    /// The kind of an object that a call names.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum ObjectKind {
        Tenant = "tenant",
        TenantDeletion = "tenant deletion",
        ApiKey = "API key",
        Session = "session",
        SessionResource = "session resource",
        Store = "memory store",
        Memory = "memory",
        Version = "memory version",
        Undo = "undo",
        Erasure = "erasure",
        Tests = "file of tests `/.keepsake/tests.yaml`",
        Job = "job",
    }
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
    /// No message shows `wanted`, which the engine still needs.
    #[serde(skip)]
    pub hides_wanted: bool,
}

impl OverLimit {
    pub const fn new(limit: Quota, wanted: u64, maximum: u64) -> Self {
        Self { limit, wanted: Some(wanted), maximum, hides_wanted: false }
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

    /// The same for a caller that may see some stores of the tenant only: its text does not show the bytes of all
    /// stores or of all sessions.
    #[must_use]
    pub const fn without_sums_of_tenant(self) -> Self {
        match self.limit {
            Quota::BytesPerTenant | Quota::SessionBytesPerTenant => Self { hides_wanted: true, ..self },
            _ => self,
        }
    }

    /// The number of bytes with the change, before the limit.
    pub(crate) fn bytes_over(&self) -> String {
        let shown = self.wanted.filter(|_| !self.hides_wanted);
        shown.map_or_else(|| "more than".to_owned(), |bytes| format!("{bytes} bytes, over"))
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
            Quota::BytesPerTenant => of_bytes(f, "the tenant"),
            Quota::StoresPerTenant => write!(
                f,
                "the tenant has {wanted} memory stores, its limit is {maximum}: delete one that is no longer needed"
            ),
            Quota::SessionsPerTenant => {
                write!(f, "the tenant would have {wanted} sessions, its limit is {maximum}: {DELETE}")
            }
            Quota::SessionBytesPerTenant => write!(
                f,
                "the tenant's sessions would be described with {} the limit of {maximum} bytes: {DELETE}",
                self.bytes_over()
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
