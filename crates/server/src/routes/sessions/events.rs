//! `/v1/sessions/{session_id}/events`: what an agent called, as a list and as a stream.

use std::sync::Arc;
use std::time::Duration;

use axum::response::Response;
use axum::response::sse::Event;
use keepsake_core::{EventId, Refused, SessionId, Timestamp};
use keepsake_engine::{Engine, EngineError, FollowedSession, Page, Principal, is_tool};
use keepsake_index::{EventFilter, SessionEvent as Kept};
use serde::Serialize;
use serde_json::{Map, Value};
use tokio::time::Interval;
use utoipa::ToSchema;

use crate::answer::{Answer, Json};
use crate::auth::Caller;
use crate::error::ApiError;
use crate::path::Path;
use crate::query::{QueryParams, query_params};
use crate::routes::list::{CreatedInOrder, List, Order, SessionPage};
use crate::schemas::{self, AlwaysAllowType, ToolUseType};
use crate::streams::{ReadyEvents, Source, Subscription};

const TOOL_USE: &str = "agent.tool_use";
/// The longest time by which a stream may outlive its session.
const LOOK_INTERVAL: Duration = Duration::from_secs(15);

/// A call of a tool.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct SessionEvent {
    id: EventId,
    #[schema(inline)]
    r#type: ToolUseType,
    /// The tool's name.
    name: String,
    /// The input of the call; content is replaced by an object with
    /// `size_bytes`.
    #[schema(value_type = Object)]
    input: Map<String, Value>,
    processed_at: Timestamp,
    /// Whether the call was allowed: a call of a tool that does not exist was not.
    #[schema(value_type = schemas::Permission)]
    evaluated_permission: &'static str,
    /// Why the call was allowed: no tool asks. Omitted if it was not.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(inline)]
    evaluation: Option<Evaluation>,
}

/// The policy that allowed a call.
#[derive(Debug, Serialize, ToSchema)]
struct Evaluation {
    #[schema(inline)]
    r#type: AlwaysAllowType,
}

impl From<Kept> for SessionEvent {
    fn from(event: Kept) -> Self {
        let is_allowed = is_tool(&event.name);
        let evaluation = Evaluation { r#type: AlwaysAllowType };
        Self {
            id: event.event_id,
            r#type: ToolUseType,
            name: event.name,
            input: event.input,
            processed_at: event.at,
            evaluated_permission: if is_allowed { "allow" } else { "deny" },
            evaluation: is_allowed.then_some(evaluation),
        }
    }
}

query_params! {
    /// Filters of an event listing.
    ListEvents {
        /// Events of this type; may be repeated. The only type is `agent.tool_use`.
        #[param(rename = "types[]", value_type = Option<Vec<String>>)]
        types: Vec<String> = words("types", |text| Some(text.to_owned()), "an event's type"),
    }
}

/// List the events of a session
///
/// One event for each tool call, in order of time; kept for 30 days.
#[utoipa::path(
    get,
    path = "/sessions/{session_id}/events",
    operation_id = "sessions.events.list",
    params(ListEvents, CreatedInOrder, SessionPage),
    responses((status = 200, description = "A page of events.", body = List<SessionEvent>)),
)]
pub(crate) async fn list(
    Caller(engine, principal): Caller,
    Path(session_id): Path<SessionId>,
    QueryParams((params, created, page)): QueryParams<(ListEvents, CreatedInOrder, SessionPage)>,
) -> Answer<List<SessionEvent>> {
    let (from, to) = created.bounds();
    let filter = EventFilter { from, to, newest_first: created.order == Some(Order::Descending) };
    let mut events = engine.events.list(&principal, session_id, &filter, &page.into()).await?;
    if !params.types.is_empty() && !params.types.iter().any(|name| name == TOOL_USE) {
        events = Page { items: Vec::new(), next: None };
    }
    Ok(Json(List::of(events, SessionEvent::from)))
}

query_params! {
    /// Parameters of a session's stream.
    StreamEvents {
        /// Accepted for the SDKs. There are no parts of events.
        #[param(rename = "event_deltas[]", value_type = Option<Vec<String>>)]
        _event_deltas: Vec<String> = words("event_deltas", |text| Some(text.to_owned()), "an event's type"),
    }
}

/// Follow the events of a session
///
/// Server-sent events: each tool call of the session from now on, named by its type,
/// with the event's id. With `last-event-id`, also those after that event; events of the
/// 90 seconds before it are sent again. An event that another replica served may
/// come up to 30 seconds late. A comment is sent every 15 seconds. The stream ends with
/// its credential, its session or its server, with an event `error` that says why.
#[utoipa::path(
    get,
    path = "/sessions/{session_id}/events/stream",
    operation_id = "sessions.events.stream",
    params(StreamEvents),
    responses((
        status = 200,
        description = "The events, each with a `SessionEvent` as its data.",
        body = String,
        content_type = "text/event-stream",
    )),
)]
pub(crate) async fn stream(
    Caller(engine, principal): Caller,
    Path(session_id): Path<SessionId>,
    QueryParams(_): QueryParams<StreamEvents>,
    subscription: Subscription,
) -> Result<Response, ApiError> {
    let after = subscription.place(|text| text.parse().ok())?;
    let calls = Calls::follow(&engine, &principal, session_id, after, sent).await?;
    Ok(subscription.answer(engine, calls))
}

type Write = fn(Kept, Timestamp) -> Option<Event>;

pub(crate) struct Calls {
    session_id: SessionId,
    followed: FollowedSession,
    write: Write,
    /// When the session is read although it had no call.
    looks: Interval,
}

impl Calls {
    pub(crate) async fn follow(
        engine: &Engine,
        principal: &Principal,
        session_id: SessionId,
        after: Option<EventId>,
        write: Write,
    ) -> Result<Self, EngineError> {
        Ok(Self {
            session_id,
            followed: engine.events.follow(principal, session_id, after).await?,
            write,
            looks: tokio::time::interval(LOOK_INTERVAL),
        })
    }
}

impl Source for Calls {
    async fn read(
        &mut self,
        engine: &Engine,
        principal: &Arc<Principal>,
    ) -> Result<Option<ReadyEvents>, EngineError> {
        // Read before the events, so that no event before the archiving is missed.
        let session = engine.sessions.get(principal, self.session_id).await?;
        let events = engine.events.next(principal, &mut self.followed).await?;
        if events.is_empty() {
            return match session.archived_at {
                Some(_) => Err(Refused::SessionArchived.into()),
                None => Ok(None),
            };
        }
        let (write, now) = (self.write, engine.now());
        let events = events.into_iter().filter_map(move |event| write(event, now));
        Ok(Some(Box::new(events)))
    }

    async fn changed(&mut self) {
        tokio::select! {
            () = self.followed.changed() => {}
            _ = self.looks.tick() => {}
        }
    }
}

fn sent(event: Kept, _: Timestamp) -> Option<Event> {
    let id = event.event_id.to_string();
    let shown = SessionEvent::from(event);
    let event = Event::default().event(TOOL_USE).id(id).json_data(&shown);
    event.ok()
}
