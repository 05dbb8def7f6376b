//! The API keys of a tenant: their last use, and their revocation.

use askama::Template;
use keepsake_core::{ApiKeyId, TenantId};
use keepsake_index::{ApiKey, Auditor, Tenant, TenantStatus};

use super::Operator;
use crate::frame::{Done, Frame};
use crate::page::{PageResult, done, page};
use crate::path::Path;
use crate::request::{Caller, Form, Pager};
use crate::screens::keys::is_active;
use crate::text::markup;

const PER_PAGE: u64 = 100;

#[derive(Template)]
#[template(path = "operator/keys.html")]
struct KeysPage {
    frame: Frame,
    tenant: Tenant,
    keys: Vec<ApiKey>,
    /// The operator has no key.
    own: Option<ApiKeyId>,
    pager: Pager,
}

/// `GET /console/tenants/{id}/keys`
pub(super) async fn list(caller: Caller<Operator>, Path(tenant_id): Path<TenantId>) -> PageResult {
    let tenants = &caller.engine.tenants;
    let tenant = tenants.get(tenant_id).await?;
    let principal = tenants.operator(tenant_id, Auditor::Operator).await?;
    let found = caller.engine.keys.list(&principal, &caller.query.page(PER_PAGE)).await?;
    page(&KeysPage {
        frame: caller.frame(format!("API keys of {}", tenant.name)),
        tenant,
        keys: found.items,
        own: None,
        pager: caller.query.pager(found.next),
    })
}

#[derive(Template)]
#[template(path = "operator/key.html")]
struct KeyPage {
    frame: Frame,
    tenant: Tenant,
    key: ApiKey,
    own: Option<ApiKeyId>,
}

/// `GET /console/tenants/{id}/keys/{id}`
pub(super) async fn show(
    caller: Caller<Operator>,
    Path((tenant_id, api_key_id)): Path<(TenantId, ApiKeyId)>,
) -> PageResult {
    let tenants = &caller.engine.tenants;
    let tenant = tenants.get(tenant_id).await?;
    let principal = tenants.operator(tenant_id, Auditor::Operator).await?;
    let key = caller.engine.keys.get(&principal, api_key_id).await?;
    page(&KeyPage { frame: caller.frame(format!("API key {}", key.name)), tenant, key, own: None })
}

/// `POST /console/tenants/{id}/keys/{id}/revoke`
pub(super) async fn revoke(
    Path((tenant_id, api_key_id)): Path<(TenantId, ApiKeyId)>,
    form: Form<Operator>,
) -> PageResult {
    let principal = form.engine.tenants.operator(tenant_id, Auditor::Operator).await?;
    form.engine.keys.revoke(&principal, api_key_id).await?;
    done(&format!("/console/tenants/{tenant_id}/keys/{api_key_id}"), Done::KeyRevoked)
}
