//! The pages of a tenant, one module for each screen.

mod audit;
mod compare;
mod edit;
mod erasures;
mod history;
mod keys;
mod memory;
mod search;
mod sessions;
mod settings;
mod stores;
mod transfer;
mod tree;
mod usage;
mod version;

use axum::Router;
use axum::routing::{get, post};
use keepsake_engine::Engine;

use crate::page::see_other;
use crate::{assets, next, sign_in};

/// The pages that need no sign-in.
pub fn open_routes() -> Router<Engine> {
    Router::new()
        .route("/console/sign-in", get(sign_in::show).post(sign_in::sign_in))
        .route("/console/sign-in/once", get(sign_in::once))
        .route("/console/assets/{file}", get(assets::file))
}

/// The pages of people of a tenant.
pub fn tenant_routes() -> Router<Engine> {
    const STORE: &str = "/console/stores/{memory_store_id}";
    const MEMORY: &str = "/console/stores/{memory_store_id}/memories/{memory_id}";
    const VERSION: &str = "/console/stores/{memory_store_id}/versions/{memory_version_id}";
    Router::new()
        .route("/console", get(async || see_other(next::HOME)))
        .route("/console/sign-out", post(sign_in::sign_out))
        .route("/console/stores", get(stores::list).post(stores::create))
        .route(STORE, get(tree::show))
        .route(
            &format!("{STORE}/settings"),
            get(settings::show).post(settings::save),
        )
        .route(&format!("{STORE}/archive"), post(settings::archive))
        .route(&format!("{STORE}/delete"), post(settings::delete))
        .route(&format!("{STORE}/new"), get(edit::new).post(edit::create))
        .route(&format!("{STORE}/history"), get(history::of_store))
        .route(&format!("{STORE}/compare"), get(compare::show))
        .route(&format!("{STORE}/usage"), get(usage::of_store))
        .route(MEMORY, get(memory::show))
        .route(&format!("{MEMORY}/file"), get(memory::file))
        .route(&format!("{MEMORY}/edit"), get(edit::edit).post(edit::save))
        .route(&format!("{MEMORY}/rename"), post(edit::rename))
        .route(&format!("{MEMORY}/expiry"), post(edit::set_expiry))
        .route(
            &format!("{MEMORY}/delete"),
            get(edit::confirm_delete).post(edit::delete),
        )
        .route(&format!("{MEMORY}/history"), get(history::of_memory))
        .route(VERSION, get(version::show))
        .route(&format!("{VERSION}/restore"), post(version::restore))
        .route(
            &format!("{VERSION}/redact"),
            get(version::preview).post(version::redact),
        )
        .route("/console/search", get(search::show))
        .route("/console/sessions", get(sessions::list))
        .route("/console/sessions/{session_id}", get(sessions::show))
        .route("/console/sessions/{session_id}/end", post(sessions::end))
        .route("/console/usage", get(usage::of_tenant))
        .route("/console/keys", get(keys::list).post(keys::create))
        .route("/console/keys/{api_key_id}", get(keys::show))
        .route("/console/keys/{api_key_id}/revoke", post(keys::revoke))
        .route("/console/audit", get(audit::list))
        .route("/console/audit/export", get(audit::export))
        .route("/console/erasures", get(erasures::list).post(erasures::create))
        .route("/console/erasures/preview", get(erasures::preview))
        .route("/console/erasures/{erasure_id}", get(erasures::show))
        .route("/console/transfer", get(transfer::show))
}
