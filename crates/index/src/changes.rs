//! The changes of stores in the order of their commits, for readers that follow them.
//!
//! The versions of a store are its changes. Their sequence numbers have no gaps when
//! they are written, so a missing number is a version that was removed later.

use std::sync::Arc;

use keepsake_core::{Id, SessionId, StoreId, TenantId, Timestamp, VersionId};
use serde_json::{Value, json};
use sqlx::AssertSqlSafe;

use crate::IndexError;
use crate::database::{Database, FromRow, Role, Row, from_row};
use crate::model::Version;
use crate::numbers::hex;
use crate::versions::VERSION_COLUMNS;

/// The watched objects in a JSON parameter: a table `w` with a tenant and an id.
const WATCHED: [&str; 2] = [
    "jsonb_to_recordset($1::jsonb) AS w(tenant_id uuid, id uuid)",
    "(SELECT unhex(value ->> 'tenant_id') AS tenant_id, unhex(value ->> 'id') AS id FROM json_each($1)) w",
];

#[derive(Debug, Clone)]
pub struct Changes(pub(crate) Database);

/// The newest change of a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StoreHead {
    pub tenant_id: TenantId,
    pub store_id: StoreId,
    /// The sequence number of the newest version.
    pub seq: i64,
    /// The number of removals of history.
    pub purge_epoch: i64,
}

/// The number of recent events of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SessionHead {
    pub tenant_id: TenantId,
    pub session_id: SessionId,
    /// The number of its recent events that are written.
    pub recent_events: u64,
}

/// Consecutive changes of a store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChangePage {
    /// The sequence number of the store's newest version.
    pub seq: i64,
    /// The number of removals of the store's history.
    pub purge_epoch: i64,
    /// The version at the position after which the page begins, if it exists.
    pub version_before: Option<VersionId>,
    /// The newest version, if there is one.
    pub newest_version: Option<VersionId>,
    /// Oldest first.
    pub versions: Arc<[Version]>,
}

from_row! {
    StoreHead { tenant_id = "of_tenant", store_id = "of_store", seq = "newest_seq", purge_epoch }
    ChangePage { seq = "newest_seq", purge_epoch, version_before, newest_version .. versions }
    SessionHead { tenant_id, session_id, recent_events }
}

/// The state of a store, and a version after the given place, if there is one.
impl FromRow for (ChangePage, Option<Version>) {
    fn from_row(row: &Row) -> Result<Self, IndexError> {
        Ok((row.read()?, row.read_unless_null("version_id")?))
    }
}

const HEAD: &str = "s.tenant_id AS of_tenant, s.store_id AS of_store, s.seq AS newest_seq, s.purge_epoch";

impl Changes {
    /// The changes after a sequence number, oldest first; `None`: the store does not
    /// exist.
    pub async fn after(
        &self,
        tenant_id: TenantId,
        store_id: StoreId,
        after: i64,
        limit: u32,
    ) -> Result<Option<ChangePage>, IndexError> {
        let text = format!(
            "SELECT {HEAD}, \
                (SELECT p.version_id FROM version p \
                 WHERE p.tenant_id = $1 AND p.store_id = $2 AND p.seq = $3) AS version_before, \
                (SELECT n.version_id FROM version n \
                 WHERE n.tenant_id = $1 AND n.store_id = $2 AND n.seq = s.seq) AS newest_version, \
                v.* FROM store s LEFT JOIN ( \
                SELECT {VERSION_COLUMNS} FROM version WHERE tenant_id = $1 AND store_id = $2 AND seq > $3 \
                ORDER BY seq LIMIT $4 + 0) v ON TRUE \
             WHERE s.tenant_id = $1 AND s.store_id = $2 AND s.deleted_at IS NULL ORDER BY v.seq"
        );
        let (role, values) = (Role::Tenant(tenant_id), (tenant_id, store_id, after, limit));
        let rows: Vec<(ChangePage, Option<Version>)> =
            self.0.all("changes_after", role, AssertSqlSafe(text), values).await?;
        let first = rows.first().map(|(page, _)| page.clone());
        let versions = rows.into_iter().filter_map(|(_, version)| version).collect();
        Ok(first.map(|page| ChangePage { versions, ..page }))
    }

    /// The newest changes of stores of any tenant, in one query. Deleted stores are
    /// missing.
    pub async fn store_heads(&self, stores: &[(TenantId, StoreId)]) -> Result<Vec<StoreHead>, IndexError> {
        let text = format!(
            "SELECT {HEAD} FROM {} JOIN store s ON s.tenant_id = w.tenant_id AND s.store_id = w.id \
             WHERE s.deleted_at IS NULL",
            self.0.choose(WATCHED)
        );
        let mut tx = self.0.read_one("store_heads", Role::Shared(None)).await?;
        let mut heads = Vec::new();
        for ids in self.0.json_parts(stores, |(tenant_id, _)| *tenant_id, watched) {
            let query = tx.query(AssertSqlSafe(text.clone())).bind(ids);
            heads.extend(query.all::<StoreHead>().await?);
        }
        tx.commit().await?;
        Ok(heads)
    }

    /// How many events of sessions of any tenant have happened since a time, in one
    /// query. Sessions without such events are missing.
    pub async fn session_heads(
        &self,
        sessions: &[(TenantId, SessionId)],
        since: Timestamp,
    ) -> Result<Vec<SessionHead>, IndexError> {
        let text = format!(
            "SELECT e.tenant_id, e.session_id, count(*) AS recent_events FROM {} \
             JOIN session_event e ON e.tenant_id = w.tenant_id AND e.session_id = w.id AND e.at >= $2 \
             GROUP BY e.tenant_id, e.session_id",
            self.0.choose(WATCHED)
        );
        let mut tx = self.0.read_one("session_heads", Role::Shared(None)).await?;
        let mut heads = Vec::new();
        for ids in self.0.json_parts(sessions, |(tenant_id, _)| *tenant_id, watched) {
            let query = tx.query(AssertSqlSafe(text.clone())).bind((ids, since));
            heads.extend(query.all::<SessionHead>().await?);
        }
        tx.commit().await?;
        Ok(heads)
    }
}

fn watched<K: Copy>((tenant_id, id): &(TenantId, Id<K>)) -> Value {
    json!({"tenant_id": hex(tenant_id.uuid()), "id": hex(id.uuid())})
}
