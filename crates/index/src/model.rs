//! What the index answers with.

use std::fmt;
use std::str::FromStr;

use keepsake_core::limits::LimitOverrides;
use keepsake_core::{
    Actor, ApiKeyId, BlobKey, ContentHash, MemoryId, MemoryPath, StoreId, TenantId, Timestamp, VersionId,
};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// A live memory's current state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Head {
    /// The memory.
    pub memory_id: MemoryId,
    /// Where it stands.
    pub path: MemoryPath,
    /// Its current version.
    pub version_id: VersionId,
    /// That version's place in the store's order.
    pub seq: i64,
    /// The version that brought the content; names the blob.
    pub blob_id: VersionId,
    /// Bytes of the content.
    pub size_bytes: u64,
    /// SHA-256 of the content.
    pub sha256: ContentHash,
    /// A replica that asked to edit it next.
    pub claim: Option<Claim>,
}

/// A replica's request to let its edit of a memory go first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Claim {
    /// Who asked.
    pub replica: Uuid,
    /// When the request ends by itself.
    pub until: Timestamp,
}

/// What a read needs to know of the store it reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StoreState {
    /// Whether the store takes no new content.
    pub is_archived: bool,
    /// Moves when history is removed, so that caches drop it.
    pub purge_epoch: i64,
}

/// What stands at a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lookup {
    /// The store.
    pub store: StoreState,
    /// What is there.
    pub target: Target,
}

/// What a path names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// Nothing.
    Missing,
    /// A memory.
    Memory(Head),
    /// A directory, implied by the memories below it; the root always exists.
    Directory(Directory),
}

/// A directory and the part of its listing that was asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Directory {
    /// Files below it, at any depth, hidden ones too.
    pub files: u64,
    /// Bytes of those files.
    pub size_bytes: u64,
    /// Entries that a complete listing has.
    pub total_entries: u64,
    /// The first of them, in display order.
    pub entries: Vec<Entry>,
}

/// One line of a directory's listing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The API path; a directory's ends in `/`.
    pub path: String,
    /// Whether it is a directory.
    pub is_directory: bool,
    /// Bytes of the file, or of all files below the directory.
    pub size_bytes: u64,
}

/// What an idempotent call recorded when it was first made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Replayed {
    /// The last version it made.
    pub seq: i64,
    /// The memory it made or changed first.
    pub memory_id: Option<MemoryId>,
}

/// A version, as far as rebuilding an answer needs it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundVersion {
    /// The version of the same memory before it.
    pub prev_seq: Option<i64>,
    /// The blob that holds its content; `None`: deleted or redacted.
    pub blob_id: Option<VersionId>,
    /// SHA-256 of the content.
    pub sha256: Option<ContentHash>,
}

/// A store to be made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewStore {
    /// Its id.
    pub store_id: StoreId,
    /// Its name, checked.
    pub name: String,
    /// Its description, empty when unset.
    pub description: String,
    /// Its metadata, a JSON object of strings.
    pub metadata: serde_json::Map<String, serde_json::Value>,
    /// When it is made.
    pub created_at: Timestamp,
}

/// A store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Store {
    /// Its id.
    pub store_id: StoreId,
    /// Its name.
    pub name: String,
    /// Its description, empty when unset.
    pub description: String,
    /// Its metadata.
    pub metadata: serde_json::Map<String, serde_json::Value>,
    /// What is done about sensitive data: `off`, `redact` or `reject`.
    pub policy: String,
    /// Seconds after which an unread memory expires.
    pub expires_unused_after: Option<u64>,
    /// Live memories.
    pub memory_count: u64,
    /// Bytes of the live memories.
    pub live_bytes: u64,
    /// When it was made.
    pub created_at: Timestamp,
    /// When its name, description, metadata or archiving last changed.
    pub updated_at: Timestamp,
    /// Since when it takes no new content.
    pub archived_at: Option<Timestamp>,
}

/// How making a store went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StoreCreation {
    /// It is there.
    Created,
    /// The tenant has as many as it may.
    TooMany {
        /// How many it has.
        count: u64,
    },
    /// There is no such tenant.
    NoTenant,
}

/// How asking for bytes went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Grant {
    /// The store may hold what it asked for.
    Granted,
    /// The tenant's limit does not allow it.
    Refused {
        /// Bytes the tenant would hold.
        wanted_bytes: u64,
    },
    /// There is no such store.
    NoStore,
}

/// What a credential may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Scope {
    /// Read memories.
    #[serde(rename = "memory:read")]
    MemoryRead,
    /// Change memories.
    #[serde(rename = "memory:write")]
    MemoryWrite,
    /// Create, archive and delete stores, redact versions.
    #[serde(rename = "stores:admin")]
    StoresAdmin,
    /// Create and end sessions.
    #[serde(rename = "sessions:write")]
    SessionsWrite,
    /// Make and revoke keys.
    #[serde(rename = "keys:admin")]
    KeysAdmin,
    /// Change the tenant's settings, erase.
    #[serde(rename = "tenant:admin")]
    TenantAdmin,
}

impl Scope {
    /// Every scope there is.
    pub const ALL: [Self; 6] = [
        Self::MemoryRead,
        Self::MemoryWrite,
        Self::StoresAdmin,
        Self::SessionsWrite,
        Self::KeysAdmin,
        Self::TenantAdmin,
    ];

    /// The scope's name in the API.
    pub const fn name(self) -> &'static str {
        match self {
            Self::MemoryRead => "memory:read",
            Self::MemoryWrite => "memory:write",
            Self::StoresAdmin => "stores:admin",
            Self::SessionsWrite => "sessions:write",
            Self::KeysAdmin => "keys:admin",
            Self::TenantAdmin => "tenant:admin",
        }
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Scope {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::ALL
            .into_iter()
            .find(|scope| scope.name() == text)
            .ok_or_else(|| {
                let known: Vec<_> = Self::ALL.iter().map(|scope| scope.name()).collect();
                format!("`{text}` is not a scope; there are {}", known.join(", "))
            })
    }
}

/// Whether a tenant is served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TenantStatus {
    /// Served.
    Active,
    /// Kept, not served.
    Suspended,
}

impl TenantStatus {
    /// The name the index stores.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Suspended => "suspended",
        }
    }

    /// Reads a stored name.
    pub fn parse(name: &str) -> Option<Self> {
        [Self::Active, Self::Suspended]
            .into_iter()
            .find(|status| status.name() == name)
    }
}

/// A tenant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tenant {
    /// Its id.
    pub tenant_id: TenantId,
    /// The operator's own name for it, unique where set.
    pub external_id: Option<String>,
    /// A name for people.
    pub name: String,
    /// Whether it is served.
    pub status: TenantStatus,
    /// Where its limits differ from the configured defaults.
    pub limits: LimitOverrides,
    /// When it was made.
    pub created_at: Timestamp,
}

/// An API key, without its secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApiKey {
    /// Its id.
    pub api_key_id: ApiKeyId,
    /// Whose it is.
    pub tenant_id: TenantId,
    /// A name for people.
    pub name: String,
    /// What it may do.
    pub scopes: Vec<Scope>,
    /// The only stores it sees, where it is bound to some.
    pub store_ids: Option<Vec<StoreId>>,
    /// When it was made.
    pub created_at: Timestamp,
    /// When it ends.
    pub expires_at: Option<Timestamp>,
}

/// What a credential stands for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Credential {
    /// The tenant it belongs to.
    pub tenant_id: TenantId,
    /// The key.
    pub api_key_id: ApiKeyId,
    /// What it may do.
    pub scopes: Vec<Scope>,
    /// The only stores it sees, where it is bound to some.
    pub store_ids: Option<Vec<StoreId>>,
    /// When it ends.
    pub expires_at: Option<Timestamp>,
    /// Whether it was revoked.
    pub is_revoked: bool,
    /// Whether its tenant is served.
    pub tenant_status: TenantStatus,
    /// Where the tenant's limits differ from the configured defaults.
    pub limits: LimitOverrides,
}

/// One memory's latest read, as the batch writes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AccessRow {
    /// The tenant.
    pub tenant_id: TenantId,
    /// The store.
    pub store_id: StoreId,
    /// The memory.
    pub memory_id: MemoryId,
    /// When it was last read.
    pub read_at: Timestamp,
    /// Who read it.
    pub read_by: Actor,
}

/// A blob that is to be removed now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DueDeletion {
    /// Its key.
    pub key: BlobKey,
    /// How often it was tried before.
    pub attempts: u32,
}
