//! The audit of a tenant, with the filters that its own people have.

use std::collections::HashMap;

use askama::Template;
use keepsake_core::{Actor, ApiKeyId, TenantId};
use keepsake_engine::PageRequest;
use keepsake_index::{AuditAction, AuditEntry, Auditor, Tenant, TenantStatus};

use super::Operator;
use crate::frame::Frame;
use crate::page::{PageResult, page};
use crate::path::Path;
use crate::people::actor_text;
use crate::request::{Caller, Fields, Pager};
use crate::screens::audit::filter_of;
use crate::text::markup::{self, Markup, id, id_link};

const PER_PAGE: u64 = 100;
/// Keys whose names are looked up for one page.
const MAX_KEYS: u64 = 100;

/// An entry as the page shows it.
struct Row {
    at: Markup,
    by: Markup,
    action: String,
    object: Markup,
    store: Markup,
}

impl Row {
    fn of(entry: AuditEntry, tenant_id: TenantId, names: &HashMap<ApiKeyId, String>, frame: &Frame) -> Self {
        let href_of_key = |full: &str| format!("/console/tenants/{tenant_id}/keys/{full}");
        let by = match &entry.actor {
            Auditor::Credential(Actor::ApiKey(api_key_id)) => {
                let href = href_of_key(&api_key_id.to_string());
                let link = |name: &String| {
                    let name = Markup::text(name);
                    Markup::trusted(format!("<a href=\"{href}\" title=\"API key {api_key_id}\">{name}</a>"))
                };
                names.get(api_key_id).map_or_else(|| id_link(api_key_id, &href), link)
            }
            Auditor::Credential(actor) => Markup::text(&actor_text(Some(actor))),
            Auditor::Operator | Auditor::OperatorCli => Markup::text("the operator"),
            Auditor::Job => Markup::text("a job"),
        };
        let object = entry.object.as_ref().map(|object| {
            let is_key = object.r#type == "api_key";
            if is_key { id_link(&object.id, &href_of_key(&object.id)) } else { id(&object.id) }
        });
        Self {
            at: frame.time(entry.at),
            by,
            object: object.unwrap_or_default(),
            store: entry.store_id.map(id).unwrap_or_default(),
            action: entry.action,
        }
    }
}

#[derive(Template)]
#[template(path = "operator/audit.html")]
struct AuditPage {
    frame: Frame,
    tenant: Tenant,
    rows: Vec<Row>,
    /// The newest keys with their names, to choose from.
    keys: Vec<(ApiKeyId, String)>,
    pager: Pager,
    query: Fields,
}

/// `GET /console/tenants/{id}/audit`
pub(super) async fn of_tenant(caller: Caller<Operator>, Path(tenant_id): Path<TenantId>) -> PageResult {
    let engine = &caller.engine;
    let tenant = engine.tenants.get(tenant_id).await?;
    let principal = engine.tenants.operator(tenant_id, Auditor::Operator).await?;
    let filter = filter_of(&caller.query)?;
    let found = engine.audit.list(&principal, &filter, &caller.query.page(PER_PAGE)).await?;
    let newest = PageRequest { limit: Some(MAX_KEYS), page: None };
    let keys = engine.keys.list(&principal, &newest).await?.items;
    let keys: Vec<_> = keys.into_iter().map(|key| (key.api_key_id, key.name)).collect();
    let names: HashMap<_, _> = keys.iter().cloned().collect();
    let frame = caller.frame(format!("Audit of {}", tenant.name));
    page(&AuditPage {
        rows: found.items.into_iter().map(|entry| Row::of(entry, tenant_id, &names, &frame)).collect(),
        frame,
        tenant,
        keys,
        pager: caller.query.pager(found.next),
        query: caller.query,
    })
}
