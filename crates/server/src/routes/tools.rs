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
    /// A tool that models are trained to use; it needs no description.
    Known {
        r#type: &'static str,
        name: &'static str,
    },
    /// A tool with a description and an input schema.
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
/// A harness adds all or some of these entries to the `tools` of its requests
/// to the model. It sends the model's `tool_use` blocks unchanged to the
/// `tool_calls` of a store or a session.
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
