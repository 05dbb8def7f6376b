//! `POST /v1/memory_stores/{memory_store_id}/tool_calls`, and the schema of a call
//!
//! The request is a whole `tool_use` block of the memory tool or an agent tool, or the memory
//! tool's bare input. The answer is a `tool_result` block that a harness appends unchanged to the
//! next user message.

use keepsake_core::StoreId;
use keepsake_core::tool::agent::AgentTool;
use keepsake_engine::{MEMORY_TOOL, ToolAnswer};
use serde_json::json;
use utoipa::openapi::schema::{AnyOfBuilder, ObjectBuilder, Schema};
use utoipa::openapi::{RefOr, Type};
use utoipa::{PartialSchema, ToSchema};

use crate::answer::{Answer, Json};
use crate::auth::Caller;
use crate::body::ToolBody;
use crate::error::ApiError;
use crate::path::Path;

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
