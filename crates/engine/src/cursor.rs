//! Pages of a listing, and the cursors between them.
//!
//! [`keepsake_core::cursor`] defines the format of a cursor. This module adds
//! the key that signs it, and the tenant and query that it is valid for.

use keepsake_core::{ContentHash, Id, IdKind, TenantId, Timestamp, cursor};
use keepsake_tokens::Secret;
use serde::Serialize;
use tokio::sync::OnceCell;
use uuid::Uuid;

use crate::EngineError;
use crate::secrets::Secrets;

/// Default number of items of a page, and the maximum with full content.
const DEFAULT_LIMIT: u32 = 20;
const MAX_LIMIT: u32 = 100;
/// Maximum items of a page of a session's resources or events, as the SDKs
/// document it.
pub(crate) const MAX_SESSION_LIMIT: u32 = 1_000;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PageRequest {
    /// Number of items: 1 to 100, or 1 to 1,000 for the events and resources of a
    /// session.
    pub limit: Option<u64>,
    /// The `next` cursor of the previous page.
    pub page: Option<String>,
}

impl PageRequest {
    /// At most 20 with content.
    pub(crate) fn limit(&self, with_content: bool) -> Result<u32, EngineError> {
        let limit = self.limit_within(MAX_LIMIT, DEFAULT_LIMIT)?;
        Ok(if with_content { limit.min(DEFAULT_LIMIT) } else { limit })
    }

    /// At most 1,000, for the events and resources of a session.
    pub(crate) fn session_limit(&self) -> Result<u32, EngineError> {
        self.limit_within(MAX_SESSION_LIMIT, DEFAULT_LIMIT)
    }

    /// `default` if unset.
    pub(crate) fn limit_within(&self, max: u32, default: u32) -> Result<u32, EngineError> {
        let Some(limit) = self.limit else {
            return Ok(default);
        };
        u32::try_from(limit)
            .ok()
            .filter(|limit| (1..=max).contains(limit))
            .ok_or_else(|| EngineError::invalid("limit", format!("must be 1 to {max}, but is {limit}")))
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page<T> {
    pub items: Vec<T>,
    /// Cursor of the next page; `None`: this is the last page.
    pub next: Option<String>,
}

impl<T> Page<T> {
    pub fn map<U>(self, show: impl FnMut(T) -> U) -> Page<U> {
        Page { items: self.items.into_iter().map(show).collect(), next: self.next }
    }
}

/// Identity of a listing: the tenant and every parameter except the page size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Query([u8; 32]);

impl Query {
    /// The listing of this name with a tenant's filter.
    pub(crate) fn filtered(
        name: &str,
        tenant_id: TenantId,
        filter: &impl Serialize,
    ) -> Result<Self, EngineError> {
        let filter = serde_json::to_vec(filter).map_err(|_| EngineError::Internal("a filter is no JSON"))?;
        Ok(Self::of(&[name.as_bytes(), tenant_id.uuid().as_bytes(), &filter]))
    }

    pub(crate) fn of(parts: &[&[u8]]) -> Self {
        Self(digest(parts))
    }
}

#[derive(Debug)]
pub(crate) struct Cursors {
    secrets: Secrets,
    /// The key that signs cursors, once it was read.
    key: OnceCell<Secret>,
}

impl Cursors {
    pub(crate) fn new(secrets: Secrets) -> Self {
        let key = OnceCell::new();
        Self { secrets, key }
    }

    /// The cursor leads to the page after this place.
    pub(crate) async fn seal(&self, query: Query, place: &impl Place) -> Result<String, EngineError> {
        let key = self.key().await?;
        Ok(cursor::seal(key.expose(), &query.0, &place.encode()))
    }

    /// `items` were queried with one more than the limit.
    pub(crate) async fn page<T, P: Place>(
        &self,
        query: Query,
        mut items: Vec<T>,
        limit: u32,
        place: impl Fn(&T) -> P,
    ) -> Result<Page<T>, EngineError> {
        let has_more = items.len() > limit as usize;
        items.truncate(limit as usize);
        let next = match items.last() {
            Some(last) if has_more => Some(self.seal(query, &place(last)).await?),
            _ => None,
        };
        Ok(Page { items, next })
    }

    /// The place that a page starts after; `None`: the first page. A cursor of another
    /// query is invalid.
    pub(crate) async fn after<P: Place>(
        &self,
        query: Query,
        page: &PageRequest,
    ) -> Result<Option<P>, EngineError> {
        let Some(page) = &page.page else {
            return Ok(None);
        };
        let key = self.key().await?;
        let place = cursor::unseal(key.expose(), &query.0, page)
            .map_err(|rule| EngineError::invalid("page", rule.to_string()))?;
        let place = P::decode(&place).ok_or(EngineError::Internal("a cursor with another position"))?;
        Ok(Some(place))
    }

    /// The key is read once per process; the index stores it so that every replica has
    /// the same key.
    pub(crate) async fn key(&self) -> Result<&Secret, EngineError> {
        let fetch = self.secrets.shared("cursor");
        self.key.get_or_try_init(|| fetch).await
    }
}

/// A place in the order of a listing, as a cursor holds it.
pub(crate) trait Place: Sized {
    fn encode(&self) -> Vec<u8>;

    /// `None`: the bytes are no such place.
    fn decode(bytes: &[u8]) -> Option<Self>;
}

impl Place for String {
    fn encode(&self) -> Vec<u8> {
        self.as_bytes().to_vec()
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        Self::from_utf8(bytes.to_vec()).ok()
    }
}

impl Place for i64 {
    fn encode(&self) -> Vec<u8> {
        self.to_be_bytes().to_vec()
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        Some(Self::from_be_bytes(bytes.try_into().ok()?))
    }
}

impl Place for Timestamp {
    fn encode(&self) -> Vec<u8> {
        self.as_micros().encode()
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        i64::decode(bytes).map(Self::from_micros)
    }
}

impl Place for Uuid {
    fn encode(&self) -> Vec<u8> {
        self.as_bytes().to_vec()
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        Self::from_slice(bytes).ok()
    }
}

impl<K: IdKind> Place for Id<K> {
    fn encode(&self) -> Vec<u8> {
        self.uuid().encode()
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        Uuid::decode(bytes).map(Self::from_uuid)
    }
}

impl<P: Place> Place for (Timestamp, P) {
    fn encode(&self) -> Vec<u8> {
        [self.0.encode(), self.1.encode()].concat()
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let (at, rest) = bytes.split_at_checked(8)?;
        Some((Timestamp::decode(at)?, P::decode(rest)?))
    }
}

/// The text of a filter's time, for the identity of a query.
pub(crate) fn time_text(time: Option<Timestamp>) -> String {
    time.map_or(String::new(), |time| time.as_micros().to_string())
}

/// Hashes several parts, each with its length, so that no two lists collide.
pub(crate) fn digest(parts: &[&[u8]]) -> [u8; 32] {
    let mut joined = Vec::new();
    for part in parts {
        joined.extend_from_slice(&(part.len() as u64).to_be_bytes());
        joined.extend_from_slice(part);
    }
    *ContentHash::of(&joined).as_bytes()
}
