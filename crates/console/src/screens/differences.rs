//! The differences of a store between two points, or from another store, by path.

use askama::Template;
use keepsake_core::{StoreId, words};
use keepsake_engine::{DiffQuery, DifferenceKind, MemoryDifference};
use keepsake_index::Store;

use super::choices::{ChoiceField, StoreChoices};
use super::past::{moment_in_words, moment_of, today};
use super::version::version_href;
use crate::frame::Frame;
use crate::page::{PageResult, page};
use crate::path::Path;
use crate::request::{Caller, Fields, Pager};
use crate::text::markup;

const PER_PAGE: u64 = 50;
const FROM: [&str; 2] = ["from", "from_seq"];
const TO: [&str; 2] = ["to", "to_seq"];

/// The class of a badge.
const fn badge_of(change: DifferenceKind) -> &'static str {
    match change {
        DifferenceKind::Added => "created",
        DifferenceKind::Removed => "deleted",
        DifferenceKind::Changed | DifferenceKind::Renamed => "modified",
    }
}

#[derive(Template)]
#[template(path = "differences.html")]
struct DifferencesPage {
    frame: Frame,
    store: Store,
    /// The points in words. `None`: none is chosen yet.
    points: Option<(String, String)>,
    rows: Vec<MemoryDifference>,
    /// The store of the later side. `None`: the same one.
    other_id: Option<StoreId>,
    pager: Pager,
    query: Fields,
    /// The other store.
    other: ChoiceField,
}

/// The numbers of added and of removed lines, if they are known.
fn lines_of(row: &MemoryDifference) -> Option<(String, String)> {
    let (added, removed) = row.added_lines.zip(row.removed_lines)?;
    Some((words::count(added), words::count(removed)))
}

impl DifferencesPage {
    /// The address of the details, and the text of the link.
    fn link_of(&self, row: &MemoryDifference) -> (String, &'static str) {
        let store_id = self.store.store_id;
        let store = format!("/console/stores/{store_id}");
        let versions = (row.from_memory_version_id, row.to_memory_version_id);
        match (versions, self.other_id) {
            ((Some(from), Some(to)), None) => (format!("{store}/compare?from={from}&to={to}"), "Changes"),
            ((Some(from), _), _) => (version_href(store_id, from), "View"),
            ((None, Some(to)), _) => (version_href(self.other_id.unwrap_or(store_id), to), "View"),
            ((None, None), _) => (store, "View"),
        }
    }
}

/// `GET /console/stores/{id}/diff?from=&to=`, or `?other_store_id=` for another store
pub(super) async fn of_store(mut caller: Caller, Path(store_id): Path<StoreId>) -> PageResult {
    let store = caller.engine.stores.get(&caller.principal, store_id).await?;
    let stores = StoreChoices::of(&caller, true).await?;
    let other_store_id = stores.resolve(&mut caller, "other_store_id").await?;
    let (engine, principal, fields) = (&caller.engine, &caller.principal, &caller.query);
    let query = DiffQuery {
        from: moment_of(&caller, fields, FROM)?,
        to: moment_of(&caller, fields, TO)?,
        other_store_id,
        page: fields.page(PER_PAGE),
    };
    let (mut rows, mut next) = (Vec::new(), None);
    let other_id = query.other_store_id;
    let is_chosen = query.from.is_some() || other_id.is_some();
    if is_chosen {
        let found = engine.past.diff(principal, store_id, &query).await?;
        (rows, next) = (found.items, found.next);
    }
    let in_words = |point| moment_in_words(fields, point).unwrap_or_else(|| "now".to_owned());
    let (mut from, mut to) = (in_words(FROM), in_words(TO));
    if let Some(other_id) = other_id {
        let other = engine.stores.get(principal, other_id).await?;
        (from, to) = (format!("{}, {from}", store.name), format!("{}, {to}", other.name));
    }
    page(&DifferencesPage {
        frame: caller.frame(format!("Differences of {}", store.name)),
        points: is_chosen.then_some((from, to)),
        rows,
        other_id,
        pager: fields.pager(next),
        other: stores.field("other_store_id", "Compare with the store", "this one", fields),
        query: caller.query,
        store,
    })
}
