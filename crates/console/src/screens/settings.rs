//! The settings of a store, its archiving and its deletion.

use askama::Template;
use axum::extract::Path;
use keepsake_core::words;
use keepsake_engine::StoreEdit;
use keepsake_index::Scope;

use super::stores::{days, pairs};
use super::tree::StoreHead;
use crate::frame::{Done, Frame, Tab};
use crate::page::{PageResult, Refusal, done, page};
use crate::request::{Caller, Form, InStore};
use crate::text::line_ends;
use crate::text::markup::{Markup, time, time_or};

#[derive(Template)]
#[template(path = "settings.html")]
struct SettingsPage {
    frame: Frame,
    store: StoreHead,
    description: String,
    policy: &'static str,
    expires_days: String,
    memories: String,
    size: String,
    created: Markup,
    changed: Markup,
    metadata: Vec<(String, String)>,
    may_rename: bool,
    may_administer: bool,
}

/// `GET /console/stores/{id}/settings`
pub(super) async fn show(caller: Caller, Path(store_id): InStore) -> PageResult {
    let store = caller.engine.stores.get(&caller.principal, store_id.0).await?;
    let now = caller.engine.now();
    page(&SettingsPage {
        frame: caller.frame(format!("Settings of {}", store.name), Tab::Stores),
        store: StoreHead::of(&store),
        policy: store.policy.name(),
        expires_days: shown_days(store.expires_unused_after),
        memories: words::count(store.memory_count),
        size: words::bytes(store.live_bytes),
        created: time(store.created_at, now),
        changed: time_or(store.last_version_at, now, "never"),
        metadata: pairs(&store.metadata),
        may_rename: caller.may(Scope::MemoryWrite) && store.archived_at.is_none(),
        may_administer: caller.may(Scope::StoresAdmin),
        description: store.description,
    })
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

/// `POST /console/stores/{id}/settings`
pub(super) async fn save(Path(store_id): InStore, form: Form) -> PageResult {
    let fields = &form.fields;
    let may_administer = form.caller.may(Scope::StoresAdmin);
    let store = form.caller.engine.stores.get(&form.caller.principal, store_id.0).await?;
    let description = line_ends::kept(&store.description, &line_ends::typed(fields.text("description")));
    let is_same = description == store.description;
    let edit = StoreEdit {
        name: Some(fields.text("name").trim().to_owned()),
        description: Some(if is_same { description } else { description.trim().to_owned() }),
        policy: fields.filled("policy").map(str::to_owned).filter(|_| may_administer),
        expires_unused_after: if may_administer
            && fields.text("expires_days").trim() != shown_days(store.expires_unused_after)
        {
            Some(days(fields.number("expires_days")?)?.unwrap_or_default())
        } else {
            None
        },
        ..StoreEdit::default()
    };
    form.caller.engine.stores.update(&form.caller.principal, store_id.0, edit, None).await?;
    done(&format!("/console/stores/{}/settings", store_id.0), Done::StoreSaved)
}

/// `POST /console/stores/{id}/archive`
pub(super) async fn archive(Path(store_id): InStore, form: Form) -> PageResult {
    form.caller.engine.stores.archive(&form.caller.principal, store_id.0).await?;
    done(&format!("/console/stores/{}/settings", store_id.0), Done::StoreArchived)
}

/// `POST /console/stores/{id}/delete`
pub(super) async fn delete(Path(store_id): InStore, form: Form) -> PageResult {
    let principal = &form.caller.principal;
    let store = form.caller.engine.stores.get(principal, store_id.0).await?;
    if form.fields.text("confirm").trim() != store.name.trim() {
        let rule = "`confirm` must be the name of the store, exactly: nothing was deleted";
        return Err(Refusal::Invalid(rule.to_owned()));
    }
    form.caller.engine.stores.delete(principal, store_id.0).await?;
    done("/console/stores", Done::StoreDeleted)
}
