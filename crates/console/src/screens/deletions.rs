//! The memories of a store that were deleted and can be restored.

use askama::Template;
use keepsake_core::{MemoryPath, StoreId, words};
use keepsake_engine::View;
use keepsake_index::{MemoryDeletion, Store};

use super::memory::href_of;
use super::undo::undo_of;
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
    may_restore_settings: bool,
    pager: Pager,
}

impl DeletionsPage {
    fn is_restorable(&self, deletion: &MemoryDeletion) -> bool {
        let is_setting = deletion.path.as_ref().is_some_and(MemoryPath::is_setting);
        if is_setting { self.may_restore_settings } else { self.may_restore }
    }
}

pub(super) async fn of_store(caller: Caller, Path(store_id): Path<StoreId>) -> PageResult {
    let (engine, principal) = (&caller.engine, &caller.principal);
    let store = engine.stores.get(principal, store_id).await?;
    let asked = caller.query.page(PER_PAGE);
    let found = engine.versions.deletions(principal, store_id, None, &asked).await?;
    let actors = found.items.iter().filter_map(|deletion| deletion.deleted_by.as_ref()).collect();
    let mut frame = caller.frame(format!("Recently deleted in {}", store.name));
    if let Some(made) = caller.notice.as_ref().and_then(|notice| notice.version_id) {
        // If the version cannot be read, the message has no undo button.
        let last = engine.versions.get(principal, store_id, made, View::Basic).await.ok();
        frame.undo = last.and_then(|last| undo_of(&caller, &store, &last));
    }
    page(&DeletionsPage {
        frame,
        people: People::look_up(&caller, actors).await,
        deletions: found.items,
        may_restore: caller.may_write(&store),
        may_restore_settings: caller.may_change(&store, true),
        pager: caller.query.pager(found.next),
        store,
    })
}
