//! What the audit keeps: who did what to what, and when; never a name or path.

use std::fmt;
use std::str::FromStr;

use keepsake_core::{Actor, ApiKeyId, SessionId, StoreId, Timestamp};
use uuid::Uuid;

/// Who does something that the audit keeps.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Auditor {
    /// Who holds the operator's token.
    Operator,
    /// Who has the database: a command beside it.
    OperatorCli,
    /// A credential of the tenant.
    Credential(Actor),
    /// A job of Keepsake's own.
    Job,
}

impl Auditor {
    /// The tenant's credential, where it is one.
    pub const fn actor(&self) -> Option<&Actor> {
        match self {
            Self::Credential(actor) => Some(actor),
            Self::Operator | Self::OperatorCli | Self::Job => None,
        }
    }

    /// Whether it is the operator, by whichever way.
    pub const fn is_operator(&self) -> bool {
        matches!(self, Self::Operator | Self::OperatorCli)
    }
}

impl FromStr for Auditor {
    type Err = UnknownAuditor;

    fn from_str(text: &str) -> Result<Self, UnknownAuditor> {
        let actor = match text.split_once(':') {
            None if text == "operator" => return Ok(Self::Operator),
            None if text == "operator_cli" => return Ok(Self::OperatorCli),
            None if text == "job" => return Ok(Self::Job),
            Some(("api_key", id)) => id.parse().map(Actor::ApiKey).map_err(|_| UnknownAuditor)?,
            Some(("session", id)) => id.parse().map(Actor::Session).map_err(|_| UnknownAuditor)?,
            Some(("user", subject)) => Actor::User(subject.to_owned()),
            Some(("service_account", subject)) => Actor::ServiceAccount(subject.to_owned()),
            _ => return Err(UnknownAuditor),
        };
        Ok(Self::Credential(actor))
    }
}

/// The text that the audit keeps.
impl fmt::Display for Auditor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Operator => f.write_str("operator"),
            Self::OperatorCli => f.write_str("operator_cli"),
            Self::Credential(Actor::ApiKey(api_key_id)) => write!(f, "api_key:{api_key_id}"),
            Self::Credential(Actor::Session(session_id)) => write!(f, "session:{session_id}"),
            Self::Credential(Actor::User(subject)) => write!(f, "user:{subject}"),
            Self::Credential(Actor::ServiceAccount(subject)) => write!(f, "service_account:{subject}"),
            Self::Job => f.write_str("job"),
        }
    }
}

/// A text that names no actor of the audit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UnknownAuditor;

/// An action on its way into the audit, in the transaction of what it does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Audited {
    /// The id of the entry.
    pub id: Uuid,
    /// When it is done.
    pub at: Timestamp,
    /// Who does it.
    pub by: Auditor,
    /// Entries that the tenant's credentials may write in a day (UTC), at most;
    /// `None`: any number.
    pub entries_per_day: Option<u64>,
}

/// The object of an action.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AuditObject {
    /// Its id; the action says of which kind it is.
    pub id: Uuid,
    /// The store that it lies in or is about, where it is no store itself.
    pub store_id: Option<StoreId>,
}

impl Audited {
    /// The day of the entry, in days since 1970 (UTC).
    pub(crate) const fn day(&self) -> i64 {
        self.at.as_micros().div_euclid(86_400_000_000)
    }
}

impl AuditObject {
    /// An object that stands for itself.
    pub const fn new(id: Uuid) -> Self {
        Self { id, store_id: None }
    }

    /// An object that lies in a store, or is about one.
    pub const fn in_store(id: Uuid, store_id: StoreId) -> Self {
        Self {
            id,
            store_id: Some(store_id),
        }
    }
}

/// A quota of the tenant keeps a change from being made; nothing changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OverQuota {
    /// Its credentials wrote as many audit entries today as they may.
    AuditEntries {
        /// How many they may write.
        limit: u64,
    },
    /// It would have too many sessions.
    Sessions {
        /// How many it would have.
        count: u64,
        /// How many it may have.
        limit: u64,
    },
    /// Its sessions would be described with too many bytes.
    SessionBytes {
        /// How many they would have together.
        size_bytes: u64,
        /// How many they may have.
        limit_bytes: u64,
    },
    /// It would have too many API keys.
    ApiKeys {
        /// How many it would have.
        count: u64,
        /// How many it may have.
        limit: u64,
    },
}

/// What was done; the name is for ever.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AuditAction {
    /// `tenant.create`
    TenantCreated,
    /// `tenant.update`
    TenantUpdated,
    /// `tenant.suspend`
    TenantSuspended,
    /// `tenant.resume`
    TenantResumed,
    /// `tenant.delete`
    TenantDeleted,
    /// `api_key.create`
    KeyCreated,
    /// `api_key.revoke`
    KeyRevoked,
    /// `memory_store.create`
    StoreCreated,
    /// `memory_store.update` (name, description or metadata)
    StoreUpdated,
    /// `memory_store.update_policy` (sensitive data or expiry, and whatever else changed with it)
    StorePolicyUpdated,
    /// `memory_store.archive`
    StoreArchived,
    /// `memory_store.delete`
    StoreDeleted,
    /// `memory_version.redact`
    VersionRedacted,
    /// `session.create`
    SessionCreated,
    /// `session.update`
    SessionUpdated,
    /// `session.archive`
    SessionArchived,
    /// `session.delete`
    SessionDeleted,
    /// `session.add_resource`
    ResourceAdded,
    /// `session.update_resource`
    ResourceUpdated,
    /// `session.delete_resource`
    ResourceDeleted,
    /// `session.issue_token`
    SessionTokenIssued,
    /// `erasure.create`
    ErasureCreated,
    /// `erasure.finish`
    ErasureFinished,
    /// `token_key.rotate`
    TokenKeyRotated,
    /// `token_key.distrust`
    TokenKeysDistrusted,
}

impl AuditAction {
    /// Every action that a tenant's audit has.
    pub const OF_TENANTS: [Self; 23] = [
        Self::TenantCreated,
        Self::TenantUpdated,
        Self::TenantSuspended,
        Self::TenantResumed,
        Self::TenantDeleted,
        Self::KeyCreated,
        Self::KeyRevoked,
        Self::StoreCreated,
        Self::StoreUpdated,
        Self::StorePolicyUpdated,
        Self::StoreArchived,
        Self::StoreDeleted,
        Self::VersionRedacted,
        Self::SessionCreated,
        Self::SessionUpdated,
        Self::SessionArchived,
        Self::SessionDeleted,
        Self::ResourceAdded,
        Self::ResourceUpdated,
        Self::ResourceDeleted,
        Self::SessionTokenIssued,
        Self::ErasureCreated,
        Self::ErasureFinished,
    ];

    /// The name that the audit keeps: the kind of object, a dot, what was done.
    pub const fn name(self) -> &'static str {
        match self {
            Self::TenantCreated => "tenant.create",
            Self::TenantUpdated => "tenant.update",
            Self::TenantSuspended => "tenant.suspend",
            Self::TenantResumed => "tenant.resume",
            Self::TenantDeleted => "tenant.delete",
            Self::KeyCreated => "api_key.create",
            Self::KeyRevoked => "api_key.revoke",
            Self::StoreCreated => "memory_store.create",
            Self::StoreUpdated => "memory_store.update",
            Self::StorePolicyUpdated => "memory_store.update_policy",
            Self::StoreArchived => "memory_store.archive",
            Self::StoreDeleted => "memory_store.delete",
            Self::VersionRedacted => "memory_version.redact",
            Self::SessionCreated => "session.create",
            Self::SessionUpdated => "session.update",
            Self::SessionArchived => "session.archive",
            Self::SessionDeleted => "session.delete",
            Self::ResourceAdded => "session.add_resource",
            Self::ResourceUpdated => "session.update_resource",
            Self::ResourceDeleted => "session.delete_resource",
            Self::SessionTokenIssued => "session.issue_token",
            Self::ErasureCreated => "erasure.create",
            Self::ErasureFinished => "erasure.finish",
            Self::TokenKeyRotated => "token_key.rotate",
            Self::TokenKeysDistrusted => "token_key.distrust",
        }
    }

    /// Reads the name of an action that a tenant's audit has.
    pub fn parse(name: &str) -> Option<Self> {
        Self::OF_TENANTS.into_iter().find(|action| action.name() == name)
    }
}

/// The name of a run that somebody asked for: a job has no id.
pub(crate) fn job_action(job: &str, is_dry_run: bool) -> String {
    let done = if is_dry_run { "dry_run" } else { "run" };
    format!("job.{done}.{job}")
}

/// An entry of the audit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditEntry {
    /// Its id.
    pub id: Uuid,
    /// When it was done.
    pub at: Timestamp,
    /// Who did it, as [`Auditor`] is written.
    pub actor: String,
    /// What was done, as [`AuditAction`] is named.
    pub action: String,
    /// What it was done to; the action says of which kind it is.
    pub object_id: Option<Uuid>,
    /// The store that the object lies in or is about, where it is none itself.
    pub store_id: Option<StoreId>,
}

/// Which entries of a tenant's audit are listed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AuditListing {
    /// Written at or after this time.
    pub from: Option<Timestamp>,
    /// Written at or before this time.
    pub to: Option<Timestamp>,
    /// Only this action.
    pub action: Option<AuditAction>,
    /// Only actions of this actor: an API key, a session, or the subject of a
    /// token, be it a user or a service account.
    pub actor_id: Option<String>,
    /// Only actions on this object.
    pub object_id: Option<Uuid>,
    /// The entry before the first one wanted.
    pub before: Option<AuditPlace>,
    /// Entries, at most.
    pub limit: u32,
}

impl AuditListing {
    /// The forms that [`Self::actor_id`] may have in a row, two of them.
    pub(crate) fn actors(&self) -> [Option<String>; 2] {
        let Some(id) = &self.actor_id else {
            return [None, None];
        };
        let credentials = if let Ok(api_key_id) = id.parse::<ApiKeyId>() {
            [Actor::ApiKey(api_key_id), Actor::User(id.clone())]
        } else if let Ok(session_id) = id.parse::<SessionId>() {
            [Actor::Session(session_id), Actor::User(id.clone())]
        } else {
            [Actor::User(id.clone()), Actor::ServiceAccount(id.clone())]
        };
        credentials.map(|actor| Some(Auditor::Credential(actor).to_string()))
    }
}

/// A place in the order of an audit.
pub type AuditPlace = (Timestamp, Uuid);
