//! The envelope of every listing, and the parameters of a page.

use keepsake_engine::{Page, PageRequest};
use serde::Serialize;
use utoipa::{IntoParams, ToSchema};

use crate::error::ApiError;
use crate::query::{FromQuery, Query};
use crate::schemas;

/// A page of a listing.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct List<T> {
    data: Vec<T>,
    /// Send it as `page` to get the next page; null: this is the last page.
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
    /// Items per page; 20 by default.
    #[param(minimum = 1, maximum = 100)]
    limit: Option<u64>,
    /// The `next_page` of the previous page.
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
    fn from(params: ListPage) -> Self {
        Self {
            limit: params.limit,
            page: params.page,
        }
    }
}
