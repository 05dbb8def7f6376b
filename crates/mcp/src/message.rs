//! JSON-RPC messages, checked before MCP serves them.
//!
//! The library answers a message that it cannot read with an error about something else,
//! or not at all. The errors of this module have JSON-RPC's codes and name the cause.

use bytes::Bytes;
use http::StatusCode;
use keepsake_core::{BYTE_ORDER_MARK, Echo, MendedJson, duplicate_field};
use rmcp::model::{
    CallToolRequestParams, ErrorCode, GetPromptRequestParams, InitializeRequestParams,
    PaginatedRequestParams, ProtocolVersion, ReadResourceRequestParams, RequestId,
};
use serde_json::value::RawValue;
use serde_json::{Value, from_value, json};

/// JSON pointer to the protocol version in a request, since version 2026-07-28.
pub const VERSION_OF_REQUEST: &str = "/params/_meta/io.modelcontextprotocol~1protocolVersion";
/// The last protocol version with batches. A message without a version has this version.
const LAST_WITH_BATCHES: &str = "2025-03-26";
/// Maximum messages of a batch, which is one request of the tenant's rate.
const MAX_BATCH: usize = 20;

/// What a client sent at once.
#[derive(Debug)]
pub enum Incoming {
    Single(Message),
    /// Several messages; their requests are answered together. Each message that cannot be
    /// served gets an error in that answer.
    Batch(Vec<Result<Message, InvalidMessage>>),
}

/// A message that can be served.
#[derive(Debug)]
pub struct Message {
    pub kind: MessageKind,
    pub value: Value,
    /// The message as the client sent it.
    pub(crate) sent: Bytes,
    /// The message with its invalid Unicode replaced, and the first parameter that had it.
    ///
    /// The library refuses such a message as a whole, without its id. So invalid
    /// Unicode is replaced, and the call is refused with a result that the model can act on.
    pub(crate) mended: Option<MendedJson>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MessageKind {
    Request,
    /// Has no `id` and is never answered.
    Notification,
    /// Answers a request of the server, which sends none.
    Response,
}

/// The JSON-RPC error of a message that cannot be served.
#[derive(Debug)]
pub struct InvalidMessage {
    id: Value,
    code: ErrorCode,
    why: String,
}

impl InvalidMessage {
    fn unreadable(why: impl std::fmt::Display) -> Self {
        Self { id: Value::Null, code: ErrorCode::PARSE_ERROR, why: format!("the message is not JSON: {why}") }
    }

    /// A message that is no request of JSON-RPC; `id` is null if it is not known.
    pub fn request(id: Value, why: impl Into<String>) -> Self {
        Self { id, code: ErrorCode::INVALID_REQUEST, why: why.into() }
    }

    pub fn answer(&self) -> Value {
        let message = Echo(&self.why).to_string();
        json!({"jsonrpc": "2.0", "id": self.id, "error": {"code": self.code.0, "message": message}})
    }

    /// The answer's status over HTTP: wrong parameters are an ordinary answer.
    pub(crate) fn status(&self) -> StatusCode {
        if self.code == ErrorCode::INVALID_PARAMS { StatusCode::OK } else { StatusCode::BAD_REQUEST }
    }
}

impl Incoming {
    /// Parses what a client of a protocol version sent. A single message must have the version that
    /// `header` names, if there is a header.
    pub fn read(bytes: &Bytes, version: Option<&str>, header: Option<&str>) -> Result<Self, InvalidMessage> {
        let text = bytes.strip_prefix(BYTE_ORDER_MARK).unwrap_or(bytes).trim_ascii();
        if !text.starts_with(b"[") {
            return Message::parse(bytes.slice_ref(text), |value| require_version(value, header))
                .map(Self::Single);
        }
        let messages: Vec<&RawValue> = serde_json::from_slice(text).map_err(InvalidMessage::unreadable)?;
        let invalid = |why: String| Err(InvalidMessage::request(Value::Null, why));
        if messages.len() > MAX_BATCH {
            return invalid(format!("a batch must have at most {MAX_BATCH} messages: send several batches"));
        }
        if let Some(version) = version.filter(|version| *version > LAST_WITH_BATCHES) {
            return invalid(format!("MCP {version} has no batches: send each message by itself"));
        }
        if messages.is_empty() {
            return invalid("a batch must have at least one message".to_owned());
        }
        let messages = messages.into_iter().map(|message| bytes.slice_ref(message.get().as_bytes()));
        Ok(Self::Batch(messages.map(|sent| Message::parse(sent, refuse_initialize)).collect()))
    }
}

impl Message {
    /// `check` comes before the checks that all messages have in common.
    fn parse(
        sent: Bytes,
        check: impl FnOnce(&Value) -> Result<(), InvalidMessage>,
    ) -> Result<Self, InvalidMessage> {
        let mended = MendedJson::of(&sent).and_then(|MendedJson { json, field }| {
            let field = field.strip_prefix("params.")?.to_owned();
            Some(MendedJson { json, field })
        });
        let text = mended.as_ref().map_or(&*sent, |mended| mended.json.as_slice());
        let text = std::str::from_utf8(text).map_err(InvalidMessage::unreadable)?;
        let value: Value = serde_json::from_str(text).map_err(InvalidMessage::unreadable)?;
        check(&value)?;
        Ok(Self { kind: kind_of(&value, &sent)?, value, sent, mended })
    }

    /// The parsed text, and the message as the client sent it.
    pub fn into_sent(self) -> (Value, Bytes) {
        (self.value, self.sent)
    }

    pub fn is_initialize(&self) -> bool {
        is_initialize(&self.value)
    }
}

fn is_initialize(message: &Value) -> bool {
    message["method"] == "initialize"
}

fn refuse_initialize(message: &Value) -> Result<(), InvalidMessage> {
    if is_initialize(message) {
        let why = "`initialize` cannot be part of a batch: send it by itself";
        return Err(InvalidMessage::request(message["id"].clone(), why));
    }
    Ok(())
}

/// Refuses a request whose header names a protocol version that the server does not
/// have. A version in the request itself is negotiated.
fn require_version(message: &Value, version: Option<&str>) -> Result<(), InvalidMessage> {
    let known = ProtocolVersion::KNOWN_VERSIONS.iter().map(ProtocolVersion::as_str);
    match version {
        Some(version)
            if !known.clone().any(|known| known == version)
                && message.pointer(VERSION_OF_REQUEST).is_none() =>
        {
            let known = known.collect::<Vec<_>>().join(", ");
            let why = format!("the header `MCP-Protocol-Version` must be one of {known}");
            Err(InvalidMessage::request(message["id"].clone(), why))
        }
        _ => Ok(()),
    }
}

/// The kind of a message; `sent` is its text.
fn kind_of(message: &Value, sent: &[u8]) -> Result<MessageKind, InvalidMessage> {
    let invalid = |id, why: &str| Err(InvalidMessage::request(id, why));
    let Value::Object(fields) = message else {
        return invalid(Value::Null, "a message must be an object");
    };
    if !fields.contains_key("method") && (fields.contains_key("result") || fields.contains_key("error")) {
        return Ok(MessageKind::Response);
    }
    let id = fields.get("id");
    if id.is_some_and(|id| from_value::<RequestId>(id.clone()).is_err()) {
        return invalid(Value::Null, "`id` must be a string or an integer");
    }
    let shown_id = id.cloned().unwrap_or_default();
    if let Some(field) = duplicate_field(sent) {
        return invalid(shown_id, &format!("duplicate field `{field}`"));
    }
    if fields.get("jsonrpc").is_none_or(|version| version != "2.0") {
        return invalid(shown_id, "`jsonrpc` must be \"2.0\"");
    }
    let Some(method) = fields.get("method") else {
        return invalid(shown_id, "`method` is missing");
    };
    let Value::String(method) = method else {
        return invalid(shown_id, "`method` must be a string");
    };
    if id.is_none() {
        return Ok(MessageKind::Notification);
    }
    match require_params(method, fields.get("params")) {
        Ok(()) => Ok(MessageKind::Request),
        Err(why) => Err(InvalidMessage { id: shown_id, code: ErrorCode::INVALID_PARAMS, why }),
    }
}

/// Checks the parameters of a method that the server has. The library takes a method with
/// wrong parameters for an unknown one.
fn require_params(method: &str, params: Option<&Value>) -> Result<(), String> {
    let params = match params {
        None | Some(Value::Null) => json!({}),
        Some(params @ Value::Object(_)) => params.clone(),
        Some(_) => return Err("`params` must be an object".to_owned()),
    };
    if params.get("_meta").is_some_and(|meta| !(meta.is_object() || meta.is_null())) {
        return Err("`_meta` of `params` must be an object".to_owned());
    }
    let read = match method {
        "initialize" => from_value::<InitializeRequestParams>(params).map(drop),
        "tools/call" => from_value::<CallToolRequestParams>(params).map(drop),
        "resources/read" => from_value::<ReadResourceRequestParams>(params).map(drop),
        "prompts/get" => from_value::<GetPromptRequestParams>(params).map(drop),
        "prompts/list" | "resources/list" | "resources/templates/list" | "tools/list" => {
            from_value::<PaginatedRequestParams>(params).map(drop)
        }
        _ => Ok(()),
    };
    read.map_err(|error| format!("`params` of `{method}`: {error}"))
}
