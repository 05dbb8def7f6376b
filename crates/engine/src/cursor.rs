//! Pages of a listing, and the cursors that lead from one to the next.
//!
//! What a cursor is made of is in [`keepsake_core::cursor`]; here are the key
//! that signs it and the tenant and query that it is signed for.

use keepsake_core::cursor;
use keepsake_tokens::Secret;
use tokio::sync::OnceCell;
use uuid::Uuid;

use crate::idempotency::digest;
use crate::{Engine, EngineError};

/// Items of a page where none is asked for, and the most with full content.
const DEFAULT_LIMIT: u32 = 20;
/// Items of a page, at most.
const MAX_LIMIT: u32 = 100;
/// Items of a page of what belongs to one session, at most, as the SDKs document it.
pub(crate) const MAX_SESSION_LIMIT: u32 = 1_000;

/// The key that cursors are signed with, the same on every replica.
#[derive(Debug, Default)]
pub(crate) struct Key(OnceCell<Secret>);

/// Which part of a listing is wanted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PageRequest {
    /// Items: 1 to 100, 1 to 1,000 of what belongs to a session.
    pub limit: Option<u64>,
    /// The `next` of the page before.
    pub page: Option<String>,
}

impl PageRequest {
    /// The items wanted; with content, no more than 20.
    pub(crate) fn limit(&self, with_content: bool) -> Result<u32, EngineError> {
        let limit = self.limit_within(MAX_LIMIT, DEFAULT_LIMIT)?;
        Ok(if with_content {
            limit.min(DEFAULT_LIMIT)
        } else {
            limit
        })
    }

    /// The items wanted of a page that may have up to 1,000: events.
    pub(crate) fn session_limit(&self) -> Result<u32, EngineError> {
        self.limit_within(MAX_SESSION_LIMIT, DEFAULT_LIMIT)
    }

    /// The items wanted, at most `max`; `default` where no limit is set.
    pub(crate) fn limit_within(&self, max: u32, default: u32) -> Result<u32, EngineError> {
        let Some(limit) = self.limit else {
            return Ok(default);
        };
        u32::try_from(limit)
            .ok()
            .filter(|limit| (1..=max).contains(limit))
            .ok_or_else(|| EngineError::Invalid {
                field: "limit",
                rule: format!("must be 1 to {max}, but is {limit}"),
            })
    }
}

/// A part of a listing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page<T> {
    /// The items.
    pub items: Vec<T>,
    /// Leads to the next part; `None`: this is the last.
    pub next: Option<String>,
}

impl<T> Page<T> {
    /// The same page with its items shown otherwise.
    pub fn map<U>(self, show: impl FnMut(T) -> U) -> Page<U> {
        Page {
            items: self.items.into_iter().map(show).collect(),
            next: self.next,
        }
    }
}

/// A listing's identity: the tenant, and everything that was asked but for the
/// page's size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Query([u8; 32]);

impl Query {
    pub(crate) fn of(parts: &[&[u8]]) -> Self {
        Self(digest(parts))
    }
}

impl Engine {
    /// The cursor that stands behind the item at `position`.
    pub(crate) async fn seal(&self, query: Query, position: &[u8]) -> Result<String, EngineError> {
        let key = self.cursor_key().await?;
        Ok(cursor::seal(key.expose(), &query.0, position))
    }

    /// A page of items that were looked up with one more than it has.
    pub(crate) async fn page_of<T>(
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

    /// The id that a page's cursor stands behind; `None`: it is the first page.
    ///
    /// # Errors
    /// [`EngineError::Invalid`] as [`Self::unseal`].
    pub(crate) async fn after_id(
        &self,
        query: Query,
        page: &PageRequest,
    ) -> Result<Option<Uuid>, EngineError> {
        let Some(page) = &page.page else {
            return Ok(None);
        };
        let position = self.unseal(query, page).await?;
        let id = Uuid::from_slice(&position).map_err(|_| EngineError::Internal("a cursor of no id"))?;
        Ok(Some(id))
    }

    /// The position in a cursor, if it was made for this query.
    ///
    /// # Errors
    /// [`EngineError::Invalid`] when it was not.
    pub(crate) async fn unseal(&self, query: Query, page: &str) -> Result<Vec<u8>, EngineError> {
        let key = self.cursor_key().await?;
        cursor::unseal(key.expose(), &query.0, page).map_err(|rule| EngineError::Invalid {
            field: "page",
            rule: rule.to_string(),
        })
    }

    /// Fetched once per process; kept in the index so that every replica has it.
    pub(crate) async fn cursor_key(&self) -> Result<&Secret, EngineError> {
        let fetch = self.shared_secret("cursor");
        self.0.cursors.0.get_or_try_init(|| fetch).await
    }
}
