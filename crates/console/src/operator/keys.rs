//! The API keys of a tenant: their last use, their creation and their revocation.

use askama::Template;
use axum::Extension;
use axum::http::StatusCode;
use keepsake_core::{ApiKeyId, TenantId};
use keepsake_engine::EngineError;
use keepsake_index::{ApiKey, Auditor, Scope, Tenant, TenantStatus};

use super::Operator;
use crate::frame::{Done, Frame};
use crate::page::{PageResult, Refusal, done, page, page_with, sentence};
use crate::path::Path;
use crate::request::{Caller, Form, Pager};
use crate::screens::keys::{NO_STORE, draft_of, is_active, meaning};
use crate::sign_in::ConsoleOptions;
use crate::text::markup;

const PER_PAGE: u64 = 100;
/// Stands for the address of the public listener in the examples.
const NO_URL: &str = "http://HOST:8080";

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

#[derive(Template)]
#[template(path = "operator/new_key.html")]
struct NewKeyPage {
    frame: Frame,
    tenant: Tenant,
    /// Makes the creation idempotent.
    once: String,
    name: String,
    scopes: [Scope; Scope::ALL.len()],
    chosen: Vec<Scope>,
    expires_days: String,
    /// Why no key was made.
    problem: Option<String>,
}

impl NewKeyPage {
    fn of(caller: &Caller<Operator>, tenant: Tenant) -> Self {
        Self {
            frame: caller.frame(format!("New key of {}", tenant.name)),
            tenant,
            once: caller.engine.new_uuid().to_string(),
            name: String::new(),
            scopes: Scope::ALL,
            chosen: vec![Scope::MemoryRead, Scope::MemoryWrite],
            expires_days: String::new(),
            problem: None,
        }
    }

    /// The form with the typed texts.
    fn refused(form: &Form<Operator>, tenant: Tenant, rule: &str) -> PageResult {
        let fields = &form.fields;
        let shown = Self {
            once: fields.text("once").to_owned(),
            name: fields.text("name").to_owned(),
            chosen: fields.all("scope").filter_map(|scope| scope.parse().ok()).collect(),
            expires_days: fields.text("expires_days").to_owned(),
            problem: Some(sentence(rule)),
            ..Self::of(form, tenant)
        };
        page_with(StatusCode::BAD_REQUEST, &shown)
    }
}

/// `GET /console/tenants/{id}/keys/new`
pub(super) async fn new(caller: Caller<Operator>, Path(tenant_id): Path<TenantId>) -> PageResult {
    let tenant = caller.engine.tenants.get(tenant_id).await?;
    page(&NewKeyPage::of(&caller, tenant))
}

#[derive(Template)]
#[template(path = "operator/key_made.html")]
struct KeyMadePage {
    frame: Frame,
    tenant: Tenant,
    key: ApiKey,
    /// `None`: the form was sent twice, and the secret was shown the first time.
    secret: Option<String>,
    url: String,
    store: &'static str,
}

/// `POST /console/tenants/{id}/keys/new`
pub(super) async fn create(
    Extension(options): Extension<ConsoleOptions>,
    Path(tenant_id): Path<TenantId>,
    form: Form<Operator>,
) -> PageResult {
    let tenants = &form.engine.tenants;
    let tenant = tenants.get(tenant_id).await?;
    let principal = tenants.operator(tenant_id, Auditor::Operator).await?;
    let draft = match draft_of(&form.fields, form.engine.now()) {
        Ok(draft) => draft,
        Err(Refusal::Invalid(rule)) => return NewKeyPage::refused(&form, tenant, &rule),
        Err(refusal) => return Err(refusal),
    };
    let made = match form.engine.keys.create(&principal, draft, form.call_of(&principal)?).await {
        Ok(made) => made,
        Err(error @ EngineError::Invalid { .. }) => {
            return NewKeyPage::refused(&form, tenant, &error.to_string());
        }
        Err(error) => return Err(error.into()),
    };
    page(&KeyMadePage {
        frame: form.frame("A new API key"),
        tenant,
        key: made.key,
        secret: made.secret.map(|secret| secret.expose().to_owned()),
        // The operator's browser does not know the address of the public listener.
        url: options.public_url.as_deref().unwrap_or(NO_URL).to_owned(),
        store: NO_STORE,
    })
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
