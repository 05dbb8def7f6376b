//! What the audit keeps: who did what to what, and when; never a name or path.

use std::fmt;

use keepsake_core::{Actor, Timestamp};
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
    /// Whether it is the operator, by whichever way.
    pub const fn is_operator(&self) -> bool {
        matches!(self, Self::Operator | Self::OperatorCli)
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

/// An action on its way into the audit, in the transaction of what it does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Audited {
    /// The id of the entry.
    pub id: Uuid,
    /// When it is done.
    pub at: Timestamp,
    /// Who does it.
    pub by: Auditor,
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
            Self::ErasureCreated => "erasure.create",
            Self::ErasureFinished => "erasure.finish",
            Self::TokenKeyRotated => "token_key.rotate",
            Self::TokenKeysDistrusted => "token_key.distrust",
        }
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
}

/// A place in the order of an audit.
pub type AuditPlace = (Timestamp, Uuid);
