//! `/v1/sessions`

pub(crate) mod events;
pub(crate) mod resources;
mod shown;

use axum::extract::State;
use keepsake_core::{JsonText, SessionId, StoreId};
use keepsake_engine::{Engine, PageRequest, SessionDraft, SessionEdit, SessionQuery};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use utoipa::ToSchema;

use self::resources::AttachStore;
use self::shown::{NewSession, Session};
use super::deleted::DeletedSession;
use super::list::{CreatedInOrder, List, ListPage, Order, Prompted};
use super::tool_calls::{ToolCallBody, ToolResult, answer};
use crate::answer::Json;
use crate::auth::Caller;
use crate::body::{Empty, JsonBody, OptionalBody, ToolBody};
use crate::error::ApiError;
use crate::path::Path;
use crate::query::{QueryParams, query_params};
use crate::schemas::{self, SessionTokenType};

/// An agent is stored as text.
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
            attachments: self.resources.unwrap_or_default().into_iter().map(AttachStore::draft).collect(),
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

query_params! {
    /// Filters of a session listing.
    ListSessions {
        /// Sessions with this memory store attached.
        #[param(value_type = Option<schemas::MemoryStoreId>)]
        memory_store_id: Option<StoreId> = id("memory_store_id"),
        /// Sessions of this agent.
        agent_id: Option<String> = text("agent_id"),
        /// Sessions of this version of the agent; requires `agent_id`.
        #[param(minimum = 0, maximum = 9_007_199_254_740_992_u64)]
        agent_version: Option<u64> = number("agent_version", "0 on"),
        /// Sessions of a deployment; always empty, because there are no
        /// deployments.
        deployment_id: Option<String> = text("deployment_id"),
        /// Sessions with this status; may be repeated. Archived sessions are
        /// `terminated`.
        #[param(rename = "statuses[]", value_type = Option<Vec<schemas::SessionStatus>>)]
        statuses: Vec<Status> = words("statuses", Status::parse, "`rescheduling`, `running`, `idle` or `terminated`"),
        /// Whether to include archived sessions if no status is requested.
        include_archived: Option<bool> = flag("include_archived"),
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Status {
    Idle,
    Terminated,
    /// Sessions here are never running, so this status matches no session.
    Other,
}

impl Status {
    fn parse(text: &str) -> Option<Self> {
        match text {
            "idle" => Some(Self::Idle),
            "terminated" => Some(Self::Terminated),
            "running" | "rescheduling" => Some(Self::Other),
            _ => None,
        }
    }
}

impl ListSessions {
    fn query(self, created: &CreatedInOrder, page: PageRequest) -> SessionQuery {
        let any = self.statuses.is_empty();
        let has = |status| self.statuses.contains(&status);
        let is_possible = self.deployment_id.is_none();
        let (created_from, created_to) = created.bounds();
        SessionQuery {
            created_from,
            created_to,
            store_id: self.memory_store_id,
            // A version filters only together with an agent id.
            agent_version: self
                .agent_id
                .as_ref()
                .and(self.agent_version)
                .map(|version| i64::try_from(version).unwrap_or(i64::MAX)),
            agent_id: self.agent_id,
            live: is_possible && (any || has(Status::Idle)),
            archived: is_possible
                && if any {
                    self.include_archived == Some(true)
                } else {
                    has(Status::Terminated) && self.include_archived != Some(false)
                },
            oldest_first: created.order == Some(Order::Ascending),
            page,
        }
    }
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
    params(Prompted),
    request_body = CreateSession,
    responses((status = 200, description = "The session and its token.", body = NewSession)),
)]
pub(crate) async fn create(
    State(engine): State<Engine>,
    QueryParams(prompted): QueryParams<Prompted>,
    JsonBody(principal, body, call): JsonBody<CreateSession, MAX_AGENT_VALUES>,
) -> Result<Json<NewSession>, ApiError> {
    let options = prompted.options()?;
    let made = engine.sessions.create(&principal, body.draft()?, call).await?;
    let prompt = engine.prompts.of_session(&principal, &made.session, &options).await?;
    Ok(Json(NewSession::with_prompt(made, prompt)))
}

/// List sessions
///
/// Newest first by default.
#[utoipa::path(
    get,
    path = "/sessions",
    operation_id = "sessions.list",
    params(ListSessions, CreatedInOrder, ListPage),
    responses((status = 200, description = "A page of sessions.", body = List<Session>)),
)]
pub(crate) async fn list(
    State(engine): State<Engine>,
    Caller(principal): Caller,
    QueryParams((params, created, page)): QueryParams<(ListSessions, CreatedInOrder, ListPage)>,
) -> Result<Json<List<Session>>, ApiError> {
    let query = params.query(&created, page.into());
    let sessions = engine.sessions.list(&principal, &query).await?;
    Ok(Json(List::of(sessions, Session::from)))
}

/// Retrieve a session
#[utoipa::path(
    get,
    path = "/sessions/{session_id}",
    operation_id = "sessions.retrieve",
    params(Prompted),
    responses((status = 200, description = "The session.", body = Session)),
)]
pub(crate) async fn retrieve(
    State(engine): State<Engine>,
    Caller(principal): Caller,
    Path(session_id): Path<SessionId>,
    QueryParams(prompted): QueryParams<Prompted>,
) -> Result<Json<Session>, ApiError> {
    let options = prompted.options()?;
    let session = engine.sessions.get(&principal, session_id).await?;
    let prompt = engine.prompts.of_session(&principal, &session, &options).await?;
    Ok(Json(Session::with_prompt(session, prompt)))
}

/// Update a session
///
/// Omitted fields stay unchanged. Metadata is merged; null removes a key.
#[utoipa::path(
    post,
    path = "/sessions/{session_id}",
    operation_id = "sessions.update",
    request_body = UpdateSession,
    responses((status = 200, description = "The updated session.", body = Session)),
)]
pub(crate) async fn update(
    State(engine): State<Engine>,
    Path(session_id): Path<SessionId>,
    JsonBody(principal, body, call): JsonBody<UpdateSession>,
) -> Result<Json<Session>, ApiError> {
    refuse("agent", body.agent.as_ref())?;
    refuse("vault_ids", body.vault_ids.as_ref())?;
    refuse("budget", body.budget.as_ref())?;
    let edit = SessionEdit { title: body.title, metadata: body.metadata.unwrap_or_default() };
    let session = engine.sessions.update(&principal, session_id, edit, call).await?;
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
    request_body = Option<Empty>,
    responses((status = 200, description = "The archived session.", body = Session)),
)]
pub(crate) async fn archive(
    State(engine): State<Engine>,
    Path(session_id): Path<SessionId>,
    OptionalBody(principal, ..): OptionalBody<Empty>,
) -> Result<Json<Session>, ApiError> {
    Ok(Json(engine.sessions.archive(&principal, session_id).await?.into()))
}

/// Delete a session
///
/// Deletes its events too. Its tokens are refused from then on. The memory
/// stores and the content written in the session are kept.
#[utoipa::path(
    delete,
    path = "/sessions/{session_id}",
    operation_id = "sessions.delete",
    responses((status = 200, description = "The session was deleted.", body = DeletedSession)),
)]
pub(crate) async fn delete(
    State(engine): State<Engine>,
    Caller(principal): Caller,
    Path(session_id): Path<SessionId>,
    _: QueryParams<()>,
) -> Result<Json<DeletedSession>, ApiError> {
    engine.sessions.delete(&principal, session_id).await?;
    Ok(Json(session_id.into()))
}

/// Issue a token for a session
///
/// Tokens issued before stay valid.
#[utoipa::path(
    post,
    path = "/sessions/{session_id}/token",
    operation_id = "sessions.token",
    request_body = Option<Empty>,
    responses((status = 200, description = "The token.", body = SessionToken)),
)]
pub(crate) async fn token(
    State(engine): State<Engine>,
    Path(session_id): Path<SessionId>,
    OptionalBody(principal, ..): OptionalBody<Empty>,
) -> Result<Json<SessionToken>, ApiError> {
    let token = engine.sessions.issue_token(&principal, session_id).await?;
    Ok(Json(SessionToken { session_id, r#type: SessionTokenType, token }))
}

/// Call a tool in a session
///
/// As on one memory store, with each of the session's stores as a directory
/// under `/memories`.
#[utoipa::path(
    post,
    path = "/sessions/{session_id}/tool_calls",
    operation_id = "sessions.tool_calls.create",
    request_body = ToolCallBody,
    responses((status = 200, description = "The result for the model.", body = ToolResult)),
)]
pub(crate) async fn call_tool(
    State(engine): State<Engine>,
    Path(session_id): Path<SessionId>,
    body: ToolBody,
) -> Result<Json<ToolResult>, ApiError> {
    let mounts = engine.sessions.mounts(&body.principal, session_id).await?;
    answer(&engine, mounts, body).await
}
