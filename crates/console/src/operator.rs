//! The operator's pages, on the operator's listener.

mod audit;
mod health;
mod jobs;
mod keys;
mod limits;
mod tenants;

use std::sync::Arc;

use axum::http::Extensions;
use axum::routing::{any, get, post};
use axum::{Extension, Router};
use keepsake_core::TenantId;
use keepsake_engine::{Audience, Engine, EngineError, Principal};
use keepsake_index::{Auditor, Scope, Tenant};

use crate::frame::{Account, OPERATOR_SECTIONS, Section};
use crate::page::{no_such_page, see_other};
use crate::request::{Caller, Person};
use crate::sign_in::{self, TokenCheck};
use crate::{assets, next};

/// Pages that need no sign-in. `is_token` says whether a text is the operator's token.
pub fn operator_sign_in_routes(is_token: impl Fn(&str) -> bool + Send + Sync + 'static) -> Router<Engine> {
    let check: TokenCheck = Arc::new(is_token);
    Router::new()
        .route("/console/sign-in", get(sign_in::show::<Operator>).post(sign_in::sign_in_operator))
        .route("/console/assets/{file}", get(assets::file))
        .layer(Extension(check))
}

pub fn operator_routes() -> Router<Engine> {
    const TENANT: &str = "/console/tenants/{tenant_id}";
    const JOB: &str = "/console/jobs/{job}";
    Router::new()
        .route("/console", get(async || see_other(next::OPERATOR_HOME)))
        .route("/console/", get(async || see_other(next::OPERATOR_HOME)))
        .route("/console/{*page}", any(no_such_page))
        .route("/console/sign-out", post(sign_in::sign_out::<Operator>))
        .route("/console/health", get(health::show))
        .route("/console/metrics", get(health::metrics))
        .route("/console/tenants", get(tenants::list))
        .route("/console/tenants/new", get(tenants::new).post(tenants::create))
        .route(TENANT, get(tenants::show).post(tenants::save))
        .route(&format!("{TENANT}/limits"), get(limits::show).post(limits::save))
        .route(&format!("{TENANT}/keys"), get(keys::list))
        .route(&format!("{TENANT}/keys/new"), get(keys::new).post(keys::create))
        .route(&format!("{TENANT}/keys/{{api_key_id}}"), get(keys::show))
        .route(&format!("{TENANT}/keys/{{api_key_id}}/revoke"), post(keys::revoke))
        .route(&format!("{TENANT}/audit"), get(audit::of_tenant))
        .route(&format!("{TENANT}/suspend"), post(tenants::suspend))
        .route(&format!("{TENANT}/resume"), post(tenants::resume))
        .route("/console/audit", get(audit::of_operator))
        .route("/console/jobs", get(jobs::list))
        .route(JOB, get(jobs::show))
        .route(&format!("{JOB}/run"), post(jobs::run))
}

/// The operator, whose token the server has checked.
pub(crate) struct Operator;

/// A tenant, and the operator as its principal.
async fn tenant_of(
    caller: &Caller<Operator>,
    tenant_id: TenantId,
) -> Result<(Tenant, Arc<Principal>), EngineError> {
    let tenants = &caller.engine.tenants;
    Ok((tenants.get(tenant_id).await?, tenants.operator(tenant_id, Auditor::Operator).await?))
}

impl Person for Operator {
    const AUDIENCE: Audience = Audience::Operator;
    const SECTIONS: &'static [Section] = &OPERATOR_SECTIONS;

    fn of(_: &Extensions) -> Option<Self> {
        Some(Self)
    }

    fn reading(self) -> Self {
        self
    }

    fn may(&self, _: Scope) -> bool {
        true
    }

    fn account(&self) -> Account {
        Account { name: "Operator".to_owned(), ..Account::default() }
    }
}
