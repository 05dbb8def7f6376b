//! The memories of a store that were deleted and can be restored.

use askama::Template;
use keepsake_core::{StoreId, words};
use keepsake_engine::MemoryDeletion;
use keepsake_index::{Scope, Store};

use super::memory::href_of;
use crate::frame::Frame;
use crate::page::{PageResult, page};
use crate::path::Path;
use crate::people::People;
use crate::request::{Caller, Pager};
use crate::text::markup;

/// The most that one call of the engine returns.
const PER_PAGE: u64 = 100;

#[derive(Template)]
#[template(path = "deletions.html")]
struct DeletionsPage {
    frame: Frame,
    store: Store,
    deletions: Vec<MemoryDeletion>,
    people: People,
    may_restore: bool,
    pager: Pager,
}

pub(super) async fn of_store(caller: Caller, Path(store_id): Path<StoreId>) -> PageResult {
    let (engine, principal) = (&caller.engine, &caller.principal);
    let store = engine.stores.get(principal, store_id).await?;
    let asked = caller.query.page(PER_PAGE);
    let found = engine.versions.deletions(principal, store_id, None, &asked).await?;
    let actors = found.items.iter().filter_map(|deletion| deletion.deleted_by.as_ref()).collect();
    page(&DeletionsPage {
        frame: caller.frame(format!("Recently deleted in {}", store.name)),
        people: People::look_up(&caller, actors).await,
        deletions: found.items,
        may_restore: caller.may_write(&store) && caller.may(Scope::MemoryRead),
        pager: caller.query.pager(found.next),
        store,
    })
}
