//! The list of tools and the results of tool calls.

use std::sync::Arc;

use keepsake_core::tool::agent::{ToolDefinition, definitions, memory_definition};
use keepsake_engine::ToolAnswer;
use rmcp::model::{CallToolResult, ContentBlock, JsonObject, Tool, ToolAnnotations};
use serde_json::Value;

/// All tools. The memory tool is last, because agents do not need it with the others.
pub(crate) fn offered() -> Vec<Tool> {
    let all = definitions().into_iter().chain([memory_definition()]);
    all.map(tool).collect()
}

fn tool(definition: ToolDefinition) -> Tool {
    let annotations = ToolAnnotations::with_title(definition.title)
        .read_only(definition.is_read_only)
        .destructive(definition.is_destructive)
        .idempotent(definition.is_idempotent)
        .open_world(false);
    let mut tool = Tool::new(definition.name, definition.description, object(definition.input_schema));
    tool.title = Some(definition.title.to_owned());
    tool.output_schema = definition.output_schema.map(object);
    tool.annotations = Some(annotations);
    tool
}

fn object(schema: Value) -> Arc<JsonObject> {
    match schema {
        Value::Object(schema) => Arc::new(schema),
        _ => Arc::default(),
    }
}

/// The result of a call: text for the model and the same as structured content.
pub(crate) fn answered(answer: ToolAnswer) -> CallToolResult {
    let content = vec![ContentBlock::text(answer.content)];
    if answer.is_error {
        return CallToolResult::error(content);
    }
    let mut result = CallToolResult::success(content);
    result.structured_content = answer.result.and_then(|result| serde_json::to_value(result).ok());
    result
}
