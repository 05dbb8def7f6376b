//! One version: its text, its restoration, its redaction.

use askama::Template;
use axum::extract::Path;
use keepsake_core::{MemoryPath, ObjectKind, Timestamp, words};
use keepsake_engine::{EngineError, Restoration, ShownVersion, View};
use keepsake_index::{Operation, Scope};

use super::tree::StoreHead;
use crate::frame::{Done, Frame, Tab};
use crate::page::{PageResult, Refusal, done, page};
use crate::people::People;
use crate::request::{Caller, Form, OfVersion};
use crate::text::lines::Lines;
use crate::text::markup::{Markup, id, id_link, path, time};

/// A version as pages and lists show it.
pub(super) struct VersionRow {
    pub(super) id: String,
    pub(super) link: Markup,
    pub(super) href: String,
    /// Page that compares this version with the version before.
    pub(super) compare: String,
    pub(super) memory_href: String,
    pub(super) operation: &'static str,
    pub(super) path: Markup,
    pub(super) by: Markup,
    pub(super) at: Markup,
    pub(super) size: String,
    pub(super) is_redacted: bool,
    pub(super) has_content: bool,
    /// Why the content is missing, although it was not removed.
    pub(super) lost: Option<String>,
}

impl VersionRow {
    pub(super) fn of(base: &str, shown: &ShownVersion, people: &People, now: Timestamp) -> Self {
        let (version, id) = (&shown.version, shown.version.version_id.to_string());
        let redacted = || Markup::trusted("<span class=\"none\">redacted</span>".to_owned());
        let href = format!("{base}/versions/{id}");
        Self {
            link: id_link(&id, &href),
            href,
            compare: format!("{base}/compare?to={id}"),
            memory_href: format!("{base}/memories/{}", version.memory_id),
            operation: version.operation.name(),
            path: version.path.as_ref().map_or_else(redacted, |at| path(at.as_str())),
            by: people.show(version.created_by.as_ref()),
            at: time(version.created_at, now),
            size: version.content.map_or_else(String::new, |content| words::bytes(content.size_bytes)),
            is_redacted: version.redacted_at.is_some(),
            has_content: version.content.is_some(),
            lost: shown.content_error().map(|error| error.to_string()),
            id,
        }
    }
}

#[derive(Template)]
#[template(path = "version.html")]
struct VersionPage {
    frame: Frame,
    store: StoreHead,
    version: VersionRow,
    id: Markup,
    sha256: Option<String>,
    redacted: Option<(Markup, Markup)>,
    has_content: bool,
    lines: Lines,
    /// Page of the memory, if the memory has this version's content now.
    live_href: Option<String>,
    may_restore: bool,
    may_redact: bool,
}

/// `GET /console/stores/{id}/versions/{id}`
pub(super) async fn show(caller: Caller, Path((store_id, version_id)): OfVersion) -> PageResult {
    let principal = &caller.principal;
    let store = caller.engine.stores.get(principal, store_id.0).await?;
    let shown = caller.engine.versions.inspect(principal, store_id.0, version_id.0).await?;
    let live = live_memory(&caller, &shown).await?;
    let live_href =
        live.filter(|path| shown.version.path.as_ref() == Some(path)).map(|_| memory_href(&shown));
    let people = People::look_up(&caller).await;
    let (head, now, version) = (StoreHead::of(&store), caller.engine.now(), &shown.version);
    let first = usize::try_from(caller.query.number("line")?.unwrap_or(1)).unwrap_or(1);
    let redacted = version.redacted_at.map(|at| (time(at, now), people.show(version.redacted_by.as_ref())));
    page(&VersionPage {
        frame: caller.frame("Version", Tab::Stores),
        version: VersionRow::of(&head.base, &shown, &people, now),
        id: id(&version.version_id.to_string()),
        sha256: version.content.map(|content| content.sha256.to_string()),
        lines: Lines::from(shown.content.as_deref().unwrap_or_default(), first),
        has_content: shown.content.is_some(),
        may_restore: version.content.is_some()
            && live_href.is_none()
            && caller.may_write(store_id.0)
            && !head.is_archived,
        live_href,
        may_redact: redacted.is_none()
            && version.operation != Operation::Deleted
            && caller.may(Scope::StoresAdmin),
        redacted,
        store: head,
    })
}

/// `POST /console/stores/{id}/versions/{id}/restore`
pub(super) async fn restore(Path((store_id, version_id)): OfVersion, form: Form) -> PageResult {
    let restoration = Restoration::default();
    let principal = &form.caller.principal;
    let restored =
        form.caller.engine.memories.restore(principal, store_id.0, version_id.0, restoration).await?;
    let memory_id = restored.memory.head.memory_id;
    let memory = format!("/console/stores/{}/memories/{memory_id}", store_id.0);
    done(&memory, Done::VersionRestored)
}

#[derive(Template)]
#[template(path = "redact.html")]
struct RedactPage {
    frame: Frame,
    store: StoreHead,
    version: VersionRow,
    id: Markup,
    lines: Lines,
    /// Other versions that have the same content and keep it.
    also_in: Vec<Markup>,
    also_in_count: usize,
    /// Page of the memory that has this content now and must be changed first.
    live_href: Option<String>,
}

/// Versions with the same content that a preview lists.
const MAX_LISTED: usize = 50;

/// `GET /console/stores/{id}/versions/{id}/redact`
pub(super) async fn preview(caller: Caller, Path((store_id, version_id)): OfVersion) -> PageResult {
    let principal = &caller.principal;
    let store = caller.engine.stores.get(principal, store_id.0).await?;
    let also_in = caller.engine.versions.same_content(principal, store_id.0, version_id.0).await?;
    let shown = caller.engine.versions.inspect(principal, store_id.0, version_id.0).await?;
    let live = live_memory(&caller, &shown).await?;
    let live_href = live.map(|_| memory_href(&shown));
    let people = People::look_up(&caller).await;
    let (head, now) = (StoreHead::of(&store), caller.engine.now());
    let link = |full: String| id_link(&full, &format!("{}/versions/{full}", head.base));
    page(&RedactPage {
        frame: caller.frame("Redact a version", Tab::Stores),
        version: VersionRow::of(&head.base, &shown, &people, now),
        id: id(&version_id.0.to_string()),
        lines: Lines::from(shown.content.as_deref().unwrap_or_default(), 1),
        also_in_count: also_in.len(),
        also_in: also_in.into_iter().take(MAX_LISTED).map(|other| link(other.to_string())).collect(),
        live_href,
        store: head,
    })
}

fn memory_href(shown: &ShownVersion) -> String {
    format!("/console/stores/{}/memories/{}", shown.store_id, shown.version.memory_id)
}

/// The path of a version's memory, if the memory has the version's content now.
async fn live_memory(caller: &Caller, shown: &ShownVersion) -> Result<Option<MemoryPath>, Refusal> {
    let (store_id, memory_id) = (shown.store_id, shown.version.memory_id);
    let memory = caller.engine.memories.get(&caller.principal, store_id, memory_id, View::Basic).await;
    match memory {
        Ok(live) => {
            let is_same = shown
                .version
                .content
                .is_some_and(|content| content.sha256 == live.memory.head.content.sha256);
            Ok(is_same.then_some(live.memory.head.path))
        }
        Err(EngineError::NotFound(ObjectKind::Memory)) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// `POST /console/stores/{id}/versions/{id}/redact`
pub(super) async fn redact(Path((store_id, version_id)): OfVersion, form: Form) -> PageResult {
    if form.fields.text("confirm").trim() != "redact" {
        let rule = "`confirm` must be the word redact: nothing was removed";
        return Err(Refusal::Invalid(rule.to_owned()));
    }
    let principal = &form.caller.principal;
    form.caller.engine.versions.redact(principal, store_id.0, version_id.0).await?;
    let version = format!("/console/stores/{}/versions/{}", store_id.0, version_id.0);
    done(&version, Done::VersionRedacted)
}
