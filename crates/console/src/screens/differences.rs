//! The differences of a store between two points, by path.

use askama::Template;
use keepsake_core::{MemoryPath, StoreId};
use keepsake_engine::{DiffQuery, DifferenceKind, MemoryDifference};
use keepsake_index::Store;

use super::past::{moment_in_words, moment_of, today};
use crate::frame::Frame;
use crate::page::{PageResult, page};
use crate::path::Path;
use crate::request::{Caller, Pager};
use crate::text::markup::{self, Markup, path};

const PER_PAGE: u64 = 50;
const FROM: [&str; 2] = ["from", "from_seq"];
const TO: [&str; 2] = ["to", "to_seq"];

struct Row {
    change: &'static str,
    path: Markup,
    previous_path: Option<Markup>,
    /// Lines that were added and removed. `None`: they were not counted.
    lines: Option<(u64, u64)>,
    href: String,
    link: &'static str,
}

impl Row {
    fn of(store_id: StoreId, difference: &MemoryDifference) -> Self {
        let redacted = || Markup::trusted("<span class=\"none\">redacted</span>".to_owned());
        let shown = |named: Option<&MemoryPath>| named.map(|named| path(named.as_str()));
        let store = format!("/console/stores/{store_id}");
        let (href, link) = match (difference.from_memory_version_id, difference.to_memory_version_id) {
            (Some(from), Some(to)) => (format!("{store}/compare?from={from}&to={to}"), "Changes"),
            (Some(only), None) | (None, Some(only)) => (format!("{store}/versions/{only}"), "View"),
            (None, None) => (store, "View"),
        };
        Self {
            change: difference.change.name(),
            path: shown(difference.path.as_ref()).unwrap_or_else(redacted),
            previous_path: shown(difference.previous_path.as_ref()),
            lines: difference.added_lines.zip(difference.removed_lines),
            href,
            link,
        }
    }
}

/// The class of a badge.
fn badge_of(change: &str) -> &'static str {
    match DifferenceKind::parse(change) {
        Some(DifferenceKind::Added) => "created",
        Some(DifferenceKind::Removed) => "deleted",
        Some(DifferenceKind::Changed | DifferenceKind::Renamed) | None => "modified",
    }
}

#[derive(Template)]
#[template(path = "differences.html")]
struct DifferencesPage {
    frame: Frame,
    store: Store,
    /// The points in words. `None`: none is chosen yet.
    points: Option<(String, String)>,
    rows: Vec<Row>,
    pager: Pager,
    /// The days of the form.
    from: String,
    to: String,
}

/// `GET /console/stores/{id}/diff?from=&to=`
pub(super) async fn of_store(caller: Caller, Path(store_id): Path<StoreId>) -> PageResult {
    let (engine, principal, fields) = (&caller.engine, &caller.principal, &caller.query);
    let store = engine.stores.get(principal, store_id).await?;
    let query = DiffQuery {
        from: moment_of(&caller, fields, FROM)?,
        to: moment_of(&caller, fields, TO)?,
        other_store_id: None,
        page: fields.page(PER_PAGE),
    };
    let (mut rows, mut next) = (Vec::new(), None);
    if query.from.is_some() {
        let found = engine.past.diff(principal, store_id, &query).await?;
        rows.extend(found.items.iter().map(|difference| Row::of(store_id, difference)));
        next = found.next;
    }
    let to = moment_in_words(fields, TO).unwrap_or_else(|| "now".to_owned());
    // A time that is not a day does not fit into the form.
    let day = |name| fields.filled(name).and_then(|at| at.get(..10)).unwrap_or_default().to_owned();
    page(&DifferencesPage {
        frame: caller.frame(format!("Differences of {}", store.name)),
        points: moment_in_words(fields, FROM).map(|from| (from, to)),
        rows,
        pager: fields.pager(next),
        from: day("from"),
        to: day("to"),
        store,
    })
}
