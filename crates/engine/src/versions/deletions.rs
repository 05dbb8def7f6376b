//! The memories of a store that were deleted and can be restored.

use std::time::Duration;

use keepsake_core::actor::VersionActor;
use keepsake_core::schemas::MemoryDeletionType;
use keepsake_core::{Actor, ContentHash, MemoryId, MemoryPath, ObjectKind, StoreId, Timestamp, VersionId};
use keepsake_index::{Deletion, Scope};
use serde::Serialize;
use utoipa::ToSchema;

use super::Versions;
use crate::cursor::Query;
use crate::request_fields::parse_path;
use crate::{EngineError, Page, PageRequest, Principal};

/// A memory that was deleted and can be restored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct MemoryDeletion {
    #[schema(inline)]
    pub r#type: MemoryDeletionType,
    pub memory_store_id: StoreId,
    pub memory_id: MemoryId,
    /// The path that the memory had.
    #[schema(required)]
    pub path: Option<MemoryPath>,
    /// The version that recorded the deletion.
    pub deletion_version_id: VersionId,
    /// The version before; restore it to bring the memory back.
    pub memory_version_id: VersionId,
    /// The size of the content that the memory had.
    #[schema(required)]
    pub content_size_bytes: Option<u64>,
    /// The hash of the content that the memory had.
    #[schema(required)]
    pub content_sha256: Option<ContentHash>,
    pub deleted_at: Timestamp,
    /// Null for a job or the operator.
    #[schema(value_type = Option<VersionActor>, required)]
    pub deleted_by: Option<Actor>,
    /// From then on, a job removes the memory with its versions.
    pub restorable_until: Timestamp,
}

impl MemoryDeletion {
    fn of(store_id: StoreId, deletion: Deletion, kept_for: Duration) -> Self {
        let Deletion { version, restorable } = deletion;
        Self {
            r#type: MemoryDeletionType,
            memory_store_id: store_id,
            memory_id: version.memory_id,
            path: version.path,
            deletion_version_id: version.version_id,
            memory_version_id: restorable,
            content_size_bytes: version.content.map(|content| content.size_bytes),
            content_sha256: version.content.map(|content| content.sha256),
            deleted_at: version.created_at,
            deleted_by: version.created_by,
            restorable_until: version.created_at.plus(kept_for),
        }
    }
}

impl Versions {
    /// The last deleted first. With a path, only memories that were deleted there.
    #[tracing::instrument(name = "engine.deletions", level = "debug", skip_all, fields(gen_ai.memory.store.id = %store_id))]
    pub async fn deletions(
        &self,
        principal: &Principal,
        store_id: StoreId,
        path: Option<&str>,
        page: &PageRequest,
    ) -> Result<Page<MemoryDeletion>, EngineError> {
        principal.require_outside_session(Scope::MemoryRead, store_id)?;
        let path = path.map(parse_path).transpose()?;
        let limit = page.limit(false)?;
        let identity = Query::filtered("deletions", principal.tenant_id, &(store_id, &path))?;
        let cursors = &self.context.cursors;
        let before = cursors.after(identity, page).await?;
        // Deletions of memories that cannot be restored are read, too.
        let _slot = self.pages.take(principal.tenant_id).await?;
        let versions = &self.context.index.versions;
        // One more item shows whether there is another page.
        let found =
            versions.deletions(principal.tenant_id, store_id, path.as_ref(), before, limit + 1).await?;
        let found = found.ok_or(EngineError::NotFound(ObjectKind::Store))?;
        let found = cursors.page(identity, found, limit, |deletion| deletion.version.seq).await?;
        let kept_for = Duration::from_secs(principal.limits.version_retention_secs);
        Ok(found.map(|deletion| MemoryDeletion::of(store_id, deletion, kept_for)))
    }
}
