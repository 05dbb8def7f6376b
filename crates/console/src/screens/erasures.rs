//! Erasures: selected, previewed, confirmed, with a receipt.

use askama::Template;
use axum::http::StatusCode;
use keepsake_core::id::StoreKind;
use keepsake_core::{ErasureId, words};
use keepsake_engine::{ErasureRequest, MemoryQuery, PageRequest, ShownItem, View};
use keepsake_index::{Erasure, ErasureState, Scope, SelectorKind, StoreFilter};
use serde_json::{Map, Value};

use super::choices::{ChoiceField, StoreChoices};
use super::place;
use crate::frame::{Done, Frame};
use crate::page::{PageResult, Refusal, done, page, page_with};
use crate::path::Path;
use crate::request::{Caller, Fields, Form, Pager};
use crate::text::markup::{self, Markup, path};

const PER_PAGE: u64 = 50;
/// Stores that the preview of a selection by metadata reads.
const MAX_PREVIEWED_STORES: usize = 1_000;

const fn selected(by: SelectorKind) -> &'static str {
    match by {
        SelectorKind::Store => "a whole store",
        SelectorKind::PathPrefix => "a directory",
        SelectorKind::StoreMetadata => "stores by metadata",
    }
}

#[derive(Template)]
#[template(path = "erasures.html")]
struct ErasuresPage {
    frame: Frame,
    erasures: Vec<Erasure>,
    pager: Pager,
    stores: StoreChoices,
    store: ChoiceField,
    /// Whether the caller may see what would go.
    may_preview: bool,
    may_use_metadata: bool,
}

/// `GET /console/erasures`, or `?store=` to choose a store
pub(super) async fn list(caller: Caller) -> PageResult {
    let found = caller.engine.erasures.list(&caller.principal, &caller.query.page(PER_PAGE)).await?;
    let may_preview = caller.may(Scope::MemoryRead);
    let stores = if may_preview { StoreChoices::of(&caller, true).await? } else { StoreChoices::default() };
    page(&ErasuresPage {
        frame: caller.frame("Erase"),
        erasures: found.items,
        pager: caller.query.pager(found.next),
        store: stores.field("store", "Store", "choose", &caller.query).required(),
        stores,
        may_preview,
        may_use_metadata: !caller.principal.is_bound_to_stores(),
    })
}

/// A field that is not known might have narrowed the selection.
const FIELDS: [&str; 7] = ["store", "prefix", "metadata_name", "metadata_value", "token", "once", "confirm"];

fn request_of(fields: &Fields) -> Result<ErasureRequest, Refusal> {
    if let Some((name, _)) = fields.pairs().find(|(name, _)| !FIELDS.contains(name)) {
        return Err(Refusal::invalid(&format!("the field `{name}` is not known; nothing was chosen")));
    }
    if fields.filled("metadata_name").and(fields.filled("store")).is_some() {
        return Err(Refusal::invalid("choose a store or metadata, not both"));
    }
    if let Some(name) = fields.filled("metadata_name") {
        let value = fields.text("metadata_value").trim().to_owned();
        let pairs = Map::from_iter([(name.to_owned(), Value::from(value))]);
        return Ok(ErasureRequest { store_metadata: Some(pairs), ..ErasureRequest::default() });
    }
    let store_id = fields.id::<StoreKind>("store")?;
    let store_id = store_id.ok_or_else(|| Refusal::invalid("`store` must be chosen"))?;
    Ok(ErasureRequest {
        store_id: Some(store_id),
        path_prefix: fields.directory("prefix"),
        store_metadata: None,
    })
}

/// The data that a request would erase.
struct Selection {
    what: String,
    /// The word that the person must type.
    word: String,
    counts: Vec<String>,
    examples: Vec<Markup>,
    /// Whether there are more than the examples.
    has_more: bool,
    keeps_store: bool,
}

#[derive(Template)]
#[template(path = "erase_preview.html")]
struct PreviewPage {
    frame: Frame,
    selection: Selection,
    query: Fields,
    once: String,
    /// Why the confirmation was refused.
    problem: Option<String>,
}

pub(super) async fn preview(mut caller: Caller) -> PageResult {
    StoreChoices::of(&caller, true).await?.resolve(&mut caller, "store").await?;
    let selection = selection_of(&caller, &request_of(&caller.query)?).await?;
    page(&PreviewPage {
        frame: caller.frame("Confirm the erasure"),
        selection,
        once: caller.engine.new_uuid().to_string(),
        problem: None,
        query: caller.query,
    })
}

async fn selection_of(caller: &Caller, request: &ErasureRequest) -> Result<Selection, Refusal> {
    match (&request.store_id, &request.path_prefix, &request.store_metadata) {
        (_, _, Some(pairs)) => stores_with(caller, pairs).await,
        (Some(store_id), Some(prefix), _) => {
            let store = caller.engine.stores.get(&caller.principal, *store_id).await?;
            let query = MemoryQuery {
                path_prefix: Some(prefix.clone()),
                page: PageRequest { limit: Some(100), page: None },
                ..MemoryQuery::default()
            };
            let found =
                caller.engine.memories.list(&caller.principal, *store_id, &query, View::Basic).await?;
            let paths = found.items.iter().filter_map(|item| match item {
                ShownItem::Memory(shown) => Some(path(shown.memory.head.path.as_str())),
                ShownItem::Prefix(_) => None,
            });
            let examples: Vec<_> = paths.collect();
            let more = if found.next.is_some() { "more than " } else { "" };
            Ok(Selection {
                what: format!("every memory of {} that ever was below {prefix}", store.name),
                word: prefix.clone(),
                counts: vec![
                    format!("{more}{} there now", place::memories(examples.len() as u64)),
                    "all deleted, moved and earlier versions of them".to_owned(),
                ],
                examples,
                has_more: found.next.is_some(),
                keeps_store: true,
            })
        }
        (Some(store_id), None, None) => {
            let report = caller.engine.usage.of_store(&caller.principal, *store_id, Some(1), None).await?;
            Ok(Selection {
                what: format!("the store {} with everything in it", report.store.name),
                counts: vec![
                    place::memories(report.store.memory_count),
                    format!(
                        "{} in {}",
                        words::bytes(report.version_bytes),
                        words::counted(report.version_count, "version")
                    ),
                ],
                word: report.store.name,
                examples: Vec::new(),
                has_more: false,
                keeps_store: false,
            })
        }
        (None, ..) => Err(Refusal::invalid("`store` must be chosen")),
    }
}

/// Stores whose metadata has all pairs.
async fn stores_with(caller: &Caller, pairs: &Map<String, Value>) -> Result<Selection, Refusal> {
    let filter = StoreFilter { include_archived: true, ..StoreFilter::default() };
    let mut asked = PageRequest { limit: Some(100), page: None };
    let (mut names, mut memories, mut seen) = (Vec::new(), 0, 0);
    loop {
        let found = caller.engine.stores.list(&caller.principal, &filter, &asked).await?;
        seen += found.items.len();
        for store in found.items {
            if pairs.iter().all(|(name, value)| store.metadata.get(name) == Some(value)) {
                memories += store.memory_count;
                names.push(store.name);
            }
        }
        asked.page = found.next;
        if asked.page.is_none() || seen >= MAX_PREVIEWED_STORES {
            break;
        }
    }
    let least = if asked.page.is_some() { "at least " } else { "" };
    let pairs = pairs.iter().map(|(name, value)| format!("{name} = {}", value.as_str().unwrap_or_default()));
    let described = pairs.collect::<Vec<_>>().join(", ");
    Ok(Selection {
        what: format!("every store with the metadata {described}, also deleted ones that are still kept"),
        word: "erase".to_owned(),
        counts: vec![
            format!("{least}{}", words::counted(names.len() as u64, "store")),
            format!("{least}{}", place::memories(memories)),
        ],
        examples: names.iter().take(50).map(|name| Markup::text(name)).collect(),
        has_more: names.len() > 50 || asked.page.is_some(),
        keeps_store: false,
    })
}

pub(super) async fn create(form: Form) -> PageResult {
    let request = request_of(&form.fields)?;
    let selection = selection_of(&form, &request).await?;
    let rule = format!("{}, exactly: nothing was erased", selection.word);
    if let problem @ Some(_) = form.confirmation_problem(&selection.word, &rule) {
        let again = PreviewPage {
            frame: form.frame("Confirm the erasure"),
            selection,
            query: form.fields.clone(),
            once: form.engine.new_uuid().to_string(),
            problem,
        };
        return page_with(StatusCode::BAD_REQUEST, &again);
    }
    let erasure = form.engine.erasures.create(&form.principal, request, form.call()?).await?;
    done(&format!("/console/erasures/{}", erasure.erasure_id), Done::ErasureBegun)
}

#[derive(Template)]
#[template(path = "erasure.html")]
struct ErasurePage {
    frame: Frame,
    erasure: Erasure,
    /// Name of the selected store, if it is still there.
    store_name: Option<String>,
    counts: Vec<(&'static str, String)>,
}

pub(super) async fn show(caller: Caller, Path(erasure_id): Path<ErasureId>) -> PageResult {
    let erasure = caller.engine.erasures.get(&caller.principal, erasure_id).await?;
    let removed = &erasure.removed;
    let counts = [
        ("Stores", removed.memory_stores),
        ("Memories", removed.memories),
        ("Versions", removed.versions),
        ("Search documents", removed.search_documents),
        ("Access times", removed.access_times),
        ("Records of readers", removed.memory_readers),
        ("Attachments to sessions", removed.session_resources),
        ("Events of sessions", removed.session_events),
        ("Idempotency records", removed.idempotency_records),
        ("Blobs", removed.blobs),
        ("Blobs with every object version", erasure.object_versions.deleted),
    ];
    let mut counts: Vec<_> = counts.map(|(name, number)| (name, words::count(number))).to_vec();
    counts.insert(3, ("Content", words::bytes(removed.bytes)));
    let store = match erasure.store_id {
        Some(store_id) => caller.engine.stores.get(&caller.principal, store_id).await.ok(),
        None => None,
    };
    page(&ErasurePage {
        frame: caller.frame("Receipt of an erasure"),
        store_name: store.map(|store| store.name),
        erasure,
        counts,
    })
}
