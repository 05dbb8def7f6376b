//! The author of a change, as a version records it.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::id::{ApiKeyId, SessionId};
use crate::schemas;

/// The author of a change. Changes by a job or an operator have no actor.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize)]
#[serde(into = "VersionActor")]
pub enum Actor {
    ApiKey(ApiKeyId),
    Session(SessionId),
    /// A person, named by the subject of a token.
    User(String),
    /// A workload, named by the subject of a token.
    ServiceAccount(String),
    /// An author named by an imported history. A caller can import a history with any author
    /// id, so no credential of this server has this kind.
    Imported(ActorKind, String),
}

crate::named_enum! {
    /// The protocol's name for a kind of actor, as the index stores it.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
    pub enum ActorKind {
        ApiKey = "api_actor",
        Session = "session_actor",
        User = "user_actor",
        ServiceAccount = "service_account_actor",
    }
}

/// The prefix of the stored kind of an imported actor.
const IMPORTED: &str = "imported_";

impl ActorKind {
    /// The kind of an imported actor, as the index stores it.
    pub const fn imported_name(self) -> &'static str {
        match self {
            Self::ApiKey => "imported_api_actor",
            Self::Session => "imported_session_actor",
            Self::User => "imported_user_actor",
            Self::ServiceAccount => "imported_service_account_actor",
        }
    }
}

impl Actor {
    /// The kind, as the index stores it.
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::ApiKey(_) => ActorKind::ApiKey.name(),
            Self::Session(_) => ActorKind::Session.name(),
            Self::User(_) => ActorKind::User.name(),
            Self::ServiceAccount(_) => ActorKind::ServiceAccount.name(),
            Self::Imported(kind, _) => kind.imported_name(),
        }
    }

    /// The actor's own id, as the index stores it.
    pub fn id(&self) -> String {
        match self {
            Self::ApiKey(api_key_id) => api_key_id.to_string(),
            Self::Session(session_id) => session_id.to_string(),
            Self::User(id) | Self::ServiceAccount(id) | Self::Imported(_, id) => id.clone(),
        }
    }

    /// `None` if the kind is unknown or the id does not belong to this kind.
    pub fn from_stored(kind: &str, id: &str) -> Option<Self> {
        if let Some(kind) = kind.strip_prefix(IMPORTED) {
            return Some(Self::Imported(ActorKind::parse(kind)?, id.to_owned()));
        }
        Some(match ActorKind::parse(kind)? {
            ActorKind::ApiKey => Self::ApiKey(id.parse().ok()?),
            ActorKind::Session => Self::Session(id.parse().ok()?),
            ActorKind::User => Self::User(id.to_owned()),
            ActorKind::ServiceAccount => Self::ServiceAccount(id.to_owned()),
        })
    }
}

/// The author of a change.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "type", deny_unknown_fields)]
pub enum VersionActor {
    /// A request that carried an API key.
    #[serde(rename = "api_actor")]
    Api {
        #[schema(value_type = schemas::ForeignId)]
        api_key_id: String,
        /// Only there if true: an imported history names this author, with any id.
        #[serde(default, skip_serializing_if = "is_false")]
        imported: bool,
    },
    /// An agent within a session.
    #[serde(rename = "session_actor")]
    Session {
        #[schema(value_type = schemas::ForeignId)]
        session_id: String,
        /// Only there if true: an imported history names this author, with any id.
        #[serde(default, skip_serializing_if = "is_false")]
        imported: bool,
    },
    /// A person.
    #[serde(rename = "user_actor")]
    User {
        user_id: String,
        /// Only there if true: an imported history names this author, with any id.
        #[serde(default, skip_serializing_if = "is_false")]
        imported: bool,
    },
    /// A workload.
    #[serde(rename = "service_account_actor")]
    ServiceAccount {
        service_account_id: String,
        /// Only there if true: an imported history names this author, with any id.
        #[serde(default, skip_serializing_if = "is_false")]
        imported: bool,
    },
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_false(value: &bool) -> bool {
    !value
}

impl From<Actor> for VersionActor {
    fn from(actor: Actor) -> Self {
        match actor {
            Actor::ApiKey(id) => Self::Api { api_key_id: id.to_string(), imported: false },
            Actor::Session(id) => Self::Session { session_id: id.to_string(), imported: false },
            Actor::User(user_id) => Self::User { user_id, imported: false },
            Actor::ServiceAccount(service_account_id) => {
                Self::ServiceAccount { service_account_id, imported: false }
            }
            Actor::Imported(ActorKind::ApiKey, api_key_id) => Self::Api { api_key_id, imported: true },
            Actor::Imported(ActorKind::Session, session_id) => Self::Session { session_id, imported: true },
            Actor::Imported(ActorKind::User, user_id) => Self::User { user_id, imported: true },
            Actor::Imported(ActorKind::ServiceAccount, service_account_id) => {
                Self::ServiceAccount { service_account_id, imported: true }
            }
        }
    }
}

impl VersionActor {
    /// The kind, and the id that a caller may have chosen.
    pub fn into_parts(self) -> (ActorKind, String) {
        match self {
            Self::Api { api_key_id, .. } => (ActorKind::ApiKey, api_key_id),
            Self::Session { session_id, .. } => (ActorKind::Session, session_id),
            Self::User { user_id, .. } => (ActorKind::User, user_id),
            Self::ServiceAccount { service_account_id, .. } => {
                (ActorKind::ServiceAccount, service_account_id)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    #[test]
    fn stored_actor_round_trips() {
        let own = [
            Actor::ApiKey(ApiKeyId::from_uuid(Uuid::from_u128(7))),
            Actor::Session(SessionId::from_uuid(Uuid::from_u128(8))),
            Actor::User("ada".to_owned()),
            Actor::ServiceAccount("ci".to_owned()),
        ];
        let kinds = [ActorKind::ApiKey, ActorKind::Session, ActorKind::User, ActorKind::ServiceAccount];
        let imported = kinds.map(|kind| Actor::Imported(kind, "nobody".to_owned()));
        for actor in own.into_iter().chain(imported) {
            assert_eq!(Actor::from_stored(actor.kind(), &actor.id()), Some(actor));
        }
        for unknown in ["api_actor", "imported_robot", "robot"] {
            assert_eq!(Actor::from_stored(unknown, "nobody"), None);
        }
    }
}
