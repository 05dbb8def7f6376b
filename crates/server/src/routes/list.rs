//! The envelope of every listing, and the query parameters that listings share.

use keepsake_core::Timestamp;
use keepsake_engine::{EngineError, NamedMoment, Page, PageRequest, PromptOptions, View};
use serde::Serialize;
use utoipa::ToSchema;

use crate::query::query_params;
use crate::schemas;

/// A page of a listing.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct List<T> {
    data: Vec<T>,
    /// Send it as `page` to get the next page; null: this is the last page.
    #[schema(required)]
    next_page: Option<String>,
}

impl<T> From<Page<T>> for List<T> {
    fn from(page: Page<T>) -> Self {
        Self { data: page.items, next_page: page.next }
    }
}

impl<T> List<T> {
    pub(crate) fn of<U>(page: Page<U>, show: impl FnMut(U) -> T) -> Self {
        page.map(show).into()
    }

    /// A listing of one page.
    pub(crate) fn complete(items: impl IntoIterator<Item = T>) -> Self {
        Self { data: Vec::from_iter(items), next_page: None }
    }
}

query_params! {
    /// Parameters of a page.
    ListPage {
        /// Items per page; 20 by default.
        #[param(minimum = 1, maximum = 100)]
        limit: Option<u64> = number("limit", "1 to 100"),
        /// The `next_page` of the previous page.
        #[param(value_type = Option<schemas::Cursor>)]
        page: Option<String> = text("page"),
    }
}

query_params! {
    /// Parameters of a page of one session's objects.
    SessionPage {
        /// Items per page; by default 20 events, or all attachments.
        #[param(minimum = 1, maximum = 1000)]
        limit: Option<u64> = number("limit", "1 to 1000"),
        /// The `next_page` of the previous page.
        #[param(value_type = Option<schemas::Cursor>)]
        page: Option<String> = text("page"),
    }
}

query_params! {
    /// The parameter for content.
    Viewed {
        /// Whether the response includes content. The default is `full` when one
        /// object is retrieved, otherwise `basic`. With `full`, a page has at most
        /// 20 items.
        view: Option<View> = view(),
    }
}

query_params! {
    /// The moment of the past to show; without it, the present.
    PastMoment {
        /// The state after the last change at or before this time, not in the future. A date
        /// means its midnight.
        at: Option<Timestamp> = instant("at"),
        /// The state after the change with this sequence number; 0: before the first change.
        /// Not with `at`.
        #[param(minimum = 0)]
        at_seq: Option<u64> = number("at_seq", "0 to the newest sequence number"),
    }
}

impl PastMoment {
    pub(crate) fn moment(&self) -> Result<Option<NamedMoment>, EngineError> {
        NamedMoment::parse(("at", self.at), ("at_seq", self.at_seq))
    }
}

query_params! {
    /// Bounds for the time of creation, both inclusive.
    Created {
        /// Created at or after this time; `created_at_gte` is an alias.
        #[param(rename = "created_at[gte]")]
        from: Option<Timestamp> = time("created_at", "gte"),
        /// Created at or before this time; `created_at_lte` is an alias.
        #[param(rename = "created_at[lte]")]
        to: Option<Timestamp> = time("created_at", "lte"),
    }
}

query_params! {
    /// Inclusive and exclusive bounds for the time of creation, and the order.
    CreatedInOrder {
        /// Created after this time; `created_at_gt` is an alias.
        #[param(rename = "created_at[gt]")]
        after: Option<Timestamp> = time("created_at", "gt"),
        /// Created at or after this time; `created_at_gte` is an alias.
        #[param(rename = "created_at[gte]")]
        from: Option<Timestamp> = time("created_at", "gte"),
        /// Created before this time; `created_at_lt` is an alias.
        #[param(rename = "created_at[lt]")]
        before: Option<Timestamp> = time("created_at", "lt"),
        /// Created at or before this time; `created_at_lte` is an alias.
        #[param(rename = "created_at[lte]")]
        to: Option<Timestamp> = time("created_at", "lte"),
        /// Order by creation time; by default `desc` for sessions, `asc` for events.
        order: Option<Order> = word("order", Order::parse, "`asc` or `desc`"),
    }
}

keepsake_core::named_enum! {
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub(crate) enum Order {
        Ascending = "asc",
        Descending = "desc",
    }
}

keepsake_core::shown_by_name!(Order as "Order" => "The order of a listing.";);

impl CreatedInOrder {
    /// Combines exclusive and inclusive bounds into the earliest and latest time.
    pub(crate) fn bounds(&self) -> (Option<Timestamp>, Option<Timestamp>) {
        let next = |at: Timestamp| Timestamp::from_micros(at.as_micros().saturating_add(1));
        let last = |at: Timestamp| Timestamp::from_micros(at.as_micros().saturating_sub(1));
        let earliest = self.from.max(self.after.map(next));
        let latest = match (self.to, self.before.map(last)) {
            (Some(to), Some(before)) => Some(to.min(before)),
            (to, before) => to.or(before),
        };
        (earliest, latest)
    }
}

impl From<ListPage> for PageRequest {
    fn from(ListPage { limit, page }: ListPage) -> Self {
        Self { limit, page }
    }
}

impl From<SessionPage> for PageRequest {
    fn from(SessionPage { limit, page }: SessionPage) -> Self {
        Self { limit, page }
    }
}

query_params! {
    /// Options of the text for models.
    Prompted {
        /// Adds advice to keep the files in order; `false` by default.
        keep_tidy: Option<bool> = flag("keep_tidy"),
        /// Limits the notes to this topic, at most 1,000 bytes.
        #[param(max_length = 1000)]
        topic: Option<String> = text("topic"),
        /// Adds the files with their first lines: at most 200 files and about 16 KiB;
        /// `false` by default.
        file_index: Option<bool> = flag("file_index"),
    }
}

impl Prompted {
    pub(crate) fn options(self) -> Result<PromptOptions, EngineError> {
        let is_set = Option::unwrap_or_default;
        PromptOptions::new(is_set(self.keep_tidy), self.topic, is_set(self.file_index))
    }
}
