//! A new tenant, made as by the operator's API.

use askama::Template;
use axum::http::StatusCode;
use keepsake_core::id::TenantKind;
use keepsake_core::{Refused, TenantId};
use keepsake_engine::{EngineError, NewTenant};
use keepsake_index::Auditor;

use super::Operator;
use crate::frame::{Done, Frame};
use crate::page::{PageResult, Refusal, done, page, page_with, sentence};
use crate::request::{Caller, Fields, Form};

/// The field with the id of the tenant to make: a form that is sent twice makes one tenant.
const ONCE: &str = "once";

#[derive(Template)]
#[template(path = "operator/new_tenant.html")]
struct NewTenantPage {
    frame: Frame,
    once: String,
    name: String,
    external_id: String,
    /// Why no tenant was made.
    problem: Option<String>,
}

impl NewTenantPage {
    /// The empty form, or the typed texts of a refused one.
    fn of(caller: &Caller<Operator>, typed: &Fields, problem: Option<String>) -> Self {
        let new_id = || TenantId::from_uuid(caller.engine.new_uuid()).to_string();
        Self {
            frame: caller.frame("New tenant"),
            once: typed.get(ONCE).map_or_else(new_id, str::to_owned),
            name: typed.text("name").to_owned(),
            external_id: typed.text("external_id").to_owned(),
            problem,
        }
    }
}

/// `GET /console/tenants/new`
pub(super) async fn show(caller: Caller<Operator>) -> PageResult {
    page(&NewTenantPage::of(&caller, &Fields::default(), None))
}

/// `POST /console/tenants/new`
pub(super) async fn create(form: Form<Operator>) -> PageResult {
    let fields = &form.fields;
    let rule = || Refusal::Invalid(format!("`{ONCE}` must be the id that the page made"));
    let tenant_id = fields.id::<TenantKind>(ONCE)?.ok_or_else(rule)?;
    let new = NewTenant {
        name: fields.text("name").trim().to_owned(),
        external_id: fields.filled("external_id").map(str::to_owned),
        ..NewTenant::default()
    };
    let made = form.engine.tenants.create_once(tenant_id, new, Auditor::Operator).await;
    let (status, problem) = match made {
        Ok(_) => return done(&format!("/console/tenants/{tenant_id}"), Done::TenantCreated),
        Err(error @ EngineError::Invalid { .. }) => (StatusCode::BAD_REQUEST, error),
        Err(error @ EngineError::Refused(Refused::TenantExists)) => (StatusCode::CONFLICT, error),
        Err(error) => return Err(error.into()),
    };
    page_with(status, &NewTenantPage::of(&form, fields, Some(sentence(&problem.to_string()))))
}
