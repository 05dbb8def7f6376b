//! Who made a change, as a version remembers it.

use crate::id::ApiKeyId;

/// The one who made a change; a job or the operator leaves none.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Actor {
    /// A request that carried an API key.
    ApiKey(ApiKeyId),
}

impl Actor {
    /// The protocol's name for this kind of actor, as the index stores it.
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::ApiKey(_) => "api_actor",
        }
    }

    /// The actor's own id, as the index stores it.
    pub fn id(&self) -> String {
        match self {
            Self::ApiKey(api_key_id) => api_key_id.to_string(),
        }
    }
}
