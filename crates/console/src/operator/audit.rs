//! The audit of a tenant and that of the operator, with the filters that a tenant's people have.

use askama::Template;
use keepsake_core::{Actor, TenantId};
use keepsake_engine::{Page, PageRequest};
use keepsake_index::{AuditAction, AuditEntry, Auditor, Tenant, TenantStatus, action_words, job_of_action};

use super::Operator;
use crate::frame::Frame;
use crate::page::{PageResult, page};
use crate::path::Path;
use crate::people::actor_text;
use crate::request::{Caller, Fields, Pager};
use crate::screens::audit::filter_of;
use crate::screens::choices::{ChoiceField, Choices};
use crate::text::markup::{self, Markup, encoded, id, id_link};

const PER_PAGE: u64 = 100;
/// Keys or tenants whose names are looked up for one page.
const MAX_NAMES: u64 = 100;

/// An entry as the page shows it.
struct Row {
    at: Markup,
    by: Markup,
    action: String,
    object: Markup,
    store: Markup,
}

impl Row {
    fn of(entry: AuditEntry, tenant_id: Option<TenantId>, names: &Choices, frame: &Frame) -> Self {
        Self {
            at: frame.time(entry.at),
            by: by_of(&entry.actor, tenant_id, names),
            object: object_of(&entry, tenant_id, names),
            store: entry.store_id.map(id).unwrap_or_default(),
            action: entry.action,
        }
    }
}

fn by_of(auditor: &Auditor, tenant_id: Option<TenantId>, names: &Choices) -> Markup {
    match auditor {
        Auditor::Credential(Actor::ApiKey(api_key_id)) => {
            let full = api_key_id.to_string();
            named(&full, page_of("api_key", &full, tenant_id), names)
        }
        Auditor::Credential(actor) => Markup::text(&actor_text(Some(actor))),
        Auditor::Operator => Markup::text("the operator"),
        Auditor::OperatorCli => Markup::text("the operator, by a command"),
        Auditor::Job => Markup::text("a job"),
    }
}

fn object_of(entry: &AuditEntry, tenant_id: Option<TenantId>, names: &Choices) -> Markup {
    if let Some(object) = &entry.object {
        return named(&object.id, page_of(&object.r#type, &object.id, tenant_id), names);
    }
    // A run by hand has its job in its action.
    let link = |job: &str| format!("<a href=\"/console/jobs/{}\">{}</a>", encoded(job), Markup::text(job));
    job_of_action(&entry.action).map(link).map(Markup::trusted).unwrap_or_default()
}

/// The page of an object; `None`: it has none.
fn page_of(kind: &str, full: &str, tenant_id: Option<TenantId>) -> Option<String> {
    match (kind, tenant_id) {
        ("tenant", _) => Some(format!("/console/tenants/{full}")),
        ("api_key", Some(tenant_id)) => Some(format!("/console/tenants/{tenant_id}/keys/{full}")),
        _ => None,
    }
}

fn named(full: &str, href: Option<String>, names: &Choices) -> Markup {
    match (href, names.name_of(full)) {
        (Some(href), Some(name)) => {
            let name = Markup::text(name);
            Markup::trusted(format!("<a href=\"{href}\" title=\"{full}\"><bdi>{name}</bdi></a>"))
        }
        (Some(href), None) => id_link(full, &href),
        (None, _) => id(full),
    }
}

#[derive(Template)]
#[template(path = "operator/audit.html")]
struct AuditPage {
    frame: Frame,
    /// `None`: the entries are the operator's own.
    tenant: Option<Tenant>,
    rows: Vec<Row>,
    choices: Vec<ChoiceField>,
    pager: Pager,
    query: Fields,
}

impl AuditPage {
    fn of(
        caller: Caller<Operator>,
        tenant: Option<Tenant>,
        found: Page<AuditEntry>,
        names: &Choices,
        choices: Vec<ChoiceField>,
    ) -> Self {
        let title = tenant.as_ref().map(|tenant| format!("Audit of {}", tenant.name));
        let frame = caller.frame(title.as_deref().unwrap_or("Audit"));
        let tenant_id = tenant.as_ref().map(|tenant| tenant.tenant_id);
        let rows = found.items.into_iter().map(|entry| Row::of(entry, tenant_id, names, &frame));
        Self {
            rows: rows.collect(),
            frame,
            tenant,
            choices,
            pager: caller.query.pager(found.next),
            query: caller.query,
        }
    }
}

const fn newest() -> PageRequest {
    PageRequest { limit: Some(MAX_NAMES), page: None }
}

/// `GET /console/tenants/{id}/audit`
pub(super) async fn of_tenant(mut caller: Caller<Operator>, Path(tenant_id): Path<TenantId>) -> PageResult {
    let tenant = caller.engine.tenants.get(tenant_id).await?;
    let principal = caller.engine.tenants.operator(tenant_id, Auditor::Operator).await?;
    let keys = caller.engine.keys.list(&principal, &newest()).await?.items;
    let names = Choices::named_so(keys.iter().map(|key| (key.api_key_id, key.name.as_str())));
    names.resolve_author(&mut caller.query, "actor")?;
    names.resolve_object(&mut caller.query, "object")?;
    caller.query.choose_period(caller.engine.now())?;
    let filter = filter_of(&caller.query)?;
    let found = caller.engine.audit.list(&principal, &filter, &caller.query.page(PER_PAGE)).await?;
    let choices = vec![
        names.field("actor", "Actor", "everybody", &caller.query),
        names.field("object", "Object", "everything", &caller.query),
    ];
    page(&AuditPage::of(caller, Some(tenant), found, &names, choices))
}

/// `GET /console/audit`: what the operator did
pub(super) async fn of_operator(mut caller: Caller<Operator>) -> PageResult {
    let tenants = caller.engine.tenants.list(None, &newest()).await?.items;
    let names = Choices::named_so(tenants.iter().map(|tenant| (tenant.tenant_id, tenant.name.as_str())));
    names.resolve_object(&mut caller.query, "object")?;
    caller.query.choose_period(caller.engine.now())?;
    let filter = filter_of(&caller.query)?;
    let found = caller.engine.audit.of_operator(&filter, &caller.query.page(PER_PAGE)).await?;
    let choices = vec![names.field("object", "Object", "everything", &caller.query)];
    page(&AuditPage::of(caller, None, found, &names, choices))
}
