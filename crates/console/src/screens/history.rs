//! The timeline of a memory or of a store.

use askama::Template;
use keepsake_core::actor::ActorKind;
use keepsake_core::{MemoryId, StoreId};
use keepsake_engine::{VersionQuery, View};
use keepsake_index::{Operation, Scope, Store};

use super::OfMemory;
use super::memory::href_of;
use super::version::VersionRow;
use crate::frame::Frame;
use crate::page::{PageResult, Refusal, page};
use crate::path::Path;
use crate::people::People;
use crate::request::{Caller, Fields, Pager};
use crate::text::markup::{self, Markup, path};

const PER_PAGE: u64 = 50;

#[derive(Template)]
#[template(path = "history.html")]
struct HistoryPage {
    frame: Frame,
    store: Store,
    heading: Markup,
    memory_href: Option<String>,
    is_live: bool,
    entries: Vec<VersionRow>,
    may_write: bool,
    pager: Pager,
    query: Fields,
    is_filtered: bool,
}

/// `GET /console/stores/{id}/history`
pub(super) async fn of_store(caller: Caller, Path(store_id): Path<StoreId>) -> PageResult {
    show(caller, store_id, None).await
}

/// `GET /console/stores/{id}/memories/{id}/history`
pub(super) async fn of_memory(caller: Caller, Path((store_id, memory_id)): OfMemory) -> PageResult {
    show(caller, store_id, Some(memory_id)).await
}

fn query_of(memory_id: Option<MemoryId>, fields: &Fields) -> Result<VersionQuery, Refusal> {
    Ok(VersionQuery {
        memory_id,
        operation: fields.filled("operation").and_then(Operation::parse),
        actors: fields.filled("actor").map(actor_of).into_iter().collect(),
        includes_imported: false,
        created_from: fields.time("from")?,
        created_to: fields.until("to")?,
        page: fields.page(PER_PAGE),
    })
}

/// An id tells the kind of an actor; another text is the subject of a token.
fn actor_of(text: &str) -> (ActorKind, String) {
    let kind = if text.starts_with("apikey_") {
        ActorKind::ApiKey
    } else if text.starts_with("sesn_") {
        ActorKind::Session
    } else {
        ActorKind::User
    };
    (kind, text.to_owned())
}

async fn show(caller: Caller, store_id: StoreId, memory_id: Option<MemoryId>) -> PageResult {
    let (principal, fields) = (&caller.principal, &caller.query);
    let store = caller.engine.stores.get(principal, store_id).await?;
    let query = query_of(memory_id, fields)?;
    let found = caller.engine.versions.list(principal, store_id, &query, View::Basic).await?;
    if memory_id.is_some() && found.items.is_empty() && !is_filtered(fields) && !fields.is_on("page") {
        return Err(Refusal::NotFound("the memory was not found"));
    }
    let people = People::look_up(&caller).await;
    let newest = found.items.first();
    let is_live = newest.is_some_and(|newest| newest.version.operation != Operation::Deleted);
    let named = found.items.iter().find_map(|shown| shown.version.path.as_ref());
    let heading = match (memory_id, named) {
        (None, _) => Markup::text("History of the store"),
        (Some(_), Some(named)) => path(named.as_str()),
        (Some(_), None) => Markup::text("a redacted memory"),
    };
    let title = named.filter(|_| memory_id.is_some()).map_or(store.name.as_str(), |named| named.as_str());
    let frame = caller.frame(format!("History of {title}"));
    page(&HistoryPage {
        entries: found.items.iter().map(|shown| VersionRow::of(shown, &people, &frame)).collect(),
        frame,
        may_write: caller.may_write(&store) && caller.may(Scope::MemoryRead),
        memory_href: memory_id.map(|memory_id| href_of(store_id, memory_id)),
        heading,
        is_live,
        store,
        pager: fields.pager(found.next),
        is_filtered: is_filtered(fields),
        query: caller.query,
    })
}

fn is_filtered(fields: &Fields) -> bool {
    ["operation", "actor", "from", "to"].iter().any(|name| fields.is_on(name))
}
