//! The MCP server.

use keepsake_core::{Echo, NOT_UNICODE};
use keepsake_engine::{Engine, ToolCall, holding, is_tool};
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CustomRequest, CustomResult, ErrorCode, GetPromptRequestParams,
    GetPromptResponse, Implementation, ListPromptsResult, ListResourceTemplatesResult, ListResourcesResult,
    ListToolsResult, PaginatedRequestParams, ReadResourceRequestParams, ReadResourceResponse,
    ServerCapabilities, ServerConfig,
};
use rmcp::service::{RequestContext, RoleServer};
use rmcp::{ErrorData, ServerHandler};
use tracing::Instrument;

use crate::error::to_error_data;
use crate::{Access, prompt, resources, tools};

const INSTRUCTIONS: &str = "A memory that persists after the conversation: text files under /memories. Look at your memory before a task (memory_list, memory_read), and record progress and decisions as you go (memory_write, memory_append, memory_edit). The prompt `memory_protocol` has the full instructions.";

/// Serves requests that have their [`Access`] in the HTTP extensions.
#[derive(Clone)]
pub(crate) struct MemoryServer(pub(crate) Engine);

/// An extension of the HTTP request, if there is one.
fn extension<T: Clone + Send + Sync + 'static>(context: &RequestContext<RoleServer>) -> Option<T> {
    let head = context.extensions.get::<http::request::Parts>()?;
    head.extensions.get::<T>().cloned()
}

fn access_of(context: &RequestContext<RoleServer>) -> Result<Access, ErrorData> {
    extension(context).ok_or_else(|| ErrorData::internal_error("an internal error occurred", None))
}

/// The first parameter of a request in which invalid Unicode was replaced.
#[derive(Debug, Clone)]
pub(crate) struct NotUnicode(pub(crate) String);

fn mended_field(context: &RequestContext<RoleServer>) -> Option<String> {
    extension(context).map(|NotUnicode(field)| field)
}

/// Refuses a request with invalid Unicode in a parameter; not for tool calls.
fn require_unicode(context: &RequestContext<RoleServer>) -> Result<(), ErrorData> {
    match mended_field(context) {
        None => Ok(()),
        Some(field) => Err(ErrorData::invalid_params(format!("`{field}` {NOT_UNICODE}"), None)),
    }
}

/// The span of the HTTP request, if there is one. The handler runs in another
/// task.
fn span_of(context: &RequestContext<RoleServer>) -> tracing::Span {
    extension(context).unwrap_or_else(tracing::Span::none)
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
        let access = access_of(&context)?;
        let call = ToolCall {
            name: request.name.into_owned(),
            tool_use_id: None,
            input: request.arguments.unwrap_or_default(),
            not_unicode: mended_field(&context)
                .map(|field| field.strip_prefix("arguments.").unwrap_or(&field).to_owned()),
            idempotency: None,
        };
        let Access { principal, mounts, held, .. } = access;
        let called = self.0.tools.call(&principal, mounts, call);
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
        require_unicode(&context)?;
        let access = access_of(&context)?;
        let cursor = request.and_then(|request| request.cursor);
        resources::list(&self.0, &access, cursor.as_deref()).instrument(span_of(&context)).await
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
        require_unicode(&context)?;
        let access = access_of(&context)?;
        let read = resources::read(&self.0, &access, &request.uri);
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
        require_unicode(&context)?;
        let access = access_of(&context)?;
        let got = prompt::get(&self.0, &access, &request.name, request.arguments.as_ref());
        Ok(got.instrument(span_of(&context)).await?.into())
    }

    async fn on_custom_request(
        &self,
        request: CustomRequest,
        _: RequestContext<RoleServer>,
    ) -> Result<CustomResult, ErrorData> {
        let message = format!("there is no method `{}`", Echo(&request.method));
        Err(ErrorData::new(ErrorCode::METHOD_NOT_FOUND, message, None))
    }
}
