//! Usage: quotas, changes over time, and memories that are no longer used.

use askama::Template;
use axum::extract::Path;
use keepsake_core::{Timestamp, words};
use keepsake_engine::{EngineError, MemoryUse};
use keepsake_index::{Store, StoreFilter, TenantUsage};

use super::tree::StoreHead;
use crate::frame::{Frame, Tab};
use crate::page::{PageResult, page};
use crate::people::People;
use crate::request::{Caller, InStore, Pager};
use crate::text::chart::{changes, first_day, percent};
use crate::text::markup::{Markup, path, time, time_or};

const STORES_PER_PAGE: u64 = 100;
const MEMORIES_PER_LIST: u64 = 50;

pub(crate) struct Quota {
    pub(crate) name: &'static str,
    pub(crate) used: String,
    pub(crate) limit: String,
    /// `None`: there is no limit.
    pub(crate) percent: Option<u64>,
}

impl Quota {
    pub(crate) fn counted(name: &'static str, used: u64, limit: u64) -> Self {
        Self { name, used: words::count(used), limit: words::count(limit), percent: percent(used, limit) }
    }

    pub(crate) fn bytes(name: &'static str, used: u64, limit: u64) -> Self {
        Self { used: words::bytes(used), limit: words::bytes(limit), ..Self::counted(name, used, limit) }
    }
}

fn quotas_of(usage: &TenantUsage) -> Vec<Quota> {
    let limits = &usage.limits;
    vec![
        Quota::counted("Stores", usage.stores, limits.stores_per_tenant),
        Quota::bytes("Memories of all stores", usage.live_bytes, limits.bytes_per_tenant),
        Quota::counted("Sessions", usage.sessions, limits.sessions_per_tenant),
        Quota::bytes("Descriptions of sessions", usage.session_bytes, limits.session_bytes_per_tenant),
        Quota::counted("API keys", usage.api_keys, limits.api_keys_per_tenant),
    ]
}

struct StoreRow {
    name: String,
    href: String,
    memories: Quota,
    size: Quota,
    changed: Markup,
}

impl StoreRow {
    fn of(store: &Store, caller: &Caller, now: Timestamp) -> Self {
        let limits = &caller.principal.limits;
        Self {
            name: store.name.clone(),
            href: format!("/console/stores/{}/usage", store.store_id),
            memories: Quota::counted("Memories", store.memory_count, limits.memories_per_store),
            size: Quota::bytes("Size", store.live_bytes, limits.bytes_per_store),
            changed: time_or(store.last_version_at, now, "never"),
        }
    }
}

#[derive(Template)]
#[template(path = "usage.html")]
struct UsagePage {
    frame: Frame,
    quotas: Vec<Quota>,
    memories: String,
    versions: String,
    version_bytes: String,
    has_totals: bool,
    rows: Vec<StoreRow>,
    pager: Pager,
    requests: String,
    burst: String,
}

/// `GET /console/usage`
pub(super) async fn of_tenant(caller: Caller) -> PageResult {
    let filter = StoreFilter { include_archived: true, ..StoreFilter::default() };
    let asked = caller.query.page(STORES_PER_PAGE);
    let found = caller.engine.stores.list(&caller.principal, &filter, &asked).await?;
    let usage = match caller.engine.usage.of_tenant(&caller.principal).await {
        Ok(usage) => Some(usage),
        // A credential that is bound to stores sees only the usage of these stores.
        Err(EngineError::PermissionDenied(_)) => None,
        Err(error) => return Err(error.into()),
    };
    let (now, limits) = (caller.engine.now(), &caller.principal.limits);
    let total = |of: fn(&TenantUsage) -> u64| words::count(usage.as_ref().map(of).unwrap_or_default());
    page(&UsagePage {
        frame: caller.frame("Usage", Tab::Usage),
        has_totals: usage.is_some(),
        quotas: usage.as_ref().map(quotas_of).unwrap_or_default(),
        memories: total(|usage| usage.memories),
        versions: total(|usage| usage.versions),
        version_bytes: words::bytes(usage.as_ref().map(|usage| usage.version_bytes).unwrap_or_default()),
        rows: found.items.iter().map(|store| StoreRow::of(store, &caller, now)).collect(),
        pager: caller.query.pager(found.next),
        requests: words::count(limits.requests_per_second),
        burst: words::count(limits.request_burst),
    })
}

struct Used {
    href: String,
    path: Markup,
    size: String,
    written: Markup,
    written_by: Markup,
    read: Markup,
    read_by: Option<Markup>,
    expires: Markup,
}

impl Used {
    fn of(base: &str, memory: &MemoryUse, people: &People, now: Timestamp) -> Self {
        Self {
            href: format!("{base}/memories/{}", memory.memory_id),
            path: path(memory.path.as_str()),
            size: words::bytes(memory.size_bytes),
            written: time(memory.last_written_at, now),
            written_by: people.show(memory.last_written_by.as_ref()),
            read: time_or(memory.last_accessed_at, now, "never"),
            read_by: memory.last_accessed_by.as_ref().map(|actor| people.show(Some(actor))),
            expires: time_or(memory.expires_at, now, "never"),
        }
    }
}

#[derive(Template)]
#[template(path = "store_usage.html")]
struct StoreUsagePage {
    frame: Frame,
    store: StoreHead,
    quotas: Vec<Quota>,
    versions: String,
    version_bytes: String,
    period: Option<String>,
    in_use_until: Option<Markup>,
    chart: Markup,
    expiring: Vec<Used>,
    never_read: Vec<Used>,
    never_read_count: String,
    has_never_read: bool,
}

/// `GET /console/stores/{id}/usage`
pub(super) async fn of_store(caller: Caller, Path(store_id): InStore) -> PageResult {
    let (principal, now) = (&caller.principal, caller.engine.now());
    let report = caller.engine.usage.of_store(principal, store_id.0, Some(MEMORIES_PER_LIST)).await?;
    let days = caller.engine.usage.daily_changes(principal, store_id.0, first_day(now)).await?;
    let people = People::look_up(&caller).await;
    let (head, limits) = (StoreHead::of(&report.store), &report.limits);
    let uses = |memories: &[MemoryUse]| {
        memories.iter().map(|memory| Used::of(&head.base, memory, &people, now)).collect()
    };
    page(&StoreUsagePage {
        frame: caller.frame(format!("Usage of {}", report.store.name), Tab::Usage),
        quotas: vec![
            Quota::counted("Memories", report.store.memory_count, limits.memories_per_store),
            Quota::bytes("Size", report.store.live_bytes, limits.bytes_per_store),
        ],
        versions: words::count(report.version_count),
        version_bytes: words::bytes(report.version_bytes),
        period: report.expires_unused_after.map(words::period),
        in_use_until: report.in_use_until.map(|until| time(until, now)),
        chart: changes(&days, now),
        expiring: uses(&report.expiring_next),
        never_read: uses(&report.never_read),
        never_read_count: words::count(report.never_read_count),
        has_never_read: report.never_read_count > 0,
        store: head,
    })
}
