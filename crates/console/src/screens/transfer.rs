//! Import and export: an archive to save or to send, and the commands for more.

use askama::Template;
use axum::Extension;
use axum::extract::State;
use axum::http::HeaderMap;
use keepsake_core::id::StoreKind;
use keepsake_engine::Engine;
use keepsake_index::Scope;

use super::import::MAX_UPLOAD_BYTES;
use super::keys::url_of;
use super::stores::{may_create_stores, stores_to_choose};
use crate::frame::{Frame, Tab};
use crate::page::{PageResult, page};
use crate::request::{Caller, Query};
use crate::sign_in::ConsoleOptions;

struct Choice {
    id: String,
    name: String,
    is_chosen: bool,
    is_archived: bool,
}

#[derive(Template)]
#[template(path = "transfer.html")]
struct TransferPage {
    frame: Frame,
    url: String,
    stores: Vec<Choice>,
    /// The store that the commands name.
    chosen: String,
    file: String,
    may_import: bool,
    may_create: bool,
    max_upload: String,
    once: String,
}

/// File name of a store's archive.
pub fn archive_name(store: &str) -> String {
    let letter_or_dash = |letter: char| {
        if letter.is_ascii_alphanumeric() { letter } else { '-' }
    };
    let name: String = store.chars().map(letter_or_dash).collect();
    let name = name.trim_matches('-').to_ascii_lowercase();
    let name = if name.is_empty() { "memories" } else { &name };
    format!("{name}.tar.zst")
}

/// `GET /console/transfer`
pub(super) async fn show(
    State(engine): State<Engine>,
    Extension(options): Extension<ConsoleOptions>,
    headers: HeaderMap,
    caller: Caller,
    Query(fields): Query,
) -> PageResult {
    let mut stores = stores_to_choose(&caller, true).await?;
    let chosen = fields.id::<StoreKind>("store")?.or(stores.first().map(|store| store.store_id));
    if let Some(store_id) = chosen
        && !stores.iter().any(|store| store.store_id == store_id)
    {
        stores.insert(0, engine.stores.get(&caller.principal, store_id).await?);
    }
    let is_chosen = |store_id| Some(store_id) == chosen;
    let name = stores.iter().find(|store| is_chosen(store.store_id)).map_or("", |store| store.name.as_str());
    page(&TransferPage {
        frame: caller.frame("Import and export", Tab::Transfer),
        url: url_of(&options, &headers),
        file: archive_name(name),
        may_import: caller.may(Scope::MemoryRead) && caller.may(Scope::MemoryWrite),
        may_create: may_create_stores(&caller),
        max_upload: keepsake_core::words::bytes(MAX_UPLOAD_BYTES),
        once: engine.new_uuid().to_string(),
        stores: stores
            .into_iter()
            .map(|store| Choice {
                id: store.store_id.to_string(),
                is_chosen: is_chosen(store.store_id),
                is_archived: store.archived_at.is_some(),
                name: store.name,
            })
            .collect(),
        chosen: chosen.map(|store_id| store_id.to_string()).unwrap_or_default(),
    })
}
