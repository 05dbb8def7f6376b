//! The author of a change, as a version records it.

use crate::id::{ApiKeyId, SessionId};

/// The author of a change. Changes by a job or an operator have no actor.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Actor {
    /// A request authenticated by an API key.
    ApiKey(ApiKeyId),
    /// An agent in a session.
    Session(SessionId),
    /// A person, named by the subject of a token.
    User(String),
    /// A workload, named by the subject of a token.
    ServiceAccount(String),
    /// An author of an imported history, with an id of another server.
    Imported(ActorKind, String),
}

crate::named_enum! {
    /// The protocol's name for a kind of actor, as the index stores it.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
    pub enum ActorKind {
        ApiKey = "api_actor",
        Session = "session_actor",
        User = "user_actor",
        ServiceAccount = "service_account_actor",
    }
}

impl Actor {
    /// The protocol's name for this kind of actor, as the index stores it.
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::ApiKey(_) => ActorKind::ApiKey.name(),
            Self::Session(_) => ActorKind::Session.name(),
            Self::User(_) => ActorKind::User.name(),
            Self::ServiceAccount(_) => ActorKind::ServiceAccount.name(),
            Self::Imported(kind, _) => kind.name(),
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

    /// The actor with this kind and id, which may be those of another server.
    pub fn of(kind: ActorKind, id: &str) -> Self {
        let imported = || Self::Imported(kind, id.to_owned());
        match kind {
            ActorKind::ApiKey => id.parse().map_or_else(|_| imported(), Self::ApiKey),
            ActorKind::Session => id.parse().map_or_else(|_| imported(), Self::Session),
            ActorKind::User => Self::User(id.to_owned()),
            ActorKind::ServiceAccount => Self::ServiceAccount(id.to_owned()),
        }
    }

    /// Reads an actor of this server; `None` if the kind is unknown, or the id is one of
    /// another server.
    pub fn from_stored(kind: &str, id: &str) -> Option<Self> {
        let actor = ActorKind::parse(kind).map(|kind| Self::of(kind, id));
        actor.filter(|actor| !matches!(actor, Self::Imported(..)))
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    #[test]
    fn stored_actor_round_trips() {
        for actor in [
            Actor::ApiKey(ApiKeyId::from_uuid(Uuid::from_u128(7))),
            Actor::Session(SessionId::from_uuid(Uuid::from_u128(8))),
            Actor::User("ada".to_owned()),
            Actor::ServiceAccount("ci".to_owned()),
        ] {
            assert_eq!(Actor::from_stored(actor.kind(), &actor.id()), Some(actor));
        }
        assert_eq!(Actor::from_stored("api_actor", "nobody"), None);
        assert_eq!(
            Actor::of(ActorKind::ApiKey, "nobody"),
            Actor::Imported(ActorKind::ApiKey, "nobody".to_owned())
        );
        assert_eq!(Actor::from_stored("robot", "x"), None);
    }
}
