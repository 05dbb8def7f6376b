//! The overview: reads, writes and refused changes of each day, quotas, open sessions, the last
//! changes and their authors, stores that grow, and memories that are often rewritten, expire soon or
//! were never read.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};

use askama::Template;
use futures::future::try_join_all;
use keepsake_core::{Actor, MemoryId, StoreId, Surface, VersionId, words};
use keepsake_engine::{
    DailyUseQuery, DailyUseReport, Outlook, PageRequest, Principal, ShownVersion, VersionQuery,
};
use keepsake_index::{Operation, Scope, SessionFilter, SessionSummary, Store, UseOfDay, Version, date_of};

use super::choices::actor_in_form;
use super::sessions::{shared_titles, title_of};
use super::stores::stores_to_choose;
use super::usage::{Quota, quotas_of, usage_of_tenant};
use super::version::{VersionRow, newest_versions};
use crate::frame::Frame;
use crate::names::SharedNames;
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
    /// Reads by agents, and by programs on their behalf.
    agent_reads: u64,
    pub(crate) reads: Markup,
    /// The other reads in words; empty: there were none.
    pub(crate) other_reads: String,
    pub(crate) writes: Markup,
    /// Refusals and conflicts.
    pub(crate) rejected: Markup,
    /// Whether the page lists the stores with most writes and with most refused changes.
    lists_stores: bool,
}

impl Activity {
    /// Of all stores, or of one. The person chooses the days; the principal need not be the person.
    pub(crate) async fn of<P>(
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
            agent_reads: report.data.iter().map(agent_reads).sum(),
            reads: drawn(&report, "read", of_surfaces(&report, agent_reads)),
            other_reads: other_reads(&report),
            writes: drawn(&report, "write", of_surfaces(&report, |day| day.writes)),
            rejected: drawn(
                &report,
                "rejected change",
                [
                    series(&report, "Refused", 6, |day| day.refusals),
                    series(&report, "Conflicts", 2, |day| day.conflicts),
                ],
            ),
            lists_stores: false,
            report,
        })
    }

    /// The heading of a chart, with a link to the stores behind its number if the page lists them.
    fn heading(&self, text: &str, list: &str, is_listed: bool) -> Markup {
        let text = Markup::text(text);
        if self.lists_stores && is_listed {
            Markup::trusted(format!("<a href=\"#{list}\">{text}</a>"))
        } else {
            text
        }
    }

    pub(crate) fn heading_of_reads(&self) -> Markup {
        let text = format!("{} by agents", words::counted(self.agent_reads, "read"));
        self.heading(&text, "written", !self.report.most_written.is_empty())
    }

    pub(crate) fn heading_of_writes(&self) -> Markup {
        let text = words::counted(self.report.writes, "write");
        self.heading(&text, "written", !self.report.most_written.is_empty())
    }

    pub(crate) fn heading_of_rejected(&self) -> Markup {
        let refusals = words::counted(self.report.refusals, "refused change");
        let text = format!("{refusals}, {}", words::counted(self.report.conflicts, "conflict"));
        self.heading(&text, "refused", !self.report.most_refused.is_empty())
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

fn of_surfaces(report: &DailyUseReport, number: fn(&UseOfDay) -> u64) -> impl Iterator<Item = Series> {
    let surfaces = Surface::ALL.into_iter().enumerate();
    surfaces.map(move |(colour, surface)| {
        let of_surface = move |day: &UseOfDay| if day.surface == surface { number(day) } else { 0 };
        series(report, name_of(surface), colour, of_surface)
    })
}

/// Reads by agents, and by programs on their behalf.
const fn agent_reads(day: &UseOfDay) -> u64 {
    if day.surface.is_of_agents() { day.reads } else { 0 }
}

/// Reads by people and for backups: `Console 12, Backup 1`.
fn other_reads(report: &DailyUseReport) -> String {
    let others = Surface::ALL.into_iter().filter(|surface| !surface.is_of_agents());
    let named = others.filter_map(|surface| {
        let of_surface = report.data.iter().filter(|day| day.surface == surface);
        let reads: u64 = of_surface.map(|day| day.reads).sum();
        (reads > 0).then(|| format!("{}\u{a0}{}", name_of(surface), words::count(reads)))
    });
    named.collect::<Vec<_>>().join(", ")
}

fn series(
    report: &DailyUseReport,
    name: &'static str,
    colour: usize,
    number: impl Fn(&UseOfDay) -> u64,
) -> Series {
    let mut by_day: BTreeMap<i64, u64> = BTreeMap::new();
    for day in report.data.iter().filter(|day| number(day) > 0) {
        *by_day.entry(day.day).or_default() += number(day);
    }
    Series { name, colour, by_day }
}

fn drawn(report: &DailyUseReport, counted: &str, series: impl IntoIterator<Item = Series>) -> Markup {
    let series: Vec<_> = series.into_iter().filter(|series| !series.by_day.is_empty()).collect();
    let (first_day, last_day) = (report.first_day, report.last_day);
    DayChart { counted, first_day, last_day, series: &series }.draw()
}

/// What the last changes of the stores that changed last show.
struct LastChanges {
    changes: Vec<(Store, VersionRow)>,
    writers: Vec<Writer>,
    /// The last changes of memories with many changes, and their numbers.
    rewritten: Vec<(Store, VersionRow, u64)>,
    people: People,
}

/// An author of changes among the last ones of a store. The sessions of an agent are one author.
struct Writer {
    store: Store,
    /// The newest of an agent's sessions, or another author.
    actor: Actor,
    agent: Option<String>,
    changes: u64,
    has_one_actor: bool,
}

impl Writer {
    fn show(&self, people: &People) -> Markup {
        match &self.agent {
            Some(agent) => Markup::trusted(format!("<bdi>{}</bdi>", Markup::text(&cut(agent)))),
            None => people.show(Some(&self.actor)),
        }
    }

    /// The changes in the history; of an agent with several sessions, the sessions of the store.
    fn href(&self) -> String {
        let store_id = self.store.store_id;
        let history = format!("/console/stores/{store_id}/history");
        if matches!(self.actor, Actor::Imported(..)) {
            history
        } else if self.has_one_actor {
            format!("{history}?actor={}", encoded(&actor_in_form(Some(&self.actor))))
        } else {
            format!("/console/sessions?ended=1&store={store_id}")
        }
    }
}

/// A number of the memories of a store that were looked at.
fn of_looked_at(number: u64, outlook: &Outlook, store: &Store) -> String {
    let number = words::count(number);
    let looked_at = outlook.looked_at;
    if looked_at < store.memory_count { format!("{number} of {looked_at}") } else { number }
}

#[derive(Template)]
#[template(path = "overview.html")]
struct OverviewPage {
    frame: Frame,
    activity: Activity,
    /// Quotas with the lists that they limit; none if the credential is bound to stores.
    quotas: Vec<(&'static str, Quota)>,
    sessions: Vec<SessionSummary>,
    /// The stores that changed last.
    changed: Vec<(Store, Outlook)>,
    last: LastChanges,
}

impl OverviewPage {
    /// Those of the stores in the lists of the page.
    fn shared_names(&self) -> SharedNames {
        let changed = self.changed.iter().map(|(store, _)| (store.store_id, store.name.as_str()));
        let report = &self.activity.report;
        let used = report.most_written.iter().chain(&report.most_refused).chain(&report.most_grown);
        SharedNames::among(changed.chain(used.map(|store| (store.store_id, store.name.as_str()))))
    }
}

/// `GET /console/overview`; without the scope to read memories, the first section that may be opened
pub(super) async fn show(caller: Caller) -> PageResult {
    if !caller.may(Scope::MemoryRead)
        && let Some(section) = caller.frame("Overview").sections.first()
    {
        return Ok(see_other(section.href));
    }
    let (engine, principal) = (&caller.engine, &caller.principal);
    let filter = SessionFilter { live: true, ..SessionFilter::default() };
    let newest = PageRequest { limit: Some(SESSIONS), page: None };
    let sessions = async {
        let found = engine.sessions.summaries(principal, &filter, &newest).await?;
        Ok::<_, Refusal>(found.items)
    };
    let (activity, usage, sessions, stores) = tokio::try_join!(
        Activity::of(&caller, principal, None),
        usage_of_tenant(&caller),
        sessions,
        stores_to_choose(&caller, false),
    )?;
    let quotas = usage.map(|usage| HREFS.into_iter().zip(quotas_of(&usage)));
    let changed = changed_last(&caller, stores, &activity.report).await?;
    let frame = caller.frame("Overview");
    let store_ids: Vec<_> = changed.iter().map(|store| store.store_id).collect();
    let outlooks = async { Ok::<_, Refusal>(engine.usage.outlooks(principal, &store_ids).await?) };
    let (last, outlooks) = tokio::try_join!(last_changes(&caller, &changed, &frame), outlooks)?;
    page(&OverviewPage {
        activity: Activity { lists_stores: true, ..activity },
        quotas: quotas.into_iter().flatten().collect(),
        sessions,
        last,
        changed: changed.into_iter().zip(outlooks).collect(),
        frame,
    })
}

/// The stores that changed last, among the newest stores and those with the most writes.
async fn changed_last(
    caller: &Caller,
    mut stores: Vec<Store>,
    report: &DailyUseReport,
) -> Result<Vec<Store>, Refusal> {
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
    let (mut found, mut before) = (Vec::new(), HashMap::new());
    let stores = stores.get(..CHANGED_STORES).unwrap_or(stores);
    let changes = try_join_all(stores.iter().map(|store| last_changes_of(caller, store.store_id))).await?;
    for (store, (newest, before_moves)) in stores.iter().zip(changes) {
        before.extend(before_moves);
        found.extend(newest.into_iter().map(|shown| (store, shown)));
    }
    found.sort_by_key(|(_, shown)| Reverse(shown.version.created_at));
    let often = often_rewritten(&found);
    let people = People::look_up(caller, authors(found.iter().map(|(_, shown)| shown))).await;
    let change = |place: usize| {
        let shown = |(store, shown): &(&Store, ShownVersion)| {
            let before = before.get(&shown.version.version_id);
            (Store::clone(store), VersionRow::after(before, shown, &people, frame))
        };
        found.get(place).map(shown)
    };
    let rewritten = |(place, times): &(usize, u64)| change(*place).map(|(store, row)| (store, row, *times));
    Ok(LastChanges {
        changes: (0..CHANGES).filter_map(change).collect(),
        writers: writers(&found, &people),
        rewritten: often.iter().filter_map(rewritten).collect(),
        people,
    })
}

/// The last changes in a store, newest first, and the versions before those of them that moved memories.
async fn last_changes_of(
    caller: &Caller,
    store_id: StoreId,
) -> Result<(Vec<ShownVersion>, HashMap<VersionId, Version>), Refusal> {
    let newest = newest_versions(caller, store_id, CHANGES_PER_STORE, VersionQuery::default()).await?;
    let shown = newest.get(..CHANGES).unwrap_or(newest.as_slice());
    let before = caller.engine.versions.before_moves(&caller.principal, store_id, shown).await?;
    Ok((newest, before))
}

/// The authors with the most changes of a store.
fn writers(newest_first: &[(&Store, ShownVersion)], people: &People) -> Vec<Writer> {
    let mut writers: Vec<Writer> = Vec::new();
    for (store, shown) in newest_first {
        let Some(actor) = shown.version.created_by.as_ref() else {
            continue;
        };
        let agent = people.agent_of(actor);
        let is_same = |known: &&mut Writer| {
            let is_author =
                if agent.is_some() { known.agent.as_deref() == agent } else { known.actor == *actor };
            is_author && known.store.store_id == store.store_id
        };
        match writers.iter_mut().find(is_same) {
            Some(known) => {
                known.changes += 1;
                known.has_one_actor &= known.actor == *actor;
            }
            None => writers.push(Writer {
                store: (*store).clone(),
                actor: actor.clone(),
                agent: agent.map(str::to_owned),
                changes: 1,
                has_one_actor: true,
            }),
        }
    }
    writers.sort_by_key(|writer| Reverse(writer.changes));
    writers.truncate(WRITERS);
    writers
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
