//! The vectors of contents.

use std::sync::Arc;
use std::time::{Duration, Instant};

use keepsake_core::{MemoryId, MemoryPath, VersionId};
use keepsake_embeddings::{EmbeddedModel, Embedder, Endpoint, EndpointError, MAX_BATCH};
use keepsake_index::EmbeddingRow;
use keepsake_search::{Chunk, Embedding, VectorRow, chunks};
use keepsake_telemetry::{Embedded, Metrics};

use super::embedded_bytes;
use crate::EngineError;
use crate::compute::{in_background, with_cpu_time};

/// The content of a memory's version.
pub(super) struct Document {
    pub(super) memory_id: MemoryId,
    pub(super) version_id: VersionId,
    pub(super) path: MemoryPath,
    pub(super) content: Arc<str>,
}

#[derive(Default)]
pub(super) struct EmbeddedDocuments {
    pub(super) rows: Vec<EmbeddingRow>,
    /// Memories whose text the model refuses.
    pub(super) refused: Vec<MemoryId>,
}

pub(super) enum DocumentError {
    Timeout,
    Failed(String),
    Engine(EngineError),
}

/// A content in chunks.
struct ChunkedDocument {
    memory_id: MemoryId,
    version_id: VersionId,
    chunks: Vec<Chunk>,
}

/// Time limit of one request with a batch of chunks.
const BATCH_TIMEOUT: Duration = Duration::from_mins(1);
/// A text that every model embeds.
const PLAIN_TEXT: &str = "keepsake";

impl EmbeddedDocuments {
    /// Adds the vectors of a document's chunks, in their order.
    fn add(&mut self, document: ChunkedDocument, vectors: impl IntoIterator<Item = Vec<f32>>) {
        let ChunkedDocument { memory_id, version_id, chunks } = document;
        let embeddings = vectors.into_iter().map(|vector| Embedding::of(&vector));
        let embedded: Result<Vec<_>, _> =
            chunks.into_iter().zip(embeddings).map(|(chunk, embedding)| Ok((chunk, embedding?))).collect();
        match embedded.and_then(|embedded| VectorRow::of(&embedded)) {
            Ok(row) => self.rows.push(EmbeddingRow {
                memory_id,
                version_id,
                chunks: row.chunk_count() as u64,
                vectors: row.into_bytes().into(),
            }),
            Err(_) => self.refuse(memory_id, version_id),
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

    fn refuse(&mut self, memory_id: MemoryId, version_id: VersionId) {
        self.refused.push(memory_id);
        self.leave_out(memory_id, version_id);
    }
}

impl ChunkedDocument {
    fn of(Document { memory_id, version_id, path, content }: Document) -> Self {
        Self { memory_id, version_id, chunks: chunks(&path, &content) }
    }

    fn texts(&self) -> impl Iterator<Item = &str> {
        self.chunks.iter().map(|chunk| chunk.text.as_str())
    }
}

/// Makes the rows of documents. The model may refuse some of them.
pub(super) async fn embed_documents(
    embedder: &Embedder,
    documents: Vec<Document>,
    metrics: &Metrics,
) -> Result<EmbeddedDocuments, DocumentError> {
    match embedder {
        Embedder::Off => Ok(EmbeddedDocuments::default()),
        Embedder::Embedded(model) => {
            let (model, metrics) = (Arc::clone(model), metrics.clone());
            let embed = move || {
                let mut bytes = 0;
                let (done, took) = with_cpu_time(|| embed_here(&model, documents, &mut bytes));
                metrics.embedded(Embedded::Memories, bytes, took);
                done
            };
            in_background(embed).await?
        }
        Embedder::Endpoint(endpoint) => {
            let chunked =
                in_background(move || documents.into_iter().map(ChunkedDocument::of).collect::<Vec<_>>());
            embed_elsewhere(endpoint, chunked.await?, metrics).await
        }
    }
}

/// Adds the bytes of embedded texts to `bytes`.
fn embed_here(
    model: &EmbeddedModel,
    documents: Vec<Document>,
    bytes: &mut usize,
) -> Result<EmbeddedDocuments, DocumentError> {
    let mut found = EmbeddedDocuments::default();
    for document in documents.into_iter().map(ChunkedDocument::of) {
        let texts: Vec<_> = document.texts().collect();
        let vectors = model.embed_documents(&texts, Instant::now());
        let vectors = vectors.map_err(|missing| DocumentError::Failed(missing.to_string()))?;
        *bytes += texts.iter().map(|text| text.len()).sum::<usize>();
        found.add(document, vectors);
    }
    Ok(found)
}

/// Embeds all documents together. If that fails because of one of them, each by itself; and if this fails, each of
/// its texts by itself, because many at a time may be too many for the endpoint. All texts of a document have two
/// minutes then: other tenants wait.
async fn embed_elsewhere(
    endpoint: &Endpoint,
    documents: Vec<ChunkedDocument>,
    metrics: &Metrics,
) -> Result<EmbeddedDocuments, DocumentError> {
    let texts: Vec<_> = documents.iter().flat_map(ChunkedDocument::texts).collect();
    match vectors_of(endpoint, &texts, MAX_BATCH, metrics).await? {
        Ok(vectors) => {
            let rows = move || {
                let (mut embedded, mut vectors) = (EmbeddedDocuments::default(), vectors.into_iter());
                for document in documents {
                    let own: Vec<_> = vectors.by_ref().take(document.chunks.len()).collect();
                    embedded.add(document, own);
                }
                embedded
            };
            return Ok(in_background(rows).await?);
        }
        Err(error) if !may_be_of_a_text(&error) => return Err(error.into()),
        Err(_) => {}
    }
    let mut embedded = EmbeddedDocuments::default();
    for document in documents {
        let texts: Vec<_> = document.texts().collect();
        let mut embedding = vectors_of(endpoint, &texts, MAX_BATCH, metrics).await?;
        if embedding.as_ref().is_err_and(may_be_of_a_text) {
            // If it embeds another text, and then refuses one of these by itself, that is the cause, and stays so.
            vectors_of(endpoint, &[PLAIN_TEXT], 1, metrics).await??;
            let alone = vectors_of(endpoint, &texts, 1, metrics);
            let answered = tokio::time::timeout(2 * BATCH_TIMEOUT, alone).await;
            embedding = answered.unwrap_or(Ok(Err(EndpointError::TimedOut)))?;
        }
        match embedding {
            Ok(vectors) => {
                let row = move || {
                    embedded.add(document, vectors);
                    embedded
                };
                embedded = in_background(row).await?;
            }
            Err(error) if may_be_of_a_text(&error) => {
                embedded.refuse(document.memory_id, document.version_id);
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(embedded)
}

/// The vectors of texts, in their order, with so many texts in a request. Answers are parsed off the runtime.
async fn vectors_of(
    endpoint: &Endpoint,
    texts: &[&str],
    at_once: usize,
    metrics: &Metrics,
) -> Result<Result<Vec<Vec<f32>>, EndpointError>, EngineError> {
    let mut vectors = Vec::with_capacity(texts.len());
    for batch in texts.chunks(at_once) {
        let began_at = Instant::now();
        let answered = endpoint.embed_documents(batch, BATCH_TIMEOUT).await;
        // If the parse fails, the time counts all the same.
        metrics.embedded(Embedded::Memories, 0, began_at.elapsed());
        let parsed = match answered {
            Ok(answer) => in_background(move || answer.vectors()).await?,
            Err(error) => Err(error),
        };
        metrics.embedded(Embedded::Memories, embedded_bytes(batch, &parsed), Duration::ZERO);
        match parsed {
            Ok(of_batch) => vectors.extend(of_batch),
            Err(error) => return Ok(Err(error)),
        }
    }
    Ok(Ok(vectors))
}

/// Whether a text may be the cause of an error: it is too long, takes too long, or its vector has no values.
const fn may_be_of_a_text(error: &EndpointError) -> bool {
    match error {
        EndpointError::Unreachable(_) => false,
        EndpointError::Refused { status } => matches!(status, 400 | 413 | 422 | 500),
        EndpointError::TimedOut
        | EndpointError::TooLong { .. }
        | EndpointError::Malformed
        | EndpointError::Count { .. }
        | EndpointError::Order
        | EndpointError::Dimensions { .. }
        | EndpointError::Length => true,
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

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;
    use crate::endpoint_queries::tests::hanging_endpoint;

    #[tokio::test(start_paused = true)]
    async fn hanging_endpoint_times_out_and_refuses_no_text() {
        let (_listener, config) = hanging_endpoint();
        let document = Document {
            memory_id: MemoryId::from_uuid(Uuid::nil()),
            version_id: VersionId::from_uuid(Uuid::nil()),
            path: MemoryPath::parse("/a.md").unwrap(),
            content: "a text\n".into(),
        };
        let began_at = tokio::time::Instant::now();
        let embedder = Embedder::endpoint(config).unwrap();
        let done = embed_documents(&embedder, vec![document], &Metrics::default()).await;
        assert!(matches!(done, Err(DocumentError::Timeout)));
        // All documents, then each by itself, then a text that every model embeds.
        assert!(began_at.elapsed() < 4 * BATCH_TIMEOUT, "{:?}", began_at.elapsed());
    }
}
