//! Large undos: a plan that is fixed when it is recorded, in parts of one commit each.
//!
//! As of a fork, the end of a worker's lease is its fence.

use std::collections::BTreeMap;
use std::time::Duration;

use keepsake_core::{Actor, MemoryUndoId, ObjectKind, Refused, StoreId, TenantId, Timestamp};
use sqlx::types::Json;

use crate::calls::{CallObject, earlier_object, record_call};
use crate::database::{Bind, Database, Query, Role, from_row, selects};
use crate::model::Idempotency;
use crate::stores::lock_live_store;
use crate::{ChangeError, IndexError};

/// Whether an undo is under way, or 10 that were cancelled have not ended: their plans count towards no quota.
const IS_BUSY: &str = "SELECT count(*) FILTER (WHERE NOT is_cancelled) > 0 OR count(*) >= 10 FROM memory_undo \
    WHERE tenant_id = $1 AND store_id = $2 AND ended_at IS NULL";

/// Removes all reports of a store but the last 20, for the same reason: first their parts, then the undos without
/// parts. So an undo that ends between the two statements stays whole.
const DROP_REPORTS: [&str; 2] = [
    "DELETE FROM memory_undo_part WHERE tenant_id = $1 AND store_id = $2 AND undo_id IN ( \
        SELECT undo_id FROM memory_undo WHERE tenant_id = $1 AND store_id = $2 AND ended_at IS NOT NULL \
        ORDER BY ended_at DESC, undo_id LIMIT 1000 OFFSET 20)",
    "DELETE FROM memory_undo WHERE tenant_id = $1 AND store_id = $2 AND ended_at IS NOT NULL \
        AND NOT EXISTS (SELECT 1 FROM memory_undo_part p \
            WHERE p.tenant_id = $1 AND p.store_id = $2 AND p.undo_id = memory_undo.undo_id)",
];

const INSERT: &str = "INSERT INTO memory_undo (tenant_id, store_id, undo_id, actor_type, actor_id, created_at, lease_until, is_cancelled) \
    VALUES ($1, $2, $3, $4, $5, $6, $7, false)";

const INSERT_PART: &str = "INSERT INTO memory_undo_part (tenant_id, store_id, undo_id, part, is_done, counts, steps) \
    VALUES ($1, $2, $3, $4, $5, $6, $7)";

selects! {
    "undo_id, actor_type, actor_id, created_at, ended_at, failing_since, error, is_cancelled FROM memory_undo \
        WHERE tenant_id = $1 AND store_id = $2";
    const FIND = "AND undo_id = $3 AND EXISTS (SELECT 1 FROM store s \
        WHERE s.tenant_id = $1 AND s.store_id = $2 AND s.deleted_at IS NULL)";
}

const PARTS: &str = "SELECT part, is_done, counts FROM memory_undo_part \
    WHERE tenant_id = $1 AND store_id = $2 AND undo_id = $3 ORDER BY part";

const STEPS: &str = "SELECT steps FROM memory_undo_part \
    WHERE tenant_id = $1 AND store_id = $2 AND undo_id = $3 AND part = $4";

const FINISH_PART: &str = "UPDATE memory_undo_part SET is_done = true, counts = $5, steps = $6 \
    WHERE tenant_id = $1 AND store_id = $2 AND undo_id = $3 AND part = $4 AND NOT is_done";

/// The same, of an undo that was cancelled while a worker made the part.
const FINISH_LAST_PART: &str = "UPDATE memory_undo_part SET is_done = true, counts = $5, steps = $6 \
    WHERE tenant_id = $1 AND store_id = $2 AND undo_id = $3 AND part = $4 AND NOT is_done \
    AND EXISTS (SELECT 1 FROM memory_undo u \
        WHERE u.tenant_id = $1 AND u.store_id = $2 AND u.undo_id = $3 AND u.is_cancelled)";

/// A lease that ends later than twice its length from the present, `$5`, was taken by a clock that was ahead, and
/// does not count.
const HOLD: &str = "UPDATE memory_undo SET lease_until = $4 \
    WHERE tenant_id = $1 AND store_id = $2 AND undo_id = $3 AND ended_at IS NULL \
    AND (lease_until <= $5 OR lease_until > $4 + $4 - $5)";

const RENEW: &str = "UPDATE memory_undo SET lease_until = $4, failing_since = NULL \
    WHERE tenant_id = $1 AND store_id = $2 AND undo_id = $3 AND ended_at IS NULL AND NOT is_cancelled \
    AND lease_until = $5";

const NOTE_FAILURE: &str = "UPDATE memory_undo SET failing_since = $4 \
    WHERE tenant_id = $1 AND store_id = $2 AND undo_id = $3 AND ended_at IS NULL AND lease_until = $5";

const CANCEL: &str = "UPDATE memory_undo SET is_cancelled = true \
    WHERE tenant_id = $1 AND store_id = $2 AND undo_id = $3 AND ended_at IS NULL";

const END: &str = "UPDATE memory_undo SET ended_at = $4, error = $5 \
    WHERE tenant_id = $1 AND store_id = $2 AND undo_id = $3 AND ended_at IS NULL AND lease_until = $6";

/// Of each tenant the undo that no worker has held for the longest time.
const OPEN: &str = "SELECT tenant_id, store_id, undo_id FROM (SELECT tenant_id, store_id, undo_id, lease_until, \
        row_number() OVER (PARTITION BY tenant_id ORDER BY lease_until, store_id) AS place \
    FROM memory_undo WHERE ended_at IS NULL AND (lease_until <= $1 OR lease_until > $3)) waiting \
    WHERE place = 1 ORDER BY lease_until LIMIT $2 + 0";

/// One commit of a plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UndoPart {
    /// Whether nothing is left to do.
    pub is_done: bool,
    /// The number of memories by what becomes of them.
    pub counts: BTreeMap<String, u64>,
    /// The steps, as JSON without paths and contents.
    pub steps: String,
}

#[derive(Debug, Clone)]
pub struct NewUndo {
    pub undo_id: MemoryUndoId,
    pub store_id: StoreId,
    pub actor: Option<Actor>,
    pub created_at: Timestamp,
    /// Until when the replica that records it carries it out.
    pub lease_until: Timestamp,
    pub parts: Vec<UndoPart>,
}

/// An undo in several commits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredUndo {
    pub undo_id: MemoryUndoId,
    pub actor: Option<Actor>,
    pub created_at: Timestamp,
    pub ended_at: Option<Timestamp>,
    /// When the server failed first after the last commit.
    pub failing_since: Option<Timestamp>,
    /// Why it was broken off.
    pub error: Option<String>,
    pub is_cancelled: bool,
}

/// How far one commit of a plan is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UndoPartState {
    pub part: i64,
    pub is_done: bool,
    pub counts: BTreeMap<String, u64>,
}

/// The key of an undo.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct UndoKey {
    pub tenant_id: TenantId,
    pub store_id: StoreId,
    pub undo_id: MemoryUndoId,
}

#[derive(Debug, Clone)]
pub struct UndoJobs(pub(crate) Database);

from_row! {
    StoredUndo {
        undo_id, created_at, ended_at, failing_since, error, is_cancelled; actor by ["actor_type", "actor_id"]
    }
    UndoPartState { part, is_done, counts }
    UndoKey { tenant_id, store_id, undo_id }
}

impl Bind<'_> for UndoKey {
    fn bind_to(self, query: Query<'_>) -> Query<'_> {
        query.bind((self.tenant_id, self.store_id, self.undo_id))
    }
}

impl UndoJobs {
    /// Records an undo with its plan; returns the id of the undo that this call recorded, or the
    /// same call earlier. `None`: another undo of the store is under way. Keeps the reports of the last 20 undos that
    /// have ended.
    pub async fn create(
        &self,
        tenant_id: TenantId,
        undo: &NewUndo,
        idempotency: Option<&Idempotency>,
    ) -> Result<Option<MemoryUndoId>, ChangeError> {
        let store = (tenant_id, undo.store_id);
        let mut tx = self.0.write("create_undo", Role::Tenant(tenant_id)).await?;
        let found = lock_live_store(&mut tx, tenant_id, undo.store_id).await?;
        let found = found.ok_or(ChangeError::NotFound(ObjectKind::Store))?;
        if let Some(earlier) = earlier_object(&mut tx, tenant_id, idempotency).await? {
            return Ok(Some(earlier));
        }
        if found.is_archived {
            return Err(Refused::Archived.into());
        }
        if tx.query(IS_BUSY).bind(store).scalar::<bool>().await? {
            return Ok(None);
        }
        for text in DROP_REPORTS {
            tx.query(text).bind(store).execute().await?;
        }
        let (kind, id) = undo.actor.as_ref().map(|actor| (actor.kind(), actor.id())).unzip();
        let query = tx.query(INSERT).bind(store).bind((undo.undo_id, kind, id));
        query.bind((undo.created_at, undo.lease_until)).execute().await?;
        for (number, part) in (0_i64..).zip(&undo.parts) {
            let query = tx.query(INSERT_PART).bind(store).bind((undo.undo_id, number, part.is_done));
            query.bind((Json(&part.counts), &part.steps)).execute().await?;
        }
        let made = CallObject {
            object_id: undo.undo_id.uuid(),
            store_id: Some(undo.store_id),
            version_seq: None,
            is_kept: false,
        };
        record_call(&mut tx, tenant_id, made, idempotency, undo.created_at).await?;
        tx.commit().await?;
        Ok(Some(undo.undo_id))
    }

    /// An undo with the states of its parts.
    pub async fn find(&self, key: UndoKey) -> Result<Option<(StoredUndo, Vec<UndoPartState>)>, IndexError> {
        let mut tx = self.0.read("memory_undo", Role::Tenant(key.tenant_id)).await?;
        let Some(undo) = tx.query(FIND).bind(key).optional().await? else {
            return Ok(None);
        };
        let parts = tx.query(PARTS).bind(key).all().await?;
        tx.commit().await?;
        Ok(Some((undo, parts)))
    }

    /// The steps of a part, as JSON.
    pub async fn steps(&self, key: UndoKey, part: i64) -> Result<Option<String>, IndexError> {
        let steps: Option<(String,)> =
            self.0.optional("undo_steps", Role::Tenant(key.tenant_id), STEPS, (key, part)).await?;
        Ok(steps.map(|(steps,)| steps))
    }

    /// Records what became of a part, unless it is recorded already, and holds the undo until `until`, or
    /// releases it if that is the present; `false`: the undo was cancelled, or another worker has taken it over from the
    /// worker that held it until `held_until`.
    pub async fn finish_part(
        &self,
        key: UndoKey,
        (part, done): (i64, &UndoPart),
        held_until: Timestamp,
        until: Timestamp,
    ) -> Result<bool, IndexError> {
        let mut tx = self.0.write("finish_undo_part", Role::Tenant(key.tenant_id)).await?;
        let is_held = tx.query(RENEW).bind((key, until, held_until)).execute().await? > 0;
        let text = if is_held { FINISH_PART } else { FINISH_LAST_PART };
        let query = tx.query(text).bind((key, part, Json(&done.counts), &done.steps));
        query.execute().await?;
        tx.commit().await?;
        Ok(is_held)
    }

    /// Records what became of a part of a cancelled undo, unless it is recorded already.
    pub async fn finish_last_part(
        &self,
        key: UndoKey,
        (part, done): (i64, &UndoPart),
    ) -> Result<(), IndexError> {
        let (role, values) = (Role::Tenant(key.tenant_id), (key, part, Json(&done.counts), &done.steps));
        self.0.change("finish_last_undo_part", role, FINISH_LAST_PART, values).await.map(drop)
    }

    /// Records when the server failed first after the last commit.
    pub async fn note_failure(
        &self,
        key: UndoKey,
        now: Timestamp,
        held_until: Timestamp,
    ) -> Result<(), IndexError> {
        let (role, values) = (Role::Tenant(key.tenant_id), (key, now, held_until));
        self.0.change("note_undo_failure", role, NOTE_FAILURE, values).await.map(drop)
    }

    /// Cancels an undo whatever is left of it; `false`: it has ended already. Its worker makes no further part. It
    /// stays open until its lease is over: only then is it known whether the last part was made.
    pub async fn cancel(&self, key: UndoKey) -> Result<bool, IndexError> {
        Ok(self.0.change("cancel_undo", Role::Tenant(key.tenant_id), CANCEL, key).await? > 0)
    }

    /// Holds an undo until `until`, unless another worker holds it at `now`.
    pub async fn hold(&self, key: UndoKey, now: Timestamp, until: Timestamp) -> Result<bool, IndexError> {
        let (role, values) = (Role::Tenant(key.tenant_id), (key, until, now));
        Ok(self.0.change("hold_undo", role, HOLD, values).await? > 0)
    }

    /// Ends an undo, unless another worker has taken it over. With `error`, it was broken off.
    pub async fn end(
        &self,
        key: UndoKey,
        now: Timestamp,
        error: Option<&str>,
        held_until: Timestamp,
    ) -> Result<(), IndexError> {
        let (role, values) = (Role::Tenant(key.tenant_id), (key, now, error, held_until));
        self.0.change("end_undo", role, END, values).await.map(drop)
    }

    /// Undos of all tenants that no worker holds, each for `length`: one of each tenant, whose turn has been
    /// due for the longest time.
    pub async fn open(
        &self,
        now: Timestamp,
        length: Duration,
        limit: u32,
    ) -> Result<Vec<UndoKey>, IndexError> {
        self.0.all("open_undos", Role::Job(None), OPEN, (now, limit, now.plus(2 * length))).await
    }
}
