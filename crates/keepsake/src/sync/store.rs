//! The store's side: lists memories and changes them with preconditions.

use std::collections::BTreeMap;
use std::sync::Arc;

use keepsake_archive::format::VersionLine;
use keepsake_client::{ClientError, Query};
use keepsake_config::{Failure, FailureClass, cli::Result};
use keepsake_core::{ContentHash, MemoryId, MemoryPath, VersionId};
use keepsake_engine::ChangePlace;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::sync::Mutex;

use super::plan::KnownMemory;
use crate::failures::{class_of, failure_of};
use crate::store_api::{Change, ListedMemory, MAX_CHANGES, StoreApi, WRONG_HASH};

/// Without the content.
const BASIC: Query<'_> = &[("view", Some("basic"))];

#[derive(Debug)]
pub(super) struct Store {
    pub(super) api: StoreApi,
    /// The last answer of [`Store::changes_around`].
    around: Mutex<Option<NearbyChanges>>,
}

/// The changes around a number, when the newest change was at a place.
#[derive(Debug)]
struct NearbyChanges {
    seq: i64,
    now: ChangePlace,
    changes: Arc<[Change]>,
}

#[derive(Debug)]
pub(super) enum NotDone {
    /// The plan is outdated: the file or the memory has changed.
    Lost,
    /// The step cannot be done, for this reason.
    Refused(String),
    /// The pass cannot go on.
    Failed(Failure),
}

impl From<Failure> for NotDone {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

#[derive(Debug, Default)]
pub(super) struct Memories {
    pub(super) known: BTreeMap<MemoryPath, KnownMemory>,
    /// Paths that no file gets, with the reason.
    pub(super) refused: Vec<(String, String)>,
    /// The place among the store's changes at which it had these memories.
    pub(super) place: Option<ChangePlace>,
}

/// The state of a synchronised version in the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum VersionState {
    Kept,
    /// The version is there without its content and path.
    Redacted,
    /// The version was erased, or has expired.
    Removed,
    /// As `Removed`, unless a backup was restored and as many newer changes were removed.
    Likely,
    /// An older backup was restored.
    Lost,
    /// The version was removed or lost.
    Unclear,
    /// The credential may not read versions, such as a session's token.
    Hidden,
}

impl VersionState {
    /// Whether to note it for later passes, which cannot determine it again.
    pub(super) const fn is_missing(self) -> bool {
        matches!(self, Self::Removed | Self::Likely | Self::Unclear)
    }
}

/// What a synchronisation knows of a memory of the server's answer.
fn known(memory: &ListedMemory) -> Result<KnownMemory> {
    let version_id = memory.memory_version_id.as_deref().unwrap_or_default();
    Ok(KnownMemory {
        memory_id: memory.id.parse().map_err(Failure::of("the server's answer: id"))?,
        hash: memory.content_sha256.parse().map_err(Failure::of("the server's answer: content_sha256"))?,
        version_id: Some(version_id.parse().map_err(Failure::of("the server's answer: memory_version_id"))?),
    })
}

impl Store {
    pub(super) fn new(api: StoreApi) -> Self {
        Self { api, around: Mutex::default() }
    }

    /// The limit of one memory; `None` if the credential may not read it.
    pub(super) async fn bytes_per_memory(&self) -> Result<Option<u64>> {
        let usage: Option<Value> = self.api.usage("the store's limits cannot be read", None).await?;
        Ok(usage.and_then(|usage| usage["limits"]["bytes_per_memory"].as_u64()))
    }

    /// All memories by path. A server that is wrong or hostile may name any path.
    pub(super) async fn list(&self) -> Result<Memories> {
        let (listed, place) = self.api.list().await?;
        let place = place.as_deref().and_then(place_of);
        let mut memories = Memories { place, ..Memories::default() };
        for memory in listed.into_values() {
            // As any malformed item of a list.
            let malformed = |failure: Failure| Failure::usage(failure.to_string());
            let known = known(&memory).map_err(malformed)?;
            match MemoryPath::parse(&memory.path) {
                Ok(path) => drop(memories.known.insert(path, known)),
                Err(error) => {
                    let reason = format!("the store's path {error}");
                    memories.refused.push((memory.path, reason));
                }
            }
        }
        Ok(memories)
    }

    /// The content of a memory that still is what the plan saw.
    pub(super) async fn content(&self, path: &MemoryPath, memory: KnownMemory) -> Result<String, NotDone> {
        let id = memory.memory_id.to_string();
        let read: ListedMemory = self.api.get(&["memories", &id], &[]).await.map_err(not_done)?;
        let content = read.content.unwrap_or_default();
        let hash = ContentHash::of(content.as_bytes()).to_string();
        if read.path != path.as_str() || read.content_sha256 != memory.hash.to_string() {
            return Err(NotDone::Lost);
        }
        if read.content_sha256 != hash {
            return Err(NotDone::Refused(WRONG_HASH.to_owned()));
        }
        Ok(content)
    }

    /// The current path of a memory; `None` if it was deleted.
    pub(super) async fn path_of(&self, memory_id: MemoryId) -> Result<Option<MemoryPath>, NotDone> {
        let id = memory_id.to_string();
        match self.api.get::<ListedMemory>(&["memories", &id], BASIC).await {
            Ok(memory) => MemoryPath::parse(&memory.path).map(Some).map_err(|error| {
                NotDone::Refused(format!("its memory moved to {}, but a path {error}", memory.path))
            }),
            Err(error) if class_of(&error) == FailureClass::NotFound => Ok(None),
            Err(error) => Err(failure_of("a memory cannot be read")(error).into()),
        }
    }

    /// The state of a version in the store's history; `None` if it is gone.
    pub(super) async fn recorded(&self, version_id: VersionId) -> Result<Option<VersionState>> {
        match self.api.get::<VersionLine>(&["memory_versions", &version_id.to_string()], BASIC).await {
            Ok(VersionLine { redacted_at: None, .. }) => Ok(Some(VersionState::Kept)),
            Ok(VersionLine { redacted_at: Some(_), .. }) => Ok(Some(VersionState::Redacted)),
            Err(error) if class_of(&error) == FailureClass::NotFound => Ok(None),
            Err(error) if class_of(&error) == FailureClass::NotAllowed => Ok(Some(VersionState::Hidden)),
            Err(error) => Err(failure_of("a version of a memory cannot be read")(error)),
        }
    }

    /// The place after the store's newest change; `None` if the changes cannot be listed.
    pub(super) async fn newest_place(&self) -> Result<Option<ChangePlace>> {
        let place = self.api.newest_place().await?;
        Ok(place.as_deref().and_then(place_of))
    }

    /// The place after the store's newest change, if nothing was removed from its history
    /// since another place.
    pub(super) async fn newest_place_since(&self, place: ChangePlace) -> Result<Option<ChangePlace>> {
        let newest = self.api.newest_place_since(place.to_string()).await?;
        Ok(newest.as_deref().and_then(place_of))
    }

    /// The changes up to a number that are still there, and the next ones: a page of the
    /// changes whose numbers are greater than `seq` + 1 - [`MAX_CHANGES`]. The page is
    /// read once for each newest place, however many versions are missing.
    pub(super) async fn changes_around(&self, seq: i64, now: ChangePlace) -> Result<Arc<[Change]>> {
        let mut around = self.around.lock().await;
        if let Some(known) = &*around
            && (known.seq, known.now) == (seq, now)
        {
            return Ok(Arc::clone(&known.changes));
        }
        let after = seq.saturating_add(1).saturating_sub(MAX_CHANGES).max(0).to_string();
        let page = self.api.changes_after(&after).await;
        let page = page.map_err(failure_of("the changes of the store cannot be listed"))?;
        let changes: Arc<[Change]> = page.data.into();
        *around = Some(NearbyChanges { seq, now, changes: Arc::clone(&changes) });
        Ok(changes)
    }

    pub(super) async fn create(&self, path: &MemoryPath, content: &str) -> Result<KnownMemory, NotDone> {
        let precondition = json!({"type": "not_exists"});
        let body = json!({"path": path.as_str(), "content": content, "precondition": precondition});
        let created = self.api.post::<ListedMemory>(&["memories"], &body).await;
        Ok(known(&created.map_err(not_done)?)?)
    }

    /// Replaces the content of a memory that still has the expected one.
    pub(super) async fn replace(&self, memory: KnownMemory, content: &str) -> Result<KnownMemory, NotDone> {
        self.update(memory, json!({"content": content})).await
    }

    /// Moves a memory that still has the expected content.
    pub(super) async fn rename(&self, memory: KnownMemory, to: &MemoryPath) -> Result<KnownMemory, NotDone> {
        self.update(memory, json!({"path": to.as_str()})).await
    }

    async fn update(&self, memory: KnownMemory, fields: Value) -> Result<KnownMemory, NotDone> {
        let (id, hash) = (memory.memory_id.to_string(), memory.hash.to_string());
        let updated = self.api.update::<ListedMemory>(&id, &hash, fields).await;
        Ok(known(&updated.map_err(not_done)?)?)
    }

    /// Deletes a memory that still has the expected content.
    pub(super) async fn delete(&self, memory: KnownMemory) -> Result<(), NotDone> {
        let deleted = self.api.delete(&memory.memory_id.to_string(), &memory.hash.to_string()).await;
        deleted.map(drop).map_err(not_done)
    }
}

/// A place among changes; `None` if a server of another kind named it.
fn place_of(text: &str) -> Option<ChangePlace> {
    text.parse().ok()
}

/// Distinguishes an answer about one memory from a failure of the whole pass.
fn not_done(error: ClientError) -> NotDone {
    match error.status().map(|status| status.as_u16()) {
        Some(404 | 409) => NotDone::Lost,
        // A quota is 429 without the advice to try again. A credential that may only
        // read gets 403 for each write. A missing content is 410.
        Some(400 | 403 | 410 | 413 | 429) if !error.is_transient() => NotDone::Refused(error.to_string()),
        _ => failure_of("the store cannot be synchronised")(error).into(),
    }
}
