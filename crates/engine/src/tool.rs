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
use keepsake_core::schemas::ToolResultType;
use keepsake_core::tool::agent::{AgentCall, AgentResult, AgentTool, WrittenVersion};
use keepsake_core::tool::{Command, Edit, ToolError, ToolInput, ToolPath};
use keepsake_core::{MemoryPath, ObjectKind, StoreId};
use keepsake_index::{Idempotency, Scope, SessionEvent, Target};
use serde::Serialize;
use serde_json::{Map, Value};
use utoipa::ToSchema;

use crate::sessions::event_of_call;
use crate::shared::Shared;
use crate::write::{Decision, PathRead, Reads};
use crate::{EngineError, Mount, Mounts, Principal, Search, Stores};

use changes::change;

/// The memory tool's name in a block.
pub const MEMORY_TOOL: &str = "memory";

pub fn is_tool(name: &str) -> bool {
    name == MEMORY_TOOL || AgentTool::parse(name).is_some()
}

#[derive(Debug, Clone, PartialEq)]
pub struct ToolCall {
    /// The tool's name in the block.
    pub name: String,
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

impl From<AgentResult> for ToolAnswer {
    fn from(result: AgentResult) -> Self {
        Self { content: result.to_text(), result: Some(result), ..Self::default() }
    }
}

impl From<String> for ToolAnswer {
    fn from(content: String) -> Self {
        Self { content, ..Self::default() }
    }
}

impl From<ToolError> for ToolAnswer {
    fn from(error: ToolError) -> Self {
        Self { content: error.to_string(), is_error: true, ..Self::default() }
    }
}

/// Why a command has no result: an error for the model or for the caller.
#[derive(Debug)]
pub(crate) enum Stop {
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

/// An error that the model can correct is an answer.
fn settle(outcome: Result<ToolAnswer, Stop>) -> Result<ToolAnswer, EngineError> {
    match outcome {
        Ok(answer) => Ok(answer),
        Err(Stop::Tool(error)) => Ok(error.into()),
        Err(Stop::Engine(error)) => Err(error),
    }
}

/// A parsed call, and how it is carried out. Two calls with the same JSON are the same call.
trait ToolCommand: ToolInput + Serialize + Send + Sync + 'static {
    /// The destination of a rename.
    fn destination(&self) -> &ToolPath {
        self.path()
    }

    /// Refuses a call that no mount of its path allows.
    fn refusal_of_mount(&self) -> Option<ToolError>;

    /// The answer to a read of a path where nothing is.
    fn not_found(&self) -> ToolError;

    /// Carries out a call on `/memories` of a session, the root of the mounts.
    fn on_mounts(
        self,
        tools: &Tools,
        principal: &Principal,
        mounts: &Mounts,
    ) -> impl Future<Output = Result<ToolAnswer, Stop>> + Send;

    /// Carries out a call that only reads.
    fn show(
        self,
        tools: &Tools,
        principal: &Principal,
        mounts: &Mounts,
        store_id: StoreId,
    ) -> impl Future<Output = Result<ToolAnswer, Stop>> + Send;

    /// The objects to read for the decision on a change. An error means that nothing needs
    /// to be read to refuse the call.
    fn reads(&self) -> Result<Reads<'_>, ToolError>;

    /// The change to make. A pure function.
    fn propose(&self, read: &PathRead) -> Result<Decision, ToolError>;

    /// The error when something is at the path; `None`: the object at the path came after
    /// the read.
    fn path_taken(&self) -> Option<ToolError>;

    /// The answer to a change that was made, now or by an earlier call.
    fn answer(
        &self,
        principal: &Principal,
        edit: Option<&Edit>,
        made: Option<WrittenVersion>,
    ) -> Result<ToolAnswer, Stop>;
}

/// Whether the path is of the store's settings, which only administrators of the store see.
fn is_hidden(principal: &Principal, path: &ToolPath) -> bool {
    path.memory().is_some_and(MemoryPath::is_setting) && principal.require(Scope::StoresAdmin).is_err()
}

/// Names the store of a tool call in its span.
fn trace_store(store_id: StoreId) {
    tracing::Span::current().record("gen_ai.memory.store.id", tracing::field::display(store_id));
}

fn refusal_of_setting(principal: &Principal, command: &impl ToolCommand) -> Option<ToolError> {
    let path = [command.path(), command.destination()].into_iter().find(|path| is_hidden(principal, path))?;
    Some(if command.is_change() {
        ToolError::Setting { path: path.display().to_owned() }
    } else {
        command.not_found()
    })
}

#[derive(Debug)]
pub struct Tools {
    shared: Arc<Shared>,
    search: Search,
}

impl Tools {
    pub(crate) fn new(shared: &Arc<Shared>, search: Search) -> Self {
        Self { shared: Arc::clone(shared), search }
    }

    /// Carries out one call of the memory tool or of an agent tool. A call in a session is
    /// recorded as an event.
    ///
    /// A change runs to its end even when this future is dropped. After a failure of the
    /// index the change may have been committed; a call with a `tool_use_id` can be
    /// repeated.
    pub async fn call(
        &self,
        principal: &Arc<Principal>,
        mounts: impl Into<Mounts>,
        call: ToolCall,
    ) -> Result<ToolAnswer, EngineError> {
        let mounts = mounts.into();
        let principal = &Arc::new(principal.calling_tool(mounts.session_id()));
        let event = event_of_call(&self.shared.context, principal, &mounts, &call.name, &call.input);
        let is_in_session = mounts.session_id().is_some();
        let tool_use_id = call.tool_use_id.clone();
        let answer = match self.call_by_name(principal, mounts, call).await {
            // The deletion of the store has not yet reached every replica's
            // cache.
            Err(EngineError::NotFound(ObjectKind::Store)) if is_in_session => ToolError::StoreGone.into(),
            answer => answer?,
        };
        if let Some(event) = event {
            self.shared.activity.note(SessionEvent { is_error: answer.is_error, ..event });
        }
        Ok(ToolAnswer { tool_use_id, ..answer })
    }

    /// Boxed, so that the tools are compiled here and not again in each crate that
    /// calls them.
    fn call_by_name<'a>(
        &'a self,
        principal: &'a Arc<Principal>,
        mounts: Mounts,
        call: ToolCall,
    ) -> BoxFuture<'a, Result<ToolAnswer, EngineError>> {
        Box::pin(async move {
            let mounts = principal.seen(mounts)?;
            let refusal = match call.not_unicode.clone() {
                Some(field) if is_tool(&call.name) => ToolError::NotUnicode { field },
                _ => {
                    if let Some(tool) = AgentTool::parse(&call.name) {
                        return self.call_agent_tool(principal, mounts, tool, call).await;
                    }
                    if call.name == MEMORY_TOOL {
                        return self.call_memory_tool(principal, mounts, call).await;
                    }
                    ToolError::UnknownTool
                }
            };
            self.refuse(principal, &mounts, refusal).await
        })
    }

    #[tracing::instrument(name = "engine.call_tool", level = "debug", skip_all, fields(gen_ai.memory.store.id = tracing::field::Empty))]
    async fn call_memory_tool(
        &self,
        principal: &Arc<Principal>,
        mounts: Mounts,
        call: ToolCall,
    ) -> Result<ToolAnswer, EngineError> {
        let command = Command::parse(&call.input, mounts.root());
        self.carry_out(principal, mounts, call, command).await
    }

    #[tracing::instrument(name = "engine.call_agent_tool", level = "debug", skip_all, fields(gen_ai.memory.store.id = tracing::field::Empty))]
    async fn call_agent_tool(
        &self,
        principal: &Arc<Principal>,
        mounts: Mounts,
        tool: AgentTool,
        call: ToolCall,
    ) -> Result<ToolAnswer, EngineError> {
        // Checked before the input, which may be invalid.
        principal.require_for(tool.is_change(), tool.shows_content())?;
        let agent_call = AgentCall::parse(tool, &call.input, mounts.root());
        self.carry_out(principal, mounts, call, agent_call).await
    }

    /// Carries out a call, if the credential and the mount of its path allow it.
    async fn carry_out<C: ToolCommand>(
        &self,
        principal: &Arc<Principal>,
        mounts: Mounts,
        call: ToolCall,
        command: Result<C, ToolError>,
    ) -> Result<ToolAnswer, EngineError> {
        let command = match command {
            Ok(command) => command,
            Err(refusal) => return self.refuse(principal, &mounts, refusal).await,
        };
        let Some(Mount { store_id, is_read_only }) = mounts.store_of(command.path()) else {
            return settle(command.on_mounts(self, principal, &mounts).await);
        };
        trace_store(store_id);
        if let Some(refusal) = command.refusal_of_mount() {
            return Ok(refusal.into());
        }
        if is_read_only && command.is_change() {
            return Ok(ToolError::ReadOnly { path: command.path().display().to_owned() }.into());
        }
        principal.require_for(command.is_change(), command.shows_content())?;
        if let Some(refusal) = refusal_of_setting(principal, &command) {
            return Ok(refusal.into());
        }
        let outcome = if command.is_change() {
            change(&self.shared, principal, &mounts, store_id, call, command).await?
        } else {
            command.show(self, principal, &mounts, store_id).await
        };
        settle(outcome.map_err(|stop| match stop {
            Stop::Tool(error) if !principal.may_read() => Stop::Tool(error.concealed()),
            stop => stop,
        }))
    }

    /// The answer to an invalid input. A missing store is an error for the caller, and is
    /// reported first.
    async fn refuse(
        &self,
        principal: &Principal,
        mounts: &Mounts,
        refusal: ToolError,
    ) -> Result<ToolAnswer, EngineError> {
        if let Some(store_id) = mounts.single() {
            Stores::new(&self.shared).require(principal, store_id).await?;
        }
        Ok(refusal.into())
    }

    /// The content of the file at a path; `None`: no file exists there. Counts
    /// as access.
    #[tracing::instrument(name = "engine.read_file", level = "debug", skip_all, fields(gen_ai.memory.store.id = tracing::field::Empty))]
    pub async fn read_file(
        &self,
        principal: &Principal,
        mounts: impl Into<Mounts>,
        path: &ToolPath,
    ) -> Result<Option<Arc<str>>, EngineError> {
        let mounts = principal.seen(mounts.into())?;
        principal.require(Scope::MemoryRead)?;
        let Some(Mount { store_id, .. }) = mounts.store_of(path) else {
            return Ok(None);
        };
        trace_store(store_id);
        if is_hidden(principal, path) {
            return Ok(None);
        }
        let (contents, tenant_id) = (&self.shared.contents, principal.tenant_id);
        let (found, text) = contents.at_path(tenant_id, store_id, path.memory(), 0).await?;
        if let Target::Memory(head) = found.target {
            self.shared.access.note_read(&principal.calling_tool(mounts.session_id()), store_id, &head);
        }
        Ok(text)
    }
}
