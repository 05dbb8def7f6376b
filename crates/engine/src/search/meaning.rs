//! The meaning of a query, and why a search does without it.
//!
//! A search never fails because of its meaning: without it, only words count. But a page that
//! follows one of words and meaning does: by words only it would repeat hits, or leave some out.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use keepsake_core::{MeaningReason, StoreId, TenantId};
use keepsake_embeddings::{Embedder, EndpointError, Missing};
use keepsake_index::EmbeddingState;
use keepsake_search::{Embedding, MeaningText, Query};
use keepsake_telemetry::Embedded;
use tokio::sync::oneshot;

use super::SearchFusion;
use super::cache::Cache;
use super::position::{ModelTag, Scoring};
use super::store::SearchedStore;
use crate::EngineError;
use crate::compute::with_cpu_time;
use crate::embedding::{embedded_bytes, expected_vector_bytes, ready_model};
use crate::shared::Shared;

/// How one search uses meaning.
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
    /// The index of the only searched store, if it was updated while the query's vector was computed.
    pub(super) updated: Option<Arc<SearchedStore>>,
}

/// The meaning of a query, and what it is compared with.
struct Meaning {
    /// `None`: no store is searched, or none is left.
    embedding: Result<Option<Embedding>, MeaningReason>,
    stores: HybridStores,
    updated: Option<Arc<SearchedStore>>,
}

impl Meaning {
    fn of(embedding: Result<Option<Embedding>, MeaningReason>, stores: HybridStores) -> Self {
        Self { embedding, stores, updated: None }
    }

    fn without(reason: MeaningReason) -> Self {
        Self::of(Err(reason), HybridStores::default())
    }
}

/// The vectors of the stores of one search: their model, and the last edit and the expected
/// bytes of each store.
///
/// Vectors of another model cannot be compared with the query. So a store whose vectors are
/// being replaced is searched by words, as its memories with new vectors would rank before
/// equal ones without.
#[derive(Debug, Clone, Default)]
pub(super) struct HybridStores {
    model: Option<Arc<str>>,
    places: HashMap<StoreId, (i64, usize)>,
    /// Whether none of the stores exists; the search of each finds out by itself.
    are_gone: bool,
    /// Memories of stores that are searched by words until a new model's vectors are complete.
    pub(super) pending: u64,
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
    async fn read(
        shared: &Shared,
        tenant_id: TenantId,
        store_ids: &[StoreId],
        model: Arc<str>,
    ) -> Result<Self, EngineError> {
        let states = shared.context.index.embeddings.states(tenant_id, store_ids, &model).await?;
        let dimensions = shared.embedder.dimensions().unwrap_or_default();
        let mut stores = Self { model: Some(model), are_gone: states.is_empty(), ..Self::default() };
        for state in states.into_iter().filter(|state| state.is_hybrid) {
            let EmbeddingState { store_id, edit, memory_count, live_bytes, .. } = state;
            if state.is_replacing && memory_count > 0 {
                stores.pending += memory_count;
            } else {
                let bytes = expected_vector_bytes(memory_count, live_bytes, dimensions);
                stores.places.insert(store_id, (edit, usize::try_from(bytes).unwrap_or(usize::MAX)));
            }
        }
        Ok(stores)
    }

    /// Why none of the stores is searched by meaning.
    const fn reason(&self) -> MeaningReason {
        if self.pending > 0 { MeaningReason::Pending } else { MeaningReason::LexicalStore }
    }

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
    /// Without a model there is no query of the index. Fails only if the page before was scored
    /// by words and meaning, and this one cannot be.
    pub(super) async fn decide(
        shared: &Shared,
        cache: &Arc<Cache>,
        tenant_id: TenantId,
        store_ids: &[StoreId],
        query: &Query,
        before: Option<Scoring>,
    ) -> Result<Self, EngineError> {
        if let Some(Scoring::Lexical(reason)) = before {
            let stores = match ready_model(&shared.embedder) {
                Ok(model) if reason == MeaningReason::Pending => {
                    HybridStores::read(shared, tenant_id, store_ids, model).await.unwrap_or_default()
                }
                _ => HybridStores::default(),
            };
            return Ok(Self::lexical(reason, stores.pending));
        }
        let weight = f64::from(shared.embedder.weight());
        let meaning = meaning_of(shared, cache, tenant_id, store_ids, query).await.unwrap_or_else(|error| {
            tracing::warn!(error = %error, "engine.search goes without the meaning of its query");
            Meaning::without(MeaningReason::Failed)
        });
        let Meaning { embedding, stores, updated } = meaning;
        let scoring = stores.model.as_deref().map(|model| Scoring::Fused(ModelTag::of(model)));
        match (embedding, scoring) {
            (Ok(embedding), Some(scoring)) => {
                if before.is_some_and(|before| before != scoring) {
                    return Err(start_again("the server has another model"));
                }
                Ok(Self { scoring, query: embedding.map(Arc::new), reason: None, weight, stores, updated })
            }
            (Err(reason @ (MeaningReason::Timeout | MeaningReason::Failed)), _) if before.is_some() => {
                Err(EngineError::MeaningLost(reason))
            }
            (Err(reason), _) if before.is_some() => Err(start_again(reason.in_words())),
            (Err(MeaningReason::Pending), _) => Ok(Self::lexical(MeaningReason::Pending, stores.pending)),
            (embedding, _) => Ok(Self::lexical(embedding.err().unwrap_or(MeaningReason::Failed), 0)),
        }
    }

    /// How the scores of this search are fused.
    pub(super) fn fusion(&self) -> Option<SearchFusion> {
        Some(SearchFusion { query: Arc::clone(self.query.as_ref()?), weight: self.weight })
    }

    fn lexical(reason: MeaningReason, pending: u64) -> Self {
        Self {
            scoring: Scoring::Lexical(reason),
            query: None,
            reason: Some(reason),
            weight: 0.0,
            stores: HybridStores { pending, ..HybridStores::default() },
            updated: None,
        }
    }
}

fn start_again(why: &str) -> EngineError {
    EngineError::invalid(
        "page",
        format!("continues a search by words and meaning, which ended because {why}: start again without it"),
    )
}

async fn meaning_of(
    shared: &Shared,
    cache: &Arc<Cache>,
    tenant_id: TenantId,
    store_ids: &[StoreId],
    query: &Query,
) -> Result<Meaning, EngineError> {
    let model = match ready_model(&shared.embedder) {
        Ok(model) => model,
        Err(reason) => return Ok(Meaning::without(reason)),
    };
    let text = match query.meaning_text() {
        MeaningText::Text(text) => text,
        MeaningText::Quoted => return Ok(Meaning::without(MeaningReason::QuotedQuery)),
        MeaningText::NoWords => return Ok(Meaning::without(MeaningReason::NoWords)),
    };
    if store_ids.is_empty() {
        return Ok(Meaning::of(Ok(None), HybridStores { model: Some(model), ..HybridStores::default() }));
    }
    // While the embedded model computes the vector, the index of the only store is updated. An endpoint may take so
    // long that the index would be old, and gets no query of a lexical store.
    let only_store = match store_ids {
        [store_id] if matches!(*shared.embedder, Embedder::Embedded(_)) => Some(*store_id),
        _ => None,
    };
    let begins_at_once = only_store.is_some_and(|store_id| cache.was_meant(tenant_id, store_id));
    let (begin, may_begin) = oneshot::channel();
    let embedding = async {
        if !begins_at_once && may_begin.await.is_err() {
            return Ok(Err(MeaningReason::LexicalStore));
        }
        embed_query(shared, tenant_id, text).await
    };
    let states = async {
        let stores = HybridStores::read(shared, tenant_id, store_ids, model).await?;
        let mut updated = None;
        if stores.places.is_empty() {
            drop(begin);
        } else {
            let _ = begin.send(());
            if let Some(store_id) = only_store {
                let wanted = stores.of(store_id);
                // The search of the store meets the same error.
                updated = cache.loaded_store(tenant_id, store_id, wanted.as_ref()).await.ok().flatten();
            }
        }
        Ok::<_, EngineError>((stores, updated))
    };
    let (embedding, states) = tokio::join!(embedding, states);
    let (stores, updated) = states?;
    if stores.are_gone {
        return Ok(Meaning::of(Ok(None), stores));
    }
    if stores.places.is_empty() {
        return Ok(Meaning::of(Err(stores.reason()), stores));
    }
    Ok(Meaning { embedding: embedding?.map(Some), stores, updated })
}

async fn embed_query(
    shared: &Shared,
    tenant_id: TenantId,
    text: String,
) -> Result<Result<Embedding, MeaningReason>, EngineError> {
    let (computations, metrics) = (&shared.context.computations, shared.context.metrics.clone());
    match &*shared.embedder {
        Embedder::Off => Ok(Err(MeaningReason::Off)),
        Embedder::Embedded(model) => {
            let model = Arc::clone(model);
            let embed = move || {
                let (vector, took) = with_cpu_time(|| model.embed_query(&text, Instant::now()));
                metrics.embedded(Embedded::Query, embedded_bytes(&[text.as_str()], &vector), took);
                match vector {
                    Ok(vector) => embedding_of(&vector),
                    Err(Missing::NotInstalled) => Err(MeaningReason::NotInstalled),
                    Err(Missing::Unusable(_)) => Err(MeaningReason::Unusable),
                }
            };
            computations.run(tenant_id, embed).await
        }
        Embedder::Endpoint(endpoint) => {
            let (queries, began_at) = (&shared.endpoint_queries, Instant::now());
            let answered = queries.ask(endpoint, tenant_id, &text).await?;
            // Without a slot for the parse, the time counts all the same.
            metrics.embedded(Embedded::Query, 0, began_at.elapsed());
            let embedding = match answered {
                Ok(answer) => {
                    let parse = move || answer.vector().map(|vector| embedding_of(&vector));
                    computations.run(tenant_id, parse).await?
                }
                Err(error) => Err(error),
            };
            queries.note(embedding.as_ref().err());
            let embedding = embedding.unwrap_or_else(|error| Err(reason_of(&error)));
            metrics.embedded(Embedded::Query, embedded_bytes(&[text.as_str()], &embedding), Duration::ZERO);
            Ok(embedding)
        }
    }
}

fn embedding_of(vector: &[f32]) -> Result<Embedding, MeaningReason> {
    Embedding::of(vector).map_err(|_| MeaningReason::Failed)
}

const fn reason_of(error: &EndpointError) -> MeaningReason {
    match error {
        EndpointError::TimedOut => MeaningReason::Timeout,
        _ => MeaningReason::Failed,
    }
}
