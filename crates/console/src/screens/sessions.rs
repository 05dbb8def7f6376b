//! Sessions: which stores an agent has, and what it read and wrote.

use askama::Template;
use axum::extract::{Path, State};
use keepsake_core::Timestamp;
use keepsake_core::id::StoreKind;
use keepsake_engine::{Engine, EventQuery, SessionQuery};
use keepsake_index::{Access, Attachment, Scope, Session, SessionEvent};
use serde_json::Value;

use crate::frame::{Done, Frame, Tab};
use crate::page::{PageResult, done, page};
use crate::request::{Caller, Form, OfSession, Pager, Query};
use crate::text::markup::{Markup, encoded, id, path, time, time_or};

const PER_PAGE: u64 = 50;
const EVENTS_PER_PAGE: u64 = 200;

/// A line of the table.
struct Row {
    href: String,
    id: Markup,
    title: String,
    agent: String,
    stores: Vec<Attached>,
    created: Markup,
    used: Markup,
    has_ended: bool,
}

/// An attached store.
struct Attached {
    name: String,
    href: String,
    directory: String,
    access: &'static str,
    instructions: String,
}

impl Attached {
    fn of(attachment: &Attachment) -> Self {
        Self {
            name: attachment.name.clone(),
            href: format!("/console/stores/{}", attachment.store_id),
            directory: format!("/memories/{}", attachment.slug),
            access: match attachment.access {
                Access::ReadWrite => "reads and writes",
                Access::ReadOnly => "reads only",
            },
            instructions: attachment.instructions.clone().unwrap_or_default(),
        }
    }
}

/// The name of an agent, or its id.
fn agent_of(session: &Session) -> String {
    let agent: Value = serde_json::from_str(session.agent.as_str()).unwrap_or_default();
    let text = |name: &str| {
        agent[name]
            .as_str()
            .filter(|text| !text.is_empty())
            .map(str::to_owned)
    };
    text("name")
        .or_else(|| text("id"))
        .unwrap_or_else(|| "an agent".to_owned())
}

fn title_of(session: &Session) -> String {
    session
        .title
        .clone()
        .filter(|title| !title.is_empty())
        .unwrap_or_else(|| "Untitled session".to_owned())
}

impl Row {
    fn of(session: &Session, now: Timestamp) -> Self {
        Self {
            href: format!("/console/sessions/{}", session.session_id),
            id: id(&session.session_id.to_string()),
            title: title_of(session),
            agent: agent_of(session),
            stores: session.attachments.iter().map(Attached::of).collect(),
            created: time(session.created_at, now),
            used: time_or(session.last_used_at, now, "never"),
            has_ended: session.archived_at.is_some(),
        }
    }
}

#[derive(Template)]
#[template(path = "sessions.html")]
struct SessionsPage {
    frame: Frame,
    rows: Vec<Row>,
    pager: Pager,
    has_ended: bool,
    store: String,
}

/// `GET /console/sessions`
pub(super) async fn list(State(engine): State<Engine>, caller: Caller, Query(fields): Query) -> PageResult {
    let query = SessionQuery {
        store_id: fields.id::<StoreKind>("store")?,
        live: true,
        archived: fields.is_on("ended"),
        page: fields.page(PER_PAGE),
        ..SessionQuery::default()
    };
    let found = engine.sessions.list(&caller.principal, &query).await?;
    let now = engine.now();
    page(&SessionsPage {
        frame: caller.frame("Sessions", Tab::Sessions),
        rows: found.items.iter().map(|session| Row::of(session, now)).collect(),
        pager: fields.pager(found.next),
        has_ended: query.archived,
        store: fields.text("store").to_owned(),
    })
}

/// A tool call, in words.
struct Event {
    at: Markup,
    tool: String,
    command: String,
    is_write: bool,
    target: Option<Markup>,
    target_href: String,
    rest: String,
}

/// Commands and tools that change memories.
const WRITES: [&str; 9] = [
    "create",
    "str_replace",
    "insert",
    "delete",
    "rename",
    "memory_write",
    "memory_edit",
    "memory_append",
    "memory_delete",
];
/// Input fields that the page shows in other columns.
const SHOWN_ELSEWHERE: [&str; 4] = ["command", "path", "old_path", "path_prefix"];

impl Event {
    fn of(event: &SessionEvent, now: Timestamp) -> Self {
        let text = |name: &str| event.input.get(name).and_then(Value::as_str).unwrap_or_default();
        let command = text("command").to_owned();
        let place = event.place.as_ref().filter(|place| !place.path.is_empty());
        let rest = event
            .input
            .iter()
            .filter(|(name, _)| !SHOWN_ELSEWHERE.contains(&name.as_str()));
        let rest: Vec<_> = rest
            .map(|(name, value)| format!("{name}: {}", described(value)))
            .collect();
        Self {
            at: time(event.at, now),
            is_write: WRITES.contains(&command.as_str()) || WRITES.contains(&event.name.as_str()),
            tool: event.name.clone(),
            command,
            target: place.map(|place| path(&place.path)),
            target_href: place.map_or_else(String::new, |place| {
                format!("/console/stores/{}?path={}", place.store_id, encoded(&place.path))
            }),
            rest: rest.join(", "),
        }
    }
}

/// A recorded value: contents are recorded by their sizes.
fn described(value: &Value) -> String {
    match value.get("size_bytes").and_then(Value::as_u64) {
        Some(size_bytes) => keepsake_core::words::bytes(size_bytes),
        None => value.as_str().map_or_else(|| value.to_string(), str::to_owned),
    }
}

#[derive(Template)]
#[template(path = "session.html")]
struct SessionPage {
    frame: Frame,
    row: Row,
    base: String,
    environment: String,
    metadata: Vec<(String, String)>,
    events: Vec<Event>,
    pager: Pager,
    newest_first: bool,
    reads: usize,
    writes: usize,
    may_end: bool,
}

/// `GET /console/sessions/{id}`
pub(super) async fn show(
    State(engine): State<Engine>,
    caller: Caller,
    Path(session_id): OfSession,
    Query(fields): Query,
) -> PageResult {
    let principal = &caller.principal;
    let session = engine.sessions.get(principal, session_id.0).await?;
    let query = EventQuery {
        newest_first: fields.text("order") == "newest",
        page: fields.page(EVENTS_PER_PAGE),
        ..EventQuery::default()
    };
    let found = engine.events.list(principal, session_id.0, &query).await?;
    let now = engine.now();
    let events: Vec<_> = found.items.iter().map(|event| Event::of(event, now)).collect();
    let writes = events.iter().filter(|event| event.is_write).count();
    page(&SessionPage {
        frame: caller.frame(title_of(&session), Tab::Sessions),
        row: Row::of(&session, now),
        base: format!("/console/sessions/{}", session.session_id),
        metadata: session
            .metadata
            .iter()
            .map(|(name, value)| (name.clone(), value.as_str().unwrap_or_default().to_owned()))
            .collect(),
        environment: session.environment_id.clone(),
        reads: events.len() - writes,
        writes,
        events,
        pager: fields.pager(found.next),
        newest_first: query.newest_first,
        may_end: session.archived_at.is_none()
            && caller.may(Scope::SessionsWrite)
            && caller.may(Scope::MemoryRead),
    })
}

/// `POST /console/sessions/{id}/end`
pub(super) async fn end(State(engine): State<Engine>, Path(session_id): OfSession, form: Form) -> PageResult {
    engine
        .sessions
        .archive(&form.caller.principal, session_id.0)
        .await?;
    done(&format!("/console/sessions/{}", session_id.0), Done::SessionEnded)
}
