//! Tenants: their limits and their usage.

use askama::Template;
use axum::extract::{Path, State};
use keepsake_core::{Timestamp, words};
use keepsake_engine::Engine;
use keepsake_index::{Auditor, Tenant, TenantStatus};

use super::{Operator, OperatorForm};
use crate::frame::{Done, Frame, Tab};
use crate::page::{PageResult, done, page};
use crate::request::{OfTenant, Pager, Query};
use crate::screens::usage::Quota;
use crate::text::markup::{Markup, id, time};

const PER_PAGE: u64 = 50;

struct Row {
    href: String,
    id: Markup,
    name: String,
    external_id: String,
    status: &'static str,
    is_active: bool,
    created: Markup,
    own_limits: usize,
}

/// The number of limits that the tenant has in place of the configured ones.
fn own_limits(tenant: &Tenant) -> usize {
    let limits = serde_json::to_value(&tenant.limits).unwrap_or_default();
    let names = limits.as_object().into_iter().flat_map(|limits| limits.keys());
    names.filter(|name| *name != "period_set_at").count()
}

impl Row {
    fn of(tenant: &Tenant, now: Timestamp) -> Self {
        let full = tenant.tenant_id.to_string();
        Self {
            href: format!("/console/tenants/{full}"),
            id: id(&full),
            name: tenant.name.clone(),
            external_id: tenant.external_id.clone().unwrap_or_default(),
            status: tenant.status.name(),
            is_active: tenant.status == TenantStatus::Active,
            created: time(tenant.created_at, now),
            own_limits: own_limits(tenant),
        }
    }
}

#[derive(Template)]
#[template(path = "operator/tenants.html")]
struct TenantsPage {
    frame: Frame,
    rows: Vec<Row>,
    pager: Pager,
    external_id: String,
}

/// `GET /console/tenants`
pub(super) async fn list(
    State(engine): State<Engine>,
    operator: Operator,
    Query(fields): Query,
) -> PageResult {
    let found = engine.tenants.list(fields.filled("external_id"), &fields.page(PER_PAGE)).await?;
    let now = engine.now();
    page(&TenantsPage {
        frame: operator.frame("Tenants", Tab::Tenants),
        rows: found.items.iter().map(|tenant| Row::of(tenant, now)).collect(),
        pager: fields.pager(found.next),
        external_id: fields.text("external_id").to_owned(),
    })
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
    row: Row,
    quotas: Vec<Quota>,
    limits: Vec<Limit>,
    versions: String,
    version_bytes: String,
    memories: String,
    can_change: bool,
}

/// `GET /console/tenants/{id}`
pub(super) async fn show(
    State(engine): State<Engine>,
    operator: Operator,
    Path(tenant_id): OfTenant,
) -> PageResult {
    let tenant = engine.tenants.get(tenant_id.0).await?;
    let principal = engine.tenants.operator(tenant_id.0, Auditor::Operator).await?;
    let usage = engine.usage.of_tenant(&principal).await?;
    let limits = &usage.limits;
    let own = serde_json::to_value(&tenant.limits).unwrap_or_default();
    let all = serde_json::to_value(limits).unwrap_or_default();
    let all = all.as_object().cloned().unwrap_or_default();
    let limits_shown = all.iter().map(|(name, value)| Limit {
        name: name.replace('_', " "),
        value: words::limit(name, value.as_u64().unwrap_or_default()),
        is_own: own.get(name).is_some(),
    });
    page(&TenantPage {
        frame: operator.frame(&tenant.name, Tab::Tenants),
        row: Row::of(&tenant, engine.now()),
        quotas: vec![
            Quota::counted("Stores", usage.stores, limits.stores_per_tenant),
            Quota::bytes("Memories", usage.live_bytes, limits.bytes_per_tenant),
            Quota::counted("Sessions", usage.sessions, limits.sessions_per_tenant),
            Quota::bytes("Descriptions of sessions", usage.session_bytes, limits.session_bytes_per_tenant),
            Quota::counted("API keys", usage.api_keys, limits.api_keys_per_tenant),
        ],
        limits: limits_shown.collect(),
        versions: words::count(usage.versions),
        version_bytes: words::bytes(usage.version_bytes),
        memories: words::count(usage.memories),
        can_change: tenant.status != TenantStatus::Deleting,
    })
}

/// `POST /console/tenants/{id}/suspend`
pub(super) async fn suspend(
    State(engine): State<Engine>,
    Path(tenant_id): OfTenant,
    form: OperatorForm,
) -> PageResult {
    drop(form);
    engine.tenants.suspend(tenant_id.0, Auditor::Operator).await?;
    done(&format!("/console/tenants/{}", tenant_id.0), Done::TenantSuspended)
}

/// `POST /console/tenants/{id}/resume`
pub(super) async fn resume(
    State(engine): State<Engine>,
    Path(tenant_id): OfTenant,
    form: OperatorForm,
) -> PageResult {
    drop(form);
    engine.tenants.resume(tenant_id.0, Auditor::Operator).await?;
    done(&format!("/console/tenants/{}", tenant_id.0), Done::TenantResumed)
}
