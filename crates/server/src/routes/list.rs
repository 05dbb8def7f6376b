//! The envelope of every listing.

use keepsake_engine::Page;
use serde::Serialize;
use utoipa::ToSchema;

/// A part of a listing.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct List<T> {
    data: Vec<T>,
    /// Send it as `page` for the next part; null: this is the last.
    #[schema(required)]
    next_page: Option<String>,
}

impl<T> List<T> {
    /// Shows each item of a page.
    pub(crate) fn of<U>(page: Page<U>, show: impl FnMut(U) -> T) -> Self {
        let page = page.map(show);
        Self {
            data: page.items,
            next_page: page.next,
        }
    }
}
