//! The settings of a store, its archiving and its deletion.

use askama::Template;
use axum::http::StatusCode;
use keepsake_core::{SearchMode, StoreId, words};
use keepsake_engine::StoreEdit;
use keepsake_index::{Scope, Store};

use super::stores::{days, expiry_rule, may_create_stores};
use crate::frame::{Done, Frame};
use crate::page::{PageResult, Refusal, done, done_after, page, page_with, problem_of};
use crate::path::Path;
use crate::request::{Caller, Fields, Form};
use crate::text::line_ends;
use crate::typed::{self, was};

const EXPIRES_DAYS: &str = "expires_days";
/// The period in seconds, in the form that takes a change back.
const PERIOD: &str = "expires_unused_after";

#[derive(Template)]
#[template(path = "settings.html")]
struct SettingsPage {
    frame: Frame,
    store: Store,
    /// The fields of the form: those of the store, or as they were sent.
    typed: Fields,
    /// Why nothing was saved.
    problem: Option<String>,
    /// Why the store was not deleted.
    deletion_problem: Option<String>,
    may_rename: bool,
    may_administer: bool,
    may_fork: bool,
    /// When an unread memory expires if the store has no period.
    expiry_rule: String,
}

pub(super) async fn show(caller: Caller, Path(store_id): Path<StoreId>) -> PageResult {
    let store = caller.engine.stores.get(&caller.principal, store_id).await?;
    let mut shown = SettingsPage::of(&caller, store);
    shown.frame.undo = caller.undo_at(href_of(store_id)).filter(|_| shown.may_rename);
    page(&shown)
}

fn href_of(store_id: StoreId) -> String {
    format!("/console/stores/{store_id}/settings")
}

impl SettingsPage {
    fn of(caller: &Caller, store: Store) -> Self {
        Self {
            frame: caller.frame(format!("Settings of {}", store.name)),
            typed: fields_of(&store),
            problem: None,
            deletion_problem: None,
            may_rename: caller.may(Scope::MemoryWrite) && store.archived_at.is_none(),
            may_administer: caller.may(Scope::StoresAdmin),
            may_fork: may_create_stores(caller),
            expiry_rule: expiry_rule(caller, None),
            store,
        }
    }

    /// The form as it was sent.
    fn refused(form: &Form, store: Store, problem: String) -> PageResult {
        let mut again = Self { problem: Some(problem), ..Self::of(form, store) };
        for (name, value) in form.fields.pairs() {
            again.typed.set(name, value.to_owned());
        }
        page_with(StatusCode::BAD_REQUEST, &again)
    }
}

/// The fields of the form with the store's values.
fn fields_of(store: &Store) -> Fields {
    let mut fields = Fields::default();
    fields.add("name", store.name.clone());
    fields.add("description", store.description.clone());
    fields.add("policy", store.policy.name().to_owned());
    fields.add(EXPIRES_DAYS, shown_days(store.expires_unused_after));
    fields.add("records_reads", if store.records_reads { "yes" } else { "no" }.to_owned());
    fields.add("search_mode", store.search_mode.map(SearchMode::name).unwrap_or_default().to_owned());
    fields
}

/// A period in days as the form shows it; other programs may set a part of a day.
fn shown_days(period_secs: Option<u64>) -> String {
    let Some(secs) = period_secs else {
        return String::new();
    };
    let (days, rest) = (secs / 86_400, secs % 86_400);
    let shown = format!("{days}.{:05}", rest * 100_000 / 86_400);
    shown.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// The period in seconds that a form sets. `None`: it changes nothing.
fn period_of(fields: &Fields, store: &Store) -> Result<Option<u64>, Refusal> {
    if let Some(secs) = fields.number(PERIOD)? {
        return Ok(Some(secs));
    }
    match fields.get(EXPIRES_DAYS) {
        Some(typed) if typed.trim() != shown_days(store.expires_unused_after) => {
            Ok(Some(days(fields.number(EXPIRES_DAYS)?)?.unwrap_or_default()))
        }
        _ => Ok(None),
    }
}

pub(super) async fn save(Path(store_id): Path<StoreId>, form: Form) -> PageResult {
    let store = form.engine.stores.get(&form.principal, store_id).await?;
    if is_overtaken(&form.fields, &store) {
        const CHANGED: &str =
            "Somebody changed the same setting after that. The form says what the store has.";
        let shown = SettingsPage { problem: Some(CHANGED.to_owned()), ..SettingsPage::of(&form, store) };
        return page_with(StatusCode::CONFLICT, &shown);
    }
    let saved = match edit_of(&form, &store) {
        Ok(edit) => form.engine.stores.update(&form.principal, store_id, edit, None).await,
        Err(refusal) => return SettingsPage::refused(&form, store, problem_of(refusal)?),
    };
    match saved {
        Ok(after) => match fields_before(&store, &after) {
            fields if fields.is_empty() => done(&href_of(store_id), Done::StoreSaved),
            fields => done_after(&form.token, &href_of(store_id), Done::StoreSaved, fields),
        },
        Err(error) => SettingsPage::refused(&form, store, problem_of(error)?),
    }
}

/// The fields of a form that takes a change back: only where the store still has what the change wrote.
fn fields_before(before: &Store, after: &Store) -> Vec<(String, String)> {
    let mut fields = typed::fields_before(&fields_of(before), &fields_of(after));
    if let Some(field) = fields.iter_mut().find(|(name, _)| name == EXPIRES_DAYS) {
        // More exact than the days.
        *field = (PERIOD.to_owned(), before.expires_unused_after.unwrap_or_default().to_string());
    }
    fields
}

/// Whether the store no longer has what the form says that it replaces.
fn is_overtaken(sent: &Fields, store: &Store) -> bool {
    let differs = |name: &str, has: &str| {
        sent.get(&was(name)).is_some_and(|was| line_ends::typed(was) != line_ends::typed(has))
    };
    fields_of(store).pairs().any(|(name, has)| differs(name, has))
}

/// The change that a form describes; what it has no field for stays.
fn edit_of(form: &Form, store: &Store) -> Result<StoreEdit, Refusal> {
    let fields = &form.fields;
    let may_administer = form.may(Scope::StoresAdmin);
    // Another program may have put spaces around the name: they stay if the person did not change it.
    let named = |typed: &str| {
        let is_same = typed.trim() == store.name.trim();
        if is_same { store.name.clone() } else { typed.trim().to_owned() }
    };
    let described = |typed: &str| {
        let description = line_ends::kept(&store.description, &line_ends::typed(typed));
        if description == store.description { description } else { description.trim().to_owned() }
    };
    // An empty choice is the tenant's mode.
    let chosen_mode = |name: &str| (!name.is_empty()).then(|| name.to_owned());
    Ok(StoreEdit {
        name: fields.get("name").map(named),
        description: fields.get("description").map(described),
        policy: fields.filled("policy").map(str::to_owned).filter(|_| may_administer),
        expires_unused_after: period_of(fields, store)?.filter(|_| may_administer),
        records_reads: fields
            .filled("records_reads")
            .map(|answer| answer == "yes")
            .filter(|_| may_administer),
        search_mode: fields.get("search_mode").filter(|_| may_administer).map(chosen_mode),
        ..StoreEdit::default()
    })
}

pub(super) async fn archive(Path(store_id): Path<StoreId>, form: Form) -> PageResult {
    form.engine.stores.archive(&form.principal, store_id).await?;
    done(&format!("/console/stores/{store_id}/settings"), Done::StoreArchived)
}

pub(super) async fn delete(Path(store_id): Path<StoreId>, form: Form) -> PageResult {
    let store = form.engine.stores.get(&form.principal, store_id).await?;
    let rule = "the name of the store, exactly: nothing was deleted";
    if let deletion_problem @ Some(_) = form.confirmation_problem(&store.name, rule) {
        let again = SettingsPage { deletion_problem, ..SettingsPage::of(&form, store) };
        return page_with(StatusCode::BAD_REQUEST, &again);
    }
    form.engine.stores.delete(&form.principal, store_id).await?;
    done("/console/stores", Done::StoreDeleted)
}
