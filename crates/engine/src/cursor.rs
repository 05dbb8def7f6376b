//! Pages of a listing, and the cursors between them.
//!
//! [`keepsake_core::cursor`] defines the format of a cursor. This module adds
//! the key that signs it, and the tenant and query that it is valid for.

use keepsake_core::{ContentHash, TenantId, Timestamp, cursor};
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
        u32::try_from(limit).ok().filter(|limit| (1..=max).contains(limit)).ok_or_else(|| {
            EngineError::Invalid { field: "limit", rule: format!("must be 1 to {max}, but is {limit}") }
        })
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

    /// The cursor leads to the page after the item at `position`.
    pub(crate) async fn seal(&self, query: Query, position: &[u8]) -> Result<String, EngineError> {
        let key = self.key().await?;
        Ok(cursor::seal(key.expose(), &query.0, position))
    }

    /// `items` were queried with one more than the limit.
    pub(crate) async fn page<T>(
        &self,
        query: Query,
        mut items: Vec<T>,
        limit: u32,
        position: impl Fn(&T) -> Vec<u8>,
    ) -> Result<Page<T>, EngineError> {
        let has_more = items.len() > limit as usize;
        items.truncate(limit as usize);
        let next = match items.last() {
            Some(last) if has_more => Some(self.seal(query, &position(last)).await?),
            _ => None,
        };
        Ok(Page { items, next })
    }

    /// The position that a page starts after; `None`: the first page. A cursor of another
    /// query is invalid.
    pub(crate) async fn position(
        &self,
        query: Query,
        page: &PageRequest,
    ) -> Result<Option<Vec<u8>>, EngineError> {
        let Some(page) = &page.page else {
            return Ok(None);
        };
        let key = self.key().await?;
        let position = cursor::unseal(key.expose(), &query.0, page);
        position.map(Some).map_err(|rule| EngineError::Invalid { field: "page", rule: rule.to_string() })
    }

    /// Like [`Self::position`], parsed with `parse`.
    pub(crate) async fn after<T>(
        &self,
        query: Query,
        page: &PageRequest,
        parse: impl FnOnce(&[u8]) -> Option<T>,
    ) -> Result<Option<T>, EngineError> {
        let Some(position) = self.position(query, page).await? else {
            return Ok(None);
        };
        let after = parse(&position).ok_or(EngineError::Internal("a cursor with another position"))?;
        Ok(Some(after))
    }

    /// The key is read once per process; the index stores it so that every replica has
    /// the same key.
    pub(crate) async fn key(&self) -> Result<&Secret, EngineError> {
        let fetch = self.secrets.shared("cursor");
        self.key.get_or_try_init(|| fetch).await
    }
}

pub(crate) fn parse_text(position: &[u8]) -> Option<String> {
    String::from_utf8(position.to_vec()).ok()
}

pub(crate) fn parse_id(position: &[u8]) -> Option<Uuid> {
    Uuid::from_slice(position).ok()
}

pub(crate) fn parse_number(position: &[u8]) -> Option<i64> {
    Some(i64::from_be_bytes(position.try_into().ok()?))
}

pub(crate) fn time_and_id(at: Timestamp, id: Uuid) -> Vec<u8> {
    [at.as_micros().to_be_bytes().as_slice(), id.as_bytes()].concat()
}

pub(crate) fn parse_time_and_id(position: &[u8]) -> Option<(Timestamp, Uuid)> {
    let (at, id) = position.split_at_checked(8)?;
    Some((Timestamp::from_micros(parse_number(at)?), parse_id(id)?))
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
