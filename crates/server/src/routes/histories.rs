//! The import of a history.

use keepsake_core::actor::VersionActor;
use keepsake_core::{MemoryPath, StoreId, Timestamp};
use keepsake_engine::{Engine, HistoryPart, ImportedRedaction, ImportedVersion, MAX_VERSIONS};
use keepsake_index::Operation;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::body::{JsonBody, parse_time};
use crate::error::ApiError;
use crate::schemas::{self, MemoryStoreImportType};

/// Limit of the body; it replaces the tenant's limits.
const MAX_BYTES: u64 = 8 << 20;
/// A version has at most 10 JSON values.
const MAX_VALUES: usize = 16 * MAX_VERSIONS;

pub(super) type HistoryBody = JsonBody<History, MAX_VALUES, MAX_BYTES>;

/// A part of a history.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct History {
    /// The number of versions that the memory store has, all of them imported; 0 at first.
    position: u64,
    /// The next versions, oldest first; at most 500, together with the redactions.
    #[serde(default)]
    #[schema(max_items = 500)]
    versions: Vec<HistoryVersion>,
    /// Redactions of imported versions.
    #[serde(default)]
    #[schema(max_items = 500)]
    redactions: Vec<HistoryRedaction>,
}

/// A version of another memory store.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct HistoryVersion {
    /// The id that the memory has there.
    #[schema(value_type = schemas::ForeignId)]
    memory_id: String,
    /// What the version did.
    #[schema(value_type = Operation)]
    operation: String,
    /// The memory's path after the version; may be omitted for a deletion.
    #[schema(value_type = Option<MemoryPath>)]
    path: Option<String>,
    /// The memory's content after the version; omitted for a deletion.
    #[schema(value_type = Option<schemas::Content>)]
    content: Option<String>,
    /// When it was made; not in the future.
    #[schema(value_type = Timestamp)]
    created_at: String,
    /// Who made it; null if unknown.
    created_by: Option<VersionActor>,
}

/// A redaction in another memory store.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct HistoryRedaction {
    /// The version's place in the history; the first version has 1.
    version: u64,
    /// When it was redacted; not in the future.
    #[schema(value_type = Timestamp)]
    redacted_at: String,
    /// Who redacted it; null if unknown.
    redacted_by: Option<VersionActor>,
}

/// How much of a history is imported.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct HistoryImport {
    #[schema(inline)]
    r#type: MemoryStoreImportType,
    memory_store_id: StoreId,
    /// The number of versions that were imported; the next call's `position`.
    position: u64,
}

impl HistoryVersion {
    fn parsed(self) -> Result<ImportedVersion, ApiError> {
        let operation = Operation::parse(&self.operation).ok_or_else(|| {
            ApiError::invalid_request("`operation` must be `created`, `modified` or `deleted`")
        })?;
        Ok(ImportedVersion {
            memory_id: self.memory_id,
            operation,
            path: self.path,
            content: self.content,
            created_at: parse_time("created_at", &self.created_at)?,
            created_by: self.created_by.map(VersionActor::into_parts),
        })
    }
}

impl HistoryRedaction {
    fn parsed(self) -> Result<ImportedRedaction, ApiError> {
        Ok(ImportedRedaction {
            version: self.version,
            redacted_at: parse_time("redacted_at", &self.redacted_at)?,
            redacted_by: self.redacted_by.map(VersionActor::into_parts),
        })
    }
}

pub(super) async fn import(
    engine: &Engine,
    store_id: StoreId,
    JsonBody(principal, body, _): HistoryBody,
) -> Result<HistoryImport, ApiError> {
    let versions = body.versions.into_iter().map(HistoryVersion::parsed);
    let redactions = body.redactions.into_iter().map(HistoryRedaction::parsed);
    let part = HistoryPart {
        position: body.position,
        versions: versions.collect::<Result<_, _>>()?,
        redactions: redactions.collect::<Result<_, _>>()?,
    };
    let position = engine.memories.import(&principal, store_id, part).await?;
    Ok(HistoryImport { r#type: MemoryStoreImportType, memory_store_id: store_id, position })
}
