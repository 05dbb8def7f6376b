//! Stores: listed, found by name, created.

use askama::Template;
use axum::http::StatusCode;
use keepsake_core::id::StoreKind;
use keepsake_core::words;
use keepsake_engine::{PageRequest, StoreDraft, StoreFork};
use keepsake_index::{Scope, Store, StoreFilter};

use crate::frame::{Done, Frame};
use crate::names::SharedNames;
use crate::page::{PageResult, Refusal, done, page, page_with, problem_of};
use crate::request::{Caller, Fields, Form, Pager};
use crate::text::line_ends;

/// The most that one call of the engine returns.
pub(super) const PER_PAGE: u64 = 100;
/// The longest time that a form takes. No time after the year 9999 can be shown.
const MAX_DAYS: u64 = 1_000_000;
/// Maximum number of engine calls for a search by name.
pub(super) const MAX_SEARCHED_PAGES: usize = 10;

#[derive(Template)]
#[template(path = "stores.html")]
struct StoresPage {
    frame: Frame,
    stores: Vec<Store>,
    name: String,
    has_archived: bool,
    pager: Pager,
    may_create: bool,
    /// The fields of the form for a new store, at first or as it was sent.
    typed: Fields,
    /// Why no store was made.
    problem: Option<String>,
    is_searched_in_part: bool,
    /// When an unread memory of a store without a period expires.
    expiry_rule: String,
}

/// The newest stores of a credential, for a person to choose from.
pub(super) async fn stores_to_choose(caller: &Caller, include_archived: bool) -> Result<Vec<Store>, Refusal> {
    let filter = StoreFilter { include_archived, ..StoreFilter::default() };
    let newest = PageRequest { limit: Some(PER_PAGE), page: None };
    Ok(caller.engine.stores.list(&caller.principal, &filter, &newest).await?.items)
}

pub(super) async fn list(caller: Caller) -> PageResult {
    page(&shown(&caller).await?)
}

async fn shown(caller: &Caller) -> Result<StoresPage, Refusal> {
    let name = caller.query.filled("name").unwrap_or_default().to_owned();
    let filter = StoreFilter { include_archived: caller.query.is_on("archived"), ..StoreFilter::default() };
    let mut asked = caller.query.page(PER_PAGE);
    let stores = &caller.engine.stores;
    let mut found = stores.list(&caller.principal, &filter, &asked).await?;
    let mut calls = 1;
    if !name.is_empty() {
        let wanted = name.to_lowercase();
        found.items.retain(|store| is_called(store, &wanted));
        while let Some(next) = found.next.take() {
            if found.items.len() as u64 >= PER_PAGE || calls >= MAX_SEARCHED_PAGES {
                found.next = Some(next);
                break;
            }
            asked.page = Some(next);
            let more = stores.list(&caller.principal, &filter, &asked).await?;
            found.items.extend(more.items.into_iter().filter(|store| is_called(store, &wanted)));
            found.next = more.next;
            calls += 1;
        }
    }
    let mut typed = Fields::default();
    // Makes the creation idempotent.
    typed.add("once", caller.engine.new_uuid().to_string());
    Ok(StoresPage {
        frame: caller.frame("Stores"),
        stores: found.items,
        is_searched_in_part: !name.is_empty() && found.next.is_some(),
        name,
        has_archived: filter.include_archived,
        pager: caller.query.pager(found.next),
        may_create: may_create_stores(caller),
        typed,
        problem: None,
        expiry_rule: expiry_rule(caller, None),
    })
}

pub(super) fn may_create_stores(caller: &Caller) -> bool {
    caller.principal.require_for_all_stores(Scope::StoresAdmin).is_ok()
}

pub(super) fn is_called(store: &Store, wanted: &str) -> bool {
    store.name.to_lowercase().contains(wanted) || store.store_id.to_string().to_lowercase() == wanted
}

pub(super) async fn create(form: Form) -> PageResult {
    let created = match draft_of(&form.fields) {
        Ok(draft) => form.engine.stores.create(&form.principal, draft, form.call()?).await,
        Err(refusal) => return refused(&form, refusal).await,
    };
    match created {
        Ok(store) => done(&format!("/console/stores/{}", store.store_id), Done::StoreCreated),
        Err(error) => refused(&form, error.into()).await,
    }
}

/// The form as it was sent. That of a fork is on another page, and its text is given back with the error.
async fn refused(form: &Form, refusal: Refusal) -> PageResult {
    if form.fields.is_on("fork_of") {
        return Err(refusal);
    }
    let again =
        StoresPage { problem: Some(problem_of(refusal)?), typed: form.fields.clone(), ..shown(form).await? };
    page_with(StatusCode::BAD_REQUEST, &again)
}

fn draft_of(fields: &Fields) -> Result<StoreDraft, Refusal> {
    let at_seq = fields.number("at_seq")?;
    let fork_of = fields.id::<StoreKind>("fork_of")?;
    Ok(StoreDraft {
        fork_of: fork_of.map(|memory_store_id| StoreFork { memory_store_id, at_seq }),
        name: fields.text("name").trim().to_owned(),
        description: line_ends::typed(fields.text("description").trim()),
        policy: fields.filled("policy").map(str::to_owned),
        expires_unused_after: days(fields.number("expires_days")?)?,
        ..StoreDraft::default()
    })
}

/// When an unread memory expires, in words. `store_secs`: the period of its store.
pub(super) fn expiry_rule(caller: &Caller, store_secs: Option<u64>) -> String {
    let tenant_secs = caller.principal.limits.unused_period_secs();
    let (secs, whose) = match (store_secs, tenant_secs) {
        (Some(secs), _) => (secs, "as the settings of the store say"),
        (None, Some(secs)) => (secs, "as the operator has set for the tenant (expires_unused_after)"),
        (None, None) => return "never".to_owned(),
    };
    format!("{} after its last use, {whose}", words::period(secs))
}

/// Converts days to seconds.
pub(super) fn days(days: Option<u64>) -> Result<Option<u64>, Refusal> {
    let rule = || Refusal::Invalid(format!("`expires_days` must be at most {MAX_DAYS}"));
    days.map(|days| (days <= MAX_DAYS).then(|| days * 86_400).ok_or_else(rule)).transpose()
}
