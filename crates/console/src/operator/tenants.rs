//! Tenants: their limits and their usage.

use askama::Template;
use keepsake_core::{SearchMode, TenantId, words};
use keepsake_index::{Auditor, Tenant, TenantStatus, TenantUsage};

use super::Operator;
use crate::frame::{Done, Frame};
use crate::page::{PageResult, done, page};
use crate::path::Path;
use crate::request::{Caller, Form, Pager};
use crate::screens::usage::{Quota, quotas_of};
use crate::text::markup;

const PER_PAGE: u64 = 50;

/// The number of limits that the tenant has in place of the configured ones.
fn own_limits(tenant: &Tenant) -> usize {
    let limits = serde_json::to_value(&tenant.limits).unwrap_or_default();
    let names = limits.as_object().into_iter().flat_map(|limits| limits.keys());
    names.filter(|name| *name != "period_set_at").count()
}

#[derive(Template)]
#[template(path = "operator/tenants.html")]
struct TenantsPage {
    frame: Frame,
    tenants: Vec<Tenant>,
    pager: Pager,
    external_id: String,
}

/// `GET /console/tenants`
pub(super) async fn list(caller: Caller<Operator>) -> PageResult {
    let fields = &caller.query;
    let found = caller.engine.tenants.list(fields.filled("external_id"), &fields.page(PER_PAGE)).await?;
    page(&TenantsPage {
        frame: caller.frame("Tenants"),
        tenants: found.items,
        pager: fields.pager(found.next),
        external_id: fields.text("external_id").to_owned(),
    })
}

/// How the stores without a mode are searched.
const fn words_of_mode(mode: Option<SearchMode>) -> &'static str {
    match mode {
        None => "by words and by meaning (default)",
        Some(SearchMode::Hybrid) => "by words and by meaning",
        Some(SearchMode::Lexical) => "by words",
    }
}

/// A limit, and whether it is the tenant's own.
struct Limit {
    name: String,
    value: String,
    is_own: bool,
}

#[derive(Template)]
#[template(path = "operator/tenant.html")]
struct TenantPage {
    frame: Frame,
    tenant: Tenant,
    searched: &'static str,
    usage: TenantUsage,
    quotas: [Quota; 5],
    limits: Vec<Limit>,
}

/// `GET /console/tenants/{id}`
pub(super) async fn show(caller: Caller<Operator>, Path(tenant_id): Path<TenantId>) -> PageResult {
    let engine = &caller.engine;
    let tenant = engine.tenants.get(tenant_id).await?;
    let principal = engine.tenants.operator(tenant_id, Auditor::Operator).await?;
    let usage = engine.usage.of_tenant(&principal).await?;
    let own = serde_json::to_value(&tenant.limits).unwrap_or_default();
    let all = serde_json::to_value(&usage.limits).unwrap_or_default();
    let all = all.as_object().cloned().unwrap_or_default();
    let limits = all.iter().map(|(name, value)| Limit {
        name: name.replace('_', " "),
        value: words::limit(name, value.as_u64().unwrap_or_default()),
        is_own: own.get(name).is_some(),
    });
    page(&TenantPage {
        frame: caller.frame(&tenant.name),
        searched: words_of_mode(tenant.search_mode),
        tenant,
        quotas: quotas_of(&usage, "Memories"),
        limits: limits.collect(),
        usage,
    })
}

/// `POST /console/tenants/{id}/suspend`
pub(super) async fn suspend(Path(tenant_id): Path<TenantId>, form: Form<Operator>) -> PageResult {
    form.engine.tenants.suspend(tenant_id, Auditor::Operator).await?;
    done(&format!("/console/tenants/{tenant_id}"), Done::TenantSuspended)
}

/// `POST /console/tenants/{id}/resume`
pub(super) async fn resume(Path(tenant_id): Path<TenantId>, form: Form<Operator>) -> PageResult {
    form.engine.tenants.resume(tenant_id, Auditor::Operator).await?;
    done(&format!("/console/tenants/{tenant_id}"), Done::TenantResumed)
}
