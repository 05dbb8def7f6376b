//! Import and export: an archive to save or to send, and the commands for more.

use askama::Template;
use axum::Extension;
use axum::http::HeaderMap;
use keepsake_core::id::StoreKind;
use keepsake_core::{StoreId, words};
use keepsake_index::{Scope, Store};

use super::import::MAX_UPLOAD_BYTES;
use super::keys::url_of;
use super::stores::{may_create_stores, stores_to_choose};
use crate::frame::Frame;
use crate::page::{PageResult, page};
use crate::request::Caller;
use crate::sign_in::ConsoleOptions;

#[derive(Template)]
#[template(path = "transfer.html")]
struct TransferPage {
    frame: Frame,
    url: String,
    stores: Vec<Store>,
    /// The store that the commands name. `None`: there is no store.
    chosen: Option<StoreId>,
    file: String,
    may_import: bool,
    may_create: bool,
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
    Extension(options): Extension<ConsoleOptions>,
    headers: HeaderMap,
    caller: Caller,
) -> PageResult {
    let mut stores = stores_to_choose(&caller, true).await?;
    let chosen = caller.query.id::<StoreKind>("store")?.or(stores.first().map(|store| store.store_id));
    if let Some(store_id) = chosen
        && !stores.iter().any(|store| store.store_id == store_id)
    {
        stores.insert(0, caller.engine.stores.get(&caller.principal, store_id).await?);
    }
    let name = stores.iter().find(|store| Some(store.store_id) == chosen).map(|store| store.name.as_str());
    page(&TransferPage {
        frame: caller.frame("Import and export"),
        url: url_of(&options, &headers),
        file: archive_name(name.unwrap_or_default()),
        may_import: caller.may(Scope::MemoryRead) && caller.may(Scope::MemoryWrite),
        may_create: may_create_stores(&caller),
        once: caller.engine.new_uuid().to_string(),
        stores,
        chosen,
    })
}
