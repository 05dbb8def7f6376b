//! Public ids: a prefix that names the kind, then 26 characters of base32.
//!
//! The 26 characters are a UUID version 7 in Crockford's alphabet. Its byte order
//! is its numeric order, so ids of one kind sort by creation time. The database
//! stores the UUID; clients see the text.

use std::borrow::Cow;
use std::fmt;
use std::hash::Hash;
use std::marker::PhantomData;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use utoipa::openapi::RefOr;
use utoipa::openapi::schema::Schema;
use utoipa::{PartialSchema, ToSchema};
use uuid::Uuid;

use crate::schemas;

const ALPHABET: &[u8; 32] = b"0123456789ABCDEFGHJKMNPQRSTVWXYZ";
/// Characters after the prefix: 128 bits, five per character.
const BODY_CHARS: usize = 26;

/// A kind of object that has ids; the prefix is part of the protocol.
pub trait IdKind: Copy + Ord + Hash {
    /// The prefix of ids of this kind, underscore included.
    const PREFIX: &'static str;
    /// The name of the schema of these ids, and its description.
    const SCHEMA: (&'static str, &'static str);
}

macro_rules! id_kinds {
    ($($alias:ident, $kind:ident, $prefix:literal, $schema:literal, $description:literal;)*) => {$(
        /// Marks the kind of an id; has no values.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $kind {}
        impl IdKind for $kind {
            const PREFIX: &'static str = $prefix;
            const SCHEMA: (&'static str, &'static str) = ($schema, $description);
        }
        #[doc = $description]
        pub type $alias = Id<$kind>;
    )*};
}

// A tenant is called a workspace in the API. A version's id also names the blob of the content that
// it introduced.
id_kinds! {
    TenantId, TenantKind, "wrkspc_", "WorkspaceId", "The id of a tenant.";
    StoreId, StoreKind, "memstore_", "MemoryStoreId", "The id of a memory store.";
    MemoryId, MemoryKind, "mem_", "MemoryId", "The id of a memory; edits and renames do not change it.";
    VersionId, VersionKind, "memver_", "MemoryVersionId", "The id of a memory version.";
    ApiKeyId, ApiKeyKind, "apikey_", "ApiKeyId", "The id of an API key; not the secret.";
    SessionId, SessionKind, "sesn_", "SessionId", "The id of a session.";
    ResourceId, ResourceKind, "sesrsc_", "SessionResourceId", "The id of a memory store's attachment to a session.";
    EventId, EventKind, "sevt_", "SessionEventId", "The id of an event of a session.";
    ErasureId, ErasureKind, "erasure_", "ErasureId", "The id of an erasure.";
    MemoryUndoId, MemoryUndoKind, "memundo_", "MemoryUndoId", "The id of an undo in several commits.";
    AuditEntryId, AuditEntryKind, "audit_", "AuditEntryId", "The id of an audit entry.";
    RequestId, RequestKind, "req_", "RequestId", "The id of a request, as in the server's log.";
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Id<K> {
    uuid: Uuid,
    kind: PhantomData<K>,
}

impl<K> Id<K> {
    /// Wraps a UUID that is known to name an object of this kind.
    pub const fn from_uuid(uuid: Uuid) -> Self {
        Self { uuid, kind: PhantomData }
    }

    pub const fn uuid(self) -> Uuid {
        self.uuid
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("is not a whole id: `{expected_prefix}` and {chars} characters", chars = BODY_CHARS)]
pub struct IdError {
    pub expected_prefix: &'static str,
}

impl<K: IdKind> FromStr for Id<K> {
    type Err = IdError;

    fn from_str(text: &str) -> Result<Self, IdError> {
        let refused = IdError { expected_prefix: K::PREFIX };
        let body = text.strip_prefix(K::PREFIX).ok_or(refused)?;
        decode(body).map(|bits| Self::from_uuid(Uuid::from_u128(bits))).ok_or(refused)
    }
}

impl<K: IdKind> fmt::Display for Id<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bits = self.uuid.as_u128();
        let mut body = [0_u8; BODY_CHARS];
        for (position, byte) in body.iter_mut().enumerate() {
            let shift = 5 * (BODY_CHARS - 1 - position);
            *byte = ALPHABET[((bits >> shift) & 31) as usize];
        }
        f.write_str(K::PREFIX)?;
        f.write_str(std::str::from_utf8(&body).map_err(|_| fmt::Error)?)
    }
}

fn decode(body: &str) -> Option<u128> {
    if body.len() != BODY_CHARS {
        return None;
    }
    let mut bits: u128 = 0;
    for (position, byte) in body.bytes().enumerate() {
        let digit = ALPHABET.iter().position(|&letter| letter == byte)? as u128;
        // 26 characters carry 130 bits: the first may only use its low three.
        if position == 0 && digit > 7 {
            return None;
        }
        bits = (bits << 5) | digit;
    }
    Some(bits)
}

impl<K: IdKind> fmt::Debug for Id<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
/// Reads an id from the text of its UUID.
pub(crate) fn some_from_uuid<'de, K, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Id<K>>, D::Error> {
    let uuid = String::deserialize(deserializer)?;
    Uuid::parse_str(&uuid).map(|uuid| Some(Id::from_uuid(uuid))).map_err(serde::de::Error::custom)
}

impl<K: IdKind> Serialize for Id<K> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}
impl<'de, K: IdKind> Deserialize<'de> for Id<K> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

impl<K: IdKind> PartialSchema for Id<K> {
    fn schema() -> RefOr<Schema> {
        let id = schemas::text(K::SCHEMA.1)
            .pattern(Some(format!("^{}[0-7][0-9A-HJKMNP-TV-Z]{{25}}$", K::PREFIX)))
            .examples([format!("{}01KAK5R2M0E9V7Q3C4D8X6Y1ZT", K::PREFIX)]);
        RefOr::T(id.into())
    }
}
impl<K: IdKind> ToSchema for Id<K> {
    fn name() -> Cow<'static, str> {
        Cow::Borrowed(K::SCHEMA.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn text_is_the_prefix_of_its_kind_and_26_letters() {
        let last = StoreId::from_uuid(Uuid::from_u128(u128::MAX));
        assert_eq!(last.to_string(), "memstore_7ZZZZZZZZZZZZZZZZZZZZZZZZZ");
        let good = "memstore_00000000000000000000000001";
        assert_eq!(good.parse(), Ok(StoreId::from_uuid(Uuid::from_u128(1))));
        assert!(good.parse::<MemoryId>().is_err());
        for bad in [
            "",
            "memstore_80000000000000000000000000",
            "memstore_0000000000000000000000000U",
            "memstore_0000000000000000000000002d",
            &format!("{good}0"),
        ] {
            assert!(bad.parse::<StoreId>().is_err(), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn text_round_trips_and_sorts_as_the_uuid(a: u128, b: u128) {
            let (a, b) = (MemoryId::from_uuid(Uuid::from_u128(a)), MemoryId::from_uuid(Uuid::from_u128(b)));
            prop_assert_eq!(a.to_string().parse::<MemoryId>().unwrap(), a);
            prop_assert_eq!(a.cmp(&b), a.to_string().cmp(&b.to_string()));
        }
    }
}
