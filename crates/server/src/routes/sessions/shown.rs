//! A session in the form of the clients' protocol.

use keepsake_core::{JsonText, SessionId, Timestamp};
use keepsake_engine::{PromptOptions, SessionWithToken, system_prompt};
use keepsake_index::{Attachment, Session as Kept};
use serde::Serialize;
use serde_json::{Map, Value};
use utoipa::ToSchema;

use crate::schemas::{self, SessionType};

/// A session: memory stores attached for an agent.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Session {
    id: SessionId,
    #[schema(inline)]
    r#type: SessionType,
    /// The agent, with empty values for omitted fields.
    #[schema(value_type = schemas::Agent)]
    agent: JsonText,
    environment_id: String,
    #[schema(required)]
    title: Option<String>,
    #[schema(value_type = schemas::Metadata)]
    metadata: Map<String, Value>,
    resources: Vec<Attachment>,
    /// `idle`, or `terminated` once it is archived.
    status: SessionStatus,
    vault_ids: Vec<String>,
    created_at: Timestamp,
    /// When the session or its attachments last changed.
    updated_at: Timestamp,
    /// When it was archived; since then it accepts no calls.
    #[schema(required)]
    archived_at: Option<Timestamp>,
    /// Always null on this server.
    #[schema(value_type = Option<Object>, required)]
    budget: Option<Nothing>,
    /// Always null: this server has no deployments.
    #[schema(value_type = Option<String>, required)]
    deployment_id: Option<Nothing>,
    /// Always empty on this server.
    #[schema(value_type = Vec<Object>, max_items = 0)]
    outcome_evaluations: [Nothing; 0],
    stats: Stats,
    usage: Usage,
    /// Text to add to the agent's system prompt: how to use memory, and which
    /// stores are attached.
    system_prompt: String,
}

keepsake_core::named_enum! {
    /// Sessions here are idle until they are archived.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub(crate) enum SessionStatus {
        Rescheduling = "rescheduling",
        Running = "running",
        Idle = "idle",
        Terminated = "terminated",
    }
}

keepsake_core::shown_by_name! {
    SessionStatus as "SessionStatus" => "The status of a session: `idle`, or `terminated` once it is archived; the other values are of the clients' protocol.";
}

#[derive(Debug, Serialize)]
enum Nothing {}

/// Always empty: this server measures no times.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = SessionStats)]
struct Stats {}

/// Always empty: this server uses no tokens.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = SessionUsage)]
struct Usage {
    #[schema(value_type = Option<Object>, required)]
    list_cost: Option<Nothing>,
    #[schema(value_type = Option<Object>, required)]
    server_tool_use: Option<Nothing>,
}

/// A session and its token.
#[derive(Serialize, ToSchema)]
pub(crate) struct NewSession {
    #[serde(flatten)]
    session: Session,
    /// A JWT only for this session, valid for 24 hours, returned only once;
    /// null in the response to a retry.
    #[schema(required)]
    token: Option<String>,
}

impl From<Kept> for Session {
    fn from(session: Kept) -> Self {
        let system_prompt = system_prompt(&session, &PromptOptions::default());
        Self::with_prompt(session, system_prompt)
    }
}

impl Session {
    /// `system_prompt` is the text for the session's agent.
    pub(crate) fn with_prompt(session: Kept, system_prompt: String) -> Self {
        Self {
            system_prompt,
            id: session.session_id,
            r#type: SessionType,
            agent: session.agent,
            environment_id: session.environment_id,
            title: session.title,
            metadata: session.metadata,
            resources: session.attachments,
            status: match session.archived_at {
                Some(_) => SessionStatus::Terminated,
                None => SessionStatus::Idle,
            },
            vault_ids: session.vault_ids,
            created_at: session.created_at,
            updated_at: session.updated_at,
            archived_at: session.archived_at,
            budget: None,
            deployment_id: None,
            outcome_evaluations: [],
            stats: Stats {},
            usage: Usage { list_cost: None, server_tool_use: None },
        }
    }
}

impl NewSession {
    pub(crate) fn with_prompt(made: SessionWithToken, system_prompt: String) -> Self {
        Self { session: Session::with_prompt(made.session, system_prompt), token: made.token }
    }
}
