//! The vectors of documents from an endpoint.
//!
//! An endpoint may take fewer texts in a request than are sent, refuse a text, or end because of one. None of this
//! may stop the other memories of a store, so a failure is narrowed down to the texts that cause it.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use keepsake_core::{StoreId, TenantId, VersionId};
use keepsake_embeddings::{Endpoint, EndpointError, MAX_BATCH};
use keepsake_telemetry::{Embedded, Metrics};
use parking_lot::Mutex;
use tokio::time::Instant;

use super::documents::{ChunkedDocument, Document, DocumentError, EmbeddedDocuments};
use super::embedded_bytes;
use crate::EngineError;
use crate::compute::in_background;

/// Time limit of one request with a batch of chunks.
const BATCH_TIMEOUT: Duration = Duration::from_mins(1);
/// How long a document may take from its first failure on: other tenants wait.
const FAILING_TIMEOUT: Duration = Duration::from_mins(2);
/// A text that every model embeds.
const PLAIN_TEXT: &str = "keepsake";
/// How long the endpoint is sent fewer texts at a time, after it refused more.
const SMALL_BATCHES_FOR: Duration = Duration::from_mins(10);
/// Requests of a page that ended the endpoint until its documents are sent one by one.
const ENDED_TOGETHER: u32 = 3;
/// Requests of a document alone that ended the endpoint until the document is left out.
const ENDED_ALONE: u32 = 2;
const MAX_ENDING_PAGES: usize = 1_000;

type Place = (TenantId, StoreId);
type Answered<T> = Result<Result<T, EndpointError>, EngineError>;

/// What is known of an endpoint that embeds documents.
#[derive(Debug, Default)]
pub(super) struct EndpointDocuments {
    /// The number of texts that it takes in a request, until that time; `None`: [`MAX_BATCH`].
    small_batches: Mutex<Option<(usize, Instant)>>,
    /// The pages of stores that ended it.
    ending: Mutex<HashMap<Place, EndingPage>>,
}

/// A page of a store at which the endpoint ended.
#[derive(Debug, Default)]
struct EndingPage {
    /// Identifies the page: the version before it.
    from: i64,
    together: u32,
    alone: HashMap<VersionId, u32>,
}

/// The requests of one turn.
#[derive(Debug, Clone, Copy)]
struct Requests<'a> {
    endpoint: &'a Endpoint,
    metrics: &'a Metrics,
}

impl EndpointDocuments {
    /// Makes the rows of the documents of a page, which begins after the version `from`. The endpoint may refuse
    /// some passages.
    pub(super) async fn embed(
        &self,
        endpoint: &Endpoint,
        (place, from): (Place, i64),
        documents: Vec<Document>,
        metrics: &Metrics,
    ) -> Result<EmbeddedDocuments, DocumentError> {
        let requests = Requests { endpoint, metrics };
        let chunk = move || documents.into_iter().map(ChunkedDocument::of).collect::<Vec<_>>();
        let documents = in_background(chunk).await?;
        let suspects = self.suspects(place, from);
        let groups: Vec<Vec<ChunkedDocument>> = if suspects.is_some() {
            // If it ends now, the next document is the cause.
            requests.vectors(&[PLAIN_TEXT]).await??;
            documents.into_iter().map(|document| vec![document]).collect()
        } else {
            vec![documents]
        };
        let mut embedded = EmbeddedDocuments::default();
        for group in groups {
            let alone = suspects.as_ref().and_then(|_| group.first()).map(|document| document.version_id);
            let is_refused =
                alone.zip(suspects.as_ref()).is_some_and(|(id, suspects)| suspects.contains(&id));
            let vectors = if is_refused {
                // `add` refuses chunks without a vector.
                Vec::new()
            } else {
                let vectors = self.vectors(requests, &group).await?;
                vectors.inspect_err(|error| {
                    if may_have_ended(error) {
                        self.note_end(place, from, alone);
                    }
                })?
            };
            let add = move || {
                let mut vectors = vectors.into_iter();
                for document in group {
                    let own: Vec<_> = vectors.by_ref().take(document.chunks.len()).collect();
                    embedded.add(document, own);
                }
                embedded
            };
            embedded = in_background(add).await?;
        }
        self.ending.lock().remove(&place);
        Ok(embedded)
    }

    /// The versions of a page that are left out, if its documents are to be sent one by one.
    fn suspects(&self, place: Place, from: i64) -> Option<HashSet<VersionId>> {
        let ending = self.ending.lock();
        let page = ending.get(&place).filter(|page| page.from == from && page.together >= ENDED_TOGETHER)?;
        let are_known = page.alone.iter().filter(|(_, ends)| **ends >= ENDED_ALONE);
        Some(are_known.map(|(version_id, _)| *version_id).collect())
    }

    /// Notes that the endpoint ended at a page, or at a document of it that was sent alone.
    fn note_end(&self, place: Place, from: i64, alone: Option<VersionId>) {
        let mut ending = self.ending.lock();
        if ending.len() >= MAX_ENDING_PAGES && !ending.contains_key(&place) {
            ending.clear();
        }
        let page = ending.entry(place).or_default();
        if page.from != from {
            *page = EndingPage { from, ..EndingPage::default() };
        }
        match alone {
            Some(version_id) => *page.alone.entry(version_id).or_default() += 1,
            None => page.together = page.together.saturating_add(1),
        }
    }

    fn batch_size(&self) -> usize {
        let known = self.small_batches.lock().filter(|(_, until)| Instant::now() < *until);
        known.map_or(MAX_BATCH, |(size, _)| size)
    }

    /// The vectors of the documents' texts, in their order; `None`: the endpoint refuses the text.
    ///
    /// A batch that fails is divided until all of its texts are embedded, or one of them fails by itself while
    /// the endpoint embeds another text. In the first case the batch was too large.
    async fn vectors(
        &self,
        requests: Requests<'_>,
        documents: &[ChunkedDocument],
    ) -> Answered<Vec<Option<Vec<f32>>>> {
        let texts: Vec<_> = documents.iter().flat_map(ChunkedDocument::texts).collect();
        let owners = documents.iter().enumerate();
        let owners: Vec<_> =
            owners.flat_map(|(at, document)| document.chunks.iter().map(move |_| at)).collect();
        let end_of_document = |start: usize| {
            start + owners[start..].iter().take_while(|owner| **owner == owners[start]).count()
        };
        let mut vectors: Vec<Option<Vec<f32>>> = Vec::with_capacity(texts.len());
        let mut size = self.batch_size();
        // The end and the size of the batch that is divided.
        let mut divided: Option<(usize, usize)> = None;
        // The document that fails, and since when.
        let mut failing: Option<(usize, Instant)> = None;
        // Whether the endpoint embedded another text after the first failure, and before this text alone.
        let (mut is_working, mut is_working_before) = (false, None);
        while let Some(owner) = owners.get(vectors.len()).copied() {
            let start = vectors.len();
            if failing.is_some_and(|(of, since)| of == owner && since.elapsed() > FAILING_TIMEOUT) {
                vectors.resize(end_of_document(start), None);
                divided = None;
                continue;
            }
            let batch = &texts[start..texts.len().min(start + size)];
            let error = match requests.vectors(batch).await? {
                Ok(of_batch) => {
                    vectors.extend(of_batch.into_iter().map(Some));
                    if divided.is_some_and(|(end, _)| vectors.len() >= end) {
                        *self.small_batches.lock() = Some((size, Instant::now() + SMALL_BATCHES_FOR));
                        (divided, failing) = (None, None);
                    }
                    continue;
                }
                Err(error) if may_be_of_a_text(&error) => error,
                Err(error) => return Ok(Err(error)),
            };
            let is_alone = batch.len() == 1;
            if !is_working || (is_alone && is_working_before != Some(start)) {
                if let Err(error) = requests.vectors(&[PLAIN_TEXT]).await? {
                    return Ok(Err(error));
                }
                is_working = true;
                if is_alone {
                    is_working_before = Some(start);
                    continue;
                }
            }
            if failing.is_none_or(|(of, _)| of != owner) {
                failing = Some((owner, Instant::now()));
            }
            let is_late = error == EndpointError::TimedOut;
            let (_, size_before) = *divided.get_or_insert((start + batch.len(), size));
            if is_alone {
                // A text that takes too long is not the only one of its document.
                vectors.resize(if is_late { end_of_document(start) } else { start + 1 }, None);
                (divided, size) = (None, size_before);
            } else {
                size = batch.len().div_ceil(if is_late { 8 } else { 2 });
            }
        }
        Ok(Ok(vectors))
    }
}

impl Requests<'_> {
    /// The vectors of texts, in their order. The answer is parsed off the runtime.
    async fn vectors(self, texts: &[&str]) -> Answered<Vec<Vec<f32>>> {
        let began_at = Instant::now();
        let answered = self.endpoint.embed_documents(texts, BATCH_TIMEOUT).await;
        // If the parse fails, the time counts all the same.
        self.metrics.embedded(Embedded::Memories, 0, began_at.elapsed());
        let parsed = match answered {
            Ok(answer) => in_background(move || answer.vectors()).await?,
            Err(error) => Err(error),
        };
        self.metrics.embedded(Embedded::Memories, embedded_bytes(texts, &parsed), Duration::ZERO);
        Ok(parsed)
    }
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

/// Whether the endpoint may have ended during a request; a proxy before it answers 502 or 504.
const fn may_have_ended(error: &EndpointError) -> bool {
    matches!(error, EndpointError::Unreachable(_) | EndpointError::Refused { status: 502 | 504 })
}

#[cfg(test)]
mod tests {
    use keepsake_core::{MemoryId, MemoryPath};
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
        let began_at = Instant::now();
        let (endpoint, documents) = (Endpoint::new(config).unwrap(), EndpointDocuments::default());
        let page = ((TenantId::from_uuid(Uuid::nil()), StoreId::from_uuid(Uuid::nil())), 0);
        let done = documents.embed(&endpoint, page, vec![document], &Metrics::default()).await;
        assert!(matches!(done, Err(DocumentError::Timeout)));
        // The document, then a text that every model embeds.
        assert!(began_at.elapsed() < 3 * BATCH_TIMEOUT, "{:?}", began_at.elapsed());
    }
}
