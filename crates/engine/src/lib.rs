//! What Keepsake does: one method per operation, and the commit protocol.
//!
//! [`Engine`] stands between the surfaces (HTTP today) and the two stores: the
//! index, which says what exists, and the blobs, which hold it. It knows no
//! HTTP. The way of a change:
//!
//! 1. `tool` reads the head and its content, and applies a pure edit.
//! 2. `protocol` puts the new content under a new key, then commits.
//! 3. A commit that lost a race is tried again from a fresh read.
//!
//! Content goes to the blob store first and to the index second, and a write
//! is acknowledged only after the index has it. Every change runs to its end
//! in a task of its own: a client that goes away cancels the answer alone.

mod access;
mod audit;
mod auth;
mod claims;
pub mod clock;
mod content;
mod cursor;
mod edits;
mod erasures;
mod error;
mod fair;
mod idempotency;
pub mod jobs;
mod key_use;
mod memories;
mod mounts;
mod operator;
mod protocol;
mod purge;
mod readiness;
mod replicas;
mod search;
mod secrets;
mod sensitive;
mod sessions;
mod shares;
mod signing;
mod stores;
mod tool;
mod usage;
mod verify;
mod versions;
mod work;

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

pub use audit::AuditQuery;
pub use auth::Principal;
pub use clock::{Clock, IdSource, ManualClock, RandomIds, SystemClock};
pub use cursor::{Page, PageRequest};
pub use erasures::ErasureRequest;
pub use error::EngineError;
pub use memories::{
    MemoryEdit, MemoryQuery, NewMemory, OnTaken, Precondition, Receipt, ShownItem, ShownMemory, View,
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
pub use versions::{Restoration, ShownVersion, VersionQuery};
pub use work::{Held, holding};

/// What an engine is made with.
#[derive(Debug, Clone)]
pub struct EngineOptions {
    /// Limits of a tenant that has none of its own.
    pub limits: Limits,
    /// What finds sensitive data, for all tenants.
    pub scanner: Scanner,
    /// Bytes of content kept in memory, for all tenants together.
    pub cache_bytes: u64,
    /// Bytes of search indexes kept in memory, for all tenants together.
    pub search_cache_bytes: u64,
    /// What this process does, as its heartbeat tells.
    pub role: &'static str,
    /// Whose tokens are taken beside the server's own.
    pub issuers: Arc<Issuers>,
    /// What wraps the secrets that the index keeps.
    pub vault: Vault,
    /// How long a key signs tokens before the next does.
    pub token_key_period: Duration,
    /// How long a request may take.
    pub request_deadline: Duration,
    /// How long blobs stay after the rows that named them, except where they
    /// were redacted or erased.
    pub blob_deletion_delay: Duration,
    /// How long the tenants' audits are kept.
    pub audit_retention: Duration,
    /// Where what is measured is recorded.
    pub metrics: Metrics,
    /// Where time comes from.
    pub clock: Arc<dyn Clock>,
    /// Where randomness comes from.
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

/// How long the last access times may take on their way to the index.
pub const LAST_WRITES: Duration = Duration::from_secs(2);

/// Serves every operation; cheap to clone.
#[derive(Debug, Clone)]
pub struct Engine(Arc<Parts>);

#[derive(Debug)]
struct Parts {
    index: Index,
    blobs: Arc<dyn BlobStore>,
    limits: Limits,
    scanner: Scanner,
    role: &'static str,
    metrics: Metrics,
    clock: Arc<dyn Clock>,
    ids: Arc<dyn IdSource>,
    /// This process, as leases and claims name it.
    replica: Uuid,
    keys: auth::keys::Keys,
    tokens: auth::tokens::Tokens,
    signing: signing::Keys,
    vault: Vault,
    token_key_period: Duration,
    request_deadline: Duration,
    blob_deletion_delay: Duration,
    audit_retention: Duration,
    cursors: cursor::Key,
    contents: content::Cache,
    searched: search::Cache,
    edits: edits::Queue,
    access: Arc<access::Log>,
    gateways: replicas::Gateways,
    readiness: readiness::Last,
    /// Whether the index's disk takes writes.
    disk: Arc<DiskState>,
    key_use: key_use::Log,
    attached: auth::sessions::Sessions,
    sessions: sessions::Activity,
    /// Pages of sessions, which may be large, that are being built.
    large_pages: fair::FairSlots,
    erasures: jobs::ErasureQueue,
    /// Writes under way: shutting down waits for them.
    writes: TaskTracker,
    /// Cancelled when shutting down: a run of a job that was asked for stops.
    stopping: CancellationToken,
}

impl Engine {
    /// Puts an engine together.
    pub fn new(index: Index, blobs: Arc<dyn BlobStore>, options: EngineOptions) -> Self {
        let now = options.clock.now();
        let metrics = options.metrics;
        let index = index.measured(metrics.clone());
        let access = Arc::new(access::Log::new(now));
        access.tell_lag(&metrics, Arc::clone(&options.clock));
        let engine = Self(Arc::new(Parts {
            disk: Arc::clone(index.disk()),
            index,
            blobs: Arc::new(MeasuredBlobs::new(blobs, metrics.clone())),
            metrics,
            replica: options.ids.uuid(now),
            keys: auth::keys::Keys::new(),
            tokens: auth::tokens::Tokens::new(options.issuers),
            signing: signing::Keys::default(),
            vault: options.vault,
            token_key_period: options.token_key_period,
            request_deadline: options.request_deadline,
            blob_deletion_delay: options.blob_deletion_delay,
            audit_retention: options.audit_retention,
            cursors: cursor::Key::default(),
            contents: content::Cache::new(options.cache_bytes),
            searched: search::Cache::new(options.search_cache_bytes),
            edits: edits::Queue::default(),
            access,
            gateways: replicas::Gateways::default(),
            readiness: readiness::Last::default(),
            key_use: key_use::Log::default(),
            attached: auth::sessions::Sessions::new(),
            sessions: sessions::Activity::default(),
            large_pages: fair::FairSlots::new(sessions::PAGES_AT_ONCE, sessions::PAGES_PER_TENANT),
            erasures: jobs::ErasureQueue::default(),
            writes: TaskTracker::new(),
            stopping: CancellationToken::new(),
            limits: options.limits,
            scanner: options.scanner,
            role: options.role,
            clock: options.clock,
            ids: options.ids,
        }));
        engine.tell_cache_sizes();
        engine
    }

    /// Has the metrics tell what the caches hold, while this is there.
    fn tell_cache_sizes(&self) {
        let watch = |cache, size_bytes: fn(&Parts) -> u64| {
            let parts = Arc::downgrade(&self.0);
            let size_bytes = move || Some(size_bytes(&*parts.upgrade()?));
            self.0.metrics.watch_cache_size(cache, size_bytes);
        };
        watch(Cache::Content, |parts| parts.contents.size_bytes());
        watch(Cache::Search, |parts| parts.searched.size_bytes());
    }

    /// The operator's side: tenants and their keys, as the audit names a command
    /// that has the database; see [`Operator::with_token`].
    pub fn operator(&self) -> Operator<'_> {
        Operator::new(self)
    }

    /// The limits of a tenant that has none of its own.
    pub fn default_limits(&self) -> &Limits {
        &self.0.limits
    }

    /// Where what is measured is recorded.
    pub fn metrics(&self) -> &Metrics {
        &self.0.metrics
    }

    /// A fresh id, for what a surface must name itself (a request).
    pub fn new_uuid(&self) -> Uuid {
        self.0.ids.uuid(self.now())
    }

    /// Waits for writes under way, at most `deadline`, writes access times, and
    /// tells the others that this replica is gone, which takes [`LAST_WRITES`] at
    /// most.
    ///
    /// No new operation may be begun. Answers whether all writes ended in time.
    pub async fn shut_down(&self, deadline: Duration) -> bool {
        self.0.stopping.cancel();
        self.0.writes.close();
        let ended = tokio::time::timeout(deadline, self.0.writes.wait()).await.is_ok();
        let last = async {
            self.flush_access().await?;
            // Only now: until then its access times are waited for.
            self.0.index.replicas.retire(self.0.replica).await
        };
        let last = tokio::time::timeout(LAST_WRITES, last).await;
        if let Err(error) = last.unwrap_or_else(|_| Err(IndexError::timed_out(LAST_WRITES))) {
            tracing::warn!(error = %error, "engine.flush_access failed at shutdown: the last minute's reads are lost");
        }
        ended
    }

    /// From when on a blob may be removed that no row names any more.
    fn blobs_go_from(&self, now: Timestamp) -> Timestamp {
        now.plus(self.0.blob_deletion_delay)
    }

    fn now(&self) -> Timestamp {
        self.0.clock.now()
    }
}
