//! The import of a history.

use keepsake_core::StoreId;
use keepsake_engine::{HistoryPart, MAX_VERSIONS};
use serde::Serialize;
use utoipa::ToSchema;

use crate::auth::Caller;
use crate::body::JsonBody;
use crate::error::ApiError;
use crate::schemas::MemoryStoreImportType;

/// Limit of the body; it replaces the tenant's limits.
const MAX_BYTES: u64 = 8 << 20;
/// A version has at most 10 JSON values.
const MAX_VALUES: usize = 16 * MAX_VERSIONS;

pub(super) type HistoryBody = JsonBody<HistoryPart, MAX_VALUES, MAX_BYTES>;

/// How much of a history is imported.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct HistoryImport {
    #[schema(inline)]
    r#type: MemoryStoreImportType,
    memory_store_id: StoreId,
    /// The number of versions that were imported; the next call's `position`.
    position: u64,
}

pub(super) async fn import(
    store_id: StoreId,
    JsonBody(Caller(engine, principal), part, _): HistoryBody,
) -> Result<HistoryImport, ApiError> {
    let position = engine.memories.import(&principal, store_id, part).await?;
    Ok(HistoryImport { r#type: MemoryStoreImportType, memory_store_id: store_id, position })
}
