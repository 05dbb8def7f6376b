//! Pages of a listing, and the cursors between them.
//!
//! [`keepsake_core::cursor`] defines the format of a cursor. This module adds
//! the key that signs it, and the tenant and query that it is valid for.

use keepsake_core::cursor;
use keepsake_tokens::Secret;
use tokio::sync::OnceCell;
use uuid::Uuid;

use crate::idempotency::digest;
use crate::{Engine, EngineError};

/// Default number of items of a page, and the maximum with full content.
const DEFAULT_LIMIT: u32 = 20;
/// Maximum number of items of a page.
const MAX_LIMIT: u32 = 100;
/// Maximum items of a page of a session's resources or events, as the SDKs
/// document it.
pub(crate) const MAX_SESSION_LIMIT: u32 = 1_000;

/// The key that signs cursors; every replica uses the same.
#[derive(Debug, Default)]
pub(crate) struct Key(OnceCell<Secret>);

/// The requested page of a listing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PageRequest {
    /// Number of items: 1 to 100, or 1 to 1,000 for what belongs to a session.
    pub limit: Option<u64>,
    /// The `next` cursor of the previous page.
    pub page: Option<String>,
}

impl PageRequest {
    /// The requested number of items; at most 20 with content.
    pub(crate) fn limit(&self, with_content: bool) -> Result<u32, EngineError> {
        let limit = self.limit_within(MAX_LIMIT, DEFAULT_LIMIT)?;
        Ok(if with_content {
            limit.min(DEFAULT_LIMIT)
        } else {
            limit
        })
    }

    /// The requested number of items of a page with up to 1,000, as of events.
    pub(crate) fn session_limit(&self) -> Result<u32, EngineError> {
        self.limit_within(MAX_SESSION_LIMIT, DEFAULT_LIMIT)
    }

    /// The requested number of items, at most `max`; `default` if unset.
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

/// A page of a listing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page<T> {
    /// The items.
    pub items: Vec<T>,
    /// Cursor of the next page; `None`: this is the last page.
    pub next: Option<String>,
}

impl<T> Page<T> {
    /// Converts the items of the page.
    pub fn map<U>(self, show: impl FnMut(T) -> U) -> Page<U> {
        Page {
            items: self.items.into_iter().map(show).collect(),
            next: self.next,
        }
    }
}

/// Identity of a listing: the tenant and every parameter except the page size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Query([u8; 32]);

impl Query {
    pub(crate) fn of(parts: &[&[u8]]) -> Self {
        Self(digest(parts))
    }
}

impl Engine {
    /// Makes the cursor after the item at `position`.
    pub(crate) async fn seal(&self, query: Query, position: &[u8]) -> Result<String, EngineError> {
        let key = self.cursor_key().await?;
        Ok(cursor::seal(key.expose(), &query.0, position))
    }

    /// Makes a page from items that were queried with one more than the limit.
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

    /// The id that the page starts after; `None`: the first page.
    ///
    /// # Errors
    /// [`EngineError::Invalid`] as for [`Self::unseal`].
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

    /// The position in a cursor, if the cursor was made for this query.
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

    /// Read once per process. The index stores it so that every replica has it.
    pub(crate) async fn cursor_key(&self) -> Result<&Secret, EngineError> {
        let fetch = self.shared_secret("cursor");
        self.0.cursors.0.get_or_try_init(|| fetch).await
    }
}
