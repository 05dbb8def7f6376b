//! The operations of Keepsake, one method each, and the commit protocol.
//!
//! [`Engine`] connects the API surfaces (now HTTP) with the two stores: the
//! index, which records what exists, and the blob store, which holds the
//! content. It does not depend on HTTP. `write` is the one way to change
//! memories; the tools, the API and restorations supply only the decision.
//!
//! Content is written to the blob store first and to the index second. A write
//! is acknowledged only after the index has it. Every change runs to its end in
//! a separate task: when the client disconnects, only the answer is lost.

mod access;
mod audit;
mod auth;
mod blob_move;
pub mod clock;
mod content;
mod context;
mod cursor;
mod erasures;
mod error;
mod fair;
mod idempotency;
mod index_blobs;
pub mod jobs;
mod key_use;
mod memories;
mod mounts;
mod operator;
mod purge;
mod readiness;
mod replicas;
mod search;
mod secrets;
mod sessions;
mod shares;
mod signing;
mod stores;
mod tool;
mod usage;
mod verify;
mod versions;
mod work;
mod write;

use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use keepsake_blobs::{BlobStore, MeasuredBlobs};
use keepsake_core::sensitive::Scanner;
use keepsake_core::{Limits, Timestamp};
use keepsake_index::{DiskState, Index, IndexError};
use keepsake_telemetry::{Cache, Metrics};
use keepsake_tokens::{Issuers, Vault};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use uuid::Uuid;

use content::Contents;
use context::Context;
use write::Writer;

pub use audit::AuditQuery;
pub use auth::Principal;
pub use blob_move::{BlobMove, Moved};
pub use clock::{Clock, IdSource, ManualClock, RandomIds, SystemClock};
pub use cursor::{Page, PageRequest};
pub use erasures::ErasureRequest;
pub use error::EngineError;
pub use index_blobs::IndexBlobs;
pub use memories::{
    MemoryEdit, MemoryQuery, NewMemory, OnTaken, Precondition, Receipt, Restoration, ShownItem, ShownMemory,
    View,
};
pub use mounts::{Mounted, Mounts};
pub use operator::{
    JobState, KeyDraft, MadeKey, NewKey, NewTenant, Operator, TenantEdit, TenantQuery, UsageReport, limits_of,
};
pub use purge::RedactedVersion;
pub use readiness::{Readiness, StoreHealth};
pub use search::{SearchHit, SearchQuery};
pub use sessions::{
    AttachmentDraft, AttachmentEdit, EventQuery, MadeSession, SessionDraft, SessionEdit, SessionQuery,
    mount_path, system_prompt,
};
pub use shares::{FairShares, Share};
pub use signing::{NewToken, RotatedKey, Rotation};
pub use stores::{StoreDraft, StoreEdit, StoreQuery};
pub use tool::{MEMORY_TOOL, ToolAnswer, ToolCall};
pub use usage::{MemoryUse, StoreUsageReport};
pub use verify::{Problem, Progress, Verification};
pub use versions::{ShownVersion, VersionQuery};
pub use work::{Held, holding};

/// The configuration of an engine.
#[derive(Debug, Clone)]
pub struct EngineOptions {
    /// Limits of a tenant without its own limits.
    pub limits: Limits,
    /// Finds sensitive data, for all tenants.
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
    /// Time limit of a request.
    pub request_deadline: Duration,
    /// How long a blob is kept after the rows that named it, unless it was
    /// redacted or erased.
    pub blob_deletion_delay: Duration,
    /// Retention of the tenants' audits.
    pub audit_retention: Duration,
    /// The metrics to record to.
    pub metrics: Metrics,
    /// The source of time.
    pub clock: Arc<dyn Clock>,
    /// The source of randomness.
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

/// Serves every operation; cheap to clone.
#[derive(Debug, Clone)]
pub struct Engine(Arc<Parts>);

#[derive(Debug)]
struct Parts {
    context: Arc<Context>,
    limits: Limits,
    role: &'static str,
    keys: auth::keys::Keys,
    tokens: auth::tokens::Tokens,
    signing: signing::Keys,
    vault: Vault,
    token_key_period: Duration,
    request_deadline: Duration,
    blob_deletion_delay: Duration,
    audit_retention: Duration,
    cursors: cursor::Key,
    contents: Arc<Contents>,
    writer: Writer,
    searched: search::Cache,
    access: Arc<access::Log>,
    gateways: replicas::Gateways,
    readiness: readiness::Last,
    /// Whether the index's disk accepts writes.
    disk: Arc<DiskState>,
    key_use: key_use::Log,
    attached: auth::sessions::Sessions,
    sessions: sessions::Activity,
    /// Slots for building pages with content or sessions, which may be large.
    large_pages: fair::FairSlots,
    erasures: jobs::ErasureQueue,
    /// Cancelled at shutdown, which stops manual runs of jobs.
    stopping: CancellationToken,
}

impl Deref for Parts {
    type Target = Context;

    fn deref(&self) -> &Context {
        &self.context
    }
}

impl Engine {
    /// Creates an engine. Without `blobs`, content is in the index.
    pub fn new(index: Index, blobs: Option<Arc<dyn BlobStore>>, options: EngineOptions) -> Self {
        let now = options.clock.now();
        let metrics = options.metrics;
        let index = index.measured(metrics.clone());
        let access = Arc::new(access::Log::new(now));
        access.tell_lag(&metrics, Arc::clone(&options.clock));
        let disk = Arc::clone(index.disk());
        let context = Arc::new(Context {
            has_content_in_index: blobs.is_none(),
            blobs: Arc::new(MeasuredBlobs::new(
                blobs.unwrap_or_else(|| Arc::new(IndexBlobs::new(index.clone()))),
                metrics.clone(),
            )),
            index,
            scanner: options.scanner,
            metrics,
            replica: options.ids.uuid(now),
            clock: options.clock,
            ids: options.ids,
            writes: TaskTracker::new(),
        });
        let contents = Arc::new(Contents::new(Arc::clone(&context), options.cache_bytes));
        let engine = Self(Arc::new(Parts {
            disk,
            writer: Writer::new(Arc::clone(&context), Arc::clone(&contents)),
            contents,
            context,
            keys: auth::keys::Keys::new(),
            tokens: auth::tokens::Tokens::new(options.issuers),
            signing: signing::Keys::default(),
            vault: options.vault,
            token_key_period: options.token_key_period,
            request_deadline: options.request_deadline,
            blob_deletion_delay: options.blob_deletion_delay,
            audit_retention: options.audit_retention,
            cursors: cursor::Key::default(),
            searched: search::Cache::new(options.search_cache_bytes),
            access,
            gateways: replicas::Gateways::default(),
            readiness: readiness::Last::default(),
            key_use: key_use::Log::default(),
            attached: auth::sessions::Sessions::new(),
            sessions: sessions::Activity::default(),
            large_pages: fair::FairSlots::new(sessions::PAGES_AT_ONCE, sessions::PAGES_PER_TENANT),
            erasures: jobs::ErasureQueue::default(),
            stopping: CancellationToken::new(),
            limits: options.limits,
            role: options.role,
        }));
        engine.tell_cache_sizes();
        engine
    }

    /// Registers the cache sizes as metrics for as long as this engine exists.
    fn tell_cache_sizes(&self) {
        let watch = |cache, size_bytes: fn(&Parts) -> u64| {
            let parts = Arc::downgrade(&self.0);
            let size_bytes = move || Some(size_bytes(&*parts.upgrade()?));
            self.0.metrics.watch_cache_size(cache, size_bytes);
        };
        watch(Cache::Content, |parts| parts.contents.size_bytes());
        watch(Cache::Search, |parts| parts.searched.size_bytes());
    }

    /// The operations of the operator on tenants and their keys. The audit
    /// records them as commands with access to the database; see
    /// [`Operator::with_token`].
    pub fn operator(&self) -> Operator<'_> {
        Operator::new(self)
    }

    /// The limits of a tenant without its own limits.
    pub fn default_limits(&self) -> &Limits {
        &self.0.limits
    }

    /// The metrics to record to.
    pub fn metrics(&self) -> &Metrics {
        &self.0.metrics
    }

    /// Makes an id for an object of an API surface, such as a request.
    pub fn new_uuid(&self) -> Uuid {
        self.0.new_uuid()
    }

    /// Waits for running writes, at most `deadline`, then writes the access
    /// times and marks this replica as gone, which takes at most
    /// [`LAST_WRITES`].
    ///
    /// No operation may start after this call. Returns whether all writes ended
    /// in time.
    pub async fn shut_down(&self, deadline: Duration) -> bool {
        self.0.stopping.cancel();
        self.0.writes.close();
        let ended = tokio::time::timeout(deadline, self.0.writes.wait()).await.is_ok();
        let last = async {
            self.flush_access().await?;
            // Last, because other replicas wait for this replica's access times
            // until then.
            self.0.index.replicas.retire(self.0.replica).await
        };
        let last = tokio::time::timeout(LAST_WRITES, last).await;
        if let Err(error) = last.unwrap_or_else(|_| Err(IndexError::timed_out(LAST_WRITES))) {
            tracing::warn!(error = %error, "engine.flush_access failed at shutdown: the last minute's reads are lost");
        }
        ended
    }

    /// The earliest removal time of a blob that no row names any longer.
    fn blobs_go_from(&self, now: Timestamp) -> Timestamp {
        now.plus(self.0.blob_deletion_delay)
    }

    fn now(&self) -> Timestamp {
        self.0.clock.now()
    }
}
