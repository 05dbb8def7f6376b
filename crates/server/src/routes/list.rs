//! The envelope of every listing, and the parameters of a page.

use keepsake_engine::{Page, PageRequest};
use serde::Serialize;
use utoipa::{IntoParams, ToSchema};

use crate::error::ApiError;
use crate::query::{FromQuery, Query};
use crate::schemas;

/// A part of a listing.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct List<T> {
    data: Vec<T>,
    /// Send it as `page` for the next part; null: this is the last.
    #[schema(required)]
    next_page: Option<String>,
}

impl<T> List<T> {
    /// Converts each item of a page.
    pub(crate) fn of<U>(page: Page<U>, show: impl FnMut(U) -> T) -> Self {
        let page = page.map(show);
        Self {
            data: page.items,
            next_page: page.next,
        }
    }
}

/// Parameters of a page.
#[derive(Debug, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct ListPage {
    /// Items of a page; 20 where unset.
    #[param(minimum = 1, maximum = 100)]
    limit: Option<u64>,
    /// The `next_page` of the page before.
    #[param(value_type = Option<schemas::Cursor>)]
    page: Option<String>,
}

impl FromQuery for ListPage {
    fn from_query(query: &mut Query) -> Result<Self, ApiError> {
        Ok(Self {
            limit: query.limit()?,
            page: query.text("page")?,
        })
    }
}

impl From<ListPage> for PageRequest {
    fn from(asked: ListPage) -> Self {
        Self {
            limit: asked.limit,
            page: asked.page,
        }
    }
}
