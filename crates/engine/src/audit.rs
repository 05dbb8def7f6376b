//! The audit of a tenant: which changes were made, and by whom.

use keepsake_core::{TenantId, Timestamp};
use keepsake_index::{AuditAction, AuditEntry, AuditListing, AuditPlace, Scope};
use uuid::Uuid;

use crate::cursor::Query;
use crate::{Engine, EngineError, Page, PageRequest, Principal};

/// Which entries of a tenant's audit are listed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AuditQuery {
    /// Written at or after this time.
    pub created_from: Option<Timestamp>,
    /// Written at or before this time.
    pub created_to: Option<Timestamp>,
    /// Only this action.
    pub action: Option<AuditAction>,
    /// Only actions of this API key, session, user or service account.
    pub actor_id: Option<String>,
    /// Only actions on this object.
    pub object_id: Option<Uuid>,
    /// The page to return.
    pub page: PageRequest,
}

impl AuditQuery {
    fn identity(&self, tenant_id: TenantId) -> Query {
        let time = |time: Option<Timestamp>| time.map_or(String::new(), |time| time.as_micros().to_string());
        Query::of(&[
            b"audit",
            tenant_id.uuid().as_bytes(),
            time(self.created_from).as_bytes(),
            time(self.created_to).as_bytes(),
            self.action.map_or("", AuditAction::name).as_bytes(),
            self.actor_id.as_deref().unwrap_or_default().as_bytes(),
            self.object_id.unwrap_or_default().as_bytes(),
        ])
    }
}

impl Engine {
    /// Lists the audit of the credential's tenant, newest first.
    ///
    /// # Errors
    /// [`EngineError::PermissionDenied`] (also when the credential is bound to
    /// a list of stores), [`EngineError::Invalid`], [`EngineError::Index`].
    #[tracing::instrument(name = "engine.audit", level = "debug", skip_all)]
    pub async fn audit(
        &self,
        principal: &Principal,
        query: &AuditQuery,
    ) -> Result<Page<AuditEntry>, EngineError> {
        principal.require(Scope::TenantAdmin)?;
        if principal.is_bound_to_stores() {
            return Err(EngineError::PermissionDenied(Scope::TenantAdmin));
        }
        self.list_audit(principal.tenant_id, query).await
    }

    pub(crate) async fn list_audit(
        &self,
        tenant_id: TenantId,
        query: &AuditQuery,
    ) -> Result<Page<AuditEntry>, EngineError> {
        let limit = query.page.limit(false)?;
        let identity = query.identity(tenant_id);
        let listing = AuditListing {
            from: query.created_from,
            to: query.created_to,
            action: query.action,
            actor_id: query.actor_id.clone(),
            object_id: query.object_id,
            before: self.audit_place(identity, &query.page).await?,
            // One more item shows whether there is another page.
            limit: limit + 1,
        };
        let items = self.0.index.audit.list(tenant_id, &listing).await?;
        self.page_of(identity, items, limit, audit_position).await
    }

    pub(crate) async fn audit_place(
        &self,
        identity: Query,
        request: &PageRequest,
    ) -> Result<Option<AuditPlace>, EngineError> {
        let Some(page) = &request.page else {
            return Ok(None);
        };
        let position = self.unseal(identity, page).await?;
        let parts = position.split_at_checked(8).and_then(|(at, id)| {
            let at = i64::from_be_bytes(at.try_into().ok()?);
            Some((Timestamp::from_micros(at), Uuid::from_slice(id).ok()?))
        });
        let place = parts.ok_or(EngineError::Internal("a cursor of no audit entry"))?;
        Ok(Some(place))
    }
}

/// The position of an entry in the listing, as a cursor contains it.
pub(crate) fn audit_position(entry: &AuditEntry) -> Vec<u8> {
    let at = entry.at.as_micros().to_be_bytes();
    [at.as_slice(), entry.id.as_bytes()].concat()
}
