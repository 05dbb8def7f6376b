//! The command palette: stores, memories and sessions by a part of their names.

use askama::Template;
use keepsake_core::StoreId;
use keepsake_engine::{EngineError, MemoryQuery, PageRequest, ShownItem, View};
use keepsake_index::{Scope, SessionFilter, Store};

use super::memory::href_of;
use super::sessions::title_of;
use super::stores::{is_called, stores_to_choose};
use crate::page::{PageResult, Refusal, page};
use crate::request::Caller;
use crate::text::markup::{Markup, path, visible};

/// The most that one call of the engine returns.
const PER_CALL: u64 = 100;
/// Maximum number of entries of each kind.
const MAX_ENTRIES: usize = 10;
/// Maximum number of engine calls for memories.
const MAX_CALLS: usize = 10;

struct Entry {
    href: String,
    name: Markup,
    /// The store of a memory, or the agent of a session.
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
    let groups = [
        Group { label: "Stores", entries: stores_called(&stores, &wanted) },
        Group { label: "Memories", entries: memories(&caller, &stores, text).await? },
        Group { label: "Sessions", entries: sessions(&caller, &wanted).await? },
    ];
    page(&Found { groups: groups.into_iter().filter(|group| !group.entries.is_empty()).collect() })
}

fn stores_called(stores: &[Store], wanted: &str) -> Vec<Entry> {
    let found = stores.iter().filter(|store| is_called(store, wanted)).take(MAX_ENTRIES);
    let entries = found.map(|store| Entry {
        href: format!("/console/stores/{}", store.store_id),
        name: visible(&store.name),
        detail: None,
    });
    entries.collect()
}

/// Looks at the memories of the page's store, or of the newest stores, in the order of their paths,
/// until the calls are used up.
async fn memories(caller: &Caller, stores: &[Store], text: &str) -> Result<Vec<Entry>, Refusal> {
    let wanted = text.to_lowercase();
    // A path that was typed from its beginning leads into its directory, however many others there are.
    let directory = text.rfind('/').filter(|_| text.starts_with('/')).map(|end| text[..=end].to_owned());
    let here = caller.query.text("store").parse::<StoreId>().ok();
    let newest = stores.iter().take(MAX_CALLS).map(|store| (store.store_id, Some(store.name.as_str())));
    let places: Vec<_> = here.map_or_else(|| newest.collect(), |store_id| vec![(store_id, None)]);
    let calls = MAX_CALLS / places.len().max(1);
    let all = &caller.engine.memories;
    let mut entries = Vec::new();
    for (store_id, store) in places {
        let page = PageRequest { limit: Some(PER_CALL), page: None };
        let mut query = MemoryQuery { path_prefix: directory.clone(), page, ..MemoryQuery::default() };
        for _ in 0..calls {
            let room = MAX_ENTRIES.saturating_sub(entries.len());
            if room == 0 {
                return Ok(entries);
            }
            let found = match all.list(&caller.principal, store_id, &query, View::Basic).await {
                Ok(found) => found,
                // The store is gone, or the text is no path.
                Err(EngineError::NotFound(_) | EngineError::Invalid { .. }) => break,
                Err(error) => return Err(error.into()),
            };
            let heads = found.items.iter().filter_map(|item| match item {
                ShownItem::Memory(shown) => Some(&shown.memory.head),
                ShownItem::Prefix(_) => None,
            });
            let wanted_heads = heads.filter(|head| head.path.as_str().to_lowercase().contains(&wanted));
            entries.extend(wanted_heads.take(room).map(|head| Entry {
                href: href_of(store_id, head.memory_id),
                name: path(head.path.as_str()),
                detail: store.map(visible),
            }));
            query.page.page = found.next;
            if query.page.page.is_none() {
                break;
            }
        }
    }
    Ok(entries)
}

async fn sessions(caller: &Caller, wanted: &str) -> Result<Vec<Entry>, Refusal> {
    let filter = SessionFilter { live: true, archived: true, ..SessionFilter::default() };
    let newest = PageRequest { limit: Some(PER_CALL), page: None };
    let found = caller.engine.sessions.summaries(&caller.principal, &filter, &newest).await?;
    let names = found.items.into_iter().map(|session| session.name);
    let is_wanted = |title: Option<&String>| title_of(title).to_lowercase().contains(wanted);
    let entries = names.filter(|name| is_wanted(name.title.as_ref())).take(MAX_ENTRIES).map(|name| Entry {
        href: format!("/console/sessions/{}", name.session_id),
        name: visible(title_of(name.title.as_ref())),
        detail: Some(visible(&name.agent_name)),
    });
    Ok(entries.collect())
}
