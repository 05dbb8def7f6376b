//! Import and export: the commands that do it, ready to be copied.

use askama::Template;
use axum::Extension;
use axum::extract::State;
use axum::http::HeaderMap;
use keepsake_core::id::StoreKind;
use keepsake_engine::Engine;

use super::keys::url_of;
use super::stores::stores_to_choose;
use crate::frame::{Frame, Tab};
use crate::page::{PageResult, page};
use crate::request::{Caller, Query};
use crate::sign_in::ConsoleOptions;

#[derive(Template)]
#[template(path = "transfer.html")]
struct TransferPage {
    frame: Frame,
    url: String,
    stores: Vec<(String, String, bool)>,
    /// The store that the commands name.
    chosen: String,
    file: String,
}

/// `GET /console/transfer`
pub(super) async fn show(
    State(engine): State<Engine>,
    Extension(options): Extension<ConsoleOptions>,
    headers: HeaderMap,
    caller: Caller,
    Query(fields): Query,
) -> PageResult {
    let stores = stores_to_choose(&engine, &caller, true).await?;
    let chosen = fields
        .id::<StoreKind>("store")?
        .or(stores.first().map(|store| store.store_id));
    let is_chosen = |store_id| Some(store_id) == chosen;
    let name = stores
        .iter()
        .find(|store| is_chosen(store.store_id))
        .map_or("", |store| store.name.as_str());
    let file: String = name
        .chars()
        .map(|letter| {
            if letter.is_ascii_alphanumeric() {
                letter
            } else {
                '-'
            }
        })
        .collect();
    page(&TransferPage {
        frame: caller.frame("Import and export", Tab::Transfer),
        url: url_of(&options, &headers),
        file: format!("{}.tar.zst", file.trim_matches('-').to_ascii_lowercase()),
        stores: stores
            .into_iter()
            .map(|store| (store.store_id.to_string(), store.name, is_chosen(store.store_id)))
            .collect(),
        chosen: chosen.map(|store_id| store_id.to_string()).unwrap_or_default(),
    })
}
