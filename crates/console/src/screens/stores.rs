//! Stores: listed, found by name, created.

use askama::Template;
use axum::extract::State;
use keepsake_core::{Timestamp, words};
use keepsake_engine::{Engine, PageRequest, StoreDraft, StoreQuery};
use keepsake_index::{Scope, Store};

use crate::frame::{Done, Frame, Tab};
use crate::page::{PageResult, Refusal, done, page};
use crate::request::{Caller, Form, Pager, Query};
use crate::text::line_ends;
use crate::text::markup::{Markup, id, time, time_or};

/// The most that one call of the engine returns.
const PER_PAGE: u64 = 100;
/// Maximum number of engine calls for a search by name.
const MAX_SEARCHED_PAGES: usize = 10;

struct Row {
    href: String,
    name: String,
    description: String,
    id: Markup,
    memories: String,
    size: String,
    changed: Markup,
    created: Markup,
    is_archived: bool,
}

impl Row {
    fn of(store: Store, now: Timestamp) -> Self {
        Self {
            href: format!("/console/stores/{}", store.store_id),
            name: store.name,
            description: store.description,
            id: id(&store.store_id.to_string()),
            memories: words::count(store.memory_count),
            size: words::bytes(store.live_bytes),
            changed: time_or(store.last_version_at, now, "never"),
            created: time(store.created_at, now),
            is_archived: store.archived_at.is_some(),
        }
    }
}

#[derive(Template)]
#[template(path = "stores.html")]
struct StoresPage {
    frame: Frame,
    rows: Vec<Row>,
    name: String,
    has_archived: bool,
    pager: Pager,
    may_create: bool,
    /// Makes the creation idempotent.
    once: String,
    is_searched_in_part: bool,
}

/// The newest stores of a credential, for a person to choose from.
pub(super) async fn stores_to_choose(
    engine: &Engine,
    caller: &Caller,
    include_archived: bool,
) -> Result<Vec<Store>, Refusal> {
    let query = StoreQuery {
        include_archived,
        page: PageRequest { limit: Some(100), page: None },
        ..StoreQuery::default()
    };
    Ok(engine.stores.list(&caller.principal, &query).await?.items)
}

/// `GET /console/stores`
pub(super) async fn list(State(engine): State<Engine>, caller: Caller, Query(fields): Query) -> PageResult {
    let name = fields.filled("name").unwrap_or_default().to_owned();
    let mut query = StoreQuery {
        include_archived: fields.is_on("archived"),
        page: fields.page(PER_PAGE),
        ..StoreQuery::default()
    };
    let mut found = engine.stores.list(&caller.principal, &query).await?;
    let mut calls = 1;
    if !name.is_empty() {
        let wanted = name.to_lowercase();
        found.items.retain(|store| is_called(store, &wanted));
        while let Some(next) = found.next.take() {
            if found.items.len() >= 100 || calls >= MAX_SEARCHED_PAGES {
                found.next = Some(next);
                break;
            }
            query.page.page = Some(next);
            let more = engine.stores.list(&caller.principal, &query).await?;
            found.items.extend(more.items.into_iter().filter(|store| is_called(store, &wanted)));
            found.next = more.next;
            calls += 1;
        }
    }
    let now = engine.now();
    page(&StoresPage {
        frame: caller.frame("Stores", Tab::Stores),
        rows: found.items.into_iter().map(|store| Row::of(store, now)).collect(),
        is_searched_in_part: !name.is_empty() && found.next.is_some(),
        name,
        has_archived: query.include_archived,
        pager: fields.pager(found.next),
        may_create: may_create_stores(&caller),
        once: engine.new_uuid().to_string(),
    })
}

pub(super) fn may_create_stores(caller: &Caller) -> bool {
    caller.may(Scope::StoresAdmin) && !caller.principal.is_bound_to_stores()
}

fn is_called(store: &Store, wanted: &str) -> bool {
    store.name.to_lowercase().contains(wanted) || store.store_id.to_string().to_lowercase() == wanted
}

/// `POST /console/stores`
pub(super) async fn create(State(engine): State<Engine>, form: Form) -> PageResult {
    let fields = &form.fields;
    let draft = StoreDraft {
        name: fields.text("name").trim().to_owned(),
        description: line_ends::typed(fields.text("description").trim()),
        policy: fields.filled("policy").map(str::to_owned),
        expires_unused_after: days(fields.number("expires_days")?)?,
        ..StoreDraft::default()
    };
    let call = form.call(&engine)?;
    let store = engine.stores.create(&form.caller.principal, draft, call).await?;
    done(&format!("/console/stores/{}", store.store_id), Done::StoreCreated)
}

/// Converts days to seconds.
pub(super) fn days(days: Option<u64>) -> Result<Option<u64>, Refusal> {
    let rule = || Refusal::Invalid("`expires_days` is too large".to_owned());
    days.map(|days| days.checked_mul(86_400).ok_or_else(rule)).transpose()
}
