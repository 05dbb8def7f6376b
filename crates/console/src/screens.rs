//! The pages of a tenant, one module for each screen.

pub(crate) mod audit;
pub(crate) mod choices;
mod compare;
mod deletions;
mod differences;
mod edit;
mod erasures;
mod fork;
mod history;
pub(crate) mod keys;
mod memory;
pub(crate) mod overview;
mod palette;
mod past;
mod place;
mod readers;
mod search;
mod secret;
mod sessions;
mod settings;
mod store_tests;
mod stores;
mod transfer;
mod tree;
mod undo;
pub(crate) mod usage;
mod version;

use std::sync::Arc;

use axum::Router;
use axum::handler::Handler;
use axum::http::{Method, StatusCode};
use axum::routing::{self, MethodRouter, get};
use keepsake_core::{MemoryId, StoreId, VersionId};
use keepsake_engine::{Engine, Principal};

pub use transfer::{MAX_UPLOAD_BYTES, archive_name};

use crate::page::{no_such_page, see_other};
use crate::path::Path;
use crate::{assets, next, sign_in};

pub use sessions::call_row;

/// A store and a memory of it, in a path.
type OfMemory = Path<(StoreId, MemoryId)>;
type OfVersion = Path<(StoreId, VersionId)>;

pub fn open_routes() -> Router<Engine> {
    Router::new()
        .route("/console/sign-in", get(sign_in::show::<Arc<Principal>>).post(sign_in::sign_in))
        .route("/console/sign-in/once", get(sign_in::once).head(no_head))
        .route("/console/sign-in/issuer", routing::post(sign_in::issuer::start))
        .route("/console/sign-in/callback", get(sign_in::issuer::arrive).head(no_head))
        .route("/console/assets/{file}", get(assets::file))
}

/// Refuses HEAD where GET signs in: software that previews a link must not use it up.
async fn no_head() -> StatusCode {
    StatusCode::METHOD_NOT_ALLOWED
}

/// A router, and a list of its routes, which a router cannot give.
#[derive(Debug, Default)]
pub struct Pages {
    pub router: Router<Engine>,
    /// Method and path of each route.
    pub list: Vec<(Method, String)>,
}

impl Pages {
    #[must_use]
    pub fn get<T: 'static>(self, path: &str, handler: impl Handler<T, Engine>) -> Self {
        self.route(Method::GET, path, routing::get(handler))
    }

    #[must_use]
    fn post<T: 'static>(self, path: &str, handler: impl Handler<T, Engine>) -> Self {
        self.route(Method::POST, path, routing::post(handler))
    }

    fn route(mut self, method: Method, path: &str, handler: MethodRouter<Engine>) -> Self {
        self.list.push((method, path.to_owned()));
        Self { router: self.router.route(path, handler), ..self }
    }
}

/// Actions of a tenant's people that receive a file.
pub fn upload_pages() -> Pages {
    Pages::default().post("/console/transfer", transfer::import)
}

impl Pages {
    /// Puts a middleware around the pages that were added so far.
    #[must_use]
    pub fn wrapped(self, wrap: impl FnOnce(Router<Engine>) -> Router<Engine>) -> Self {
        Self { router: wrap(self.router), ..self }
    }

    /// Adds the search, which waits for a search slot.
    #[must_use]
    pub fn with_search(self) -> Self {
        self.get("/console/search", search::show)
    }

    /// Adds the answers for addresses that no page has. The list does not have them.
    #[must_use]
    pub fn with_unknown(self) -> Self {
        let home = get(async || see_other(next::HOME));
        let router =
            self.router.route("/console/", home).route("/console/{*page}", routing::any(no_such_page));
        Self { router, ..self }
    }
}

/// Pages of a tenant's people, without the search.
pub fn tenant_pages() -> Pages {
    const STORE: &str = "/console/stores/{memory_store_id}";
    const MEMORY: &str = "/console/stores/{memory_store_id}/memories/{memory_id}";
    const VERSION: &str = "/console/stores/{memory_store_id}/versions/{memory_version_id}";
    Pages::default()
        .get("/console", async || see_other(next::HOME))
        .get("/console/overview", overview::show)
        .get("/console/palette", palette::find)
        .post("/console/sign-out", sign_in::sign_out::<Arc<Principal>>)
        .get("/console/stores", stores::list)
        .post("/console/stores", stores::create)
        .get(STORE, tree::show)
        .get(&format!("{STORE}/branch"), place::branch)
        .get(&format!("{STORE}/settings"), settings::show)
        .post(&format!("{STORE}/settings"), settings::save)
        .post(&format!("{STORE}/archive"), settings::archive)
        .post(&format!("{STORE}/delete"), settings::delete)
        .get(&format!("{STORE}/new"), edit::new)
        .post(&format!("{STORE}/new"), edit::create)
        .get(&format!("{STORE}/history"), history::of_store)
        .get(&format!("{STORE}/deleted"), deletions::of_store)
        .get(&format!("{STORE}/diff"), differences::of_store)
        .get(&format!("{STORE}/tests"), store_tests::show)
        .post(&format!("{STORE}/tests"), store_tests::run)
        .get(&format!("{STORE}/fork"), fork::show)
        .get(&format!("{STORE}/undo"), undo::choose)
        .post(&format!("{STORE}/undo"), undo::undo)
        .get(&format!("{STORE}/undo/{{undo_id}}"), undo::progress)
        .post(&format!("{STORE}/undo/{{undo_id}}/cancel"), undo::cancel)
        .get(&format!("{STORE}/restore"), undo::preview_restoration)
        .post(&format!("{STORE}/restore"), undo::restore)
        .get(&format!("{STORE}/compare"), compare::show)
        .get(&format!("{STORE}/usage"), usage::of_store)
        .get(MEMORY, memory::show)
        .get(&format!("{MEMORY}/file"), memory::file)
        .get(&format!("{MEMORY}/edit"), edit::edit)
        .post(&format!("{MEMORY}/edit"), edit::save)
        .post(&format!("{MEMORY}/rename"), edit::rename)
        .post(&format!("{MEMORY}/expiry"), edit::set_expiry)
        .get(&format!("{MEMORY}/delete"), edit::confirm_delete)
        .post(&format!("{MEMORY}/delete"), edit::delete)
        .get(&format!("{MEMORY}/secret"), secret::ask)
        .post(&format!("{MEMORY}/secret"), secret::remove)
        .get(&format!("{MEMORY}/history"), history::of_memory)
        .get(&format!("{MEMORY}/readers"), readers::of_memory)
        .get(VERSION, version::show)
        .get(&format!("{VERSION}/readers"), readers::of_version)
        .post(&format!("{VERSION}/restore"), version::restore)
        .post(&format!("{VERSION}/undo"), undo::undo_version)
        .get(&format!("{VERSION}/redact"), version::preview)
        .post(&format!("{VERSION}/redact"), version::redact)
        .get("/console/sessions", sessions::list)
        .get("/console/sessions/{session_id}", sessions::show)
        .get("/console/sessions/{session_id}/reads", readers::of_session)
        .post("/console/sessions/{session_id}/end", sessions::end)
        .get("/console/usage", usage::of_tenant)
        .get("/console/keys", keys::list)
        .post("/console/keys", keys::create)
        .get("/console/keys/{api_key_id}", keys::show)
        .post("/console/keys/{api_key_id}/revoke", keys::revoke)
        .get("/console/audit", audit::list)
        .get("/console/audit/export", audit::export)
        .get("/console/erasures", erasures::list)
        .post("/console/erasures", erasures::create)
        .get("/console/erasures/preview", erasures::preview)
        .get("/console/erasures/{erasure_id}", erasures::show)
        .get("/console/transfer", transfer::show)
}
