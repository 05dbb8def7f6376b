//! Tenants: found by name, sorted by what they store and use; the usage of one; a new one.

use std::cmp::Reverse;
use std::collections::HashMap;

use askama::Template;
use axum::http::StatusCode;
use keepsake_core::id::TenantKind;
use keepsake_core::{Refused, SearchMode, TenantId, words};
use keepsake_engine::{EngineError, NewTenant, Page, TenantSummary};
use keepsake_index::{Auditor, Tenant, TenantStatus, TenantUsage};

use super::{Operator, tenant_of};
use crate::frame::{Done, Frame};
use crate::page::{PageResult, Refusal, done, page, page_with, sentence};
use crate::path::Path;
use crate::request::{Caller, Fields, Form, Pager};
use crate::screens::overview::Activity;
use crate::screens::usage::{Quota, quotas_of};
use crate::text::markup::{self, encoded};

/// The most that one call of the engine returns.
const PER_PAGE: u64 = 100;
/// Calls of the engine for a search.
const MAX_SEARCHED_PAGES: usize = 10;
/// Days whose reads and writes are shown.
const DAYS: i64 = 30;

/// An order of the tenants of a page, with its name in the address and its column.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Order {
    Size,
    Memories,
    Stores,
    Writes,
    Reads,
    Created,
}

const ORDERS: [(Order, &str, &str); 6] = [
    (Order::Size, "size", "Size"),
    (Order::Memories, "memories", "Memories"),
    (Order::Stores, "stores", "Stores"),
    (Order::Writes, "writes", "Writes"),
    (Order::Reads, "reads", "Reads"),
    (Order::Created, "created", "Created"),
];

/// A head of a column that sorts by it.
struct Head {
    label: &'static str,
    href: String,
    is_current: bool,
    is_number: bool,
}

struct Row {
    tenant: Tenant,
    summary: TenantSummary,
}

#[derive(Template)]
#[template(path = "operator/tenants.html")]
struct TenantsPage {
    frame: Frame,
    rows: Vec<Row>,
    heads: Vec<Head>,
    pager: Pager,
    name: String,
    /// The name of the order in the address.
    order: &'static str,
    is_searched_in_part: bool,
}

pub(super) async fn list(caller: Caller<Operator>) -> PageResult {
    let fields = &caller.query;
    let name = fields.filled("name").unwrap_or_default().to_owned();
    let found = find(&caller, &name).await?;
    let ids: Vec<_> = found.items.iter().map(|tenant| tenant.tenant_id).collect();
    let summaries = caller.engine.tenants.summaries(&ids, DAYS).await?;
    let chosen = ORDERS.into_iter().find(|(_, named, _)| Some(*named) == fields.filled("order"));
    let (order, order_name, _) = chosen.unwrap_or(ORDERS[0]);
    let head = |(of, named, label): (Order, &str, &'static str)| Head {
        label,
        href: format!("?name={}&order={named}&page={}", encoded(&name), encoded(fields.text("page"))),
        is_current: of == order,
        is_number: of != Order::Created,
    };
    page(&TenantsPage {
        frame: caller.frame("Tenants"),
        rows: sorted(found.items, &summaries, order),
        heads: ORDERS.map(head).into(),
        is_searched_in_part: !name.is_empty() && found.next.is_some(),
        pager: fields.pager(found.next),
        name,
        order: order_name,
    })
}

/// The newest tenants after those of the page before; with a name, those with it.
async fn find(caller: &Caller<Operator>, name: &str) -> Result<Page<Tenant>, Refusal> {
    let tenants = &caller.engine.tenants;
    let mut asked = caller.query.page(PER_PAGE);
    if name.is_empty() {
        return Ok(tenants.list(None, &asked).await?);
    }
    // However many tenants there are.
    if asked.page.is_none() {
        let named = tenants.list(Some(name), &asked).await?;
        if !named.items.is_empty() {
            return Ok(named);
        }
    }
    let wanted = name.to_lowercase();
    let mut found = Page { items: Vec::new(), next: None };
    for _ in 0..MAX_SEARCHED_PAGES {
        let part = tenants.list(None, &asked).await?;
        found.items.extend(part.items.into_iter().filter(|tenant| is_called(tenant, &wanted)));
        found.next = part.next;
        if found.next.is_none() || found.items.len() as u64 >= PER_PAGE {
            break;
        }
        asked.page.clone_from(&found.next);
    }
    Ok(found)
}

fn is_called(tenant: &Tenant, wanted: &str) -> bool {
    let external_id = tenant.external_id.as_deref().unwrap_or_default();
    [tenant.name.as_str(), external_id].iter().any(|text| text.to_lowercase().contains(wanted))
        || tenant.tenant_id.to_string().to_lowercase() == wanted
}

fn sorted(tenants: Vec<Tenant>, summaries: &HashMap<TenantId, TenantSummary>, order: Order) -> Vec<Row> {
    let rows = tenants.into_iter().map(|tenant| {
        let summary = summaries.get(&tenant.tenant_id).copied().unwrap_or_default();
        Row { tenant, summary }
    });
    let mut rows: Vec<_> = rows.collect();
    rows.sort_by_key(|Row { summary, .. }| {
        Reverse(match order {
            Order::Size => summary.live_bytes,
            Order::Memories => summary.memories,
            Order::Stores => summary.stores,
            Order::Writes => summary.writes,
            Order::Reads => summary.reads,
            // As they were listed.
            Order::Created => 0,
        })
    });
    rows
}

/// How the stores without a mode are searched.
const fn words_of_mode(mode: Option<SearchMode>) -> &'static str {
    match mode {
        None => "by words and by meaning (default)",
        Some(SearchMode::Hybrid) => "by words and by meaning",
        Some(SearchMode::Lexical) => "by words",
    }
}

#[derive(Template)]
#[template(path = "operator/tenant.html")]
struct TenantPage {
    frame: Frame,
    tenant: Tenant,
    searched: &'static str,
    usage: TenantUsage,
    quotas: [Quota; 5],
    activity: Activity,
}

pub(super) async fn show(caller: Caller<Operator>, Path(tenant_id): Path<TenantId>) -> PageResult {
    let (tenant, principal) = tenant_of(&caller, tenant_id).await?;
    let usage = caller.engine.usage.of_tenant(&principal).await?;
    page(&TenantPage {
        frame: caller.frame(&tenant.name),
        searched: words_of_mode(tenant.search_mode),
        tenant,
        quotas: quotas_of(&usage, "Size of all stores"),
        usage,
        activity: Activity::of(&caller, &principal, None).await?,
    })
}

pub(super) async fn suspend(Path(tenant_id): Path<TenantId>, form: Form<Operator>) -> PageResult {
    form.engine.tenants.suspend(tenant_id, Auditor::Operator).await?;
    done(&format!("/console/tenants/{tenant_id}"), Done::TenantSuspended)
}

pub(super) async fn resume(Path(tenant_id): Path<TenantId>, form: Form<Operator>) -> PageResult {
    form.engine.tenants.resume(tenant_id, Auditor::Operator).await?;
    done(&format!("/console/tenants/{tenant_id}"), Done::TenantResumed)
}

/// The field with the id of the tenant to make: a form that is sent twice makes one tenant.
const ONCE: &str = "once";

#[derive(Template)]
#[template(path = "operator/new_tenant.html")]
struct NewTenantPage {
    frame: Frame,
    /// The fields at first, or as they were sent.
    typed: Fields,
    /// Why no tenant was made.
    problem: Option<String>,
}

pub(super) async fn new(caller: Caller<Operator>) -> PageResult {
    let mut typed = Fields::default();
    typed.add(ONCE, TenantId::from_uuid(caller.engine.new_uuid()).to_string());
    page(&NewTenantPage { frame: caller.frame("New tenant"), typed, problem: None })
}

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
    let (typed, problem) = (fields.clone(), Some(sentence(&problem.to_string())));
    page_with(status, &NewTenantPage { frame: form.frame("New tenant"), typed, problem })
}
