//! The overview: reads, writes and refused changes of each day, quotas, open sessions, the last
//! changes and their authors, stores that grow, and memories that are often rewritten, expire soon or
//! were never read.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};

use askama::Template;
use keepsake_core::{Actor, MemoryId, StoreId, Surface, Timestamp, words};
use keepsake_engine::{
    DailyUseQuery, DailyUseReport, Outlook, PageRequest, Principal, ShownVersion, UseOfDay, VersionQuery,
    date_of,
};
use keepsake_index::{Operation, Scope, SessionFilter, SessionSummary, Store};

use super::choices::actor_in_form;
use super::sessions::title_of;
use super::stores::stores_to_choose;
use super::usage::{Quota, quotas_of, usage_of_tenant};
use super::version::{VersionRow, newest_versions};
use crate::frame::Frame;
use crate::page::{PageResult, Refusal, page, see_other};
use crate::people::{People, authors, cut};
use crate::request::Caller;
use crate::text::chart::{DayChart, Series};
use crate::text::markup::{Markup, encoded};

/// Days that a person chooses from.
const PERIODS: [u64; 3] = [7, 30, 90];
const DAYS: u64 = 30;
const SESSIONS: u64 = 6;
/// Stores in a list of the page.
const STORES: usize = 5;
/// Stores whose last changes are shown.
const CHANGED_STORES: usize = 4;
/// Changes of a store among which often rewritten memories are found.
const CHANGES_PER_STORE: u64 = 50;
const CHANGES: usize = 8;
/// Changes of a memory that is often rewritten.
const OFTEN: u64 = 3;
const REWRITTEN: usize = 5;
const WRITERS: usize = 8;

/// The places of the quotas that [`quotas_of`] has.
const HREFS: [&str; 5] =
    ["/console/stores", "/console/usage", "/console/sessions", "/console/sessions", "/console/keys"];

/// What was read, written and refused in some days, as a page shows it.
pub(crate) struct Activity {
    pub(super) days: u64,
    pub(super) from: String,
    pub(crate) report: DailyUseReport,
    pub(crate) reads: Markup,
    pub(crate) writes: Markup,
    /// Refusals and conflicts.
    pub(crate) rejected: Markup,
}

impl Activity {
    /// Of all stores, or of one. The person chooses the days.
    pub(super) async fn of(caller: &Caller, store_id: Option<StoreId>) -> Result<Self, Refusal> {
        Self::of_principal(caller, &caller.principal, store_id).await
    }

    /// That of a tenant, whose principal need not be the person who looks.
    pub(crate) async fn of_principal<P>(
        caller: &Caller<P>,
        principal: &Principal,
        store_id: Option<StoreId>,
    ) -> Result<Self, Refusal> {
        let days = caller.query.number("days")?.unwrap_or(DAYS);
        let query = DailyUseQuery { days: Some(days), store_id };
        let report = caller.engine.usage.daily(principal, query).await?;
        Ok(Self {
            days,
            from: date_of(report.first_day),
            reads: drawn(&report, "read", |day| day.reads),
            writes: drawn(&report, "write", |day| day.writes),
            rejected: drawn_rejected(&report),
            report,
        })
    }

    /// Changes that were not made.
    pub(crate) fn rejected_count(&self) -> u64 {
        self.report.refusals + self.report.conflicts
    }

    /// The days to choose from, and whether they are chosen.
    pub(crate) fn periods(&self) -> [(u64, bool); 3] {
        PERIODS.map(|days| (days, days == self.days))
    }
}

const fn name_of(surface: Surface) -> &'static str {
    match surface {
        Surface::Tool => "Tools",
        Surface::Search => "Search",
        Surface::Api => "API",
        Surface::Mcp => "MCP",
        Surface::Console => "Console",
        Surface::Backup => "Backup",
        Surface::Person => "People",
    }
}

fn drawn(report: &DailyUseReport, counted: &str, number: impl Fn(&UseOfDay) -> u64) -> Markup {
    let series = Surface::ALL.into_iter().enumerate().map(|(colour, surface)| {
        let of_surface = report.data.iter().filter(|day| day.surface == surface && number(day) > 0);
        let by_day = of_surface.map(|day| (day.day, number(day))).collect();
        Series { name: name_of(surface), colour, by_day }
    });
    let series: Vec<_> = series.filter(|series| !series.by_day.is_empty()).collect();
    let (first_day, last_day) = (report.first_day, report.last_day);
    DayChart { counted, first_day, last_day, series: &series }.draw()
}

/// The refused changes and the conflicts of all surfaces.
fn drawn_rejected(report: &DailyUseReport) -> Markup {
    let of_kind = |name, colour, number: fn(&UseOfDay) -> u64| {
        let mut by_day: BTreeMap<i64, u64> = BTreeMap::new();
        for day in report.data.iter().filter(|day| number(day) > 0) {
            *by_day.entry(day.day).or_default() += number(day);
        }
        Series { name, colour, by_day }
    };
    let series = [of_kind("Refused", 6, |day| day.refusals), of_kind("Conflicts", 2, |day| day.conflicts)];
    let series: Vec<_> = series.into_iter().filter(|series| !series.by_day.is_empty()).collect();
    let (first_day, last_day) = (report.first_day, report.last_day);
    DayChart { counted: "rejected change", first_day, last_day, series: &series }.draw()
}

/// A change, and the store of its memory.
struct Change {
    store_id: StoreId,
    store: String,
    row: VersionRow,
}

/// A memory with many changes among the last ones of its store.
struct Rewritten {
    last: Change,
    times: String,
}

/// What the last changes of the stores that changed last show.
struct LastChanges {
    changes: Vec<Change>,
    writers: Vec<Writer>,
    growing: Vec<GrowingStore>,
    rewritten: Vec<Rewritten>,
}

/// An author of changes among the last ones of a store. The sessions of an agent are one author.
struct Writer {
    by: Markup,
    store_id: StoreId,
    store: String,
    changes: String,
    /// The changes in the history; of an agent with several sessions, the sessions of the store.
    href: String,
}

/// The changes of an author in a store.
struct AuthorInStore<'a> {
    store: &'a Store,
    /// The newest of an agent's sessions, or another author.
    actor: &'a Actor,
    agent: Option<&'a str>,
    changes: u64,
    has_one_actor: bool,
}

impl AuthorInStore<'_> {
    fn writer(&self, people: &People) -> Writer {
        let store_id = self.store.store_id;
        let history = format!("/console/stores/{store_id}/history");
        Writer {
            by: match self.agent {
                Some(agent) => Markup::trusted(format!("<bdi>{}</bdi>", Markup::text(&cut(agent)))),
                None => people.show(Some(self.actor)),
            },
            store_id,
            store: self.store.name.clone(),
            changes: words::count(self.changes),
            href: if matches!(self.actor, Actor::Imported(..)) {
                history
            } else if self.has_one_actor {
                format!("{history}?actor={}", encoded(&actor_in_form(Some(self.actor))))
            } else {
                format!("/console/sessions?ended=1&store={store_id}")
            },
        }
    }
}

/// A store with more new memories than deleted ones among its last changes.
struct GrowingStore {
    store_id: StoreId,
    store: String,
    memories: String,
    since: Markup,
}

/// A store that changed last, and how many of its memories expire soon or were never read.
struct ChangedStore {
    store: Store,
    expire_soon: String,
    never_read: String,
}

impl ChangedStore {
    fn of(store: Store, outlook: Outlook) -> Self {
        let Outlook { looked_at, expire_soon, never_read } = outlook;
        let shown = |number| {
            let number = words::count(number);
            if looked_at < store.memory_count { format!("{number} of {looked_at}") } else { number }
        };
        let (expire_soon, never_read) = (shown(expire_soon), shown(never_read));
        Self { store, expire_soon, never_read }
    }
}

#[derive(Template)]
#[template(path = "overview.html")]
struct OverviewPage {
    frame: Frame,
    activity: Activity,
    /// Quotas with the lists that they limit; none if the credential is bound to stores.
    quotas: Vec<(&'static str, Quota)>,
    sessions: Vec<SessionSummary>,
    changed: Vec<ChangedStore>,
    last: LastChanges,
}

/// `GET /console/overview`; without the scope to read memories, the first section that may be opened
pub(super) async fn show(caller: Caller) -> PageResult {
    if !caller.may(Scope::MemoryRead)
        && let Some(section) = caller.frame("Overview").sections.first()
    {
        return Ok(see_other(section.href));
    }
    let activity = Activity::of(&caller, None).await?;
    let usage = usage_of_tenant(&caller).await?;
    let quotas = usage.map(|usage| HREFS.into_iter().zip(quotas_of(&usage, "Memories of all stores")));
    let filter = SessionFilter { live: true, ..SessionFilter::default() };
    let newest = PageRequest { limit: Some(SESSIONS), page: None };
    let sessions = caller.engine.sessions.summaries(&caller.principal, &filter, &newest).await?.items;
    let changed = changed_last(&caller, &activity.report).await?;
    let frame = caller.frame("Overview");
    let last = last_changes(&caller, &changed, &frame).await?;
    let store_ids: Vec<_> = changed.iter().map(|store| store.store_id).collect();
    let outlooks = caller.engine.usage.outlooks(&caller.principal, &store_ids).await?;
    page(&OverviewPage {
        activity,
        quotas: quotas.into_iter().flatten().collect(),
        sessions,
        last,
        changed: changed.into_iter().zip(outlooks).map(|(store, of)| ChangedStore::of(store, of)).collect(),
        frame,
    })
}

/// The stores that changed last, among the newest stores and those with the most writes.
async fn changed_last(caller: &Caller, report: &DailyUseReport) -> Result<Vec<Store>, Refusal> {
    let mut stores = stores_to_choose(caller, false).await?;
    for written in &report.most_written {
        if stores.iter().all(|store| store.store_id != written.store_id) {
            // It may be gone by now.
            stores.extend(caller.engine.stores.get(&caller.principal, written.store_id).await.ok());
        }
    }
    stores.retain(|store| store.last_version_at.is_some());
    stores.sort_by_key(|store| Reverse(store.last_version_at));
    stores.truncate(STORES);
    Ok(stores)
}

/// The last changes in these stores, newest first.
async fn last_changes(caller: &Caller, stores: &[Store], frame: &Frame) -> Result<LastChanges, Refusal> {
    let mut found = Vec::new();
    for store in stores.iter().take(CHANGED_STORES) {
        let all = VersionQuery::default();
        let newest = newest_versions(caller, store.store_id, CHANGES_PER_STORE, all).await?;
        found.extend(newest.into_iter().map(|shown| (store, shown)));
    }
    found.sort_by_key(|(_, shown)| Reverse(shown.version.created_at));
    let often = often_rewritten(&found);
    let people = People::look_up(caller, authors(found.iter().map(|(_, shown)| shown))).await;
    let change = |place: usize| {
        found.get(place).map(|(store, shown)| Change {
            store_id: store.store_id,
            store: store.name.clone(),
            row: VersionRow::of(shown, &people, frame),
        })
    };
    let rewritten = |(place, times): &(usize, u64)| {
        change(*place).map(|last| Rewritten { last, times: words::count(*times) })
    };
    Ok(LastChanges {
        changes: (0..CHANGES).filter_map(change).collect(),
        writers: writers(&found, &people),
        growing: growing(&found, frame),
        rewritten: often.iter().filter_map(rewritten).collect(),
    })
}

/// The authors with the most changes of a store.
fn writers(newest_first: &[(&Store, ShownVersion)], people: &People) -> Vec<Writer> {
    let mut authors: Vec<AuthorInStore<'_>> = Vec::new();
    for (store, shown) in newest_first {
        let Some(actor) = shown.version.created_by.as_ref() else {
            continue;
        };
        let agent = people.agent_of(actor);
        let is_same = |known: &&mut AuthorInStore<'_>| {
            let is_author = if agent.is_some() { known.agent == agent } else { known.actor == actor };
            is_author && known.store.store_id == store.store_id
        };
        match authors.iter_mut().find(is_same) {
            Some(known) => {
                known.changes += 1;
                known.has_one_actor &= known.actor == actor;
            }
            None => authors.push(AuthorInStore { store, actor, agent, changes: 1, has_one_actor: true }),
        }
    }
    authors.sort_by_key(|author| Reverse(author.changes));
    authors.iter().take(WRITERS).map(|author| author.writer(people)).collect()
}

/// The stores that grow, the most new memories first.
fn growing(newest_first: &[(&Store, ShownVersion)], frame: &Frame) -> Vec<GrowingStore> {
    let mut stores: Vec<(&Store, i64, Timestamp)> = Vec::new();
    for (store, shown) in newest_first {
        let at = shown.version.created_at;
        let more = match shown.version.operation {
            Operation::Created => 1,
            Operation::Modified => 0,
            Operation::Deleted => -1,
        };
        match stores.iter_mut().find(|(known, ..)| known.store_id == store.store_id) {
            Some((_, number, since)) => {
                *number += more;
                *since = at;
            }
            None => stores.push((*store, more, at)),
        }
    }
    stores.retain(|(_, number, _)| *number > 0);
    stores.sort_by_key(|(_, number, _)| Reverse(*number));
    let shown = stores.into_iter().map(|(store, number, since)| GrowingStore {
        store_id: store.store_id,
        store: store.name.clone(),
        memories: format!("+{}", words::count(number.unsigned_abs())),
        since: frame.time(since),
    });
    shown.collect()
}

/// The places of the newest versions of live memories with many changes, and their numbers of
/// changes.
fn often_rewritten(newest_first: &[(&Store, ShownVersion)]) -> Vec<(usize, u64)> {
    let mut changes: HashMap<MemoryId, (usize, u64)> = HashMap::new();
    for (place, (_, shown)) in newest_first.iter().enumerate() {
        changes.entry(shown.version.memory_id).or_insert((place, 0)).1 += 1;
    }
    let is_live = |place: usize| {
        newest_first.get(place).is_some_and(|(_, shown)| shown.version.operation != Operation::Deleted)
    };
    let mut often: Vec<_> =
        changes.into_values().filter(|(place, times)| *times >= OFTEN && is_live(*place)).collect();
    often.sort_by_key(|(place, times)| (Reverse(*times), *place));
    often.truncate(REWRITTEN);
    often
}
