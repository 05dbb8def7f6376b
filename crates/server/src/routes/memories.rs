//! `/v1/memory_stores/{memory_store_id}/memories`

pub(crate) mod batch;

use std::sync::Arc;

use axum::http::HeaderMap;
use keepsake_core::{ContentHash, DirPath, MemoryId, MemoryPath, StoreId, Timestamp};
use keepsake_engine::{
    MemoryEdit, MemoryQuery, MemoryReceipt, NewMemory, ShownItem, ShownMemory, ShownPastMemory, View,
};
use keepsake_index::MemoryDeletion;
use serde::Serialize;
use utoipa::ToSchema;

use super::deleted::DeletedMemory;
use super::list::{List, ListPage, PastMoment, Viewed};
use crate::answer::{Answer, Json};
use crate::auth::Caller;
use crate::body::JsonBody;
use crate::error::ApiError;
use crate::path::Path;
use crate::query::{QueryParams, query_params};
use crate::schemas::{self, MemoryPrefixType, MemoryType};

/// Header with the edition of the API that a client uses.
const BETA: &str = "anthropic-beta";
/// Plain HTTP clients of this edition expect a create to replace the memory at the path. SDKs send
/// this edition with `?beta=true` and expect a conflict.
const PREVIEW: &str = "managed-agents-2026-04-01";
/// In this edition, a create refuses a taken path.
const CURRENT: &str = "agent-memory-2026-07-22";

/// A memory.
#[derive(Debug, Serialize, ToSchema)]
#[expect(clippy::struct_field_names, reason = "the protocol names the fields")]
pub(crate) struct Memory {
    id: MemoryId,
    #[schema(inline)]
    r#type: MemoryType,
    memory_store_id: StoreId,
    /// The version with the current content. If the credential lacks the scope
    /// `memory:read`, then `memory_version_id`, `path` and `content_sha256` are
    /// empty unless the request sent them.
    #[schema(value_type = schemas::MemoryVersionIdOrEmpty)]
    memory_version_id: String,
    #[schema(value_type = schemas::MemoryPathOrEmpty)]
    path: String,
    /// Null with `view=basic`.
    #[schema(value_type = Option<schemas::Content>, required)]
    content: Option<Arc<str>>,
    /// Why the content is null with `view=full`; left out if it is there.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = schemas::ErrorObject, required = false)]
    content_error: Option<ApiError>,
    /// 0 if `content_sha256` is empty.
    content_size_bytes: u64,
    #[schema(value_type = schemas::ContentSha256OrEmpty)]
    content_sha256: String,
    created_at: Timestamp,
    updated_at: Timestamp,
    /// The older name of `content_size_bytes`.
    size_bytes: u64,
    /// When it was last read.
    #[schema(required)]
    last_accessed_at: Option<Timestamp>,
    /// When it expires if it is not used again: by the store's period or at its own
    /// time, whichever is earlier; null: never.
    #[schema(required)]
    expires_at: Option<Timestamp>,
    /// Its own expiry time, which a request set, also while it is pinned; null: none.
    #[schema(required)]
    expiry_time: Option<Timestamp>,
    /// Whether it never expires; null if the credential lacks `memory:read` and
    /// the request did not set the field, and for a memory of the past.
    #[schema(required)]
    pinned: Option<bool>,
    /// For a memory of the past: when the version that was current then was redacted. The
    /// memory then has no content and an empty path and hash. Left out otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Timestamp, required = false)]
    redacted_at: Option<Timestamp>,
}

/// A directory that contains memories, possibly in subdirectories.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct MemoryPrefix {
    #[schema(inline)]
    r#type: MemoryPrefixType,
    /// Ends with `/`; send it as `path_prefix` to list the directory.
    path: DirPath,
}

/// One item of a listing.
#[derive(Debug, Serialize, ToSchema)]
#[serde(untagged)]
pub(crate) enum MemoryListItem {
    Memory(Box<Memory>),
    Prefix(MemoryPrefix),
}

query_params! {
    /// The query of a creation.
    CreateQuery {
        /// Whether the response includes content; `basic` by default.
        view: Option<View> = view(),
        /// The SDKs send `true`: then a taken path is a conflict, regardless of
        /// `anthropic-beta`.
        #[param(value_type = Option<bool>)]
        beta: bool = is_beta(),
    }
}

query_params! {
    /// Filters of a memory listing.
    ListMemories {
        /// Only the memory at this path, if there is one; not with the other filters.
        #[param(value_type = Option<MemoryPath>)]
        path: Option<String> = text("path"),
        /// Only memories below this directory; whole path segments are compared.
        #[param(value_type = Option<DirPath>)]
        path_prefix: Option<String> = text("path_prefix"),
        /// 0: all memories below. 1: only direct entries, with a `memory_prefix`
        /// for each directory.
        #[param(minimum = 0, maximum = 1)]
        depth: Option<u64> = number("depth", "0 to 1"),
    }
}

query_params! {
    /// Filters of a listing of deleted memories.
    ListDeletions {
        /// Only memories that were at this path when they were deleted.
        #[param(value_type = Option<MemoryPath>)]
        path: Option<String> = text("path"),
    }
}

query_params! {
    /// The precondition of a deletion.
    DeleteMemory {
        /// Delete the memory only if its content has this hash.
        expected_content_sha256: Option<ContentHash> = hash("expected_content_sha256"),
    }
}

impl From<ShownMemory> for Memory {
    fn from(shown: ShownMemory) -> Self {
        let content_error = shown.content_error().map(ApiError::from);
        let memory = shown.memory;
        let may_show = |part: fn(&MemoryReceipt) -> bool| shown.receipt.as_ref().is_none_or(part);
        let shows_content = may_show(|receipt| receipt.has_content);
        let or_empty = |is_shown: bool, text: String| if is_shown { text } else { String::new() };
        let size_bytes = if shows_content { memory.head.content.size_bytes } else { 0 };
        Self {
            id: memory.head.memory_id,
            r#type: MemoryType,
            memory_store_id: shown.store_id,
            memory_version_id: or_empty(
                may_show(|receipt| receipt.is_new),
                memory.head.version_id.to_string(),
            ),
            path: or_empty(may_show(|receipt| receipt.has_path), memory.head.path.as_str().to_owned()),
            pinned: may_show(|receipt| receipt.has_pin).then_some(memory.is_pinned),
            content: shown.content,
            content_error,
            content_size_bytes: size_bytes,
            content_sha256: or_empty(shows_content, memory.head.content.sha256.to_string()),
            created_at: memory.created_at,
            updated_at: memory.updated_at,
            size_bytes,
            last_accessed_at: shown.last_accessed_at,
            expires_at: shown.expires_at,
            expiry_time: match shown.receipt {
                None => memory.expires_at,
                // Only the value that the request sent.
                Some(_) => shown.expires_at,
            },
            redacted_at: None,
        }
    }
}

impl From<ShownPastMemory> for Memory {
    fn from(shown: ShownPastMemory) -> Self {
        let content_error = shown.content_error().map(ApiError::from);
        let memory = shown.version;
        let size_bytes = memory.content.map_or(0, |content| content.size_bytes);
        Self {
            id: memory.memory_id,
            r#type: MemoryType,
            memory_store_id: shown.store_id,
            memory_version_id: memory.version_id.to_string(),
            path: memory.path.map_or_else(String::new, |path| path.as_str().to_owned()),
            content: shown.content,
            content_error,
            content_size_bytes: size_bytes,
            content_sha256: memory.content.map_or_else(String::new, |content| content.sha256.to_string()),
            created_at: memory.created_at,
            updated_at: memory.updated_at,
            size_bytes,
            last_accessed_at: None,
            expires_at: None,
            expiry_time: None,
            pinned: None,
            redacted_at: memory.redacted_at,
        }
    }
}

impl<M> From<ShownItem<M>> for MemoryListItem
where
    Memory: From<M>,
{
    fn from(item: ShownItem<M>) -> Self {
        match item {
            ShownItem::Memory(memory) => Self::Memory(Box::new((*memory).into())),
            ShownItem::Prefix(path) => Self::Prefix(MemoryPrefix { r#type: MemoryPrefixType, path }),
        }
    }
}

/// Create a memory
///
/// A taken path is a conflict. Exception: if `anthropic-beta` contains
/// `managed-agents-2026-04-01` without `agent-memory-2026-07-22`, and the query
/// lacks `beta=true`, the existing memory gets the content as a new version.
#[utoipa::path(
    post,
    path = "/memory_stores/{memory_store_id}/memories",
    operation_id = "memories.create",
    params(
        CreateQuery,
        ("anthropic-beta" = Option<String>, Header, description = "Editions of the API, separated by commas.")
    ),
    request_body = NewMemory,
    responses((status = 200, description = "The memory.", body = Memory)),
)]
pub(crate) async fn create(
    Path(store_id): Path<StoreId>,
    QueryParams(params): QueryParams<CreateQuery>,
    headers: HeaderMap,
    JsonBody(Caller(engine, principal), new, idempotency): JsonBody<NewMemory>,
) -> Answer<Memory> {
    let (replaces, view) = (replaces(&headers, params.beta), params.view.unwrap_or_default());
    let new = NewMemory { replaces, view, idempotency, ..new };
    let memory = engine.memories.create(&principal, store_id, new).await?;
    Ok(Json(memory.into()))
}

/// List memories
///
/// Ordered by path, in byte order. With `at` or `at_seq`, the memories as they were then.
#[utoipa::path(
    get,
    path = "/memory_stores/{memory_store_id}/memories",
    operation_id = "memories.list",
    params(ListMemories, PastMoment, Viewed, ListPage),
    responses((status = 200, description = "A page of memories and directories.", body = List<MemoryListItem>)),
)]
pub(crate) async fn list(
    Caller(engine, principal): Caller,
    Path(store_id): Path<StoreId>,
    QueryParams((params, at, Viewed { view }, page)): QueryParams<(
        ListMemories,
        PastMoment,
        Viewed,
        ListPage,
    )>,
) -> Answer<List<MemoryListItem>> {
    let query = MemoryQuery {
        path: params.path,
        path_prefix: params.path_prefix,
        depth: params.depth,
        page: page.into(),
    };
    let view = view.unwrap_or_default();
    if let Some(at) = at.moment()? {
        let memories = engine.past.list(&principal, store_id, &query, at, view).await?;
        return Ok(Json(List::of(memories, MemoryListItem::from)));
    }
    let memories = engine.memories.list(&principal, store_id, &query, view).await?;
    Ok(Json(List::of(memories, MemoryListItem::from)))
}

/// List deleted memories
///
/// The memories that can be restored, the last deleted first.
#[utoipa::path(
    get,
    path = "/memory_stores/{memory_store_id}/memories/deleted",
    operation_id = "memories.list_deleted",
    params(ListDeletions, ListPage),
    responses((status = 200, description = "A page of deleted memories.", body = List<MemoryDeletion>)),
)]
pub(crate) async fn list_deleted(
    Caller(engine, principal): Caller,
    Path(store_id): Path<StoreId>,
    QueryParams((params, page)): QueryParams<(ListDeletions, ListPage)>,
) -> Answer<List<MemoryDeletion>> {
    let versions = &engine.versions;
    let deletions = versions.deletions(&principal, store_id, params.path.as_deref(), &page.into()).await?;
    Ok(Json(deletions.into()))
}

/// Retrieve a memory
///
/// With `at` or `at_seq`, the memory as it was then, also if it was deleted since.
#[utoipa::path(
    get,
    path = "/memory_stores/{memory_store_id}/memories/{memory_id}",
    operation_id = "memories.retrieve",
    params(PastMoment, Viewed),
    responses((status = 200, description = "The memory.", body = Memory)),
)]
pub(crate) async fn retrieve(
    Caller(engine, principal): Caller,
    Path((store_id, memory_id)): Path<(StoreId, MemoryId)>,
    QueryParams((at, Viewed { view })): QueryParams<(PastMoment, Viewed)>,
) -> Answer<Memory> {
    let view = view.unwrap_or(View::Full);
    if let Some(at) = at.moment()? {
        let memory = engine.past.get(&principal, store_id, memory_id, at, view).await?;
        return Ok(Json(memory.into()));
    }
    let memory = engine.memories.get(&principal, store_id, memory_id, view).await?;
    Ok(Json(memory.into()))
}

/// Update a memory
///
/// Changes content, path or both in one version. An update that changes nothing
/// creates no version.
#[utoipa::path(
    method(post, patch),
    path = "/memory_stores/{memory_store_id}/memories/{memory_id}",
    operation_id = "memories.update",
    params(Viewed),
    request_body = MemoryEdit,
    responses((status = 200, description = "The updated memory.", body = Memory)),
)]
pub(crate) async fn update(
    Path((store_id, memory_id)): Path<(StoreId, MemoryId)>,
    QueryParams(Viewed { view }): QueryParams<Viewed>,
    JsonBody(Caller(engine, principal), edit, idempotency): JsonBody<MemoryEdit>,
) -> Answer<Memory> {
    let edit = MemoryEdit { view: view.unwrap_or_default(), idempotency, ..edit };
    let memory = engine.memories.update(&principal, store_id, memory_id, edit).await?;
    Ok(Json(memory.into()))
}

/// Delete a memory
///
/// Its versions are kept for the retention period and can be restored.
#[utoipa::path(
    delete,
    path = "/memory_stores/{memory_store_id}/memories/{memory_id}",
    operation_id = "memories.delete",
    params(DeleteMemory),
    responses((status = 200, description = "The memory was deleted.", body = DeletedMemory)),
)]
pub(crate) async fn delete(
    Caller(engine, principal): Caller,
    Path((store_id, memory_id)): Path<(StoreId, MemoryId)>,
    QueryParams(params): QueryParams<DeleteMemory>,
) -> Answer<DeletedMemory> {
    let expected = params.expected_content_sha256;
    engine.memories.delete(&principal, store_id, memory_id, expected).await?;
    Ok(Json(memory_id.into()))
}

/// Whether the client expects a create to replace the memory at the path.
///
/// Plain HTTP clients of the preview do. SDKs do not: the SDKs 0.97 to 0.112
/// send `?beta=true` with the preview's header, later SDKs send the current
/// header.
fn replaces(headers: &HeaderMap, is_beta_in_query: bool) -> bool {
    let values = headers.get_all(BETA).iter();
    let names: Vec<_> = values
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(',').map(str::trim))
        .collect();
    !is_beta_in_query && names.contains(&PREVIEW) && !names.contains(&CURRENT)
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    #[test]
    fn only_preview_clients_replace() {
        for (values, expected) in [
            (&[][..], false),
            (&["managed-agents-2026-04-01"], true),
            (&["other", "files-api, managed-agents-2026-04-01"], true),
            (&["managed-agents-2026-04-01,agent-memory-2026-07-22"], false),
            (&["agent-memory-2026-07-22", "managed-agents-2026-04-01"], false),
            (&["managed-agents-2026-04-012"], false),
        ] {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append(BETA, HeaderValue::from_static(value));
            }
            assert_eq!(replaces(&headers, false), expected, "{headers:?}");
            assert!(!replaces(&headers, true), "{headers:?}");
        }
    }
}
