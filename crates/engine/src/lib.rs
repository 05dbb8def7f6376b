//! The operations of Keepsake, one method each, and the commit protocol.
//!
//! An [`Engine`] is a set of services, each in its own module. All begin with the same
//! [`Shared`] state; a service may have some of its own, and use other services. None
//! depends on HTTP. `write` is the one way to change memories; the tools, the API and
//! restorations supply only the decision.
//!
//! Content is written to the blob store first and to the index second. A write
//! is acknowledged only after the index has it. Every change runs to its end in
//! a separate task: when the client disconnects, only the answer is lost.

mod access;
mod activity;
mod attached;
mod audit;
mod auth;
mod blob_move;
mod changes;
pub mod clock;
mod compute;
mod content;
mod context;
mod cursor;
mod embedding;
mod embedding_queue;
mod endpoint_queries;
mod erasure_queue;
mod erasures;
mod error;
mod exports;
mod fair;
mod flush_batches;
mod forks;
mod health;
mod idempotency;
mod imports;
mod index_blobs;
pub mod jobs;
mod keys;
mod lines;
mod long_work;
mod look_ups;
mod memories;
mod mounts;
mod past;
mod principal;
mod prompts;
mod read_log;
mod readers;
mod replica;
mod request_fields;
mod runner;
mod search;
mod secrets;
mod sessions;
mod shared;
mod shares;
mod sign_ins;
mod store_tests;
mod stores;
mod tenant_entries;
mod tenant_turns;
mod tenants;
mod test_file;
mod test_report;
mod tokens;
mod tool;
mod undo;
mod usage;
mod use_counts;
mod use_log;
mod verify;
mod versions;
mod watch;
mod work;
mod write;

use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use keepsake_blobs::{BlobStore, MeasuredBlobs};
use keepsake_core::sensitive::Scanner;
use keepsake_core::{Limits, Timestamp};
use keepsake_embeddings::Embedder;
use keepsake_index::{Index, IndexError};
use keepsake_telemetry::Metrics;
use keepsake_tokens::{Issuers, Vault, VaultError};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use uuid::Uuid;

use access::AccessTimes;
use activity::Activity;
use attached::AttachedStores;
use compute::cores;
pub use content::ContentLoss;
use content::Contents;
use context::Context;
use cursor::Cursors;
use embedding_queue::EmbeddingQueue;
use endpoint_queries::EndpointQueries;
use erasure_queue::ErasureQueue;
use jobs::Jobs;
use secrets::Secrets;
use sessions::{PAGES_AT_ONCE, PAGES_PER_TENANT};
use use_counts::UseCounts;
use use_log::KeyUses;
use write::Writer;

pub use audit::Audit;
pub use auth::Auth;
pub use blob_move::{BlobMove, MoveError, MoveFence, MoveReport};
pub use changes::{ChangePlace, ChangePlaceError, Changes, FollowedStore, StoreChanges};
pub use clock::{Clock, IdSource, ManualClock, RandomIds, SystemClock};
pub use compute::Computations;
pub use cursor::{Page, PageRequest};
pub use embedding::{EmbeddingError, Embeddings};
pub use erasures::{ErasureRequest, Erasures};
pub use error::{EngineError, Fault};
pub use exports::{Export, ExportExtent, ExportForm, Exports};
pub use fair::{FairSlot, FairSlots};
pub use health::{Health, Readiness, StoreHealth};
pub use idempotency::IdempotentCalls;
pub use imports::{ArchiveImport, ImportOptions, Imports, MAX_ARCHIVE_BYTES, VerifiedArchive};
pub use index_blobs::IndexBlobs;
pub use jobs::{JobState, ManualJobs};
pub use keepsake_core::MeaningReason;
pub use keepsake_index::ExpiresAt;
pub use keepsake_tokens::{AuthorizationResponse, OpenIdError, SignInIssuer};
pub use keys::{ApiKeys, KeyDraft, KeyWithSecret};
pub use lines::LineDiff;
pub use memories::{
    BatchStatus, CreatePrecondition, HistoryPart, ImportedRedaction, ImportedVersion, MAX_OPERATIONS,
    MAX_VERSIONS, Memories, MemoryBatch, MemoryEdit, MemoryOperation, MemoryQuery, MemoryReceipt, NewMemory,
    OperationResult, Precondition, Restoration, ShownItem, ShownMemory, View,
};
pub use mounts::{Mount, Mounts};
pub use past::{
    DiffQuery, DifferenceKind, MemoryDifference, NamedMoment, Past, ShownPastItem, ShownPastMemory,
};
pub use principal::{Credential, Principal};
pub use prompts::{PromptOptions, Prompts, system_prompt};
pub use readers::{ReaderList, ReaderQuery, Readers};
pub use replica::Replica;
pub use runner::Runner;
pub use search::{FoundPaths, Search, SearchExplanation, SearchHit, SearchMeaning, SearchPage, SearchQuery};
pub use sessions::{
    AttachmentDraft, AttachmentEdit, Attachments, FollowedSession, SessionDraft, SessionEdit, SessionEvents,
    SessionWithToken, Sessions,
};
pub use shared::Shared;
pub use shares::{FairShares, Share};
pub use sign_ins::{
    Audience, IssuerPage, IssuerSignInError, PendingSignIn, PersonSignIn, SIGN_IN_LIFE, SignIns,
};
pub use store_tests::StoreTests;
pub use stores::{StoreDraft, StoreEdit, StoreFork, Stores};
pub use tenants::{NewTenant, TenantSummary, Tenants};
pub use test_report::{BrokenTests, TestHit, TestReport, TestResult};
pub use tokens::{NewToken, RotatedKey, Rotation, Tokens};
pub use tool::{MEMORY_TOOL, ToolAnswer, ToolCall, Tools, is_tool};
pub use undo::{
    CreatedAt, LaterChange, MemoryUndo, StoreRestoration, UndoAction, UndoCounts, UndoRefusal, UndoRequest,
    UndoSkipReason, UndoStatus, UndoneMemory, Undos,
};
pub use usage::{DailyUseQuery, DailyUseReport, Outlook, StoreUsageReport, Usage};
pub use verify::{Problem, Verification, Verifier};
pub use versions::{ShownVersion, VersionQuery, Versions};
pub use work::{RequestShares, holding};

#[derive(Debug, Clone)]
pub struct EngineOptions {
    /// Limits of a tenant without its own limits.
    pub limits: Limits,
    pub scanner: Scanner,
    /// Maximum bytes of cached content, for all tenants together.
    pub cache_bytes: u64,
    /// Maximum bytes of cached search indexes, for all tenants together.
    pub search_cache_bytes: u64,
    /// Computes the meaning of texts, for search.
    pub embedder: Arc<Embedder>,
    /// The role of this process, as recorded in its heartbeat.
    pub role: &'static str,
    /// The issuers whose tokens are accepted besides the server's own tokens.
    pub issuers: Arc<Issuers>,
    /// Wraps the secrets stored in the index.
    pub vault: Vault,
    /// How long a key signs tokens before it is replaced.
    pub token_key_period: Duration,
    pub request_deadline: Duration,
    /// How long a blob is kept after the rows that named it, unless it was
    /// redacted or erased.
    pub blob_deletion_delay: Duration,
    pub audit_retention: Duration,
    pub metrics: Metrics,
    pub clock: Arc<dyn Clock>,
    pub ids: Arc<dyn IdSource>,
}

impl Default for EngineOptions {
    fn default() -> Self {
        Self {
            limits: Limits::default(),
            scanner: Scanner::default(),
            cache_bytes: 256 << 20,
            search_cache_bytes: 256 << 20,
            embedder: Arc::new(Embedder::off()),
            role: "all",
            issuers: Arc::default(),
            vault: Vault::default(),
            token_key_period: Duration::from_hours(30 * 24),
            request_deadline: Duration::from_mins(1),
            blob_deletion_delay: Duration::ZERO,
            audit_retention: Duration::from_hours(400 * 24),
            metrics: Metrics::default(),
            clock: Arc::new(SystemClock),
            ids: Arc::new(RandomIds),
        }
    }
}

/// Time limit for writing the last access times to the index.
pub const LAST_WRITES: Duration = Duration::from_secs(2);

/// Console pages that are made at the same time. Most of them wait for the database.
const PAGES_PER_CORE: usize = 8;

/// Undos in several commits and copies of stores that this replica carries out at the same time, and
/// for one tenant.
const LONG_WORK_AT_ONCE: usize = 2;
const LONG_WORK_PER_TENANT: usize = 1;

/// Declares the services. Each begins with the shared state.
macro_rules! services {
    ($($name:ident: $service:ident),+ $(,)?) => {
        #[derive(Debug)]
        pub struct Services {
            $(pub $name: $service,)+
            pub memories: Memories,
            pub imports: Imports,
            pub undos: Undos,
            pub store_tests: StoreTests,
            pub search: Search,
            pub tools: Tools,
            pub tokens: Tokens,
            pub replica: Replica,
            pub computations: Computations,
            /// Slots for pages of the console while they are made.
            pub page_slots: FairSlots,
            shared: Arc<Shared>,
        }

        impl Services {
            fn new(shared: Arc<Shared>) -> Self {
                let (search, cores) = (Search::new(&shared), cores());
                let store_tests = StoreTests::new(&shared, &search);
                Self {
                    memories: Memories::new(&shared, &store_tests),
                    imports: Imports::new(&shared, &store_tests),
                    undos: Undos::new(&shared, &store_tests),
                    store_tests,
                    $($name: $service::new(&shared),)+
                    tools: Tools::new(&shared, search.clone()),
                    search,
                    tokens: shared.tokens.clone(),
                    replica: shared.replica.clone(),
                    computations: shared.context.computations.clone(),
                    page_slots: FairSlots::new(cores * PAGES_PER_CORE, cores / 2),
                    shared,
                }
            }
        }
    };
}

services! {
    past: Past,
    exports: Exports,
    stores: Stores,
    versions: Versions,
    changes: Changes,
    prompts: Prompts,
    sessions: Sessions,
    attachments: Attachments,
    events: SessionEvents,
    usage: Usage,
    readers: Readers,
    keys: ApiKeys,
    audit: Audit,
    embeddings: Embeddings,
    erasures: Erasures,
    auth: Auth,
    sign_ins: SignIns,
    calls: IdempotentCalls,
    tenants: Tenants,
    jobs: Jobs,
    manual_jobs: ManualJobs,
    health: Health,
    verifier: Verifier,
}

#[derive(Debug, Clone)]
pub struct Engine(Arc<Services>);

impl Deref for Engine {
    type Target = Services;

    fn deref(&self) -> &Services {
        &self.0
    }
}

impl Engine {
    /// Without `blobs`, content is in the index.
    pub fn new(index: Index, blobs: Option<Arc<dyn BlobStore>>, options: EngineOptions) -> Self {
        let index = index.measured(options.metrics.clone());
        let secrets = Secrets {
            index: index.clone(),
            clock: Arc::clone(&options.clock),
            ids: Arc::clone(&options.ids),
            vault: options.vault,
        };
        let embedding_queue = EmbeddingQueue::new(options.embedder.id().is_some(), &options.metrics);
        let context = Arc::new(Context {
            has_content_in_index: blobs.is_none(),
            blobs: Arc::new(MeasuredBlobs::new(
                blobs.unwrap_or_else(|| Arc::new(IndexBlobs::new(index.clone()))),
                options.metrics.clone(),
            )),
            index,
            scanner: options.scanner,
            metrics: options.metrics,
            replica: options.ids.uuid(options.clock.now()),
            clock: options.clock,
            ids: options.ids,
            limits: options.limits,
            cursors: Cursors::new(secrets.clone()),
            secrets,
            computations: Computations::new(),
            embedding_queue,
            use_counts: UseCounts::default(),
            blob_deletion_delay: options.blob_deletion_delay,
            writes: TaskTracker::new(),
        });
        let contents = Contents::new(Arc::clone(&context), options.cache_bytes);
        let activity = Arc::new(Activity::new(Arc::clone(&context)));
        let access = AccessTimes::new(Arc::clone(&context), Arc::clone(&activity));
        let key_uses = Arc::new(KeyUses::default());
        Self(Arc::new(Services::new(Arc::new(Shared {
            writer: Writer::new(Arc::clone(&context), Arc::clone(&contents)),
            attached: AttachedStores::new(Arc::clone(&context)),
            tokens: Tokens::new(Arc::clone(&context), options.token_key_period),
            replica: Replica::new(
                Arc::clone(&context),
                options.role,
                access.clone(),
                Arc::clone(&key_uses),
                Arc::clone(&activity),
            ),
            erasure_queue: ErasureQueue::default(),
            long_work: FairSlots::new(LONG_WORK_AT_ONCE, LONG_WORK_PER_TENANT),
            pages: FairSlots::new(PAGES_AT_ONCE, PAGES_PER_TENANT),
            issuers: options.issuers,
            search_cache_bytes: options.search_cache_bytes,
            embedder: options.embedder,
            endpoint_queries: EndpointQueries::new(context.metrics.clone()),
            request_deadline: options.request_deadline,
            audit_retention: options.audit_retention,
            stopping: CancellationToken::new(),
            context,
            contents,
            access,
            activity,
            key_uses,
        }))))
    }

    /// Creates or reads every secret, so that none is missing later.
    #[tracing::instrument(name = "engine.prepare_secrets", level = "debug", skip_all)]
    pub async fn prepare_secrets(&self) -> Result<(), EngineError> {
        self.shared.context.cursors.key().await?;
        self.tokens.keys(None).await?;
        self.sign_ins.prepare().await?;
        Ok(())
    }

    /// Fails if a stored secret cannot be opened, or is not wrapped like a new one: servers that are running
    /// may not have the master key of this process. Changes none.
    #[tracing::instrument(name = "engine.check_secrets", level = "debug", skip_all)]
    pub async fn check_secrets(&self) -> Result<(), EngineError> {
        let are_current = self.shared.context.secrets.check().await?;
        if are_current { Ok(()) } else { Err(VaultError::Outdated.into()) }
    }

    /// The limits of a tenant without its own limits.
    pub fn default_limits(&self) -> &Limits {
        &self.shared.context.limits
    }

    pub fn metrics(&self) -> &Metrics {
        &self.shared.context.metrics
    }

    pub fn now(&self) -> Timestamp {
        self.shared.context.now()
    }

    /// For an object of an API surface, such as a request.
    pub fn new_uuid(&self) -> Uuid {
        self.shared.context.new_uuid()
    }

    /// Waits for running writes, at most `deadline`, then writes the access
    /// times and marks this replica as gone, which takes at most
    /// [`LAST_WRITES`].
    ///
    /// No operation may start after this call. Returns whether all writes ended
    /// in time.
    pub async fn shut_down(&self, deadline: Duration) -> bool {
        self.shared.stopping.cancel();
        let writes = &self.shared.context.writes;
        writes.close();
        let ended = tokio::time::timeout(deadline, writes.wait()).await.is_ok();
        let last = tokio::time::timeout(LAST_WRITES, self.replica.retire()).await;
        if let Err(error) = last.unwrap_or_else(|_| Err(IndexError::timed_out(LAST_WRITES))) {
            tracing::warn!(error = %error, "engine.flush_access failed at shutdown: the last minute's reads are lost");
        }
        ended
    }
}
