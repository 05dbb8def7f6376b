//! Embeds memories behind their writes, for search by meaning.
//!
//! A commit notes its store in the queue of its replica. A worker of that replica takes
//! one store after the other: it claims the next versions that are not embedded, reads the
//! contents, computes the vectors and writes them. Tenants take turns, and a turn is
//! bounded, so that a large import delays the others by little. No write waits for it.
//!
//! The version log of the store is the true queue: what a replica forgets, by its end or
//! because its queue is full, the job `embed-memories` finds.

mod documents;
mod endpoint;

use std::collections::HashSet;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures::stream::{self, StreamExt, TryStreamExt};
use keepsake_core::{BlobKey, MeaningReason, StoreId, TenantId};
use keepsake_embeddings::{Embedder, LOOK_INTERVAL, Status};
use keepsake_index::{
    EmbeddingClaim, EmbeddingLimits, EmbeddingOutcome, EmbeddingPage, EmbeddingRow, Head, IndexError,
};
use keepsake_search::CHUNK_FORM;
use keepsake_telemetry::EmbeddingFailure;
use parking_lot::Mutex;
use tokio::time::{Instant, MissedTickBehavior};
use tokio_util::sync::CancellationToken;

use crate::EngineError;
use crate::compute::off_the_runtime;
use crate::content::ContentLoss;
use crate::shared::service;

use documents::{Document, DocumentError, EmbeddedDocuments, embed_in_background};
use endpoint::EndpointDocuments;

/// A turn of a store: it takes some seconds with a model on a processor.
const TURN: EmbeddingLimits = EmbeddingLimits { versions: 32, bytes: 128 << 10 };
/// How long a replica's claim of a store lasts, unless the turn takes longer and renews it.
const CLAIMED_FOR: Duration = Duration::from_mins(1);
const RENEWED_AFTER: Duration = Duration::from_secs(20);
/// How long the worker waits when the first store comes, so that a burst of writes is one turn.
const GATHERS_FOR: Duration = Duration::from_millis(200);
const READS_AT_ONCE: usize = 8;
/// Memories of a store from which on the log says that it is embedded for the first time.
const ANNOUNCED_MEMORIES: u64 = 100;
/// Bytes of content in a chunk, about; each value of its vector takes a byte.
const BYTES_PER_CHUNK: u64 = 430;

/// Why a turn failed. It is tried again.
#[derive(Debug, thiserror::Error)]
pub enum EmbeddingError {
    #[error(transparent)]
    Storage(#[from] EngineError),
    #[error("the embeddings endpoint did not answer in time")]
    Timeout,
    #[error("the model failed: {0}")]
    Model(String),
}

impl From<IndexError> for EmbeddingError {
    fn from(error: IndexError) -> Self {
        Self::Storage(error.into())
    }
}

impl From<DocumentError> for EmbeddingError {
    fn from(error: DocumentError) -> Self {
        match error {
            DocumentError::Timeout => Self::Timeout,
            DocumentError::Failed(how) => Self::Model(how),
            DocumentError::Engine(error) => Self::Storage(error),
        }
    }
}

impl EmbeddingError {
    const fn failure(&self) -> EmbeddingFailure {
        match self {
            Self::Storage(_) => EmbeddingFailure::Storage,
            Self::Timeout => EmbeddingFailure::Timeout,
            Self::Model(_) => EmbeddingFailure::Model,
        }
    }
}

/// The id of the vectors of chunks that an embedder makes, or why it makes none. Does no I/O.
pub(crate) fn ready_model(embedder: &Embedder) -> Result<Arc<str>, MeaningReason> {
    match embedder.status() {
        Status::Off => Err(MeaningReason::Off),
        Status::NotInstalled => Err(MeaningReason::NotInstalled),
        Status::Unusable(_) => Err(MeaningReason::Unusable),
        Status::Ready => {
            let id = embedder.id().ok_or(MeaningReason::Off)?;
            Ok(Arc::from(format!("{id}/chunks-{CHUNK_FORM}")))
        }
    }
}

service!(pub Embeddings(shared) {
    /// The last status of the embedder that was logged.
    logged: Arc<Mutex<Status>> = Arc::new(Mutex::new(Status::Off)),
    endpoint: Arc<EndpointDocuments> = Arc::default(),
});

impl Embeddings {
    /// Embeds stores as they change, until `stopping`.
    pub(crate) async fn run(&self, stopping: CancellationToken) {
        // A turn that is cut off has written nothing, and its store stays in the version log.
        let work = async { tokio::join!(self.watch_model(), self.embed_all()) };
        stopping.run_until_cancelled(work).await;
    }

    /// Looks for the embedded model from time to time: it may be installed at any time.
    async fn watch_model(&self) {
        let mut looks = tokio::time::interval(LOOK_INTERVAL);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        if matches!(*self.embedder, Embedder::Embedded(_)) {
            loop {
                looks.tick().await;
                self.look_for_model().await;
            }
        }
    }

    /// Looks for the embedded model, unless the last look is recent, and logs what changed.
    pub(crate) async fn look_for_model(&self) {
        if let Embedder::Embedded(model) = &*self.embedder {
            let model = Arc::clone(model);
            // The embedder's status has the result.
            let _ = off_the_runtime(move || model.model(std::time::Instant::now())).await;
        }
        let status = self.embedder.status();
        let before = std::mem::replace(&mut *self.logged.lock(), status.clone());
        if before == status {
            return;
        }
        match status {
            Status::Off => {}
            Status::Ready => tracing::info!("engine.embed: memories are found by meaning"),
            Status::NotInstalled => tracing::info!(
                "engine.embed: no model is installed, so memories are found by words only; \
                 `keepsake model install` installs it"
            ),
            Status::Unusable(reason) => tracing::warn!(
                reason = %reason,
                "engine.embed: the model cannot be used, so memories are found by words only"
            ),
        }
    }

    async fn embed_all(&self) {
        let queue = &self.context.embedding_queue;
        loop {
            queue.wait().await;
            tokio::time::sleep(GATHERS_FOR).await;
            // After an error, the other stores go on.
            while !matches!(self.turn(|now| queue.next(now)).await, Ok(false)) {}
        }
    }

    /// Embeds the next memories of the store whose turn it is; `false`: no store waits, or
    /// nothing can be embedded now.
    ///
    /// After an error, the store waits for another turn. It has this at once if no other store
    /// waits, whatever its failures.
    pub async fn take_turn(&self) -> Result<bool, EmbeddingError> {
        self.turn(|now| self.context.embedding_queue.next_of_all(now)).await
    }

    /// A turn of the store that `next` takes from the queue.
    async fn turn(
        &self,
        next: impl FnOnce(Instant) -> Option<(TenantId, StoreId)>,
    ) -> Result<bool, EmbeddingError> {
        let queue = &self.context.embedding_queue;
        self.look_for_model().await;
        let model = ready_model(&self.embedder).ok().filter(|_| !self.replica.is_fenced_off());
        let Some(model) = model else {
            // The job finds these stores once there is a model.
            queue.clear();
            return Ok(false);
        };
        let Some(place) = next(Instant::now()) else {
            return Ok(false);
        };
        match self.embed_next(place, model).await {
            Ok(is_complete) => {
                queue.recovered(place);
                if !is_complete {
                    queue.push(place);
                }
                Ok(true)
            }
            Err(error) => {
                self.context.metrics.embedding_failed(error.failure());
                let wait = queue.back_off(place, Instant::now(), |wait| self.context.ids.jitter(wait));
                tracing::warn!(
                    tenant.id = %place.0, store.id = %place.1, error = %error, again_in_seconds = wait.as_secs(),
                    "engine.embed of a store failed; search by words is not affected"
                );
                Err(error)
            }
        }
    }

    /// Embeds the next page of a store; `true`: this replica has nothing more to embed in it.
    #[tracing::instrument(name = "engine.embed", level = "debug", skip_all, fields(tenant.id = %tenant_id, gen_ai.memory.store.id = %store_id))]
    async fn embed_next(
        &self,
        (tenant_id, store_id): (TenantId, StoreId),
        model: Arc<str>,
    ) -> Result<bool, EmbeddingError> {
        let (index, now) = (&self.context.index.embeddings, self.context.now());
        let claim = EmbeddingClaim { tenant_id, store_id, model, replica: self.context.replica };
        let limits = self.endpoint.limits((tenant_id, store_id));
        let Some(page) = index.claim(&claim, now, now.plus(CLAIMED_FOR), limits).await? else {
            return Ok(true);
        };
        announce(&claim, &page, self.embedder.dimensions().unwrap_or_default());
        let embed = async {
            let documents = self.read(&claim, &page).await?;
            let were_read: HashSet<_> = documents.iter().map(|document| document.memory_id).collect();
            let embedded = self.embed(&claim, &page, documents).await?;
            Ok::<_, EmbeddingError>((were_read, embedded))
        };
        let Some((were_read, mut embedded)) = self.while_claimed(&claim, &page, embed).await? else {
            // The next claim finds out why.
            return Ok(false);
        };
        for (memory_id, passages) in &embedded.refused {
            self.context.metrics.embedding_failed(EmbeddingFailure::Text);
            tracing::warn!(
                tenant.id = %tenant_id, store.id = %store_id, memory.id = %memory_id, passages,
                "engine.embed: the model refuses passages of a memory, which are found by their words only"
            );
        }
        // No later turn finds the content of the others.
        for memory in page.memories.iter().filter(|memory| !were_read.contains(&memory.memory_id)) {
            embedded.leave_out(memory.memory_id, memory.version_id);
        }
        match index.put(&claim, &page, &embedded.rows).await? {
            EmbeddingOutcome::Written { is_complete } => {
                let chunks = embedded.rows.iter().map(|row: &EmbeddingRow| row.chunks);
                self.context.metrics.chunks_embedded(chunks.sum());
                Ok(is_complete)
            }
            // The next claim finds out why.
            EmbeddingOutcome::Refused => Ok(false),
        }
    }

    /// Makes the rows of documents of a page. The model may refuse some of their passages.
    async fn embed(
        &self,
        claim: &EmbeddingClaim,
        page: &EmbeddingPage,
        documents: Vec<Document>,
    ) -> Result<EmbeddedDocuments, DocumentError> {
        let (writes, metrics) = (&self.context.writes, &self.context.metrics);
        match &*self.embedder {
            Embedder::Off => Ok(EmbeddedDocuments::default()),
            Embedder::Embedded(model) => embed_in_background(model, documents, writes, metrics).await,
            Embedder::Endpoint(endpoint) => {
                let place = (claim.tenant_id, claim.store_id);
                self.endpoint.embed(endpoint, (place, page.from), documents, metrics).await
            }
        }
    }

    /// Renews the claim of a page until `work` ends; `None`: the claim is lost.
    async fn while_claimed<T>(
        &self,
        claim: &EmbeddingClaim,
        page: &EmbeddingPage,
        work: impl Future<Output = Result<T, EmbeddingError>>,
    ) -> Result<Option<T>, EmbeddingError> {
        let mut work = pin!(work);
        loop {
            if let Ok(done) = tokio::time::timeout(RENEWED_AFTER, &mut work).await {
                return done.map(Some);
            }
            let until = self.context.now().plus(CLAIMED_FOR);
            if !self.context.index.embeddings.renew(claim, page, until).await? {
                return Ok(None);
            }
        }
    }

    /// Reads the contents of a page, without the cache, which is kept for contents that clients
    /// read. A memory without its content is left out.
    async fn read(&self, claim: &EmbeddingClaim, page: &EmbeddingPage) -> Result<Vec<Document>, EngineError> {
        let read: Vec<Option<Document>> = stream::iter(page.memories.iter().cloned())
            .map(|memory| self.read_one((claim.tenant_id, claim.store_id), memory))
            .buffered(READS_AT_ONCE)
            .try_collect()
            .await?;
        Ok(read.into_iter().flatten().collect())
    }

    /// `None`: the content is lost, which stops no other memory, or the memory changed meanwhile.
    async fn read_one(
        &self,
        (tenant_id, store_id): (TenantId, StoreId),
        memory: Head,
    ) -> Result<Option<Document>, EngineError> {
        let Head { memory_id, version_id, path, content, .. } = memory;
        let key = BlobKey { tenant_id, store_id, blob_id: content.blob_id };
        let text = self.contents.fetch(&key, content).await;
        let loss = match text {
            Ok(Some(content)) => return Ok(Some(Document { memory_id, version_id, path, content })),
            Ok(None) => ContentLoss::Missing,
            Err(error) => ContentLoss::of(error)?,
        };
        // `keepsake blobs move` may have moved the content.
        self.replica.heartbeat().await?;
        if self.replica.is_fenced_off() {
            return Err(EngineError::CutOff);
        }
        self.context.metrics.embedding_failed(EmbeddingFailure::Content);
        tracing::warn!(
            tenant.id = %tenant_id, store.id = %store_id, memory.id = %memory_id, loss = ?loss,
            "engine.embed: a memory is left out, since its content cannot be read"
        );
        Ok(None)
    }
}

/// About the bytes of all vectors of a store.
pub(crate) fn expected_vector_bytes(memory_count: u64, live_bytes: u64, dimensions: usize) -> u64 {
    (live_bytes / BYTES_PER_CHUNK).max(memory_count).saturating_mul(dimensions as u64)
}

/// The bytes of texts whose embeddings were computed: 0 if that failed.
pub(crate) fn embedded_bytes<T, E>(texts: &[&str], computed: &Result<T, E>) -> usize {
    if computed.is_ok() { texts.iter().map(|text| text.len()).sum() } else { 0 }
}

/// Says what a store with many memories will take, before its first turn.
fn announce(claim: &EmbeddingClaim, page: &EmbeddingPage, dimensions: usize) {
    if page.from == 0 && page.memory_count >= ANNOUNCED_MEMORIES {
        tracing::info!(
            tenant.id = %claim.tenant_id,
            store.id = %claim.store_id,
            memories = page.memory_count,
            content_bytes = page.live_bytes,
            vector_bytes = expected_vector_bytes(page.memory_count, page.live_bytes, dimensions),
            "engine.embed begins with a store; its vectors will take about `vector_bytes`"
        );
    }
}
