//! The API of one memory store.
//!
//! # Whole stores
//!
//! A memory that is moved during a listing may be on no page of it. So the place in the
//! store's changes is noted before the listing, and memories that changed since are read
//! again, until no memory changes.

use std::collections::{BTreeMap, BTreeSet};

use keepsake_archive::plan::DestinationMemory;
use keepsake_client::{Client, ClientError, Query};
use keepsake_config::{Failure, FailureClass, cli::Result};
use keepsake_core::{Purpose, Timestamp, VersionId};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::failures::{class_of, failure_of, is_content_lost};

/// Rounds of changes after which a busy store is not followed any further.
const MAX_ROUNDS: usize = 20;
/// Maximum number of changes on a page.
pub(crate) const MAX_CHANGES: i64 = 1_000;
/// Pages of changes in a round.
const MAX_PAGES: usize = 100;
/// A place after all changes of any store: the answer for it names the newest place.
const END: &str = "999999999999999999";
/// Why a content is left out that the server states wrongly.
pub(crate) const WRONG_HASH: &str = "its content does not have the SHA-256 that the server states";

#[derive(Debug, Clone)]
pub(crate) struct StoreApi {
    pub(crate) client: Client,
    pub(crate) id: String,
}

/// A memory as an API lists or shows it; other servers omit the optional fields.
#[derive(Deserialize)]
pub(crate) struct ListedMemory {
    pub(crate) id: String,
    pub(crate) path: String,
    pub(crate) content: Option<String>,
    /// Empty on a server that computes none.
    #[serde(default)]
    pub(crate) content_sha256: String,
    #[serde(default)]
    pub(crate) content_size_bytes: u64,
    #[serde(default)]
    pub(crate) memory_version_id: Option<String>,
    #[serde(default)]
    pub(crate) updated_at: Option<String>,
    #[serde(default)]
    pinned: Option<bool>,
    #[serde(default)]
    expiry_time: Option<String>,
}

impl ListedMemory {
    pub(crate) fn as_destination(&self) -> DestinationMemory {
        DestinationMemory {
            id: self.id.clone(),
            sha256: self.content_sha256.clone(),
            is_pinned: self.is_pinned(),
            expires_at: self.expires_at(),
        }
    }

    pub(crate) fn is_pinned(&self) -> bool {
        self.pinned.unwrap_or_default()
    }

    /// The memory's own expiry time.
    pub(crate) fn expires_at(&self) -> Option<Timestamp> {
        self.expiry_time.as_deref().and_then(Timestamp::parse)
    }
}

/// A listed memory, after its content was read.
pub(crate) enum ReadMemory<T = ListedMemory> {
    Memory(T),
    Deleted,
    /// The memory exists, but its content cannot be used: it is missing, damaged or invalid. With the reason.
    Unusable(String),
}

/// Memories by id, and their place among the changes of the store.
pub(crate) type ListedMemories = (BTreeMap<String, ListedMemory>, Option<String>);

impl StoreApi {
    /// The same store; its reads count as those of a backup, not as uses by an agent.
    pub(crate) fn for_backup(self) -> Self {
        Self { client: self.client.reading_for(Purpose::Backup), ..self }
    }

    /// The segments of the API path of the store, followed by those of `below`.
    pub(crate) fn path<'a>(&'a self, below: &[&'a str]) -> Vec<&'a str> {
        [&["memory_stores", self.id.as_str()], below].concat()
    }

    pub(crate) async fn get<T: DeserializeOwned>(
        &self,
        below: &[&str],
        query: Query<'_>,
    ) -> Result<T, ClientError> {
        self.client.get(&self.path(below), query).await
    }

    pub(crate) async fn post<T: DeserializeOwned>(
        &self,
        below: &[&str],
        body: &Value,
    ) -> Result<T, ClientError> {
        self.client.post(&self.path(below), body).await
    }

    /// Changes fields of a memory that still has the expected content.
    pub(crate) async fn update<T: DeserializeOwned>(
        &self,
        id: &str,
        expected_sha256: &str,
        mut fields: Value,
    ) -> Result<T, ClientError> {
        fields["precondition"] = json!({"type": "content_sha256", "content_sha256": expected_sha256});
        self.post(&["memories", id], &fields).await
    }

    /// Deletes a memory that still has the expected content.
    pub(crate) async fn delete(&self, id: &str, expected_sha256: &str) -> Result<Value, ClientError> {
        let expected = [("expected_content_sha256", Some(expected_sha256))];
        self.client.delete(&self.path(&["memories", id]), &expected).await
    }

    pub(crate) async fn read(&self, id: &str, view: &str) -> Result<ReadMemory> {
        match self.get(&["memories", id], &[("view", Some(view))]).await {
            Ok(memory) => Ok(ReadMemory::Memory(memory)),
            Err(error) if class_of(&error) == FailureClass::NotFound => Ok(ReadMemory::Deleted),
            Err(error) if is_content_lost(&error) => Ok(ReadMemory::Unusable(error.to_string())),
            Err(error) => Err(failure_of(format_args!("{id} cannot be read"))(error)),
        }
    }

    /// The size and the limits of the store, and whether the tenant can hold so many further bytes; `None` if the
    /// credential may not read them.
    pub(crate) async fn usage<T: DeserializeOwned>(
        &self,
        failed: &str,
        added_bytes: Option<u64>,
    ) -> Result<Option<T>> {
        let added_bytes = added_bytes.map(|bytes| bytes.to_string());
        let query = [("limit", Some("1")), ("added_bytes", added_bytes.as_deref())];
        match self.get(&["usage"], &query).await {
            Ok(usage) => Ok(Some(usage)),
            Err(error) if class_of(&error) == FailureClass::NotAllowed => Ok(None),
            Err(error) => Err(failure_of(failed)(error)),
        }
    }

    /// Lists the memories of the whole store without their contents: each memory that existed
    /// all the time. If others pause their writes, the result is the store's state at one moment.
    /// Fails if the store changes faster than it is read.
    pub(crate) async fn list(&self) -> Result<ListedMemories> {
        let changes = Changes::begin(self).await?;
        changes.follow(self.list_once().await?).await
    }

    /// Brings memories up to date that were listed at a place.
    pub(crate) async fn list_since(
        &self,
        memories: BTreeMap<String, ListedMemory>,
        place: String,
    ) -> Result<ListedMemories> {
        Changes { store: self, place: Some(place) }.follow(memories).await
    }

    /// Lists the memories page by page, on a server that may not list changes: a memory that is
    /// moved meanwhile may be missing.
    pub(crate) async fn list_once(&self) -> Result<BTreeMap<String, ListedMemory>> {
        let path = self.path(&["memories"]);
        let mut pages = self.client.pages(&path, &[("view", Some("basic"))]);
        let mut memories = BTreeMap::new();
        let failed = || failure_of("the memories cannot be listed");
        while let Some(memory) = pages.next::<ListedMemory>().await.map_err(failed())? {
            memories.insert(memory.id.clone(), memory);
        }
        Ok(memories)
    }

    /// The changes after a place.
    pub(crate) async fn changes_after(&self, place: &str) -> Result<ChangesPage, ClientError> {
        let limit = MAX_CHANGES.to_string();
        self.get(&["changes"], &[("after", Some(place)), ("limit", Some(limit.as_str()))]).await
    }

    /// The place after the newest change; `None` if the changes cannot be listed.
    pub(crate) async fn newest_place(&self) -> Result<Option<String>> {
        Ok(Changes::begin(self).await?.place)
    }

    /// The place after the newest change, if nothing was removed from the history since
    /// another place.
    pub(crate) async fn newest_place_since(&self, place: String) -> Result<Option<String>> {
        let mut changes = Changes { store: self, place: Some(place) };
        Ok(match changes.next().await? {
            ChangedMemories::Memories(_) => changes.place,
            ChangedMemories::History => None,
        })
    }
}

fn too_fast() -> Failure {
    Failure::conflict("the store changes faster than it can be read: try again later")
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
pub(crate) struct ChangesPage {
    pub(crate) data: Vec<Change>,
    next_after: String,
    has_more: bool,
    history_removed: bool,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Change {
    pub(crate) seq: i64,
    pub(crate) memory_id: String,
    #[serde(rename = "memory_version_id")]
    pub(crate) version_id: VersionId,
}

impl<'a> Changes<'a> {
    /// The changes from now on.
    async fn begin(store: &'a StoreApi) -> Result<Self> {
        let mut changes = Self { store, place: None };
        changes.place = match store.changes_after(END).await {
            Ok(page) => Some(page.next_after),
            // A session's token may not list them, since they name the actors of the whole store.
            Err(error) if matches!(class_of(&error), FailureClass::NotFound | FailureClass::NotAllowed) => {
                None
            }
            Err(error) => return Err(failed(error)),
        };
        Ok(changes)
    }

    /// Reads the memories again that change, until none does.
    async fn follow(mut self, mut memories: BTreeMap<String, ListedMemory>) -> Result<ListedMemories> {
        let mut was_followed = false;
        for _ in 0..MAX_ROUNDS {
            match self.next().await? {
                ChangedMemories::Memories(ids) if ids.is_empty() => return Ok((memories, self.place)),
                ChangedMemories::Memories(ids) => {
                    for id in ids {
                        match self.store.read(&id, "basic").await? {
                            ReadMemory::Memory(memory) => drop(memories.insert(id, memory)),
                            ReadMemory::Deleted => drop(memories.remove(&id)),
                            // The memory exists: a reader must not take it for deleted.
                            ReadMemory::Unusable(_) => {}
                        }
                    }
                    was_followed = true;
                }
                ChangedMemories::History => {
                    memories = self.store.list_once().await?;
                    was_followed = false;
                }
            }
        }
        if was_followed { Ok((memories, self.place)) } else { Err(too_fast()) }
    }

    async fn next(&mut self) -> Result<ChangedMemories> {
        let mut changed = BTreeSet::new();
        for _ in 0..MAX_PAGES {
            let Some(place) = &self.place else {
                return Ok(ChangedMemories::Memories(changed));
            };
            let page = self.store.changes_after(place).await.map_err(failed)?;
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
