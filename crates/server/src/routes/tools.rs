//! `GET /v1/tools`
//!
//! The tool definitions that a harness sends to its model.

use keepsake_core::StoreId;
use keepsake_core::tool::agent::definitions;
use keepsake_engine::{MEMORY_TOOL, Mounts};
use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;

use super::list::{List, Prompted};
use crate::answer::{Answer, Json};
use crate::auth::Caller;
use crate::error::ApiError;
use crate::query::{QueryParams, query_params};

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
