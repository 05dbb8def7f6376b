//! The overview: reads and writes of each day, quotas, open sessions and the last changes.

use std::cmp::Reverse;

use askama::Template;
use keepsake_core::{StoreId, Surface, words};
use keepsake_engine::{
    DailyUseQuery, DailyUseReport, PageRequest, Principal, UseOfDay, VersionQuery, View, date_of,
};
use keepsake_index::{Session, SessionFilter, Store};

use super::sessions::{agent_of, title_of};
use super::stores::stores_to_choose;
use super::usage::{Quota, quotas_of, usage_of_tenant};
use super::version::VersionRow;
use crate::frame::Frame;
use crate::page::{PageResult, Refusal, page};
use crate::people::People;
use crate::request::Caller;
use crate::text::chart::{DayChart, Series};
use crate::text::markup::Markup;

/// Days that a person chooses from.
const PERIODS: [u64; 3] = [7, 30, 90];
const DAYS: u64 = 30;
const SESSIONS: u64 = 6;
/// Stores in a list of the page.
const STORES: usize = 5;
/// Stores whose last changes are shown.
const CHANGED_STORES: usize = 4;
const CHANGES_PER_STORE: u64 = 5;
const CHANGES: usize = 8;

/// The places of the quotas that [`quotas_of`] has.
const HREFS: [&str; 5] =
    ["/console/stores", "/console/usage", "/console/sessions", "/console/sessions", "/console/keys"];

/// What was read and written in some days, as a page shows it.
pub(crate) struct Activity {
    pub(super) days: u64,
    pub(super) from: String,
    pub(crate) report: DailyUseReport,
    pub(crate) reads: Markup,
    pub(crate) writes: Markup,
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
            report,
        })
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

/// A change, and the store of its memory.
struct Change {
    store_id: StoreId,
    store: String,
    row: VersionRow,
}

#[derive(Template)]
#[template(path = "overview.html")]
struct OverviewPage {
    frame: Frame,
    activity: Activity,
    /// Quotas with the lists that they limit; none if the credential is bound to stores.
    quotas: Vec<(&'static str, Quota)>,
    sessions: Vec<Session>,
    changed: Vec<Store>,
    changes: Vec<Change>,
}

/// `GET /console/overview`
pub(super) async fn show(caller: Caller) -> PageResult {
    let activity = Activity::of(&caller, None).await?;
    let usage = usage_of_tenant(&caller).await?;
    let quotas = usage.map(|usage| HREFS.into_iter().zip(quotas_of(&usage, "Memories of all stores")));
    let filter = SessionFilter { live: true, ..SessionFilter::default() };
    let newest = PageRequest { limit: Some(SESSIONS), page: None };
    let sessions = caller.engine.sessions.list(&caller.principal, &filter, &newest).await?.items;
    let changed = changed_last(&caller, &activity.report).await?;
    let frame = caller.frame("Overview");
    page(&OverviewPage {
        activity,
        quotas: quotas.into_iter().flatten().collect(),
        sessions,
        changes: last_changes(&caller, &changed, &frame).await?,
        changed,
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
async fn last_changes(caller: &Caller, stores: &[Store], frame: &Frame) -> Result<Vec<Change>, Refusal> {
    let mut found = Vec::new();
    for store in stores.iter().take(CHANGED_STORES) {
        let query = VersionQuery {
            page: PageRequest { limit: Some(CHANGES_PER_STORE), page: None },
            ..VersionQuery::default()
        };
        let versions = &caller.engine.versions;
        let page = versions.list(&caller.principal, store.store_id, &query, View::Basic).await?;
        found.extend(page.items.into_iter().map(|shown| (store, shown)));
    }
    found.sort_by_key(|(_, shown)| Reverse(shown.version.created_at));
    found.truncate(CHANGES);
    let people = People::look_up(caller).await;
    let change = |(store, shown): (&Store, _)| Change {
        store_id: store.store_id,
        store: store.name.clone(),
        row: VersionRow::of(&shown, &people, frame),
    };
    Ok(found.into_iter().map(change).collect())
}
