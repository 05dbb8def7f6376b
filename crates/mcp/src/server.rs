//! The MCP server.

use keepsake_engine::{Engine, ToolCall, holding, is_tool};
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, GetPromptRequestParams, GetPromptResponse, Implementation,
    ListPromptsResult, ListResourceTemplatesResult, ListResourcesResult, ListToolsResult,
    PaginatedRequestParams, ReadResourceRequestParams, ReadResourceResponse, ServerCapabilities,
    ServerConfig,
};
use rmcp::service::{RequestContext, RoleServer, ServiceExt};
use rmcp::{ErrorData, ServerHandler};
use tracing::Instrument;

use crate::error::to_error_data;
use crate::{Access, prompt, resources, tools};

const INSTRUCTIONS: &str = "A memory that persists after the conversation: text files under /memories. Look at your memory before a task (memory_list, memory_read), and record progress and decisions as you go (memory_write, memory_append, memory_edit). The prompt `memory_protocol` has the full instructions.";

/// Serves one client over stdio, or single requests of any client over HTTP.
#[derive(Clone)]
pub struct MemoryServer {
    engine: Engine,
    /// `None`: each request has its own [`Access`].
    access: Option<Access>,
}

impl MemoryServer {
    /// A server for requests that have their [`Access`] in the HTTP extensions.
    pub(crate) const fn of_requests(engine: Engine) -> Self {
        Self { engine, access: None }
    }

    /// A server for one client, for the life of the process.
    pub const fn of_process(engine: Engine, access: Access) -> Self {
        Self { engine, access: Some(access) }
    }

    fn access(&self, context: &RequestContext<RoleServer>) -> Result<Access, ErrorData> {
        let of_request = || {
            let head = context.extensions.get::<http::request::Parts>()?;
            head.extensions.get::<Access>().cloned()
        };
        self.access
            .clone()
            .or_else(of_request)
            .ok_or_else(|| ErrorData::internal_error("an internal error occurred", None))
    }
}

/// The span of the HTTP request, if there is one. The handler runs in another
/// task.
fn span_of(context: &RequestContext<RoleServer>) -> tracing::Span {
    let head = context.extensions.get::<http::request::Parts>();
    let span = head.and_then(|head| head.extensions.get::<tracing::Span>().cloned());
    span.unwrap_or_else(tracing::Span::none)
}

impl ServerHandler for MemoryServer {
    fn get_info(&self) -> ServerConfig {
        let capabilities =
            ServerCapabilities::builder().enable_tools().enable_resources().enable_prompts().build();
        let implementation =
            Implementation::new("keepsake", env!("CARGO_PKG_VERSION")).with_title("Keepsake");
        ServerConfig::new(capabilities).with_server_info(implementation).with_instructions(INSTRUCTIONS)
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        Ok(ListToolsResult::with_all_items(tools::offered()))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        if !is_tool(&request.name) {
            let message = "there is no tool of this name; `tools/list` returns all names";
            return Err(ErrorData::invalid_params(message, None));
        }
        let access = self.access(&context)?;
        let call =
            ToolCall { tool_use_id: None, input: request.arguments.unwrap_or_default(), idempotency: None };
        let Access { principal, mounts, held, .. } = access;
        let called = self.engine.tools.call(&principal, mounts, &request.name, call);
        let called = called.instrument(span_of(&context));
        let answer = match held {
            Some(held) => Box::pin(holding(held, called)).await,
            None => called.await,
        };
        let answer = answer.map_err(|error| to_error_data(&error))?;
        Ok(tools::answered(answer).into())
    }

    async fn list_resources(
        &self,
        request: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        let access = self.access(&context)?;
        let cursor = request.and_then(|request| request.cursor);
        resources::list(&self.engine, &access, cursor.as_deref()).instrument(span_of(&context)).await
    }

    async fn list_resource_templates(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        Ok(ListResourceTemplatesResult::with_all_items(vec![resources::template()]))
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        let access = self.access(&context)?;
        let read = resources::read(&self.engine, &access, &request.uri);
        Ok(read.instrument(span_of(&context)).await?.into())
    }

    async fn list_prompts(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListPromptsResult, ErrorData> {
        Ok(ListPromptsResult::with_all_items(vec![prompt::offered()]))
    }

    async fn get_prompt(
        &self,
        request: GetPromptRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<GetPromptResponse, ErrorData> {
        let access = self.access(&context)?;
        let got = prompt::get(&self.engine, &access, &request.name, request.arguments.as_ref());
        Ok(got.instrument(span_of(&context)).await?.into())
    }
}

/// Serves one client over stdin and stdout until it disconnects.
///
/// # Errors
/// [`std::io::Error`] if the client does not initialize the session correctly.
pub async fn serve_stdio(server: MemoryServer) -> std::io::Result<()> {
    let running = Box::pin(server.serve(rmcp::transport::stdio())).await.map_err(std::io::Error::other)?;
    running.waiting().await.map_err(std::io::Error::other)?;
    Ok(())
}
