//! The timeline of a memory or of a store.

use askama::Template;
use axum::extract::{Path, State};
use keepsake_core::actor::ActorKind;
use keepsake_core::{MemoryId, StoreId, Timestamp, words};
use keepsake_engine::{Engine, ShownVersion, VersionQuery, View};
use keepsake_index::{Operation, Scope};

use super::tree::StoreHead;
use crate::frame::{Frame, Tab};
use crate::page::{PageResult, Refusal, page};
use crate::people::People;
use crate::request::{Caller, Fields, InStore, OfMemory, Pager, Query};
use crate::text::markup::{Markup, id_link, path, time};

const PER_PAGE: u64 = 50;

struct Entry {
    version_id: String,
    version: Markup,
    href: String,
    /// Page that compares this version with the version before.
    compare: String,
    memory_href: String,
    operation: &'static str,
    path: Markup,
    by: Markup,
    at: Markup,
    size: String,
    is_redacted: bool,
    has_content: bool,
    may_restore: bool,
}

impl Entry {
    fn of(base: &str, shown: &ShownVersion, people: &People, now: Timestamp, may_write: bool) -> Self {
        let version = &shown.version;
        let (full, has_content) = (version.version_id.to_string(), version.content.is_some());
        Self {
            href: format!("{base}/versions/{full}"),
            version: id_link(&full, &format!("{base}/versions/{full}")),
            compare: format!("{base}/compare?to={full}"),
            memory_href: format!("{base}/memories/{}/history", version.memory_id),
            operation: version.operation.name(),
            path: version.path.as_ref().map_or_else(
                || Markup::trusted("<span class=\"none\">redacted</span>".to_owned()),
                |at| path(at.as_str()),
            ),
            by: people.show(version.created_by.as_ref()),
            at: time(version.created_at, now),
            size: version.content.map_or_else(String::new, |content| words::bytes(content.size_bytes)),
            is_redacted: version.redacted_at.is_some(),
            may_restore: may_write && has_content,
            has_content,
            version_id: full,
        }
    }
}

#[derive(Template)]
#[template(path = "history.html")]
struct HistoryPage {
    frame: Frame,
    store: StoreHead,
    heading: Markup,
    memory_href: Option<String>,
    is_live: bool,
    entries: Vec<Entry>,
    pager: Pager,
    operation: String,
    actor: String,
    from: String,
    to: String,
    is_filtered: bool,
}

/// `GET /console/stores/{id}/history`
pub(super) async fn of_store(
    State(engine): State<Engine>,
    caller: Caller,
    Path(store_id): InStore,
    Query(fields): Query,
) -> PageResult {
    show(&engine, &caller, store_id.0, None, &fields).await
}

/// `GET /console/stores/{id}/memories/{id}/history`
pub(super) async fn of_memory(
    State(engine): State<Engine>,
    caller: Caller,
    Path((store_id, memory_id)): OfMemory,
    Query(fields): Query,
) -> PageResult {
    show(&engine, &caller, store_id.0, Some(memory_id.0), &fields).await
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

async fn show(
    engine: &Engine,
    caller: &Caller,
    store_id: StoreId,
    memory_id: Option<MemoryId>,
    fields: &Fields,
) -> PageResult {
    let principal = &caller.principal;
    let store = engine.stores.get(principal, store_id).await?;
    let query = query_of(memory_id, fields)?;
    let found = engine.versions.list(principal, store_id, &query, View::Basic).await?;
    if memory_id.is_some() && found.items.is_empty() && !is_filtered(fields) && !fields.is_on("page") {
        return Err(Refusal::NotFound("the memory was not found"));
    }
    let people = People::look_up(engine, caller).await;
    let (head, now) = (StoreHead::of(&store), engine.now());
    let may_write = caller.may_write(store_id) && caller.may(Scope::MemoryRead) && !head.is_archived;
    let newest = found.items.first();
    let is_live = newest.is_some_and(|newest| newest.version.operation != Operation::Deleted);
    let named = found.items.iter().find_map(|shown| shown.version.path.as_ref());
    let heading = match (memory_id, named) {
        (None, _) => Markup::text("History of the store"),
        (Some(_), Some(named)) => path(named.as_str()),
        (Some(_), None) => Markup::text("a redacted memory"),
    };
    let title = named.filter(|_| memory_id.is_some()).map_or(store.name.as_str(), |named| named.as_str());
    page(&HistoryPage {
        frame: caller.frame(format!("History of {title}"), Tab::Stores),
        entries: found
            .items
            .iter()
            .map(|shown| Entry::of(&head.base, shown, &people, now, may_write))
            .collect(),
        memory_href: memory_id.map(|memory_id| format!("{}/memories/{memory_id}", head.base)),
        heading,
        is_live,
        store: head,
        pager: fields.pager(found.next),
        operation: fields.text("operation").to_owned(),
        actor: fields.text("actor").to_owned(),
        from: fields.text("from").to_owned(),
        to: fields.text("to").to_owned(),
        is_filtered: is_filtered(fields),
    })
}

fn is_filtered(fields: &Fields) -> bool {
    ["operation", "actor", "from", "to"].iter().any(|name| fields.is_on(name))
}
