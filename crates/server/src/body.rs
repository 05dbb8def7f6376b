//! Request bodies within the tenant's limits, and idempotency keys.

use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::{FromRequest, OriginalUri, Request};
use axum::http::request::Parts;
use axum::http::{HeaderMap, Method, header};
use bytes::{Buf, BytesMut};
use http_body_util::BodyExt;
use hyper::body::Body as HttpBody;
use keepsake_console::{MAX_FORM_FIELDS, MAX_UPLOAD_BYTES, count_form_fields};
use keepsake_core::{BYTE_ORDER_MARK, JsonObject, MendedJson, NOT_UNICODE, duplicate_field};
use keepsake_engine::{Engine, MEMORY_TOOL, Principal, RequestShares, ToolCall};
use keepsake_index::Idempotency;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use tokio::time::Instant;
use utoipa::ToSchema;

use crate::admission::Holder;
use crate::auth::{AUTHENTICATION_TTL, Caller, principal_of};
use crate::console::refused::FormSlot;
use crate::envelope::deadline_of;
use crate::error::ApiError;
use crate::json_cost::{JsonCost, TooManyValues};

/// Bytes besides the content: a whole `tool_use` block, metadata.
const BODY_OVERHEAD_BYTES: u64 = 64 << 10;
/// JSON may write one byte of content as six characters (`\u0001`).
const ESCAPED_BYTES: u64 = 6;
/// How long a client may pause while it sends a body.
const BODY_PAUSE_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum bytes over the limit that are read and discarded of a body that is too
/// large, and the time limit for it.
const MAX_DISCARDED_BYTES: usize = 4 << 20;
const DISCARD_TIMEOUT: Duration = Duration::from_secs(2);
const IDEMPOTENCY_KEY: &str = "idempotency-key";
/// Maximum number of JSON values in a body, nested values included. A tool's input has far fewer.
pub(crate) const MAX_VALUES: usize = 2_000;
/// Memory charged for each field of a form, in bytes, in addition to the body.
const FIELD_BYTES: usize = 192;
/// Used in place of a maximum body size: the maximum is then six times the tenant's limit
/// `bytes_per_memory`, plus [`BODY_OVERHEAD_BYTES`].
const OF_LIMITS: u64 = 0;
/// Memory charged for a body is its size times this factor: the body, the texts parsed from the
/// body, and the content that is stored.
const BYTES_PER_BODY_BYTE: usize = 3;

/// Extracts the caller, the value `T` parsed from a JSON body, and the identity of an idempotent
/// call if the request has an idempotency key.
///
/// A body may have at most `MAX` JSON values and `BYTES` bytes; with [`OF_LIMITS`] the size limit
/// follows from the tenant's limits. With `MAY_BE_EMPTY`, no body means an empty object. The caller
/// is authenticated again if the body arrived slowly.
pub(crate) struct JsonBody<
    T,
    const MAX: usize = MAX_VALUES,
    const BYTES: u64 = OF_LIMITS,
    const IS_OF_PARTS: bool = false,
    const MAY_BE_EMPTY: bool = false,
>(pub(crate) Caller, pub(crate) T, pub(crate) Option<Idempotency>);

/// A [`JsonBody`] whose type `T` refuses duplicate fields itself, so that a duplicate field in one
/// operation of a batch refuses only that operation.
pub(crate) type BodyOfParts<T, const MAX: usize, const BYTES: u64> = JsonBody<T, MAX, BYTES, true>;

pub(crate) type OptionalBody<T> = JsonBody<T, MAX_VALUES, OF_LIMITS, false, true>;

/// The caller and the tool call of a JSON body, whose texts may hold invalid Unicode.
///
/// The model can correct that, so it must not become an API error. A body that is no tool call is
/// one, but the route may have another error to report first.
pub(crate) struct ToolBody(pub(crate) Caller, pub(crate) Result<ToolCall, ApiError>);

/// A body that says nothing.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Empty {}

impl<T, const MAX: usize, const BYTES: u64, const IS_OF_PARTS: bool, const MAY_BE_EMPTY: bool>
    FromRequest<Engine> for JsonBody<T, MAX, BYTES, IS_OF_PARTS, MAY_BE_EMPTY>
where
    T: DeserializeOwned + Send + 'static,
{
    type Rejection = ApiError;

    async fn from_request(request: Request, engine: &Engine) -> Result<Self, ApiError> {
        if !MAY_BE_EMPTY {
            require_json(request.headers())?;
        }
        let mut received = ReceivedRequest::read(request, engine, BYTES).await?;
        if MAY_BE_EMPTY {
            received.bytes = or_empty_object(received.bytes);
        }
        let parsed = received.parsed(engine, |received, engine| {
            received.count_values(MAX)?;
            if !IS_OF_PARTS {
                refuse_duplicates(&received.bytes)?;
            }
            let (caller, body, call) = received.decoded(engine)?;
            Ok(Self(caller, body, call))
        });
        parsed.await
    }
}

impl FromRequest<Engine> for ToolBody {
    type Rejection = ApiError;

    async fn from_request(request: Request, engine: &Engine) -> Result<Self, ApiError> {
        let received = ReceivedRequest::json(request, engine).await?;
        let parsed = received.parsed(engine, |mut received, engine| {
            // Counting takes no memory, unlike the steps below.
            received.count_values(MAX_VALUES)?;
            // Duplicate names are refused before the correction, which could make two names equal.
            refuse_duplicates(&received.bytes)?;
            let not_unicode = received.mend();
            let (caller, body, idempotency) = received.decoded(engine)?;
            Ok(Self(caller, tool_call(body, not_unicode, idempotency)))
        });
        parsed.await
    }
}

/// Distinguishes a block from a bare input. Another body is an API error. `not_unicode` is the path
/// of the first field with a character that was replaced.
fn tool_call(
    mut body: Map<String, Value>,
    not_unicode: Option<String>,
    idempotency: Option<Idempotency>,
) -> Result<ToolCall, ApiError> {
    if body.get("type").and_then(Value::as_str) != Some("tool_use") {
        if body.contains_key("command") {
            let name = MEMORY_TOOL.to_owned();
            return Ok(ToolCall { name, tool_use_id: None, input: body, not_unicode, idempotency });
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
    // The model wrote the name and the input; the rest of the block is the caller's. A name with
    // invalid Unicode is accepted here: no tool has it, so the call is refused as an unknown tool.
    let not_unicode =
        not_unicode.filter(|field| field != "name").map(|field| match field.strip_prefix("input.") {
            Some(field) => Ok(field.to_owned()),
            None => Err(ApiError::invalid_request(format!("`{field}` {NOT_UNICODE}"))),
        });
    Ok(ToolCall { name, tool_use_id, input, not_unicode: not_unicode.transpose()?, idempotency })
}

/// JSON that another protocol parses.
impl FromRequest<Engine> for ReceivedRequest {
    type Rejection = ApiError;

    async fn from_request(request: Request, engine: &Engine) -> Result<Self, ApiError> {
        let received = Self::json(request, engine).await?;
        let counted = received.parsed(engine, |received, _| {
            received.count_values(MAX_VALUES)?;
            Ok(received)
        });
        counted.await
    }
}

/// The text before the parameters.
fn media_type(headers: &HeaderMap) -> &str {
    let value = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    value.and_then(|value| value.split(';').next()).unwrap_or_default().trim()
}

pub(crate) fn require_json(headers: &HeaderMap) -> Result<(), ApiError> {
    let media_type = media_type(headers).to_ascii_lowercase();
    let suffix = media_type.strip_prefix("application/").unwrap_or_default();
    let is_json = suffix == "json" || suffix.ends_with("+json");
    is_json.then_some(()).ok_or_else(|| ApiError::unsupported_media_type("application/json"))
}

pub(crate) fn is_of_type(headers: &HeaderMap, expected: &str) -> bool {
    media_type(headers).eq_ignore_ascii_case(expected)
}

pub(crate) fn require_form(headers: &HeaderMap) -> Result<(), ApiError> {
    let expected = "application/x-www-form-urlencoded";
    let is_form = is_of_type(headers, expected);
    is_form.then_some(()).ok_or_else(|| ApiError::unsupported_media_type(expected))
}

/// What separates the fields of a form with a file; `None`: the form has no file.
pub(crate) fn boundary_of(headers: &HeaderMap) -> Option<String> {
    let content_type = headers.get(header::CONTENT_TYPE)?.to_str().ok()?;
    multer::parse_boundary(content_type).ok()
}

/// A request whose body was read completely.
pub(crate) struct ReceivedRequest {
    /// The caller, authenticated again if the body arrived slowly.
    pub(crate) principal: Arc<Principal>,
    pub(crate) head: Parts,
    key: Option<String>,
    pub(crate) bytes: Bytes,
    pub(crate) held: Arc<RequestShares>,
}

impl ReceivedRequest {
    /// Reads JSON, whose values are not counted yet.
    async fn json(request: Request, engine: &Engine) -> Result<Self, ApiError> {
        require_json(request.headers())?;
        Self::read(request, engine, OF_LIMITS).await
    }

    /// Parses the body with `parse`, in a slot of the tenant if the body is large.
    async fn parsed<T: Send + 'static>(
        self,
        engine: &Engine,
        parse: impl FnOnce(Self, Engine) -> Result<T, ApiError> + Send + 'static,
    ) -> Result<T, ApiError> {
        let (tenant_id, bytes, engine) = (self.principal.tenant_id, self.bytes.len(), engine.clone());
        let computations = engine.computations.clone();
        computations.parse(tenant_id, bytes, move || parse(self, engine)).await?
    }

    /// Reads a form without files, and charges the memory of its parsed fields.
    pub(crate) async fn form(request: Request, engine: &Engine) -> Result<Self, ApiError> {
        require_form(request.headers())?;
        let received = Self::read(request, engine, OF_LIMITS).await?;
        received.held.charge(FIELD_BYTES * count_fields(&received.bytes)?)?;
        Ok(received)
    }

    /// Reads a body of any kind; the caller has checked its content type.
    pub(crate) async fn read(request: Request, engine: &Engine, max_bytes: u64) -> Result<Self, ApiError> {
        let begun = Instant::now();
        let (parts, body) = request.into_parts();
        let principal = parts.extensions.get::<Arc<Principal>>().cloned();
        let mut principal = principal.ok_or_else(ApiError::internal)?;
        let held = parts.extensions.get().map(|Holder(held)| Arc::clone(held));
        let held = held.ok_or_else(ApiError::internal)?;
        // A PATCH is idempotent anyway; the protocol defines keys only for POST.
        let is_post = parts.method == Method::POST;
        let key = if is_post { key_of(&parts.headers)? } else { None };
        let limit_bytes = match max_bytes {
            OF_LIMITS => {
                let content = principal.limits.bytes_per_memory.saturating_mul(ESCAPED_BYTES);
                content.saturating_add(BODY_OVERHEAD_BYTES)
            }
            max_bytes => max_bytes,
        };
        let charge = |bytes| held.charge(BYTES_PER_BODY_BYTE * bytes).map_err(ApiError::from);
        let bytes = match parts.extensions.get::<FormSlot>() {
            Some(slot) => slot.read_within(&parts, body, limit_bytes, charge).await?,
            None => read(&parts, body, limit_bytes, charge).await?,
        };
        if begun.elapsed() > AUTHENTICATION_TTL {
            // The credential may have been revoked or restricted meanwhile.
            principal = principal_of(engine, &parts.headers).await?;
        }
        Ok(Self { principal, head: parts, key, bytes, held })
    }

    /// Replaces invalid Unicode; returns the path of the first field that had it.
    fn mend(&mut self) -> Option<String> {
        let MendedJson { json, field } = MendedJson::of(&self.bytes)?;
        self.bytes = json.into();
        Some(field)
    }

    /// Parses a body whose values were counted. Duplicate fields were refused before, or `T`
    /// refuses them.
    fn decoded<T: DeserializeOwned>(
        self,
        engine: Engine,
    ) -> Result<(Caller, T, Option<Idempotency>), ApiError> {
        let body = parse_unchecked(&self.bytes)?;
        let call = self.call(&engine)?;
        Ok((Caller(engine, self.principal), body, call))
    }

    /// Refuses a body of more than `max` JSON values and charges the memory of their tree.
    fn count_values(&self, max: usize) -> Result<(), ApiError> {
        let cost = JsonCost::of(&self.bytes, max).map_err(|TooManyValues| {
            ApiError::invalid_request(format!(
                "the body must have at most {max} JSON values, those in lists and objects included"
            ))
        })?;
        Ok(self.held.charge(cost.tree_bytes())?)
    }

    fn call(&self, engine: &Engine) -> Result<Option<Idempotency>, ApiError> {
        let Some(key) = self.key.as_deref() else {
            return Ok(None);
        };
        let body = canonical(&self.bytes);
        let (method, uri) = (self.head.method.as_str(), self.head.extensions.get());
        let uri = uri.map_or(&self.head.uri, |OriginalUri(uri)| uri);
        let call = engine.calls.of_request(&self.principal, method, uri.path(), key, &body)?;
        Ok(Some(call))
    }
}

/// Counts the fields before the form is parsed, and refuses too many.
pub(crate) fn count_fields(form: &[u8]) -> Result<usize, ApiError> {
    count_form_fields(form).ok_or_else(|| {
        ApiError::invalid_request(format!("the form must have at most {MAX_FORM_FIELDS} fields"))
    })
}

fn key_of(headers: &HeaderMap) -> Result<Option<String>, ApiError> {
    let mut values = headers.get_all(IDEMPOTENCY_KEY).iter();
    let refused = |rule: &str| ApiError::invalid_request(format!("`Idempotency-Key` {rule}"));
    let Some(value) = values.next() else {
        return Ok(None);
    };
    if values.next().is_some() {
        return Err(refused("must be given once"));
    }
    let text = value.to_str().ok().filter(|text| !text.contains('\t'));
    let text = text.ok_or_else(|| refused("must be visible ASCII text"))?;
    Ok(Some(text.to_owned()))
}

/// Normalizes whitespace and the order of fields. Returns a body unchanged if no [`Value`] can hold
/// all of it, such as one with duplicate fields: a part of an accepted body may be kept as raw text
/// or refused on its own.
fn canonical(bytes: &[u8]) -> Vec<u8> {
    let canonical = || {
        let mut value: Value = serde_json::from_slice(bytes).ok()?;
        value.sort_all_objects();
        serde_json::to_vec(&value).ok()
    };
    let canonical = if duplicate_field(bytes).is_none() { canonical() } else { None };
    canonical.unwrap_or_else(|| bytes.to_vec())
}

fn refuse_duplicates(json: &[u8]) -> Result<(), ApiError> {
    match duplicate_field(json) {
        None => Ok(()),
        Some(field) => {
            let rule = format!("the body is not valid: duplicate field `{field}`");
            Err(ApiError::invalid_request(rule))
        }
    }
}

/// Refuses a body in which an object has a field twice.
pub(crate) fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, ApiError> {
    refuse_duplicates(bytes)?;
    parse_unchecked(bytes)
}

/// The caller has refused duplicate fields, or `T` refuses them.
fn parse_unchecked<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, ApiError> {
    if bytes.trim_ascii().is_empty() {
        return Err(ApiError::invalid_request("the body is not valid: it is empty"));
    }
    let mut json = serde_json::Deserializer::from_slice(bytes);
    let parsed = serde_path_to_error::deserialize(&mut json).map_err(|error| {
        let (path, why) = (error.path().to_string(), reason(error.inner()));
        // The rule of a type continues the sentence that its field begins.
        let colon = if why.starts_with("is ") || why.starts_with("must ") { "" } else { ":" };
        // The error of a body that is not JSON has no path.
        let is_whole = [".", "?"].contains(&path.as_str());
        let place = if is_whole { String::new() } else { format!("`{path}`{colon} ") };
        ApiError::invalid_request(format!("the body is not valid: {place}{why}"))
    })?;
    let JsonObject(parsed) = parsed;
    json.end().map_err(|_| {
        ApiError::invalid_request("the body is not valid: there is data after the JSON value")
    })?;
    Ok(parsed)
}

/// What is wrong, with its line and column only if the text is not JSON: a client that writes
/// JSON with a library does not see them.
fn reason(error: &serde_json::Error) -> String {
    let reason = error.to_string();
    if !error.is_data() {
        return reason;
    }
    let place = format!(" at line {} column {}", error.line(), error.column());
    let rule = reason.strip_suffix(place.as_str()).unwrap_or(&reason);
    match rule.rsplit_once(", expected ") {
        Some((found, expected)) => format!("{found}, expected {}", name_in_json(expected)),
        None => rule.to_owned(),
    }
}

/// The name that JSON has for what a type of Rust expects.
fn name_in_json(expected: &str) -> &str {
    match expected {
        "u8" | "u16" | "u32" | "u64" | "usize" => "an integer from 0",
        "a sequence" => "an array",
        "a map" => "an object",
        other => other,
    }
}

/// Reads a body within a size limit, the deadline and the limit for a pause. Calls `charge` with
/// the size of each part before keeping it.
pub(crate) async fn read(
    head: &Parts,
    mut body: Body,
    limit_bytes: u64,
    mut charge: impl FnMut(usize) -> Result<(), ApiError>,
) -> Result<Bytes, ApiError> {
    require_plain(&head.headers)?;
    let limit = usize::try_from(limit_bytes).unwrap_or(usize::MAX);
    let mut bytes = BytesMut::new();
    // A declared length over the limit is refused without reading.
    if body.size_hint().lower() > limit_bytes {
        discard(head, body, limit).await;
        return Err(ApiError::body_too_large(limit_bytes));
    }
    while let Some(data) = next_data(head, &mut body).await? {
        let allowed = if bytes.len() + data.len() > limit {
            Err(ApiError::body_too_large(limit_bytes))
        } else {
            charge(data.len())
        };
        if let Err(error) = allowed {
            discard(head, body, limit).await;
            return Err(error);
        }
        bytes.extend_from_slice(&data);
    }
    Ok(without_mark(bytes.freeze()))
}

/// The next part of a body; trailers are an empty part.
async fn next_data(head: &Parts, body: &mut Body) -> Result<Option<Bytes>, ApiError> {
    let quiet_until = Instant::now() + BODY_PAUSE_TIMEOUT;
    let until = deadline_of(head).map_or(quiet_until, |deadline| deadline.min(quiet_until));
    let frame = tokio::time::timeout_at(until, body.frame()).await;
    match frame.map_err(|_| ApiError::body_too_slow())? {
        None => Ok(None),
        Some(Ok(frame)) => Ok(Some(frame.into_data().unwrap_or_default())),
        Some(Err(_)) => Err(ApiError::invalid_request("the request body is incomplete")),
    }
}

/// Reads the first `max_bytes` of a form with a file, as far as `charge` allows, and discards a
/// limited part of the rest.
pub(crate) async fn read_start(
    head: &Parts,
    mut body: Body,
    max_bytes: usize,
    mut charge: impl FnMut(usize) -> Result<(), ApiError>,
) -> Bytes {
    let mut start = BytesMut::new();
    while start.len() < max_bytes {
        let Ok(Some(data)) = next_data(head, &mut body).await else {
            return start.freeze();
        };
        if charge(data.len()).is_err() {
            break;
        }
        start.extend_from_slice(&data);
    }
    discard(head, body, usize::try_from(MAX_UPLOAD_BYTES).unwrap_or_default()).await;
    start.freeze()
}

/// Reads and discards a limited part of an oversized body. Closing the connection while the client
/// is still sending could break it before the client receives the answer.
pub(crate) async fn discard(head: &Parts, mut body: Body, limit: usize) {
    let until = Instant::now() + DISCARD_TIMEOUT;
    let until = deadline_of(head).map_or(until, |deadline| deadline.min(until));
    let mut left = MAX_DISCARDED_BYTES.saturating_add(limit);
    while left > 0 {
        let Ok(Some(Ok(frame))) = tokio::time::timeout_at(until, body.frame()).await else {
            return;
        };
        left = left.saturating_sub(frame.data_ref().map_or(0, Bytes::len));
    }
}

/// Refuses a compressed body.
fn require_plain(headers: &HeaderMap) -> Result<(), ApiError> {
    let encodings = headers.get_all(header::CONTENT_ENCODING).iter();
    let texts = encodings.map(|value| value.to_str().unwrap_or("unknown"));
    let mut names = texts.flat_map(|text| text.split(',')).map(str::trim);
    match names.find(|name| !name.is_empty() && !name.eq_ignore_ascii_case("identity")) {
        None => Ok(()),
        Some(name) => Err(ApiError::unsupported_encoding(name)),
    }
}

/// Some systems write a byte order mark in front of JSON.
fn without_mark(mut bytes: Bytes) -> Bytes {
    if bytes.len() > BYTE_ORDER_MARK.len() && bytes.starts_with(BYTE_ORDER_MARK) {
        bytes.advance(BYTE_ORDER_MARK.len());
    }
    bytes
}

pub(crate) fn or_empty_object(bytes: Bytes) -> Bytes {
    let is_empty = bytes.trim_ascii().is_empty();
    if is_empty { Bytes::from_static(b"{}") } else { bytes }
}
