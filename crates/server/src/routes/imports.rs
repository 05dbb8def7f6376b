//! `/v1/memory_stores/{memory_store_id}/import`

use axum::extract::{FromRequest, Request, State};
use keepsake_archive::plan::OnConflict;
use keepsake_archive::report::ReportEntry;
use keepsake_core::words::counted;
use keepsake_core::{DirPath, StoreId};
use keepsake_engine::{Engine, HistoryPart, ImportOptions, MAX_ARCHIVE_BYTES, MAX_VERSIONS};
use serde::Serialize;
use utoipa::ToSchema;

use crate::answer::{Answer, Json};
use crate::auth::{Caller, presented};
use crate::body::{JsonBody, ReceivedRequest, is_of_type, require_json};
use crate::envelope::deadline_of;
use crate::error::ApiError;
use crate::path::Path;
use crate::query::{QueryParams, query_params};
use crate::schemas::{self, MemoryStoreImportType};

const ARCHIVE: &str = "application/zstd";
/// Maximum number of files in an answer.
const MAX_SHOWN: usize = 300;
/// Limit of the body with a history; it replaces the tenant's limits.
const MAX_HISTORY_BYTES: u64 = 8 << 20;
/// A version has at most 10 JSON values.
const MAX_HISTORY_VALUES: usize = 16 * MAX_VERSIONS;

type HistoryBody = JsonBody<HistoryPart, MAX_HISTORY_VALUES, MAX_HISTORY_BYTES>;

query_params! {
    /// How an archive is imported. With a history, these parameters are refused.
    ImportMemoryStore {
        /// The action if a memory has other content: `fail`, the default, imports nothing,
        /// `skip` keeps the memory, and `replace` gives it the imported content as a new version.
        #[param(value_type = Option<schemas::OnConflict>, inline)]
        on_conflict: Option<OnConflict> = word("on_conflict", OnConflict::parse, "`fail`, `skip` or `replace`"),
        /// The directory that receives the memories, such as `/notes/`; `/` if it is omitted.
        #[param(value_type = Option<DirPath>)]
        prefix: Option<String> = text("prefix"),
        /// Whether to write nothing, and only to answer what would be imported.
        dry_run: Option<bool> = flag("dry_run"),
    }
}

impl ImportMemoryStore {
    fn require_none(&self) -> Result<(), ApiError> {
        let given = [
            ("on_conflict", self.on_conflict.is_some()),
            ("prefix", self.prefix.is_some()),
            ("dry_run", self.dry_run.is_some()),
        ];
        match given.into_iter().find(|(_, is_given)| *is_given) {
            None => Ok(()),
            Some((name, _)) => {
                let rule = format!("`{name}` is a parameter of archives, but the body is a history");
                Err(ApiError::invalid_request(rule))
            }
        }
    }
}

/// The body of an import, by its content type.
pub(crate) enum ImportBody {
    Archive(ReceivedRequest),
    History(HistoryBody),
}

impl FromRequest<Engine> for ImportBody {
    type Rejection = ApiError;

    async fn from_request(request: Request, engine: &Engine) -> Result<Self, ApiError> {
        if is_of_type(request.headers(), ARCHIVE) {
            return ReceivedRequest::read(request, engine, MAX_ARCHIVE_BYTES).await.map(Self::Archive);
        }
        let expected = "application/zstd, or application/json for a history";
        require_json(request.headers()).map_err(|_| ApiError::unsupported_media_type(expected))?;
        HistoryBody::from_request(request, engine).await.map(Self::History)
    }
}

#[derive(Debug, Serialize, ToSchema)]
#[serde(untagged)]
pub(crate) enum MemoryStoreImport {
    History(HistoryImport),
    Archive(ArchiveImport),
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

/// What became of an archive.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ArchiveImport {
    #[schema(inline)]
    r#type: MemoryStoreImportType,
    memory_store_id: StoreId,
    /// Nothing was written: the answer says what would be.
    dry_run: bool,
    counts: ImportCounts,
    /// The files that were not imported as a whole, by path; at most 300.
    data: Vec<ImportedFile>,
    /// The number of such files that are not in `data`.
    not_shown: usize,
    /// Why the import ended early; null if it is complete. The same archive continues it.
    #[schema(required)]
    stopped: Option<String>,
    /// The number of versions in the archive: its history is not imported.
    versions_not_imported: usize,
    /// Why memories of the exported store are not in the archive.
    left_out: Vec<String>,
}

/// The number of files with each result.
#[derive(Debug, Serialize, ToSchema)]
struct ImportCounts {
    created: usize,
    /// The memory had other content, or another pin or expiry time.
    replaced: usize,
    /// The memory has this content already.
    unchanged: usize,
    /// The memory has other content, and was kept.
    skipped: usize,
    refused: usize,
}

/// A file of an archive that was not imported as a whole.
#[derive(Debug, Serialize, ToSchema)]
struct ImportedFile {
    /// The path of its memory.
    path: String,
    #[schema(value_type = schemas::ImportResult)]
    result: &'static str,
    /// Why it was not imported, or what its memory lacks.
    reason: String,
}

impl ImportedFile {
    fn of(file: &ReportEntry) -> Option<Self> {
        let reason = file.reason()?.to_owned();
        Some(Self { path: file.path.clone(), result: file.outcome.name(), reason })
    }
}

/// Import into a memory store
///
/// As `application/zstd`, an archive that `GET …/export` made, of at most 16 MiB: its
/// memories are written as they are now, without their history. The archive is verified as
/// a whole before anything is written, and may unpack to 50 times its size, at least to 16
/// and at most to 256 MiB. If it is damaged, the message names the file. If a memory has other content, the answer is 409, unless
/// `on_conflict` says what to do. An import that was stopped or broken off is continued by
/// the same archive.
///
/// As `application/json`, a part of a history: the versions of another memory store, with
/// their content, order, times and authors, are written into an empty memory store, part by
/// part, oldest version first. Each part is written as a whole or not at all. Memories and
/// versions get new ids. A memory store with a version that was not imported is refused.
/// The error of a refused version has its index in `operation`. The body may have 8 MiB.
#[utoipa::path(
    post,
    path = "/memory_stores/{memory_store_id}/import",
    operation_id = "memory_stores.import",
    params(ImportMemoryStore),
    request_body(content((HistoryPart = "application/json"), (inline(schemas::Archive) = "application/zstd"))),
    responses((status = 200, description = "What was imported.", body = MemoryStoreImport)),
)]
pub(crate) async fn import(
    State(engine): State<Engine>,
    Path(store_id): Path<StoreId>,
    QueryParams(params): QueryParams<ImportMemoryStore>,
    body: ImportBody,
) -> Answer<MemoryStoreImport> {
    let imported = match body {
        ImportBody::History(JsonBody(Caller(engine, principal), part, _)) => {
            params.require_none()?;
            MemoryStoreImport::History(HistoryImport {
                r#type: MemoryStoreImportType,
                memory_store_id: store_id,
                position: engine.memories.import(&principal, store_id, part).await?,
            })
        }
        ImportBody::Archive(received) => {
            MemoryStoreImport::Archive(import_archive(&engine, store_id, params, received).await?)
        }
    };
    Ok(Json(imported))
}

async fn import_archive(
    engine: &Engine,
    store_id: StoreId,
    params: ImportMemoryStore,
    ReceivedRequest { principal, head, bytes, .. }: ReceivedRequest,
) -> Result<ArchiveImport, ApiError> {
    let options = ImportOptions {
        on_conflict: params.on_conflict.unwrap_or(OnConflict::Fail),
        is_dry_run: params.dry_run.unwrap_or_default(),
        deadline: deadline_of(&head),
    };
    let prefix = params.prefix.as_deref().unwrap_or("/");
    engine.imports.target(&principal, store_id).await?;
    let archive = engine.imports.verify(&principal, bytes, prefix).await?;
    let credential = presented(&head.headers)?;
    let authenticate = || credential.authenticate(engine);
    let imported = engine.imports.write(archive, store_id, options, authenticate).await?;
    let mut report = imported.report;
    if imported.is_refused {
        let first = report.conflicts().next().unwrap_or_default();
        return Err(ApiError::state_conflict(format!(
            "nothing was imported: the memory store has something else at {}, the first is {first}; \
             `on_conflict=skip` or `on_conflict=replace` imports the rest",
            counted(report.conflicts().count() as u64, "path")
        )));
    }
    let [created, replaced, unchanged, skipped, refused] = report.counts().map(|(_, count)| count);
    let mut data: Vec<_> = report.sorted().iter().filter_map(ImportedFile::of).collect();
    let not_shown = data.len().saturating_sub(MAX_SHOWN);
    data.truncate(MAX_SHOWN);
    Ok(ArchiveImport {
        r#type: MemoryStoreImportType,
        memory_store_id: store_id,
        dry_run: options.is_dry_run,
        counts: ImportCounts { created, replaced, unchanged, skipped, refused },
        data,
        not_shown,
        stopped: imported.stopped,
        versions_not_imported: imported.versions,
        left_out: imported.left_out,
    })
}
