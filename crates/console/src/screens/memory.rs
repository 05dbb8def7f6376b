//! A memory: its text, its author and its use.

use askama::Template;
use axum::extract::Path;
use axum::response::Response;
use keepsake_core::tool::{ToolPath, tool_display};
use keepsake_core::{MemoryId, MemoryPath, StoreId, Timestamp, words};
use keepsake_engine::{ShownMemory, ShownVersion, View};
use keepsake_index::Store;

use super::tree::{Crumb, StoreHead, crumbs, visible};
use crate::frame::{Frame, Tab};
use crate::page::{PageResult, Refusal, download, page};
use crate::people::People;
use crate::request::{Caller, OfMemory};
use crate::text::lines::Lines;
use crate::text::markdown;
use crate::text::markup::{Markup, copy_button, id, is_deceptive, path, time, time_or};

pub(super) struct Found {
    pub(super) store: Store,
    pub(super) shown: ShownMemory,
    pub(super) version: ShownVersion,
}

impl Found {
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

    pub(super) fn path(&self) -> &str {
        self.shown.memory.head.path.as_str()
    }
}

#[derive(Template)]
#[template(path = "memory.html")]
#[expect(clippy::struct_excessive_bools, reason = "the template asks each of them")]
struct MemoryPage {
    frame: Frame,
    store: StoreHead,
    base: String,
    crumbs: Vec<Crumb>,
    name: Markup,
    path_text: String,
    doubled: Option<Doubled>,
    copy_path: Markup,
    id: Markup,
    version: Markup,
    version_href: String,
    size: String,
    lines_total: String,
    written_by: Markup,
    written: Markup,
    created: Markup,
    read: Markup,
    expires: Markup,
    own_expiry: String,
    is_pinned: bool,
    is_raw: bool,
    rendered: Markup,
    lines: Lines,
    is_too_large: bool,
    is_deceptive: bool,
    may_write: bool,
    /// Why the content is missing.
    lost: Option<String>,
}

/// A path that begins with `/memories`, which agents see in front of every path.
struct Doubled {
    for_agents: Markup,
    /// The path that was probably meant.
    meant: Markup,
}

impl Doubled {
    fn of(memory: &MemoryPath) -> Option<Self> {
        let typed = ToolPath::parse(memory.as_str()).ok()?;
        let meant = path(typed.memory()?.as_str());
        Some(Self { for_agents: path(&tool_display(None, memory)), meant })
    }
}

/// `GET /console/stores/{id}/memories/{id}`
pub(super) async fn show(caller: Caller, Path((store_id, memory_id)): OfMemory) -> PageResult {
    let found = Found::inspect(&caller, store_id.0, memory_id.0).await?;
    let people = People::look_up(&caller).await;
    let (memory, content, now) = (&found.shown.memory, found.content(), caller.engine.now());
    let is_plain = !is_markdown(found.path());
    let wants_raw = caller.query.is_on("raw") || caller.query.is_on("line");
    let text = found.version.content.clone().unwrap_or_default();
    let rendered = if wants_raw || is_plain {
        None
    } else {
        let render = move || markdown::render(&text);
        caller.engine.computations.run(caller.principal.tenant_id, render).await?
    };
    let is_raw = rendered.is_none();
    let first = usize::try_from(caller.query.number("line")?.unwrap_or(1)).unwrap_or(1);
    let store = StoreHead::of(&found.store);
    let directory = found.path().rsplit_once('/').map_or("", |(directory, _)| directory);
    page(&MemoryPage {
        frame: caller.frame(format!("{} in {}", found.path(), found.store.name), Tab::Stores),
        base: format!("{}/memories/{}", store.base, memory.head.memory_id),
        crumbs: crumbs(&store.base, directory),
        name: visible(found.path().rsplit('/').next().unwrap_or_default()),
        path_text: found.path().to_owned(),
        doubled: Doubled::of(&memory.head.path),
        copy_path: copy_button(found.path()),
        id: id(&memory.head.memory_id.to_string()),
        version: id(&memory.head.version_id.to_string()),
        version_href: format!("{}/versions/{}", store.base, memory.head.version_id),
        size: words::bytes(memory.head.content.size_bytes),
        lines_total: words::counted(content.lines().count() as u64, "line"),
        written_by: people.show(found.version.version.created_by.as_ref()),
        written: time(memory.updated_at, now),
        created: time(memory.created_at, now),
        read: time_or(found.shown.last_accessed_at, now, "never"),
        expires: time_or(found.shown.expires_at, now, "never"),
        own_expiry: shown_expiry(memory.expires_at),
        is_pinned: memory.is_pinned,
        lines: if is_raw { Lines::from(content, first) } else { Lines::default() },
        rendered: rendered.unwrap_or_default(),
        is_raw,
        is_too_large: is_raw && !wants_raw && !is_plain,
        is_deceptive: content.contains(is_deceptive),
        may_write: caller.may_write(store_id.0) && !store.is_archived,
        lost: found.lost(),
        store,
    })
}

/// The expiry time as its form shows it: to the minute.
pub(super) fn shown_expiry(at: Option<Timestamp>) -> String {
    at.map_or_else(String::new, |at| at.to_rfc3339()[..16].to_owned())
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
    let found = Found::read(&caller, store_id.0, memory_id.0).await?;
    let name = found.path().rsplit('/').next().unwrap_or("memory");
    Ok(download(name, "text/plain; charset=utf-8", found.content().to_owned()))
}
