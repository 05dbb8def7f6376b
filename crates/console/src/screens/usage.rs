//! Usage: quotas, reads and writes over time, and memories that are no longer used.

use askama::Template;
use keepsake_core::limits::Limits;
use keepsake_core::{StoreId, words};
use keepsake_engine::{EngineError, StoreUsageReport};
use keepsake_index::{Store, StoreFilter, TenantUsage};

use super::overview::Activity;
use crate::frame::Frame;
use crate::names::SharedNames;
use crate::page::{PageResult, Refusal, page};
use crate::path::Path;
use crate::people::People;
use crate::request::{Caller, Pager};
use crate::text::chart::percent;
use crate::text::markup;

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
    fn counted(name: &'static str, used: u64, limit: u64) -> Self {
        Self { name, used: words::count(used), limit: words::count(limit), percent: percent(used, limit) }
    }

    fn bytes(name: &'static str, used: u64, limit: u64) -> Self {
        Self { used: words::bytes(used), limit: words::bytes(limit), ..Self::counted(name, used, limit) }
    }
}

pub(crate) fn quotas_of(usage: &TenantUsage) -> [Quota; 5] {
    let limits = &usage.limits;
    [
        Quota::counted("Stores", usage.stores, limits.stores_per_tenant),
        Quota::bytes("Size of all stores", usage.live_bytes, limits.bytes_per_tenant),
        Quota::counted("Sessions", usage.sessions, limits.sessions_per_tenant),
        Quota::bytes("Descriptions of sessions", usage.session_bytes, limits.session_bytes_per_tenant),
        Quota::counted("API keys", usage.api_keys, limits.api_keys_per_tenant),
    ]
}

fn quotas_of_store(store: &Store, limits: &Limits) -> [Quota; 2] {
    [
        Quota::counted("Memories", store.memory_count, limits.memories_per_store),
        Quota::bytes("Size", store.live_bytes, limits.bytes_per_store),
    ]
}

#[derive(Template)]
#[template(path = "usage.html")]
struct UsagePage {
    frame: Frame,
    /// `None`: the credential is bound to stores.
    usage: Option<TenantUsage>,
    limits: Limits,
    stores: Vec<Store>,
    pager: Pager,
}

pub(super) async fn of_tenant(caller: Caller) -> PageResult {
    let filter = StoreFilter { include_archived: true, ..StoreFilter::default() };
    let asked = caller.query.page(STORES_PER_PAGE);
    let found = caller.engine.stores.list(&caller.principal, &filter, &asked).await?;
    let usage = usage_of_tenant(&caller).await?;
    page(&UsagePage {
        frame: caller.frame("Usage"),
        usage,
        limits: caller.principal.limits.clone(),
        stores: found.items,
        pager: caller.query.pager(found.next),
    })
}

/// `None`: the credential is bound to stores, and sees only the usage of these stores.
pub(super) async fn usage_of_tenant(caller: &Caller) -> Result<Option<TenantUsage>, Refusal> {
    match caller.engine.usage.of_tenant(&caller.principal).await {
        Ok(usage) => Ok(Some(usage)),
        Err(EngineError::PermissionDenied(_)) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

#[derive(Template)]
#[template(path = "store_usage.html")]
struct StoreUsagePage {
    frame: Frame,
    report: StoreUsageReport,
    activity: Activity,
    people: People,
}

pub(super) async fn of_store(caller: Caller, Path(store_id): Path<StoreId>) -> PageResult {
    let report =
        caller.engine.usage.of_store(&caller.principal, store_id, Some(MEMORIES_PER_LIST), None).await?;
    let memories = report.expiring_next.iter().chain(&report.never_read);
    let actors = memories.flat_map(|memory| [&memory.last_written_by, &memory.last_accessed_by]);
    let people = People::look_up(&caller, actors.flatten().collect()).await;
    page(&StoreUsagePage {
        frame: caller.frame(format!("Usage of {}", report.store.name)),
        report,
        activity: Activity::of(&caller, &caller.principal, Some(store_id)).await?,
        people,
    })
}
