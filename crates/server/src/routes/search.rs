//! `/v1/memory_stores/{memory_store_id}/search` and `/v1/search`

use keepsake_core::{DirPath, StoreId};
use keepsake_engine::{PageRequest, SearchPage, SearchQuery};

use crate::answer::{Answer, Json};
use crate::auth::Caller;
use crate::path::Path;
use crate::query::{QueryParams, query_params};
use crate::schemas;

query_params! {
    /// The parameters of a search.
    Search {
        /// Words, `"quoted phrases"`, `-excluded`, `prefix*`, `path:notes/`. There
        /// are no syntax errors.
        #[param(value_type = schemas::SearchQuery)]
        query: String = required_text("query"),
        /// Only memories below this directory; whole path segments are compared.
        #[param(value_type = Option<DirPath>)]
        path_prefix: Option<String> = text("path_prefix"),
        /// Whether each hit says how much of its score comes from words and from meaning;
        /// `false` by default.
        explain: Option<bool> = flag("explain"),
        /// Hits per page; 10 by default.
        #[param(minimum = 1, maximum = 50)]
        limit: Option<u64> = number("limit", "1 to 50"),
        /// The `next_page` of the previous page.
        #[param(value_type = Option<schemas::Cursor>)]
        page: Option<String> = text("page"),
    }
}

query_params! {
    /// The selection of stores.
    SearchedStores {
        /// Only these stores, at most 100; may be repeated. Without it: all stores
        /// that the credential may read, archived ones included.
        #[param(rename = "memory_store_ids[]", value_type = Option<Vec<StoreId>>)]
        store_ids: Vec<StoreId> = ids("memory_store_ids"),
    }
}

impl From<Search> for SearchQuery {
    fn from(params: Search) -> Self {
        Self {
            query: params.query,
            path_prefix: params.path_prefix,
            explain: params.explain.unwrap_or_default(),
            page: PageRequest { limit: params.limit, page: params.page },
        }
    }
}

/// Search memories
///
/// Searches content and paths by words and by meaning, best match first. A memory can
/// be found by its words as soon as its write has returned, and by its meaning soon
/// after. `meaning` says whether meaning was used; if not, only words count. A hit
/// counts as a read of the memory.
#[utoipa::path(
    get,
    path = "/memory_stores/{memory_store_id}/search",
    operation_id = "memories.search",
    params(Search),
    responses((status = 200, description = "A page of hits.", body = SearchPage)),
)]
pub(crate) async fn search(
    Caller(engine, principal): Caller,
    Path(store_id): Path<StoreId>,
    QueryParams(params): QueryParams<Search>,
) -> Answer<SearchPage> {
    Ok(Json(engine.search.find(&principal, &[store_id], &params.into()).await?))
}

/// Search memory stores
///
/// Searches several stores as a search of one does. The best hits come first;
/// equal scores are ordered by store id, then by path. If the credential may
/// read more than 100 stores, `memory_store_ids` must name those to search.
#[utoipa::path(
    get,
    path = "/search",
    operation_id = "memory_stores.search",
    params(Search, SearchedStores),
    responses((status = 200, description = "A page of hits.", body = SearchPage)),
)]
pub(crate) async fn search_stores(
    Caller(engine, principal): Caller,
    QueryParams((params, SearchedStores { store_ids })): QueryParams<(Search, SearchedStores)>,
) -> Answer<SearchPage> {
    Ok(Json(engine.search.find_everywhere(&principal, &store_ids, &params.into()).await?))
}
