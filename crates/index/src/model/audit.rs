//! The audit log: actor, action, object and time of each action; never a name or a
//! path.

use std::fmt;

use keepsake_core::schemas::{self, AuditEntryType};
use keepsake_core::{
    Actor, ApiKeyId, AuditEntryId, ErasureId, SessionId, StoreId, TenantId, Timestamp, VersionId, words,
};
use serde::Serialize;
use serde_json::{Map, Value};
use utoipa::ToSchema;
use uuid::Uuid;

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(into = "Option<AuditActor>")]
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

    /// Reads the text that the audit log stores.
    pub fn parse(text: &str) -> Option<Self> {
        let actor = match text.split_once(':') {
            None if text == "operator" => return Some(Self::Operator),
            None if text == "operator_cli" => return Some(Self::OperatorCli),
            None if text == "job" => return Some(Self::Job),
            Some(("api_key", id)) => Actor::ApiKey(id.parse().ok()?),
            Some(("session", id)) => Actor::Session(id.parse().ok()?),
            Some(("user", subject)) => Actor::User(subject.to_owned()),
            Some(("service_account", subject)) => Actor::ServiceAccount(subject.to_owned()),
            _ => return None,
        };
        Some(Self::Credential(actor))
    }
}

/// The text that the audit log stores.
impl fmt::Display for Auditor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.kind())?;
        self.actor().map_or(Ok(()), |actor| write!(f, ":{}", actor.id()))
    }
}

/// The actor of an action.
#[derive(Debug, Serialize, ToSchema)]
#[serde(tag = "type")]
pub enum AuditActor {
    /// A request that carried an API key.
    #[serde(rename = "api_actor")]
    Api { api_key_id: ApiKeyId },
    /// An agent within a session.
    #[serde(rename = "session_actor")]
    Session { session_id: SessionId },
    /// A person.
    #[serde(rename = "user_actor")]
    User { user_id: String },
    /// A workload.
    #[serde(rename = "service_account_actor")]
    ServiceAccount { service_account_id: String },
    /// Who runs the server.
    #[serde(rename = "operator_actor")]
    Operator,
}

impl From<Auditor> for Option<AuditActor> {
    fn from(auditor: Auditor) -> Self {
        Some(match auditor {
            Auditor::Credential(Actor::ApiKey(api_key_id)) => AuditActor::Api { api_key_id },
            Auditor::Credential(Actor::Session(session_id)) => AuditActor::Session { session_id },
            Auditor::Credential(Actor::User(user_id)) => AuditActor::User { user_id },
            Auditor::Credential(Actor::ServiceAccount(service_account_id)) => {
                AuditActor::ServiceAccount { service_account_id }
            }
            Auditor::Operator | Auditor::OperatorCli => AuditActor::Operator,
            // The author of an imported version belongs to another server, and has no credential here.
            Auditor::Job | Auditor::Credential(Actor::Imported(..)) => return None,
        })
    }
}

/// An audited action, written in the same transaction as the action itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditedAction {
    pub id: Uuid,
    pub at: Timestamp,
    pub by: Auditor,
    /// Maximum number of entries per day (UTC) by the tenant's credentials; `None`: no
    /// limit.
    pub entries_per_day: Option<u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AuditObject<'a> {
    /// The action determines the kind of the object.
    pub id: Uuid,
    /// The store that contains the object or that the action concerns; `None` if the
    /// object is a store.
    pub store_id: Option<StoreId>,
    /// The object's settings that the action changed.
    pub changes: Option<&'a Map<String, Value>>,
}

impl AuditedAction {
    /// The day of the entry, in days since 1970 (UTC).
    pub(crate) const fn day(&self) -> i64 {
        self.at.as_micros().div_euclid(86_400_000_000)
    }
}

impl AuditObject<'_> {
    /// An object outside of any store.
    pub const fn new(id: Uuid) -> Self {
        Self { id, store_id: None, changes: None }
    }

    /// An object in a store, or an action that concerns a store.
    pub const fn in_store(id: Uuid, store_id: StoreId) -> Self {
        Self { id, store_id: Some(store_id), changes: None }
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

keepsake_core::shown_by_name!(AuditAction as "AuditAction" => "An audited action.";);

impl AuditAction {
    /// The action for people.
    pub const fn words(self) -> &'static str {
        match self {
            Self::TenantCreated => "created a tenant",
            Self::TenantUpdated => "changed a tenant",
            Self::TenantSuspended => "suspended a tenant",
            Self::TenantResumed => "resumed a tenant",
            Self::TenantDeleted => "deleted a tenant",
            Self::KeyCreated => "created an API key",
            Self::KeyRevoked => "revoked an API key",
            Self::StoreCreated => "created a store",
            Self::StoreUpdated => "changed a store",
            Self::StorePolicyUpdated => "changed a store's policy",
            Self::StoreArchived => "archived a store",
            Self::StoreDeleted => "deleted a store",
            Self::StoreImported => "imported a store's history",
            Self::VersionRedacted => "redacted a version",
            Self::SessionCreated => "created a session",
            Self::SessionUpdated => "changed a session",
            Self::SessionArchived => "archived a session",
            Self::SessionDeleted => "deleted a session",
            Self::ResourceAdded => "added a store to a session",
            Self::ResourceUpdated => "changed a session's store",
            Self::ResourceDeleted => "removed a store from a session",
            Self::SessionTokenIssued => "issued a session's token",
            Self::ErasureCreated => "started an erasure",
            Self::ErasureFinished => "finished an erasure",
        }
    }
}

keepsake_core::named_enum! {
    /// An action on the server's secrets, which only the operator's audit has.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub(crate) enum TokenKeyAction {
        Rotated = "token_key.rotate",
        Distrusted = "token_key.distrust",
    }
}

impl TokenKeyAction {
    const fn words(self) -> &'static str {
        match self {
            Self::Rotated => "rotated the token signing key",
            Self::Distrusted => "rotated the token signing key, and distrusted the older ones",
        }
    }
}

keepsake_core::named_enum! {
    /// Actions that only the operator's audit has. The name is the first part of theirs.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum OperatorActions {
        Jobs = "job",
        TokenKeys = "token_key",
    }
}

impl OperatorActions {
    /// The actions for people.
    pub const fn words(self) -> &'static str {
        match self {
            Self::Jobs => "ran or tried a job",
            Self::TokenKeys => "rotated the token signing key",
        }
    }
}

const JOB_RUN: &str = "job.run.";
const JOB_DRY_RUN: &str = "job.dry_run.";

/// The action name of a job run by hand; a job has no id.
pub(crate) fn job_action(job: &str, is_dry_run: bool) -> String {
    format!("{}{job}", if is_dry_run { JOB_DRY_RUN } else { JOB_RUN })
}

/// The job of an action name; `None`: it is another action.
pub fn job_of_action(action: &str) -> Option<&str> {
    [JOB_RUN, JOB_DRY_RUN].iter().find_map(|start| action.strip_prefix(start))
}

/// An action name of any audit in words. The name itself if it is not known.
pub fn action_words(action: &str) -> String {
    let known = AuditAction::parse(action).map(AuditAction::words);
    if let Some(words) = known.or_else(|| TokenKeyAction::parse(action).map(TokenKeyAction::words)) {
        return words.to_owned();
    }
    match job_of_action(action) {
        Some(job) if action.starts_with(JOB_DRY_RUN) => format!("tried the job {job} without changes"),
        Some(job) => format!("ran the job {job}"),
        None => action.to_owned(),
    }
}

/// The changes of an entry for people: `bytes_per_store default → 1GiB, name`.
pub fn changes_words(changes: &Map<String, Value>) -> String {
    let shown = |name: &str, value: &Value| match value {
        Value::Number(number) => words::typed_limit(name, number.as_u64().unwrap_or_default()),
        Value::String(text) => text.clone(),
        _ => "default".to_owned(),
    };
    let words = changes.iter().map(|(name, change)| match (change.get("from"), change.get("to")) {
        (Some(from), Some(to)) => format!("{name} {} → {}", shown(name, from), shown(name, to)),
        _ => name.clone(),
    });
    words.collect::<Vec<_>>().join(", ")
}

/// One action. It holds no content, path, name or secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct AuditEntry {
    pub id: AuditEntryId,
    #[schema(inline)]
    pub r#type: AuditEntryType,
    #[serde(rename = "created_at")]
    pub at: Timestamp,
    /// The actor; null for a job of the server.
    #[schema(value_type = Option<AuditActor>, required)]
    pub actor: Auditor,
    // A job run by hand has an action outside of the enum.
    /// Object type and verb, with a dot between them.
    #[schema(value_type = AuditAction)]
    pub action: String,
    /// The object of the action.
    #[schema(required)]
    pub object: Option<AuditedObject>,
    /// The tenant that the action concerned; `None` for a job that an operator ran and for a token key.
    #[serde(skip)]
    pub tenant_id: Option<TenantId>,
    /// The memory store of a redacted version or of a session's resource; null for
    /// other actions.
    #[serde(rename = "memory_store_id")]
    #[schema(required)]
    pub store_id: Option<StoreId>,
    /// The settings of a tenant that the operator changed; the operator's API describes them.
    #[serde(skip)]
    pub changes: Option<Map<String, Value>>,
}

/// The object of an action; it may have been deleted since.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = AuditObject)]
pub struct AuditedObject {
    #[schema(value_type = schemas::AuditObjectId)]
    pub id: String,
    #[schema(value_type = schemas::AuditObjectType)]
    pub r#type: String,
}

impl AuditedObject {
    /// The action determines the kind of the object.
    pub(crate) fn of(action: &str, id: Uuid) -> Self {
        let kind = action.split('.').next().unwrap_or_default();
        let id = match kind {
            "tenant" => TenantId::from_uuid(id).to_string(),
            "api_key" => ApiKeyId::from_uuid(id).to_string(),
            "memory_store" => StoreId::from_uuid(id).to_string(),
            "memory_version" => VersionId::from_uuid(id).to_string(),
            "session" => SessionId::from_uuid(id).to_string(),
            "erasure" => ErasureId::from_uuid(id).to_string(),
            _ => id.to_string(),
        };
        Self { id, r#type: kind.to_owned() }
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

/// Filters of an audit log.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AuditFilter {
    /// Written at or after this time.
    pub created_from: Option<Timestamp>,
    /// Written at or before this time.
    pub created_to: Option<Timestamp>,
    pub action: Option<AuditAction>,
    /// In the operator's audit log, only these actions if `action` is not set.
    pub of_operator: Option<OperatorActions>,
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
    fn stored_objects_and_actors_round_trip() {
        let uuid = Uuid::from_u128(7);
        for action in AuditAction::ALL {
            let shown = AuditedObject::of(action.name(), uuid).id;
            assert_eq!(parse_audit_object_id(&shown), Some(uuid), "{}", action.name());
        }
        assert_eq!(parse_audit_object_id("00000000-0000-0000-0000-000000000007"), None);
        for auditor in [
            Auditor::Operator,
            Auditor::OperatorCli,
            Auditor::Job,
            Auditor::Credential(Actor::Session(SessionId::from_uuid(uuid))),
            Auditor::Credential(Actor::User("a:b".to_owned())),
        ] {
            assert_eq!(Auditor::parse(&auditor.to_string()), Some(auditor));
        }
        assert_eq!(Auditor::parse("robot:x"), None);
    }

    #[test]
    fn actions_have_words() {
        for (action, words) in [
            (AuditAction::StoreDeleted.name(), "deleted a store"),
            (TokenKeyAction::Rotated.name(), "rotated the token signing key"),
            (&job_action("prune", true), "tried the job prune without changes"),
            ("planet.create", "planet.create"),
        ] {
            assert_eq!(action_words(action), words);
        }
    }
}
