//! Tenants: found by name, sorted by what they store and use; the usage of one; a new one.

use std::cmp::Reverse;
use std::collections::HashMap;

use askama::Template;
use axum::http::StatusCode;
use keepsake_core::id::TenantKind;
use keepsake_core::{ObjectKind, Refused, SearchMode, TenantId, words};
use keepsake_engine::{EngineError, NewTenant, Page, TenantSummary};
use keepsake_index::{
    Auditor, DeletionState, Tenant, TenantChange, TenantDeletion, TenantStatus, TenantUsage,
};

use super::{Operator, tenant_of};
use crate::frame::{Done, Frame};
use crate::names::SharedNames;
use crate::page::{PageResult, Problem, Refusal, done, done_after, page, page_with};
use crate::path::Path;
use crate::request::{Caller, Fields, Form, Pager};
use crate::screens::overview::Activity;
use crate::screens::usage::{Quota, quotas_of};
use crate::text::markup::{self, encoded};
use crate::typed::{changed, completed, fields_before, renewed, was};

/// The most that one call of the engine returns.
const PER_PAGE: u64 = 100;
/// Maximum number of pages that a search reads from the engine.
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

fn shared_names(rows: &[Row]) -> SharedNames {
    SharedNames::among(rows.iter().map(|Row { tenant, .. }| (tenant.tenant_id, tenant.name.as_str())))
}

#[derive(Template)]
#[template(path = "operator/tenants.html")]
struct TenantsPage {
    frame: Frame,
    rows: Vec<Row>,
    heads: Vec<Head>,
    pager: Pager,
    name: String,
    /// The name of the chosen status; empty: all.
    status: &'static str,
    /// The number of all tenants that the page's filter finds; `None`: there are further pages.
    total: Option<u64>,
    /// The name of the order in the address.
    order: &'static str,
    is_searched_in_part: bool,
}

pub(super) async fn list(caller: Caller<Operator>) -> PageResult {
    let fields = &caller.query;
    let name = fields.filled("name").unwrap_or_default().to_owned();
    let status = fields.filled("status").and_then(TenantStatus::parse);
    let status_name = status.map(TenantStatus::name).unwrap_or_default();
    let found = find(&caller, &name, status).await?;
    let ids: Vec<_> = found.items.iter().map(|tenant| tenant.tenant_id).collect();
    let summaries = caller.engine.tenants.summaries(&ids, DAYS).await?;
    let chosen = ORDERS.into_iter().find(|(_, named, _)| Some(*named) == fields.filled("order"));
    let (order, order_name, _) = chosen.unwrap_or(ORDERS[0]);
    let head = |(of, named, label): (Order, &str, &'static str)| Head {
        label,
        href: format!(
            "?name={}&status={status_name}&order={named}&page={}",
            encoded(&name),
            encoded(fields.text("page"))
        ),
        is_current: of == order,
        is_number: of != Order::Created,
    };
    let is_all = found.next.is_none() && !fields.is_on("page");
    page(&TenantsPage {
        frame: caller.frame("Tenants"),
        total: is_all.then_some(found.items.len() as u64),
        rows: sorted(found.items, &summaries, order),
        heads: ORDERS.map(head).into(),
        is_searched_in_part: (!name.is_empty() || status.is_some()) && found.next.is_some(),
        pager: fields.pager(found.next),
        name,
        status: status_name,
        order: order_name,
    })
}

/// The newest tenants after those of the page before; with a name or a status, those with it.
async fn find(
    caller: &Caller<Operator>,
    name: &str,
    status: Option<TenantStatus>,
) -> Result<Page<Tenant>, Refusal> {
    let tenants = &caller.engine.tenants;
    let mut asked = caller.query.page(PER_PAGE);
    if name.is_empty() && status.is_none() {
        return Ok(tenants.list(None, &asked).await?);
    }
    let has_status = |tenant: &Tenant| status.is_none_or(|status| tenant.status == status);
    // However many tenants there are.
    if asked.page.is_none() && !name.is_empty() {
        let mut named = tenants.list(Some(name), &asked).await?;
        named.items.retain(has_status);
        if !named.items.is_empty() {
            return Ok(named);
        }
    }
    let wanted = name.to_lowercase();
    let mut found = Page { items: Vec::new(), next: None };
    for _ in 0..MAX_SEARCHED_PAGES {
        let part = tenants.list(None, &asked).await?;
        let fits = |tenant: &Tenant| is_called(tenant, &wanted) && has_status(tenant);
        found.items.extend(part.items.into_iter().filter(fits));
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
    /// `None`: the tenant is not being deleted.
    deletion: Option<TenantDeletion>,
    /// The fields of the form that changes the tenant: what it has, or as they were sent.
    typed: Fields,
    problem: Problem,
}

impl TenantPage {
    async fn of(caller: &Caller<Operator>, tenant_id: TenantId) -> Result<Self, Refusal> {
        let (tenant, principal) = tenant_of(caller, tenant_id).await?;
        let usage = caller.engine.usage.of_tenant(&principal).await?;
        let deletion = match tenant.status {
            TenantStatus::Deleting => Some(caller.engine.tenants.deletion(tenant_id).await?),
            TenantStatus::Active | TenantStatus::Suspended => None,
        };
        Ok(Self {
            frame: caller.frame(&tenant.name),
            searched: words_of_mode(tenant.search_mode),
            typed: completed(Fields::default(), &fields_of(&tenant)),
            tenant,
            quotas: quotas_of(&usage),
            usage,
            activity: Activity::of(caller, &principal, None).await?,
            deletion,
            problem: Problem::default(),
        })
    }
}

/// The fields of the form with the tenant's values.
fn fields_of(tenant: &Tenant) -> Fields {
    let mut fields = Fields::default();
    fields.add(NAME, tenant.name.clone());
    fields.add(EXTERNAL_ID, tenant.external_id.clone().unwrap_or_default());
    fields
}

/// The report of a deletion that has ended.
#[derive(Template)]
#[template(path = "operator/deleted_tenant.html")]
struct DeletedTenantPage {
    frame: Frame,
    deletion: TenantDeletion,
}

pub(super) async fn show(caller: Caller<Operator>, Path(tenant_id): Path<TenantId>) -> PageResult {
    match TenantPage::of(&caller, tenant_id).await {
        Ok(mut shown) => {
            shown.frame.undo = caller.undo_at(href_of(tenant_id));
            page(&shown)
        }
        Err(Refusal::Engine(unknown @ EngineError::NotFound(ObjectKind::Tenant))) => {
            match caller.engine.tenants.deletion(tenant_id).await {
                Ok(deletion) => {
                    page(&DeletedTenantPage { frame: caller.frame("A deleted tenant"), deletion })
                }
                // No tenant has had this id.
                Err(EngineError::NotFound(_)) => Err(unknown.into()),
                Err(error) => Err(error.into()),
            }
        }
        Err(refusal) => Err(refusal),
    }
}

const fn progress_of(deletion: &TenantDeletion) -> &'static str {
    match deletion.state {
        DeletionState::Removing => "The job delete-tenants is removing the data of the tenant.",
        DeletionState::Settling => {
            "The data was removed. The job delete-tenants checks once more for data that was written late."
        }
        DeletionState::Done if deletion.object_versions.kept > 0 => {
            "The data was removed, except for older versions of content that the bucket did not let the server delete."
        }
        DeletionState::Done => "All data of the tenant was removed.",
    }
}

/// The number of rows that a deletion has removed so far.
fn removed_rows(deletion: &TenantDeletion) -> String {
    words::count(deletion.rows.values().sum())
}

/// Changes the name and the external id, each only if the form changed it, and only if the tenant still has
/// what the form showed.
pub(super) async fn save(Path(tenant_id): Path<TenantId>, form: Form<Operator>) -> PageResult {
    let text = |name: &str| changed(&form.fields, name).map(str::to_owned);
    let replaced = |name: &str| text(name).and_then(|_| form.fields.get(&was(name)).map(str::to_owned));
    let or_none = |id: String| Some(id).filter(|id| !id.is_empty());
    let change = TenantChange {
        name: text(NAME),
        replaced_name: replaced(NAME),
        external_id: text(EXTERNAL_ID).map(or_none),
        replaced_external_id: replaced(EXTERNAL_ID).map(or_none),
        ..TenantChange::default()
    };
    let error = match form.engine.tenants.update(tenant_id, change, Auditor::Operator).await {
        Ok(update) => {
            let (href, [old, new]) = (href_of(tenant_id), [&update.before, &update.after].map(fields_of));
            let fields = fields_before(&old, &new);
            if !fields.is_empty() {
                return done_after(&form.token, &href, Done::TenantSaved, fields);
            }
            let is_same = old.pairs().eq(new.pairs());
            return done(&href, if is_same { Done::NothingChanged } else { Done::TenantSaved });
        }
        Err(error) => error,
    };
    let is_late = matches!(error, EngineError::Refused(Refused::TenantChanged));
    let (status, problem) = problem_of(error)?;
    let shown = TenantPage::of(&form, tenant_id).await?;
    let (sent, current) = (form.fields.clone(), fields_of(&shown.tenant));
    let typed = if is_late { renewed(sent, &current) } else { completed(sent, &current) };
    page_with(status, &TenantPage { typed, problem, ..shown })
}

fn href_of(tenant_id: TenantId) -> String {
    format!("/console/tenants/{tenant_id}")
}

pub(super) async fn suspend(Path(tenant_id): Path<TenantId>, form: Form<Operator>) -> PageResult {
    form.engine.tenants.suspend(tenant_id, Auditor::Operator).await?;
    done(&href_of(tenant_id), Done::TenantSuspended)
}

pub(super) async fn resume(Path(tenant_id): Path<TenantId>, form: Form<Operator>) -> PageResult {
    form.engine.tenants.resume(tenant_id, Auditor::Operator).await?;
    done(&href_of(tenant_id), Done::TenantResumed)
}

const NAME: &str = "name";
const EXTERNAL_ID: &str = "external_id";

/// What a field of the form would replace; `None`: nothing, or there is no tenant yet.
fn replaced_by(typed: &Fields, name: &str) -> Option<String> {
    let has = typed.get(&was(name))?;
    (typed.text(name).trim() != has.trim()).then(|| has.to_owned())
}

/// Why a form with the name and the external id of a tenant was refused.
fn problem_of(error: EngineError) -> Result<(StatusCode, Problem), Refusal> {
    if matches!(error, EngineError::Refused(Refused::TenantExists)) {
        return Ok((StatusCode::CONFLICT, Problem::at(EXTERNAL_ID, &error.to_string())));
    }
    if matches!(error, EngineError::Refused(Refused::TenantChanged)) {
        const CHANGED: &str = "Somebody changed the same field after this page had shown it. Your text is still in \
            the form, above what the tenant has.";
        return Ok((StatusCode::CONFLICT, Problem::at("", CHANGED)));
    }
    Ok((StatusCode::BAD_REQUEST, Problem::of(error)?))
}

/// The field with the id of the tenant to make: a form that is sent twice makes one tenant.
const ONCE: &str = "once";

#[derive(Template)]
#[template(path = "operator/new_tenant.html")]
struct NewTenantPage {
    frame: Frame,
    /// The fields at first, or as they were sent.
    typed: Fields,
    problem: Problem,
}

pub(super) async fn new(caller: Caller<Operator>) -> PageResult {
    let mut typed = Fields::default();
    typed.add(ONCE, TenantId::from_uuid(caller.engine.new_uuid()).to_string());
    page(&NewTenantPage { frame: caller.frame("New tenant"), typed, problem: Problem::default() })
}

pub(super) async fn create(form: Form<Operator>) -> PageResult {
    let fields = &form.fields;
    let rule = || Refusal::Invalid(format!("`{ONCE}` must be the id that the page made"));
    let tenant_id = fields.id::<TenantKind>(ONCE)?.ok_or_else(rule)?;
    let new = NewTenant {
        name: fields.text(NAME).trim().to_owned(),
        external_id: fields.filled(EXTERNAL_ID).map(str::to_owned),
        ..NewTenant::default()
    };
    let made = form.engine.tenants.create_once(tenant_id, new, Auditor::Operator).await;
    let (status, problem) = match made {
        Ok(_) => return done(&href_of(tenant_id), Done::TenantCreated),
        Err(error) => problem_of(error)?,
    };
    let typed = fields.clone();
    page_with(status, &NewTenantPage { frame: form.frame("New tenant"), typed, problem })
}
