//! Reads all memories of a store while others write to it.
//!
//! A memory that is moved during a listing may be on no page of it. So the place in the
//! store's changes is noted before the listing, and memories that changed since are read
//! again, until no memory changes.

use std::collections::{BTreeMap, BTreeSet};

use keepsake_client::ClientError;
use keepsake_config::{Failure, FailureClass};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::failures::{class_of, failure_of, is_content_lost};
use crate::store_api::StoreApi;

/// Rounds of changes after which a busy store is not followed any further.
const MAX_ROUNDS: usize = 20;
/// Pages of changes in a round.
const MAX_PAGES: usize = 100;
/// A place after all changes of any store: the answer for it names the newest place.
const END: &str = "999999999999999999";

/// Lists the memories of a whole store without their contents, by id: each memory that existed
/// all the time. If others pause their writes, the result is the store's state at one moment.
/// Also returns the place of that moment among the changes of the store. Fails if the store changes
/// faster than it is read.
pub(crate) async fn list<T: DeserializeOwned>(
    store: &StoreApi,
    id_of: fn(&T) -> String,
) -> Result<(BTreeMap<String, T>, Option<String>), Failure> {
    let changes = Changes::begin(store).await?;
    let memories = list_once(store, id_of).await?;
    follow(changes, id_of, memories).await
}

/// Brings memories up to date that were listed at a place among the changes of the store.
pub(crate) async fn update<T: DeserializeOwned>(
    store: &StoreApi,
    id_of: fn(&T) -> String,
    memories: BTreeMap<String, T>,
    place: String,
) -> Result<(BTreeMap<String, T>, Option<String>), Failure> {
    follow(Changes { store, place: Some(place) }, id_of, memories).await
}

/// Reads the memories again that change, until none does.
async fn follow<T: DeserializeOwned>(
    mut changes: Changes<'_>,
    id_of: fn(&T) -> String,
    mut memories: BTreeMap<String, T>,
) -> Result<(BTreeMap<String, T>, Option<String>), Failure> {
    let store = changes.store;
    let mut was_followed = false;
    for _ in 0..MAX_ROUNDS {
        match changes.next().await? {
            ChangedMemories::Memories(ids) if ids.is_empty() => return Ok((memories, changes.place)),
            ChangedMemories::Memories(ids) => {
                for id in ids {
                    match read(store, &id, "basic").await? {
                        Read::Memory(memory) => drop(memories.insert(id, memory)),
                        Read::Deleted => drop(memories.remove(&id)),
                        // The memory exists: a reader must not take it for deleted.
                        Read::ContentLost(_) => {}
                    }
                }
                was_followed = true;
            }
            ChangedMemories::History => {
                memories = list_once(store, id_of).await?;
                was_followed = false;
            }
        }
    }
    if was_followed {
        return Ok((memories, changes.place));
    }
    Err(too_fast())
}

/// Lists the memories page by page, on a server that may not list changes: a memory that is
/// moved meanwhile may be missing.
pub(crate) async fn list_once<T: DeserializeOwned>(
    store: &StoreApi,
    id_of: fn(&T) -> String,
) -> Result<BTreeMap<String, T>, Failure> {
    let path = store.path(&["memories"]);
    let mut pages = store.client.pages(&path, &[("view", Some("basic"))]);
    let mut memories = BTreeMap::new();
    let failed = || failure_of("the memories cannot be listed");
    while let Some(memory) = pages.next::<T>().await.map_err(failed())? {
        memories.insert(id_of(&memory), memory);
    }
    Ok(memories)
}

/// The place after the newest change of a store; `None` if its changes cannot be listed.
pub(crate) async fn newest_place(store: &StoreApi) -> Result<Option<String>, Failure> {
    Ok(Changes::begin(store).await?.place)
}

/// The place after the newest change of a store, if nothing was removed from its history
/// since another place.
pub(crate) async fn newest_place_since(store: &StoreApi, place: String) -> Result<Option<String>, Failure> {
    let mut changes = Changes { store, place: Some(place) };
    Ok(match changes.next().await? {
        ChangedMemories::Memories(_) => changes.place,
        ChangedMemories::History => None,
    })
}

fn too_fast() -> Failure {
    let text = "the store changes faster than it can be read: try again later";
    Failure::conflict(text)
}

/// The changes of a store since a reader began.
struct Changes<'a> {
    store: &'a StoreApi,
    /// `None` if the server does not list changes: servers of compatible APIs do not, and
    /// some credentials may not read them.
    place: Option<String>,
}

enum ChangedMemories {
    Memories(BTreeSet<String>),
    /// Changes were removed from the history: all memories must be listed again.
    History,
}

#[derive(Deserialize)]
struct Page {
    data: Vec<Change>,
    next_after: String,
    has_more: bool,
    history_removed: bool,
}

#[derive(Deserialize)]
struct Change {
    memory_id: String,
}

impl<'a> Changes<'a> {
    /// The changes from now on.
    async fn begin(store: &'a StoreApi) -> Result<Self, Failure> {
        let mut changes = Self { store, place: None };
        changes.place = match changes.page(END).await {
            Ok(page) => Some(page.next_after),
            // A session's token may not list them, since they name the actors of the whole store.
            Err(error) if matches!(class_of(&error), FailureClass::NotFound | FailureClass::NotAllowed) => {
                None
            }
            Err(error) => return Err(failed(error)),
        };
        Ok(changes)
    }

    async fn page(&self, after: &str) -> Result<Page, ClientError> {
        let query = [("after", Some(after)), ("limit", Some("1000"))];
        self.store.get(&["changes"], &query).await
    }

    async fn next(&mut self) -> Result<ChangedMemories, Failure> {
        let mut changed = BTreeSet::new();
        for _ in 0..MAX_PAGES {
            let Some(place) = &self.place else {
                return Ok(ChangedMemories::Memories(changed));
            };
            let page = self.page(place).await.map_err(failed)?;
            self.place = Some(page.next_after);
            if page.history_removed {
                return Ok(ChangedMemories::History);
            }
            changed.extend(page.data.into_iter().map(|change| change.memory_id));
            if !page.has_more {
                return Ok(ChangedMemories::Memories(changed));
            }
        }
        Err(too_fast())
    }
}

fn failed(error: ClientError) -> Failure {
    failure_of("the changes of the store cannot be listed")(error)
}

/// Why a content is left out that the server states wrongly.
pub(crate) const WRONG_HASH: &str = "its content does not have the SHA-256 that the server states";

pub(crate) enum Read<T> {
    Memory(T),
    Deleted,
    /// The memory exists, but its content is missing or damaged, for this reason.
    ContentLost(String),
}

pub(crate) async fn read<T: DeserializeOwned>(
    store: &StoreApi,
    id: &str,
    view: &str,
) -> Result<Read<T>, Failure> {
    match store.get(&["memories", id], &[("view", Some(view))]).await {
        Ok(memory) => Ok(Read::Memory(memory)),
        Err(error) if class_of(&error) == FailureClass::NotFound => Ok(Read::Deleted),
        Err(error) if is_content_lost(&error) => Ok(Read::ContentLost(error.to_string())),
        Err(error) => Err(failure_of(format_args!("{id} cannot be read"))(error)),
    }
}
