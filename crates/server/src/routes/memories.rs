//! `/v1/memory_stores/{memory_store_id}/memories`

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::HeaderMap;
use keepsake_core::{ContentHash, MemoryId, StoreId, Timestamp, VersionId};
use keepsake_engine::{
    Engine, MemoryEdit, MemoryQuery, NewMemory, OnTaken, PageRequest, ShownItem, ShownMemory, View,
};
use serde::{Deserialize, Serialize};

use super::list::List;
use crate::auth::Caller;
use crate::body::JsonBody;
use crate::error::ApiError;
use crate::path::{InMemory, InStore};
use crate::precondition::{CreatePrecondition, Precondition};
use crate::query::{Asked, FromQuery, Query};

/// The header that tells which edition of the API a client speaks.
const BETA: &str = "anthropic-beta";
/// The edition whose create replaces what stands at the path.
const PREVIEW: &str = "managed-agents-2026-04-01";
/// The edition whose create refuses a taken path.
const CURRENT: &str = "agent-memory-2026-07-22";

/// The body of a creation.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct CreateMemory {
    /// Where it is to stand.
    path: String,
    /// What it is to hold; may be empty.
    content: String,
    /// On what condition it is made.
    precondition: Option<CreatePrecondition>,
}

/// The body of an update; what is left out stays.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct UpdateMemory {
    /// What it is to hold.
    content: Option<String>,
    /// Where it is to stand.
    path: Option<String>,
    /// Whether it is never to expire; writes no version.
    pinned: Option<bool>,
    /// On what condition it is changed.
    precondition: Option<Precondition>,
}

/// A memory.
#[derive(Debug, Serialize)]
#[expect(clippy::struct_field_names, reason = "the protocol names the fields")]
pub(crate) struct Memory {
    id: MemoryId,
    r#type: &'static str,
    memory_store_id: StoreId,
    /// The version that holds what it is now.
    memory_version_id: VersionId,
    path: String,
    /// Null with `view=basic`.
    content: Option<Arc<str>>,
    content_size_bytes: u64,
    content_sha256: String,
    created_at: String,
    updated_at: String,
    /// The older name of `content_size_bytes`.
    size_bytes: u64,
    /// When it was last read.
    last_accessed_at: Option<String>,
    /// When it would expire if it were never read again; null: never.
    expires_at: Option<String>,
    /// Whether it never expires.
    pinned: bool,
}

/// A directory with memories somewhere below it.
#[derive(Debug, Serialize)]
pub(crate) struct MemoryPrefix {
    r#type: &'static str,
    /// Ends in `/`; send it as `path_prefix` to list what is below.
    path: String,
}

/// One item of a listing.
#[derive(Debug, Serialize)]
#[serde(untagged)]
pub(crate) enum MemoryListItem {
    Memory(Box<Memory>),
    Prefix(MemoryPrefix),
}

/// The answer to a deletion.
#[derive(Debug, Serialize)]
pub(crate) struct DeletedMemory {
    id: MemoryId,
    r#type: &'static str,
}

/// Whether content is wanted.
#[derive(Debug)]
pub(crate) struct Viewed {
    pub(crate) view: Option<View>,
}

/// What is asked of a store's memories.
#[derive(Debug)]
pub(crate) struct ListMemories {
    path_prefix: Option<String>,
    depth: Option<u64>,
    view: Option<View>,
    page: PageRequest,
}

/// On what condition a memory is deleted.
#[derive(Debug)]
pub(crate) struct DeleteMemory {
    expected_content_sha256: Option<ContentHash>,
}

impl FromQuery for Viewed {
    fn from_query(query: &mut Query) -> Result<Self, ApiError> {
        Ok(Self { view: query.view()? })
    }
}

impl FromQuery for ListMemories {
    fn from_query(query: &mut Query) -> Result<Self, ApiError> {
        Ok(Self {
            path_prefix: query.text("path_prefix")?,
            depth: query.number("depth", "0 to 1")?,
            view: query.view()?,
            page: query.page()?,
        })
    }
}

impl FromQuery for DeleteMemory {
    fn from_query(query: &mut Query) -> Result<Self, ApiError> {
        Ok(Self {
            expected_content_sha256: query.hash("expected_content_sha256")?,
        })
    }
}

impl From<ShownMemory> for Memory {
    fn from(shown: ShownMemory) -> Self {
        let memory = shown.memory;
        Self {
            id: memory.head.memory_id,
            r#type: "memory",
            memory_store_id: shown.store_id,
            memory_version_id: memory.head.version_id,
            path: memory.head.path.as_str().to_owned(),
            content: shown.content,
            content_size_bytes: memory.head.size_bytes,
            content_sha256: memory.head.sha256.to_string(),
            created_at: memory.created_at.to_rfc3339(),
            updated_at: memory.updated_at.to_rfc3339(),
            size_bytes: memory.head.size_bytes,
            last_accessed_at: shown.last_accessed_at.map(Timestamp::to_rfc3339),
            expires_at: shown.expires_at.map(Timestamp::to_rfc3339),
            pinned: memory.is_pinned,
        }
    }
}

impl From<ShownItem> for MemoryListItem {
    fn from(item: ShownItem) -> Self {
        match item {
            ShownItem::Memory(memory) => Self::Memory(Box::new((*memory).into())),
            ShownItem::Prefix(path) => Self::Prefix(MemoryPrefix {
                r#type: "memory_prefix",
                path: path.as_str().to_owned(),
            }),
        }
    }
}

/// `POST /v1/memory_stores/{memory_store_id}/memories`
pub(crate) async fn create(
    State(engine): State<Engine>,
    Caller(principal): Caller,
    InStore(store_id): InStore,
    Asked(asked): Asked<Viewed>,
    headers: HeaderMap,
    JsonBody { body, call }: JsonBody<CreateMemory>,
) -> Result<Json<Memory>, ApiError> {
    let new = NewMemory {
        path: body.path,
        content: body.content,
        on_taken: match body.precondition {
            Some(CreatePrecondition::NotExists {}) => OnTaken::RefuseAsPrecondition,
            None if replaces(&headers) => OnTaken::Replace,
            None => OnTaken::Refuse,
        },
        view: asked.view.unwrap_or(View::Basic),
        idempotency: call,
    };
    let memory = engine.create_memory(&principal, store_id, new).await?;
    Ok(Json(memory.into()))
}

/// `GET /v1/memory_stores/{memory_store_id}/memories`
pub(crate) async fn list(
    State(engine): State<Engine>,
    Caller(principal): Caller,
    InStore(store_id): InStore,
    Asked(asked): Asked<ListMemories>,
) -> Result<Json<List<MemoryListItem>>, ApiError> {
    let query = MemoryQuery {
        path_prefix: asked.path_prefix,
        depth: asked.depth,
        page: asked.page,
    };
    let view = asked.view.unwrap_or(View::Basic);
    let memories = engine.memories(&principal, store_id, &query, view).await?;
    Ok(Json(List::of(memories, MemoryListItem::from)))
}

/// `GET /v1/memory_stores/{memory_store_id}/memories/{memory_id}`
pub(crate) async fn retrieve(
    State(engine): State<Engine>,
    Caller(principal): Caller,
    InMemory(store_id, memory_id): InMemory,
    Asked(asked): Asked<Viewed>,
) -> Result<Json<Memory>, ApiError> {
    let view = asked.view.unwrap_or(View::Full);
    let memory = engine.memory(&principal, store_id, memory_id, view).await?;
    Ok(Json(memory.into()))
}

/// `POST` and `PATCH /v1/memory_stores/{memory_store_id}/memories/{memory_id}`
pub(crate) async fn update(
    State(engine): State<Engine>,
    Caller(principal): Caller,
    InMemory(store_id, memory_id): InMemory,
    Asked(asked): Asked<Viewed>,
    JsonBody { body, call }: JsonBody<UpdateMemory>,
) -> Result<Json<Memory>, ApiError> {
    let edit = MemoryEdit {
        content: body.content,
        path: body.path,
        pinned: body.pinned,
        precondition: body.precondition.map(Into::into),
        view: asked.view.unwrap_or(View::Basic),
        idempotency: call,
    };
    let memory = engine
        .update_memory(&principal, store_id, memory_id, edit)
        .await?;
    Ok(Json(memory.into()))
}

/// `DELETE /v1/memory_stores/{memory_store_id}/memories/{memory_id}`
pub(crate) async fn delete(
    State(engine): State<Engine>,
    Caller(principal): Caller,
    InMemory(store_id, memory_id): InMemory,
    Asked(asked): Asked<DeleteMemory>,
) -> Result<Json<DeletedMemory>, ApiError> {
    let expected = asked.expected_content_sha256;
    engine
        .delete_memory(&principal, store_id, memory_id, expected)
        .await?;
    Ok(Json(DeletedMemory {
        id: memory_id,
        r#type: "memory_deleted",
    }))
}

/// Whether the client expects a create to replace what stands at the path.
fn replaces(headers: &HeaderMap) -> bool {
    let values = headers.get_all(BETA).iter();
    let names: Vec<_> = values
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(',').map(str::trim))
        .collect();
    names.contains(&PREVIEW) && !names.contains(&CURRENT)
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    #[test]
    fn preview_alone_replaces() {
        for (values, expected) in [
            (&[][..], false),
            (&["managed-agents-2026-04-01"], true),
            (&["other", "files-api, managed-agents-2026-04-01"], true),
            (&["managed-agents-2026-04-01,agent-memory-2026-07-22"], false),
            (&["agent-memory-2026-07-22", "managed-agents-2026-04-01"], false),
            (&["managed-agents-2026-04-012"], false),
        ] {
            let values = values.iter().map(|value| (BETA, *value));
            let mut headers = HeaderMap::new();
            for (name, value) in values {
                headers.append(name, HeaderValue::from_static(value));
            }
            assert_eq!(replaces(&headers), expected, "{headers:?}");
        }
    }

    #[test]
    fn content_must_be_there_when_a_memory_is_made() {
        for body in [r#"{"path":"/a"}"#, r#"{"path":"/a","content":null}"#] {
            let mut json = serde_json::Deserializer::from_str(body);
            let error = serde_path_to_error::deserialize::<_, CreateMemory>(&mut json).unwrap_err();
            assert!(error.to_string().contains("content"), "{error}");
        }
        let body = r#"{"content":null,"path":null,"pinned":null,"precondition":null}"#;
        assert!(serde_json::from_str::<UpdateMemory>(body).is_ok());
    }
}
