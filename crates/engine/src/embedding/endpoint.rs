//! The vectors of documents from an endpoint.
//!
//! An endpoint may take fewer texts in a request than are sent, refuse a text, or end because of one. None of this
//! may stop the other memories of a store, so a failure is narrowed down to the texts that cause it.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use keepsake_core::{StoreId, TenantId, VersionId};
use keepsake_embeddings::{Endpoint, EndpointError, MAX_BATCH};
use keepsake_index::EmbeddingLimits;
use keepsake_telemetry::{Embedded, Metrics};
use parking_lot::Mutex;
use tokio::time::Instant;

use super::documents::{ChunkedDocument, Document, DocumentError, EmbeddedDocuments};
use super::{TURN, embedded_bytes};
use crate::EngineError;
use crate::compute::in_background;

/// Time limit of one request with a batch of chunks.
const BATCH_TIMEOUT: Duration = Duration::from_mins(1);
/// How long a turn may send batches: other tenants wait. It ends after the last batch, and perhaps a request with
/// [`PLAIN_TEXT`].
const TURN_TIMEOUT: Duration = Duration::from_mins(10);
/// How long texts of a document may fail, one after the other, until the rest of the document is left out.
const FAILING_TIMEOUT: Duration = Duration::from_mins(2);
/// A text that every model embeds.
const PLAIN_TEXT: &str = "keepsake";
/// How long the endpoint is sent fewer texts at a time, after it refused more.
const SMALL_BATCHES_FOR: Duration = Duration::from_mins(10);
/// When this many requests with a page have stopped the endpoint, the page's documents are sent one by one.
const ENDED_TOGETHER: u32 = 3;
/// When this many requests with one document have stopped the endpoint, the document is left out.
const ENDED_ALONE: u32 = 2;
/// Stores that are remembered, for each difficulty.
const MAX_STORES: usize = 1_000;

type Place = (TenantId, StoreId);
type Answered<T> = Result<Result<T, EndpointError>, EngineError>;

/// What is known of an endpoint that embeds documents.
#[derive(Debug, Default)]
pub(super) struct EndpointDocuments {
    /// The number of texts that it takes in a request, until that time; `None`: [`MAX_BATCH`].
    small_batches: Mutex<Option<(usize, Instant)>>,
    /// The pages of stores that stopped it.
    ending: Mutex<HashMap<Place, EndingPage>>,
    /// The number of versions in the next page of stores whose last page took too long.
    small_pages: Mutex<HashMap<Place, u32>>,
}

/// A page of a store that stopped the endpoint.
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
    /// No batch is sent after that time.
    until: Instant,
}

impl EndpointDocuments {
    /// The limits of the next page of a store.
    pub(super) fn limits(&self, place: Place) -> EmbeddingLimits {
        let versions = self.small_pages.lock().get(&place).copied();
        EmbeddingLimits { versions: versions.unwrap_or(TURN.versions), ..TURN }
    }

    /// Makes the rows of the documents of a page, which begins after the version `from`. The endpoint may refuse
    /// some passages.
    ///
    /// After [`TURN_TIMEOUT`] the page fails, and the next page of the store is smaller. If the page has one document,
    /// the rest of the document is left out instead.
    pub(super) async fn embed(
        &self,
        endpoint: &Endpoint,
        page: (Place, i64),
        documents: Vec<Document>,
        metrics: &Metrics,
    ) -> Result<EmbeddedDocuments, DocumentError> {
        let requests = Requests { endpoint, metrics, until: Instant::now() + TURN_TIMEOUT };
        self.embed_in_time(requests, page, documents).await
    }

    async fn embed_in_time(
        &self,
        requests: Requests<'_>,
        page: (Place, i64),
        documents: Vec<Document>,
    ) -> Result<EmbeddedDocuments, DocumentError> {
        let count = documents.len();
        let embedded = self.embed_page(requests, page, documents).await;
        match &embedded {
            Ok(_) if requests.left() > TURN_TIMEOUT * 3 / 4 => self.note_fast_page(page.0),
            Err(DocumentError::Timeout) if requests.left().is_zero() => self.note_slow_page(page.0, count),
            Ok(_) | Err(_) => {}
        }
        embedded
    }

    async fn embed_page(
        &self,
        requests: Requests<'_>,
        (place, from): (Place, i64),
        documents: Vec<Document>,
    ) -> Result<EmbeddedDocuments, DocumentError> {
        let is_alone = documents.len() == 1;
        let chunk = move || documents.into_iter().map(Document::in_chunks).collect::<Vec<_>>();
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
                // `add_all` refuses chunks without a vector.
                Vec::new()
            } else {
                let vectors = self.vectors(requests, &group, is_alone).await?;
                vectors.inspect_err(|error| {
                    if may_have_ended(error) {
                        self.note_end(place, from, alone);
                    }
                })?
            };
            let add = move || {
                embedded.add_all(group, vectors);
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

    /// Notes that a request with a page, or with one of its documents, stopped the endpoint.
    fn note_end(&self, place: Place, from: i64, alone: Option<VersionId>) {
        let mut ending = self.ending.lock();
        let page = entry_of(&mut ending, place);
        if page.from != from {
            *page = EndingPage { from, ..EndingPage::default() };
        }
        match alone {
            Some(version_id) => *page.alone.entry(version_id).or_default() += 1,
            None => page.together = page.together.saturating_add(1),
        }
    }

    /// Makes the next page of a store smaller, after one with so many documents.
    fn note_slow_page(&self, place: Place, documents: usize) {
        let versions = u32::try_from(documents).unwrap_or(TURN.versions).min(TURN.versions) / 4;
        *entry_of(&mut self.small_pages.lock(), place) = versions.max(1);
    }

    /// Makes the next page of a store larger, if it was made smaller.
    fn note_fast_page(&self, place: Place) {
        let mut small_pages = self.small_pages.lock();
        if let Some(versions) = small_pages.get_mut(&place) {
            *versions *= 2;
            if *versions >= TURN.versions {
                small_pages.remove(&place);
            }
        }
    }

    fn batch_size(&self) -> usize {
        let known = self.small_batches.lock().filter(|(_, until)| Instant::now() < *until);
        known.map_or(MAX_BATCH, |(size, _)| size)
    }

    /// The vectors of the documents' texts, in their order; `None`: the endpoint refuses the text.
    ///
    /// A batch that fails is divided until all of its texts are embedded, or one of them fails by itself while
    /// the endpoint embeds another text. In the first case the batch was too large. Once the time of the turn is over,
    /// the page fails or, if the page has one document (`is_alone`), the rest of the document counts as refused.
    async fn vectors(
        &self,
        requests: Requests<'_>,
        documents: &[ChunkedDocument],
        is_alone: bool,
    ) -> Answered<Vec<Option<Vec<f32>>>> {
        let texts: Vec<_> = documents.iter().flat_map(ChunkedDocument::texts).collect();
        let owners = documents.iter().enumerate();
        let owners: Vec<_> =
            owners.flat_map(|(at, document)| document.content.iter().map(move |_| at)).collect();
        let end_of_document = |start: usize| {
            start + owners[start..].iter().take_while(|owner| **owner == owners[start]).count()
        };
        let mut vectors: Vec<Option<Vec<f32>>> = Vec::with_capacity(texts.len());
        let mut size = self.batch_size();
        // The end and the size of the batch that is divided.
        let mut divided: Option<(usize, usize)> = None;
        // The document whose texts fail, and since when.
        let mut failing: Option<(usize, Instant)> = None;
        // The endpoint must embed a plain text after the first failure, and again before one text counts as failing.
        let (mut is_working, mut is_working_before) = (false, None);
        while let Some(owner) = owners.get(vectors.len()).copied() {
            let start = vectors.len();
            if requests.left().is_zero() {
                if !is_alone {
                    return Ok(Err(EndpointError::TimedOut));
                }
                vectors.resize(texts.len(), None);
                break;
            }
            let batch = &texts[start..texts.len().min(start + size)];
            let error = match requests.vectors(batch).await? {
                Ok(of_batch) => {
                    vectors.extend(of_batch.into_iter().map(Some));
                    if divided.is_some_and(|(end, _)| vectors.len() >= end) {
                        *self.small_batches.lock() = Some((size, Instant::now() + SMALL_BATCHES_FOR));
                        divided = None;
                    }
                    continue;
                }
                Err(error) if may_be_of_a_text(&error) => error,
                Err(error) => return Ok(Err(error)),
            };
            let is_one = batch.len() == 1;
            if !is_working || (is_one && is_working_before != Some(start)) {
                if let Err(error) = requests.vectors(&[PLAIN_TEXT]).await? {
                    return Ok(Err(error));
                }
                is_working = true;
                if is_one {
                    is_working_before = Some(start);
                    continue;
                }
            }
            let is_late = error == EndpointError::TimedOut;
            let (_, size_before) = *divided.get_or_insert((start + batch.len(), size));
            if is_one {
                let known = failing.filter(|(of, _)| *of == owner);
                let since = known.map_or_else(Instant::now, |(_, since)| since);
                failing = Some((owner, since));
                // A text that takes too long is not the only one of its document.
                let is_end = is_late || since.elapsed() > FAILING_TIMEOUT;
                vectors.resize(if is_end { end_of_document(start) } else { start + 1 }, None);
                (divided, size) = (None, size_before);
            } else {
                size = batch.len().div_ceil(if is_late { 8 } else { 2 });
            }
        }
        Ok(Ok(vectors))
    }
}

/// The entry of a store in a map of bounded size.
fn entry_of<T: Default>(known: &mut HashMap<Place, T>, place: Place) -> &mut T {
    if known.len() >= MAX_STORES && !known.contains_key(&place) {
        known.clear();
    }
    known.entry(place).or_default()
}

impl Requests<'_> {
    /// The time that is left for batches.
    fn left(self) -> Duration {
        self.until.saturating_duration_since(Instant::now())
    }

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

/// Whether the endpoint may have stopped during a request; a proxy before it answers 502 or 504.
const fn may_have_ended(error: &EndpointError) -> bool {
    matches!(error, EndpointError::Unreachable(_) | EndpointError::Refused { status: 502 | 504 })
}

#[cfg(test)]
mod tests {
    use keepsake_core::{MemoryId, MemoryPath};
    use uuid::Uuid;

    use super::*;
    use crate::endpoint_queries::tests::hanging_endpoint;

    const PLACE: Place = (TenantId::from_uuid(Uuid::nil()), StoreId::from_uuid(Uuid::nil()));

    fn documents(count: u128) -> Vec<Document> {
        let document = |number| Document {
            memory_id: MemoryId::from_uuid(Uuid::from_u128(number)),
            version_id: VersionId::from_uuid(Uuid::from_u128(number)),
            path: MemoryPath::parse("/a.md").unwrap(),
            content: "a text\n".into(),
        };
        (0..count).map(document).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn hanging_endpoint_times_out_and_refuses_no_text() {
        let (_listener, config) = hanging_endpoint();
        let began_at = Instant::now();
        let (endpoint, known) = (Endpoint::new(config).unwrap(), EndpointDocuments::default());
        let done = known.embed(&endpoint, (PLACE, 0), documents(1), &Metrics::default()).await;
        assert!(matches!(done, Err(DocumentError::Timeout)));
        // The document, then a text that every model embeds.
        assert!(began_at.elapsed() < 3 * BATCH_TIMEOUT, "{:?}", began_at.elapsed());
        assert_eq!(known.limits(PLACE), TURN);
    }

    #[tokio::test(start_paused = true)]
    async fn turn_ends_in_time_and_pages_shrink_to_one_document_whose_rest_is_left_out() {
        let (_listener, config) = hanging_endpoint();
        let (endpoint, metrics) = (Endpoint::new(config).unwrap(), Metrics::default());
        let known = EndpointDocuments::default();
        let over = Requests { endpoint: &endpoint, metrics: &metrics, until: Instant::now() };
        for (count, versions) in [(32, 8), (8, 2), (2, 1)] {
            let done = known.embed_in_time(over, (PLACE, 0), documents(count)).await;
            assert!(matches!(done, Err(DocumentError::Timeout)));
            assert_eq!(known.limits(PLACE).versions, versions);
        }
        let done = known.embed_in_time(over, (PLACE, 0), documents(1)).await;
        assert!(matches!(done, Ok(done) if done.refused.len() == 1 && done.rows.len() == 1));
        for versions in [2, 4, 8, 16, 32] {
            known.note_fast_page(PLACE);
            assert_eq!(known.limits(PLACE).versions, versions);
        }
    }
}
