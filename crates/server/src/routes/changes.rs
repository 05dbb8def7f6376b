//! `/v1/memory_stores/{memory_store_id}/changes`: what changed, as a list and as a stream.

use std::sync::Arc;

use axum::response::Response;
use axum::response::sse::Event;
use keepsake_core::StoreId;
use keepsake_engine::{ChangePlace, Engine, EngineError, FollowedStore, Principal, StoreChanges};
use serde::Serialize;

use crate::answer::{Answer, Json};
use crate::auth::Caller;
use crate::error::ApiError;
use crate::path::Path;
use crate::query::{QueryParams, query_params};
use crate::schemas::HistoryRemovedType;
use crate::streams::{ReadyEvents, Source, Subscription};

const CHANGE: &str = "memory_change";
const HISTORY_REMOVED: &str = "history_removed";

/// Changes are missing because they were removed from the history.
#[derive(Debug, Serialize)]
struct HistoryRemoved {
    r#type: HistoryRemovedType,
    next_after: ChangePlace,
}

query_params! {
    /// The place in a store's changes.
    After {
        /// The `next_after` of the last known page or the id of the last known event, or 0.
        /// A list begins with the first change by default, a stream with the next one.
        after: Option<ChangePlace> = word(
            "after",
            |text| text.parse().ok(),
            "0, the `next_after` of a page, or the id of an event of this store"
        ),
    }
}

query_params! {
    /// The size of a page of changes.
    ChangesPage {
        /// Changes per page; 20 by default.
        #[param(minimum = 1, maximum = 1000)]
        limit: Option<u64> = number("limit", "1 to 1000"),
    }
}

/// List the changes of a memory store
///
/// What changed after a place, in the order of the commits: each version once, without
/// its content.
#[utoipa::path(
    get,
    path = "/memory_stores/{memory_store_id}/changes",
    operation_id = "memory_stores.changes.list",
    params(After, ChangesPage),
    responses((status = 200, description = "A page of changes.", body = StoreChanges)),
)]
pub(crate) async fn list(
    Caller(engine, principal): Caller,
    Path(store_id): Path<StoreId>,
    QueryParams((after, page)): QueryParams<(After, ChangesPage)>,
) -> Answer<StoreChanges> {
    let after = after.after.unwrap_or(ChangePlace::START);
    Ok(Json(engine.changes.list(&principal, store_id, after, page.limit).await?))
}

/// Follow the changes of a memory store
///
/// Server-sent events `memory_change`: each change after a place, within about a second
/// of its commit on any replica. The id of an event is its place: with `last-event-id` or
/// `after` a stream continues behind it. An event `history_removed` says that changes
/// are missing because they were removed: list all memories. A comment is sent
/// every 15 seconds. The stream ends with its credential, its store or its server, with
/// an event `error` that says why.
#[utoipa::path(
    get,
    path = "/memory_stores/{memory_store_id}/changes/stream",
    operation_id = "memory_stores.changes.stream",
    params(After),
    responses((
        status = 200,
        description = "The changes, each with a `MemoryChange` as its data.",
        body = String,
        content_type = "text/event-stream",
    )),
)]
pub(crate) async fn stream(
    Caller(engine, principal): Caller,
    Path(store_id): Path<StoreId>,
    QueryParams(after): QueryParams<After>,
    subscription: Subscription,
) -> Result<Response, ApiError> {
    let last = subscription.place(|text| text.parse().ok())?;
    let newest = engine.changes.newest(&principal, store_id).await?;
    let source = StoreSource {
        after: last.or(after.after).unwrap_or(newest),
        followed: engine.changes.follow(&principal, store_id)?,
    };
    Ok(subscription.answer(engine, source))
}

struct StoreSource {
    followed: FollowedStore,
    /// The last change that was read.
    after: ChangePlace,
}

impl Source for StoreSource {
    async fn read(
        &mut self,
        engine: &Engine,
        principal: &Arc<Principal>,
    ) -> Result<Option<ReadyEvents>, EngineError> {
        let changes = &engine.changes;
        let found = changes.next(principal, &mut self.followed, self.after).await?;
        self.after = found.next_after;
        let is_news = found.is_history_removed || !found.changes.is_empty();
        Ok(is_news.then(|| Box::new(sent(found)) as ReadyEvents))
    }

    async fn changed(&mut self) {
        self.followed.changed().await;
    }
}

fn sent(found: StoreChanges) -> impl Iterator<Item = Event> {
    let removed = found.is_history_removed.then(|| {
        let event = HistoryRemoved { r#type: HistoryRemovedType, next_after: found.next_after };
        let event = Event::default().event(HISTORY_REMOVED).json_data(event).ok()?;
        // No id before changes: a client that loses these changes then requests them again.
        let is_all = found.changes.is_empty();
        Some(if is_all { event.id(found.next_after.to_string()) } else { event })
    });
    let changes = (0..found.changes.len()).filter_map(move |n| {
        let version = found.changes.get(n)?;
        let place = found.place_after(version);
        let event = Event::default().event(CHANGE).id(place.to_string());
        event.json_data(version).ok()
    });
    removed.flatten().into_iter().chain(changes)
}
