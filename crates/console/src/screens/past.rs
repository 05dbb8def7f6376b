//! A store and its memories as they were. The pages have no forms that change anything.

use askama::Template;
use keepsake_core::{MemoryId, MemoryPath, ObjectKind, StoreId, Timestamp, words};
use keepsake_engine::{EngineError, MemoryQuery, NamedMoment, ShownPastItem, ShownPastMemory, View};
use keepsake_index::{Scope, Store};

use super::memory::{ContentView, href_of};
use super::place::entries_of;
use super::stores::may_create_stores;
use super::tree::{Crumb, crumbs};
use crate::frame::Frame;
use crate::page::{PageResult, Refusal, page, see_other};
use crate::request::{Caller, Fields, Pager};
use crate::text::markup::{self, encoded, in_text};

/// The most that one call of the engine returns.
const PER_PAGE: u64 = 100;

/// How a form sends a day.
const DAY: &str = "2026-01-31";

/// Reads the time of a field. A day stands for its end, and today for now; a future day is refused.
pub(super) fn time_until_now(
    caller: &Caller,
    fields: &Fields,
    day: &'static str,
) -> Result<Option<Timestamp>, Refusal> {
    let now = caller.engine.now();
    if fields.time(day)?.is_some_and(|begin| begin > now) {
        return Err(Refusal::Invalid(format!("`{day}` must not be in the future")));
    }
    Ok(fields.until(day)?.map(|at| at.min(now)))
}

/// Reads the moment that one of two fields names: a day, as [`time_until_now`] reads it, or the
/// sequence number of a change. `None`: both fields are empty.
pub(super) fn moment_of(
    caller: &Caller,
    fields: &Fields,
    [day, seq]: [&'static str; 2],
) -> Result<Option<NamedMoment>, Refusal> {
    let at = time_until_now(caller, fields, day)?;
    Ok(NamedMoment::parse((day, at), (seq, fields.number(seq)?))?)
}

/// A moment in words. `None`: no field names one.
pub(super) fn moment_in_words(fields: &Fields, [day, seq]: [&str; 2]) -> Option<String> {
    let change = fields.filled(seq).map(|seq| format!("after change {seq}"));
    change.or_else(|| {
        let at = fields.filled(day)?;
        Some(if at.len() == DAY.len() { format!("at the end of {at} (UTC)") } else { format!("at {at}") })
    })
}

/// The moment of the past that a page shows.
pub(super) struct Then {
    moment: NamedMoment,
    /// In words.
    when: String,
    /// The day of the form; empty if the moment is not a day.
    day: String,
    /// The field of an address that names the moment.
    field: String,
    /// The same for the earlier point of a comparison.
    from: String,
}

impl Then {
    /// `None`: the page shows the present.
    pub(super) fn of(caller: &Caller) -> Result<Option<Self>, Refusal> {
        const FIELDS: [&str; 2] = ["at", "at_seq"];
        let fields = &caller.query;
        let moment = moment_of(caller, fields, FIELDS)?;
        let named = moment.zip(moment_in_words(fields, FIELDS));
        Ok(named.map(|(moment, when)| {
            let value = encoded(fields.filled(moment.field).unwrap_or_default());
            let from = if moment.field == "at" { "from" } else { "from_seq" };
            Self {
                moment,
                when,
                day: fields.filled("at").filter(|at| at.len() == DAY.len()).unwrap_or_default().to_owned(),
                field: format!("{}={value}", moment.field),
                from: format!("{from}={value}"),
            }
        }))
    }
}

/// The line that says that a page shows the past.
struct Banner {
    then: Then,
    /// The page without the moment.
    now_href: String,
    may_restore: bool,
    may_fork: bool,
}

impl Banner {
    fn new(caller: &Caller, store: &Store, then: Then, now_href: String) -> Self {
        let may_restore = caller.may_write(store) && caller.may(Scope::StoresAdmin);
        Self { then, now_href, may_restore, may_fork: may_create_stores(caller) }
    }
}

#[derive(Template)]
#[template(path = "past_tree.html")]
struct PastTreePage {
    frame: Frame,
    store: Store,
    banner: Banner,
    directory: String,
    crumbs: Vec<Crumb>,
    items: Vec<ShownPastItem>,
    pager: Pager,
}

pub(super) async fn tree(caller: Caller, store: Store, directory: String, then: Then) -> PageResult {
    let (store_id, principal) = (store.store_id, &caller.principal);
    if !directory.ends_with('/') {
        return file_at(&caller, store_id, directory, then).await;
    }
    let query = entries_of(&directory, caller.query.page(PER_PAGE));
    let found = caller.engine.past.list(principal, store_id, &query, then.moment, View::Basic).await?;
    let now_href = format!("/console/stores/{store_id}?path={}", encoded(&directory));
    page(&PastTreePage {
        frame: caller.frame(format!("{} in {}, {}", in_text(&directory), store.name, then.when)),
        items: found.items,
        crumbs: crumbs(&store, &directory),
        pager: caller.query.pager(found.next),
        banner: Banner::new(&caller, &store, then, now_href),
        store,
        directory,
    })
}

/// Redirects to the memory that was at a path.
async fn file_at(caller: &Caller, store_id: StoreId, path: String, then: Then) -> PageResult {
    let query = MemoryQuery { path: Some(path), ..MemoryQuery::default() };
    let past = &caller.engine.past;
    let found = past.list(&caller.principal, store_id, &query, then.moment, View::Basic).await?;
    match found.items.first() {
        Some(ShownPastItem::Memory(shown)) => {
            Ok(see_other(&format!("{}?{}", href_of(store_id, shown.version.memory_id), then.field)))
        }
        _ => Err(Refusal::NotFound("there was no memory at this path")),
    }
}

#[derive(Template)]
#[template(path = "past_memory.html")]
struct PastMemoryPage {
    frame: Frame,
    store: Store,
    banner: Banner,
    base: String,
    path: Option<MemoryPath>,
    crumbs: Vec<Crumb>,
    shown: ShownPastMemory,
    lost: Option<String>,
    /// The comparison with the current version, if this is another one.
    changes_href: Option<String>,
    content: ContentView,
}

pub(super) async fn memory(caller: Caller, store_id: StoreId, memory_id: MemoryId, then: Then) -> PageResult {
    let (engine, principal) = (&caller.engine, &caller.principal);
    let store = engine.stores.get(principal, store_id).await?;
    let shown = match engine.past.get(principal, store_id, memory_id, then.moment, View::Full).await {
        Err(EngineError::NotFound(ObjectKind::Memory)) => {
            return Err(Refusal::NotFound("the memory was not there at this point of the past"));
        }
        found => found?,
    };
    let now = engine.memories.get(principal, store_id, memory_id, View::Basic).await.ok();
    let now = now.map(|now| now.memory.head.version_id).filter(|now| *now != shown.version.version_id);
    let version_id = shown.version.version_id;
    let changes_href =
        now.map(|now| format!("/console/stores/{store_id}/compare?from={version_id}&to={now}"));
    let path = shown.version.path.clone();
    let named = path.as_ref().map_or("a redacted memory", MemoryPath::as_str);
    let text = shown.content.clone().unwrap_or_default();
    let content = ContentView::requested(&caller, named, text).await?;
    let (directory, base) =
        (named.rsplit_once('/').map_or("", |(directory, _)| directory), href_of(store_id, memory_id));
    page(&PastMemoryPage {
        frame: caller.frame(format!("{} in {}, {}", in_text(named), store.name, then.when)),
        crumbs: crumbs(&store, directory),
        lost: shown.content_error().map(|error| error.to_string()),
        banner: Banner::new(&caller, &store, then, base.clone()),
        path,
        base,
        shown,
        changes_href,
        content,
        store,
    })
}

/// The newest day that a form offers.
pub(super) fn today(frame: &Frame) -> String {
    frame.now.to_rfc3339()[..10].to_owned()
}
