use std::collections::BTreeMap;

use proptest::prelude::*;
use uuid::Uuid;

use super::*;
use crate::chunks::Chunk;

fn memory(number: u128) -> MemoryId {
    MemoryId::from_uuid(Uuid::from_u128(number))
}

fn embedding(values: &[i8]) -> Embedding {
    Embedding::of(&values.iter().map(|value| f32::from(*value)).collect::<Vec<_>>()).unwrap()
}

/// The chunks of these embeddings, with a gap before each.
fn with_chunks(embeddings: &[Embedding]) -> Vec<(Chunk, Embedding)> {
    let chunk = |number: usize| Chunk { offset: 3 + number * 10, len: 7, line: 1, text: String::new() };
    (0..).map(chunk).zip(embeddings.iter().cloned()).collect()
}

fn row(embeddings: &[Embedding]) -> Vec<u8> {
    VectorRow::of(&with_chunks(embeddings)).unwrap().into_bytes()
}

fn any_embedding() -> impl Strategy<Value = Embedding> {
    prop::collection::vec(-9_i8..=9, 5)
        .prop_filter("is not zero", |values| values.iter().any(|value| *value != 0))
        .prop_map(|values| embedding(&values))
}

#[test]
fn row_of_other_dimensions_is_refused() {
    let mut vectors = Vectors::default();
    vectors.set(memory(1), &row(&[embedding(&[1, 2])])).unwrap();
    vectors.set(memory(2), &row(&[])).unwrap();
    let other = row(&[embedding(&[1, 2, 3])]);
    assert_eq!(vectors.set(memory(3), &other), Err(DamagedRow));
    assert_eq!((vectors.len(), vectors.has(memory(2)), vectors.has(memory(3))), (2, true, false));
    assert!(vectors.compare(&embedding(&[1, 2, 3])).is_none());
    vectors.remove(memory(1));
    vectors.set(memory(3), &other).unwrap();
    assert!(vectors.compare(&embedding(&[1, 2, 3])).is_some());
    assert!(VectorRow::of(&with_chunks(&[embedding(&[1]), embedding(&[1, 2])])).is_err());
}

proptest! {
    #[test]
    fn row_is_read_as_written_and_only_whole(
        embeddings in prop::collection::vec(any_embedding(), 0..5),
        at in any::<prop::sample::Index>(),
        byte in any::<u8>(),
    ) {
        let whole = row(&embeddings);
        let read = StoredVectors::read(&whole).unwrap();
        let chunks = with_chunks(&embeddings);
        let places: Vec<_> = chunks.iter().map(|(chunk, _)| (chunk.offset, chunk.len)).collect();
        prop_assert_eq!(
            read.places.iter().map(|(offset, len)| (*offset as usize, *len as usize)).collect::<Vec<_>>(),
            places
        );
        let values: Vec<u8> = embeddings.iter().flat_map(Embedding::to_bytes).collect();
        prop_assert_eq!(read.values, values);
        prop_assert_eq!(StoredVectors::read(&whole[..at.index(whole.len())]), Err(DamagedRow));
        let longer = [&whole[..], &[byte]].concat();
        prop_assert_eq!(StoredVectors::read(&longer), Err(DamagedRow));
        let mut changed = whole.clone();
        changed[at.index(whole.len())] = byte;
        let mut vectors = Vectors::default();
        if vectors.set(memory(1), &changed).is_ok() && vectors.chunk_count() > 0 {
            // Each vector that was read has a direction.
            let dimensions = vectors.dimensions;
            let compared = vectors.compare(&embedding(&vec![1; dimensions])).unwrap();
            prop_assert!(compared.rest().all(|(_, similarity)| similarity.z.is_finite()));
        }
    }

    #[test]
    fn comparison_equals_that_of_a_simple_list(
        changes in prop::collection::vec(
            (0_u128..9, prop::option::weighted(0.7, prop::collection::vec(any_embedding(), 0..4))),
            0..400,
        ),
        query in any_embedding(),
    ) {
        let mut vectors = Vectors::default();
        let mut known: BTreeMap<u128, Vec<Embedding>> = BTreeMap::new();
        for (number, embeddings) in changes {
            if let Some(embeddings) = embeddings {
                vectors.set(memory(number), &row(&embeddings)).unwrap();
                known.insert(number, embeddings);
            } else {
                vectors.remove(memory(number));
                known.remove(&number);
            }
        }
        let cosines: Vec<f64> =
            known.values().flatten().map(|embedding| query.cosine(embedding).unwrap()).collect();
        prop_assert_eq!((vectors.len(), vectors.chunk_count()), (known.len(), cosines.len()));
        let Some(mut compared) = vectors.compare(&query) else {
            prop_assert!(cosines.is_empty());
            return Ok(());
        };
        // The order of changes does not matter.
        let mut rebuilt = Vectors::default();
        for (number, embeddings) in known.iter().rev() {
            rebuilt.set(memory(*number), &row(embeddings)).unwrap();
        }
        let mut compared_again = rebuilt.compare(&query).unwrap();
        let mut memories: Vec<_> = compared.rest().map(|(memory, _)| memory).collect();
        memories.sort_unstable();
        let with_chunks = known.iter().filter(|(_, embeddings)| !embeddings.is_empty());
        prop_assert_eq!(memories, with_chunks.map(|(number, _)| memory(*number)).collect::<Vec<_>>());
        let count = f64::from(u32::try_from(cosines.len()).unwrap());
        let mean = cosines.iter().sum::<f64>() / count;
        let variance = cosines.iter().map(|cosine| (cosine - mean).powi(2)).sum::<f64>() / count;
        for (number, embeddings) in &known {
            let similarity = compared.take(memory(*number));
            prop_assert_eq!(similarity, compared_again.take(memory(*number)));
            let all = embeddings.iter().map(|embedding| query.cosine(embedding).unwrap());
            let Some(best) = all.clone().reduce(f64::max) else {
                prop_assert_eq!(similarity, None);
                continue;
            };
            let similarity = similarity.unwrap();
            let chunk = (similarity.chunk.0 - 3) / 10;
            prop_assert!((all.clone().nth(chunk).unwrap() - best).abs() < 2e-6);
            let z = similarity.z * variance.sqrt();
            prop_assert!((z - (best - mean)).abs() < 1e-4, "{} {}", z, best - mean);
        }
        prop_assert_eq!(compared.rest().count(), 0);
    }
}
