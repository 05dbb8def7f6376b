//! The tree of a store: one directory, a page at a time.

use std::collections::HashMap;

use askama::Template;
use keepsake_core::{MemoryPath, StoreId, Timestamp, words};
use keepsake_engine::{MemoryQuery, PageRequest, ShownItem, View};
use keepsake_index::{DirectorySummary, Store, StoreOriginStatus};

use super::memory::href_of;
use super::past::{self, Then, today};
use super::place::{self, Branch, entries_of};
use super::version::VersionRow;
use crate::frame::Frame;
use crate::page::{PageResult, Refusal, page, see_other};
use crate::path::Path;
use crate::request::{Caller, Pager};
use crate::text::markup::{self, Markup, encoded, in_text, parts};

/// The most that one call of the engine returns.
const PER_PAGE: u64 = 100;

/// A part of a path, with a link to its directory.
pub(super) struct Crumb {
    pub(super) name: Markup,
    pub(super) href: String,
}

/// `directory` begins with `/`.
pub(super) fn crumbs(store: &Store, directory: &str) -> Vec<Crumb> {
    let mut below = String::from("/");
    let names = directory.split('/').filter(|name| !name.is_empty());
    let found = names.map(|name| {
        below.push_str(name);
        below.push('/');
        Crumb { name: parts(name), href: directory_href(store.store_id, &below) }
    });
    found.collect()
}

/// The address of a directory's page.
pub(super) fn directory_href(store_id: StoreId, path: &str) -> String {
    format!("/console/stores/{store_id}?path={}", encoded(path))
}

#[derive(Template)]
#[template(path = "tree.html")]
struct TreePage {
    frame: Frame,
    store: Store,
    directory: String,
    crumbs: Vec<Crumb>,
    items: Vec<ShownItem>,
    /// Of the directories among the items.
    summaries: HashMap<String, DirectorySummary>,
    /// `None`: the page shows the root, whose entries are the tree.
    tree: Option<Branch>,
    /// Memories below the directory, and their bytes.
    memories: u64,
    size_bytes: u64,
    /// When the directory last changed.
    changed_at: Option<Timestamp>,
    recent: Vec<VersionRow>,
    pager: Pager,
    may_write: bool,
    /// The store of which this one is a fork.
    origin_store: Option<Markup>,
}

/// `GET /console/stores/{id}?path=`, or `?path=&at=` for the past
pub(super) async fn show(caller: Caller, Path(store_id): Path<StoreId>) -> PageResult {
    let principal = &caller.principal;
    let directory = caller.query.filled("path").unwrap_or("/").to_owned();
    let store = caller.engine.stores.get(principal, store_id).await?;
    if let Some(then) = Then::of(&caller)? {
        return past::tree(caller, store, directory, then).await;
    }
    if !directory.ends_with('/') {
        return file_at(&caller, store_id, directory).await;
    }
    let query = entries_of(&directory, caller.query.page(PER_PAGE));
    let found = caller.engine.memories.list(principal, store_id, &query, View::Basic).await?;
    let paths = place::directories_in(found.items.iter());
    let summaries = place::summaries_of(&caller, store_id, &paths).await?;
    let (tree, memories, size_bytes, changed_at) = if directory == "/" {
        (None, store.memory_count, store.live_bytes, store.last_version_at)
    } else {
        let own = caller.engine.memories.directories(principal, store_id, &[&directory]).await?;
        let (memories, size_bytes, changed_at) =
            own.first().map_or((0, 0, None), |own| (own.files, own.size_bytes, own.changed_at));
        (Some(place::tree(&caller, store_id, &directory).await?), memories, size_bytes, changed_at)
    };
    let origin_store = match &store.forked_from {
        Some(origin) => {
            // It may be deleted.
            let found = caller.engine.stores.get(principal, origin.memory_store_id).await.ok();
            let name = found.as_ref().map(|found| found.name.as_str());
            Some(markup::store_named(origin.memory_store_id, name))
        }
        None => None,
    };
    let own_path = MemoryPath::parse(directory.trim_end_matches('/'));
    let is_of_settings = own_path.is_ok_and(|path| path.is_setting());
    let frame = caller.frame(format!("{} in {}", in_text(&directory), store.name));
    page(&TreePage {
        origin_store,
        recent: place::recent(&caller, store_id, None, &frame).await?.0,
        frame,
        items: found.items,
        summaries,
        tree,
        memories,
        size_bytes,
        changed_at,
        crumbs: crumbs(&store, &directory),
        pager: caller.query.pager(found.next),
        may_write: caller.may_change(&store, is_of_settings),
        store,
        directory,
    })
}

/// Redirects to the memory or the directory at a path, or to the last memory that was deleted there.
async fn file_at(caller: &Caller, store_id: StoreId, path: String) -> PageResult {
    let query = MemoryQuery { path: Some(path.clone()), ..MemoryQuery::default() };
    let found = caller.engine.memories.list(&caller.principal, store_id, &query, View::Basic).await?;
    if let Some(ShownItem::Memory(shown)) = found.items.first() {
        return Ok(see_other(&href_of(store_id, shown.memory.head.memory_id)));
    }
    let directory = format!("{path}/");
    if !place::summaries_of(caller, store_id, &[&directory]).await?.is_empty() {
        return Ok(see_other(&directory_href(store_id, &directory)));
    }
    let (versions, last) = (&caller.engine.versions, PageRequest { limit: Some(1), page: None });
    let deleted = versions.deletions(&caller.principal, store_id, Some(&path), &last).await?.items;
    let last = deleted.first().ok_or(Refusal::NotFound("there is no memory at this path"))?;
    Ok(see_other(&href_of(store_id, last.memory_id)))
}
