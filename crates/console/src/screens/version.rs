//! One version: its text, its restoration, its redaction.

use std::cmp::Reverse;
use std::slice;

use askama::Template;
use axum::http::StatusCode;
use keepsake_core::{MemoryId, MemoryPath, ObjectKind, StoreId, VersionId, words};
use keepsake_engine::{
    DifferenceKind, EngineError, PageRequest, Restoration, ShownVersion, VersionQuery, View,
};
use keepsake_index::{Head, Operation, ReadVersions, Scope, Store, Version};

use super::OfVersion;
use super::memory::{changed, changed_on, href_of};
use super::readers::seen_by;
use crate::frame::{Done, Frame};
use crate::page::{PageResult, Refusal, done, page, page_with};
use crate::path::Path;
use crate::people::{People, authors};
use crate::request::{Caller, Form};
use crate::text::lines::Lines;
use crate::text::markup::{self, Markup, path_or_redacted};

/// Field of a form in the list of deleted memories, to which the restoration leads back.
const FROM_LIST: &str = "from_list";

/// A version as pages and lists show it.
pub(super) struct VersionRow {
    pub(super) id: VersionId,
    /// The position in the store's log, by which pages of the past and the plan of an undo name a change.
    pub(super) number: i64,
    pub(super) href: String,
    pub(super) memory_href: String,
    pub(super) operation: &'static str,
    pub(super) path: Markup,
    /// The path before, if the version moved the memory.
    pub(super) previous_path: Option<Markup>,
    pub(super) by: Markup,
    pub(super) at: Markup,
    pub(super) size: String,
    pub(super) is_redacted: bool,
    pub(super) has_content: bool,
    /// Why the content is missing, although it was not removed.
    pub(super) lost: Option<String>,
}

impl VersionRow {
    pub(super) fn of(shown: &ShownVersion, people: &People, frame: &Frame) -> Self {
        let version = &shown.version;
        Self {
            id: version.version_id,
            number: version.seq,
            href: version_href(shown.store_id, version.version_id),
            memory_href: memory_href(shown),
            operation: version.operation.name(),
            path: path_or_redacted(version.path.as_ref()),
            previous_path: None,
            by: people.show(version.created_by.as_ref()),
            at: frame.time(version.created_at),
            size: version.content.map_or_else(String::new, |content| words::bytes(content.size_bytes)),
            is_redacted: version.redacted_at.is_some(),
            has_content: version.content.is_some(),
            lost: shown.content_error().map(|error| error.to_string()),
        }
    }

    /// A link to the version, by its change and its time.
    pub(super) fn link(&self) -> Markup {
        let Self { id, href, operation, at, .. } = self;
        Markup::trusted(format!("<a href=\"{href}\" title=\"{id}\">{operation} {at}</a>"))
    }

    /// The same, with the previous path if the version moved its memory; then `before` is the version before it.
    pub(super) fn after(
        before: Option<&Version>,
        shown: &ShownVersion,
        people: &People,
        frame: &Frame,
    ) -> Self {
        let row = Self::of(shown, people, frame);
        let Some(before) = before else {
            return row;
        };
        let hash = |version: &Version| version.content.map(|content| content.sha256);
        let is_same = hash(before) == hash(&shown.version);
        Self {
            operation: if is_same { DifferenceKind::Renamed.name() } else { row.operation },
            previous_path: Some(path_or_redacted(before.path.as_ref())),
            ..row
        }
    }
}

/// Versions of a store, with the paths from which they moved their memories.
pub(super) async fn rows_of(
    caller: &Caller,
    store_id: StoreId,
    versions: &[ShownVersion],
    people: &People,
    frame: &Frame,
) -> Result<Vec<VersionRow>, EngineError> {
    let before = caller.engine.versions.before_moves(&caller.principal, store_id, versions).await?;
    let row =
        |shown: &ShownVersion| VersionRow::after(before.get(&shown.version.version_id), shown, people, frame);
    Ok(versions.iter().map(row).collect())
}

#[derive(Template)]
#[template(path = "version.html")]
struct VersionPage {
    frame: Frame,
    store: Store,
    shown: ShownVersion,
    version: VersionRow,
    people: People,
    /// Who has seen the version.
    seen_by: Markup,
    lines: Lines,
    /// Page of the memory, if the memory has this version's content now.
    live_href: Option<String>,
    may_restore: bool,
    may_redact: bool,
}

pub(super) async fn show(caller: Caller, Path((store_id, version_id)): OfVersion) -> PageResult {
    let (engine, principal) = (&caller.engine, &caller.principal);
    let store = engine.stores.get(principal, store_id).await?;
    let shown = engine.versions.inspect(principal, store_id, version_id).await?;
    let live = live_memory(&caller, &shown).await?;
    let (live_path, path) = (live.as_ref().map(|head| &head.path), shown.version.path.as_ref());
    let is_setting = [live_path, path].into_iter().flatten().any(MemoryPath::is_setting);
    let is_live = live.as_ref().is_some_and(|head| has_content(head, &shown)) && live_path == path;
    let live_href = is_live.then(|| memory_href(&shown));
    let mut actors = authors([&shown]);
    actors.extend(shown.version.redacted_by.as_ref());
    let people = People::look_up(&caller, actors).await;
    let first = caller.query.first_line()?;
    let before = engine.versions.before_moves(principal, store_id, slice::from_ref(&shown)).await?;
    let (frame, version) = (caller.frame("Version"), &shown.version);
    let versions = ReadVersions::Version(version.memory_id, version_id);
    page(&VersionPage {
        seen_by: seen_by(&caller, store_id, versions, (&frame, &version_href(store_id, version_id))).await?,
        version: VersionRow::after(before.get(&version_id), &shown, &people, &frame),
        frame,
        people,
        lines: Lines::from(shown.content.as_deref().unwrap_or_default(), first),
        may_restore: version.content.is_some() && !is_live && caller.may_change(&store, is_setting),
        live_href,
        may_redact: version.redacted_at.is_none()
            && version.operation != Operation::Deleted
            && caller.may(Scope::StoresAdmin),
        store,
        shown,
    })
}

pub(super) async fn restore(Path((store_id, version_id)): OfVersion, form: Form) -> PageResult {
    let (memories, restoration) = (&form.engine.memories, Restoration::default());
    let began = form.engine.now();
    let restored = memories.restore(&form.principal, store_id, version_id, restoration).await?;
    if form.fields.is_on(FROM_LIST) {
        let list = format!("/console/stores/{store_id}/deleted");
        return changed_on(&list, &restored, began, Done::MemoryRestored);
    }
    changed(store_id, &restored, began, Done::VersionRestored)
}

/// The last version of a memory, without its content.
pub(super) async fn last_version(
    caller: &Caller,
    store_id: StoreId,
    memory_id: MemoryId,
) -> Result<Option<ShownVersion>, EngineError> {
    let of_memory = VersionQuery { memory_id: Some(memory_id), ..VersionQuery::default() };
    Ok(newest_versions(caller, store_id, 1, of_memory).await?.into_iter().next())
}

/// The newest of the versions that a query selects, without their contents.
pub(super) async fn newest_versions(
    caller: &Caller,
    store_id: StoreId,
    limit: u64,
    query: VersionQuery,
) -> Result<Vec<ShownVersion>, EngineError> {
    let query = VersionQuery { page: PageRequest { limit: Some(limit), page: None }, ..query };
    Ok(caller.engine.versions.list(&caller.principal, store_id, &query, View::Basic).await?.items)
}

/// The sequence number of the newest of these versions; 0: there is none.
pub(super) async fn newest_seq(
    caller: &Caller,
    store_id: StoreId,
    query: VersionQuery,
) -> Result<u64, EngineError> {
    let newest = newest_versions(caller, store_id, 1, query).await?;
    let seq = newest.first().map_or(0, |newest| newest.version.seq);
    Ok(u64::try_from(seq).unwrap_or_default())
}

#[derive(Template)]
#[template(path = "redact.html")]
struct RedactPage {
    frame: Frame,
    store: Store,
    version: VersionRow,
    lines: Lines,
    /// Other versions that have the same content and keep it, the newest first.
    also_in: Vec<VersionRow>,
    also_in_count: u64,
    /// Page of the memory that has this content now and must be changed first.
    live_href: Option<String>,
    /// Why the confirmation was refused.
    problem: Option<String>,
}

/// Versions with the same content that a preview lists.
const MAX_LISTED: usize = 50;

pub(super) async fn preview(caller: Caller, Path((store_id, version_id)): OfVersion) -> PageResult {
    page(&RedactPage::of(&caller, store_id, version_id).await?)
}

impl RedactPage {
    async fn of(caller: &Caller, store_id: StoreId, version_id: VersionId) -> Result<Self, Refusal> {
        let (engine, principal) = (&caller.engine, &caller.principal);
        let store = engine.stores.get(principal, store_id).await?;
        let also_in = engine.versions.same_content(principal, store_id, version_id).await?;
        let shown = engine.versions.inspect(principal, store_id, version_id).await?;
        let live = live_memory(caller, &shown).await?;
        let listed = &also_in[..also_in.len().min(MAX_LISTED)];
        let mut others = engine.versions.look_up(principal, store_id, listed).await?;
        others.sort_unstable_by_key(|other| Reverse(other.version.seq));
        let people = People::look_up(caller, authors(others.iter().chain([&shown]))).await;
        let frame = caller.frame("Redact a version");
        let row = |shown: &ShownVersion| VersionRow::of(shown, &people, &frame);
        Ok(Self {
            version: row(&shown),
            also_in: others.iter().map(row).collect(),
            also_in_count: also_in.len() as u64,
            frame,
            lines: Lines::from(shown.content.as_deref().unwrap_or_default(), 1),
            live_href: live.filter(|head| has_content(head, &shown)).map(|_| memory_href(&shown)),
            problem: None,
            store,
        })
    }
}

/// The address of a version's page.
pub(super) fn version_href(store_id: StoreId, version_id: VersionId) -> String {
    format!("/console/stores/{store_id}/versions/{version_id}")
}

fn memory_href(shown: &ShownVersion) -> String {
    href_of(shown.store_id, shown.version.memory_id)
}

/// A version's memory, unless it is deleted.
async fn live_memory(caller: &Caller, shown: &ShownVersion) -> Result<Option<Head>, Refusal> {
    let (store_id, memory_id) = (shown.store_id, shown.version.memory_id);
    let memory = caller.engine.memories.get(&caller.principal, store_id, memory_id, View::Basic).await;
    match memory {
        Ok(live) => Ok(Some(live.memory.head)),
        Err(EngineError::NotFound(ObjectKind::Memory)) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Whether a live memory has the version's content.
fn has_content(live: &Head, shown: &ShownVersion) -> bool {
    shown.version.content.is_some_and(|content| content.sha256 == live.content.sha256)
}

pub(super) async fn redact(Path((store_id, version_id)): OfVersion, form: Form) -> PageResult {
    if let problem @ Some(_) = form.confirmation_problem("redact", "the word redact: nothing was removed") {
        let again = RedactPage { problem, ..RedactPage::of(&form, store_id, version_id).await? };
        return page_with(StatusCode::BAD_REQUEST, &again);
    }
    form.engine.versions.redact(&form.principal, store_id, version_id).await?;
    done(&version_href(store_id, version_id), Done::VersionRedacted)
}
