//! The vectors of contents.

use std::sync::Arc;
use std::time::{Duration, Instant};

use keepsake_core::{MemoryId, MemoryPath, VersionId};
use keepsake_embeddings::{EmbeddedModel, EndpointError};
use keepsake_index::EmbeddingRow;
use keepsake_search::{Chunk, Embedding, VectorRow, chunks};
use keepsake_telemetry::{Embedded, Metrics};
use tokio_util::task::TaskTracker;

use crate::EngineError;
use crate::compute::{cores, in_background, with_cpu_time};

/// Texts that the model embeds before it may rest: about a tenth of a second.
const TEXTS_AT_ONCE: usize = 16;
/// How many times as long as the work before it a rest is at least, while writes run.
const MIN_REST: usize = 9;
/// The part of all cores that the work takes at most meanwhile: one of so many. A core is a large part of few.
const CORE_SHARES: usize = 80;
/// The time between two looks at the writes. One look without a write may be between the writes of a client.
const REST_STEP: Duration = Duration::from_millis(5);

/// The content of a memory's version, whole or in chunks.
pub(super) struct Document<C = Arc<str>> {
    pub(super) memory_id: MemoryId,
    pub(super) version_id: VersionId,
    pub(super) path: MemoryPath,
    pub(super) content: C,
}

pub(super) type ChunkedDocument = Document<Vec<Chunk>>;

#[derive(Default)]
pub(super) struct EmbeddedDocuments {
    pub(super) rows: Vec<EmbeddingRow>,
    /// Memories of which the model refuses passages, and how many.
    pub(super) refused: Vec<(MemoryId, usize)>,
}

pub(super) enum DocumentError {
    Timeout,
    Failed(String),
    Engine(EngineError),
}

impl EmbeddedDocuments {
    /// Adds the vectors of the chunks of documents, in their order. A chunk without one is refused, and so are those after
    /// the last vector.
    pub(super) fn add_all(
        &mut self,
        documents: Vec<ChunkedDocument>,
        vectors: impl IntoIterator<Item = Option<Vec<f32>>>,
    ) {
        let mut vectors = vectors.into_iter();
        for document in documents {
            let own: Vec<_> = vectors.by_ref().take(document.content.len()).collect();
            self.add(document, own);
        }
    }

    fn add(&mut self, document: ChunkedDocument, vectors: Vec<Option<Vec<f32>>>) {
        let Document { memory_id, version_id, content: chunks, .. } = document;
        let chunk_count = chunks.len();
        let embedded = chunks.into_iter().zip(vectors);
        let embedded = embedded.filter_map(|(chunk, vector)| Some((chunk, Embedding::of(&vector?).ok()?)));
        let row = VectorRow::of(&embedded.collect::<Vec<_>>());
        let refused = chunk_count - row.as_ref().map_or(0, VectorRow::chunk_count);
        if refused > 0 {
            self.refused.push((memory_id, refused));
        }
        match row {
            Ok(row) => self.rows.push(EmbeddingRow {
                memory_id,
                version_id,
                chunks: row.chunk_count() as u64,
                vectors: row.into_bytes().into(),
            }),
            Err(_) => self.leave_out(memory_id, version_id),
        }
    }

    /// Adds a memory without vectors, which is found by its words only.
    pub(super) fn leave_out(&mut self, memory_id: MemoryId, version_id: VersionId) {
        if let Ok(row) = VectorRow::of(&[]) {
            self.rows.push(EmbeddingRow {
                memory_id,
                version_id,
                chunks: 0,
                vectors: row.into_bytes().into(),
            });
        }
    }
}

impl Document {
    pub(super) fn in_chunks(self) -> ChunkedDocument {
        let Self { memory_id, version_id, path, content } = self;
        Document { memory_id, version_id, content: chunks(&path, &content), path }
    }
}

impl ChunkedDocument {
    pub(super) fn texts(&self) -> impl Iterator<Item = &str> {
        self.content.iter().map(|chunk| chunk.text.as_str())
    }
}

/// Makes the rows of documents with the embedded model, which may refuse some passages.
pub(super) async fn embed_in_background(
    model: &Arc<EmbeddedModel>,
    documents: Vec<Document>,
    writes: &TaskTracker,
    metrics: &Metrics,
) -> Result<EmbeddedDocuments, DocumentError> {
    let (model, writes, metrics) = (Arc::clone(model), writes.clone(), metrics.clone());
    let embed = move || {
        let mut bytes = 0;
        let (done, took) = with_cpu_time(|| embed_here(&model, documents, &writes, &mut bytes));
        metrics.embedded(Embedded::Memories, bytes, took);
        done
    };
    in_background(embed).await?
}

/// Adds the bytes of embedded texts to `bytes`.
fn embed_here(
    model: &EmbeddedModel,
    documents: Vec<Document>,
    writes: &TaskTracker,
    bytes: &mut usize,
) -> Result<EmbeddedDocuments, DocumentError> {
    let documents: Vec<_> = documents.into_iter().map(Document::in_chunks).collect();
    // Short documents are computed together.
    let texts: Vec<_> = documents.iter().flat_map(ChunkedDocument::texts).collect();
    let mut vectors = Vec::with_capacity(texts.len());
    for texts in texts.chunks(TEXTS_AT_ONCE) {
        let begun = Instant::now();
        let embedded = model.embed_documents(texts, begun);
        vectors.extend(embedded.map_err(|missing| DocumentError::Failed(missing.to_string()))?);
        *bytes += texts.iter().map(|text| text.len()).sum::<usize>();
        rest_after(begun.elapsed(), writes);
    }
    let mut found = EmbeddedDocuments::default();
    found.add_all(documents, vectors.into_iter().map(Some));
    Ok(found)
}

/// Leaves the processor to writes, as long as some run. The lowest priority does not: two threads of one core slow each
/// other down, whatever their priorities.
fn rest_after(work: Duration, writes: &TaskTracker) {
    let times = (CORE_SHARES / cores()).saturating_sub(1).max(MIN_REST);
    let until = Instant::now() + work * u32::try_from(times).unwrap_or(u32::MAX);
    let mut was_quiet = false;
    while Instant::now() < until {
        let is_quiet = writes.is_empty();
        if is_quiet && was_quiet {
            return;
        }
        was_quiet = is_quiet;
        std::thread::sleep(REST_STEP);
    }
}

impl From<EndpointError> for DocumentError {
    fn from(error: EndpointError) -> Self {
        match error {
            EndpointError::TimedOut => Self::Timeout,
            error => Self::Failed(error.to_string()),
        }
    }
}

impl From<EngineError> for DocumentError {
    fn from(error: EngineError) -> Self {
        Self::Engine(error)
    }
}
