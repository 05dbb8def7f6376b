//! The audit of a tenant and that of the operator, with the filters that a tenant's people have.

use std::collections::HashMap;
use std::sync::Arc;

use askama::Template;
use keepsake_core::{Actor, StoreId, TenantId};
use keepsake_engine::{Page, PageRequest, Principal};
use keepsake_index::{
    AuditAction, AuditEntry, AuditFilter, Auditor, OperatorActions, StoreFilter, Tenant, TenantStatus,
    action_words, changes_words, job_of_action,
};

use super::{Operator, tenant_of};
use crate::frame::Frame;
use crate::page::{PageResult, Problem, page_with};
use crate::path::Path;
use crate::people::{actor_text, cut};
use crate::request::{Caller, Fields, Pager};
use crate::screens::audit::{ActionChoice, actions_of_tenant, resolved_filter};
use crate::screens::choices::{ChoiceField, Choices};
use crate::text::markup::{self, Markup, encoded, id, id_link};

const PER_PAGE: u64 = 100;
/// Keys, stores or tenants whose names are looked up for one page.
const MAX_NAMES: u64 = 100;
/// Stores among the objects of a tenant's audit.
const OFFERED_STORES: usize = 50;
/// Actions of the operator on a tenant.
const OF_TENANTS: [AuditAction; 7] = [
    AuditAction::TenantCreated,
    AuditAction::TenantUpdated,
    AuditAction::TenantSuspended,
    AuditAction::TenantResumed,
    AuditAction::TenantDeleted,
    AuditAction::KeyCreated,
    AuditAction::KeyRevoked,
];

fn actions_of_operator() -> Vec<ActionChoice> {
    let of_tenants = OF_TENANTS.map(|action| (action.name(), action.words()));
    of_tenants.into_iter().chain(OperatorActions::ALL.map(|kind| (kind.name(), kind.words()))).collect()
}

/// The action in words, with the changes of a tenant. A job that was run by hand is the object, and is left out here.
fn action_of(entry: &AuditEntry) -> String {
    let words = action_words(&entry.action);
    match (job_of_action(&entry.action), &entry.changes) {
        (Some(job), _) => words.replacen(&format!(" {job}"), "", 1),
        (None, Some(changes)) => format!("{words}: {}", changes_words(changes)),
        (None, None) => words,
    }
}

#[derive(Template)]
#[template(path = "operator/audit.html")]
struct AuditPage {
    frame: Frame,
    /// `None`: the entries are the operator's own.
    tenant: Option<Tenant>,
    entries: Vec<AuditEntry>,
    /// Of the keys of the tenant, or of all tenants.
    names: Choices,
    /// The names of the newest stores of the tenant.
    stores: HashMap<StoreId, String>,
    choices: Vec<ChoiceField>,
    actions: Vec<ActionChoice>,
    pager: Pager,
    query: Fields,
    is_filtered: bool,
    problem: Problem,
}

impl AuditPage {
    fn auditor_of(&self, entry: &AuditEntry) -> Markup {
        match &entry.actor {
            Auditor::Credential(Actor::ApiKey(api_key_id)) => {
                self.named(entry, "api_key", &api_key_id.to_string())
            }
            Auditor::Credential(actor) => Markup::text(&actor_text(Some(actor))),
            Auditor::Operator => Markup::text("the operator"),
            Auditor::OperatorCli => Markup::text("the operator, by a command"),
            Auditor::Job => Markup::text("a job"),
        }
    }

    fn object_of(&self, entry: &AuditEntry) -> Markup {
        if let Some(object) = &entry.object {
            if let ("memory_store", Ok(store_id)) = (object.r#type.as_str(), object.id.parse::<StoreId>()) {
                return self.store(store_id);
            }
            return self.named(entry, &object.r#type, &object.id);
        }
        // A run by hand has its job in its action.
        let link =
            |job: &str| format!("<a href=\"/console/jobs/{}\">{}</a>", encoded(job), Markup::text(job));
        job_of_action(&entry.action).map(link).map(Markup::trusted).unwrap_or_default()
    }

    /// The tenant of an entry of the operator's audit, unless it is the object.
    fn owner_of(&self, entry: &AuditEntry) -> Markup {
        let is_object = entry.object.as_ref().is_some_and(|object| object.r#type == "tenant");
        let owner = entry.tenant_id.filter(|_| self.tenant.is_none() && !is_object);
        owner.map(|tenant_id| self.named(entry, "tenant", &tenant_id.to_string())).unwrap_or_default()
    }

    /// The name of a store, as far as it is known, and its id: the operator has no page of a store.
    fn store(&self, store_id: StoreId) -> Markup {
        let name = self.stores.get(&store_id).map(|name| format!("<bdi>{}</bdi> ", Markup::text(&cut(name))));
        Markup::trusted(format!("{}{}", name.unwrap_or_default(), id(store_id)))
    }

    fn store_of(&self, entry: &AuditEntry) -> Markup {
        entry.store_id.map(|store_id| self.store(store_id)).unwrap_or_default()
    }

    fn named(&self, entry: &AuditEntry, kind: &str, full: &str) -> Markup {
        let href = match (kind, entry.tenant_id) {
            ("tenant", _) => format!("/console/tenants/{full}"),
            ("api_key", Some(tenant_id)) => format!("/console/tenants/{tenant_id}/keys/{full}"),
            _ => return id(full),
        };
        let own = self.tenant.as_ref().filter(|tenant| tenant.tenant_id.to_string() == full);
        let name = own.map(|tenant| tenant.name.as_str()).or_else(|| self.names.name_of(full));
        let Some(name) = name else {
            return id_link(full, &href);
        };
        let name = Markup::text(name);
        Markup::trusted(format!("<a href=\"{href}\" title=\"{full}\"><bdi>{name}</bdi></a>"))
    }
}

const fn newest() -> PageRequest {
    PageRequest { limit: Some(MAX_NAMES), page: None }
}

pub(super) async fn of_tenant(caller: Caller<Operator>, Path(tenant_id): Path<TenantId>) -> PageResult {
    let of_tenant = tenant_of(&caller, tenant_id).await?;
    let keys = caller.engine.keys.list(&of_tenant.1, &newest()).await?.items;
    let named_keys = || keys.iter().map(|key| (key.api_key_id.to_string(), key.name.as_str()));
    let names = Choices::named_so(named_keys());
    let filter = StoreFilter { include_archived: true, ..StoreFilter::default() };
    let stores = caller.engine.stores.list(&of_tenant.1, &filter, &newest()).await?.items;
    let named_stores = stores.iter().map(|store| (store.store_id.to_string(), store.name.as_str()));
    let objects = Choices::named_so(named_stores.take(OFFERED_STORES).chain(named_keys()));
    let stores = stores.into_iter().map(|store| (store.store_id, store.name)).collect();
    show(caller, Some(of_tenant), names, objects, stores).await
}

/// `GET /console/audit`: what the operator did
pub(super) async fn of_operator(caller: Caller<Operator>) -> PageResult {
    let tenants = caller.engine.tenants.list(None, &newest()).await?.items;
    let names = Choices::named_so(tenants.iter().map(|tenant| (tenant.tenant_id, tenant.name.as_str())));
    show(caller, None, names.clone(), names, HashMap::new()).await
}

async fn show(
    mut caller: Caller<Operator>,
    of_tenant: Option<(Tenant, Arc<Principal>)>,
    names: Choices,
    objects: Choices,
    stores: HashMap<StoreId, String>,
) -> PageResult {
    let (now, audit) = (caller.engine.now(), &caller.engine.audit);
    let of_operator = OperatorActions::parse(caller.query.text("action")).filter(|_| of_tenant.is_none());
    let (filter, problem) = match resolved_filter(&mut caller.query, &names, &objects, of_operator, now) {
        Ok(filter) => (Some(filter), Problem::default()),
        Err(refusal) => (None, Problem::of(refusal)?),
    };
    let asked = caller.query.page(PER_PAGE);
    let found = match (&filter, &of_tenant) {
        (Some(filter), Some((_, principal))) => audit.list(principal, filter, &asked).await?,
        (Some(filter), None) => audit.of_operator(filter, &asked).await?,
        (None, _) => Page { items: Vec::new(), next: None },
    };
    let actions = if of_tenant.is_some() { actions_of_tenant() } else { actions_of_operator() };
    let actor = || names.field("actor", "Author", "everybody", &caller.query);
    let actor = of_tenant.is_some().then(actor);
    let object = objects.field("object", "Object", "everything", &caller.query);
    let tenant = of_tenant.map(|(tenant, _)| tenant);
    let title = tenant.as_ref().map(|tenant| format!("Audit of {}", tenant.name));
    let shown = AuditPage {
        frame: caller.frame(title.as_deref().unwrap_or("Audit")),
        tenant,
        entries: found.items,
        actions,
        choices: actor.into_iter().chain([object]).map(|field| field.marked(&problem)).collect(),
        names,
        stores,
        pager: caller.query.pager(found.next),
        query: caller.query,
        is_filtered: filter.is_some_and(|filter| filter != AuditFilter::default()),
        problem,
    };
    page_with(shown.problem.status(), &shown)
}
