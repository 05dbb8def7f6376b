//! Search: any content is analysed to a row that can be read again, any query
//! gets an answer, and bytes that are no row are refused.

#![no_main]

use keepsake_core::{MemoryId, MemoryPath};
use keepsake_search::{MAX_CHUNK_BYTES, MAX_SNIPPET_CHARS, Postings, Query, TermRow, Vectors, chunks};
use libfuzzer_sys::fuzz_target;
use uuid::Uuid;

fuzz_target!(|data: &[u8]| {
    let memory = |number| MemoryId::from_uuid(Uuid::from_u128(number));
    let path = |text: &str| MemoryPath::from_trusted(text.to_owned());
    let mut index = Postings::default();
    // As it may come from a damaged database.
    let _ = index.set(memory(1), path("/damaged/row.md"), Some(data.into()));
    let _ = Vectors::default().set(memory(1), data);
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    let (content, query) = text.split_once('\n').unwrap_or((text, text));
    let row = TermRow::of(content);
    assert_eq!(TermRow::of(content), row);
    assert!(row.length() as usize <= content.chars().count() * 18);
    index
        .set(memory(2), path("/notes/a_b.md"), Some(row.into_bytes().into()))
        .expect("a row of a content is whole");
    let Ok(query) = Query::parse(query) else {
        return;
    };
    let results = index.search(&query, None, 10, |_, _| true);
    assert!(results.count <= 2);
    assert!(!query.is_empty() || results.found.is_empty());
    for found in &results.found {
        assert!(found.score.is_finite() && found.score >= 0.0);
    }
    let snippet = results.marker.snippet(content);
    assert!(snippet.text.chars().count() <= 3 * MAX_SNIPPET_CHARS + 4);
    assert!(snippet.line >= 1);
    for chunk in chunks(&path("/notes/a_b.md"), content) {
        // The offsets belong to another content.
        let passage = results.marker.passage(text, chunk.offset, chunk.len);
        assert!(passage.text.chars().count() <= 3 * MAX_CHUNK_BYTES + 4);
    }
    // Scanning the rows finds the same as the postings.
    index.remove(memory(1));
    let read = index.search(&query, None, 10, |_, _| true);
    let builder = index.builder().expect("no postings are made yet");
    index.adopt(builder.build().expect("there is room for any"));
    let made = index.search(&query, None, 10, |_, _| true);
    assert_eq!(read.found, made.found);
    index.remove(memory(2));
    assert!(index.is_empty());
});
