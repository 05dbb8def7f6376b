//! The readers of versions.
//!
//! Replicas note reads in memory and write them later, with the access times, so an answer says
//! through which time it is complete. A replica that dies loses its last reads, so an answer also
//! says since when it is complete.

use keepsake_core::{MemoryId, MemoryPath, ObjectKind, SessionId, StoreId, Timestamp, VersionId};
use keepsake_index::{
    MemoryReader, MemoryTarget, ReadVersions, ReaderCounts, ReaderPage, ReaderPlace, Scope, Target,
};
use serde::Serialize;
use tracing::Instrument;
use utoipa::ToSchema;

use crate::cursor::{Place, Query};
use crate::shared::service;
use crate::{EngineError, Page, PageRequest, Principal, Sessions};

/// Maximum number of readers that are counted.
const MAX_COUNTED: u32 = 1_000;

/// Which readers are listed. Several conditions must all be true.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ReaderQuery {
    pub memory_id: Option<MemoryId>,
    pub version_id: Option<VersionId>,
    /// The path of a memory.
    pub path: Option<String>,
    pub page: PageRequest,
}

/// A page of readers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = MemoryReaderList)]
pub struct ReaderList {
    #[serde(rename = "data")]
    pub items: Vec<MemoryReader>,
    /// Send it as `page` to get the next page; null: this is the last page.
    #[serde(rename = "next_page")]
    #[schema(required)]
    pub next: Option<String>,
    /// No read since this time is missing, unless its version was removed; null: reads are not
    /// recorded.
    #[schema(required)]
    pub complete_from: Option<Timestamp>,
    /// No read before this time is missing.
    pub complete_through: Timestamp,
}

impl Place for ReaderPlace {
    fn encode(&self) -> Vec<u8> {
        serde_json::to_vec(self).unwrap_or_default()
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        serde_json::from_slice(bytes).ok()
    }
}

service!(pub Readers(shared) { sessions: Sessions = Sessions::new(shared) });

impl Readers {
    /// Lists who was shown versions of a store: of the newest memory and version first, and of
    /// a version those in the newest session first. A path must be that of a live memory.
    #[tracing::instrument(name = "engine.readers", level = "debug", skip_all, fields(gen_ai.memory.store.id = %store_id))]
    pub async fn of_store(
        &self,
        principal: &Principal,
        store_id: StoreId,
        query: &ReaderQuery,
    ) -> Result<ReaderList, EngineError> {
        principal.require_outside_session(Scope::MemoryRead, store_id)?;
        let path = query.path.as_deref().map(MemoryPath::parse_normalised).transpose();
        let path = path.map_err(|rule| EngineError::invalid("path", rule.to_string()))?;
        let limit = query.page.limit(false)?;
        let tenant_id = principal.tenant_id;
        let Some(versions) = self.versions(principal, store_id, query, path.as_ref()).await? else {
            return Err(EngineError::NotFound(ObjectKind::Version));
        };
        let identity = Query::filtered("readers", tenant_id, &(store_id, versions))?;
        let after: Option<ReaderPlace> = self.context.cursors.after(identity, &query.page).await?;
        let written = self.write_reads(principal).await?;
        let reads = &self.context.index.reads;
        // One more item shows whether there is another page.
        let found = reads.of_store(tenant_id, store_id, versions, after.as_ref(), limit + 1).await?;
        let found = found.ok_or(EngineError::NotFound(ObjectKind::Store))?;
        self.list(principal, identity, found, limit, written).await
    }

    /// Lists the versions that a session was shown, the last one first, in stores that the
    /// credential may see.
    #[tracing::instrument(name = "engine.session_reads", level = "debug", skip_all)]
    pub async fn of_session(
        &self,
        principal: &Principal,
        session_id: SessionId,
        page: &PageRequest,
    ) -> Result<ReaderList, EngineError> {
        principal.require_no_session()?;
        let session = self.sessions.get(principal, session_id).await?;
        let limit = page.limit(false)?;
        let tenant_id = principal.tenant_id;
        let identity = Query::filtered("session_reads", tenant_id, &session_id)?;
        let after: Option<ReaderPlace> = self.context.cursors.after(identity, page).await?;
        let written = self.write_reads(principal).await?;
        let only = principal.granted_store_ids();
        let reads = &self.context.index.reads;
        let mut found = reads.of_session(tenant_id, session_id, only, after.as_ref(), limit + 1).await?;
        found.recorded_from = found.recorded_from.max(Some(session.created_at));
        self.list(principal, identity, found, limit, written).await
    }

    /// Counts the readers of a memory, or of one version of it: at most 1,000, as far as
    /// their reads are written.
    #[tracing::instrument(name = "engine.reader_counts", level = "debug", skip_all, fields(gen_ai.memory.store.id = %store_id))]
    pub async fn counts(
        &self,
        principal: &Principal,
        store_id: StoreId,
        versions: ReadVersions,
    ) -> Result<ReaderCounts, EngineError> {
        principal.require_outside_session(Scope::MemoryRead, store_id)?;
        let reads = &self.context.index.reads;
        Ok(reads.counts(principal.tenant_id, store_id, versions, MAX_COUNTED).await?)
    }

    /// The versions of a query; `None`: no version fulfils all its conditions.
    async fn versions(
        &self,
        principal: &Principal,
        store_id: StoreId,
        query: &ReaderQuery,
        path: Option<&MemoryPath>,
    ) -> Result<Option<ReadVersions>, EngineError> {
        let (context, tenant_id) = (&self.context, principal.tenant_id);
        let mut memory_id = query.memory_id;
        if let Some(path) = path {
            let Target::Memory(head) = context.look_up(tenant_id, store_id, Some(path)).await?.target else {
                return Err(EngineError::NotFound(ObjectKind::Memory));
            };
            if memory_id.is_some_and(|memory_id| memory_id != head.memory_id) {
                return Ok(None);
            }
            memory_id = Some(head.memory_id);
        }
        if let Some(version_id) = query.version_id {
            let (_, version) = context.find_version(tenant_id, store_id, version_id).await?;
            let is_of_memory = memory_id.is_none_or(|memory_id| memory_id == version.memory_id);
            return Ok(is_of_memory.then_some(ReadVersions::Version(version.memory_id, version_id)));
        }
        let Some(memory_id) = memory_id else {
            return Ok(Some(ReadVersions::Store));
        };
        if context.find_memory(tenant_id, store_id, memory_id).await?.target == MemoryTarget::Missing {
            return Err(EngineError::NotFound(ObjectKind::Memory));
        }
        Ok(Some(ReadVersions::Memory(memory_id)))
    }

    /// Writes the reads of this replica. Returns the time before which reads of a replica that
    /// died may be lost, and the time before which the other reads of all replicas are written.
    async fn write_reads(
        &self,
        principal: &Principal,
    ) -> Result<(Option<Timestamp>, Timestamp), EngineError> {
        let (slot, access) = (self.pages.take(principal.tenant_id).await?, self.access.clone());
        let flush = async move {
            let _slot = slot;
            access.write().await
        };
        // The flush goes on if the client goes away: the reads of a flush that ends during its commit are
        // written again.
        if let Ok(Err(error)) = tokio::spawn(flush.in_current_span()).await {
            tracing::debug!(error = %error, "engine.flush_access failed; the answer lacks the last reads");
        }
        let (context, own) = (&self.context, self.access.flushed_through());
        let others = context.index.replicas.others_flushed(context.replica, context.now()).await?;
        Ok((others.lost_before, others.through.map_or(own, |through| through.min(own))))
    }

    async fn list(
        &self,
        principal: &Principal,
        identity: Query,
        found: ReaderPage,
        limit: u32,
        (lost_before, complete_through): (Option<Timestamp>, Timestamp),
    ) -> Result<ReaderList, EngineError> {
        let records = principal.limits.read_retention_secs > 0;
        let place = |reader: &MemoryReader| ReaderPlace::from(reader);
        let Page { items, next } = self.context.cursors.page(identity, found.readers, limit, place).await?;
        let recorded_from = found.recorded_from.filter(|_| records);
        let complete_from = recorded_from.map(|from| from.max(lost_before.unwrap_or(from)));
        Ok(ReaderList { items, next, complete_from, complete_through })
    }
}
