//! Sessions of a tenant in the database, with their attachments and events.

mod rows;
mod texts;

use keepsake_core::{ObjectKind, Refused, SessionId, StoreId, TenantId};
use sqlx::AssertSqlSafe;
use sqlx::types::Json;
use uuid::Uuid;

use rows::{AttachmentRow, row_of_event};

use super::change::StoreToAttach;
use super::{
    Attachable, Attachment, EventListing, FoundSession, NewSession, Session, SessionChange, SessionCounters,
    SessionEvent, SessionLimits, SessionListing, SessionName, SessionPage, SessionSummary, page_of,
};
use crate::calls::{CallObject, earlier_object, record_call};
use crate::database::{Database, FromRow, Ids, Role, RowLock, Tx};
use crate::model::{AuditAction, AuditObject, AuditedAction, Idempotency};
use crate::numbers::{period_of, signed};
use crate::tenants::lock_live_tenant;
use crate::{ChangeError, IndexError, audit};

#[derive(Debug, Clone)]
pub struct Sessions(pub(crate) Database);

impl Sessions {
    /// Creates a session with its attachments, or nothing; returns the session that this
    /// call created, or the same call earlier. `None`: the tenant does not exist, or is
    /// being deleted.
    pub async fn create(
        &self,
        tenant_id: TenantId,
        new: &NewSession,
        limits: &SessionLimits,
        idempotency: Option<&Idempotency>,
        audited: &AuditedAction,
    ) -> Result<Option<Session>, ChangeError> {
        let mut tx = self.0.write("create_session", Role::Tenant(tenant_id)).await?;
        if !lock_live_tenant(&mut tx, tenant_id).await? {
            return Ok(None);
        }
        let earlier: Option<SessionId> = earlier_object(&mut tx, tenant_id, idempotency).await?;
        if let Some(session_id) = earlier {
            let query = tx.query(texts::SESSION).bind((tenant_id, session_id));
            let row = query.optional().await?;
            let session = with_attachments(&mut tx, tenant_id, row).await?;
            return session.map(Some).ok_or(ChangeError::NotFound(ObjectKind::Session));
        }
        let mut session = new.session.clone();
        let created_at = session.created_at;
        for attachment in &new.attachments {
            let store = store_to_attach(&mut tx, tenant_id, attachment.store_id).await?;
            session.attach("resources", attachment, store, created_at)?;
        }
        let call = CallObject::object(session.session_id.uuid());
        record_call(&mut tx, tenant_id, call, idempotency, created_at).await?;
        let bytes = session.description_bytes();
        insert(&mut tx, tenant_id, new, bytes).await?;
        for attachment in &session.attachments {
            put_attachment(&mut tx, tenant_id, &session, attachment).await?;
        }
        limits.check_creation(count(&mut tx, tenant_id, 1, signed(bytes)).await?)?;
        let object = AuditObject::new(session.session_id.uuid());
        let action = AuditAction::SessionCreated;
        audit::record_within_quota(&mut tx, tenant_id, audited, action, object).await?;
        tx.commit().await?;
        Ok(Some(session))
    }

    /// Finds a session that is not deleted.
    pub async fn find(
        &self,
        tenant_id: TenantId,
        session_id: SessionId,
    ) -> Result<Option<Session>, IndexError> {
        let mut tx = self.0.read("session", Role::Tenant(tenant_id)).await?;
        let query = tx.query(texts::SESSION).bind((tenant_id, session_id));
        let row = query.optional().await?;
        let found = with_attachments(&mut tx, tenant_id, row).await?;
        tx.commit().await?;
        Ok(found)
    }

    /// Lists sessions that are not deleted, by their time of creation.
    pub async fn list(
        &self,
        tenant_id: TenantId,
        listing: &SessionListing,
    ) -> Result<SessionPage<Session>, IndexError> {
        self.read_page("list_sessions", tenant_id, listing, texts::SESSIONS).await
    }

    /// Lists sessions like [`Self::list`], without their agents.
    pub async fn summaries(
        &self,
        tenant_id: TenantId,
        listing: &SessionListing,
    ) -> Result<SessionPage<SessionSummary>, IndexError> {
        self.read_page("session_summaries", tenant_id, listing, texts::SUMMARIES).await
    }

    /// Reads a page with a statement that takes the ids of the found sessions.
    async fn read_page<S: Attachable + FromRow>(
        &self,
        call: &'static str,
        tenant_id: TenantId,
        listing: &SessionListing,
        text: &str,
    ) -> Result<SessionPage<S>, IndexError> {
        let mut tx = self.0.read(call, Role::Tenant(tenant_id)).await?;
        let mut found = find_page(&mut tx, tenant_id, listing).await?;
        let next = listing.fit(&mut found);
        let ids: Vec<_> = found.iter().map(|found| found.session_id).collect();
        let query = tx.query_with_lists(text).bind((tenant_id, Ids(Some(&ids))));
        let mut sessions: Vec<S> = query.all().await?;
        add_attachments(&mut tx, tenant_id, &mut sessions).await?;
        tx.commit().await?;
        Ok(page_of(&found, sessions, next))
    }

    /// The names of sessions that are not deleted. With `only`, of the sessions whose stores are
    /// all among these.
    pub async fn names(
        &self,
        tenant_id: TenantId,
        session_ids: &[SessionId],
        only: Option<&[StoreId]>,
    ) -> Result<Vec<SessionName>, IndexError> {
        let (role, values) = (Role::Tenant(tenant_id), (tenant_id, Ids(Some(session_ids)), Ids(only)));
        self.0.all_with_lists("session_names", role, &texts::names(), values).await
    }

    /// Returns the session after the change. A change that the same call made earlier is
    /// not made again.
    pub async fn change(
        &self,
        tenant_id: TenantId,
        session_id: SessionId,
        change: &SessionChange,
        idempotency: Option<&Idempotency>,
    ) -> Result<Session, ChangeError> {
        let mut tx = self.0.write("change_session", Role::Tenant(tenant_id)).await?;
        let query = tx.query_locking(texts::SESSION, RowLock::NoKeyUpdate);
        let row = query.bind((tenant_id, session_id)).optional().await?;
        let before = with_attachments(&mut tx, tenant_id, row).await?;
        let before = before.filter(|session| session.is_within(change.only.as_deref()));
        let before = before.ok_or(ChangeError::NotFound(ObjectKind::Session))?;
        if let Some(same) = earlier_object(&mut tx, tenant_id, idempotency).await? {
            return if same == session_id { Ok(before) } else { Err(Refused::KeyReused.into()) };
        }
        let store = match change.store_id() {
            Some(store_id) => store_to_attach(&mut tx, tenant_id, store_id).await?,
            None => None,
        };
        let after = before.changed(change, store)?;
        let call = CallObject::object(session_id.uuid());
        record_call(&mut tx, tenant_id, call, idempotency, change.audited.at).await?;
        replace(&mut tx, tenant_id, &before, &after, change).await?;
        tx.commit().await?;
        Ok(after)
    }

    /// Deletes a session for every reader.
    ///
    /// The job `prune` removes its rows later.
    pub async fn delete(
        &self,
        tenant_id: TenantId,
        session_id: SessionId,
        audited: &AuditedAction,
    ) -> Result<(), ChangeError> {
        let mut tx = self.0.write("delete_session", Role::Tenant(tenant_id)).await?;
        let query = tx.query(texts::DELETE).bind((tenant_id, session_id, audited.at));
        let bytes: Option<i64> = query.optional_scalar().await?;
        let bytes = bytes.ok_or(ChangeError::NotFound(ObjectKind::Session))?;
        count(&mut tx, tenant_id, -1, -bytes).await?;
        let (action, object) = (AuditAction::SessionDeleted, AuditObject::new(session_id.uuid()));
        audit::record(&mut tx, tenant_id, audited, action, object).await?;
        Ok(tx.commit().await?)
    }

    /// Lists the events of a session in the order of their times.
    pub async fn list_events(
        &self,
        tenant_id: TenantId,
        session_id: SessionId,
        listing: &EventListing,
    ) -> Result<Vec<SessionEvent>, IndexError> {
        let (at, id) = match listing.after {
            Some((at, event_id)) => (at.as_micros(), event_id.uuid()),
            None if listing.filter.newest_first => (i64::MAX, Uuid::max()),
            None => (i64::MIN, Uuid::nil()),
        };
        let text = texts::list_events(listing.filter.newest_first);
        let (role, period) = (Role::Tenant(tenant_id), period_of(listing.filter.from, listing.filter.to));
        let values = (tenant_id, session_id, period, at, id, listing.limit, Ids(listing.only.as_deref()));
        self.0.all_with_lists("list_session_events", role, &text, values).await
    }

    /// Writes events of any tenant, in one transaction, each event once.
    ///
    /// Drops events of a session or a store that was deleted, and events from before
    /// an erasure of their store.
    pub async fn flush_events(&self, events: &[SessionEvent]) -> Result<(), IndexError> {
        let mut tx = self.0.write_one("flush_session_events", Role::Shared(None)).await?;
        let text = texts::flush_events(tx.choose(texts::EVENTS));
        for rows in self.0.json_parts(events, |event| event.tenant_id, row_of_event) {
            tx.query(AssertSqlSafe(text.clone())).bind(rows).execute().await?;
        }
        tx.commit().await
    }
}

/// The sessions of a page, in its order.
async fn find_page(
    tx: &mut Tx,
    tenant_id: TenantId,
    listing: &SessionListing,
) -> Result<Vec<FoundSession>, IndexError> {
    let (at, id) = match listing.after {
        Some((at, session_id)) => (at.as_micros(), session_id.uuid()),
        None if listing.filter.oldest_first => (i64::MIN, Uuid::nil()),
        None => (i64::MAX, Uuid::max()),
    };
    let mut query = tx
        .query_with_lists(&texts::find_sessions(&listing.filter))
        .bind(tenant_id)
        .bind(period_of(listing.filter.created_from, listing.filter.created_to))
        .bind(at)
        .bind(id)
        .bind(listing.filter.live)
        .bind(listing.filter.archived)
        .bind(listing.filter.agent_version)
        .bind(listing.filter.agent_id.as_deref())
        .bind(Ids(listing.only.as_deref()))
        .bind(i64::from(listing.limit) + 1);
    if let Some(store_id) = listing.filter.store_id {
        query = query.bind(store_id);
    }
    query.all().await
}

async fn with_attachments(
    tx: &mut Tx,
    tenant_id: TenantId,
    session: Option<Session>,
) -> Result<Option<Session>, IndexError> {
    let mut found: Vec<_> = session.into_iter().collect();
    add_attachments(tx, tenant_id, &mut found).await?;
    Ok(found.pop())
}

/// Adds the attachments whose stores are not deleted.
async fn add_attachments<S: Attachable>(
    tx: &mut Tx,
    tenant_id: TenantId,
    sessions: &mut [S],
) -> Result<(), IndexError> {
    if sessions.is_empty() {
        return Ok(());
    }
    let ids: Vec<_> = sessions.iter().map(Attachable::session_id).collect();
    let query = tx.query_with_lists(texts::ATTACHMENTS).bind((tenant_id, Ids(Some(&ids))));
    let rows: Vec<AttachmentRow> = query.all().await?;
    for row in rows {
        if let Some(session) = sessions.iter_mut().find(|session| session.session_id() == row.session_id) {
            session.attachments().push(row.attachment);
        }
    }
    for session in sessions {
        session.attachments().sort_by_key(|attachment| attachment.position);
    }
    Ok(())
}

/// The store that is to be attached. It is locked until the end of the transaction, so
/// that a deletion of the store comes before or after the attachment.
async fn store_to_attach(
    tx: &mut Tx,
    tenant_id: TenantId,
    store_id: StoreId,
) -> Result<Option<StoreToAttach>, IndexError> {
    let query = tx.query_locking(texts::STORE_TO_ATTACH, RowLock::Share);
    query.bind((tenant_id, store_id)).optional().await
}

async fn insert(
    tx: &mut Tx,
    tenant_id: TenantId,
    new: &NewSession,
    description_bytes: u64,
) -> Result<(), IndexError> {
    let session = &new.session;
    tx.query(texts::INSERT)
        .bind(tenant_id)
        .bind(session.session_id)
        .bind(session.agent.as_str())
        .bind(&new.agent_id)
        .bind(&new.agent_name)
        .bind(new.agent_version)
        .bind(&session.environment_id)
        .bind(session.title.as_deref())
        .bind(Json(&session.metadata))
        .bind(Json(&session.vault_ids))
        .bind(session.created_at)
        .bind(description_bytes)
        .execute()
        .await?;
    Ok(())
}

async fn put_attachment(
    tx: &mut Tx,
    tenant_id: TenantId,
    session: &Session,
    attachment: &Attachment,
) -> Result<(), IndexError> {
    tx.query(texts::PUT_ATTACHMENT)
        .bind(tenant_id)
        .bind(session.session_id)
        .bind(attachment.resource_id)
        .bind(attachment.position)
        .bind(attachment.store_id)
        .bind(session.created_at)
        .bind(&attachment.slug)
        .bind(attachment.access.name())
        .bind(attachment.instructions.as_deref())
        .bind(&attachment.name)
        .bind(&attachment.description)
        .bind(attachment.created_at)
        .bind(attachment.updated_at)
        .execute()
        .await?;
    Ok(())
}

/// Adds to the tenant's session counters, and returns them.
pub(crate) async fn count(
    tx: &mut Tx,
    tenant_id: TenantId,
    sessions: i64,
    bytes: i64,
) -> Result<SessionCounters, IndexError> {
    let query = tx.query(texts::COUNT).bind((tenant_id, sessions, bytes));
    let (sessions, session_bytes) = query.one().await?;
    Ok(SessionCounters { sessions, session_bytes })
}

/// Writes the fields of a session that changed, and the audit entry; writes nothing
/// if no field changed.
async fn replace(
    tx: &mut Tx,
    tenant_id: TenantId,
    before: &Session,
    after: &Session,
    change: &SessionChange,
) -> Result<(), ChangeError> {
    if before == after {
        return Ok(());
    }
    let counted_bytes: i64 =
        tx.query(texts::COUNTED_BYTES).bind((tenant_id, after.session_id)).scalar().await?;
    tx.query(texts::UPDATE)
        .bind(tenant_id)
        .bind(after.session_id)
        .bind(after.title.as_deref())
        .bind(Json(&after.metadata))
        .bind(after.updated_at)
        .bind(after.archived_at)
        .bind(after.description_bytes())
        .execute()
        .await?;
    for attachment in after.attached_since(before) {
        put_attachment(tx, tenant_id, after, attachment).await?;
    }
    for gone in before.detached_by(after) {
        let query = tx.query(texts::DROP_ATTACHMENT).bind(tenant_id);
        query.bind((after.session_id, gone)).execute().await?;
    }
    let grown_by = signed(after.description_bytes()) - counted_bytes;
    let counted = if grown_by == 0 { None } else { Some(count(tx, tenant_id, 0, grown_by).await?) };
    let (action, object) = change.audited_as(before);
    if change.ends_something() {
        return Ok(audit::record(tx, tenant_id, &change.audited, action, object).await?);
    }
    if let Some(counted) = counted.filter(|_| grown_by > 0) {
        change.limits.check_bytes(counted)?;
    }
    audit::record_within_quota(tx, tenant_id, &change.audited, action, object).await
}
