//! The memories of a store as they were, and the differences between two points.
//!
//! Reads of the past do not count as uses of memories, but the readers of a version include them.

mod diff;
mod moment;

use std::sync::Arc;

use futures::stream::{self, StreamExt, TryStreamExt};
use keepsake_core::{BlobKey, MemoryId, MemoryPath, ObjectKind, StoreId};
use keepsake_index::{Depth, Moment, PastItem, PastListing, PastMemory, PastPlace, Point, Scope};

use crate::content::{MAX_READS, missing_at};
use crate::cursor::{Place, Query};
use crate::memories::{MemoryQuery, ShownItem, View, fitting_contents};
use crate::shared::service;
use crate::{EngineError, Page, Principal, ShownVersion};

pub use diff::{DiffQuery, DifferenceKind, MemoryDifference};
pub use moment::NamedMoment;
pub(crate) use moment::refusal;

const FETCHES_AT_ONCE: usize = 10;

/// A memory as it was. What history does not record is not known: whether it was pinned, when
/// it would have expired, and when it was read.
pub type ShownPastMemory = ShownVersion<PastMemory>;

impl ShownPastMemory {
    /// The error of the requested content that is missing.
    pub fn content_error(&self) -> Option<EngineError> {
        self.lost.map(|loss| loss.error(self.version.path.as_ref(), self.version.version_id))
    }
}

pub type ShownPastItem = ShownItem<ShownPastMemory>;

service!(pub Past);

impl Past {
    /// The memory as it was; one that did not exist then is not found.
    #[tracing::instrument(name = "engine.past_memory", level = "debug", skip_all, fields(gen_ai.memory.store.id = %store_id))]
    pub async fn get(
        &self,
        principal: &Principal,
        store_id: StoreId,
        memory_id: MemoryId,
        at: NamedMoment,
        view: View,
    ) -> Result<ShownPastMemory, EngineError> {
        let moment = self.allow(principal, store_id, at)?;
        let past = &self.context.index.past;
        let found = past.find(principal.tenant_id, store_id, moment, memory_id).await;
        let (point, found) = found.map_err(refusal(at.field))?;
        let memory = found.ok_or(EngineError::NotFound(ObjectKind::Memory))?;
        self.show(principal, store_id, at.field, point, memory, view).await
    }

    /// Lists the memories as they were, in byte order of their paths. Those whose version is
    /// redacted have no path; a list of the whole store has them at its end.
    #[tracing::instrument(name = "engine.past_memories", level = "debug", skip_all, fields(gen_ai.memory.store.id = %store_id))]
    pub async fn list(
        &self,
        principal: &Principal,
        store_id: StoreId,
        query: &MemoryQuery,
        at: NamedMoment,
        view: View,
    ) -> Result<Page<ShownPastItem>, EngineError> {
        let moment = self.allow(principal, store_id, at)?;
        let (tenant_id, field) = (principal.tenant_id, at.field);
        let past = &self.context.index.past;
        if let Some(path) = query.path()? {
            let _slot = self.pages.take(tenant_id).await?;
            let found = past.find_at(tenant_id, store_id, moment, &path).await;
            let (point, found) = found.map_err(refusal(field))?;
            let found = found.map(PastItem::Memory).into_iter().collect();
            let items = self.items(principal, store_id, field, point, found, view).await?;
            return Ok(Page { items, next: None });
        }
        let (below, depth) = (query.below()?, query.depth()?);
        let limit = query.page.limit(view == View::Full)?;
        let is_shallow = depth == Depth::Children;
        let identity =
            Query::filtered("past memories", tenant_id, &(store_id, below.as_str(), is_shallow, at.key()))?;
        let after: Option<PastPosition> = self.context.cursors.after(identity, &query.page).await?;
        // Later pages show the same point, also if the time has got versions since.
        let moment = after.as_ref().map_or(moment, |after| Moment::Seq(after.seq));
        let listing = PastListing { below, depth, after: after.map(|after| after.place), limit };
        let _slot = self.pages.take(tenant_id).await?;
        let found = past.list(tenant_id, store_id, moment, &listing).await;
        let mut found = found.map_err(refusal(field))?;
        if view == View::Full {
            let fitting = fitting_contents(found.items.iter().map(content_bytes));
            if fitting < found.items.len() {
                found.items.truncate(fitting);
                found.next = found.items.last().map(PastItem::place);
            }
        }
        let next = found.next.map(|place| PastPosition { seq: found.point.seq, place });
        let next = match next {
            Some(next) => Some(self.context.cursors.seal(identity, &next).await?),
            None => None,
        };
        let items = self.items(principal, store_id, field, found.point, found.items, view).await?;
        Ok(Page { items, next })
    }

    /// Checks the credential and the moment.
    fn allow(
        &self,
        principal: &Principal,
        store_id: StoreId,
        at: NamedMoment,
    ) -> Result<Moment, EngineError> {
        principal.require_outside_session(Scope::MemoryRead, store_id)?;
        at.checked(self.context.now())
    }

    async fn items(
        &self,
        principal: &Principal,
        store_id: StoreId,
        field: &'static str,
        point: Point,
        items: Vec<PastItem>,
        view: View,
    ) -> Result<Vec<ShownPastItem>, EngineError> {
        stream::iter(items)
            .map(|item| async move {
                let memory = match item {
                    PastItem::Prefix(path) => return Ok(ShownPastItem::Prefix(path)),
                    PastItem::Memory(memory) => memory,
                };
                let shown = self.show(principal, store_id, field, point, memory.clone(), view).await;
                let shown = ShownVersion::or_lost(shown, store_id, memory)?;
                Ok(ShownPastItem::Memory(Box::new(shown)))
            })
            .buffered(FETCHES_AT_ONCE)
            .try_collect()
            .await
    }

    async fn show(
        &self,
        principal: &Principal,
        store_id: StoreId,
        field: &'static str,
        point: Point,
        memory: PastMemory,
        view: View,
    ) -> Result<ShownPastMemory, EngineError> {
        let (memory, content) = match view {
            View::Basic => (memory, None),
            View::Full => self.content(principal, store_id, field, point, memory).await?,
        };
        if content.is_some() {
            self.access.record_version(principal, store_id, memory.version_id);
        }
        Ok(ShownVersion { store_id, version: memory, content, lost: None })
    }

    /// Reads the content of a past state of a memory. If the content is missing, reads the state
    /// again, since a redaction may have removed it; returns the state that was read last.
    async fn content(
        &self,
        principal: &Principal,
        store_id: StoreId,
        field: &'static str,
        mut point: Point,
        mut memory: PastMemory,
    ) -> Result<(PastMemory, Option<Arc<str>>), EngineError> {
        let tenant_id = principal.tenant_id;
        for _ in 0..MAX_READS {
            let Some(recorded) = memory.content else {
                return Ok((memory, None));
            };
            let key = BlobKey { tenant_id, store_id, blob_id: recorded.blob_id };
            let text = self.contents.at(key, point.store.purge_epoch, recorded).await?;
            if text.is_some() {
                return Ok((memory, text));
            }
            let past = &self.context.index.past;
            let again = past.find(tenant_id, store_id, Moment::Seq(point.seq), memory.memory_id).await;
            let (now, found) = again.map_err(refusal(field))?;
            let found = found.ok_or(EngineError::NotFound(ObjectKind::Memory))?;
            if found.content == memory.content && now.store.purge_epoch == point.store.purge_epoch {
                let path = memory.path.as_ref().map(MemoryPath::as_str).unwrap_or_default();
                return Err(missing_at(tenant_id, store_id, path, memory.version_id));
            }
            (point, memory) = (now, found);
        }
        Err(EngineError::Damaged("its blob went missing again and again"))
    }
}

/// The size of an item's content.
fn content_bytes(item: &PastItem) -> u64 {
    match item {
        PastItem::Memory(memory) => memory.content.map_or(0, |content| content.size_bytes),
        PastItem::Prefix(_) => 0,
    }
}

/// A place in a list of the memories at a point.
#[derive(Debug, Clone)]
struct PastPosition {
    seq: i64,
    place: PastPlace,
}

impl Place for PastPosition {
    fn encode(&self) -> Vec<u8> {
        let mut bytes = self.seq.encode();
        match &self.place {
            PastPlace::Path(path) => bytes.extend(path.as_bytes()),
            PastPlace::Redacted(memory_id) => {
                bytes.push(0);
                bytes.extend(memory_id.encode());
            }
        }
        bytes
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let (seq, place) = bytes.split_at_checked(8)?;
        let place = match place.strip_prefix(&[0]) {
            Some(memory_id) => PastPlace::Redacted(MemoryId::decode(memory_id)?),
            None => PastPlace::Path(String::decode(place)?),
        };
        Some(Self { seq: i64::decode(seq)?, place })
    }
}
