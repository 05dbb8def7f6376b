//! `GET /v1/sessions/{session_id}/events`

use axum::Json;
use axum::extract::State;
use keepsake_core::{EventId, Timestamp};
use keepsake_engine::{Engine, EventQuery, Page, PageRequest};
use keepsake_index::SessionEvent as Kept;
use serde::Serialize;
use serde_json::{Map, Value};
use utoipa::{IntoParams, ToSchema};

use super::{Order, within};
use crate::auth::Caller;
use crate::error::ApiError;
use crate::path::OfSession;
use crate::query::{FromQuery, Query, QueryParams};
use crate::routes::list::List;
use crate::schemas::{self, ToolUseType};

/// The type of every event.
const TOOL_USE: &str = "agent.tool_use";

/// A call of a tool.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct SessionEvent {
    #[schema(value_type = schemas::SessionEventId)]
    id: EventId,
    #[schema(inline)]
    r#type: ToolUseType,
    /// The tool's name.
    name: String,
    /// The input of the call; content is replaced by an object with
    /// `size_bytes`.
    #[schema(value_type = Object)]
    input: Map<String, Value>,
    #[schema(value_type = schemas::Time)]
    processed_at: String,
}

impl From<Kept> for SessionEvent {
    fn from(event: Kept) -> Self {
        Self {
            id: event.event_id,
            r#type: ToolUseType::ToolUse,
            name: event.name,
            input: event.input,
            processed_at: event.at.to_rfc3339(),
        }
    }
}

/// Filters of an event listing.
#[derive(Debug, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct ListEvents {
    /// Events of this type; may be repeated. The only type is `agent.tool_use`.
    #[param(rename = "types[]", value_type = Option<Vec<String>>)]
    types: Vec<String>,
    /// After this time; `created_at_gt` is an alias.
    #[param(rename = "created_at[gt]", value_type = Option<schemas::Time>)]
    after: Option<Timestamp>,
    /// At or after this time; `created_at_gte` is an alias.
    #[param(rename = "created_at[gte]", value_type = Option<schemas::Time>)]
    from: Option<Timestamp>,
    /// Before this time; `created_at_lt` is an alias.
    #[param(rename = "created_at[lt]", value_type = Option<schemas::Time>)]
    before: Option<Timestamp>,
    /// At or before this time; `created_at_lte` is an alias.
    #[param(rename = "created_at[lte]", value_type = Option<schemas::Time>)]
    to: Option<Timestamp>,
    /// Order by time; `asc` by default.
    #[param(value_type = Option<schemas::Order>)]
    order: Option<Order>,
    /// Items per page; 20 by default.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<u64>,
    /// The `next_page` of the previous page.
    #[param(value_type = Option<schemas::Cursor>)]
    page: Option<String>,
}

impl FromQuery for ListEvents {
    fn from_query(query: &mut Query) -> Result<Self, ApiError> {
        Ok(Self {
            types: query.words("types", |text| Some(text.to_owned()), "an event's type")?,
            after: query.time("created_at", "gt")?,
            from: query.time("created_at", "gte")?,
            before: query.time("created_at", "lt")?,
            to: query.time("created_at", "lte")?,
            order: Order::from_query(query)?,
            limit: query.session_limit()?,
            page: query.text("page")?,
        })
    }
}

/// List the events of a session
///
/// One event for each tool call, in order of time; kept for 30 days.
#[utoipa::path(
    get,
    path = "/sessions/{session_id}/events",
    operation_id = "sessions.events.list",
    tag = "Sessions",
    params(("session_id" = schemas::SessionId, Path, description = "The session."), ListEvents),
    responses((status = 200, description = "A page of events.", body = List<SessionEvent>)),
)]
pub(crate) async fn list(
    State(engine): State<Engine>,
    Caller(principal): Caller,
    OfSession(session_id): OfSession,
    QueryParams(params): QueryParams<ListEvents>,
) -> Result<Json<List<SessionEvent>>, ApiError> {
    let (from, to) = within((params.after, params.from), (params.before, params.to));
    let query = EventQuery {
        from,
        to,
        newest_first: params.order == Some(Order::Descending),
        page: PageRequest {
            limit: params.limit,
            page: params.page,
        },
    };
    let mut events = engine.session_events(&principal, session_id, &query).await?;
    if !params.types.is_empty() && !params.types.iter().any(|name| name == TOOL_USE) {
        events = Page {
            items: Vec::new(),
            next: None,
        };
    }
    Ok(Json(List::of(events, SessionEvent::from)))
}
