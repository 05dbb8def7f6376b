//! The operations of Keepsake, one method each, and the commit protocol.
//!
//! An [`Engine`] is a set of services, each in its own module. A service names
//! what it needs: the shared `Context` (index, blob store, clock, limits), its
//! own state, and other services. None depends on HTTP. `write` is the one way to
//! change memories; the tools, the API and restorations supply only the decision.
//!
//! Content is written to the blob store first and to the index second. A write
//! is acknowledged only after the index has it. Every change runs to its end in
//! a separate task: when the client disconnects, only the answer is lost.

mod access;
mod activity;
mod audit;
mod auth;
mod blob_move;
mod changes;
pub mod clock;
mod compute;
mod content;
mod context;
mod cursor;
mod erasures;
mod error;
mod exports;
mod fair;
mod health;
mod idempotency;
mod imports;
mod index_blobs;
pub mod jobs;
mod keys;
mod memories;
mod mounts;
mod principal;
mod prompts;
mod replica;
mod runner;
mod search;
mod secrets;
mod sessions;
mod shares;
mod sign_ins;
mod stores;
mod tenants;
mod tokens;
mod tool;
mod usage;
mod use_log;
mod verify;
mod versions;
mod watch;
mod work;
mod write;

use std::num::NonZero;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use keepsake_blobs::{BlobStore, MeasuredBlobs};
use keepsake_core::sensitive::Scanner;
use keepsake_core::{Limits, Timestamp};
use keepsake_index::{Index, IndexError};
use keepsake_telemetry::Metrics;
use keepsake_tokens::{Issuers, Vault};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use uuid::Uuid;

use access::AccessTimes;
use activity::Activity;
use auth::sessions::AttachedStores;
pub use content::ContentLoss;
use content::Contents;
use context::Context;
use cursor::Cursors;
use jobs::{Eraser, JobServices, Jobs};
use search::Indexer;
use secrets::Secrets;
use sessions::{PAGES_AT_ONCE, PAGES_PER_TENANT};
use tool::{ToolChanges, ToolServices};
use use_log::KeyUses;
use write::Writer;

pub use audit::Audit;
pub use auth::Auth;
pub use blob_move::{BlobMove, MoveError, MoveFence, Moved};
pub use changes::{ChangePlace, Changes, FollowedStore, NoPlace, StoreChanges};
pub use clock::{Clock, IdSource, ManualClock, RandomIds, SystemClock};
pub use compute::Computations;
pub use cursor::{Page, PageRequest};
pub use erasures::{ErasureRequest, Erasures};
pub use error::EngineError;
pub use exports::{Export, ExportForm, Exports};
pub use fair::{FairSlot, FairSlots};
pub use health::{Health, Readiness, StoreHealth};
pub use idempotency::IdempotentCalls;
pub use imports::{ArchiveImport, ImportOptions, Imports, MAX_ARCHIVE_BYTES, VerifiedArchive};
pub use index_blobs::IndexBlobs;
pub use jobs::{JobState, ManualJobs};
pub use keepsake_index::ExpiresAt;
pub use keepsake_tokens::{OpenIdError, Returned, SignInIssuer};
pub use keys::{ApiKeys, KeyDraft, MadeKey};
pub use memories::{
    BatchStatus, CreatePrecondition, HistoryPart, ImportedRedaction, ImportedVersion, MAX_OPERATIONS,
    MAX_VERSIONS, Memories, MemoryBatch, MemoryEdit, MemoryOperation, MemoryQuery, NewMemory,
    OperationResult, Precondition, Receipt, Restoration, ShownItem, ShownMemory, View,
};
pub use mounts::{Mounted, Mounts};
pub use principal::Principal;
pub use prompts::{PromptOptions, Prompts, system_prompt};
pub use replica::Replica;
pub use runner::Runner;
pub use search::{Search, SearchHit, SearchQuery};
pub use sessions::{
    AttachmentDraft, AttachmentEdit, Attachments, FollowedSession, MadeSession, SessionDraft, SessionEdit,
    SessionEvents, Sessions,
};
pub use shares::{FairShares, Share};
pub use sign_ins::{AtIssuer, Audience, IssuerPage, IssuerSignInError, SIGN_IN_LIFE, SignIns, SignedIn};
pub use stores::{StoreDraft, StoreEdit, Stores};
pub use tenants::{NewTenant, Tenants};
pub use tokens::{NewToken, RotatedKey, Rotation, Tokens};
pub use tool::{AgentTools, MEMORY_TOOL, MemoryTool, ToolAnswer, ToolCall, Tools, is_tool};
pub use usage::{MemoryUse, StoreUsageReport, Usage};
pub use verify::{Problem, Verification, Verifier};
pub use versions::{RedactedVersion, ShownVersion, VersionQuery, Versions};
pub use work::{Held, holding};

#[derive(Debug, Clone)]
pub struct EngineOptions {
    /// Limits of a tenant without its own limits.
    pub limits: Limits,
    pub scanner: Scanner,
    /// Maximum bytes of cached content, for all tenants together.
    pub cache_bytes: u64,
    /// Maximum bytes of cached search indexes, for all tenants together.
    pub search_cache_bytes: u64,
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
    /// Retention of the tenants' audits.
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

#[derive(Debug, Clone)]
pub struct Engine(Arc<Services>);

#[derive(Debug)]
pub struct Services {
    pub memories: Memories,
    pub exports: Exports,
    pub imports: Imports,
    /// Slots for pages of the console while they are made.
    pub page_slots: FairSlots,
    pub computations: Computations,
    pub stores: Stores,
    pub versions: Versions,
    pub changes: Changes,
    pub search: Search,
    pub tools: Tools,
    pub prompts: Prompts,
    pub sessions: Sessions,
    pub attachments: Attachments,
    pub events: SessionEvents,
    pub usage: Usage,
    pub keys: ApiKeys,
    pub audit: Audit,
    pub erasures: Erasures,
    pub auth: Auth,
    pub tokens: Tokens,
    pub sign_ins: SignIns,
    pub calls: IdempotentCalls,
    pub tenants: Tenants,
    pub jobs: Jobs,
    pub manual_jobs: ManualJobs,
    pub replica: Replica,
    pub health: Health,
    pub verifier: Verifier,
    context: Arc<Context>,
    /// Cancelled at shutdown, which stops manual runs of jobs.
    stopping: CancellationToken,
}

impl Deref for Engine {
    type Target = Services;

    fn deref(&self) -> &Services {
        &self.0
    }
}

impl Engine {
    /// Without `blobs`, content is in the index.
    #[expect(
        clippy::too_many_lines,
        reason = "wires the services, one statement each, in the order of their needs"
    )]
    pub fn new(index: Index, blobs: Option<Arc<dyn BlobStore>>, options: EngineOptions) -> Self {
        let index = index.measured(options.metrics.clone());
        let secrets = Secrets {
            index: index.clone(),
            clock: Arc::clone(&options.clock),
            ids: Arc::clone(&options.ids),
            vault: options.vault,
        };
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
            computations: Computations::new(),
            blob_deletion_delay: options.blob_deletion_delay,
            writes: TaskTracker::new(),
        });
        let shared = || Arc::clone(&context);
        let stopping = CancellationToken::new();

        let contents = Contents::new(shared(), options.cache_bytes);
        let writer = Arc::new(Writer::new(shared(), Arc::clone(&contents)));
        let activity = Arc::new(Activity::new(shared()));
        let access = AccessTimes::new(shared(), Arc::clone(&activity));
        let key_uses = Arc::new(KeyUses::default());
        let attached = Arc::new(AttachedStores::new(shared()));
        let cores = std::thread::available_parallelism().map_or(2, NonZero::get);
        let pages = Arc::new(FairSlots::new(PAGES_AT_ONCE, PAGES_PER_TENANT));
        let indexer = Indexer::new(shared(), Arc::clone(&contents));
        let eraser = Eraser::new(shared());

        let replica = Replica::new(
            shared(),
            options.role,
            access.clone(),
            Arc::clone(&key_uses),
            Arc::clone(&activity),
        );
        let sign_ins = SignIns::new(shared(), secrets.clone(), Arc::clone(&options.issuers));
        let tokens = Tokens::new(shared(), secrets, options.token_key_period);
        let auth = Auth::new(
            &context,
            &replica,
            key_uses,
            tokens.clone(),
            Arc::clone(&attached),
            Arc::clone(&activity),
            options.issuers,
        );
        let calls = IdempotentCalls::new(shared());
        let stores = Stores::new(shared());
        let search = Search::new(
            shared(),
            Arc::clone(&contents),
            access.clone(),
            indexer.clone(),
            options.search_cache_bytes,
        );
        let sessions =
            Sessions::new(shared(), tokens.clone(), attached, Arc::clone(&activity), Arc::clone(&pages));
        let events = SessionEvents::new(shared(), sessions.clone(), Arc::clone(&activity));
        let tool_changes = ToolChanges::new(
            shared(),
            Arc::clone(&contents),
            Arc::clone(&writer),
            access.clone(),
            calls.clone(),
        );
        let tool_services = ToolServices {
            context: shared(),
            contents: Arc::clone(&contents),
            access: access.clone(),
            stores: stores.clone(),
            changes: tool_changes,
        };
        let jobs = Jobs::new(JobServices {
            context: shared(),
            eraser: eraser.clone(),
            replica: replica.clone(),
            tokens: tokens.clone(),
            indexer,
            request_deadline: options.request_deadline,
            audit_retention: options.audit_retention,
        });
        let memories = Memories::new(shared(), Arc::clone(&contents), writer, access.clone(), pages);
        let archive_slots = || Arc::new(FairSlots::new(cores.max(2), 1));
        Self(Arc::new(Services {
            exports: Exports::new(shared(), Arc::clone(&contents), archive_slots()),
            imports: Imports::new(shared(), memories.clone(), stores.clone(), archive_slots()),
            memories,
            page_slots: FairSlots::new(cores * PAGES_PER_CORE, cores / 2),
            computations: context.computations.clone(),
            versions: Versions::new(shared(), contents),
            changes: Changes::new(shared()),
            tools: Tools::new(tool_services, search.clone(), events.clone()),
            attachments: Attachments::new(shared(), sessions.clone()),
            usage: Usage::new(shared(), stores.clone(), access),
            erasures: Erasures::new(shared(), activity, eraser),
            manual_jobs: ManualJobs::new(jobs.clone(), stopping.clone()),
            tenants: Tenants::new(shared()),
            health: Health::new(shared(), replica.clone()),
            verifier: Verifier::new(shared()),
            stores,
            search,
            prompts: Prompts::new(shared()),
            sessions,
            events,
            keys: ApiKeys::new(shared()),
            audit: Audit::new(shared()),
            auth,
            tokens,
            sign_ins,
            calls,
            jobs,
            replica,
            context,
            stopping,
        }))
    }

    /// Creates or reads every secret, so that none is missing later.
    #[tracing::instrument(name = "engine.prepare_secrets", level = "debug", skip_all)]
    pub async fn prepare_secrets(&self) -> Result<(), EngineError> {
        self.context.cursors.key().await?;
        self.tokens.keys(None).await?;
        self.sign_ins.prepare().await?;
        Ok(())
    }

    /// The limits of a tenant without its own limits.
    pub fn default_limits(&self) -> &Limits {
        &self.context.limits
    }

    pub fn metrics(&self) -> &Metrics {
        &self.context.metrics
    }

    pub fn now(&self) -> Timestamp {
        self.context.now()
    }

    /// For an object of an API surface, such as a request.
    pub fn new_uuid(&self) -> Uuid {
        self.context.new_uuid()
    }

    /// Waits for running writes, at most `deadline`, then writes the access
    /// times and marks this replica as gone, which takes at most
    /// [`LAST_WRITES`].
    ///
    /// No operation may start after this call. Returns whether all writes ended
    /// in time.
    pub async fn shut_down(&self, deadline: Duration) -> bool {
        self.stopping.cancel();
        let writes = &self.context.writes;
        writes.close();
        let ended = tokio::time::timeout(deadline, writes.wait()).await.is_ok();
        let last = tokio::time::timeout(LAST_WRITES, self.replica.retire()).await;
        if let Err(error) = last.unwrap_or_else(|_| Err(IndexError::timed_out(LAST_WRITES))) {
            tracing::warn!(error = %error, "engine.flush_access failed at shutdown: the last minute's reads are lost");
        }
        ended
    }
}
