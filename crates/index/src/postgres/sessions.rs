//! Sessions of a tenant, their attachments and events.

use async_trait::async_trait;
use keepsake_core::{EventId, JsonText, ResourceId, SessionId, StoreId, TenantId, Timestamp};
use serde_json::{Map, Value};
use sqlx::postgres::PgRow;
use sqlx::types::Json;
use sqlx::{AssertSqlSafe, Row};
use uuid::Uuid;

use super::PostgresIndex;
use super::audit::{audit, audit_within_quota};
use super::pool::Tx;
use super::reads::{earlier_call, unsigned};
use super::stores::{record_call, signed};
use super::tenants::stays;
use crate::commit::{CallMade, Idempotency};
use crate::model::{AuditAction, AuditObject, Audited, OverQuota};
use crate::sessions::{
    Access, Attachment, EventListing, FoundSession, NewSession, Session, SessionChange, SessionCounters,
    SessionCreation, SessionEvent, SessionLimits, SessionListing, SessionPage, SessionUpdate, SessionUse,
    StoreToAttach,
};
use crate::statements::sessions::{
    DELETE_SESSION, DROP_ATTACHMENT, INSERT_SESSION, PUT_ATTACHMENT, SESSION, SESSION_COUNTERS,
    STORE_TO_ATTACH, UPDATE_SESSION, find_sessions, list_events,
};
use crate::{IndexError, SessionIndex};

/// Selects and locks a session for a change.
const LOCK_SESSION: &str = "SELECT s.session_id, s.agent, s.environment_id, s.title, s.metadata, s.vault_ids, \
    s.created_at, s.updated_at, s.archived_at, s.last_used_at FROM session s \
    WHERE s.tenant_id = $1 AND s.session_id = $2 AND s.deleted_at IS NULL FOR NO KEY UPDATE";

/// Selects sessions by id, with the columns of [`SESSION`].
const SESSIONS: &str = "SELECT s.session_id, s.agent, s.environment_id, s.title, s.metadata, s.vault_ids, \
    s.created_at, s.updated_at, s.archived_at, s.last_used_at FROM session s \
    WHERE s.tenant_id = $1 AND s.session_id = ANY($2) AND s.deleted_at IS NULL";

/// Selects the attachments of sessions to existing stores.
const ATTACHMENTS: &str = "SELECT r.session_id, r.resource_id, r.store_id, r.position, r.slug, r.access, \
    r.instructions, r.name, r.description, r.created_at, r.updated_at FROM session_resource r \
    WHERE r.tenant_id = $1 AND r.session_id = ANY($2) AND EXISTS (SELECT FROM store t \
        WHERE t.tenant_id = $1 AND t.store_id = r.store_id AND t.deleted_at IS NULL)";

/// The condition that a session has stores, and that all of them are among the
/// given ones.
const ONLY: &str = "$10::uuid[] IS NULL OR (SELECT bool_and(o.store_id = ANY($10)) FROM session_resource o JOIN store t \
    ON t.tenant_id = $1 AND t.store_id = o.store_id AND t.deleted_at IS NULL \
    WHERE o.tenant_id = $1 AND o.session_id = s.session_id)";

/// The condition that an event is in one of the given stores.
const ONLY_EVENTS: &str = "$8::uuid[] IS NULL OR store_id = ANY($8)";

/// Inserts events, each one once, except events of deleted or erased objects.
const FLUSH_EVENTS: &str = "INSERT INTO session_event (tenant_id, session_id, at, event_id, store_id, path, new_path, \
        name, input) \
    SELECT e.* FROM unnest($1::uuid[], $2::uuid[], $3::bigint[], $4::uuid[], $5::uuid[], $6::text[], $7::text[], \
        $8::text[], $9::text[]) AS e(tenant_id, session_id, at, event_id, store_id, path, new_path, name, input) \
    WHERE EXISTS (SELECT FROM session s WHERE s.tenant_id = e.tenant_id AND s.session_id = e.session_id \
            AND s.deleted_at IS NULL) \
        AND (e.store_id IS NULL OR EXISTS (SELECT FROM store t WHERE t.tenant_id = e.tenant_id \
            AND t.store_id = e.store_id AND t.deleted_at IS NULL)) \
        AND NOT EXISTS (SELECT FROM erasure x WHERE x.tenant_id = e.tenant_id AND x.store_id = e.store_id \
            AND x.created_at >= e.at) \
    ON CONFLICT (tenant_id, session_id, at, event_id) DO NOTHING";

/// Updates the last uses of sessions. Every replica locks in the same order; the
/// lock sees the writes of others.
const FLUSH_USE: &str = "WITH u AS (SELECT t, id, max(at) AS at FROM unnest($1::uuid[], $2::uuid[], $3::bigint[]) \
        AS u(t, id, at) GROUP BY t, id), \
    locked AS (SELECT s.tenant_id, s.session_id, u.at FROM session s \
        JOIN u ON s.tenant_id = u.t AND s.session_id = u.id \
        WHERE s.last_used_at IS NULL OR s.last_used_at < u.at \
        ORDER BY s.tenant_id, s.session_id FOR NO KEY UPDATE OF s) \
    UPDATE session s SET last_used_at = l.at FROM locked l \
    WHERE s.tenant_id = l.tenant_id AND s.session_id = l.session_id";

#[async_trait]
impl SessionIndex for PostgresIndex {
    async fn create_session(
        &self,
        tenant_id: TenantId,
        session: &NewSession,
        limits: &SessionLimits,
        idempotency: Option<&Idempotency>,
        audited: &Audited,
    ) -> Result<SessionCreation, IndexError> {
        let mut transaction = self.begin(tenant_id).await?;
        if !stays(&mut transaction, tenant_id).await? {
            return Ok(SessionCreation::NoTenant);
        }
        if let Some(call) = idempotency
            && let Some(earlier) =
                earlier_call(&mut *transaction, tenant_id, &call.scope_sha256, call.since).await?
        {
            return Ok(match earlier.same_session(call) {
                Some(session_id) => SessionCreation::Replayed { session_id },
                None => SessionCreation::KeyReused,
            });
        }
        let mut made = session.bare();
        for new in &session.attachments {
            let store = store_to_attach(&mut transaction, tenant_id, new.store_id).await?;
            if let Err(refusal) = made.attach(new, store, session.created_at) {
                return Ok(SessionCreation::Refused(refusal));
            }
        }
        let call = CallMade::object(session.session_id.uuid());
        record_call(&mut transaction, tenant_id, call, idempotency, session.created_at).await?;
        insert(&mut transaction, tenant_id, session, made.description_bytes()).await?;
        for attachment in &made.attachments {
            put(&mut transaction, tenant_id, &made, attachment).await?;
        }
        let counters = counters(&mut transaction, tenant_id).await?;
        if let Err(refusal) = limits.check_creation(counters) {
            return Ok(SessionCreation::OverQuota(refusal));
        }
        let (action, object) = (
            AuditAction::SessionCreated,
            AuditObject::new(session.session_id.uuid()),
        );
        if let Err(refusal) = audit_within_quota(&mut transaction, tenant_id, audited, action, object).await?
        {
            return Ok(SessionCreation::OverQuota(refusal));
        }
        transaction.commit().await?;
        Ok(SessionCreation::Created(Box::new(made)))
    }

    async fn session(
        &self,
        tenant_id: TenantId,
        session_id: SessionId,
    ) -> Result<Option<Session>, IndexError> {
        let mut transaction = self.begin(tenant_id).await?;
        let found = find(&mut transaction, SESSION, tenant_id, session_id).await?;
        transaction.commit().await?;
        Ok(found)
    }

    async fn list_sessions(
        &self,
        tenant_id: TenantId,
        listing: &SessionListing,
    ) -> Result<SessionPage, IndexError> {
        let (at, id) = match listing.after {
            Some((at, session_id)) => (at.as_micros(), session_id.uuid()),
            None if listing.oldest_first => (i64::MIN, Uuid::nil()),
            None => (i64::MAX, Uuid::max()),
        };
        let only = listing.only.as_ref();
        let only = only.map(|only| only.iter().map(|store_id| store_id.uuid()).collect::<Vec<_>>());
        let mut transaction = self.begin(tenant_id).await?;
        let mut query = sqlx::query(AssertSqlSafe(find_sessions(listing, ONLY)))
            .bind(tenant_id.uuid())
            .bind(listing.created_from.map_or(i64::MIN, Timestamp::as_micros))
            .bind(listing.created_to.map_or(i64::MAX, Timestamp::as_micros))
            .bind(at)
            .bind(id)
            .bind(listing.live)
            .bind(listing.archived)
            .bind(listing.agent_version)
            .bind(&listing.agent_id)
            .bind(only)
            .bind(i64::from(listing.limit) + 1);
        if let Some(store_id) = listing.store_id {
            query = query.bind(store_id.uuid());
        }
        let rows = query.fetch_all(&mut *transaction).await?;
        let mut found = rows.iter().map(found_session).collect::<Result<Vec<_>, _>>()?;
        let next = listing.fit(&mut found);
        let ids: Vec<_> = found.iter().map(|found| found.session_id.uuid()).collect();
        let rows = sqlx::query(SESSIONS)
            .bind(tenant_id.uuid())
            .bind(ids)
            .fetch_all(&mut *transaction)
            .await?;
        let mut sessions = rows.iter().map(session_of).collect::<Result<Vec<_>, _>>()?;
        furnish(&mut transaction, tenant_id, &mut sessions).await?;
        transaction.commit().await?;
        Ok(SessionPage::of(&found, sessions, next))
    }

    async fn change_session(
        &self,
        tenant_id: TenantId,
        session_id: SessionId,
        change: &SessionChange,
        idempotency: Option<&Idempotency>,
    ) -> Result<SessionUpdate, IndexError> {
        let mut transaction = self.begin(tenant_id).await?;
        let Some(before) = find(&mut transaction, LOCK_SESSION, tenant_id, session_id).await? else {
            return Ok(SessionUpdate::NoSession);
        };
        if !before.is_within(change.only.as_deref()) {
            return Ok(SessionUpdate::NoSession);
        }
        if let Some(call) = idempotency
            && let Some(earlier) =
                earlier_call(&mut *transaction, tenant_id, &call.scope_sha256, call.since).await?
        {
            return Ok(match earlier.same_session(call) {
                Some(same) if same == session_id => SessionUpdate::Replayed(Box::new(before)),
                _ => SessionUpdate::KeyReused,
            });
        }
        let store = match change.store_id() {
            Some(store_id) => store_to_attach(&mut transaction, tenant_id, store_id).await?,
            None => None,
        };
        let after = match before.changed(change, store) {
            Ok(after) => after,
            Err(refusal) => return Ok(SessionUpdate::Refused(refusal)),
        };
        let call = CallMade::object(session_id.uuid());
        record_call(&mut transaction, tenant_id, call, idempotency, change.audited.at).await?;
        if let Err(refusal) = replace(&mut transaction, tenant_id, &before, &after, change).await? {
            return Ok(SessionUpdate::OverQuota(refusal));
        }
        transaction.commit().await?;
        Ok(SessionUpdate::Done(Box::new(after)))
    }

    async fn delete_session(
        &self,
        tenant_id: TenantId,
        session_id: SessionId,
        audited: &Audited,
    ) -> Result<bool, IndexError> {
        let mut transaction = self.begin(tenant_id).await?;
        let deleted = sqlx::query(DELETE_SESSION)
            .bind(tenant_id.uuid())
            .bind(session_id.uuid())
            .bind(audited.at.as_micros())
            .execute(&mut *transaction)
            .await?;
        if deleted.rows_affected() == 0 {
            return Ok(false);
        }
        let (action, object) = (AuditAction::SessionDeleted, AuditObject::new(session_id.uuid()));
        audit(&mut transaction, tenant_id, audited, action, object).await?;
        transaction.commit().await?;
        Ok(true)
    }

    async fn list_session_events(
        &self,
        tenant_id: TenantId,
        session_id: SessionId,
        listing: &EventListing,
    ) -> Result<Vec<SessionEvent>, IndexError> {
        let (at, id) = match listing.after {
            Some((at, event_id)) => (at.as_micros(), event_id.uuid()),
            None if listing.newest_first => (i64::MAX, Uuid::max()),
            None => (i64::MIN, Uuid::nil()),
        };
        let mut transaction = self.begin(tenant_id).await?;
        let rows = sqlx::query(AssertSqlSafe(list_events(listing.newest_first, ONLY_EVENTS)))
            .bind(tenant_id.uuid())
            .bind(session_id.uuid())
            .bind(listing.from.map_or(i64::MIN, Timestamp::as_micros))
            .bind(listing.to.map_or(i64::MAX, Timestamp::as_micros))
            .bind(at)
            .bind(id)
            .bind(i64::from(listing.limit))
            .bind(
                listing
                    .only
                    .as_ref()
                    .map(|only| only.iter().map(|store_id| store_id.uuid()).collect::<Vec<_>>()),
            )
            .fetch_all(&mut *transaction)
            .await?;
        transaction.commit().await?;
        rows.iter()
            .map(|row| event_of(row, tenant_id, session_id))
            .collect()
    }

    async fn flush_session_events(&self, events: &[SessionEvent]) -> Result<(), IndexError> {
        let of = |uuid: fn(&SessionEvent) -> Uuid| events.iter().map(uuid).collect::<Vec<_>>();
        let places: Vec<_> = events.iter().map(|event| event.place.as_ref()).collect();
        let stores = places
            .iter()
            .map(|place| place.map(|place| place.store_id.uuid()));
        let paths = places.iter().map(|place| place.map(|place| place.path.as_str()));
        let new_paths = places
            .iter()
            .map(|place| place.and_then(|place| place.new_path.as_deref()));
        let inputs = events
            .iter()
            .map(|event| Value::Object(event.input.clone()).to_string());
        sqlx::query(FLUSH_EVENTS)
            .bind(of(|event| event.tenant_id.uuid()))
            .bind(of(|event| event.session_id.uuid()))
            .bind(
                events
                    .iter()
                    .map(|event| event.at.as_micros())
                    .collect::<Vec<_>>(),
            )
            .bind(of(|event| event.event_id.uuid()))
            .bind(stores.collect::<Vec<_>>())
            .bind(paths.collect::<Vec<_>>())
            .bind(new_paths.collect::<Vec<_>>())
            .bind(events.iter().map(|event| event.name.as_str()).collect::<Vec<_>>())
            .bind(inputs.collect::<Vec<_>>())
            .execute(&self.shared)
            .await?;
        Ok(())
    }

    async fn flush_session_use(&self, uses: &[SessionUse]) -> Result<(), IndexError> {
        let tenants: Vec<_> = uses.iter().map(|used| used.tenant_id.uuid()).collect();
        let sessions: Vec<_> = uses.iter().map(|used| used.session_id.uuid()).collect();
        let times: Vec<_> = uses.iter().map(|used| used.used_at.as_micros()).collect();
        sqlx::query(FLUSH_USE)
            .bind(tenants)
            .bind(sessions)
            .bind(times)
            .execute(&self.shared)
            .await?;
        Ok(())
    }
}

async fn find(
    transaction: &mut Tx,
    statement: &'static str,
    tenant_id: TenantId,
    session_id: SessionId,
) -> Result<Option<Session>, IndexError> {
    let row = sqlx::query(statement)
        .bind(tenant_id.uuid())
        .bind(session_id.uuid())
        .fetch_optional(&mut **transaction)
        .await?;
    let Some(row) = row else {
        return Ok(None);
    };
    let mut found = vec![session_of(&row)?];
    furnish(transaction, tenant_id, &mut found).await?;
    Ok(found.pop())
}

/// Adds the attachments to sessions.
async fn furnish(
    transaction: &mut Tx,
    tenant_id: TenantId,
    sessions: &mut [Session],
) -> Result<(), IndexError> {
    let ids: Vec<_> = sessions.iter().map(|session| session.session_id.uuid()).collect();
    let rows = sqlx::query(ATTACHMENTS)
        .bind(tenant_id.uuid())
        .bind(ids)
        .fetch_all(&mut **transaction)
        .await?;
    for row in &rows {
        let of = SessionId::from_uuid(row.try_get(0)?);
        if let Some(session) = sessions.iter_mut().find(|session| session.session_id == of) {
            session.attachments.push(attachment_of(row)?);
        }
    }
    for session in sessions {
        session.attachments.sort_by_key(|attachment| attachment.position);
    }
    Ok(())
}

async fn store_to_attach(
    transaction: &mut Tx,
    tenant_id: TenantId,
    store_id: StoreId,
) -> Result<Option<StoreToAttach>, IndexError> {
    // Held until the end of the transaction: a deletion of the store comes before or
    // after it.
    let row = sqlx::query(AssertSqlSafe(format!("{STORE_TO_ATTACH} FOR SHARE")))
        .bind(tenant_id.uuid())
        .bind(store_id.uuid())
        .fetch_optional(&mut **transaction)
        .await?;
    row.map(|row| {
        Ok(StoreToAttach {
            name: row.try_get(0)?,
            description: row.try_get(1)?,
            is_archived: row.try_get(2)?,
        })
    })
    .transpose()
}

async fn insert(
    transaction: &mut Tx,
    tenant_id: TenantId,
    session: &NewSession,
    description_bytes: u64,
) -> Result<(), IndexError> {
    sqlx::query(INSERT_SESSION)
        .bind(tenant_id.uuid())
        .bind(session.session_id.uuid())
        .bind(session.agent.as_str())
        .bind(&session.agent_id)
        .bind(session.agent_version)
        .bind(&session.environment_id)
        .bind(&session.title)
        .bind(Json(&session.metadata))
        .bind(Json(&session.vault_ids))
        .bind(session.created_at.as_micros())
        .bind(signed(description_bytes))
        .execute(&mut **transaction)
        .await?;
    Ok(())
}

async fn put(
    transaction: &mut Tx,
    tenant_id: TenantId,
    session: &Session,
    attachment: &Attachment,
) -> Result<(), IndexError> {
    sqlx::query(PUT_ATTACHMENT)
        .bind(tenant_id.uuid())
        .bind(session.session_id.uuid())
        .bind(attachment.resource_id.uuid())
        .bind(attachment.position)
        .bind(attachment.store_id.uuid())
        .bind(session.created_at.as_micros())
        .bind(&attachment.slug)
        .bind(attachment.access.name())
        .bind(&attachment.instructions)
        .bind(&attachment.name)
        .bind(&attachment.description)
        .bind(attachment.created_at.as_micros())
        .bind(attachment.updated_at.as_micros())
        .execute(&mut **transaction)
        .await?;
    Ok(())
}

/// Reads the tenant's session counters. This transaction holds the lock of their
/// row, since it has inserted or changed a session.
async fn counters(transaction: &mut Tx, tenant_id: TenantId) -> Result<SessionCounters, IndexError> {
    let row = sqlx::query(SESSION_COUNTERS)
        .bind(tenant_id.uuid())
        .fetch_one(&mut **transaction)
        .await?;
    Ok(SessionCounters {
        sessions: unsigned(row.try_get(0)?),
        session_bytes: unsigned(row.try_get(1)?),
    })
}

/// Writes the fields of a session that changed, and the audit entry; writes nothing
/// if no field changed.
async fn replace(
    transaction: &mut Tx,
    tenant_id: TenantId,
    before: &Session,
    after: &Session,
    change: &SessionChange,
) -> Result<Result<(), OverQuota>, IndexError> {
    if before == after {
        return Ok(Ok(()));
    }
    sqlx::query(UPDATE_SESSION)
        .bind(tenant_id.uuid())
        .bind(after.session_id.uuid())
        .bind(&after.title)
        .bind(Json(&after.metadata))
        .bind(after.updated_at.as_micros())
        .bind(after.archived_at.map(Timestamp::as_micros))
        .bind(signed(after.description_bytes()))
        .execute(&mut **transaction)
        .await?;
    for attachment in after.attached_since(before) {
        put(transaction, tenant_id, after, attachment).await?;
    }
    for gone in before.detached_by(after) {
        sqlx::query(DROP_ATTACHMENT)
            .bind(tenant_id.uuid())
            .bind(after.session_id.uuid())
            .bind(gone.uuid())
            .execute(&mut **transaction)
            .await?;
    }
    let (action, object) = change.audited_as(before);
    if change.ends_something() {
        audit(transaction, tenant_id, &change.audited, action, object).await?;
        return Ok(Ok(()));
    }
    if after.description_bytes() > before.description_bytes() {
        let counters = counters(transaction, tenant_id).await?;
        if let Err(refusal) = change.limits.check_bytes(counters) {
            return Ok(Err(refusal));
        }
    }
    audit_within_quota(transaction, tenant_id, &change.audited, action, object).await
}

/// Reads a row of [`find_sessions`].
fn found_session(row: &PgRow) -> Result<FoundSession, IndexError> {
    Ok(FoundSession {
        session_id: SessionId::from_uuid(row.try_get(0)?),
        created_at: Timestamp::from_micros(row.try_get(1)?),
        agent_bytes: u64::try_from(row.try_get::<i32, _>(2)?).unwrap_or_default(),
    })
}

/// Reads a session's row, in the order of the columns of [`SESSION`].
fn session_of(row: &PgRow) -> Result<Session, IndexError> {
    Ok(Session {
        session_id: SessionId::from_uuid(row.try_get(0)?),
        agent: JsonText::from_trusted(row.try_get(1)?),
        environment_id: row.try_get(2)?,
        title: row.try_get(3)?,
        metadata: row.try_get::<Json<_>, _>(4)?.0,
        vault_ids: row.try_get::<Json<_>, _>(5)?.0,
        attachments: Vec::new(),
        created_at: Timestamp::from_micros(row.try_get(6)?),
        updated_at: Timestamp::from_micros(row.try_get(7)?),
        archived_at: row.try_get::<Option<i64>, _>(8)?.map(Timestamp::from_micros),
        last_used_at: row.try_get::<Option<i64>, _>(9)?.map(Timestamp::from_micros),
    })
}

fn attachment_of(row: &PgRow) -> Result<Attachment, IndexError> {
    Ok(Attachment {
        resource_id: ResourceId::from_uuid(row.try_get(1)?),
        store_id: StoreId::from_uuid(row.try_get(2)?),
        position: row.try_get(3)?,
        slug: row.try_get(4)?,
        access: Access::parse(row.try_get(5)?).ok_or(IndexError::Corrupt {
            table: "session_resource",
            what: "unknown access",
        })?,
        instructions: row.try_get(6)?,
        name: row.try_get(7)?,
        description: row.try_get(8)?,
        created_at: Timestamp::from_micros(row.try_get(9)?),
        updated_at: Timestamp::from_micros(row.try_get(10)?),
    })
}

fn event_of(row: &PgRow, tenant_id: TenantId, session_id: SessionId) -> Result<SessionEvent, IndexError> {
    Ok(SessionEvent {
        tenant_id,
        session_id,
        event_id: EventId::from_uuid(row.try_get(0)?),
        at: Timestamp::from_micros(row.try_get(1)?),
        name: row.try_get(2)?,
        input: object(row.try_get(3)?, "session_event")?,
        place: None,
    })
}

/// Reads a JSON object from its text.
fn object(text: &str, table: &'static str) -> Result<Map<String, Value>, IndexError> {
    serde_json::from_str(text).map_err(|_| IndexError::Corrupt {
        table,
        what: "text that is no JSON object",
    })
}
