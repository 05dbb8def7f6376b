//! `POST /v1/memory_stores/{memory_store_id}/tool_calls`, and code shared with the sessions' route
//!
//! The request is a whole `tool_use` block of the memory tool or an agent tool, or the memory
//! tool's bare input. The answer is a `tool_result` block that a harness appends unchanged to the
//! next user message.

use axum::extract::State;
use keepsake_core::tool::agent::AgentTool;
use keepsake_core::{NOT_UNICODE, StoreId};
use keepsake_engine::{Engine, MEMORY_TOOL, Mounts, ToolAnswer, ToolCall};
use serde_json::{Map, Value, json};
use utoipa::openapi::schema::{AnyOfBuilder, ObjectBuilder, Schema};
use utoipa::openapi::{RefOr, Type};
use utoipa::{PartialSchema, ToSchema};

use crate::answer::Json;
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
    State(engine): State<Engine>,
    Path(store_id): Path<StoreId>,
    body: ToolBody,
) -> Result<Json<ToolAnswer>, ApiError> {
    answer(&engine, store_id, body).await
}

pub(crate) async fn answer(
    engine: &Engine,
    mounts: impl Into<Mounts>,
    ToolBody { principal, body, call: idempotency, not_unicode }: ToolBody,
) -> Result<Json<ToolAnswer>, ApiError> {
    let (name, call) = parse(body, not_unicode)?;
    let call = ToolCall { idempotency, ..call };
    Ok(Json(engine.tools.call(&principal, mounts, &name, call).await?))
}

/// Distinguishes a block from a bare input. Another body is an API error.
fn parse(mut body: Map<String, Value>, not_unicode: Option<String>) -> Result<(String, ToolCall), ApiError> {
    if body.get("type").and_then(Value::as_str) != Some("tool_use") {
        if body.contains_key("command") {
            return Ok((
                MEMORY_TOOL.to_owned(),
                ToolCall { tool_use_id: None, input: body, not_unicode, idempotency: None },
            ));
        }
        return Err(ApiError::invalid_request(
            "the body is not a tool call: send a `tool_use` block, or its bare input with `command`",
        ));
    }
    let tool_use_id = match body.remove("id") {
        None | Some(Value::Null) => None,
        Some(Value::String(id)) if !id.is_empty() => Some(id),
        Some(_) => {
            return Err(ApiError::invalid_request("`id` must be a string that is not empty"));
        }
    };
    let Some(Value::String(name)) = body.remove("name") else {
        return Err(ApiError::invalid_request("`name` must be a string: the tool's name"));
    };
    let Some(Value::Object(input)) = body.remove("input") else {
        return Err(ApiError::invalid_request("`input` must be an object: the tool's input"));
    };
    // The model wrote the name and the input; the rest of the block is the caller's. Invalid
    // Unicode in the name is no error here: the mended name matches no tool.
    let not_unicode =
        not_unicode.filter(|field| field != "name").map(|field| match field.strip_prefix("input.") {
            Some(field) => Ok(field.to_owned()),
            None => Err(ApiError::invalid_request(format!("`{field}` {NOT_UNICODE}"))),
        });
    let call = ToolCall { tool_use_id, input, not_unicode: not_unicode.transpose()?, idempotency: None };
    Ok((name, call))
}
