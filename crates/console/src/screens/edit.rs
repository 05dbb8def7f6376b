//! Memories written, renamed, pinned and deleted by people.
//!
//! An edit states which content it started from. If another person changed the memory meanwhile,
//! the page shows the difference and both texts, and nothing is lost.

use askama::Template;
use axum::http::StatusCode;
use keepsake_core::path::TESTS_PATH;
use keepsake_core::tool::line_end;
use keepsake_core::{MemoryId, MemoryPath, ObjectKind, Refused, SensitiveDataPolicy, StoreId, words};
use keepsake_engine::{EngineError, ExpiresAt, MemoryEdit, NewMemory, Precondition, View};
use keepsake_index::{Operation, Scope, Store};

use super::OfMemory;
use super::memory::{ContentView, CurrentMemory, changed, href_of, shown_expiry};
use super::version::last_version;
use crate::frame::{Done, Frame};
use crate::page::{PageResult, Refusal, done, done_after, done_as, page, page_with, problem_of};
use crate::path::Path;
use crate::people::{People, authors};
use crate::request::{Caller, Form};
use crate::text::diff::{Diff, Hunk, Row};
use crate::text::line_ends;
use crate::text::lines::Lines;
use crate::text::markup::{self, Markup, in_text, path, text_area};

/// The text with which a person begins the tests of a store.
const FIRST_TESTS: &str = "\
# true: refuse what would break a test
gate: false
tests:
- max_files: 500
# - path: /policy/refunds.md
#   contains: \"200 EUR\"
# - search: refund limit
#   finds: /policy/refunds.md
# - unchanged: /pinned/
";

/// The text that another person saved meanwhile.
struct Conflict {
    by: Markup,
    at: Markup,
    rows: Vec<Row>,
    is_cut: bool,
    is_equal: bool,
    theirs: Lines,
    theirs_href: String,
}

#[derive(Template)]
#[template(path = "edit.html")]
struct EditPage {
    frame: Frame,
    store: Store,
    heading: &'static str,
    /// Empty: the address of this page.
    action: String,
    back: String,
    /// Path of a new memory, which the person can type.
    new_path: Option<String>,
    path: Markup,
    content: Markup,
    base_sha256: String,
    newlines: &'static str,
    /// Why the content of the memory is missing.
    lost: Option<String>,
    problem: Option<String>,
    conflict: Option<Conflict>,
    /// The text of the form as the memory's page would show it.
    preview: Option<ContentView>,
    once: String,
    limit_bytes: u64,
}

impl EditPage {
    fn new(caller: &Caller, store: Store, path: &str, content: &str) -> Self {
        let base = format!("/console/stores/{}", store.store_id);
        Self {
            frame: caller.frame(format!("New memory in {}", store.name)),
            heading: "New memory",
            action: format!("{base}/new"),
            back: base,
            new_path: Some(path.to_owned()),
            path: Markup::default(),
            content: text_area(content),
            base_sha256: String::new(),
            newlines: "",
            lost: None,
            problem: None,
            conflict: None,
            preview: None,
            once: caller.engine.new_uuid().to_string(),
            limit_bytes: caller.principal.limits.bytes_per_memory,
            store,
        }
    }

    /// A form for the current content of a memory, or for another text of the memory.
    fn of(caller: &Caller, found: &CurrentMemory, content: &str) -> Self {
        Self {
            frame: caller.frame(format!("Edit {}", in_text(found.path()))),
            heading: "Edit",
            action: format!("{}/edit", found.href()),
            back: found.href(),
            new_path: None,
            path: path(found.path()),
            base_sha256: found.shown.memory.head.content.sha256.to_string(),
            newlines: newlines_of(found.content()),
            lost: found.lost(),
            ..Self::new(caller, found.store.clone(), "", content)
        }
    }
}

/// Line ends of a text, which the form keeps in case the memory is deleted during the edit.
fn newlines_of(content: &str) -> &'static str {
    if line_end(content) == Some("\r\n") { "crlf" } else { "" }
}

/// The line ends that the form kept.
fn newlines_sent(form: &Form) -> &'static str {
    if form.fields.text("newlines") == "crlf" { "crlf" } else { "" }
}

/// The text of a form, with the line ends of the memory. `found` is `None`: the memory no longer
/// exists, and the form kept its line ends.
fn content_of(form: &Form, found: Option<&CurrentMemory>) -> String {
    let content = line_ends::typed(form.fields.text("content"));
    match found {
        Some(found) => line_ends::kept(found.content(), &content),
        None if newlines_sent(form) == "crlf" => content.replace('\n', "\r\n"),
        None => content,
    }
}

/// The path of a form, with the slash at its beginning, which a person may leave out.
fn path_of(form: &Form) -> String {
    let path = form.fields.text("path").trim();
    let is_whole = path.is_empty() || path.starts_with('/');
    if is_whole { path.to_owned() } else { format!("/{path}") }
}

/// The text with marks for its secrets, if the store replaces secrets and refused the text for them:
/// the API leaves the choice to its caller.
fn marked(form: &Form, before: Option<&str>, text: &str, error: &EngineError) -> Option<String> {
    match error {
        EngineError::Refused(Refused::Sensitive { policy: SensitiveDataPolicy::Redact, .. }) => {
            form.engine.memories.marked(before, text)
        }
        _ => None,
    }
}

pub(super) async fn new(caller: Caller, Path(store_id): Path<StoreId>) -> PageResult {
    let store = caller.engine.stores.get(&caller.principal, store_id).await?;
    let directory = caller.query.filled("path").unwrap_or("/");
    let content = if directory == TESTS_PATH { FIRST_TESTS } else { "" };
    page(&EditPage::new(&caller, store, directory, content))
}

pub(super) async fn create(Path(store_id): Path<StoreId>, form: Form) -> PageResult {
    let content = content_of(&form, None);
    if form.fields.is_on("preview") {
        let store = form.engine.stores.get(&form.principal, store_id).await?;
        let path = form.fields.text("path");
        let mut again = EditPage::new(&form, store, path, &content);
        again.newlines = newlines_sent(&form);
        again.preview = Some(ContentView::preview(&form, path, &content).await?);
        return page(&again);
    }
    let (memories, idempotency) = (&form.engine.memories, form.call()?);
    let new = |content: &str| NewMemory {
        path: path_of(&form),
        content: content.to_owned(),
        idempotency,
        ..NewMemory::default()
    };
    let mut created = memories.create(&form.principal, store_id, new(&content)).await;
    let marked = created.as_ref().err().and_then(|error| marked(&form, None, &content, error));
    let action = if marked.is_some() { Done::MemoryMarked } else { Done::MemoryCreated };
    if let Some(marked) = marked {
        created = memories.create(&form.principal, store_id, new(&marked)).await;
    }
    match created {
        Ok(shown) => {
            let head = shown.memory.head;
            done_as(&href_of(store_id, head.memory_id), action, head.version_id)
        }
        Err(error) => {
            let problem = problem_of(error)?;
            let store = form.engine.stores.get(&form.principal, store_id).await?;
            let mut again = EditPage::new(&form, store, form.fields.text("path"), &content);
            again.newlines = newlines_sent(&form);
            again.problem = Some(problem);
            page_with(StatusCode::BAD_REQUEST, &again)
        }
    }
}

pub(super) async fn edit(caller: Caller, Path((store_id, memory_id)): OfMemory) -> PageResult {
    let found = CurrentMemory::inspect(&caller, store_id, memory_id).await?;
    page(&EditPage::of(&caller, &found, found.content()))
}

pub(super) async fn save(Path((store_id, memory_id)): OfMemory, form: Form) -> PageResult {
    let (base, began) = (form.fields.hash("base_sha256")?, form.engine.now());
    let found = CurrentMemory::inspect(&form, store_id, memory_id).await;
    let was_lost = found.as_ref().is_ok_and(|found| found.lost().is_some());
    let content = content_of(&form, found.as_ref().ok().filter(|_| !was_lost));
    if form.fields.is_on("preview") {
        let found = match found {
            Err(Refusal::Engine(EngineError::NotFound(ObjectKind::Memory))) => {
                return deleted(&form, store_id, memory_id, &content).await;
            }
            found => found?,
        };
        let mut again = EditPage::of(&form, &found, &content);
        again.base_sha256 = base.to_string();
        again.preview = Some(ContentView::preview(&form, found.path(), &content).await?);
        return page(&again);
    }
    // If the memory cannot be read, the text is saved all the same.
    let found = found.ok();
    let edit = |content: &str| MemoryEdit {
        content: Some(content.to_owned()),
        precondition: Some(Precondition::ContentSha256(base)),
        ..MemoryEdit::default()
    };
    let memories = &form.engine.memories;
    let mut saved = memories.update(&form.principal, store_id, memory_id, edit(&content)).await;
    let before = found.as_ref().map(CurrentMemory::content);
    let marked = saved.as_ref().err().and_then(|error| marked(&form, before, &content, error));
    let action = if marked.is_some() { Done::MemoryMarked } else { Done::MemorySaved };
    if let Some(marked) = marked {
        saved = memories.update(&form.principal, store_id, memory_id, edit(&marked)).await;
    }
    match saved {
        Ok(saved) => changed(store_id, &saved, began, action),
        Err(EngineError::PreconditionFailed { .. }) => conflict(&form, store_id, memory_id, &content).await,
        Err(EngineError::NotFound(ObjectKind::Memory)) => deleted(&form, store_id, memory_id, &content).await,
        Err(error) => {
            let problem = problem_of(error)?;
            let found = CurrentMemory::inspect(&form, store_id, memory_id).await?;
            let mut again = EditPage::of(&form, &found, &content);
            again.base_sha256 = base.to_string();
            again.problem = Some(problem);
            page_with(StatusCode::BAD_REQUEST, &again)
        }
    }
}

/// The form after a conflict. It also shows the text that another author saved meanwhile; saving
/// again replaces that text.
async fn conflict(caller: &Caller, store_id: StoreId, memory_id: MemoryId, mine: &str) -> PageResult {
    let found = CurrentMemory::inspect(caller, store_id, memory_id).await?;
    let people = People::look_up(caller, authors([&found.version])).await;
    let theirs = found.version.content.clone().unwrap_or_default();
    let diff = Diff::computed(caller, theirs, mine.into()).await?;
    let mut again = EditPage::of(caller, &found, mine);
    again.heading = "Somebody else changed this memory";
    again.conflict = Some(Conflict {
        by: people.show(found.version.version.created_by.as_ref()),
        at: again.frame.time(found.shown.memory.updated_at),
        rows: diff.hunks.iter().flat_map(Hunk::inline).collect(),
        is_cut: diff.is_cut,
        is_equal: diff.is_empty(),
        theirs: Lines::from(found.content(), 1),
        theirs_href: format!("{}?raw=1", again.back),
    });
    page_with(StatusCode::CONFLICT, &again)
}

/// Offers the text of a memory that was deleted meanwhile as a new memory.
async fn deleted(form: &Form, store_id: StoreId, memory_id: MemoryId, content: &str) -> PageResult {
    let store = form.engine.stores.get(&form.principal, store_id).await?;
    // Without the memory's history, the person types the path.
    let last = last_version(form, store_id, memory_id).await.ok().flatten();
    let path = last.and_then(|shown| shown.version.path);
    let mut again = EditPage::new(form, store, path.as_ref().map_or("", MemoryPath::as_str), content);
    again.newlines = newlines_sent(form);
    again.problem =
        Some("The memory was deleted meanwhile. Your text is kept: save it as a new memory.".to_owned());
    page_with(StatusCode::CONFLICT, &again)
}

pub(super) async fn rename(Path((store_id, memory_id)): OfMemory, form: Form) -> PageResult {
    let (path, began) = (Some(path_of(&form)), form.engine.now());
    let edit = MemoryEdit { path, ..MemoryEdit::default() };
    let moved = form.engine.memories.update(&form.principal, store_id, memory_id, edit).await?;
    changed(store_id, &moved, began, Done::MemoryMoved)
}

/// `POST /console/stores/{id}/memories/{id}/expiry`: pins, unpins, or sets the time
pub(super) async fn set_expiry(Path((store_id, memory_id)): OfMemory, form: Form) -> PageResult {
    let (memories, principal) = (&form.engine.memories, &form.principal);
    let (edit, done_is, before) = match form.fields.text("action") {
        "pin" => (pinned(true), Done::MemoryPinned, None),
        "unpin" => (pinned(false), Done::MemoryUnpinned, None),
        _ => {
            let typed = form.fields.text("expires_at").trim();
            let current = memories.get(principal, store_id, memory_id, View::Basic).await.ok();
            let current = current.map(|current| current.memory.expires_at);
            // The memory's time may be more exact than the time in the form.
            let at = match current.filter(|at| shown_expiry(*at) == typed) {
                Some(unchanged) => unchanged,
                None => form.fields.time("expires_at")?,
            };
            let at = at.map_or(ExpiresAt::Never, ExpiresAt::Time).to_string();
            let edit = MemoryEdit { expires_at: Some(at), ..MemoryEdit::default() };
            (edit, Done::ExpirySet, current)
        }
    };
    memories.update(principal, store_id, memory_id, edit).await?;
    let href = href_of(store_id, memory_id);
    let Some(before) = before else {
        return done(&href, done_is);
    };
    let micros = before.map_or_else(String::new, |at| at.as_micros().to_string());
    done_after(&form.token, &href, done_is, vec![("expires_at".to_owned(), micros)])
}

fn pinned(is_pinned: bool) -> MemoryEdit {
    MemoryEdit { pinned: Some(is_pinned), ..MemoryEdit::default() }
}

#[derive(Template)]
#[template(path = "delete.html")]
struct DeletePage {
    frame: Frame,
    may_redact: bool,
    found: CurrentMemory,
    lines: Lines,
}

pub(super) async fn confirm_delete(caller: Caller, Path((store_id, memory_id)): OfMemory) -> PageResult {
    let found = CurrentMemory::inspect(&caller, store_id, memory_id).await?;
    page(&DeletePage {
        frame: caller.frame(format!("Delete {}", in_text(found.path()))),
        may_redact: caller.may(Scope::StoresAdmin),
        lines: Lines::from(found.content(), 1),
        found,
    })
}

pub(super) async fn delete(Path((store_id, memory_id)): OfMemory, form: Form) -> PageResult {
    let expected = form.fields.hash("sha256")?;
    form.engine.memories.delete(&form.principal, store_id, memory_id, Some(expected)).await?;
    // Without the scope to read, nothing is offered.
    let last = last_version(&form, store_id, memory_id).await.ok().flatten();
    match last.filter(|last| last.version.operation == Operation::Deleted) {
        Some(last) => done_as(&href_of(store_id, memory_id), Done::MemoryDeleted, last.version.version_id),
        None => done(&format!("/console/stores/{store_id}"), Done::MemoryDeleted),
    }
}
