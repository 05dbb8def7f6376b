//! The audit log: actor, action, object and time of each action; never a name or a
//! path.

use std::fmt;
use std::str::FromStr;

use keepsake_core::{Actor, ApiKeyId, ErasureId, SessionId, StoreId, TenantId, Timestamp, VersionId};
use uuid::Uuid;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Auditor {
    /// The holder of the operator's token.
    Operator,
    /// An operator's command that accesses the database directly.
    OperatorCli,
    Credential(Actor),
    Job,
}

impl Auditor {
    /// `None` for the operator and jobs.
    pub const fn actor(&self) -> Option<&Actor> {
        match self {
            Self::Credential(actor) => Some(actor),
            Self::Operator | Self::OperatorCli | Self::Job => None,
        }
    }

    /// The kind, as the audit log names it. Versions have other names: [`Actor::kind`].
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Operator => "operator",
            Self::OperatorCli => "operator_cli",
            Self::Job => "job",
            Self::Credential(Actor::ApiKey(_)) => "api_key",
            Self::Credential(Actor::Session(_)) => "session",
            Self::Credential(Actor::User(_)) => "user",
            Self::Credential(Actor::ServiceAccount(_)) => "service_account",
            Self::Credential(Actor::Imported(kind, _)) => kind.imported_name(),
        }
    }

    /// Whether the actor is the operator, through the API or the command line.
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

/// The text that the audit log stores.
impl fmt::Display for Auditor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.kind())?;
        self.actor().map_or(Ok(()), |actor| write!(f, ":{}", actor.id()))
    }
}

/// The text is not an actor of the audit log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UnknownAuditor;

/// An audited action, written in the same transaction as the action itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Audited {
    pub id: Uuid,
    pub at: Timestamp,
    pub by: Auditor,
    /// Maximum number of entries per day (UTC) by the tenant's credentials; `None`: no
    /// limit.
    pub entries_per_day: Option<u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AuditObject {
    /// The action determines the kind of the object.
    pub id: Uuid,
    /// The store that contains the object or that the action concerns; `None` if the
    /// object is a store.
    pub store_id: Option<StoreId>,
}

impl Audited {
    /// The day of the entry, in days since 1970 (UTC).
    pub(crate) const fn day(&self) -> i64 {
        self.at.as_micros().div_euclid(86_400_000_000)
    }
}

impl AuditObject {
    /// An object outside of any store.
    pub const fn new(id: Uuid) -> Self {
        Self { id, store_id: None }
    }

    /// An object in a store, or an action that concerns a store.
    pub const fn in_store(id: Uuid, store_id: StoreId) -> Self {
        Self { id, store_id: Some(store_id) }
    }
}

keepsake_core::named_enum! {
    /// An action in the audit of tenants. Its name never changes: the kind of object, a
    /// dot, the action.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum AuditAction {
        TenantCreated = "tenant.create",
        TenantUpdated = "tenant.update",
        TenantSuspended = "tenant.suspend",
        TenantResumed = "tenant.resume",
        TenantDeleted = "tenant.delete",
        KeyCreated = "api_key.create",
        KeyRevoked = "api_key.revoke",
        StoreCreated = "memory_store.create",
        /// Name, description or metadata.
        StoreUpdated = "memory_store.update",
        /// Sensitive data or expiry, possibly with other changes.
        StorePolicyUpdated = "memory_store.update_policy",
        StoreArchived = "memory_store.archive",
        StoreDeleted = "memory_store.delete",
        /// The beginning of the import of a history.
        StoreImported = "memory_store.import",
        VersionRedacted = "memory_version.redact",
        SessionCreated = "session.create",
        SessionUpdated = "session.update",
        SessionArchived = "session.archive",
        SessionDeleted = "session.delete",
        ResourceAdded = "session.add_resource",
        ResourceUpdated = "session.update_resource",
        ResourceDeleted = "session.delete_resource",
        SessionTokenIssued = "session.issue_token",
        ErasureCreated = "erasure.create",
        ErasureFinished = "erasure.finish",
    }
}

/// The action name of a job run by hand; a job has no id.
pub(crate) fn job_action(job: &str, is_dry_run: bool) -> String {
    let done = if is_dry_run { "dry_run" } else { "run" };
    format!("job.{done}.{job}")
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditEntry {
    pub id: Uuid,
    pub at: Timestamp,
    /// The text of an [`Auditor`].
    pub actor: String,
    /// The name of an [`AuditAction`].
    pub action: String,
    /// The action determines the kind of the object.
    pub object_id: Option<Uuid>,
    /// The store that contains the object or that the action concerns; `None` if the
    /// object is a store.
    pub store_id: Option<StoreId>,
}

pub fn audit_object_type(action: &str) -> &str {
    action.split('.').next().unwrap_or_default()
}

/// The id of an action's object as the API writes it; a UUID if it has no routes.
pub fn audit_object_id(action: &str, id: Uuid) -> String {
    match audit_object_type(action) {
        "tenant" => TenantId::from_uuid(id).to_string(),
        "api_key" => ApiKeyId::from_uuid(id).to_string(),
        "memory_store" => StoreId::from_uuid(id).to_string(),
        "memory_version" => VersionId::from_uuid(id).to_string(),
        "session" => SessionId::from_uuid(id).to_string(),
        "erasure" => ErasureId::from_uuid(id).to_string(),
        _ => id.to_string(),
    }
}

/// Parses the id of an object of any kind in the audit.
pub fn parse_audit_object_id(text: &str) -> Option<Uuid> {
    let store = text.parse().map(StoreId::uuid);
    store
        .or_else(|_| text.parse().map(SessionId::uuid))
        .or_else(|_| text.parse().map(VersionId::uuid))
        .or_else(|_| text.parse().map(ApiKeyId::uuid))
        .or_else(|_| text.parse().map(ErasureId::uuid))
        .or_else(|_| text.parse().map(TenantId::uuid))
        .ok()
}

/// Filters of a tenant's audit log.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AuditFilter {
    /// Written at or after this time.
    pub created_from: Option<Timestamp>,
    /// Written at or before this time.
    pub created_to: Option<Timestamp>,
    pub action: Option<AuditAction>,
    /// Only actions of this actor: an API key, a session, or the subject of a token of
    /// a user or a service account.
    pub actor_id: Option<String>,
    pub object_id: Option<Uuid>,
}

impl AuditFilter {
    /// The two forms that [`Self::actor_id`] can have in a row.
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

/// A position in the order of an audit log.
pub type AuditPlace = (Timestamp, Uuid);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn audit_object_ids_round_trip() {
        let uuid = Uuid::from_u128(7);
        for action in AuditAction::ALL {
            let shown = audit_object_id(action.name(), uuid);
            assert_eq!(parse_audit_object_id(&shown), Some(uuid), "{}", action.name());
        }
        assert_eq!(parse_audit_object_id("00000000-0000-0000-0000-000000000007"), None);
    }
}
