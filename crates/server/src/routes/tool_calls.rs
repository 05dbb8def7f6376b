//! `GET /v1/tools`, `POST /v1/memory_stores/{memory_store_id}/tool_calls`, and the schema of a call
//!
//! The request is a whole `tool_use` block of the memory tool or an agent tool, or the memory
//! tool's bare input. The answer is a `tool_result` block that a harness appends unchanged to the
//! next user message.

use keepsake_core::StoreId;
use keepsake_core::tool::agent::{AgentTool, definitions};
use keepsake_engine::{MEMORY_TOOL, Mounts, ToolAnswer};
use serde::Serialize;
use serde_json::{Value, json};
use utoipa::openapi::schema::{AnyOfBuilder, ObjectBuilder, Schema};
use utoipa::openapi::{RefOr, Type};
use utoipa::{PartialSchema, ToSchema};

use super::list::{List, Prompted};
use crate::answer::{Answer, Json};
use crate::auth::Caller;
use crate::body::ToolBody;
use crate::error::ApiError;
use crate::path::Path;
use crate::query::{QueryParams, query_params};

/// The schema of the request body: a whole block, or only its input. This type has no values.
///
/// The body is parsed as a map: a wrong input must not become an API error, since the model can
/// correct it.
pub(crate) enum ToolCallBody {}

impl PartialSchema for ToolCallBody {
    fn schema() -> RefOr<Schema> {
        let text = || ObjectBuilder::new().schema_type(Type::String);
        let commands = ["view", "create", "str_replace", "insert", "delete", "rename"];
        let input = || {
            ObjectBuilder::new()
                .title(Some("Input"))
                .description(Some("The memory tool's input; other fields depend on the command."))
                .property("command", text().enum_values(Some(commands)))
                .required("command")
        };
        let block = ObjectBuilder::new()
            .title(Some("Block"))
            .description(Some("A `tool_use` block as the model wrote it."))
            .property("type", text().enum_values(Some(["tool_use"])))
            .property(
                "id",
                text()
                    .min_length(Some(1))
                    .description(Some("Together with the input, it makes a change idempotent.")),
            )
            .property(
                "name",
                text()
                    .enum_values(Some(names()))
                    .description(Some("The tool, as `GET /v1/tools` describes it.")),
            )
            .property(
                "input",
                ObjectBuilder::new().description(Some("The tool's input; its fields depend on the tool.")),
            )
            .required("type")
            .required("name")
            .required("input");
        let example = json!({
            "type": "tool_use",
            "name": MEMORY_TOOL,
            "input": {"command": "view", "path": "/memories"},
        });
        let either = AnyOfBuilder::new().item(block).item(input());
        RefOr::T(either.examples([example]).into())
    }
}

impl ToSchema for ToolCallBody {}

fn names() -> impl Iterator<Item = &'static str> {
    std::iter::once(MEMORY_TOOL).chain(AgentTool::ALL.map(AgentTool::name))
}

/// Call a tool
///
/// Accepts a `tool_use` block of the memory tool or an agent tool, or the
/// memory tool's bare input. Returns a `tool_result` block to append unchanged
/// to the next user message.
#[utoipa::path(
    post,
    path = "/memory_stores/{memory_store_id}/tool_calls",
    operation_id = "tool_calls.create",
    tag = "Tools",
    request_body = ToolCallBody,
    responses((status = 200, description = "The result for the model.", body = ToolAnswer)),
)]
pub(crate) async fn call(
    Path(store_id): Path<StoreId>,
    ToolBody(Caller(engine, principal), call): ToolBody,
) -> Answer<ToolAnswer> {
    Ok(Json(engine.tools.call(&principal, store_id, call?).await?))
}

/// The type of the memory tool, whose input the model knows.
const MEMORY_TOOL_TYPE: &str = "memory_20250818";

/// One entry of a request's `tools`.
#[derive(Debug, Serialize, ToSchema)]
#[serde(untagged)]
pub(crate) enum Tool {
    /// A tool that models are trained to use; it needs no description.
    Known { r#type: &'static str, name: &'static str },
    /// A tool with a description and an input schema.
    Described {
        name: &'static str,
        description: &'static str,
        /// JSON Schema.
        #[schema(value_type = Object)]
        input_schema: Value,
    },
}

query_params! {
    /// The stores that the text is about.
    ToolsOf {
        /// The memory store whose files `file_index` shows; a session's token shows the
        /// files of its session.
        memory_store_id: Option<StoreId> = id("memory_store_id"),
    }
}

/// The tools, and the text that explains them.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ToolList {
    #[serde(flatten)]
    list: List<Tool>,
    /// Text to add to the system prompt: how to use memory.
    system_prompt: String,
}

/// List the tools
///
/// A harness adds all or some of these entries to the `tools` of its requests
/// to the model, and `system_prompt` to its system prompt. It sends the model's
/// `tool_use` blocks unchanged to the `tool_calls` of a store or a session.
#[utoipa::path(
    get,
    path = "/tools",
    operation_id = "tools.list",
    params(Prompted, ToolsOf),
    responses((status = 200, description = "The tools.", body = ToolList)),
)]
pub(crate) async fn list(
    Caller(engine, principal): Caller,
    QueryParams((prompted, of)): QueryParams<(Prompted, ToolsOf)>,
) -> Answer<ToolList> {
    let options = prompted.options()?;
    let mounts = principal.mounts().cloned();
    let mounts = mounts.or_else(|| of.memory_store_id.map(Mounts::from));
    if options.has_file_index() && mounts.is_none() {
        return Err(ApiError::invalid_request(
            "`memory_store_id` must be given with `file_index`, unless the credential is a session's token",
        ));
    }
    let system_prompt = engine.prompts.of_stores(&principal, mounts.as_ref(), &options).await?;
    let memory = Tool::Known { r#type: MEMORY_TOOL_TYPE, name: MEMORY_TOOL };
    let described = definitions().into_iter().map(|tool| Tool::Described {
        name: tool.name,
        description: tool.description,
        input_schema: tool.input_schema,
    });
    Ok(Json(ToolList { list: List::complete(std::iter::once(memory).chain(described)), system_prompt }))
}
