//! The command palette: stores, memories and sessions by a part of their names.

use askama::Template;
use keepsake_core::StoreId;
use keepsake_engine::{FoundPaths, PageRequest};
use keepsake_index::{Scope, SessionFilter, Store};

use super::memory::href_of;
use super::sessions::title_of;
use super::stores::{is_called, may_create_stores, stores_to_choose};
use crate::names::SharedNames;
use crate::page::{PageResult, Refusal, page};
use crate::request::Caller;
use crate::text::markup::{Markup, path, short, visible};

/// Number of sessions that are looked at.
const MAX_SESSIONS: u64 = 100;
/// Maximum number of entries of each kind.
const MAX_ENTRIES: usize = 10;
/// Maximum number of stores whose memories are searched: each may have to be loaded.
const MAX_STORES: usize = 3;
const MEMORIES: &str = "Memories";
const SOME_MEMORIES: &str = "Memories (some are still being read)";

struct Entry {
    href: String,
    name: Markup,
    /// The store of a memory, the agent of a session, or the id of a store whose name is shared.
    detail: Option<Markup>,
}

struct Group {
    label: &'static str,
    entries: Vec<Entry>,
}

#[derive(Template)]
#[template(path = "palette.html")]
struct Found {
    groups: Vec<Group>,
}

/// `GET /console/palette?q=`: objects with this text in their names; with `store=`, the memories of
/// one store
pub(super) async fn find(caller: Caller) -> PageResult {
    let text = caller.query.filled("q").unwrap_or_default();
    if text.is_empty() || !caller.may(Scope::MemoryRead) {
        return page(&Found { groups: Vec::new() });
    }
    let wanted = text.to_lowercase();
    let stores = stores_to_choose(&caller, false).await?;
    let (memories, sessions) = tokio::join!(memories(&caller, &stores, text), sessions(&caller, &wanted));
    let here = store_here(&caller).and_then(|here| stores.iter().find(|store| store.store_id == here));
    let actions = here.map(|store| actions_on(&caller, store, &wanted)).unwrap_or_default();
    let actions = Group { label: "Actions of the store", entries: actions };
    let stores = Group { label: "Stores", entries: stores_called(&stores, &wanted) };
    let groups = [actions, stores, memories, Group { label: "Sessions", entries: sessions? }].into_iter();
    let is_shown = |group: &Group| !group.entries.is_empty() || group.label == SOME_MEMORIES;
    page(&Found { groups: groups.filter(is_shown).collect() })
}

/// The store whose page has the palette.
fn store_here(caller: &Caller) -> Option<StoreId> {
    caller.query.text("store").parse().ok()
}

/// The actions on the whole store that the person may take and whose names have the words of the text. The page
/// itself finds the store's tabs.
fn actions_on(caller: &Caller, store: &Store, wanted: &str) -> Vec<Entry> {
    let base = format!("/console/stores/{}", store.store_id);
    let may_write = caller.may_write(store);
    let actions = [
        (may_write, "Undo changes…", format!("{base}/undo")),
        (may_write && caller.may(Scope::StoresAdmin), "Restore the store…", format!("{base}/restore")),
        (may_create_stores(caller), "Fork the store…", format!("{base}/fork")),
        (true, "Look at the past", format!("{base}#at")),
        (true, "Differences between two times", format!("{base}/diff")),
        (true, "Import or export…", format!("/console/transfer?store={}", store.store_id)),
    ];
    let is_wanted = |name: &str| wanted.split_whitespace().all(|word| name.to_lowercase().contains(word));
    let found = actions.into_iter().filter(|(may, name, _)| *may && is_wanted(name));
    found.map(|(_, name, href)| Entry { href, name: Markup::text(name), detail: None }).collect()
}

fn stores_called(stores: &[Store], wanted: &str) -> Vec<Entry> {
    let shared = SharedNames::of_stores(stores);
    let found = stores.iter().filter(|store| is_called(store, wanted)).take(MAX_ENTRIES);
    let entries = found.map(|store| Entry {
        href: format!("/console/stores/{}", store.store_id),
        name: visible(&store.name),
        detail: shared.has(&store.name).then(|| visible(&short(&store.store_id.to_string()))),
    });
    entries.collect()
}

/// The memories of the page's store, or of the newest stores, whose paths have the words of the text. There are
/// none if they cannot be read, so that the other groups are shown.
async fn memories(caller: &Caller, stores: &[Store], text: &str) -> Group {
    let here = store_here(caller);
    let newest = stores.iter().take(MAX_STORES).map(|store| store.store_id);
    let store_ids: Vec<_> = here.map_or_else(|| newest.collect(), |store_id| vec![store_id]);
    let search = &caller.engine.search;
    let found = search.find_paths(&caller.principal, &store_ids, text, MAX_ENTRIES).await;
    let FoundPaths { memories, is_incomplete } = found.unwrap_or_else(|error| {
        tracing::debug!(error = %error, "console.palette goes without memories");
        FoundPaths::default()
    });
    let entries = memories.into_iter().map(|(found, store_id)| {
        let store = stores.iter().find(|store| here.is_none() && store.store_id == store_id);
        Entry {
            href: href_of(store_id, found.memory),
            name: path(found.path.as_str()),
            detail: store.map(|store| visible(&store.name)),
        }
    });
    Group { label: if is_incomplete { SOME_MEMORIES } else { MEMORIES }, entries: entries.collect() }
}

async fn sessions(caller: &Caller, wanted: &str) -> Result<Vec<Entry>, Refusal> {
    let filter = SessionFilter { live: true, archived: true, ..SessionFilter::default() };
    let newest = PageRequest { limit: Some(MAX_SESSIONS), page: None };
    let found = caller.engine.sessions.summaries(&caller.principal, &filter, &newest).await?;
    let names = found.items.into_iter().map(|session| session.name);
    let is_wanted = |text: &str| text.to_lowercase().contains(wanted);
    let names = names.filter(|name| is_wanted(title_of(name.title.as_ref())) || is_wanted(&name.agent_name));
    let entries = names.take(MAX_ENTRIES).map(|name| Entry {
        href: format!("/console/sessions/{}", name.session_id),
        name: visible(title_of(name.title.as_ref())),
        detail: Some(visible(&name.agent_name)),
    });
    Ok(entries.collect())
}
