//! The OpenAPI document: the descriptions of the routes, and the parts common to all of them.
//!
//! An operation's section follows from its id; its path parameters, errors, headers and credentials
//! follow from its method, path and body. They are added here, so that a handler declares only its
//! query and answer.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use keepsake_core::id::RequestId;
use keepsake_core::{ContentHash, MemoryId, TenantId};
use keepsake_engine::View;
use utoipa::PartialSchema;
use utoipa::openapi::header::{Header, HeaderBuilder};
use utoipa::openapi::path::{Operation, Parameter, ParameterBuilder, ParameterIn, PathItem};
use utoipa::openapi::response::ResponseBuilder;
use utoipa::openapi::schema::{Components, Object, ObjectBuilder, Schema, SchemaType};
use utoipa::openapi::security::{ApiKey, ApiKeyValue, Http, HttpAuthScheme, SecurityScheme};
use utoipa::openapi::{Content, InfoBuilder, OpenApi, Ref, RefOr, Required, SecurityRequirement, Tag, Type};

use crate::error::ErrorKind;
use crate::{admin, routes, schemas};

const DESCRIPTION: &str = "Self-hosted memory for agents: memory stores, their memories and every version of them. Every response has a `request-id` header. Every response to an authenticated request has the tenant's `anthropic-workspace-id`; if a request sends `anthropic-workspace-id`, it must match the credential's tenant. `anthropic-version` and `?beta=true` are accepted and ignored, except where an operation documents them. Unknown body fields are refused. `null` in an optional field means the same as omitting it.";

/// Sections in order, with descriptions. An operation is in the section that the first word of its
/// id names, unless it declares another.
const TAGS: [(&str, &str); 13] = [
    ("Memory stores", "Collections of memories."),
    ("Memories", "Text files in a store, identified by path."),
    ("Memory versions", "The recorded changes of memories."),
    ("Memory readers", "Who was shown which version."),
    ("Tools", "The memory tool that models are trained to use, and additional tools."),
    ("Sessions", "Memory stores attached for an agent, and the agent's tool calls."),
    ("MCP", "Tools, memories as resources, and a prompt, over MCP."),
    ("Erasures", "Permanent deletion, with receipts."),
    ("API keys", "Credentials of clients."),
    ("Usage", "Reads and writes of each day."),
    ("Audit", "Recorded actions, with actor and time."),
    ("Health", "Health probes."),
    ("Reference", "This document."),
];

const OPERATOR_DESCRIPTION: &str = "The operator's API: tenants, their keys, limits and usage, jobs, and the audit. It has a separate listener. Every request must carry the operator's token. Every response has a `request-id` header. Unknown body fields are refused.";

/// The same for the operator's document.
const OPERATOR_TAGS: [(&str, &str); 6] = [
    ("Tenants", "The owners of memory stores."),
    ("Tenant keys", "Credentials of tenants' clients."),
    ("Token keys", "Signing keys of the server's own tokens."),
    ("Jobs", "Scheduled background work."),
    ("Audit", "Recorded actions, with actor and time."),
    ("Health", "Health probes."),
];

/// Name, schema and description.
const PATH_PARAMETERS: [(&str, &str, &str); 10] = [
    ("memory_store_id", "MemoryStoreId", "The store."),
    ("memory_id", "MemoryId", "The memory."),
    ("memory_version_id", "MemoryVersionId", "The version."),
    ("session_id", "SessionId", "The session."),
    ("resource_id", "ResourceName", "The attachment."),
    ("erasure_id", "ErasureId", "The erasure."),
    ("undo_id", "MemoryUndoId", "The undo."),
    ("api_key_id", "ApiKeyId", "The key."),
    ("tenant_id", "WorkspaceId", "The tenant."),
    ("job", "JobName", "The job."),
];

const OPERATOR_PATHS: &str = "/admin/v1/";

const RETRY_AFTER: &str = "retry-after";
const SHOULD_RETRY: &str = "x-should-retry";

/// Status, name in the components of the document, description, and headers besides the request's
/// id.
const REFUSALS: [(&str, &str, &str, &[&str]); 15] = [
    ("400", "InvalidRequest", "The request is invalid; the message names the reason.", &[]),
    ("401", "Unauthenticated", "The credential is missing or invalid.", &[]),
    ("403", "PermissionDenied", "The credential lacks the permission.", &[]),
    ("404", "NotFound", "The object does not exist in this tenant.", &[]),
    (
        "409",
        "Conflict",
        "The state of an object does not allow the request. Without `x-should-retry`, a retry may succeed.",
        &[SHOULD_RETRY],
    ),
    (
        "410",
        "ContentMissing",
        "The content store does not have the content, or a damaged one.",
        &[SHOULD_RETRY],
    ),
    ("413", "BodyTooLarge", "The body exceeds the size limit.", &[]),
    ("414", "UrlTooLong", "The URL exceeds 8,192 bytes.", &[]),
    ("415", "UnsupportedMediaType", "The body is not JSON.", &[]),
    (
        "429",
        "LimitReached",
        "Too many requests (`retry-after`), or a full store (`x-should-retry: false`).",
        &[RETRY_AFTER, SHOULD_RETRY],
    ),
    ("500", "InternalError", "An internal error of the server.", &[]),
    (
        "503",
        "Unavailable",
        "The database or the object store cannot be reached or used. After a failure of the database a write may \
         still land.",
        &[RETRY_AFTER],
    ),
    ("504", "TimedOut", "The deadline passed; a write may still land.", &[]),
    (
        "507",
        "DiskFull",
        "A disk of the server accepts no writes; the message says whether the change may have been made.",
        &[SHOULD_RETRY],
    ),
    ("529", "Overloaded", "Too many requests are running.", &[RETRY_AFTER]),
];

/// The document of the public API.
pub fn text() -> &'static str {
    static TEXT: LazyLock<String> = LazyLock::new(|| {
        let api_key = ApiKeyValue::with_description("x-api-key", "An API key.");
        let schemes = [
            ("api_key", SecurityScheme::ApiKey(ApiKey::Header(api_key))),
            ("bearer", bearer("An API key, or a JWT of a configured issuer.")),
        ];
        completed(routes::described(), "Keepsake", DESCRIPTION, &TAGS, schemes)
    });
    &TEXT
}

pub fn operator_text() -> &'static str {
    static TEXT: LazyLock<String> = LazyLock::new(|| {
        let title = "Keepsake operator API";
        let schemes = [("operator_token", bearer("The operator's token."))];
        completed(admin::described(), title, OPERATOR_DESCRIPTION, &OPERATOR_TAGS, schemes)
    });
    &TEXT
}

fn bearer(description: &str) -> SecurityScheme {
    let mut bearer = Http::new(HttpAuthScheme::Bearer);
    bearer.description = Some(description.to_owned());
    SecurityScheme::Http(bearer)
}

/// The document as indented JSON, with a final newline.
fn completed<const N: usize>(
    mut document: OpenApi,
    title: &str,
    description: &str,
    tags: &[(&str, &str)],
    schemes: [(&str, SecurityScheme); N],
) -> String {
    document.info = InfoBuilder::new()
        .title(title)
        .version(env!("CARGO_PKG_VERSION"))
        .description(Some(description))
        .build();
    let tag = |&(name, description): &(&str, &str)| {
        let mut tag = Tag::new(name);
        tag.description = Some(String::from(description));
        tag
    };
    document.tags = Some(tags.iter().map(tag).collect());
    for (path, item) in &mut document.paths.paths {
        complete_path(path, item, tags);
    }
    let components = document.components.get_or_insert_default();
    add_components(components);
    components.add_security_schemes_from_iter(schemes);
    let text = document.to_pretty_json().unwrap_or_default();
    format!("{text}\n")
}

fn complete_path(path: &str, item: &mut PathItem, tags: &[(&str, &str)]) {
    if let Some(patch) = &mut item.patch
        && item.post.is_some()
    {
        // The PATCH shares the handler of the POST, but needs a different id.
        patch.operation_id = patch.operation_id.take().map(|id| format!("{id}_by_patch"));
    }
    let operations = [
        ("GET", &mut item.get),
        ("POST", &mut item.post),
        ("PATCH", &mut item.patch),
        ("DELETE", &mut item.delete),
    ];
    for (method, operation) in operations {
        if let Some(operation) = operation {
            complete(method, path, operation);
            let section = section_of(operation, tags);
            operation.tags.get_or_insert_with(|| Vec::from_iter(section));
        }
    }
}

fn section_of(operation: &Operation, tags: &[(&str, &str)]) -> Option<String> {
    let (first_word, _) = operation.operation_id.as_deref()?.split_once('.')?;
    let names = tags.iter().map(|(name, _)| *name);
    let mut names = names.filter(|name| name.to_lowercase().replace(' ', "_") == first_word);
    names.next().map(str::to_owned)
}

fn path_parameters(path: &str) -> impl Iterator<Item = RefOr<Parameter>> {
    let names = path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'));
    let known = names.filter_map(|name| PATH_PARAMETERS.iter().find(|(known, ..)| *known == name));
    known.map(|(name, schema, description)| {
        let parameter = ParameterBuilder::new()
            .name(*name)
            .parameter_in(ParameterIn::Path)
            .required(Required::True)
            .description(Some(*description))
            .schema(Some(Ref::from_schema_name(*schema)));
        RefOr::T(parameter.build())
    })
}

/// Adds parameters, errors, headers and credentials by the operation's method, path and body.
fn complete(method: &str, path: &str, operation: &mut Operation) {
    complete_parameters(method, path, operation);
    if let Some(RefOr::T(body)) = &mut operation.request_body {
        for content in body.content.values_mut() {
            if let RefOr::T(content) = content {
                content.schema = content.schema.take().map(without_null);
            }
        }
    }
    let is_v1 = is_tenants(path);
    let headers = answer_headers(is_v1);
    for response in operation.responses.responses.values_mut() {
        if let RefOr::T(response) = response {
            response.headers.clone_from(&headers);
        }
    }
    let schemes: &[&str] = if path == "/mcp" {
        // Only a session's token determines the stores of `/mcp`.
        &["bearer"]
    } else if is_v1 {
        &["api_key", "bearer"]
    } else if path.starts_with(OPERATOR_PATHS) {
        &["operator_token"]
    } else {
        &[]
    };
    let requirement = |scheme: &&str| SecurityRequirement::new(*scheme, std::iter::empty::<String>());
    operation.security = Some(schemes.iter().map(requirement).collect());
    for (status, name, ..) in REFUSALS {
        if may_answer_with(method, path, operation, status) {
            let response = RefOr::Ref(Ref::from_response_name(name));
            // A response that the operation declares takes precedence.
            operation.responses.responses.entry(status.to_owned()).or_insert(response);
        }
    }
}

/// Puts the path's parameters first and adds the idempotency key.
fn complete_parameters(method: &str, path: &str, operation: &mut Operation) {
    let mut parameters: Vec<_> = path_parameters(path).collect();
    for parameter in operation.parameters.take().into_iter().flatten() {
        parameters.push(match parameter {
            RefOr::T(mut parameter) => {
                parameter.schema = parameter.schema.map(without_null);
                RefOr::T(parameter)
            }
            reference @ RefOr::Ref(_) => reference,
        });
    }
    if path.starts_with("/v1/") && method == "POST" {
        parameters.push(RefOr::Ref(Ref::new("#/components/parameters/IdempotencyKey")));
    }
    operation.parameters = Some(parameters).filter(|parameters| !parameters.is_empty());
}

/// Whether the path needs a tenant's credential.
fn is_tenants(path: &str) -> bool {
    path.starts_with("/v1/") || path.starts_with("/mcp")
}

/// Whether an operation may answer with this error status.
fn may_answer_with(method: &str, path: &str, operation: &Operation, status: &str) -> bool {
    let is_v1 = is_tenants(path);
    let is_operators = path.starts_with(OPERATOR_PATHS);
    let has_body = operation.request_body.is_some();
    let needs_body = match &operation.request_body {
        Some(RefOr::T(body)) => body.required == Some(Required::True),
        Some(RefOr::Ref(_)) | None => false,
    };
    match status {
        "500" | "504" => true,
        "503" => is_v1 || is_operators || path == "/readyz",
        "507" => (is_v1 || is_operators) && method != "GET",
        "400" | "401" if is_operators => true,
        // A repeated creation may find that its object was deleted.
        "404" => {
            let names_stores = ["/v1/search", "/v1/tools", "/v1/usage/daily"].contains(&path);
            path.contains('{') || is_v1 && (method == "POST" || names_stores)
        }
        "409" if is_operators => method != "GET" && !path.contains("/api_keys"),
        "409" => {
            let changed = ["/memories", "/memory_versions", "/import", "/undo", "/restore"];
            path.ends_with("/export") || method != "GET" && changed.iter().any(|part| path.contains(part))
        }
        "410" => {
            let reads_content = path.ends_with("/memories/{memory_id}")
                || path.ends_with("/memory_versions/{memory_version_id}");
            path.ends_with("/memory_versions/{memory_version_id}/restore") || method == "GET" && reads_content
        }
        "413" => has_body,
        "415" => needs_body,
        _ => is_v1,
    }
}

/// An optional parameter or body may be omitted, but not null.
fn without_null(schema: RefOr<Schema>) -> RefOr<Schema> {
    match schema {
        RefOr::T(Schema::OneOf(one_of)) => {
            let mut items = one_of.items.into_iter();
            let other = items.find(|item| !is_null(item));
            other.unwrap_or_else(|| RefOr::T(Object::new().into()))
        }
        RefOr::T(Schema::Object(mut object)) => {
            if let SchemaType::Array(types) = &object.schema_type
                && let Some(only) = types.iter().find(|a_type| **a_type != Type::Null)
            {
                object.schema_type = SchemaType::Type(only.clone());
            }
            RefOr::T(Schema::Object(object))
        }
        other => other,
    }
}

fn is_null(schema: &RefOr<Schema>) -> bool {
    matches!(schema, RefOr::T(Schema::Object(object)) if object.schema_type == SchemaType::Type(Type::Null))
}

fn header(schema: RefOr<Schema>, description: &str) -> Header {
    HeaderBuilder::new().schema(Some(schema)).description(Some(description)).build()
}

fn request_id() -> Header {
    header(RequestId::schema(), "The request's id, as in the server's log.")
}

fn answer_headers(is_v1: bool) -> BTreeMap<String, RefOr<Header>> {
    let mut headers = BTreeMap::from([("request-id".to_owned(), RefOr::T(request_id()))]);
    if is_v1 {
        let workspace_id = header(TenantId::schema(), "The credential's tenant.");
        headers.insert("anthropic-workspace-id".to_owned(), RefOr::T(workspace_id));
    }
    headers
}

fn add_components(components: &mut Components) {
    let described = [
        ("Error", error_envelope()),
        ("ErrorObject", schemas::ErrorObject::schema()),
        ("ErrorType", ErrorKind::schema()),
        ("MemoryId", MemoryId::schema()),
        ("ContentSha256", ContentHash::schema()),
        // Only parameters refer to the schemas below.
        ("GivenName", schemas::GivenName::schema()),
        ("Cursor", schemas::Cursor::schema()),
        ("View", View::schema()),
        ("Order", routes::list::Order::schema()),
        ("SearchQuery", schemas::SearchQuery::schema()),
        ("ResourceName", schemas::ResourceName::schema()),
    ];
    for (name, schema) in described {
        components.schemas.insert(name.to_owned(), schema);
    }
    for (_, name, description, headers) in REFUSALS {
        let response = ResponseBuilder::new()
            .description(description)
            .content("application/json", Content::new(Some(Ref::from_schema_name("Error"))))
            .header("request-id", request_id());
        let headers = headers.iter().map(|name| (*name, refusal_header(name)));
        let response = headers.fold(response, |response, (name, header)| response.header(name, header));
        components.responses.insert(name.to_owned(), response.build().into());
    }
    components.parameters.insert("IdempotencyKey".to_owned(), RefOr::T(idempotency_key()));
}

fn refusal_header(name: &str) -> Header {
    if name == RETRY_AFTER {
        let seconds = ObjectBuilder::new().schema_type(Type::Integer).minimum(Some(1)).maximum(Some(30));
        header(RefOr::T(seconds.into()), "Seconds to wait before a retry.")
    } else {
        let never = ObjectBuilder::new().schema_type(Type::String).enum_values(Some(["false"]));
        header(RefOr::T(never.into()), "`false` if a retry cannot succeed.")
    }
}

fn idempotency_key() -> Parameter {
    let schema = ObjectBuilder::new()
        .schema_type(Type::String)
        .min_length(Some(1))
        .max_length(Some(255))
        .pattern(Some("^[!-~]([ -~]*[!-~])?$"));
    ParameterBuilder::new()
        .name("Idempotency-Key")
        .parameter_in(ParameterIn::Header)
        .required(Required::False)
        .description(Some(
            "Makes a retry safe: within 24 hours, a request with the same key and body returns the result of the first one. The same key with another body is refused with 400.",
        ))
        .schema(Some(schema))
        .build()
}

fn error_envelope() -> RefOr<Schema> {
    let envelope = ObjectBuilder::new()
        .schema_type(Type::Object)
        .property("type", schemas::text("Marks an error.").enum_values(Some(["error"])))
        .property("error", Ref::from_schema_name("ErrorObject"))
        .property("request_id", RequestId::schema())
        .required("type")
        .required("error")
        .required("request_id");
    RefOr::T(envelope.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checked_in_documents_match_the_code() {
        for (name, checked_in, text) in [
            ("openapi.json", include_str!("../../../docs/openapi.json"), text()),
            ("openapi-admin.json", include_str!("../../../docs/openapi-admin.json"), operator_text()),
        ] {
            assert!(
                checked_in == text,
                "docs/{name} differs from the routes: run `just openapi` and commit it"
            );
        }
    }
}
