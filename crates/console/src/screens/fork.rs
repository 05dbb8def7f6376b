//! A new store with the memories of another one, as they are or were.

use askama::Template;
use keepsake_core::StoreId;
use keepsake_engine::VersionQuery;
use keepsake_index::Store;

use super::past::{moment_in_words, time_until_now};
use super::stores::may_create_stores;
use super::version::newest_seq;
use crate::frame::Frame;
use crate::page::{PageResult, Refusal, page};
use crate::path::Path;
use crate::request::Caller;

/// The longest name of a store, and what a copy adds to the name.
const MAX_NAME_CHARS: usize = 255;
const OF_COPY: &str = " copy";

#[derive(Template)]
#[template(path = "fork.html")]
struct ForkPage {
    frame: Frame,
    store: Store,
    /// A name for the new store.
    name: String,
    /// The point in words. `None`: the store as it is now.
    when: Option<String>,
    /// The point. `None`: the newest one.
    at_seq: Option<u64>,
    may_create: bool,
    /// Makes the creation idempotent.
    once: String,
}

/// `GET /console/stores/{id}/fork`, or `?at=` for a point of the past
pub(super) async fn show(caller: Caller, Path(store_id): Path<StoreId>) -> PageResult {
    let store = caller.engine.stores.get(&caller.principal, store_id).await?;
    let kept: String = store.name.chars().take(MAX_NAME_CHARS - OF_COPY.len()).collect();
    page(&ForkPage {
        name: kept + OF_COPY,
        frame: caller.frame(format!("Fork {}", store.name)),
        when: moment_in_words(&caller.query, ["at", "at_seq"]),
        at_seq: point_of(&caller, store_id).await?,
        may_create: may_create_stores(&caller),
        once: caller.engine.new_uuid().to_string(),
        store,
    })
}

/// The last change of the chosen day, or the chosen change.
async fn point_of(caller: &Caller, store_id: StoreId) -> Result<Option<u64>, Refusal> {
    let Some(until) = time_until_now(caller, &caller.query, "at")? else {
        return caller.query.number("at_seq");
    };
    let until = VersionQuery { created_to: Some(until), ..VersionQuery::default() };
    Ok(Some(newest_seq(caller, store_id, until).await?))
}
