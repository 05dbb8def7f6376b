//! Joins the scores of words with those of meaning.
//!
//! Both parts are between 0 and their weight. The lexical score is divided by the
//! highest of the query, or by the weight of all its words if that is more: a memory
//! that has only a function word of the query is not a certain hit, even if no memory
//! has more. A small share counts less than its size: if a question is in other words
//! than its answer, another memory often has one of its words by chance. The cosine of a
//! memory's nearest chunk is measured in standard deviations over all chunks of the
//! store, because the cosines of unrelated texts depend on the model.

use super::{Filter, Hit, ResolvedTerm, keep_first};
use crate::embedding::Embedding;
use crate::vectors::{Comparison, Similarity, Vectors};

/// Below this share of the query's words, the lexical score falls with the square of the share.
const WEAK_SHARE: f64 = 0.2;
/// The distance from the mean that counts fully, in standard deviations.
const FULL_Z: f64 = 4.0;
/// The distance from the mean of a memory that is found without any word of the query.
/// About one of six chunks is as far above the mean by chance, but short queries are
/// often no nearer to what they mean. The hits are ordered by this distance.
const MIN_Z: f64 = 1.0;
/// So many hits are found in any case, if the store has so many memories: among a few
/// chunks none is far from their mean, and a hit too many costs less than one too few.
const MIN_HITS: usize = 5;
/// Maximum number of hits that have no word of the query.
const MAX_HITS_WITHOUT_WORDS: usize = 100;

/// A search by meaning, in addition to words.
#[derive(Clone, Copy)]
pub struct Fusion<'a> {
    /// The vectors of the store, and the query; `None` if one is missing. The scores then
    /// have only their lexical part, but compare with fused scores of other stores.
    pub vectors: Option<(&'a Vectors, &'a Embedding)>,
    /// The weight of meaning, from 0 to 1; a property of the model. The rest is the weight
    /// of words.
    pub weight: f64,
}

/// The hits with fused scores, unordered; `found` has the lexical scores. The filter holds for
/// memories found by meaning as well.
pub(super) fn fuse(
    fusion: &Fusion<'_>,
    filter: &Filter<'_>,
    resolved: &[ResolvedTerm<'_>],
    found: &[(f64, u32)],
) -> Vec<Hit> {
    let store = filter.index.store;
    let ideal: f64 = resolved.iter().filter(|one| !one.is_ignored).map(|one| one.weight).sum();
    let full = found.iter().fold(ideal, |full, (score, _)| full.max(*score));
    let lexical_of = |score: f64| {
        let share = if full > 0.0 { score / full } else { 0.0 };
        (1.0 - fusion.weight) * share * (share / WEAK_SHARE).min(1.0)
    };
    let mut hits: Vec<Hit> =
        found.iter().map(|(score, slot)| Hit::of_words(lexical_of(*score), *slot)).collect();
    if let Some(mut compared) = fusion.vectors.and_then(|(vectors, query)| vectors.compare(query)) {
        for hit in &mut hits {
            let memory = store.slots()[hit.slot as usize].memory;
            if let Some(similarity) = compared.take(memory) {
                hit.add_meaning(fusion.weight, similarity);
            }
        }
        hits.extend(without_words(&compared, filter, found.len()).into_iter().map(|(similarity, slot)| {
            let mut hit = Hit::of_words(0.0, slot);
            hit.add_meaning(fusion.weight, similarity);
            hit.chunk = Some(similarity.chunk);
            hit
        }));
    }
    hits
}

/// The nearest of the memories that were not found by words.
fn without_words(
    compared: &Comparison<'_>,
    filter: &Filter<'_>,
    found_by_words: usize,
) -> Vec<(Similarity, u32)> {
    let store = filter.index.store;
    let nearest = |min_z: f64, count: usize| {
        let near = compared.rest().filter(|(_, similarity)| similarity.z >= min_z);
        // The vectors may be ahead of the postings.
        let near = near.filter_map(|(memory, similarity)| Some((similarity, store.slot_of(memory)?)));
        let mut near: Vec<_> = near.filter(|(_, slot)| filter.allows(*slot)).collect();
        keep_first(&mut near, count, |(a, a_slot), (b, b_slot)| {
            store.order(&(a.z, *a_slot), &(b.z, *b_slot))
        });
        near
    };
    let near = nearest(MIN_Z, MAX_HITS_WITHOUT_WORDS);
    let missing = MIN_HITS.saturating_sub(found_by_words);
    if near.len() < missing { nearest(f64::NEG_INFINITY, missing) } else { near }
}

impl Hit {
    fn add_meaning(&mut self, weight: f64, similarity: Similarity) {
        self.meaning = weight * (similarity.z / FULL_Z).clamp(0.0, 1.0);
        self.chunk = (self.meaning > 0.0).then_some(similarity.chunk);
    }
}
