//! `/v1/sessions`

pub(crate) mod events;
pub(crate) mod resources;
mod shown;

use axum::Json;
use axum::extract::State;
use keepsake_core::{JsonText, SessionId, StoreId, Timestamp};
use keepsake_engine::{Engine, PageRequest, SessionDraft, SessionEdit, SessionQuery};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use utoipa::{IntoParams, ToSchema};

use self::resources::AttachStore;
use self::shown::{NewSession, Session};
use super::list::List;
use super::tool_calls::{ToolCallBody, ToolResult, answer};
use crate::auth::Caller;
use crate::body::{Empty, JsonBody, OptionalBody};
use crate::error::ApiError;
use crate::path::OfSession;
use crate::query::{FromQuery, NoParams, Query, QueryParams};
use crate::schemas::{self, DeletedSessionType, SessionTokenType};

/// Maximum number of JSON values of a body with an agent, stored as text.
const MAX_AGENT_VALUES: usize = 10_000;

/// The body of a create request.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct CreateSession {
    /// The agent: its id, or an object with the id. Stored without
    /// interpretation.
    #[schema(value_type = schemas::AgentReference)]
    agent: JsonText,
    /// The environment's id. Stored without interpretation.
    #[schema(value_type = schemas::ForeignId)]
    environment_id: String,
    /// The title of the session.
    #[schema(value_type = Option<schemas::Title>)]
    title: Option<String>,
    /// At most 16 of your own key-value pairs.
    #[schema(value_type = Option<schemas::Metadata>)]
    metadata: Option<Map<String, Value>>,
    /// The memory stores to attach, without duplicates.
    #[schema(value_type = Option<Vec<AttachStore>>, max_items = 8)]
    resources: Option<Vec<AttachStore>>,
    /// Ids of vaults. Stored without interpretation.
    #[schema(value_type = Option<Vec<schemas::ForeignId>>, max_items = 100)]
    vault_ids: Option<Vec<String>>,
    /// Must be empty: this server runs no agent.
    #[schema(value_type = Option<Vec<Object>>, max_items = 0)]
    initial_events: Option<Vec<Value>>,
    #[schema(ignore)]
    budget: Option<Value>,
}

impl CreateSession {
    fn draft(self) -> Result<SessionDraft, ApiError> {
        refuse("budget", self.budget.as_ref())?;
        if self.initial_events.is_some_and(|events| !events.is_empty()) {
            return Err(ApiError::invalid_request(
                "`initial_events` must be empty: this server attaches memory and runs no agent",
            ));
        }
        Ok(SessionDraft {
            agent: self.agent,
            environment_id: self.environment_id,
            title: self.title,
            metadata: self.metadata.unwrap_or_default(),
            vault_ids: self.vault_ids.unwrap_or_default(),
            attachments: self
                .resources
                .unwrap_or_default()
                .into_iter()
                .map(AttachStore::draft)
                .collect(),
        })
    }
}

/// The body of an update; omitted fields stay unchanged.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct UpdateSession {
    /// The title of the session.
    #[schema(value_type = Option<schemas::Title>)]
    title: Option<String>,
    /// Pairs to set; null removes a pair, and omitted pairs stay unchanged.
    #[schema(value_type = Option<schemas::MetadataPatch>)]
    metadata: Option<Map<String, Value>>,
    #[schema(ignore)]
    agent: Option<Value>,
    #[schema(ignore)]
    vault_ids: Option<Value>,
    #[schema(ignore)]
    budget: Option<Value>,
}

/// Refuses a field that clients know but this server does not support.
fn refuse(name: &str, value: Option<&Value>) -> Result<(), ApiError> {
    match value {
        None => Ok(()),
        Some(_) => Err(ApiError::invalid_request(format!(
            "`{name}` cannot be set: this server attaches memory and runs no agent"
        ))),
    }
}

/// The response to a deletion.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct DeletedSession {
    #[schema(value_type = schemas::SessionId)]
    id: SessionId,
    #[schema(inline)]
    r#type: DeletedSessionType,
}

/// A token of a session.
#[derive(Serialize, ToSchema)]
pub(crate) struct SessionToken {
    /// The session.
    #[schema(value_type = schemas::SessionId)]
    session_id: SessionId,
    #[schema(inline)]
    r#type: SessionTokenType,
    /// A JWT to send as `authorization: Bearer`; valid for 24 hours.
    token: String,
}

/// Filters of a session listing.
#[derive(Debug, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct ListSessions {
    /// Sessions with this memory store attached.
    #[param(value_type = Option<schemas::MemoryStoreId>)]
    memory_store_id: Option<StoreId>,
    /// Sessions of this agent.
    agent_id: Option<String>,
    /// Sessions of this version of the agent; requires `agent_id`.
    #[param(minimum = 0, maximum = 9_007_199_254_740_992_u64)]
    agent_version: Option<u64>,
    /// Sessions of a deployment; always empty, because there are no
    /// deployments.
    deployment_id: Option<String>,
    /// Sessions with this status; may be repeated. Archived sessions are
    /// `terminated`.
    #[param(rename = "statuses[]", value_type = Option<Vec<schemas::SessionStatus>>)]
    statuses: Vec<Status>,
    /// Whether to include archived sessions if no status is requested.
    include_archived: Option<bool>,
    /// Created after this time; `created_at_gt` is an alias.
    #[param(rename = "created_at[gt]", value_type = Option<schemas::Time>)]
    created_after: Option<Timestamp>,
    /// Created at or after this time; `created_at_gte` is an alias.
    #[param(rename = "created_at[gte]", value_type = Option<schemas::Time>)]
    created_from: Option<Timestamp>,
    /// Created before this time; `created_at_lt` is an alias.
    #[param(rename = "created_at[lt]", value_type = Option<schemas::Time>)]
    created_before: Option<Timestamp>,
    /// Created at or before this time; `created_at_lte` is an alias.
    #[param(rename = "created_at[lte]", value_type = Option<schemas::Time>)]
    created_to: Option<Timestamp>,
    /// Order by creation time; `desc` by default.
    #[param(value_type = Option<schemas::Order>)]
    order: Option<Order>,
    /// Items per page; 20 by default.
    #[param(minimum = 1, maximum = 100)]
    limit: Option<u64>,
    /// The `next_page` of the previous page.
    #[param(value_type = Option<schemas::Cursor>)]
    page: Option<String>,
}

/// The status of a session in the clients' protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Status {
    Idle,
    Terminated,
    /// Sessions here are never running, so this status matches none.
    Other,
}

/// The order of a listing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Order {
    Ascending,
    Descending,
}

impl Order {
    pub(crate) fn from_query(query: &mut Query) -> Result<Option<Self>, ApiError> {
        let parse = |text: &str| match text {
            "asc" => Some(Self::Ascending),
            "desc" => Some(Self::Descending),
            _ => None,
        };
        query.word("order", parse, "`asc` or `desc`")
    }
}

impl FromQuery for ListSessions {
    fn from_query(query: &mut Query) -> Result<Self, ApiError> {
        let status = |text: &str| match text {
            "idle" => Some(Status::Idle),
            "terminated" => Some(Status::Terminated),
            "running" | "rescheduling" => Some(Status::Other),
            _ => None,
        };
        Ok(Self {
            memory_store_id: query.id("memory_store_id")?,
            agent_id: query.text("agent_id")?,
            agent_version: query.number("agent_version", "0 on")?,
            deployment_id: query.text("deployment_id")?,
            statuses: query.words(
                "statuses",
                status,
                "`rescheduling`, `running`, `idle` or `terminated`",
            )?,
            include_archived: query.flag("include_archived")?,
            created_after: query.time("created_at", "gt")?,
            created_from: query.time("created_at", "gte")?,
            created_before: query.time("created_at", "lt")?,
            created_to: query.time("created_at", "lte")?,
            order: Order::from_query(query)?,
            limit: query.limit()?,
            page: query.text("page")?,
        })
    }
}

impl From<ListSessions> for SessionQuery {
    fn from(params: ListSessions) -> Self {
        let any = params.statuses.is_empty();
        let has = |status| params.statuses.contains(&status);
        let is_possible = params.deployment_id.is_none();
        let (created_from, created_to) = within(
            (params.created_after, params.created_from),
            (params.created_before, params.created_to),
        );
        Self {
            created_from,
            created_to,
            store_id: params.memory_store_id,
            // A version filters only together with an agent id.
            agent_version: params
                .agent_id
                .as_ref()
                .and(params.agent_version)
                .map(|version| i64::try_from(version).unwrap_or(i64::MAX)),
            agent_id: params.agent_id,
            live: is_possible && (any || has(Status::Idle)),
            archived: is_possible
                && if any {
                    params.include_archived == Some(true)
                } else {
                    has(Status::Terminated) && params.include_archived != Some(false)
                },
            oldest_first: params.order == Some(Order::Ascending),
            page: PageRequest {
                limit: params.limit,
                page: params.page,
            },
        }
    }
}

/// Combines exclusive and inclusive bounds into the earliest and latest time.
pub(crate) fn within(
    (after, from): (Option<Timestamp>, Option<Timestamp>),
    (before, to): (Option<Timestamp>, Option<Timestamp>),
) -> (Option<Timestamp>, Option<Timestamp>) {
    let next = |at: Timestamp| Timestamp::from_micros(at.as_micros().saturating_add(1));
    let last = |at: Timestamp| Timestamp::from_micros(at.as_micros().saturating_sub(1));
    let earliest = from.max(after.map(next));
    let latest = match (to, before.map(last)) {
        (Some(to), Some(before)) => Some(to.min(before)),
        (to, before) => to.or(before),
    };
    (earliest, latest)
}

/// Create a session
///
/// Attaches memory stores for an agent and issues a token that is valid only
/// for this session. A retry without an `Idempotency-Key` creates another
/// session.
#[utoipa::path(
    post,
    path = "/sessions",
    operation_id = "sessions.create",
    tag = "Sessions",
    request_body = CreateSession,
    responses((status = 200, description = "The session and its token.", body = NewSession)),
)]
pub(crate) async fn create(
    State(engine): State<Engine>,
    JsonBody {
        principal,
        body,
        call,
    }: JsonBody<CreateSession, MAX_AGENT_VALUES>,
) -> Result<Json<NewSession>, ApiError> {
    let made = engine.create_session(&principal, body.draft()?, call).await?;
    Ok(Json(made.into()))
}

/// List sessions
///
/// Newest first by default.
#[utoipa::path(
    get,
    path = "/sessions",
    operation_id = "sessions.list",
    tag = "Sessions",
    params(ListSessions),
    responses((status = 200, description = "A page of sessions.", body = List<Session>)),
)]
pub(crate) async fn list(
    State(engine): State<Engine>,
    Caller(principal): Caller,
    QueryParams(params): QueryParams<ListSessions>,
) -> Result<Json<List<Session>>, ApiError> {
    let sessions = engine.sessions(&principal, &params.into()).await?;
    Ok(Json(List::of(sessions, Session::from)))
}

/// Retrieve a session
#[utoipa::path(
    get,
    path = "/sessions/{session_id}",
    operation_id = "sessions.retrieve",
    tag = "Sessions",
    params(("session_id" = schemas::SessionId, Path, description = "The session.")),
    responses((status = 200, description = "The session.", body = Session)),
)]
pub(crate) async fn retrieve(
    State(engine): State<Engine>,
    Caller(principal): Caller,
    OfSession(session_id): OfSession,
) -> Result<Json<Session>, ApiError> {
    Ok(Json(engine.session(&principal, session_id).await?.into()))
}

/// Update a session
///
/// Omitted fields stay unchanged. Metadata is merged; null removes a key.
#[utoipa::path(
    post,
    path = "/sessions/{session_id}",
    operation_id = "sessions.update",
    tag = "Sessions",
    params(("session_id" = schemas::SessionId, Path, description = "The session.")),
    request_body = UpdateSession,
    responses((status = 200, description = "The updated session.", body = Session)),
)]
pub(crate) async fn update(
    State(engine): State<Engine>,
    OfSession(session_id): OfSession,
    JsonBody {
        principal,
        body,
        call,
    }: JsonBody<UpdateSession>,
) -> Result<Json<Session>, ApiError> {
    refuse("agent", body.agent.as_ref())?;
    refuse("vault_ids", body.vault_ids.as_ref())?;
    refuse("budget", body.budget.as_ref())?;
    let edit = SessionEdit {
        title: body.title,
        metadata: body.metadata.unwrap_or_default(),
    };
    let session = engine.update_session(&principal, session_id, edit, call).await?;
    Ok(Json(session.into()))
}

/// Archive a session
///
/// The session accepts no further calls, and its tokens are refused. Archiving
/// cannot be undone; archiving again changes nothing.
#[utoipa::path(
    post,
    path = "/sessions/{session_id}/archive",
    operation_id = "sessions.archive",
    tag = "Sessions",
    params(("session_id" = schemas::SessionId, Path, description = "The session.")),
    request_body = Option<Empty>,
    responses((status = 200, description = "The archived session.", body = Session)),
)]
pub(crate) async fn archive(
    State(engine): State<Engine>,
    OfSession(session_id): OfSession,
    OptionalBody { principal, .. }: OptionalBody<Empty>,
) -> Result<Json<Session>, ApiError> {
    Ok(Json(engine.archive_session(&principal, session_id).await?.into()))
}

/// Delete a session
///
/// Deletes its events too. Its tokens are refused from then on. The memory
/// stores and the content written in the session are kept.
#[utoipa::path(
    delete,
    path = "/sessions/{session_id}",
    operation_id = "sessions.delete",
    tag = "Sessions",
    params(("session_id" = schemas::SessionId, Path, description = "The session.")),
    responses((status = 200, description = "The session was deleted.", body = DeletedSession)),
)]
pub(crate) async fn delete(
    State(engine): State<Engine>,
    Caller(principal): Caller,
    OfSession(session_id): OfSession,
    QueryParams(NoParams): QueryParams<NoParams>,
) -> Result<Json<DeletedSession>, ApiError> {
    engine.delete_session(&principal, session_id).await?;
    Ok(Json(DeletedSession {
        id: session_id,
        r#type: DeletedSessionType::Deleted,
    }))
}

/// Issue a token for a session
///
/// Tokens issued before stay valid.
#[utoipa::path(
    post,
    path = "/sessions/{session_id}/token",
    operation_id = "sessions.token",
    tag = "Sessions",
    params(("session_id" = schemas::SessionId, Path, description = "The session.")),
    request_body = Option<Empty>,
    responses((status = 200, description = "The token.", body = SessionToken)),
)]
pub(crate) async fn token(
    State(engine): State<Engine>,
    OfSession(session_id): OfSession,
    OptionalBody { principal, .. }: OptionalBody<Empty>,
) -> Result<Json<SessionToken>, ApiError> {
    let token = engine.session_token(&principal, session_id).await?;
    Ok(Json(SessionToken {
        session_id,
        r#type: SessionTokenType::Token,
        token,
    }))
}

/// Call a tool in a session
///
/// As on one memory store, with each of the session's stores as a directory
/// under `/memories`.
#[utoipa::path(
    post,
    path = "/sessions/{session_id}/tool_calls",
    operation_id = "sessions.tool_calls.create",
    tag = "Sessions",
    params(("session_id" = schemas::SessionId, Path, description = "The session.")),
    request_body = ToolCallBody,
    responses((status = 200, description = "The result for the model.", body = ToolResult)),
)]
pub(crate) async fn call_tool(
    State(engine): State<Engine>,
    OfSession(session_id): OfSession,
    JsonBody {
        principal,
        body,
        call,
    }: JsonBody<Map<String, Value>>,
) -> Result<Json<ToolResult>, ApiError> {
    let mounts = engine.session_mounts(&principal, session_id).await?;
    answer(&engine, &principal, mounts, body, call).await
}
