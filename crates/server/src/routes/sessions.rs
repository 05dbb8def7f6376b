//! `/v1/sessions`

pub(crate) mod events;
pub(crate) mod resources;
mod shown;

use keepsake_core::{SessionId, StoreId};
use keepsake_engine::{SessionDraft, SessionEdit, ToolAnswer};
use keepsake_index::SessionFilter;
use serde::Serialize;
use utoipa::ToSchema;

use self::shown::{NewSession, Session, SessionStatus};
use super::deleted::DeletedSession;
use super::list::{CreatedInOrder, List, ListPage, Order, Prompted};
use super::tool_calls::ToolCallBody;
use crate::answer::{Answer, Json};
use crate::auth::Caller;
use crate::body::{Empty, JsonBody, OptionalBody, ToolBody};
use crate::path::Path;
use crate::query::{QueryParams, query_params};
use crate::schemas::SessionTokenType;

/// An agent is stored as text.
const MAX_AGENT_VALUES: usize = 10_000;

/// A token of a session.
#[derive(Serialize, ToSchema)]
pub(crate) struct SessionToken {
    /// The session.
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
        #[param(rename = "statuses[]", value_type = Option<Vec<SessionStatus>>)]
        statuses: Vec<SessionStatus> = words("statuses", SessionStatus::parse, "`rescheduling`, `running`, `idle` or `terminated`"),
        /// Whether to include archived sessions if no status is requested.
        include_archived: Option<bool> = flag("include_archived"),
    }
}

impl ListSessions {
    fn filter(self, created: &CreatedInOrder) -> SessionFilter {
        let any = self.statuses.is_empty();
        let has = |status| self.statuses.contains(&status);
        let is_possible = self.deployment_id.is_none();
        let (created_from, created_to) = created.bounds();
        SessionFilter {
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
            live: is_possible && (any || has(SessionStatus::Idle)),
            archived: is_possible
                && if any {
                    self.include_archived == Some(true)
                } else {
                    has(SessionStatus::Terminated) && self.include_archived != Some(false)
                },
            oldest_first: created.order == Some(Order::Ascending),
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
    request_body = SessionDraft,
    responses((status = 200, description = "The session and its token.", body = NewSession)),
)]
pub(crate) async fn create(
    QueryParams(prompted): QueryParams<Prompted>,
    JsonBody(Caller(engine, principal), draft, call): JsonBody<SessionDraft, MAX_AGENT_VALUES>,
) -> Answer<NewSession> {
    let options = prompted.options()?;
    let made = engine.sessions.create(&principal, draft, call).await?;
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
    Caller(engine, principal): Caller,
    QueryParams((params, created, page)): QueryParams<(ListSessions, CreatedInOrder, ListPage)>,
) -> Answer<List<Session>> {
    let sessions = engine.sessions.list(&principal, &params.filter(&created), &page.into()).await?;
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
    Caller(engine, principal): Caller,
    Path(session_id): Path<SessionId>,
    QueryParams(prompted): QueryParams<Prompted>,
) -> Answer<Session> {
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
    request_body = SessionEdit,
    responses((status = 200, description = "The updated session.", body = Session)),
)]
pub(crate) async fn update(
    Path(session_id): Path<SessionId>,
    JsonBody(Caller(engine, principal), edit, call): JsonBody<SessionEdit>,
) -> Answer<Session> {
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
    Path(session_id): Path<SessionId>,
    JsonBody(Caller(engine, principal), ..): OptionalBody<Empty>,
) -> Answer<Session> {
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
    Caller(engine, principal): Caller,
    Path(session_id): Path<SessionId>,
    _: QueryParams<()>,
) -> Answer<DeletedSession> {
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
    Path(session_id): Path<SessionId>,
    JsonBody(Caller(engine, principal), ..): OptionalBody<Empty>,
) -> Answer<SessionToken> {
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
    responses((status = 200, description = "The result for the model.", body = ToolAnswer)),
)]
pub(crate) async fn call_tool(
    Path(session_id): Path<SessionId>,
    ToolBody(Caller(engine, principal), call): ToolBody,
) -> Answer<ToolAnswer> {
    let mounts = engine.sessions.mounts(&principal, session_id).await?;
    Ok(Json(engine.tools.call(&principal, mounts, call?).await?))
}
