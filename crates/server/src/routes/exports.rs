//! `/v1/memory_stores/{memory_store_id}/export`

use std::io;

use axum::body::{Body, Bytes};
use axum::response::Response;
use futures::stream;
use keepsake_console::{archive_name, download};
use keepsake_core::StoreId;
use keepsake_engine::{Engine, Export, ExportExtent, ExportForm, ShownVersion};
use serde_json::Value;

use super::list::PastMoment;
use super::memory_versions::MemoryVersion;
use crate::auth::{Caller, LastingCredential};
use crate::error::ApiError;
use crate::path::Path;
use crate::query::{QueryParams, query_params};
use crate::schemas;

query_params! {
    /// The extent of an archive.
    ExportMemoryStore {
        /// Whether to include the history: all versions with their contents.
        versions: Option<bool> = flag("versions"),
    }
}

/// Export a memory store
///
/// The memories of the store at one moment, now or with `at` or `at_seq` in the past, as an archive that `keepsake import` reads: a
/// `.tar.zst`, sent while it is read. A content that is missing or damaged is left out, and
/// `keepsake.json` in the archive says why. If a version is redacted or removed meanwhile,
/// or the credential ends, the answer is broken off. An export does not count as a use of
/// the memories. An archive of the past has no versions, pins and expiry times.
#[utoipa::path(
    get,
    path = "/memory_stores/{memory_store_id}/export",
    operation_id = "memory_stores.export",
    params(ExportMemoryStore, PastMoment),
    responses((
        status = 200,
        description = "The archive.",
        body = inline(schemas::Archive),
        content_type = "application/zstd",
    )),
)]
pub(crate) async fn export(
    Caller(engine, principal): Caller,
    Path(store_id): Path<StoreId>,
    QueryParams((params, at)): QueryParams<(ExportMemoryStore, PastMoment)>,
    credential: LastingCredential,
) -> Result<Response, ApiError> {
    let extent = ExportExtent { has_versions: params.versions.unwrap_or_default(), at: at.moment()? };
    let store = engine.stores.get(&principal, store_id).await?;
    let name = archive_name(&store.name);
    let Ok(Value::Object(store)) = serde_json::to_value(store) else {
        return Err(ApiError::internal());
    };
    let form = ExportForm { store, version: version_line };
    let export = engine.exports.begin(&principal, store_id, extent, form).await?;
    let sending = ExportStream { engine, credential, store_id, export };
    let chunks = stream::unfold(Some(sending), |sending| async move {
        let mut sending = sending?;
        match sending.next().await {
            Ok(Some(chunk)) => Some((Ok(chunk), Some(sending))),
            Ok(None) => None,
            Err(error) => {
                tracing::warn!(error.message = %error.message, "http.export was broken off");
                Some((Err(io::Error::other("the archive cannot be completed")), None))
            }
        }
    });
    Ok(download(&name, "application/zstd", Body::from_stream(chunks)))
}

fn version_line(version: ShownVersion) -> serde_json::Result<Value> {
    serde_json::to_value(MemoryVersion::from(version))
}

struct ExportStream {
    engine: Engine,
    credential: LastingCredential,
    store_id: StoreId,
    export: Export,
}

impl ExportStream {
    /// `None`: the archive is complete.
    async fn next(&mut self) -> Result<Option<Bytes>, ApiError> {
        // The credential may end while the part is waited for.
        let part = self.export.next().await?;
        if self.credential.is_due() {
            let principal = self.credential.authenticate(&self.engine).await?;
            self.engine.exports.allow(&principal, self.store_id)?;
        }
        Ok(part)
    }
}
