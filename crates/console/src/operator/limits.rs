//! The limits and the search mode of a tenant, changed as by the operator's API.

use askama::Template;
use axum::http::StatusCode;
use keepsake_core::{Refused, SearchMode, TenantId, words};
use keepsake_engine::{Engine, EngineError};
use keepsake_index::{Auditor, Tenant, TenantChange, TenantStatus, TenantUpdate};
use serde_json::{Map, Value};

use super::Operator;
use crate::frame::{Done, Frame};
use crate::page::{PageResult, done, done_after, page, page_with, sentence};
use crate::path::Path;
use crate::request::{Caller, Fields, Form};
use crate::text::markup;
use crate::typed::{changed, completed, fields_before, renewed, was};

/// Its configured value is always that no memory expires.
const EXPIRES_UNUSED_AFTER: &str = "expires_unused_after";
const SEARCH_MODE: &str = "search_mode";

/// The groups of the form, in their order.
const GROUPS: [&str; 4] = ["Rates", "Sizes", "Numbers", "History and expiry"];

fn group_of(name: &str) -> &'static str {
    match name {
        "requests_per_second" | "request_burst" | "audit_entries_per_day" => "Rates",
        "expires_unused_after"
        | "read_retention_secs"
        | "recorded_reads_per_tenant"
        | "version_age_secs"
        | "version_retention_secs"
        | "versions_per_memory" => "History and expiry",
        name if name.contains("bytes") || name == "max_view_chars" => "Sizes",
        _ => "Numbers",
    }
}

/// What 0 means as the value of a limit.
fn meaning_of_zero(name: &str) -> &'static str {
    match name {
        "requests_per_second" | "request_burst" => "every request is refused",
        "audit_entries_per_day" => "changes that the audit lists are refused, unless they end something",
        "version_age_secs" | "versions_per_memory" => "no limit",
        "version_retention_secs" => "deleted at the next run of the job expire-versions",
        "read_retention_secs" => "readers are not recorded",
        "recorded_reads_per_tenant" => "no record is kept",
        EXPIRES_UNUSED_AFTER => "never",
        "max_view_chars" => "agents see no text",
        "session_bytes_per_tenant" => "no new sessions",
        name if name.contains("bytes") => "no new text",
        _ => "no new ones",
    }
}

/// Every limit with its configured value.
fn defaults(engine: &Engine) -> Map<String, Value> {
    let mut limits = as_map(serde_json::to_value(engine.default_limits()));
    limits.entry(EXPIRES_UNUSED_AFTER).or_insert_with(|| Value::from(0));
    limits
}

fn as_map(limits: serde_json::Result<Value>) -> Map<String, Value> {
    match limits {
        Ok(Value::Object(limits)) => limits,
        _ => Map::new(),
    }
}

/// The limits that differ from the configured ones.
fn own_limits(tenant: &Tenant) -> Map<String, Value> {
    as_map(serde_json::to_value(&tenant.limits))
}

/// The fields of the form; an empty text: the tenant has the configured value.
fn texts_of(engine: &Engine, tenant: &Tenant) -> Fields {
    let (own, mut texts) = (own_limits(tenant), Fields::default());
    for name in defaults(engine).keys() {
        let value = own.get(name).and_then(Value::as_u64);
        texts.add(name, value.map(|value| words::typed_limit(name, value)).unwrap_or_default());
    }
    texts.add(SEARCH_MODE, mode_text(tenant.search_mode).to_owned());
    texts
}

fn mode_text(mode: Option<SearchMode>) -> &'static str {
    mode.map(SearchMode::name).unwrap_or_default()
}

#[derive(Template)]
#[template(path = "operator/limits.html")]
struct LimitsPage {
    frame: Frame,
    tenant: Tenant,
    /// The configured value of each limit.
    defaults: Map<String, Value>,
    /// The limits that differ from the configured ones.
    own: Map<String, Value>,
    /// The fields of the form, and what it first showed.
    typed: Fields,
    /// Why nothing was saved.
    problem: Option<String>,
    /// The fields that break a rule.
    wrong: Vec<String>,
}

impl LimitsPage {
    /// The names of the limits of each group.
    fn groups(&self) -> [(&'static str, Vec<&String>); 4] {
        let of_group = |group: &str| self.defaults.keys().filter(|name| group_of(name) == group).collect();
        GROUPS.map(|group| (group, of_group(group)))
    }

    /// The form with the tenant's limits, or with the typed texts of a refused form.
    fn of(caller: &Caller<Operator>, tenant: Tenant, typed: Fields, problem: Option<String>) -> Self {
        Self {
            frame: caller.frame(format!("Limits of {}", tenant.name)),
            defaults: defaults(&caller.engine),
            own: own_limits(&tenant),
            typed: completed(typed, &texts_of(&caller.engine, &tenant)),
            tenant,
            problem,
            wrong: Vec::new(),
        }
    }
}

/// A limit with its unit; empty: there is none.
fn shown(limits: &Map<String, Value>, name: &str) -> String {
    let value = limits.get(name).and_then(Value::as_u64);
    value.map(|value| words::limit(name, value)).unwrap_or_default()
}

pub(super) async fn show(caller: Caller<Operator>, Path(tenant_id): Path<TenantId>) -> PageResult {
    let tenant = caller.engine.tenants.get(tenant_id).await?;
    let mut shown = LimitsPage::of(&caller, tenant, Fields::default(), None);
    shown.frame.undo = caller.undo_at(href_of(tenant_id));
    page(&shown)
}

/// A typed limit, or the rule that it breaks; null: the configured one.
fn limit_of(name: &str, typed: &str) -> Result<Value, String> {
    if typed.is_empty() { Ok(Value::Null) } else { words::parse_limit(name, typed).map(Value::from) }
}

/// The fields that differ from what the form showed, as the operator's API takes them, and what they
/// replace; or each field that breaks a rule, with the rule.
fn change_of(engine: &Engine, fields: &Fields) -> Result<TenantChange, Vec<(String, String)>> {
    let shown = |name: &str| fields.get(&was(name));
    let (mut change, mut wrong) = (TenantChange::default(), Vec::new());
    for name in defaults(engine).keys() {
        let Some(typed) = changed(fields, name) else {
            continue;
        };
        match limit_of(name, typed) {
            Ok(value) => {
                change.limits.insert(name.clone(), value);
            }
            Err(rule) => wrong.push((name.clone(), rule)),
        }
        if let Some(replaced) = shown(name).and_then(|was| limit_of(name, was).ok()) {
            change.replaced_limits.insert(name.clone(), replaced);
        }
    }
    if let Some(mode) = changed(fields, SEARCH_MODE) {
        let parsed = SearchMode::parse(mode);
        if parsed.is_none() && !mode.is_empty() {
            wrong.push((SEARCH_MODE.to_owned(), "must be `hybrid` or `lexical`".to_owned()));
        }
        change.search_mode = Some(parsed);
        change.replaced_search_mode = shown(SEARCH_MODE).map(SearchMode::parse);
    }
    if wrong.is_empty() { Ok(change) } else { Err(wrong) }
}

pub(super) async fn save(Path(tenant_id): Path<TenantId>, form: Form<Operator>) -> PageResult {
    let tenants = &form.engine.tenants;
    let (wrong, problem) = match change_of(&form.engine, &form.fields) {
        Ok(change) => match tenants.update(tenant_id, change, Auditor::Operator).await {
            Ok(update) => return saved(&form, &update),
            Err(EngineError::Refused(Refused::TenantChanged)) => return overtaken(&form, tenant_id).await,
            Err(error @ EngineError::Invalid { .. }) => (Vec::new(), sentence(&error.to_string())),
            Err(error) => return Err(error.into()),
        },
        Err(wrong) => {
            let said = wrong.iter().map(|(name, rule)| sentence(&format!("`{name}` {rule}")));
            let said = said.collect::<Vec<_>>().join(" ");
            (wrong.into_iter().map(|(name, _)| name).collect(), said)
        }
    };
    let tenant = tenants.get(tenant_id).await?;
    let shown = LimitsPage { wrong, ..LimitsPage::of(&form, tenant, form.fields.clone(), Some(problem)) };
    page_with(StatusCode::BAD_REQUEST, &shown)
}

/// The form with the changed texts and what the tenant has: the next attempt replaces that, and leaves the
/// other fields as they are.
async fn overtaken(form: &Form<Operator>, tenant_id: TenantId) -> PageResult {
    const CHANGED: &str = "Somebody changed the same limit or the search mode after this page had shown it. The \
        form says what the tenant has.";
    let tenant = form.engine.tenants.get(tenant_id).await?;
    let typed = renewed(form.fields.clone(), &texts_of(&form.engine, &tenant));
    page_with(StatusCode::CONFLICT, &LimitsPage::of(form, tenant, typed, Some(CHANGED.to_owned())))
}

/// Leads to the form, with the fields that take the change back: only where the tenant still has what
/// the change wrote.
fn saved(form: &Form<Operator>, update: &TenantUpdate) -> PageResult {
    let href = href_of(update.after.tenant_id);
    let [old, new] = [&update.before, &update.after].map(|tenant| texts_of(&form.engine, tenant));
    let fields = fields_before(&old, &new);
    if fields.is_empty() {
        return done(&href, Done::NothingChanged);
    }
    done_after(&form.token, &href, Done::LimitsSaved, fields)
}

fn href_of(tenant_id: TenantId) -> String {
    format!("/console/tenants/{tenant_id}/limits")
}
