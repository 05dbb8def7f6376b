//! Sessions: the stores that an agent has, and its reads and writes.

use askama::Template;
use keepsake_core::tool::agent::AgentTool;
use keepsake_core::{Actor, EventId, SessionId, Timestamp};
use keepsake_index::{
    Access, Attachment, EventFilter, Scope, Session, SessionEvent, SessionFilter, SessionSummary,
};
use serde_json::Value;

use super::choices::{ChoiceField, StoreChoices};
use super::undo;
use crate::frame::{Done, Frame};
use crate::names::SharedNames;
use crate::page::{PageResult, done, page, rendered};
use crate::path::Path;
use crate::request::{Caller, Form, Pager};
use crate::text::markup::{self, Markup, encoded, path, time};

const PER_PAGE: u64 = 50;
const EVENTS_PER_PAGE: u64 = 200;

const fn meaning(access: Access) -> &'static str {
    match access {
        Access::ReadWrite => "reads and writes",
        Access::ReadOnly => "reads only",
    }
}

/// The name of an agent, or its id.
fn agent_of(session: &Session) -> String {
    let agent: Value = serde_json::from_str(session.agent.as_str()).unwrap_or_default();
    let text = |name: &str| agent[name].as_str().filter(|text| !text.is_empty()).map(str::to_owned);
    text("name").or_else(|| text("id")).unwrap_or_else(|| "an agent".to_owned())
}

pub(super) fn title_of(title: Option<&String>) -> &str {
    title.map(String::as_str).filter(|title| !title.is_empty()).unwrap_or("Untitled session")
}

pub(super) fn shared_titles(sessions: &[SessionSummary]) -> SharedNames {
    let names = sessions.iter().map(|session| &session.name);
    SharedNames::among(names.map(|name| (name.session_id, title_of(name.title.as_ref()))))
}

#[derive(Template)]
#[template(path = "sessions.html")]
struct SessionsPage {
    frame: Frame,
    sessions: Vec<SessionSummary>,
    pager: Pager,
    has_ended: bool,
    store: ChoiceField,
}

pub(super) async fn list(mut caller: Caller) -> PageResult {
    let stores = StoreChoices::of(&caller, true).await?;
    let filter = SessionFilter {
        store_id: stores.resolve(&mut caller, "store").await?,
        live: true,
        archived: caller.query.is_on("ended"),
        ..SessionFilter::default()
    };
    let asked = caller.query.page(PER_PAGE);
    let found = caller.engine.sessions.summaries(&caller.principal, &filter, &asked).await?;
    page(&SessionsPage {
        frame: caller.frame("Sessions"),
        sessions: found.items,
        pager: caller.query.pager(found.next),
        has_ended: filter.archived,
        store: stores.field("store", "Store", "all stores", &caller.query),
    })
}

struct Call {
    id: EventId,
    /// Sorts the lines.
    at_micros: i64,
    at: Markup,
    /// The names of the tool and of its command.
    name: String,
    /// What the call asks for, before its path.
    words: &'static str,
    is_write: bool,
    /// Whether the agent got an error as the answer.
    is_error: bool,
    target: Option<Markup>,
    /// Empty: the call is from the index, which has the path as the agent wrote it.
    target_href: String,
    new_path: Option<Markup>,
    details: String,
}

/// Commands of the memory tool that change memories.
const WRITES: [&str; 5] = ["create", "str_replace", "insert", "delete", "rename"];
/// Fields of a call's input that hold the path in the words of the call.
const PATHS: [&str; 3] = ["path", "old_path", "path_prefix"];
/// Fields of a call's input with their names for people.
const LABELS: [(&str, &str); 17] = [
    ("content", "text"),
    ("depth", "depth"),
    ("edits", "edits"),
    ("expected_content_sha256", "hash"),
    ("file_text", "text"),
    ("insert_line", "after line"),
    ("insert_text", "text"),
    ("limit", "at most"),
    ("new_path", "new path"),
    ("new_str", "new text"),
    ("offset", "from character"),
    ("old_path", "path"),
    ("old_str", "old text"),
    ("page", "page"),
    ("path_prefix", "directory"),
    ("query", "words"),
    ("view_range", "lines"),
];

impl Call {
    fn of(event: &SessionEvent, now: Timestamp) -> Self {
        let text = |name: &str| event.input.get(name).and_then(Value::as_str).unwrap_or_default();
        let command = text("command");
        let place = event.place.as_ref().filter(|place| !place.path.is_empty());
        let written = PATHS.iter().map(|name| text(name)).find(|path| !path.is_empty());
        let target = place.map(|place| place.path.as_str()).or(written);
        let new_path = place.and_then(|place| place.new_path.as_deref()).unwrap_or_else(|| text("new_path"));
        let details = event.input.iter().filter(|(name, value)| {
            let is_path = *name == "new_path" || PATHS.contains(&name.as_str());
            *name != "command" && !value.is_null() && !(is_path && value.is_string())
        });
        let details: Vec<_> = details.map(|(name, value)| described(name, value)).collect();
        Self {
            id: event.event_id,
            at_micros: event.at.as_micros(),
            at: time(event.at, now),
            is_write: match AgentTool::parse(&event.name) {
                Some(tool) => tool.is_change(),
                None => WRITES.contains(&command),
            },
            is_error: event.is_error,
            name: format!("{} {command}", event.name).trim_end().to_owned(),
            words: words_of(&event.name, command, target.is_some()),
            target: target.map(path),
            new_path: Some(new_path).filter(|path| !path.is_empty()).map(path),
            target_href: place.map_or_else(String::new, |place| {
                format!("/console/stores/{}?path={}", place.store_id, encoded(&place.path))
            }),
            details: details.join(", "),
        }
    }
}

/// What a call asks for, as its path follows.
fn words_of(tool: &str, command: &str, has_path: bool) -> &'static str {
    match (AgentTool::parse(tool), command) {
        (Some(AgentTool::List), _) if has_path => "list",
        (Some(AgentTool::List), _) => "list all memories",
        (Some(AgentTool::Search), _) if has_path => "search",
        (Some(AgentTool::Search), _) => "search all memories",
        (Some(AgentTool::Read), _) => "read",
        (Some(AgentTool::Write), _) => "write",
        (Some(AgentTool::Edit), _) | (None, "str_replace") => "edit",
        (Some(AgentTool::Append), _) => "add text to",
        (Some(AgentTool::Delete), _) | (None, "delete") => "delete",
        (None, "view" | "memory_read") => "view",
        (None, "create") => "create",
        (None, "insert") => "insert text into",
        (None, "rename") => "rename",
        (None, _) => "call an unknown tool",
    }
}

#[derive(Template)]
#[template(path = "call_row.html")]
struct CallRow {
    call: Call,
}

/// `None`: the template failed.
pub fn call_row(event: &SessionEvent, now: Timestamp) -> Option<String> {
    let call = Call::of(event, now);
    rendered(&CallRow { call }).ok()
}

/// A recorded field in words. Contents are recorded by their sizes.
fn described(name: &str, value: &Value) -> String {
    let label = LABELS.iter().find(|(field, _)| *field == name).map_or(name, |(_, label)| *label);
    let end_or_number = |line: &Value| if *line == -1 { "the end".to_owned() } else { line.to_string() };
    let shown = match (value.get("size_bytes").and_then(Value::as_u64), value) {
        (Some(size_bytes), _) => keepsake_core::words::bytes(size_bytes),
        (None, Value::Array(lines)) => lines.iter().map(end_or_number).collect::<Vec<_>>().join(" to "),
        (None, Value::String(text)) => text.clone(),
        (None, other) => other.to_string(),
    };
    format!("{label} {shown}")
}

#[derive(Template)]
#[template(path = "session.html")]
struct SessionPage {
    frame: Frame,
    session: Session,
    /// The attached stores, each with the page that plans to take back what the session wrote.
    attached: Vec<(Attachment, Option<String>)>,
    calls: Vec<Call>,
    /// The stream of the session sends the calls after this one. `None`: no call follows the calls
    /// of the page.
    live_after: Option<EventId>,
    pager: Pager,
    newest_first: bool,
    reads: usize,
    writes: usize,
    may_end: bool,
}

pub(super) async fn show(caller: Caller, Path(session_id): Path<SessionId>) -> PageResult {
    let (engine, principal) = (&caller.engine, &caller.principal);
    let session = engine.sessions.get(principal, session_id).await?;
    let newest_first = caller.query.text("order") == "newest";
    let filter = EventFilter { newest_first, ..EventFilter::default() };
    let found =
        engine.events.list(principal, session_id, &filter, &caller.query.page(EVENTS_PER_PAGE)).await?;
    let frame = caller.frame(title_of(session.title.as_ref()));
    let calls: Vec<_> = found.items.iter().map(|event| Call::of(event, frame.now)).collect();
    let writes = calls.iter().filter(|call| call.is_write).count();
    let pager = caller.query.pager(found.next);
    let is_at_end = if newest_first { pager.is_first() } else { pager.next.is_none() };
    let newest = if newest_first { calls.first() } else { calls.last() };
    // Without a call, the stream begins at the session's creation, whose time is in its id.
    let after = newest.map_or_else(|| EventId::from_uuid(session_id.uuid()), |call| call.id);
    let author = Actor::Session(session_id);
    let attached = session.attachments.iter().cloned();
    page(&SessionPage {
        frame,
        attached: attached
            .map(|store| {
                let may_have_written = store.access == Access::ReadWrite;
                let undo_href = undo::href_for(&caller, store.store_id, &author).filter(|_| may_have_written);
                (store, undo_href)
            })
            .collect(),
        reads: calls.len() - writes,
        writes,
        calls,
        live_after: (is_at_end && session.archived_at.is_none()).then_some(after),
        pager,
        newest_first,
        may_end: session.archived_at.is_none()
            && caller.may(Scope::SessionsWrite)
            && caller.may(Scope::MemoryRead),
        session,
    })
}

pub(super) async fn end(Path(session_id): Path<SessionId>, form: Form) -> PageResult {
    form.engine.sessions.archive(&form.principal, session_id).await?;
    done(&format!("/console/sessions/{session_id}"), Done::SessionEnded)
}

#[cfg(test)]
mod tests {
    use keepsake_core::{SessionId, TenantId};
    use serde_json::json;
    use uuid::Uuid;

    use super::*;

    #[test]
    fn call_of_the_index_has_the_path_that_the_agent_wrote() {
        let input = json!({"command": "create", "path": "/mnt/memory/notes/todo.md", "file_text": {"size_bytes": 27}});
        let event = SessionEvent {
            tenant_id: TenantId::from_uuid(Uuid::nil()),
            session_id: SessionId::from_uuid(Uuid::nil()),
            event_id: EventId::from_uuid(Uuid::nil()),
            at: Timestamp::from_micros(0),
            name: "memory".to_owned(),
            input: input.as_object().unwrap().clone(),
            place: None,
            is_error: true,
        };
        let row = call_row(&event, Timestamp::from_micros(0)).unwrap();
        assert!(row.contains("todo.md") && row.contains("text 27 B") && !row.contains("<a "), "{row}");
        assert!(row.contains("title=\"memory create\">create</span>") && row.contains(">failed<"), "{row}");
    }
}
