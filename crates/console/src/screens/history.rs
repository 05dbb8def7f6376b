//! The timeline of a memory or of a store.

use std::collections::{HashMap, HashSet};

use askama::Template;
use keepsake_core::{MemoryId, MemoryPath, StoreId, VersionId};
use keepsake_engine::{PageRequest, ShownVersion, VersionQuery, View};
use keepsake_index::{MemoryDeletion, Operation, Scope, Store};

use super::OfMemory;
use super::choices::{ChoiceField, Choices, actor_in_form, actor_of};
use super::memory::href_of;
use super::undo::undo_of;
use super::version::{VersionRow, last_version, rows_of};
use crate::frame::Frame;
use crate::page::{PageResult, Refusal, page};
use crate::path::Path;
use crate::people::{People, authors};
use crate::request::{Caller, Fields, Pager};
use crate::text::markup::{Markup, encoded, in_text, path};

const PER_PAGE: u64 = 50;

#[derive(Template)]
#[template(path = "history.html")]
struct HistoryPage {
    frame: Frame,
    store: Store,
    heading: Markup,
    /// The address of the history, which the page of a deleted memory shows too.
    href: String,
    memory_href: Option<String>,
    is_live: bool,
    /// How the memory was deleted, if it can be restored.
    deletion: Option<MemoryDeletion>,
    /// The version to restore, by the version that recorded a deletion.
    restorable: HashMap<VersionId, VersionId>,
    /// The versions of the memory that the person may restore.
    own_restorable: HashSet<VersionId>,
    people: People,
    entries: Vec<VersionRow>,
    /// The page that plans to take back the changes that the filter shows. `None`: the person may not.
    undo_href: Option<String>,
    pager: Pager,
    author: ChoiceField,
    query: Fields,
    is_filtered: bool,
}

pub(super) async fn of_store(caller: Caller, Path(store_id): Path<StoreId>) -> PageResult {
    show(caller, store_id, None).await
}

pub(super) async fn of_memory(caller: Caller, Path((store_id, memory_id)): OfMemory) -> PageResult {
    show(caller, store_id, Some(memory_id)).await
}

impl HistoryPage {
    fn is_restorable(&self, version_id: &VersionId) -> bool {
        self.own_restorable.contains(version_id)
    }
}

fn query_of(memory_id: Option<MemoryId>, fields: &Fields) -> Result<VersionQuery, Refusal> {
    let rule = "must be created, modified or deleted";
    Ok(VersionQuery {
        memory_id,
        operation: fields.parsed("operation", |text| Operation::parse(text).ok_or(rule))?,
        actors: fields.filled("actor").map(actor_of).into_iter().collect(),
        includes_imported: false,
        created_from: fields.time("from")?,
        created_to: fields.until("to")?,
        page: fields.page(PER_PAGE),
    })
}

async fn show(mut caller: Caller, store_id: StoreId, memory_id: Option<MemoryId>) -> PageResult {
    let store = caller.engine.stores.get(&caller.principal, store_id).await?;
    let mut choices = Choices::authors(&caller, Some(store_id)).await;
    choices.resolve_author(&mut caller.query, "actor")?;
    caller.query.choose_period(caller.engine.now())?;
    let (principal, fields) = (&caller.principal, &caller.query);
    let query = query_of(memory_id, fields)?;
    let found = caller.engine.versions.list(principal, store_id, &query, View::Basic).await?;
    // A filter, or a later page, may leave out the last version.
    let last = match memory_id {
        Some(memory_id) if is_filtered(fields) || fields.is_on("page") => {
            last_version(&caller, store_id, memory_id).await?
        }
        _ => found.items.first().cloned(),
    };
    if memory_id.is_some() && last.is_none() {
        return Err(Refusal::NotFound("the memory was not found"));
    }
    let mut actors = authors(&found.items);
    choices.add_people(actors.iter().copied());
    actors.extend(authors(&last));
    let people = People::look_up(&caller, actors).await;
    let live = last.as_ref().filter(|last| last.version.operation != Operation::Deleted);
    let live_version = live.map(|last| last.version.version_id);
    let live_path = live.and_then(|last| last.version.path.as_ref());
    let deletion = match &last {
        Some(last) if memory_id.is_some() && live_version.is_none() => deletion_of(&caller, last).await?,
        _ => None,
    };
    let restorable = match query.operation {
        Some(Operation::Deleted) if memory_id.is_none() => restorable(&caller, &store).await?,
        _ => HashMap::new(),
    };
    // The memory's own version is not restored: there is nothing to change.
    let versions = found.items.iter().map(|shown| &shown.version);
    let own = versions.filter(|version| {
        let is_other = version.content.is_some() && Some(version.version_id) != live_version;
        let paths = [live_path, version.path.as_ref()];
        memory_id.is_some() && is_other && paths.iter().all(|path| may_restore(&caller, &store, *path))
    });
    let mut own_restorable: HashSet<_> = own.map(|version| version.version_id).collect();
    let last_deletion = deletion.iter().filter(|found| may_restore(&caller, &store, found.path.as_ref()));
    own_restorable.extend(last_deletion.map(|found| found.memory_version_id));
    let named = found.items.iter().find_map(|shown| shown.version.path.as_ref());
    let heading = match (memory_id, named) {
        (None, _) => Markup::text("History of the store"),
        (Some(_), Some(named)) => path(named.as_str()),
        (Some(_), None) => Markup::text("a redacted memory"),
    };
    let title = named
        .filter(|_| memory_id.is_some())
        .map_or_else(|| store.name.clone(), |named| in_text(named.as_str()));
    let mut frame = caller.frame(format!("History of {title}"));
    let entries = rows_of(&caller, store_id, &found.items, &people, &frame).await?;
    frame.undo = last.and_then(|last| undo_of(&caller, &store, &last));
    let memory_href = memory_id.map(|memory_id| href_of(store_id, memory_id));
    let above = memory_href.clone().unwrap_or_else(|| format!("/console/stores/{store_id}"));
    page(&HistoryPage {
        entries,
        frame,
        undo_href: undo_href(&caller, &store),
        href: format!("{above}/history"),
        memory_href,
        heading,
        is_live: live_version.is_some(),
        deletion,
        restorable,
        own_restorable,
        people,
        store,
        pager: fields.pager(found.next),
        author: choices.field("actor", "Author", "everybody", fields),
        is_filtered: is_filtered(fields),
        query: caller.query,
    })
}

/// The deletion that a version records, if it was the memory's last change and can be undone.
async fn deletion_of(caller: &Caller, newest: &ShownVersion) -> Result<Option<MemoryDeletion>, Refusal> {
    // Of a memory without a path, the versions can be restored one by one.
    let Some(path) = &newest.version.path else {
        return Ok(None);
    };
    let asked = PageRequest { limit: Some(PER_PAGE), page: None };
    let versions = &caller.engine.versions;
    let found = versions.deletions(&caller.principal, newest.store_id, Some(path.as_str()), &asked).await?;
    Ok(found.items.into_iter().find(|deletion| deletion.deletion_version_id == newest.version.version_id))
}

fn may_restore(caller: &Caller, store: &Store, path: Option<&MemoryPath>) -> bool {
    caller.may_change(store, path.is_some_and(MemoryPath::is_setting))
}

/// The last deletions of a store that the person may undo.
async fn restorable(caller: &Caller, store: &Store) -> Result<HashMap<VersionId, VersionId>, Refusal> {
    let asked = PageRequest { limit: Some(PER_PAGE), page: None };
    let found = caller.engine.versions.deletions(&caller.principal, store.store_id, None, &asked).await?;
    let pairs = found.items.into_iter().filter(|found| may_restore(caller, store, found.path.as_ref()));
    Ok(pairs.map(|found| (found.deletion_version_id, found.memory_version_id)).collect())
}

fn is_filtered(fields: &Fields) -> bool {
    ["operation", "actor", "from", "to"].iter().any(|name| fields.is_on(name))
}

/// The page that plans to take back the changes that the filter shows. `None`: the person may not.
fn undo_href(caller: &Caller, store: &Store) -> Option<String> {
    let (query, own) = (&caller.query, actor_in_form(caller.principal.actor()));
    let is_own = query.filled("actor").is_none_or(|actor| actor == own);
    let may = caller.may_write(store) && (is_own || caller.may(Scope::StoresAdmin));
    if !may || query.is_on("operation") {
        return None;
    }
    let chosen = ["actor", "from", "to"].into_iter().filter_map(|name| Some((name, query.filled(name)?)));
    let chosen: Vec<_> = chosen.map(|(name, value)| format!("{name}={}", encoded(value))).collect();
    Some(format!("/console/stores/{}/undo?{}", store.store_id, chosen.join("&")))
}
