//! The API keys of a tenant: their last use, their creation and their revocation.

use std::sync::Arc;

use askama::Template;
use axum::Extension;
use axum::http::StatusCode;
use keepsake_core::{ApiKeyId, ObjectKind, Refused, TenantId};
use keepsake_engine::{EngineError, Principal};
use keepsake_index::{ApiKey, Auditor, Store, Tenant, TenantStatus};

use super::{Operator, tenant_of};
use crate::frame::{Done, Frame};
use crate::names::SharedNames;
use crate::page::{PageResult, Refusal, done, page, page_with};
use crate::path::Path;
use crate::request::{Caller, Form, Pager};
use crate::screens::keys::{KeyForm, NO_STORE, create_for, is_active, meaning, stores_of_form};
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

pub(super) async fn list(caller: Caller<Operator>, Path(tenant_id): Path<TenantId>) -> PageResult {
    let (tenant, principal) = tenant_of(&caller, tenant_id).await?;
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

pub(super) async fn show(
    caller: Caller<Operator>,
    Path((tenant_id, api_key_id)): Path<(TenantId, ApiKeyId)>,
) -> PageResult {
    let (tenant, principal) = tenant_of(&caller, tenant_id).await?;
    let key = caller.engine.keys.get(&principal, api_key_id).await?;
    page(&KeyPage { frame: caller.frame(format!("API key {}", key.name)), tenant, key, own: None })
}

#[derive(Template)]
#[template(path = "operator/new_key.html")]
struct NewKeyPage {
    frame: Frame,
    tenant: Tenant,
    form: KeyForm,
    stores: Vec<Store>,
    /// Whether there may be older stores, which the form takes by name.
    has_older_stores: bool,
    must_choose_stores: bool,
}

impl NewKeyPage {
    async fn of(
        caller: &Caller<Operator>,
        (tenant, principal): (Tenant, Arc<Principal>),
        form: KeyForm,
    ) -> Result<Self, Refusal> {
        let (stores, has_older_stores) = stores_of_form(&caller.by(principal)).await?;
        let frame = caller.frame(format!("New key of {}", tenant.name));
        Ok(Self { frame, tenant, form, stores, has_older_stores, must_choose_stores: false })
    }
}

pub(super) async fn new(caller: Caller<Operator>, Path(tenant_id): Path<TenantId>) -> PageResult {
    let of_tenant = tenant_of(&caller, tenant_id).await?;
    page(&NewKeyPage::of(&caller, of_tenant, KeyForm::new(&caller)).await?)
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
    store: String,
}

pub(super) async fn create(
    Extension(options): Extension<ConsoleOptions>,
    Path(tenant_id): Path<TenantId>,
    form: Form<Operator>,
) -> PageResult {
    let (tenant, principal) = tenant_of(&form, tenant_id).await?;
    let of_tenant = Form { caller: form.by(Arc::clone(&principal)), fields: form.fields.clone() };
    let (made, store) = match create_for(&of_tenant).await {
        Ok(made) => made,
        // It was found above.
        Err(Refusal::Engine(EngineError::NotFound(ObjectKind::Tenant))) => {
            return Err(EngineError::Refused(Refused::TenantDeleting).into());
        }
        Err(refusal) => {
            let refused = KeyForm::refused(&form, refusal)?;
            let again = NewKeyPage::of(&form, (tenant, principal), refused).await?;
            return page_with(StatusCode::BAD_REQUEST, &again);
        }
    };
    page(&KeyMadePage {
        frame: form.frame("A new API key"),
        tenant,
        key: made.key,
        secret: made.secret.map(|secret| secret.expose().to_owned()),
        // The operator's browser does not know the address of the public listener.
        url: options.public_url.as_deref().unwrap_or(NO_URL).to_owned(),
        store: store.map_or_else(|| NO_STORE.to_owned(), |store_id| store_id.to_string()),
    })
}

pub(super) async fn revoke(
    Path((tenant_id, api_key_id)): Path<(TenantId, ApiKeyId)>,
    form: Form<Operator>,
) -> PageResult {
    let principal = form.engine.tenants.operator(tenant_id, Auditor::Operator).await?;
    form.engine.keys.revoke(&principal, api_key_id).await?;
    done(&format!("/console/tenants/{tenant_id}/keys/{api_key_id}"), Done::KeyRevoked)
}
