use proptest::prelude::*;

use super::*;
use crate::{Chunk, Embedding, VectorRow, Vectors};

const WEIGHT: f64 = 0.25;

fn embedding(values: &[f32]) -> Embedding {
    Embedding::of(values).unwrap()
}

/// Sets the vectors of a memory: a chunk for each, of 10 bytes.
fn set(vectors: &mut Vectors, number: u128, values: &[[f32; 2]]) {
    let chunk = |number: usize| Chunk { offset: number * 10, len: 10, line: 1, text: String::new() };
    let chunks: Vec<_> =
        values.iter().enumerate().map(|(at, values)| (chunk(at), embedding(values))).collect();
    vectors.set(memory(number), VectorRow::of(&chunks).unwrap().as_bytes()).unwrap();
}

fn vectors(values: &[[f32; 2]]) -> Vectors {
    let mut vectors = Vectors::default();
    for (number, values) in (0..).zip(values) {
        set(&mut vectors, number, &[*values]);
    }
    vectors
}

const NEAR: [f32; 2] = [1.0, 0.0];
const FAR: [f32; 2] = [0.0, 1.0];

fn fused(index: &Postings, query: &str, vectors: &Vectors, meant: [f32; 2]) -> Vec<RankedMemory> {
    let (query, meant) = (Query::parse(query).unwrap(), embedding(&meant));
    let fusion = Fusion { vectors: Some((vectors, &meant)), weight: WEIGHT };
    index.search_with(&query, None, Some(fusion), 1_000, |_, _| true).found
}

fn paths(found: &[RankedMemory]) -> Vec<&str> {
    found.iter().map(|one| &one.path.as_str()[1..]).collect()
}

fn assert_near(one: f64, other: f64) {
    assert!((one - other).abs() < 1e-5, "{one} {other}");
}

#[test]
fn score_is_the_weighted_sum_of_words_and_meaning() {
    let memories = [("/a", "terse"), ("/b", "deploy on Tuesday"), ("/c", "the terse"), ("/d", "other")];
    let index = store(&memories);
    // One of four is near: the mean is 1/4, and the deviation the root of 3/16.
    let vectors = vectors(&[FAR, FAR, FAR, NEAR]);
    let z = 0.75 / (3.0_f64 / 16.0).sqrt();
    let found = fused(&index, "terse zebra", &vectors, NEAR);
    assert_eq!(paths(&found), ["a", "c", "d", "b"]);
    let scores = search(&index, "terse zebra").found;
    // No memory has the second word, which counts anyway.
    let idf = |having: f64| (1.0 + (4.0 - having + 0.5) / (having + 0.5)).ln();
    let ideal = idf(2.0) + idf(0.0);
    assert!(ideal > scores[0].score);
    for (fused, lexical) in found.iter().zip(&scores) {
        assert_near(fused.lexical, (1.0 - WEIGHT) * lexical.score / ideal);
        assert_eq!((fused.meaning, fused.chunk), (0.0, None));
    }
    assert_near(found[2].meaning, WEIGHT * z / 4.0);
    assert_eq!((found[2].lexical, found[2].chunk), (0.0, Some((0, 10))));
    for one in &found {
        assert_eq!(one.score.to_bits(), (one.lexical + one.meaning).to_bits());
    }
    // A small share of the query's words counts less than its size.
    let query = "terse zebra ibis koala lemur";
    let share = search(&index, query).found[0].score / (idf(2.0) + 4.0 * idf(0.0));
    assert!(share < 0.2, "{share}");
    let found = fused(&index, query, &vectors, NEAR);
    assert_eq!(paths(&found), ["d", "a", "c", "b"]);
    assert_near(found[1].lexical, (1.0 - WEIGHT) * share * share / 0.2);
    // The best hit of a query whose words are all there counts fully.
    let found = fused(&index, "terse", &vectors, NEAR);
    assert_near(found[0].lexical, 1.0 - WEIGHT);
    assert_eq!(paths(&found), ["a", "c", "d", "b"]);
}

#[test]
fn memory_is_found_by_its_nearest_chunk() {
    let index = store(&[("/a", "one"), ("/b", "two"), ("/c", "three"), ("/d", "four")]);
    let mut vectors = vectors(&[FAR; 4]);
    set(&mut vectors, 2, &[FAR, [1.0, 0.2], [1.0, 0.1], FAR]);
    // Not yet in the postings.
    set(&mut vectors, 9, &[NEAR]);
    set(&mut vectors, 10, &[FAR; 9]);
    let found = fused(&index, "absent", &vectors, NEAR);
    assert_eq!((paths(&found), found[0].chunk), (vec!["c", "a", "b", "d"], Some((20, 10))));
    // A single chunk has no other to compare with, and of two both are found: all are equally near here.
    let two = store(&[("/a", "one"), ("/b", "two")]);
    assert_eq!(paths(&fused(&two, "absent", &self::vectors(&[FAR]), NEAR)), ["a"]);
    assert_eq!(paths(&fused(&two, "absent", &self::vectors(&[NEAR, NEAR]), NEAR)), ["a", "b"]);
}

#[test]
fn few_hits_are_followed_by_the_nearest_up_to_five() {
    let names = ["/a", "/b", "/c", "/d", "/e", "/f", "/g", "/h"];
    let index = store(&names.map(|name| (name, if name < "/g" { "one" } else { "two" })));
    let values: Vec<_> = (0_u8..8).map(|far| [1.0, f32::from(far) / 5.0]).collect();
    // Two are more than a standard deviation nearer than the mean.
    for (query, expected) in [
        ("absent", &["a", "b", "c", "d", "e"][..]),
        ("two", &["g", "h", "a", "b", "c"]),
        ("one", &["a", "b", "c", "d", "e", "f"]),
    ] {
        assert_eq!(paths(&fused(&index, query, &vectors(&values), NEAR)), expected, "{query}");
    }
}

#[test]
fn without_vectors_words_have_the_same_order() {
    let index =
        store(&[("/a", "deploy it"), ("/b", "deployed deploy"), ("/c", "server"), ("/notes/d", "deploy")]);
    let vectors = vectors(&[NEAR, FAR, NEAR, FAR]);
    let near = embedding(&NEAR);
    let search_with = |query: &str, vectors| {
        let fusion = Fusion { vectors, weight: WEIGHT };
        index.search_with(&Query::parse(query).unwrap(), None, Some(fusion), 100, |_, _| true).found
    };
    // Quoted phrases and queries without words are lexical.
    for query in ["\"deploy it\"", "\"deploy\" server", "path:notes/", "", "-server"] {
        let found = search(&index, query).found;
        for one in &found {
            assert_eq!((one.lexical.to_bits(), one.meaning, one.chunk), (one.score.to_bits(), 0.0, None));
        }
        assert_eq!(search_with(query, Some((&vectors, &near))), found, "{query}");
    }
    // Vectors of another model are as none.
    let other = embedding(&[1.0; 3]);
    let (found, plain) = (search_with("deploy", None), search(&index, "deploy").found);
    assert_eq!(search_with("deploy", Some((&vectors, &other))), found);
    assert_eq!(search_with("deploy", Some((&Vectors::default(), &near))), found);
    assert_eq!(paths(&found), paths(&plain));
    let best = plain[0].score;
    for (fused, plain) in found.iter().zip(&plain) {
        assert_near(fused.score, (1.0 - WEIGHT) * plain.score / best);
    }
}

#[test]
fn filters_hold_for_meaning() {
    let index = store(&[("/notes/a", "one draft"), ("/work/b", "two"), ("/c", "three"), ("/d", "four")]);
    let mut vectors = vectors(&[NEAR, NEAR, FAR, FAR]);
    // Memories that the postings do not have.
    for number in 100..110 {
        set(&mut vectors, number, &[FAR]);
    }
    for (query, expected) in [
        ("absent", &["notes/a", "work/b", "c", "d"][..]),
        ("absent -draft", &["work/b", "c", "d"]),
        ("absent path:notes/", &["notes/a"]),
        ("absent -path:/notes", &["work/b", "c", "d"]),
        ("absent path:other/", &[]),
        ("draft -draft", &["work/b", "c", "d"]),
    ] {
        assert_eq!(paths(&fused(&index, query, &vectors, NEAR)), expected, "{query}");
    }
    let (near, query) = (embedding(&NEAR), Query::parse("absent").unwrap());
    let fusion = Fusion { vectors: Some((&vectors, &near)), weight: WEIGHT };
    let found = index.search_with(&query, Some(&path("/work").as_dir()), Some(fusion), 10, |_, _| true).found;
    assert_eq!(paths(&found), ["work/b"]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(50))]

    /// Pages have every hit once, before and after the postings are built, and in whatever
    /// order vectors were set.
    #[test]
    fn pages_have_every_hit_once(
        memories in prop::collection::vec(("[ab]{1,2}", prop::collection::vec((0_i8..4, -3_i8..4), 0..3)), 1..300),
        limit in 1_usize..40,
    ) {
        let mut index = Postings::default();
        let (mut vectors, mut reversed) = (Vectors::default(), Vectors::default());
        let values = |chunks: &[(i8, i8)]| -> Vec<[f32; 2]> {
            let not_zero = chunks.iter().filter(|chunk| **chunk != (0, 0));
            not_zero.map(|(one, other)| [f32::from(*one), f32::from(*other)]).collect()
        };
        for (number, (text, chunks)) in (0..).zip(&memories) {
            put(&mut index, number, &format!("/{number}"), text);
            set(&mut vectors, number, &values(chunks));
        }
        for (number, (_, chunks)) in (0_u128..).zip(&memories).collect::<Vec<_>>().into_iter().rev() {
            set(&mut reversed, number, &values(chunks));
        }
        let (query, near) = (Query::parse("a bb").unwrap(), embedding(&NEAR));
        let fusion = |vectors| Some(Fusion { vectors: Some((vectors, &near)), weight: WEIGHT });
        let all = index.search_with(&query, None, fusion(&vectors), 1_000, |_, _| true);
        prop_assert_eq!(all.found.len(), all.count);
        prop_assert!(all.found.iter().filter(|one| one.lexical == 0.0).count() <= 100);
        build(&mut index);
        let mut paged: Vec<RankedMemory> = Vec::new();
        loop {
            let last = paged.last().map(|last| (last.score, last.path.clone()));
            let is_after = |score: f64, path: &MemoryPath| last.as_ref().is_none_or(|(last, last_path)| {
                last.total_cmp(&score).then_with(|| path.cmp(last_path)).is_gt()
            });
            let page = index.search_with(&query, None, fusion(&reversed), limit, is_after).found;
            if page.is_empty() {
                break;
            }
            paged.extend(page);
        }
        prop_assert_eq!(paged, all.found);
    }
}
