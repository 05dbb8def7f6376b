//! `GET /v1/tools`
//!
//! The tool definitions that a harness sends to its model.

use axum::Json;
use keepsake_core::tool::agent::definitions;
use keepsake_engine::{MEMORY_TOOL, Page};
use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;

use super::list::List;
use crate::auth::Caller;

/// The memory tool's type: the model knows its input.
const MEMORY_TOOL_TYPE: &str = "memory_20250818";

/// One entry of a request's `tools`.
#[derive(Debug, Serialize, ToSchema)]
#[serde(untagged)]
pub(crate) enum Tool {
    /// A tool that models are trained to use.
    Known {
        r#type: &'static str,
        name: &'static str,
    },
    /// A tool that is described.
    Described {
        name: &'static str,
        description: &'static str,
        /// JSON Schema.
        #[schema(value_type = Object)]
        input_schema: Value,
    },
}

/// List the tools
///
/// What a harness puts into the `tools` of its requests: all of it, or the entries that it wants. The blocks that the
/// model answers with are sent to a store's or a session's `tool_calls` as they are.
#[utoipa::path(
    get,
    path = "/tools",
    operation_id = "tools.list",
    tag = "Tools",
    responses((status = 200, description = "The tools.", body = List<Tool>)),
)]
pub(crate) async fn list(_: Caller) -> Json<List<Tool>> {
    let memory = Tool::Known {
        r#type: MEMORY_TOOL_TYPE,
        name: MEMORY_TOOL,
    };
    let described = definitions().into_iter().map(|tool| Tool::Described {
        name: tool.name,
        description: tool.description,
        input_schema: tool.input_schema,
    });
    let items = std::iter::once(memory).chain(described).collect();
    Json(List::of(Page { items, next: None }, |tool| tool))
}
