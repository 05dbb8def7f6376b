//! Usage of a store: which memories expire next, and which were never read; and how much is
//! read, written and refused each day.

use std::time::Duration;

use keepsake_core::schemas::{DailyUsageType, MemoryStoreUsageType};
use keepsake_core::{Actor, Limits, ObjectKind, StoreId, Timestamp};
use keepsake_index::{
    Expiry, Life, MemoryUse, MostUsed, SESSION_KEEPS_FOR, Scope, Store, TenantUsage, UseOfDay, UseOfStore,
    as_date,
};
use serde::Serialize;
use utoipa::ToSchema;

use crate::request_fields::invalid;
use crate::shared::service;
use crate::use_counts::day_of;
use crate::{EngineError, PageRequest, Principal, Stores};

/// The usage of a store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = MemoryStoreUsage)]
pub struct StoreUsageReport {
    #[serde(skip)]
    pub store: Store,
    #[serde(rename = "id")]
    pub store_id: StoreId,
    #[schema(inline)]
    pub r#type: MemoryStoreUsageType,
    /// Live memories.
    pub memory_count: u64,
    /// Bytes of the live memories.
    pub content_bytes: u64,
    /// Bytes of the live memories of all stores of the tenant; null: the credential is bound to stores.
    #[schema(required)]
    pub tenant_content_bytes: Option<u64>,
    /// Whether the tenant can hold `added_bytes` further bytes; null if the request has no `added_bytes`, if the
    /// store itself cannot hold them, or if the credential is bound to stores and may not write to this one.
    #[schema(required)]
    pub fits_tenant: Option<bool>,
    /// Versions kept, including those of live memories.
    pub version_count: u64,
    /// Bytes of all content kept, including that of live memories.
    pub version_bytes: u64,
    /// Live memories with vectors for search by meaning.
    pub embedded_memory_count: u64,
    /// Bytes of the vectors that searches by meaning compare.
    pub embedding_bytes: u64,
    /// The limits in force.
    pub limits: Limits,
    /// Seconds after which an unread memory expires, from the store's period or
    /// else the tenant's; null: never.
    #[schema(required)]
    pub expires_unused_after: Option<u64>,
    /// When the period starts to count, if it was newly set or shortened.
    #[schema(required)]
    pub takes_effect_at: Option<Timestamp>,
    /// No unused memory expires before this time, because a session that is not
    /// archived uses the store; null: no session used it within a day.
    #[schema(required)]
    pub in_use_until: Option<Timestamp>,
    /// The memories that would expire next if they were not read again, soonest
    /// first.
    pub expiring_next: Vec<MemoryUse>,
    /// Live memories that were never read.
    pub never_read_count: u64,
    /// The oldest of the memories that were never read.
    pub never_read: Vec<MemoryUse>,
}

/// Days of the daily use if a caller names none.
const DAYS: u64 = 30;
/// The retention of the daily use.
pub(crate) const DAYS_KEPT: u64 = 400;
/// Stores in the report of the daily use.
const MAX_STORES: u32 = 10;
/// Stores that these are chosen from, times the days that are summed up.
const MAX_STORE_DAYS: u64 = 30_000;
/// A memory that expires within this time expires soon.
const SOON: Duration = Duration::from_hours(7 * 24);
/// Memories of a store that an outlook looks at.
const LOOKED_AT: u32 = 200;

/// Which daily use is reported.
#[derive(Debug, Clone, Copy, Default)]
pub struct DailyUseQuery {
    /// Days up to today, 1 to 400; 30 if unset.
    pub days: Option<u64>,
    /// Only this store.
    pub store_id: Option<StoreId>,
}

/// What becomes of the first memories of a store, by path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Outlook {
    /// Memories that were looked at.
    pub looked_at: u64,
    /// Those that expire soon: at their expiry time, or because they are not used.
    pub expire_soon: u64,
    /// Those that were never read.
    pub never_read: u64,
}

/// How much is read, written and refused each day.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = DailyUsage)]
pub struct DailyUseReport {
    #[schema(inline)]
    pub r#type: DailyUsageType,
    /// The first day (UTC).
    #[serde(rename = "from", serialize_with = "as_date")]
    #[schema(value_type = String, format = Date, examples("2026-01-01"))]
    pub first_day: i64,
    /// Today (UTC).
    #[serde(rename = "to", serialize_with = "as_date")]
    #[schema(value_type = String, format = Date, examples("2026-01-30"))]
    pub last_day: i64,
    /// All reads of these days.
    pub reads: u64,
    /// All writes of these days.
    pub writes: u64,
    /// All changes of these days that a limit, a policy, a test or the state of a store refused.
    pub refusals: u64,
    /// All changes of these days that another change came before.
    pub conflicts: u64,
    /// The counts of each day, by date and surface. Days on which nothing was counted are left out.
    pub data: Vec<UseOfDay>,
    /// The stores with the most writes, at most ten.
    pub most_written: Vec<UseOfStore>,
    /// The stores with the most refusals and conflicts, at most ten.
    pub most_refused: Vec<UseOfStore>,
    /// The stores with the largest growth, at most ten.
    #[serde(skip)]
    pub most_grown: Vec<UseOfStore>,
}

service!(pub Usage(shared) { stores: Stores = Stores::new(shared) });

impl Usage {
    /// A store's usage and limits, the memories that expire next, and the memories that
    /// were never read; `limit` of each, 20 if unset. With `added_bytes`, whether the tenant can hold them.
    ///
    /// A credential that is bound to stores learns of the tenant's other stores only what its writes show: whether
    /// bytes that its own store can hold are too many for the tenant. One that may not write learns nothing.
    ///
    /// Reads of the last 30 seconds that other replicas served are missing.
    pub async fn of_store(
        &self,
        principal: &Principal,
        store_id: StoreId,
        limit: Option<u64>,
        added_bytes: Option<u64>,
    ) -> Result<StoreUsageReport, EngineError> {
        let store = self.stores.get(principal, store_id).await?;
        let page = PageRequest { limit, page: None };
        let limit = page.limit(false)?;
        // The index reads all memories of the store.
        let slot = self.pages.take(principal.tenant_id).await?;
        let found = self.context.index.usage.of_store(principal.tenant_id, store_id, limit).await?;
        drop(slot);
        let found = found.ok_or(EngineError::NotFound(ObjectKind::Store))?;
        let used_at = self.context.index.unused.last_session_use(principal.tenant_id, store_id).await?;
        let kept_until = used_at.map(|used_at| used_at.plus(SESSION_KEEPS_FOR));
        let (limits, is_bound) = (&principal.limits, principal.is_bound_to_stores());
        let room_bytes = limits.bytes_per_store.saturating_sub(store.live_bytes);
        let may_write = store.archived_at.is_none() && principal.require_writable(store_id).is_ok();
        let added_bytes = added_bytes.filter(|added| (may_write || !is_bound) && *added <= room_bytes);
        let tenant_bytes = if is_bound && added_bytes.is_none() {
            None
        } else {
            Some(self.whole_tenant(principal).await?.live_bytes)
        };
        let fits = |(added, held): (u64, u64)| held.saturating_add(added) <= limits.bytes_per_tenant;
        let expiry = found.expiry.or_tenants(limits.unused_period_secs(), limits.period_set_at);
        let use_of = |memory| self.use_of(principal, store_id, expiry, memory);
        let never_read: Vec<_> = found.never_read.into_iter().map(use_of).collect();
        let noted = never_read.iter().filter(|memory| memory.last_accessed_at.is_some()).count() as u64;
        let mut expiring_next: Vec<_> = (found.idle.into_iter().chain(found.timed))
            .map(use_of)
            .filter(|memory| memory.expires_at.is_some())
            .collect();
        expiring_next.sort_by_key(|memory| (memory.expires_at, memory.memory_id));
        expiring_next.dedup_by_key(|memory| memory.memory_id);
        expiring_next.truncate(limit as usize);
        let period = expiry.unused_after_secs;
        Ok(StoreUsageReport {
            store_id,
            r#type: MemoryStoreUsageType,
            memory_count: store.memory_count,
            content_bytes: store.live_bytes,
            tenant_content_bytes: tenant_bytes.filter(|_| !is_bound),
            fits_tenant: added_bytes.zip(tenant_bytes).map(fits),
            store,
            limits: limits.clone(),
            expires_unused_after: period,
            takes_effect_at: expiry.in_effect_at().filter(|_| period.is_some()),
            in_use_until: kept_until.filter(|until| *until > self.context.now()),
            version_count: found.versions,
            version_bytes: found.version_bytes,
            embedded_memory_count: found.embedded_memories,
            embedding_bytes: found.embedding_bytes,
            never_read_count: found.never_read_count.saturating_sub(noted),
            never_read: never_read.into_iter().filter(|memory| memory.last_accessed_at.is_none()).collect(),
            expiring_next,
        })
    }

    /// How many memories of each of these stores expire within 7 days, and how many were never
    /// read. Looks at 200 memories of a store at most.
    ///
    /// Reads of the last 30 seconds that other replicas served are missing.
    #[tracing::instrument(name = "engine.outlooks", level = "debug", skip_all)]
    pub async fn outlooks(
        &self,
        principal: &Principal,
        store_ids: &[StoreId],
    ) -> Result<Vec<Outlook>, EngineError> {
        principal.require_no_session()?;
        for store_id in store_ids {
            principal.require_in(Scope::MemoryRead, *store_id)?;
        }
        let usage = &self.context.index.usage;
        let found = usage.first_memories(principal.tenant_id, store_ids, LOOKED_AT).await?;
        let stores = store_ids.iter().zip(&found);
        Ok(stores.map(|(store_id, memories)| self.outlook(principal, *store_id, memories)).collect())
    }

    fn outlook(&self, principal: &Principal, store_id: StoreId, memories: &[(Life, Expiry)]) -> Outlook {
        let (soon, limits) = (self.context.now().plus(SOON), &principal.limits);
        let mut outlook = Outlook { looked_at: memories.len() as u64, expire_soon: 0, never_read: 0 };
        // The store's own period, with each of its memories.
        let Some((_, expiry)) = memories.first() else {
            return outlook;
        };
        let expiry = expiry.or_tenants(limits.unused_period_secs(), limits.period_set_at);
        for (life, _) in memories {
            let (noted, expires_at) = self.noted_and_expiry(principal, store_id, expiry, *life);
            outlook.expire_soon += u64::from(expires_at.is_some_and(|at| at <= soon));
            outlook.never_read += u64::from(life.active_at.is_none() && noted.is_none());
        }
        outlook
    }

    /// A credential that is bound to a list of stores is refused.
    #[tracing::instrument(name = "engine.tenant_usage", level = "debug", skip_all)]
    pub async fn of_tenant(&self, principal: &Principal) -> Result<TenantUsage, EngineError> {
        principal.require(Scope::MemoryRead)?;
        if principal.is_bound_to_stores() {
            return Err(EngineError::PermissionDenied(Scope::TenantAdmin));
        }
        self.whole_tenant(principal).await
    }

    /// As [`Self::of_tenant`], for every credential: the sum shows what stores hold that the credential may not see.
    async fn whole_tenant(&self, principal: &Principal) -> Result<TenantUsage, EngineError> {
        let (tenants, limits) = (&self.context.index.tenants, principal.limits.clone());
        let usage = tenants.usage(principal.tenant_id, limits).await?;
        usage.ok_or(EngineError::NotFound(ObjectKind::Tenant))
    }

    /// How often versions were shown and written each day, and how many changes were refused or
    /// came after another one, in the stores that the credential may see.
    ///
    /// The last 30 seconds are missing.
    #[tracing::instrument(name = "engine.daily_use", level = "debug", skip_all)]
    pub async fn daily(
        &self,
        principal: &Principal,
        query: DailyUseQuery,
    ) -> Result<DailyUseReport, EngineError> {
        principal.require(Scope::MemoryRead)?;
        principal.require_no_session()?;
        let days = query.days.unwrap_or(DAYS);
        if !(1..=DAYS_KEPT).contains(&days) {
            return invalid("days", format!("must be 1 to {DAYS_KEPT}"));
        }
        if let Some(store_id) = query.store_id {
            self.stores.get(principal, store_id).await?;
        }
        let one = query.store_id.map(|store_id| [store_id]);
        let only = one.as_ref().map(<[StoreId; 1]>::as_slice).or_else(|| principal.store_ids());
        let last_day = day_of(self.context.now());
        let first_day = last_day - i64::try_from(days).unwrap_or_default() + 1;
        let (daily_use, tenant_id) = (&self.context.index.daily_use, principal.tenant_id);
        let max_stores = MAX_STORE_DAYS / days;
        let (data, MostUsed { written, refused, grown }) = tokio::try_join!(
            daily_use.since(tenant_id, only, first_day),
            daily_use.most_used(tenant_id, only, first_day, MAX_STORES, max_stores),
        )?;
        let sum = |number: fn(&UseOfDay) -> u64| data.iter().map(number).sum::<u64>();
        Ok(DailyUseReport {
            r#type: DailyUsageType,
            first_day,
            last_day,
            reads: sum(|use_of| use_of.reads),
            writes: sum(|use_of| use_of.writes),
            refusals: sum(|use_of| use_of.refusals),
            conflicts: sum(|use_of| use_of.conflicts),
            data,
            most_written: written,
            most_refused: refused,
            most_grown: grown,
        })
    }

    /// Adds the last read if it is not flushed, and when the memory expires if it is not read again.
    fn use_of(
        &self,
        principal: &Principal,
        store_id: StoreId,
        expiry: Expiry,
        mut memory: MemoryUse,
    ) -> MemoryUse {
        let MemoryUse { memory_id, is_pinned, expires_at, last_written_at, .. } = memory;
        let active_at = memory.last_accessed_at.max(memory.active_at);
        let life = Life { memory_id, is_pinned, expires_at, updated_at: last_written_at, active_at };
        let (noted, expires_at) = self.noted_and_expiry(principal, store_id, expiry, life);
        memory.expires_at = expires_at;
        if let Some((at, by)) = noted
            && Some(at) > memory.last_accessed_at
        {
            (memory.last_accessed_at, memory.last_accessed_by) = (Some(at), Some(by));
        }
        memory
    }

    /// The last read of a memory that is not flushed, and when the memory expires with it.
    fn noted_and_expiry(
        &self,
        principal: &Principal,
        store_id: StoreId,
        expiry: Expiry,
        life: Life,
    ) -> (Option<(Timestamp, Actor)>, Option<Timestamp>) {
        let noted = self.access.noted(principal.tenant_id, store_id, life.memory_id);
        let alive_at = noted.as_ref().map_or(life.alive_at(), |(at, _)| life.alive_at().max(*at));
        (noted, expiry.earliest(alive_at, life.expires_at).filter(|_| !life.is_pinned))
    }
}
