//! Import and export: an archive to save or to send, and the commands for more.

use askama::Template;
use axum::Extension;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use keepsake_archive::plan::OnConflict;
use keepsake_archive::report::{Report, ReportEntry};
use keepsake_core::id::StoreKind;
use keepsake_core::{ContentHash, StoreId, words};
use keepsake_engine::{Engine, EngineError, ImportOptions, MAX_ARCHIVE_BYTES, StoreDraft, VersionQuery};
use keepsake_index::{Scope, Store};

use super::keys::url_of;
use super::stores::{may_create_stores, stores_to_choose};
use super::undo::changes_href;
use super::version::newest_seq;
use crate::frame::Frame;
use crate::names::SharedNames;
use crate::page::{PageResult, Refusal, page, page_with};
use crate::request::{Caller, Form, Upload};
use crate::sign_in::ConsoleOptions;
use crate::text::markup;

#[derive(Template)]
#[template(path = "transfer.html")]
struct TransferPage {
    frame: Frame,
    url: String,
    stores: Vec<Store>,
    /// The store that the commands name. `None`: there is no store.
    chosen: Option<StoreId>,
    file: String,
    may_import: bool,
    may_create: bool,
    once: String,
}

/// File name of a store's archive.
pub fn archive_name(store: &str) -> String {
    let words = store.split(|letter: char| !letter.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
    let name = words.collect::<Vec<_>>().join("-").to_ascii_lowercase();
    let name = if name.is_empty() { "memories" } else { &name };
    format!("{name}.tar.zst")
}

pub(super) async fn show(
    Extension(options): Extension<ConsoleOptions>,
    headers: HeaderMap,
    caller: Caller,
) -> PageResult {
    let mut stores = stores_to_choose(&caller, true).await?;
    let chosen = caller.query.id::<StoreKind>("store")?.or(stores.first().map(|store| store.store_id));
    if let Some(store_id) = chosen
        && !stores.iter().any(|store| store.store_id == store_id)
    {
        stores.insert(0, caller.engine.stores.get(&caller.principal, store_id).await?);
    }
    let name = stores.iter().find(|store| Some(store.store_id) == chosen).map(|store| store.name.as_str());
    page(&TransferPage {
        frame: caller.frame("Import and export"),
        url: url_of(&options, &headers),
        file: archive_name(name.unwrap_or_default()),
        may_import: caller.may(Scope::MemoryRead) && caller.may(Scope::MemoryWrite),
        may_create: may_create_stores(&caller),
        once: caller.engine.new_uuid().to_string(),
        stores,
        chosen,
    })
}

/// Limit of a form with an archive.
pub const MAX_UPLOAD_BYTES: u64 = MAX_ARCHIVE_BYTES;
/// The first bytes of a file that zstd made.
const ZSTD: [u8; 4] = [0x28, 0xB5, 0x2F, 0xFD];
/// Maximum number of files on the page.
const MAX_SHOWN: usize = 300;

#[derive(Template)]
#[template(path = "imported.html")]
struct ImportedPage {
    frame: Frame,
    store: Store,
    file: String,
    /// Nothing was imported, because memories of the store have other content.
    is_refused: bool,
    /// Why the import ended early.
    stopped: Option<String>,
    counts: Vec<(&'static str, String)>,
    rows: Vec<ReportEntry>,
    not_shown: u64,
    /// Versions in the archive, which are not imported.
    versions: u64,
    /// Memories that were written without their expiry time.
    lacking: u64,
    /// Why memories of the exported store are not in the archive.
    left_out: Vec<String>,
    /// The page that plans to take the import back. `None`: nothing was imported, or the person may not.
    undo_href: Option<String>,
}

enum ImportTarget {
    There(Box<Store>),
    New(StoreDraft),
}

pub(super) async fn import(
    State(engine): State<Engine>,
    Extension(upload): Extension<Upload>,
    headers: HeaderMap,
    mut form: Form,
) -> PageResult {
    let on_conflict = OnConflict::parse(form.fields.text("on_conflict"));
    let on_conflict =
        on_conflict.ok_or_else(|| Refusal::invalid("`on_conflict` must be `fail`, `skip` or `replace`"))?;
    let target = target_of(&engine, &form).await?;
    if upload.file.is_empty() {
        return Err(Refusal::invalid("`file` must be an archive, a file that ends in .tar.zst"));
    }
    let file = upload.file.clone();
    let hashing = engine.computations.run(form.caller.principal.tenant_id, move || ContentHash::of(&file));
    let file_hash = hashing.await?;
    let is_compressed = upload.file.starts_with(&ZSTD);
    let archive = engine.imports.verify(&form.caller.principal, upload.file, "/").await;
    let archive = archive.map_err(|error| match error {
        EngineError::DamagedArchive(_) if !is_compressed => Refusal::Invalid(format!(
            "{} is no archive: choose a file that ends in .tar.zst. Nothing was imported.",
            upload.file_name
        )),
        EngineError::DamagedArchive(damage) => {
            Refusal::Invalid(format!("{} is damaged: {damage}. Nothing was imported.", upload.file_name))
        }
        error => error.into(),
    })?;
    // Another file is another import.
    form.fields.add("file_sha256", file_hash.to_string());
    let principal = &form.caller.principal;
    let store = match target {
        ImportTarget::There(store) => *store,
        ImportTarget::New(draft) => engine.stores.create(principal, draft, form.call()?).await?,
    };
    let newest_seq = newest_seq(&form, store.store_id, VersionQuery::default()).await?;
    let options = ImportOptions { on_conflict, is_dry_run: false, deadline: upload.deadline };
    let credential = credential_of(&headers);
    let authenticate = || engine.auth.authenticate(credential);
    let imported = engine.imports.write(archive, store.store_id, options, authenticate).await?;
    let mut report = imported.report;
    let status = if imported.is_refused { StatusCode::CONFLICT } else { StatusCode::OK };
    let (rows, not_shown) = rows_of(&mut report);
    let undo_href = changes_href(&form, store.store_id, form.principal.actor(), newest_seq);
    let title = format!("Import into {}", store.name);
    page_with(
        status,
        &ImportedPage {
            undo_href: undo_href.filter(|_| !imported.is_refused),
            frame: form.caller.frame(title),
            store,
            file: upload.file_name,
            is_refused: imported.is_refused,
            stopped: imported.stopped,
            counts: report.counts().map(|(name, number)| (name, words::count(number as u64))).to_vec(),
            rows,
            not_shown: not_shown as u64,
            versions: imported.versions as u64,
            lacking: report.lacking() as u64,
            left_out: imported.left_out,
        },
    )
}

/// Finds the store that the form names and checks that the person may import into it.
async fn target_of(engine: &Engine, form: &Form) -> Result<ImportTarget, Refusal> {
    let principal = &form.caller.principal;
    principal.require(Scope::MemoryRead)?;
    if let Some(store_id) = form.fields.id::<StoreKind>("store")? {
        let store = engine.imports.target(principal, store_id).await?;
        return Ok(ImportTarget::There(Box::new(store)));
    }
    principal.require(Scope::MemoryWrite)?;
    principal.require(Scope::StoresAdmin)?;
    let name = form.fields.filled("name").map(str::to_owned);
    let name = name.ok_or_else(|| Refusal::invalid("`name` of the new store must not be empty"))?;
    Ok(ImportTarget::New(StoreDraft { name, ..StoreDraft::default() }))
}

fn credential_of(headers: &HeaderMap) -> &str {
    let value = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    value.and_then(|value| value.strip_prefix("Bearer ")).unwrap_or_default()
}

/// The first [`MAX_SHOWN`] files of the report, those with a reason first, and the number of the
/// others.
fn rows_of(report: &mut Report) -> (Vec<ReportEntry>, usize) {
    let sorted = report.sorted();
    let (not_written, written): (Vec<_>, Vec<_>) = sorted.iter().partition(|file| file.reason().is_some());
    let rows = not_written.into_iter().chain(written).take(MAX_SHOWN).cloned();
    (rows.collect(), sorted.len().saturating_sub(MAX_SHOWN))
}
