//! Sessions of a tenant, their attachments and events.

use async_trait::async_trait;
use keepsake_core::{EventId, JsonText, ResourceId, SessionId, StoreId, TenantId, Timestamp};
use serde_json::{Map, Value, json};
use sqlx::sqlite::{SqliteConnection, SqliteRow};
use sqlx::types::Json;
use sqlx::{AssertSqlSafe, Row};
use uuid::Uuid;

use super::SqliteIndex;
use super::audit::{audit, audit_within_quota};
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

/// Selects sessions by id, with the columns of [`SESSION`].
const SESSIONS: &str = "SELECT s.session_id, s.agent, s.environment_id, s.title, s.metadata, s.vault_ids, \
    s.created_at, s.updated_at, s.archived_at, s.last_used_at \
    FROM json_each($2) c CROSS JOIN session s ON s.tenant_id = $1 AND s.session_id = unhex(c.value) \
    WHERE s.deleted_at IS NULL";

/// Selects the attachments of sessions to existing stores.
const ATTACHMENTS: &str = "SELECT r.session_id, r.resource_id, r.store_id, r.position, r.slug, r.access, \
    r.instructions, r.name, r.description, r.created_at, r.updated_at \
    FROM json_each($2) c CROSS JOIN session_resource r ON r.tenant_id = $1 AND r.session_id = unhex(c.value) \
    WHERE EXISTS (SELECT 1 FROM store t WHERE t.tenant_id = $1 AND t.store_id = r.store_id AND t.deleted_at IS NULL)";

/// The condition that a session has stores, and that all of them are among the
/// given ones.
const ONLY: &str = "$10 IS NULL OR (SELECT min(o.store_id IN (SELECT unhex(value) FROM json_each($10))) \
    FROM session_resource o JOIN store t \
    ON t.tenant_id = $1 AND t.store_id = o.store_id AND t.deleted_at IS NULL \
    WHERE o.tenant_id = $1 AND o.session_id = s.session_id)";

/// The condition that an event is in one of the given stores.
const ONLY_EVENTS: &str = "$8 IS NULL OR store_id IN (SELECT unhex(value) FROM json_each($8))";

/// Inserts events, each one once, except events of deleted or erased objects.
const FLUSH_EVENTS: &str = "INSERT INTO session_event (tenant_id, session_id, at, event_id, store_id, path, new_path, \
        name, input) \
    SELECT e.tenant_id, e.session_id, e.at, e.event_id, e.store_id, e.path, e.new_path, e.name, e.input FROM ( \
        SELECT unhex(r.value ->> 0) AS tenant_id, unhex(r.value ->> 1) AS session_id, r.value ->> 2 AS at, \
            unhex(r.value ->> 3) AS event_id, unhex(r.value ->> 4) AS store_id, r.value ->> 5 AS path, \
            r.value ->> 6 AS new_path, r.value ->> 7 AS name, r.value ->> 8 AS input FROM json_each($1) r) e \
    WHERE EXISTS (SELECT 1 FROM session s WHERE s.tenant_id = e.tenant_id AND s.session_id = e.session_id \
            AND s.deleted_at IS NULL) \
        AND (e.store_id IS NULL OR EXISTS (SELECT 1 FROM store t WHERE t.tenant_id = e.tenant_id \
            AND t.store_id = e.store_id AND t.deleted_at IS NULL)) \
        AND NOT EXISTS (SELECT 1 FROM erasure x WHERE x.tenant_id = e.tenant_id AND x.store_id = e.store_id \
            AND x.created_at >= e.at) \
    ON CONFLICT (tenant_id, session_id, at, event_id) DO NOTHING";

/// Updates the last uses of sessions.
const FLUSH_USE: &str = "UPDATE session SET last_used_at = u.used_at FROM ( \
        SELECT unhex(r.value ->> 0) AS t, unhex(r.value ->> 1) AS id, max(r.value ->> 2) AS used_at \
        FROM json_each($1) r GROUP BY 1, 2 \
    ) u WHERE tenant_id = u.t AND session_id = u.id AND (last_used_at IS NULL OR last_used_at < u.used_at)";

#[async_trait]
impl SessionIndex for SqliteIndex {
    async fn create_session(
        &self,
        tenant_id: TenantId,
        session: &NewSession,
        limits: &SessionLimits,
        idempotency: Option<&Idempotency>,
        audited: &Audited,
    ) -> Result<SessionCreation, IndexError> {
        let mut writer = self.writer.lock().await;
        let connection = writer.begin().await?;
        if !stays(connection, tenant_id).await? {
            return Ok(SessionCreation::NoTenant);
        }
        if let Some(call) = idempotency
            && let Some(earlier) =
                earlier_call(&mut *connection, tenant_id, &call.scope_sha256, call.since).await?
        {
            return Ok(match earlier.same_session(call) {
                Some(session_id) => SessionCreation::Replayed { session_id },
                None => SessionCreation::KeyReused,
            });
        }
        let mut made = session.bare();
        for new in &session.attachments {
            let store = store_to_attach(connection, tenant_id, new.store_id).await?;
            if let Err(refusal) = made.attach(new, store, session.created_at) {
                return Ok(SessionCreation::Refused(refusal));
            }
        }
        let call = CallMade::object(session.session_id.uuid());
        record_call(connection, tenant_id, call, idempotency, session.created_at).await?;
        insert(connection, tenant_id, session, made.description_bytes()).await?;
        for attachment in &made.attachments {
            put(connection, tenant_id, &made, attachment).await?;
        }
        let counters = counters(connection, tenant_id).await?;
        if let Err(refusal) = limits.check_creation(counters) {
            return Ok(SessionCreation::OverQuota(refusal));
        }
        let (action, object) = (
            AuditAction::SessionCreated,
            AuditObject::new(session.session_id.uuid()),
        );
        if let Err(refusal) = audit_within_quota(connection, tenant_id, audited, action, object).await? {
            return Ok(SessionCreation::OverQuota(refusal));
        }
        writer.commit().await?;
        Ok(SessionCreation::Created(Box::new(made)))
    }

    async fn session(
        &self,
        tenant_id: TenantId,
        session_id: SessionId,
    ) -> Result<Option<Session>, IndexError> {
        let mut connection = self.readers.acquire().await?;
        find(&mut connection, tenant_id, session_id).await
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
        let only = only.map(|only| hexes(only.iter().map(|store_id| store_id.uuid())));
        let mut connection = self.readers.acquire().await?;
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
        let rows = query.fetch_all(&mut *connection).await?;
        let mut found = rows.iter().map(found_session).collect::<Result<Vec<_>, _>>()?;
        let next = listing.fit(&mut found);
        let ids = hexes(found.iter().map(|found| found.session_id.uuid()));
        let rows = sqlx::query(SESSIONS)
            .bind(tenant_id.uuid())
            .bind(ids)
            .fetch_all(&mut *connection)
            .await?;
        let mut sessions = rows.iter().map(session_of).collect::<Result<Vec<_>, _>>()?;
        furnish(&mut connection, tenant_id, &mut sessions).await?;
        Ok(SessionPage::of(&found, sessions, next))
    }

    async fn change_session(
        &self,
        tenant_id: TenantId,
        session_id: SessionId,
        change: &SessionChange,
        idempotency: Option<&Idempotency>,
    ) -> Result<SessionUpdate, IndexError> {
        let mut writer = self.writer.lock().await;
        let connection = writer.begin().await?;
        let Some(before) = find(connection, tenant_id, session_id).await? else {
            return Ok(SessionUpdate::NoSession);
        };
        if !before.is_within(change.only.as_deref()) {
            return Ok(SessionUpdate::NoSession);
        }
        if let Some(call) = idempotency
            && let Some(earlier) =
                earlier_call(&mut *connection, tenant_id, &call.scope_sha256, call.since).await?
        {
            return Ok(match earlier.same_session(call) {
                Some(same) if same == session_id => SessionUpdate::Replayed(Box::new(before)),
                _ => SessionUpdate::KeyReused,
            });
        }
        let store = match change.store_id() {
            Some(store_id) => store_to_attach(connection, tenant_id, store_id).await?,
            None => None,
        };
        let after = match before.changed(change, store) {
            Ok(after) => after,
            Err(refusal) => return Ok(SessionUpdate::Refused(refusal)),
        };
        let call = CallMade::object(session_id.uuid());
        record_call(connection, tenant_id, call, idempotency, change.audited.at).await?;
        if let Err(refusal) = replace(connection, tenant_id, &before, &after, change).await? {
            return Ok(SessionUpdate::OverQuota(refusal));
        }
        writer.commit().await?;
        Ok(SessionUpdate::Done(Box::new(after)))
    }

    async fn delete_session(
        &self,
        tenant_id: TenantId,
        session_id: SessionId,
        audited: &Audited,
    ) -> Result<bool, IndexError> {
        let mut writer = self.writer.lock().await;
        let connection = writer.begin().await?;
        let deleted = sqlx::query(DELETE_SESSION)
            .bind(tenant_id.uuid())
            .bind(session_id.uuid())
            .bind(audited.at.as_micros())
            .execute(&mut *connection)
            .await?;
        if deleted.rows_affected() == 0 {
            return Ok(false);
        }
        let (action, object) = (AuditAction::SessionDeleted, AuditObject::new(session_id.uuid()));
        audit(connection, tenant_id, audited, action, object).await?;
        writer.commit().await?;
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
        let rows = sqlx::query(AssertSqlSafe(list_events(listing.newest_first, ONLY_EVENTS)))
            .bind(tenant_id.uuid())
            .bind(session_id.uuid())
            .bind(listing.from.map_or(i64::MIN, Timestamp::as_micros))
            .bind(listing.to.map_or(i64::MAX, Timestamp::as_micros))
            .bind(at)
            .bind(id)
            .bind(listing.limit)
            .bind(
                listing
                    .only
                    .as_ref()
                    .map(|only| hexes(only.iter().map(|store_id| store_id.uuid()))),
            )
            .fetch_all(&self.readers)
            .await?;
        rows.iter()
            .map(|row| event_of(row, tenant_id, session_id))
            .collect()
    }

    async fn flush_session_events(&self, events: &[SessionEvent]) -> Result<(), IndexError> {
        let events = events.iter().map(|event| {
            let place = event.place.as_ref();
            json!([
                hex(event.tenant_id.uuid()),
                hex(event.session_id.uuid()),
                event.at.as_micros(),
                hex(event.event_id.uuid()),
                place.map(|place| hex(place.store_id.uuid())),
                place.map(|place| &place.path),
                place.map(|place| &place.new_path),
                event.name,
                Value::Object(event.input.clone()).to_string(),
            ])
        });
        let events = events.collect::<Value>().to_string();
        let mut writer = self.writer.lock().await;
        let connection = writer.begin().await?;
        sqlx::query(FLUSH_EVENTS).bind(events).execute(connection).await?;
        writer.commit().await
    }

    async fn flush_session_use(&self, uses: &[SessionUse]) -> Result<(), IndexError> {
        let uses = uses.iter().map(|used| {
            json!([
                hex(used.tenant_id.uuid()),
                hex(used.session_id.uuid()),
                used.used_at.as_micros()
            ])
        });
        let uses = uses.collect::<Value>().to_string();
        let mut writer = self.writer.lock().await;
        let connection = writer.begin().await?;
        sqlx::query(FLUSH_USE).bind(uses).execute(connection).await?;
        writer.commit().await
    }
}

async fn find(
    connection: &mut SqliteConnection,
    tenant_id: TenantId,
    session_id: SessionId,
) -> Result<Option<Session>, IndexError> {
    let row = sqlx::query(SESSION)
        .bind(tenant_id.uuid())
        .bind(session_id.uuid())
        .fetch_optional(&mut *connection)
        .await?;
    let Some(row) = row else {
        return Ok(None);
    };
    let mut found = vec![session_of(&row)?];
    furnish(connection, tenant_id, &mut found).await?;
    Ok(found.pop())
}

/// Adds the attachments to sessions.
async fn furnish(
    connection: &mut SqliteConnection,
    tenant_id: TenantId,
    sessions: &mut [Session],
) -> Result<(), IndexError> {
    let ids = hexes(sessions.iter().map(|session| session.session_id.uuid()));
    let rows = sqlx::query(ATTACHMENTS)
        .bind(tenant_id.uuid())
        .bind(ids)
        .fetch_all(connection)
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
    connection: &mut SqliteConnection,
    tenant_id: TenantId,
    store_id: StoreId,
) -> Result<Option<StoreToAttach>, IndexError> {
    let row = sqlx::query(STORE_TO_ATTACH)
        .bind(tenant_id.uuid())
        .bind(store_id.uuid())
        .fetch_optional(connection)
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
    connection: &mut SqliteConnection,
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
        .execute(connection)
        .await?;
    Ok(())
}

async fn put(
    connection: &mut SqliteConnection,
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
        .execute(connection)
        .await?;
    Ok(())
}

/// Reads the tenant's session counters. This transaction holds the lock of their
/// row, since it has inserted or changed a session.
async fn counters(
    connection: &mut SqliteConnection,
    tenant_id: TenantId,
) -> Result<SessionCounters, IndexError> {
    let row = sqlx::query(SESSION_COUNTERS)
        .bind(tenant_id.uuid())
        .fetch_one(&mut *connection)
        .await?;
    Ok(SessionCounters {
        sessions: unsigned(row.try_get(0)?),
        session_bytes: unsigned(row.try_get(1)?),
    })
}

/// Writes the fields of a session that changed, and the audit entry; writes nothing
/// if no field changed.
async fn replace(
    connection: &mut SqliteConnection,
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
        .execute(&mut *connection)
        .await?;
    for attachment in after.attached_since(before) {
        put(connection, tenant_id, after, attachment).await?;
    }
    for gone in before.detached_by(after) {
        sqlx::query(DROP_ATTACHMENT)
            .bind(tenant_id.uuid())
            .bind(after.session_id.uuid())
            .bind(gone.uuid())
            .execute(&mut *connection)
            .await?;
    }
    let (action, object) = change.audited_as(before);
    if change.ends_something() {
        audit(connection, tenant_id, &change.audited, action, object).await?;
        return Ok(Ok(()));
    }
    if after.description_bytes() > before.description_bytes() {
        let counters = counters(connection, tenant_id).await?;
        if let Err(refusal) = change.limits.check_bytes(counters) {
            return Ok(Err(refusal));
        }
    }
    audit_within_quota(connection, tenant_id, &change.audited, action, object).await
}

/// Reads a row of [`find_sessions`].
fn found_session(row: &SqliteRow) -> Result<FoundSession, IndexError> {
    Ok(FoundSession {
        session_id: SessionId::from_uuid(row.try_get(0)?),
        created_at: Timestamp::from_micros(row.try_get(1)?),
        agent_bytes: u64::try_from(row.try_get::<i64, _>(2)?).unwrap_or_default(),
    })
}

/// Reads a session's row, in the order of the columns of [`SESSION`].
fn session_of(row: &SqliteRow) -> Result<Session, IndexError> {
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

fn attachment_of(row: &SqliteRow) -> Result<Attachment, IndexError> {
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

fn event_of(row: &SqliteRow, tenant_id: TenantId, session_id: SessionId) -> Result<SessionEvent, IndexError> {
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

fn hexes(ids: impl Iterator<Item = Uuid>) -> String {
    ids.map(|id| json!(hex(id))).collect::<Value>().to_string()
}

fn hex(uuid: Uuid) -> String {
    uuid.simple().to_string()
}
