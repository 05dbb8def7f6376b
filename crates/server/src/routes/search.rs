//! `/v1/memory_stores/{memory_store_id}/search`

use axum::Json;
use axum::extract::State;
use keepsake_core::{MemoryId, StoreId};
use keepsake_engine::{Engine, PageRequest, SearchHit, SearchQuery};
use serde::Serialize;
use utoipa::{IntoParams, ToSchema};

use super::list::List;
use crate::auth::Caller;
use crate::error::ApiError;
use crate::path::InStore;
use crate::query::{FromQuery, Query, QueryParams};
use crate::schemas::{self, MemorySearchHitType};

/// A memory that matches the query.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct MemorySearchHit {
    #[schema(inline)]
    r#type: MemorySearchHitType,
    #[schema(value_type = schemas::MemoryStoreId)]
    memory_store_id: StoreId,
    #[schema(value_type = schemas::MemoryId)]
    memory_id: MemoryId,
    #[schema(value_type = schemas::MemoryPath)]
    path: String,
    /// Higher is better; comparable only within one response.
    score: f64,
    /// The line in which the snippet begins, counted from 1.
    line: usize,
    /// The most relevant passage, with `⟦` and `⟧` around matches. Such
    /// brackets of the content itself are omitted.
    snippet: String,
    /// The hash of the content of the snippet.
    #[schema(value_type = schemas::ContentSha256)]
    content_sha256: String,
    #[schema(value_type = schemas::Time)]
    updated_at: String,
}

impl From<SearchHit> for MemorySearchHit {
    fn from(hit: SearchHit) -> Self {
        Self {
            r#type: MemorySearchHitType::Hit,
            memory_store_id: hit.store_id,
            memory_id: hit.memory_id,
            path: hit.path.as_str().to_owned(),
            score: hit.score,
            line: hit.line,
            snippet: hit.snippet,
            content_sha256: hit.content_sha256.to_string(),
            updated_at: hit.updated_at.to_rfc3339(),
        }
    }
}

/// The parameters of a search.
#[derive(Debug, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct Search {
    /// Words, `"quoted phrases"`, `-excluded`, `prefix*`, `path:notes/`. There
    /// are no syntax errors.
    #[param(value_type = schemas::SearchQuery)]
    query: String,
    /// Only memories below this directory; whole path segments are compared.
    #[param(value_type = Option<schemas::DirectoryPath>)]
    path_prefix: Option<String>,
    /// Hits per page; 10 by default.
    #[param(minimum = 1, maximum = 50)]
    limit: Option<u64>,
    /// The `next_page` of the previous page.
    #[param(value_type = Option<schemas::Cursor>)]
    page: Option<String>,
}

impl FromQuery for Search {
    fn from_query(query: &mut Query) -> Result<Self, ApiError> {
        Ok(Self {
            query: query.required_text("query")?,
            path_prefix: query.text("path_prefix")?,
            limit: query.number("limit", "1 to 50")?,
            page: query.text("page")?,
        })
    }
}

/// Search memories
///
/// Searches content and paths, best match first. A memory can be found as soon
/// as its write has returned. A hit counts as a read of the memory.
#[utoipa::path(
    get,
    path = "/memory_stores/{memory_store_id}/search",
    operation_id = "memories.search",
    tag = "Memories",
    params(("memory_store_id" = schemas::MemoryStoreId, Path, description = "The store."), Search),
    responses((status = 200, description = "A page of hits.", body = List<MemorySearchHit>)),
)]
pub(crate) async fn search(
    State(engine): State<Engine>,
    Caller(principal): Caller,
    InStore(store_id): InStore,
    QueryParams(params): QueryParams<Search>,
) -> Result<Json<List<MemorySearchHit>>, ApiError> {
    let query = SearchQuery {
        query: params.query,
        path_prefix: params.path_prefix,
        page: PageRequest {
            limit: params.limit,
            page: params.page,
        },
    };
    let hits = engine.search(&principal, &[store_id], &query).await?;
    Ok(Json(List::of(hits, MemorySearchHit::from)))
}
