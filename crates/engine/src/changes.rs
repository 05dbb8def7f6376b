//! The changes of a store, in the order of the commits.

use std::collections::HashMap;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use keepsake_core::{StoreId, TenantId, VersionId, schemas};
use keepsake_index::{ChangePage, Scope, Version};
use moka::future::Cache;
use serde::{Serialize, Serializer};
use utoipa::ToSchema;

use crate::shared::{Shared, service};
use crate::watch::{State, Watch, WatchedObject};
use crate::{EngineError, PageRequest, Principal};

/// How long readers that follow a store share a page.
const SHARED_FOR: Duration = Duration::from_secs(2);
const SHARED_PAGES: u64 = 256;
/// Changes per page for readers that follow a store: a slow reader holds one page.
const FOLLOWED: u32 = 50;

/// The key and the head of a watched store. The head is the sequence number of the newest
/// change, and the number of removals of its history.
type WatchKey = (TenantId, StoreId);
type HeadNumbers = (i64, i64);

/// A place among the changes of a store: behind a version, in one history.
///
/// As text it is `SEQ.EPOCH.VERSION`. A place that is a plain number does not name a history;
/// 0 is the beginning of any history.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChangePlace {
    seq: i64,
    /// How often history had been removed when the place was made.
    purge_epoch: Option<i64>,
    /// The version with the sequence number; `None`: it was removed already.
    version_id: Option<VersionId>,
}

impl ChangePlace {
    pub const START: Self = Self { seq: 0, purge_epoch: None, version_id: None };

    /// The sequence number of the last change before the place.
    pub const fn seq(&self) -> i64 {
        self.seq
    }

    /// How often history had been removed at this place; `None` if the place is a plain number.
    pub const fn removals(&self) -> Option<i64> {
        self.purge_epoch
    }

    /// The version of the last change; `None`: it was removed already.
    pub const fn version_id(&self) -> Option<VersionId> {
        self.version_id
    }

    /// Whether a page after this place has all changes that the reader has not seen.
    fn is_followed_by(&self, page: &ChangePage) -> bool {
        self.seq == 0
            || (self.purge_epoch == Some(page.purge_epoch) && self.version_id == page.version_before)
    }
}

impl fmt::Display for ChangePlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.seq)?;
        if let Some(purge_epoch) = self.purge_epoch {
            write!(f, ".{purge_epoch}")?;
        }
        if let Some(version_id) = self.version_id {
            write!(f, ".{version_id}")?;
        }
        Ok(())
    }
}

impl Serialize for ChangePlace {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

keepsake_core::has_schema! {
    ChangePlace as "ChangePlace" =>
        schemas::text("A place among the changes of a memory store, in one history; `0` is the beginning.")
        .pattern(Some("^[0-9]{1,18}(\\.[0-9]{1,18}(\\.memver_[0-7][0-9A-HJKMNP-TV-Z]{25})?)?$"))
        .examples(["7.0.memver_01KAK5R2M0E9V7Q3C4D8X6Y1ZT"]);
}

/// A text that is no place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChangePlaceError;

impl FromStr for ChangePlace {
    type Err = ChangePlaceError;

    fn from_str(text: &str) -> Result<Self, ChangePlaceError> {
        let mut parts = text.splitn(3, '.');
        let number = |text: &str| {
            let is_digits = text.bytes().all(|byte| byte.is_ascii_digit());
            text.parse().ok().filter(|_| is_digits).ok_or(ChangePlaceError)
        };
        Ok(Self {
            seq: number(parts.next().unwrap_or_default())?,
            purge_epoch: parts.next().map(number).transpose()?,
            version_id: parts.next().map(|id| id.parse().map_err(|_| ChangePlaceError)).transpose()?,
        })
    }
}

/// A page of changes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = MemoryChanges)]
pub struct StoreChanges {
    /// In the order of their commits.
    #[serde(rename = "data", serialize_with = "list")]
    #[schema(value_type = Vec<Version>)]
    pub changes: Arc<[Version]>,
    /// Send it as `after` to get what follows.
    pub next_after: ChangePlace,
    /// Whether there were further changes.
    pub has_more: bool,
    /// Whether the reader may lack changes before `next_after`: some were removed from the
    /// history since `after` was given, or it is of another history, because a backup was
    /// restored. Then list all memories.
    #[serde(rename = "history_removed")]
    pub is_history_removed: bool,
    #[serde(skip)]
    pub store_id: StoreId,
    #[serde(skip)]
    purge_epoch: i64,
}

fn list<S: Serializer>(changes: &Arc<[Version]>, serializer: S) -> Result<S::Ok, S::Error> {
    changes.as_ref().serialize(serializer)
}

impl StoreChanges {
    fn none(store_id: StoreId, after: ChangePlace, purge_epoch: i64) -> Self {
        Self {
            store_id,
            changes: Arc::default(),
            next_after: after,
            purge_epoch,
            has_more: false,
            is_history_removed: false,
        }
    }

    pub fn place_after(&self, change: &Version) -> ChangePlace {
        ChangePlace {
            seq: change.seq,
            purge_epoch: Some(self.purge_epoch),
            version_id: Some(change.version_id),
        }
    }
}

#[derive(Debug)]
pub struct FollowedStore {
    store_id: StoreId,
    watched: WatchedObject<HeadNumbers>,
    /// Whether the reader's place belongs to this history: an earlier read returned it.
    is_place_known: bool,
}

impl FollowedStore {
    /// Waits until the store has changed since the last call.
    pub async fn changed(&mut self) {
        self.watched.changed().await;
    }
}

service! {
    pub Changes(shared) {
        watch: Arc<Watch<WatchKey, HeadNumbers>> = Arc::new(watch(shared)),
        /// A change that wakes many readers is read once. The key contains the head that the
        /// readers saw, so a page is never older than that head.
        pages: Cache<(WatchKey, State<HeadNumbers>, i64), Arc<ChangePage>> =
            Cache::builder().max_capacity(SHARED_PAGES).time_to_live(SHARED_FOR).build(),
    }
}

fn watch(shared: &Shared) -> Watch<WatchKey, HeadNumbers> {
    let index = shared.context.index.clone();
    Watch::new(move |stores: Vec<WatchKey>| {
        let index = index.clone();
        async move {
            let heads = index.changes.store_heads(&stores).await?;
            let by_store =
                heads.iter().map(|head| ((head.tenant_id, head.store_id), (head.seq, head.purge_epoch)));
            Ok(by_store.collect::<HashMap<_, _>>())
        }
    })
}

impl Changes {
    /// Lists the changes after a place, oldest first.
    #[tracing::instrument(name = "engine.changes", level = "debug", skip_all, fields(gen_ai.memory.store.id = %store_id))]
    pub async fn list(
        &self,
        principal: &Principal,
        store_id: StoreId,
        after: ChangePlace,
        limit: Option<u64>,
    ) -> Result<StoreChanges, EngineError> {
        allow(principal, store_id)?;
        let page = PageRequest { limit, page: None };
        let limit = page.session_limit()?;
        let page = self.context.changes_after(principal.tenant_id, store_id, after.seq, limit).await?;
        Ok(shown(store_id, after, limit, &page))
    }

    pub fn follow(&self, principal: &Principal, store_id: StoreId) -> Result<FollowedStore, EngineError> {
        allow(principal, store_id)?;
        let tenant_id = principal.tenant_id;
        let watched = self.watch.watch(tenant_id, (tenant_id, store_id))?;
        Ok(FollowedStore { store_id, watched, is_place_known: false })
    }

    /// The changes after a place, for a reader that follows the store. Readers at the
    /// same place share one read, and a reader at the end costs no read.
    pub async fn next(
        &self,
        principal: &Principal,
        followed: &mut FollowedStore,
        after: ChangePlace,
    ) -> Result<StoreChanges, EngineError> {
        let store_id = followed.store_id;
        allow(principal, store_id)?;
        let state = followed.watched.state();
        if let State::Found(Some((seq, purge_epoch))) = state
            && followed.is_place_known
            && (seq, Some(purge_epoch)) == (after.seq, after.purge_epoch)
        {
            return Ok(StoreChanges::none(store_id, after, purge_epoch));
        }
        let store = (principal.tenant_id, store_id);
        let read = self.context.changes_after(store.0, store.1, after.seq, FOLLOWED);
        let read = async { read.await.map(Arc::new) };
        let page = self.pages.try_get_with((store, state, after.seq), read).await;
        let page = page.map_err(EngineError::Shared)?;
        followed.is_place_known = true;
        Ok(shown(store_id, after, FOLLOWED, &page))
    }

    pub async fn newest(&self, principal: &Principal, store_id: StoreId) -> Result<ChangePlace, EngineError> {
        allow(principal, store_id)?;
        let page = self.context.changes_after(principal.tenant_id, store_id, i64::MAX, 1).await?;
        Ok(newest_of(&page))
    }
}

/// A session's token is refused: changes name the actors of the whole store.
fn allow(principal: &Principal, store_id: StoreId) -> Result<(), EngineError> {
    principal.require_outside_session(Scope::MemoryRead, store_id)
}

fn newest_of(page: &ChangePage) -> ChangePlace {
    ChangePlace { seq: page.seq, purge_epoch: Some(page.purge_epoch), version_id: page.newest_version }
}

fn shown(store_id: StoreId, after: ChangePlace, limit: u32, page: &ChangePage) -> StoreChanges {
    let mut found = StoreChanges {
        store_id,
        changes: Arc::clone(&page.versions),
        // A store that was restored from a backup may end before the place.
        next_after: newest_of(page),
        purge_epoch: page.purge_epoch,
        has_more: false,
        is_history_removed: false,
    };
    if page.versions.len() == limit as usize
        && let Some(last) = page.versions.last()
    {
        found.next_after = found.place_after(last);
    }
    let seq = found.next_after.seq;
    found.has_more = seq < page.seq;
    let is_contiguous = usize::try_from(seq - after.seq).ok() == Some(page.versions.len());
    found.is_history_removed = !is_contiguous || !after.is_followed_by(page);
    found
}
