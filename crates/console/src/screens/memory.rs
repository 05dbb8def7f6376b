//! A memory: its text, its author and its use.

use std::sync::Arc;

use askama::Template;
use axum::response::Response;
use keepsake_core::tool::{ToolPath, tool_display};
use keepsake_core::{MemoryId, ObjectKind, StoreId, Timestamp, words};
use keepsake_engine::{EngineError, ShownMemory, ShownVersion, View};
use keepsake_index::{ReadVersions, Scope, Store};

use super::past::{self, Then, today};
use super::place::{self, Branch};
use super::readers::seen_by;
use super::stores::expiry_rule;
use super::tree::{Crumb, crumbs};
use super::undo::undo_of;
use super::version::VersionRow;
use super::{OfMemory, history};
use crate::frame::{Done, Frame, Undo};
use crate::page::{PageResult, Refusal, done, done_as, download, page};
use crate::path::Path;
use crate::people::People;
use crate::request::Caller;
use crate::text::lines::Lines;
use crate::text::markdown;
use crate::text::markup::{self, Markup, in_text, is_deceptive, path};

pub(super) struct CurrentMemory {
    pub(super) store: Store,
    pub(super) shown: ShownMemory,
    pub(super) version: ShownVersion,
}

impl CurrentMemory {
    pub(super) async fn read(
        caller: &Caller,
        store_id: StoreId,
        memory_id: MemoryId,
    ) -> Result<Self, Refusal> {
        let found = Self::inspect(caller, store_id, memory_id).await?;
        found.version.content_error().map_or(Ok(found), |error| Err(error.into()))
    }

    /// Reads a memory, even if its content is lost. The content is read as the content of its
    /// version, so that showing it does not count as a use.
    pub(super) async fn inspect(
        caller: &Caller,
        store_id: StoreId,
        memory_id: MemoryId,
    ) -> Result<Self, Refusal> {
        let principal = &caller.principal;
        let store = caller.engine.stores.get(principal, store_id).await?;
        let shown = caller.engine.memories.get(principal, store_id, memory_id, View::Basic).await?;
        let version_id = shown.memory.head.version_id;
        let version = caller.engine.versions.inspect(principal, store_id, version_id).await?;
        Ok(Self { store, shown, version })
    }

    pub(super) fn content(&self) -> &str {
        self.version.content.as_deref().unwrap_or_default()
    }

    /// Why the content is missing.
    pub(super) fn lost(&self) -> Option<String> {
        self.version.content_error().map(|error| error.to_string())
    }

    pub(super) fn href(&self) -> String {
        href_of(self.store.store_id, self.shown.memory.head.memory_id)
    }

    fn line_count(&self) -> u64 {
        self.content().lines().count() as u64
    }

    fn is_deceptive(&self) -> bool {
        self.content().contains(is_deceptive)
    }

    pub(super) fn path(&self) -> &str {
        self.shown.memory.head.path.as_str()
    }

    fn path_for_agents(&self) -> Markup {
        path(&tool_display(None, &self.shown.memory.head.path))
    }

    /// The path that was probably meant, if the memory's begins with `/memories`, which agents see in front of
    /// every path.
    fn meant_path(&self) -> Option<Markup> {
        Some(path(ToolPath::parse(self.path()).ok()?.memory()?.as_str()))
    }
}

/// The address of a memory's page.
pub(super) fn href_of(store_id: StoreId, memory_id: MemoryId) -> String {
    format!("/console/stores/{store_id}/memories/{memory_id}")
}

/// Leads to a memory after a change that began at a time. A change without a difference makes no
/// version.
pub(super) fn changed(store_id: StoreId, memory: &ShownMemory, began: Timestamp, action: Done) -> PageResult {
    changed_on(&href_of(store_id, memory.memory.head.memory_id), memory, began, action)
}

/// The same, but leads to another page.
pub(super) fn changed_on(href: &str, memory: &ShownMemory, began: Timestamp, action: Done) -> PageResult {
    if memory.memory.updated_at < began {
        return done(href, Done::MemoryUnchanged);
    }
    done_as(href, action, memory.memory.head.version_id)
}

#[derive(Template)]
#[template(path = "memory.html")]
struct MemoryPage {
    frame: Frame,
    found: CurrentMemory,
    crumbs: Vec<Crumb>,
    tree: Branch,
    recent: Vec<VersionRow>,
    people: People,
    /// Who has seen the memory.
    seen_by: Markup,
    content: ContentView,
    /// When the memory expires if it has no expiry time.
    expiry_rule: String,
    may_write: bool,
    may_redact: bool,
}

/// `GET /console/stores/{id}/memories/{id}`, or `?at=` for the past; of a deleted memory, the history
pub(super) async fn show(caller: Caller, Path((store_id, memory_id)): OfMemory) -> PageResult {
    if let Some(then) = Then::of(&caller)? {
        return past::memory(caller, store_id, memory_id, then).await;
    }
    let found = match CurrentMemory::inspect(&caller, store_id, memory_id).await {
        Err(Refusal::Engine(EngineError::NotFound(ObjectKind::Memory))) => {
            return history::of_memory(caller, Path((store_id, memory_id))).await;
        }
        found => found?,
    };
    let text = found.version.content.clone().unwrap_or_default();
    let content = ContentView::requested(&caller, found.path(), text).await?;
    let directory = found.path().rsplit_once('/').map_or("", |(directory, _)| directory);
    let mut frame = caller.frame(format!("{} in {}", in_text(found.path()), found.store.name));
    let memory = &found.shown.memory;
    let may_write = caller.may_change(&found.store, memory.head.path.is_setting());
    let is_pinned = memory.is_pinned;
    let undo_of_pin = |action: &str| Undo {
        action: format!("{}/expiry", found.href()),
        fields: vec![("action".to_owned(), action.to_owned())],
    };
    frame.undo = match frame.done {
        Some(Done::MemoryPinned) => (may_write && is_pinned).then(|| undo_of_pin("unpin")),
        Some(Done::MemoryUnpinned) => (may_write && !is_pinned).then(|| undo_of_pin("pin")),
        Some(Done::ExpirySet) => undo_of_expiry(&caller, &found).filter(|_| may_write),
        _ => undo_of(&caller, &found.store, &found.version),
    };
    // The newest of the changes made the text.
    let (recent, people) = place::recent(&caller, store_id, Some(memory_id), &frame).await?;
    page(&MemoryPage {
        tree: place::tree(&caller, store_id, found.path()).await?,
        recent,
        seen_by: seen_by(&caller, store_id, ReadVersions::Memory(memory_id), (&frame, &found.href())).await?,
        frame,
        crumbs: crumbs(&found.store, directory),
        people,
        content,
        expiry_rule: expiry_rule(&caller, found.store.expires_unused_after),
        may_write,
        may_redact: may_write && caller.may(Scope::StoresAdmin),
        found,
    })
}

/// The form that sets the expiry time of before, which the message has in microseconds.
fn undo_of_expiry(caller: &Caller, found: &CurrentMemory) -> Option<Undo> {
    let (_, micros) = caller.notice.as_ref()?.undo_fields(&caller.token)?.first()?;
    let at = micros.parse().map(|micros| Timestamp::from_micros(micros).to_rfc3339()).unwrap_or_default();
    Some(Undo { action: format!("{}/expiry", found.href()), fields: vec![("expires_at".to_owned(), at)] })
}

/// The expiry time as its form shows it: to the minute.
pub(super) fn shown_expiry(at: Option<Timestamp>) -> String {
    at.map_or_else(String::new, |at| at.to_rfc3339()[..16].to_owned())
}

/// The text of a memory, rendered or as lines.
pub(super) struct ContentView {
    /// `None`: the lines are shown.
    pub(super) rendered: Option<Markup>,
    pub(super) lines: Lines,
    /// Whether the text should be rendered, and is too long or too deep.
    is_too_large: bool,
}

impl ContentView {
    /// Rendered if the memory is Markdown, unless the address requests its lines.
    pub(super) async fn requested(caller: &Caller, path: &str, text: Arc<str>) -> Result<Self, Refusal> {
        let requests_lines = caller.query.is_on("raw") || caller.query.is_on("line");
        Self::of(caller, text, is_markdown(path) && !requests_lines, caller.query.first_line()?).await
    }

    /// The beginning, rendered if the memory is Markdown.
    pub(super) async fn preview(caller: &Caller, path: &str, text: &str) -> Result<Self, Refusal> {
        Self::of(caller, text.into(), is_markdown(path), 1).await
    }

    async fn of(caller: &Caller, text: Arc<str>, renders: bool, first: usize) -> Result<Self, Refusal> {
        let rendered = if renders {
            let text = Arc::clone(&text);
            let render = move || markdown::render(&text);
            caller.engine.computations.run(caller.principal.tenant_id, render).await?
        } else {
            None
        };
        let lines = if rendered.is_none() { Lines::from(&text, first) } else { Lines::default() };
        Ok(Self { is_too_large: renders && rendered.is_none(), rendered, lines })
    }
}

/// Whether a memory is shown as Markdown. Most memories are, whatever their names.
fn is_markdown(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or_default();
    match name.rsplit_once('.') {
        None => true,
        Some((_, extension)) => matches!(extension.to_ascii_lowercase().as_str(), "md" | "markdown" | "txt"),
    }
}

/// `GET /console/stores/{id}/memories/{id}/file`: the content, to be saved
pub(super) async fn file(caller: Caller, Path((store_id, memory_id)): OfMemory) -> Result<Response, Refusal> {
    let found = CurrentMemory::read(&caller, store_id, memory_id).await?;
    let name = found.path().rsplit('/').next().unwrap_or("memory");
    Ok(download(name, "text/plain; charset=utf-8", found.content().to_owned()))
}
