//! The meaning of a query, and why a search does without it.
//!
//! A search never fails because of its meaning: without it, only words count.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use keepsake_core::{MeaningReason, StoreId, TenantId};
use keepsake_embeddings::{Embedder, EndpointError, Missing};
use keepsake_index::EmbeddingState;
use keepsake_search::{Embedding, MeaningText, Query};
use keepsake_telemetry::Embedded;

use super::SearchFusion;
use super::position::Scoring;
use crate::EngineError;
use crate::embedding::{expected_vector_bytes, ready_model};
use crate::shared::Shared;

/// Requests of searches to an endpoint at a time, in all and of a tenant.
pub(crate) const ENDPOINT_QUERIES_AT_ONCE: usize = 8;
pub(crate) const ENDPOINT_QUERIES_PER_TENANT: usize = 4;
/// How long a search waits for an endpoint, with the wait for a slot. A search by words takes less.
const ENDPOINT_TIMEOUT: Duration = Duration::from_millis(300);

/// How one search uses meaning.
#[derive(Debug, Clone)]
pub(super) struct MeaningUse {
    pub(super) scoring: Scoring,
    /// The meaning of the query; `None`: only words count.
    pub(super) query: Option<Arc<Embedding>>,
    /// Why there is no meaning of the query.
    pub(super) reason: Option<MeaningReason>,
    /// The weight of meaning in fused scores.
    pub(super) weight: f64,
    /// The searched stores that are searched by meaning.
    pub(super) stores: HybridStores,
}

/// The vectors of the stores of one search: their model, and the last edit and the expected
/// bytes of each store.
#[derive(Debug, Clone, Default)]
pub(super) struct HybridStores {
    model: Option<Arc<str>>,
    places: HashMap<StoreId, (i64, usize)>,
}

/// The vectors that a search needs of a store.
#[derive(Debug, Clone)]
pub(super) struct VectorsPlace {
    pub(super) model: Arc<str>,
    pub(super) edit: i64,
    /// About the bytes of all vectors of the store.
    pub(super) bytes: usize,
}

impl HybridStores {
    /// `None`: the store is searched by words only.
    pub(super) fn of(&self, store_id: StoreId) -> Option<VectorsPlace> {
        let (model, (edit, bytes)) = (self.model.as_ref()?, *self.places.get(&store_id)?);
        Some(VectorsPlace { model: Arc::clone(model), edit, bytes })
    }
}

impl MeaningUse {
    /// The use of meaning in a search of these stores, for its first page or the page after
    /// one that was scored like this.
    ///
    /// Without a model there is no query of the index.
    pub(super) async fn decide(
        shared: &Shared,
        tenant_id: TenantId,
        store_ids: &[StoreId],
        query: &Query,
        before: Option<Scoring>,
    ) -> Self {
        if let Some(Scoring::Lexical(reason)) = before {
            return Self::lexical(reason);
        }
        let weight = f64::from(shared.embedder.weight());
        let meaning = meaning_of(shared, tenant_id, store_ids, query).await.unwrap_or_else(|error| {
            tracing::warn!(error = %error, "engine.search goes without the meaning of its query");
            Err(MeaningReason::Failed)
        });
        match meaning {
            Ok((embedding, stores)) => Self {
                scoring: Scoring::Fused,
                query: Some(Arc::new(embedding)),
                reason: None,
                weight,
                stores,
            },
            // The scores of this page must be comparable with those of the page before.
            Err(reason) if before.is_some() => {
                let stores = HybridStores::default();
                Self { scoring: Scoring::Fused, query: None, reason: Some(reason), weight, stores }
            }
            Err(reason) => Self::lexical(reason),
        }
    }

    /// How the scores of this search are fused.
    pub(super) fn fusion(&self) -> Option<SearchFusion> {
        let fusion = SearchFusion { query: self.query.clone(), weight: self.weight };
        (self.scoring == Scoring::Fused).then_some(fusion)
    }

    fn lexical(reason: MeaningReason) -> Self {
        Self {
            scoring: Scoring::Lexical(reason),
            query: None,
            reason: Some(reason),
            weight: 0.0,
            stores: HybridStores::default(),
        }
    }
}

/// The meaning of a query, and the stores that it is compared with.
async fn meaning_of(
    shared: &Shared,
    tenant_id: TenantId,
    store_ids: &[StoreId],
    query: &Query,
) -> Result<Result<(Embedding, HybridStores), MeaningReason>, EngineError> {
    let model = match ready_model(&shared.embedder) {
        Ok(model) => model,
        Err(reason) => return Ok(Err(reason)),
    };
    let text = match query.meaning_text() {
        MeaningText::Text(text) => text,
        MeaningText::Quoted => return Ok(Err(MeaningReason::QuotedQuery)),
        MeaningText::NoWords => return Ok(Err(MeaningReason::NoWords)),
    };
    let states = shared.context.index.embeddings.states(tenant_id, store_ids, &model).await?;
    let hybrid = states.into_iter().filter(|state| state.is_hybrid);
    let dimensions = shared.embedder.dimensions().unwrap_or_default();
    let place = |EmbeddingState { store_id, edit, memory_count, live_bytes, .. }| {
        let bytes = expected_vector_bytes(memory_count, live_bytes, dimensions);
        (store_id, (edit, usize::try_from(bytes).unwrap_or(usize::MAX)))
    };
    let places: HashMap<_, _> = hybrid.map(place).collect();
    if places.is_empty() {
        return Ok(Err(MeaningReason::LexicalStore));
    }
    let stores = HybridStores { model: Some(model), places };
    let began_at = Instant::now();
    let embedded = embed_query(shared, tenant_id, text).await?;
    shared.context.metrics.embedded(Embedded::Query, began_at.elapsed());
    Ok(embedded.map(|embedding| (embedding, stores)))
}

async fn embed_query(
    shared: &Shared,
    tenant_id: TenantId,
    text: String,
) -> Result<Result<Embedding, MeaningReason>, EngineError> {
    let vector = match &*shared.embedder {
        Embedder::Off => return Ok(Err(MeaningReason::Off)),
        Embedder::Embedded(model) => {
            let model = Arc::clone(model);
            let embed = move || model.embed_query(&text, Instant::now());
            let embedded = shared.context.computations.run(tenant_id, embed).await?;
            embedded.map_err(|missing| match missing {
                Missing::NotInstalled => MeaningReason::NotInstalled,
                Missing::Unusable(_) => MeaningReason::Unusable,
            })
        }
        Embedder::Endpoint(endpoint) => {
            let embed = async {
                let _slot = shared.endpoint_queries.take(tenant_id).await?;
                Ok::<_, EngineError>(endpoint.embed_query(&text, ENDPOINT_TIMEOUT).await)
            };
            // The wait for a slot counts, too.
            let embedded = tokio::time::timeout(ENDPOINT_TIMEOUT, embed).await;
            embedded.unwrap_or(Ok(Err(EndpointError::TimedOut)))?.map_err(|error| {
                tracing::debug!(error = %error, "engine.search goes without the meaning of its query");
                if error == EndpointError::TimedOut { MeaningReason::Timeout } else { MeaningReason::Failed }
            })
        }
    };
    Ok(vector.and_then(|vector| Embedding::of(&vector).map_err(|_| MeaningReason::Failed)))
}
