//! The tools that models call: the memory tool and the agent tools.
//!
//! An error that the model can correct is an answer with `is_error`; an error
//! for the caller is an [`EngineError`].

mod agent;
mod changes;
mod memory;
mod replay;

use std::sync::Arc;

use futures::future::BoxFuture;
use keepsake_core::ObjectKind;
use keepsake_core::schemas::ToolResultType;
use keepsake_core::tool::agent::{AgentResult, AgentTool};
use keepsake_core::tool::{ToolError, ToolPath};
use keepsake_index::Idempotency;
use serde::Serialize;
use serde_json::{Map, Value};
use utoipa::ToSchema;

use crate::access::AccessTimes;
use crate::content::Contents;
use crate::context::Context;
use crate::{EngineError, Mounts, Principal, Search, SessionEvents, Stores};

pub use agent::AgentTools;
pub(crate) use changes::ToolChanges;
pub use memory::MemoryTool;

/// The memory tool's name in a block.
pub const MEMORY_TOOL: &str = "memory";

pub fn is_tool(name: &str) -> bool {
    name == MEMORY_TOOL || AgentTool::parse(name).is_some()
}

#[derive(Debug, Clone, PartialEq)]
pub struct ToolCall {
    /// The `tool_use` block's id, if there was a block. Together with the input
    /// it makes a changing call idempotent.
    pub tool_use_id: Option<String>,
    /// The block's `input`.
    pub input: Map<String, Value>,
    /// The first input field in which an invalid Unicode character was replaced. Such a
    /// call is refused.
    pub not_unicode: Option<String>,
    /// The identity of the call from its request; overrides the block's id.
    pub idempotency: Option<Idempotency>,
}

/// A `tool_result` block.
#[derive(Debug, Clone, Default, PartialEq, Serialize, ToSchema)]
#[schema(as = ToolResult)]
pub struct ToolAnswer {
    #[schema(inline)]
    pub r#type: ToolResultType,
    /// The `tool_use` block's id; omitted if the request had none.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub tool_use_id: Option<String>,
    /// The result for the model.
    pub content: String,
    /// Whether the call failed in a way that the model can correct.
    pub is_error: bool,
    /// The same result for programs, if the tool has structured results.
    #[serde(skip)]
    pub result: Option<AgentResult>,
}

impl From<Result<String, ToolError>> for ToolAnswer {
    fn from(outcome: Result<String, ToolError>) -> Self {
        match outcome {
            Ok(content) => Self { content, ..Self::default() },
            Err(error) => error.into(),
        }
    }
}

impl From<Result<AgentResult, ToolError>> for ToolAnswer {
    fn from(outcome: Result<AgentResult, ToolError>) -> Self {
        match outcome {
            Ok(result) => Self { content: result.to_text(), result: Some(result), ..Self::default() },
            Err(error) => error.into(),
        }
    }
}

impl From<ToolError> for ToolAnswer {
    fn from(error: ToolError) -> Self {
        Self { content: error.to_string(), is_error: true, ..Self::default() }
    }
}

/// Why a command has no result: an error for the model or for the caller.
#[derive(Debug)]
enum Stop {
    Tool(ToolError),
    Engine(EngineError),
}

impl From<ToolError> for Stop {
    fn from(error: ToolError) -> Self {
        Self::Tool(error)
    }
}

impl<E: Into<EngineError>> From<E> for Stop {
    fn from(error: E) -> Self {
        Self::Engine(error.into())
    }
}

/// The error of a call that reads the file at a path. Missing or damaged content is an error
/// for the model, which can write the file again.
fn of_read(path: &ToolPath) -> impl Fn(EngineError) -> Stop {
    move |error| match error {
        EngineError::ContentMissing { .. } => {
            Stop::Tool(ToolError::ContentMissing { path: path.display().to_owned() })
        }
        EngineError::ContentDamaged { .. } => {
            Stop::Tool(ToolError::ContentDamaged { path: path.display().to_owned() })
        }
        error => Stop::Engine(error),
    }
}

fn settle<T>(outcome: Result<T, Stop>) -> Result<Result<T, ToolError>, EngineError> {
    match outcome {
        Ok(result) => Ok(Ok(result)),
        Err(Stop::Tool(error)) => Ok(Err(error)),
        Err(Stop::Engine(error)) => Err(error),
    }
}

/// What the memory tool and the agent tools share.
#[derive(Debug, Clone)]
pub(crate) struct ToolServices {
    pub(crate) context: Arc<Context>,
    pub(crate) contents: Arc<Contents>,
    pub(crate) access: AccessTimes,
    pub(crate) stores: Stores,
    pub(crate) changes: ToolChanges,
}

impl ToolServices {
    /// The answer to an invalid input. A missing store is an error for the caller, and is
    /// reported first.
    async fn refuse(
        &self,
        principal: &Principal,
        mounts: &Mounts,
        refusal: ToolError,
    ) -> Result<ToolAnswer, EngineError> {
        if let Some(store_id) = mounts.single() {
            self.stores.require(principal, store_id).await?;
        }
        Ok(refusal.into())
    }
}

#[derive(Debug)]
pub struct Tools {
    pub memory: MemoryTool,
    pub agent: AgentTools,
    services: ToolServices,
    events: SessionEvents,
}

impl Tools {
    pub(crate) fn new(services: ToolServices, search: Search, events: SessionEvents) -> Self {
        let (memory, agent) =
            (MemoryTool(services.clone()), AgentTools { services: services.clone(), search });
        Self { memory, agent, services, events }
    }

    /// Carries out one call of a tool by its name: the memory tool, or one of the agent
    /// tools. A call in a session is recorded as an event.
    ///
    /// A change runs to its end even when this future is dropped. After a failure of the
    /// index the change may have been committed; a call with a `tool_use_id` can be
    /// repeated.
    pub async fn call(
        &self,
        principal: &Arc<Principal>,
        mounts: impl Into<Mounts>,
        name: &str,
        call: ToolCall,
    ) -> Result<ToolAnswer, EngineError> {
        let mounts = mounts.into();
        let event = self.events.of_call(principal, &mounts, name, &call.input);
        let is_in_session = mounts.session_id().is_some();
        let tool_use_id = call.tool_use_id.clone();
        let answer = match self.call_by_name(principal, mounts, name, call).await {
            // The deletion of the store has not yet reached every replica's
            // cache.
            Err(EngineError::NotFound(ObjectKind::Store)) if is_in_session => ToolError::StoreGone.into(),
            answer => answer?,
        };
        if let Some(event) = event {
            self.events.note(event);
        }
        Ok(ToolAnswer { tool_use_id, ..answer })
    }

    /// Boxed, so that the tools are compiled here and not again in each crate that
    /// calls them.
    fn call_by_name<'a>(
        &'a self,
        principal: &'a Arc<Principal>,
        mounts: Mounts,
        name: &'a str,
        call: ToolCall,
    ) -> BoxFuture<'a, Result<ToolAnswer, EngineError>> {
        Box::pin(async move {
            let refusal = match call.not_unicode.clone() {
                Some(field) if is_tool(name) => ToolError::NotUnicode { field },
                _ => {
                    if let Some(tool) = AgentTool::parse(name) {
                        return self.agent.call(principal, mounts, tool, call).await;
                    }
                    if name == MEMORY_TOOL {
                        return self.memory.call(principal, mounts, call).await;
                    }
                    ToolError::UnknownTool
                }
            };
            let mounts = principal.seen(mounts)?;
            self.services.refuse(principal, &mounts, refusal).await
        })
    }
}
