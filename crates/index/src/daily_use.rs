//! Reads, writes, refused changes and growth per day: written with the access times, and summed up.
//!
//! A flush adds counts of any tenant in one transaction. Counts of stores that are gone are
//! dropped; those of the tenant stay.

use std::cmp::Reverse;
use std::ops::AddAssign;

use keepsake_core::{StoreId, Surface, TenantId, Timestamp};
use serde::{Serialize, Serializer};
use serde_json::{Value, json};
use sqlx::AssertSqlSafe;
use utoipa::ToSchema;
use uuid::Uuid;

use crate::access_times::LOCK_STORES;
use crate::database::{Database, Ids, Role, from_row};
use crate::numbers::{hex, signed, unsigned};
use crate::{FlushedBatch, IndexError};

pub const MICROS_PER_DAY: i64 = 86_400_000_000;

/// Stands for the whole tenant in the key of a row.
const WHOLE_TENANT: StoreId = StoreId::from_uuid(Uuid::nil());

/// Locks tenants against the begin of their deletion, which takes their rows `FOR UPDATE`.
const LOCK_TENANTS: &str = "SELECT FROM tenant t WHERE t.tenant_id IN ( \
        SELECT r.tenant_id FROM jsonb_to_recordset($1::jsonb) AS r(tenant_id uuid)) \
    ORDER BY t.tenant_id FOR KEY SHARE";

/// The rows of the JSON parameter.
const ROWS: [&str; 2] = [
    "SELECT * FROM jsonb_to_recordset($1::jsonb) AS r(tenant_id uuid, store_id uuid, day bigint, surface text, \
        reads bigint, writes bigint, refusals bigint, conflicts bigint, growth bigint)",
    "SELECT unhex(value ->> 'tenant_id') AS tenant_id, unhex(value ->> 'store_id') AS store_id, \
        value ->> 'day' AS day, value ->> 'surface' AS surface, value ->> 'reads' AS reads, \
        value ->> 'writes' AS writes, value ->> 'refusals' AS refusals, value ->> 'conflicts' AS conflicts, \
        value ->> 'growth' AS growth FROM json_each($1)",
];

/// Without rows that have only growth: of jobs and forks.
const OF_TENANT: &str = "SELECT day, surface, reads, writes, refusals, conflicts FROM daily_use \
    WHERE tenant_id = $1 AND store_id = $2 AND day >= $3 AND reads + writes + refusals + conflicts > 0 \
    ORDER BY day, surface";

/// The same of stores, in at most 100,000 rows.
const OF_STORES: &str = "SELECT u.day, u.surface, CAST(sum(u.reads) AS bigint) AS reads, \
        CAST(sum(u.writes) AS bigint) AS writes, CAST(sum(u.refusals) AS bigint) AS refusals, \
        CAST(sum(u.conflicts) AS bigint) AS conflicts \
    FROM (SELECT d.day, d.surface, d.reads, d.writes, d.refusals, d.conflicts FROM (SELECT DISTINCT id FROM_IDS($2)) ids \
        EACH[daily_use d: d.tenant_id = $1 AND d.store_id = ids.id AND d.day >= $3] LIMIT 100000) u \
    GROUP BY u.day, u.surface \
    HAVING sum(u.reads) + sum(u.writes) + sum(u.refusals) + sum(u.conflicts) > 0 ORDER BY u.day, u.surface";

/// The rows of whole tenants since `$3`, looked up for each tenant.
const ROWS_OF_TENANTS: &str = "(SELECT DISTINCT id FROM_IDS($1)) ids \
    EACH[daily_use d: d.tenant_id = ids.id AND d.store_id = $2 AND d.day >= $3]";

/// The same of a distributed database, which makes no look-ups of a list.
const ROWS_OF_NODES: &str = "daily_use d WHERE d.tenant_id IN_IDS($1) AND d.store_id = $2 AND d.day >= $3";

/// The `$4` stores that changed last, of the newest 10,000 stores.
const CHANGED_LAST: &str = "SELECT l.store_id FROM (SELECT c.store_id, c.last_version_at FROM store c \
        WHERE c.tenant_id = $1 AND c.deleted_at IS NULL AND ($5 IS NULL OR c.store_id IN_IDS($5)) \
        ORDER BY c.created_at DESC LIMIT 10000) l \
    ORDER BY l.last_version_at DESC, l.store_id LIMIT $4 + 0";

/// How often something was done with the memories of a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct UseNumbers {
    /// Versions shown.
    pub reads: u64,
    /// Versions written.
    pub writes: u64,
    /// Changes that a limit, a policy or a state of the store refused.
    pub refusals: u64,
    /// Changes that another change came before.
    pub conflicts: u64,
    /// Memories created and restored, less those deleted.
    pub growth: i64,
}

impl UseNumbers {
    /// How often anything was done. The growth is not added.
    pub const fn total(self) -> u64 {
        self.reads + self.writes + self.refusals + self.conflicts
    }
}

impl AddAssign for UseNumbers {
    fn add_assign(&mut self, other: Self) {
        self.reads += other.reads;
        self.writes += other.writes;
        self.refusals += other.refusals;
        self.conflicts += other.conflicts;
        self.growth += other.growth;
    }
}

/// The use of a store on one day through one surface.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CountedUse {
    pub tenant_id: TenantId,
    /// `None`: in all stores of the tenant.
    pub store_id: Option<StoreId>,
    pub day: i64,
    pub surface: Surface,
    pub numbers: UseNumbers,
}

/// The use of a day through one surface.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = DailyUsageCount)]
pub struct UseOfDay {
    /// The day (UTC).
    #[serde(rename = "date", serialize_with = "as_date")]
    #[schema(value_type = String, format = Date, examples("2026-01-30"))]
    pub day: i64,
    pub surface: Surface,
    /// How often a version was shown.
    pub reads: u64,
    /// How many versions were written.
    pub writes: u64,
    /// How many changes were refused.
    pub refusals: u64,
    /// How many changes came after another one.
    pub conflicts: u64,
}

/// The use of a store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = DailyUsageStore)]
pub struct UseOfStore {
    #[serde(rename = "memory_store_id")]
    pub store_id: StoreId,
    pub name: String,
    /// How often a version was shown.
    pub reads: u64,
    /// How many versions were written.
    pub writes: u64,
    /// How many changes were refused.
    pub refusals: u64,
    /// How many changes came after another one.
    pub conflicts: u64,
    /// Memories created and restored, less those deleted.
    #[serde(skip)]
    pub growth: i64,
}

/// The stores with the most uses, the first one first; a store without such a use is left out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MostUsed {
    pub written: Vec<UseOfStore>,
    /// By refusals and conflicts.
    pub refused: Vec<UseOfStore>,
    pub grown: Vec<UseOfStore>,
}

impl MostUsed {
    fn among(stores: &[UseOfStore], limit: u32) -> Self {
        let most = |uses: fn(&UseOfStore) -> u64| {
            let mut used: Vec<_> = stores.iter().filter(|store| uses(store) > 0).cloned().collect();
            used.sort_by_key(|store| (Reverse(uses(store)), Reverse(store.reads), store.store_id));
            used.truncate(limit as usize);
            used
        };
        Self {
            written: most(|store| store.writes),
            refused: most(|store| store.refusals + store.conflicts),
            grown: most(|store| unsigned(store.growth)),
        }
    }
}

from_row! {
    UseOfDay { day, surface, reads, writes, refusals, conflicts }
    UseOfStore { store_id, name, reads, writes, refusals, conflicts, growth }
}

/// A day since 1970 as `2023-11-14`.
pub fn date_of(day: i64) -> String {
    let mut text = Timestamp::from_micros(day.saturating_mul(MICROS_PER_DAY)).to_rfc3339();
    text.truncate("2023-11-14".len());
    text
}

/// For serde: [`date_of`] a day.
pub fn as_date<S: Serializer>(day: &i64, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&date_of(*day))
}

#[derive(Debug, Clone)]
pub struct DailyUse(pub(crate) Database);

impl DailyUse {
    /// Adds counts to those of their days, unless an earlier attempt did.
    pub async fn add(&self, batch: FlushedBatch, counts: &[CountedUse]) -> Result<(), IndexError> {
        let mut tx = self.0.write("add_daily_use", Role::Shared(None)).await?;
        if !batch.begin(&mut tx, "daily_use").await? {
            return tx.commit().await;
        }
        for rows in self.0.json_parts(counts, |count| count.tenant_id, to_json) {
            tx.execute_on_postgres(LOCK_TENANTS, &rows).await?;
            tx.execute_on_postgres(LOCK_STORES, &rows).await?;
            let text = AssertSqlSafe(add(tx.choose(ROWS)));
            tx.query(text).bind((&rows, WHOLE_TENANT)).execute().await?;
        }
        tx.commit().await
    }

    /// The use since a day, in the order of days. With `only`, that of these stores.
    pub async fn since(
        &self,
        tenant_id: TenantId,
        only: Option<&[StoreId]>,
        day: i64,
    ) -> Result<Vec<UseOfDay>, IndexError> {
        let (call, role) = ("daily_use", Role::Tenant(tenant_id));
        match only {
            None => self.0.all(call, role, OF_TENANT, (tenant_id, WHOLE_TENANT, day)).await,
            Some(_) => self.0.all_with_lists(call, role, OF_STORES, (tenant_id, Ids(only), day)).await,
        }
    }

    /// The reads and writes of each of these tenants since a day, without tenants that have none.
    pub async fn of_tenants(
        &self,
        tenant_ids: &[TenantId],
        day: i64,
    ) -> Result<Vec<(TenantId, u64, u64)>, IndexError> {
        let text = of_tenants(if self.0.is_distributed() { ROWS_OF_NODES } else { ROWS_OF_TENANTS });
        let values = (Ids(Some(tenant_ids)), WHOLE_TENANT, day);
        self.0.all_with_lists("daily_use_of_tenants", Role::Shared(None), &text, values).await
    }

    /// The stores with the most uses since a day, at most `limit` for each use, among the
    /// `max_stores` that changed last of the newest 10,000 stores. With `only`, among these stores.
    pub async fn most_used(
        &self,
        tenant_id: TenantId,
        only: Option<&[StoreId]>,
        day: i64,
        limit: u32,
        max_stores: u64,
    ) -> Result<MostUsed, IndexError> {
        let (call, role) = ("most_used_stores", Role::Tenant(tenant_id));
        let values = (tenant_id, day, limit, max_stores, Ids(only));
        let text = most_used(self.0.sqlite().is_some());
        let stores: Vec<UseOfStore> = self.0.all_with_lists(call, role, &text, values).await?;
        Ok(MostUsed::among(&stores, limit))
    }
}

fn to_json(count: &CountedUse) -> Value {
    let CountedUse { tenant_id, store_id, day, surface, numbers } = *count;
    json!({
        "tenant_id": hex(tenant_id.uuid()),
        "store_id": hex(store_id.unwrap_or(WHOLE_TENANT).uuid()),
        "day": day,
        "surface": surface.name(),
        "reads": signed(numbers.reads),
        "writes": signed(numbers.writes),
        "refusals": signed(numbers.refusals),
        "conflicts": signed(numbers.conflicts),
        "growth": numbers.growth,
    })
}

/// The reads and writes of the tenants of these rows.
fn of_tenants(rows: &str) -> String {
    format!(
        "SELECT d.tenant_id, CAST(sum(d.reads) AS bigint) AS reads, CAST(sum(d.writes) AS bigint) AS writes \
        FROM {rows} GROUP BY d.tenant_id"
    )
}

/// The stores that are among the `$3` most used ones in any order of [`MostUsed`].
fn most_used(is_sqlite: bool) -> String {
    // Postgres looks up the counts of these stores only. SQLite reads them in the order of the key, so that it
    // sums them up without a sort.
    let (stores, condition) = if is_sqlite {
        ("store".to_owned(), format!("WHERE s.tenant_id = $1 AND s.store_id IN ({CHANGED_LAST})"))
    } else {
        (format!("({CHANGED_LAST})"), String::new())
    };
    format!(
        "SELECT m.store_id, n.name, m.reads, m.writes, m.refusals, m.conflicts, m.growth \
        FROM (SELECT u.store_id, u.reads, u.writes, u.refusals, u.conflicts, u.growth, \
                row_number() OVER (ORDER BY u.writes DESC, u.reads DESC, u.store_id) AS by_writes, \
                row_number() OVER (ORDER BY u.refusals + u.conflicts DESC, u.reads DESC, u.store_id) AS by_refusals, \
                row_number() OVER (ORDER BY u.growth DESC, u.reads DESC, u.store_id) AS by_growth \
            FROM (SELECT s.store_id, CAST(sum(d.reads) AS bigint) AS reads, CAST(sum(d.writes) AS bigint) AS writes, \
                    CAST(sum(d.refusals) AS bigint) AS refusals, CAST(sum(d.conflicts) AS bigint) AS conflicts, \
                    CAST(sum(d.growth) AS bigint) AS growth \
                FROM {stores} s EACH[daily_use d: d.tenant_id = $1 AND d.store_id = s.store_id AND d.day >= $2] \
                {condition} GROUP BY s.store_id) u) m \
        EACH[store n: n.tenant_id = $1 AND n.store_id = m.store_id] \
        WHERE (m.by_writes <= $3 AND m.writes > 0) OR (m.by_refusals <= $3 AND m.refusals + m.conflicts > 0) \
            OR (m.by_growth <= $3 AND m.growth > 0)"
    )
}

/// Every replica writes the rows in the same order, so that two flushes cannot deadlock.
fn add(rows: &str) -> String {
    format!(
        "INSERT INTO daily_use AS a (tenant_id, store_id, day, surface, reads, writes, refusals, conflicts, growth) \
        SELECT r.tenant_id, r.store_id, r.day, r.surface, r.reads, r.writes, r.refusals, r.conflicts, r.growth \
        FROM ({rows}) r \
        WHERE CASE WHEN r.store_id = $2 \
            THEN EXISTS (SELECT 1 FROM tenant t WHERE t.tenant_id = r.tenant_id AND t.status <> 'deleting' \
                LIMIT 1 OFFSET 0) \
            ELSE EXISTS (SELECT 1 FROM store s WHERE s.tenant_id = r.tenant_id AND s.store_id = r.store_id \
                AND s.deleted_at IS NULL LIMIT 1 OFFSET 0) END \
        ORDER BY r.tenant_id, r.store_id, r.day, r.surface \
        ON CONFLICT (tenant_id, store_id, day, surface) \
        DO UPDATE SET reads = a.reads + excluded.reads, writes = a.writes + excluded.writes, \
            refusals = a.refusals + excluded.refusals, conflicts = a.conflicts + excluded.conflicts, \
            growth = a.growth + excluded.growth"
    )
}

#[cfg(test)]
mod tests {
    use super::{OF_STORES, OF_TENANT, ROWS_OF_TENANTS, most_used, of_tenants};
    use crate::sqlite::plans::assert_steps;

    #[tokio::test]
    async fn use_since_a_day_is_a_range_of_the_key() {
        let range = "PRIMARY KEY (tenant_id=? AND store_id=? AND day>?)";
        for statement in [OF_TENANT, OF_STORES, &of_tenants(ROWS_OF_TENANTS)] {
            assert_steps(statement, &[range]).await;
        }
        let steps = assert_steps(&most_used(true), &[range, "store_created (tenant_id=?)"]).await;
        assert!(!steps.iter().any(|step| step.contains("GROUP BY")), "it sorts: {steps:#?}");
    }
}
