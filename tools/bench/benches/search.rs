//! Measures the analyser, and searches in a store of 2,000 memories of 4 KB, by words
//! and by meaning.

use std::hint::black_box;
use std::time::Duration;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use keepsake_core::{MemoryId, MemoryPath};
use keepsake_search::{
    BuiltPostings, Chunk, Embedding, Fusion, Postings, Query, TermRow, VectorRow, Vectors, chunks,
};
use uuid::Uuid;
use words::{Numbers, word};

#[path = "../src/words.rs"]
mod words;

/// The default limit of a memory's size.
const TEXT_BYTES: usize = 100 << 10;
/// The size of the store.
const MEMORIES: u64 = 2_000;
const MEMORY_BYTES: usize = 4 << 10;
/// The number of different words; common ones occur far more often.
const VOCABULARY: u64 = 30_000;

fn prose(bytes: usize, numbers: &mut Numbers) -> String {
    let mut text = String::new();
    while text.len() < bytes {
        let ending = match numbers.next() % 12 {
            0 => ".\n",
            1 => ", ",
            _ => " ",
        };
        text.push_str(&word(numbers.skewed(VOCABULARY)));
        text.push_str(ending);
    }
    text
}

fn han(bytes: usize, numbers: &mut Numbers) -> String {
    let mut text = String::new();
    while text.len() < bytes {
        text.extend(character(u32::try_from(numbers.skewed(3_000)).unwrap_or_default()));
        if numbers.next().is_multiple_of(16) {
            text.push('，');
        }
    }
    text
}

/// The character of a rank. Characters of neighbouring ranks are far apart in Unicode,
/// as in real texts.
fn character(rank: u32) -> Option<char> {
    char::from_u32(0x4e00 + rank * 7_919 % 20_000)
}

/// The characters of these ranks.
fn run(ranks: &[u32]) -> String {
    ranks.iter().filter_map(|rank| character(*rank)).collect()
}

fn rows(text: impl Fn(&mut Numbers) -> String) -> Vec<(MemoryPath, Vec<u8>)> {
    let mut numbers = Numbers::new(1);
    (0..MEMORIES)
        .map(|number| {
            let path = format!("/notes/{}/{}-{number}.md", word(number % 40), word(number));
            let row = TermRow::of(&text(&mut numbers)).into_bytes();
            (MemoryPath::from_trusted(path), row)
        })
        .collect()
}

fn loaded(rows: &[(MemoryPath, Vec<u8>)]) -> Postings {
    let mut index = Postings::default();
    for (number, (path, row)) in (0..).zip(rows) {
        let memory = MemoryId::from_uuid(Uuid::from_u128(number));
        index
            .set(memory, path.clone(), Some(row.as_slice().into()))
            .expect("rows that were just made are whole");
    }
    index
}

fn all_of(index: &Postings) -> Option<BuiltPostings> {
    index.builder()?.build()
}

fn analyse(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("analyse");
    group.sample_size(20).warm_up_time(Duration::from_millis(300)).measurement_time(Duration::from_secs(1));
    let mut numbers = Numbers::new(7);
    let texts = [
        ("prose", prose(TEXT_BYTES, &mut numbers)),
        ("prose of 4 KB", prose(MEMORY_BYTES, &mut numbers)),
        ("han", han(TEXT_BYTES, &mut numbers)),
        ("identifiers", "retry_count HTTPServer a.b.c ERR-1042 ".repeat(TEXT_BYTES / 38)),
        ("hostile/hyphens", "a-".repeat(TEXT_BYTES / 2)),
        ("hostile/marks", "e\u{301}\u{302}".repeat(TEXT_BYTES / 5)),
        ("hostile/one word", "x".repeat(TEXT_BYTES)),
        ("hostile/capitals", "aB".repeat(TEXT_BYTES / 2)),
        ("hostile/dots", "a.\u{301}".repeat(TEXT_BYTES / 4)),
    ];
    for (name, text) in texts {
        group.throughput(Throughput::Bytes(text.len() as u64));
        group.bench_with_input(BenchmarkId::from_parameter(name), &text, |bencher, text| {
            bencher.iter(|| TermRow::of(black_box(text)).length());
        });
    }
    group.finish();
}

fn search(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("store");
    group.sample_size(20).warm_up_time(Duration::from_millis(300)).measurement_time(Duration::from_secs(2));
    for (name, rows, queries) in [
        (
            "prose",
            rows(|numbers| prose(MEMORY_BYTES, numbers)),
            [
                format!("what did the {} say of {} {}?", word(900), word(12_000), word(40)),
                format!("{} {}", word(2_000), word(20_000)),
                format!("{} {} {} {} {} {}", word(0), word(1), word(2), word(3), word(4), word(5)),
            ],
        ),
        (
            "han",
            rows(|numbers| han(MEMORY_BYTES, numbers)),
            [
                run(&[60, 200, 15, 450, 90, 700, 33, 1_200]),
                run(&[1_500, 2_400]),
                run(&[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11]),
            ],
        ),
    ] {
        let row_bytes: usize = rows.iter().map(|(_, row)| row.len()).sum();
        group.bench_function(BenchmarkId::new("load", name), |bencher| {
            bencher.iter_with_large_drop(|| loaded(black_box(&rows)));
        });
        let index = loaded(&rows);
        let first = Query::parse(&queries[0]).expect("queries of the bench are short");
        group.bench_function(BenchmarkId::new("first search", name), |bencher| {
            bencher.iter(|| index.search(black_box(&first), None, 10, |_, _| true).count);
        });
        group.bench_function(BenchmarkId::new("build", name), |bencher| {
            bencher.iter_with_large_drop(|| all_of(&index));
        });
        let mut index = index;
        let built = all_of(&index);
        if let Some(built) = built {
            index.adopt(built);
        }
        println!(
            "{name}: rows of {} bytes, {} bytes of memory each",
            row_bytes / rows.len(),
            index.size_bytes() / rows.len()
        );
        for (kind, text) in ["question", "rare", "common"].into_iter().zip(queries) {
            let query = Query::parse(&text).expect("queries of the bench are short");
            let count = index.search(&query, None, 10, |_, _| true).count;
            println!("{name} {kind}: {count} found");
            group.bench_function(BenchmarkId::new(format!("search {name}"), kind), |bencher| {
                bencher.iter(|| index.search(black_box(&query), None, 10, |_, _| true).count);
            });
        }
    }
    group.finish();
}

/// Memories, each with this number of chunks, and the dimensions of each.
const EMBEDDED_MEMORIES: u64 = 5_000;
const CHUNKS: usize = 10;
const DIMENSIONS: usize = 256;

#[expect(clippy::cast_precision_loss, reason = "any values make a direction")]
fn embedding(numbers: &mut Numbers) -> Embedding {
    let values = (0..DIMENSIONS).map(|_| numbers.next() as f32 - u64::MAX as f32 / 2.0);
    Embedding::of(&values.collect::<Vec<_>>()).expect("random values have a direction")
}

/// A query that is compared with 50,000 chunks, most of them of memories without its
/// words.
fn meaning(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("meaning");
    group.sample_size(20).warm_up_time(Duration::from_millis(300)).measurement_time(Duration::from_secs(2));
    let mut numbers = Numbers::new(5);
    let (mut index, mut vectors) = (Postings::default(), Vectors::default());
    for number in 0..EMBEDDED_MEMORIES {
        let memory = MemoryId::from_uuid(Uuid::from_u128(number.into()));
        let path = MemoryPath::from_trusted(format!("/notes/{number}.md"));
        let row = TermRow::of(&word(number % 500)).into_bytes();
        index.set(memory, path, Some(row.into())).expect("rows that were just made are whole");
        let chunk = |number: usize| Chunk { offset: number * 600, len: 600, line: 1, text: String::new() };
        let chunks: Vec<_> = (0..CHUNKS).map(|number| (chunk(number), embedding(&mut numbers))).collect();
        let row = VectorRow::of(&chunks).expect("all have the same dimensions");
        vectors.set(memory, row.as_bytes()).expect("rows that were just made are whole");
    }
    if let Some(built) = all_of(&index) {
        index.adopt(built);
    }
    let per_chunk = vectors.size_bytes() / vectors.chunk_count();
    println!("{} chunks of {per_chunk} bytes of memory each", vectors.chunk_count());
    let (query, meant) = (Query::parse(&word(7)).expect("the query is short"), embedding(&mut numbers));
    for (name, fusion) in [
        ("words", None),
        ("words and meaning", Some(Fusion { vectors: Some((&vectors, &meant)), weight: 0.25 })),
    ] {
        let search = || index.search_with(&query, None, black_box(fusion), 10, |_, _| true).count;
        println!("{name}: {} found", search());
        group.bench_function(name, |bencher| bencher.iter(search));
    }
    let (path, text) = (MemoryPath::from_trusted("/notes/a.md".to_owned()), prose(TEXT_BYTES, &mut numbers));
    group.throughput(Throughput::Bytes(TEXT_BYTES as u64));
    group.bench_function("chunks", |bencher| bencher.iter(|| chunks(&path, black_box(&text)).len()));
    group.finish();
}

criterion_group!(benches, analyse, search, meaning);
criterion_main!(benches);
