//! The tree of a store: one directory, a page at a time.

use askama::Template;
use axum::extract::Path;
use keepsake_core::{Timestamp, words};
use keepsake_engine::{MemoryQuery, ShownItem, ShownMemory, View};
use keepsake_index::Store;

use crate::frame::{Frame, Tab};
use crate::page::{PageResult, Refusal, page, see_other};
use crate::request::{Caller, InStore, Pager};
use crate::text::markup::{Markup, encoded, id, push_visible, time, time_or};

/// The most that one call of the engine returns.
const PER_PAGE: u64 = 100;

/// The head of a store's pages.
pub(super) struct StoreHead {
    pub(super) name: String,
    pub(super) base: String,
    pub(super) id: Markup,
    pub(super) is_archived: bool,
}

impl StoreHead {
    pub(super) fn of(store: &Store) -> Self {
        Self {
            name: store.name.clone(),
            base: format!("/console/stores/{}", store.store_id),
            id: id(&store.store_id.to_string()),
            is_archived: store.archived_at.is_some(),
        }
    }
}

/// A part of a path, with a link to its directory.
pub(super) struct Crumb {
    pub(super) name: Markup,
    pub(super) href: String,
}

/// `directory` begins with `/`.
pub(super) fn crumbs(base: &str, directory: &str) -> Vec<Crumb> {
    let mut below = String::from("/");
    let names = directory.split('/').filter(|name| !name.is_empty());
    let parts = names.map(|name| {
        below.push_str(name);
        below.push('/');
        Crumb { name: visible(name), href: format!("{base}?path={}", encoded(&below)) }
    });
    parts.collect()
}

/// A text in which codes replace deceptive characters.
pub(super) fn visible(text: &str) -> Markup {
    let mut html = String::new();
    push_visible(&mut html, text);
    Markup::trusted(html)
}

struct Entry {
    name: Markup,
    href: String,
    is_directory: bool,
    size: String,
    changed: Markup,
    read: Markup,
    expires: Markup,
    is_pinned: bool,
}

impl Entry {
    fn directory(base: &str, path: &str) -> Self {
        Self {
            name: visible(path.trim_end_matches('/').rsplit('/').next().unwrap_or_default()),
            href: format!("{base}?path={}", encoded(path)),
            is_directory: true,
            size: String::new(),
            changed: Markup::default(),
            read: Markup::default(),
            expires: Markup::default(),
            is_pinned: false,
        }
    }

    fn memory(base: &str, shown: &ShownMemory, now: Timestamp) -> Self {
        let memory = &shown.memory;
        let path = memory.head.path.as_str();
        Self {
            name: visible(path.rsplit('/').next().unwrap_or_default()),
            href: format!("{base}/memories/{}", memory.head.memory_id),
            is_directory: false,
            size: words::bytes(memory.head.content.size_bytes),
            changed: time(memory.updated_at, now),
            read: time_or(shown.last_accessed_at, now, "never read"),
            expires: time_or(shown.expires_at, now, ""),
            is_pinned: memory.is_pinned,
        }
    }
}

#[derive(Template)]
#[template(path = "tree.html")]
struct TreePage {
    frame: Frame,
    store: StoreHead,
    description: String,
    memories: String,
    size: String,
    changed: Markup,
    directory: String,
    crumbs: Vec<Crumb>,
    entries: Vec<Entry>,
    pager: Pager,
    may_write: bool,
    new_href: String,
}

/// `GET /console/stores/{id}?path=`
pub(super) async fn show(caller: Caller, Path(store_id): InStore) -> PageResult {
    let (principal, store_id) = (&caller.principal, store_id.0);
    let directory = caller.query.filled("path").unwrap_or("/").to_owned();
    let store = caller.engine.stores.get(principal, store_id).await?;
    if !directory.ends_with('/') {
        return file_at(&caller, &store, directory).await;
    }
    let query = MemoryQuery {
        path_prefix: Some(directory.clone()),
        depth: Some(1),
        page: caller.query.page(PER_PAGE),
        ..MemoryQuery::default()
    };
    let found = caller.engine.memories.list(principal, store_id, &query, View::Basic).await?;
    let (head, now) = (StoreHead::of(&store), caller.engine.now());
    let entries = found.items.iter().map(|item| match item {
        ShownItem::Prefix(path) => Entry::directory(&head.base, path.as_str()),
        ShownItem::Memory(shown) => Entry::memory(&head.base, shown, now),
    });
    page(&TreePage {
        frame: caller.frame(format!("{directory} in {}", store.name), Tab::Stores),
        entries: entries.collect(),
        crumbs: crumbs(&head.base, &directory),
        pager: caller.query.pager(found.next),
        may_write: caller.may_write(store_id) && !head.is_archived,
        new_href: format!("{}/new?path={}", head.base, encoded(&directory)),
        memories: words::count(store.memory_count),
        size: words::bytes(store.live_bytes),
        changed: time_or(store.last_version_at, now, "never"),
        description: store.description,
        store: head,
        directory,
    })
}

/// Redirects to the memory at a path.
async fn file_at(caller: &Caller, store: &Store, path: String) -> PageResult {
    let query = MemoryQuery { path: Some(path), ..MemoryQuery::default() };
    let found = caller.engine.memories.list(&caller.principal, store.store_id, &query, View::Basic).await?;
    match found.items.first() {
        Some(ShownItem::Memory(shown)) => {
            let memory_id = shown.memory.head.memory_id;
            Ok(see_other(&format!("/console/stores/{}/memories/{memory_id}", store.store_id)))
        }
        _ => Err(Refusal::NotFound("there is no memory at this path")),
    }
}
