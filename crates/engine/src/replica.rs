//! This replica among the others: its heartbeat, its flushes, and the number of
//! live gateways.
//!
//! Before another replica expires memories, it waits for the reads that this
//! replica has not written. It stops waiting soon after this replica's last
//! heartbeat. So this replica refuses credentials when its last successful
//! heartbeat is too old by its clock, no matter whether later heartbeats
//! failed, hang, or were never sent.
//!
//! Once a replica finds that `keepsake blobs move` removes originals, it sends no
//! heartbeat, runs no job and refuses credentials until it is started again.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use keepsake_core::Timestamp;
use keepsake_index::{FORGOTTEN_AFTER, Index, IndexError, LIVES_FOR};
use parking_lot::Mutex;

use crate::EngineError;
use crate::access::{AccessTimes, FLUSH_TIMEOUT, within};
use crate::activity::Activity;
use crate::context::Context;
use crate::use_log::KeyUses;

/// The name of the lease of `keepsake blobs move`, among the leases of the jobs.
pub(crate) const MOVE: &str = "move-blobs";
/// How long that lease lasts after each check. A move that was killed keeps servers from
/// starting, and moves from continuing, until the lease ends.
pub(crate) const MOVE_LEASE: Duration = Duration::from_mins(2);

const HEARTBEAT_TIMEOUT: Duration = Duration::from_secs(8);
/// Time limit of a heartbeat that a request waits for.
const URGENT_HEARTBEAT_TIMEOUT: Duration = Duration::from_secs(2);

#[derive(Debug, Clone)]
pub struct Replica {
    context: Arc<Context>,
    /// The role of this process, as recorded in its heartbeat.
    role: &'static str,
    access: AccessTimes,
    key_uses: Arc<KeyUses>,
    activity: Arc<Activity>,
    state: Arc<State>,
}

#[derive(Debug, Default)]
struct State {
    /// When the last successful heartbeat was sent: by the system clock, which other replicas
    /// compare with theirs, and by the monotonic clock.
    heartbeat_at: Mutex<Option<(Timestamp, Instant)>>,
    /// When the last heartbeat that a request waited for ended.
    urgent_heartbeat: tokio::sync::Mutex<Option<Instant>>,
    /// Whether a heartbeat met the fence of `keepsake blobs move`.
    is_fenced_off: AtomicBool,
    /// The last count of live gateways.
    gateways: AtomicU32,
}

impl Replica {
    pub(crate) fn new(
        context: Arc<Context>,
        role: &'static str,
        access: AccessTimes,
        key_uses: Arc<KeyUses>,
        activity: Arc<Activity>,
    ) -> Self {
        Self { context, role, access, key_uses, activity, state: Arc::default() }
    }

    /// Writes the noted reads, this replica's heartbeat, and the use of API keys; then
    /// empties SQLite's log, if it may hold removed rows. Each part has a time limit.
    ///
    /// Returns the number of memories whose access times were written. Access times that
    /// could not be written are kept for the next flush. The heartbeat is sent in any
    /// case and does not report them as written.
    #[tracing::instrument(name = "engine.flush_access", level = "debug", skip_all)]
    pub async fn flush(&self) -> Result<usize, IndexError> {
        let written = self.access.write().await;
        // Sent also after a failed write: other replicas must wait for the reads noted
        // here.
        within(HEARTBEAT_TIMEOUT, self.heartbeat()).await?;
        let written = written?;
        // Written last, because no expiry depends on the use of API keys.
        within(FLUSH_TIMEOUT, self.write_key_uses()).await?;
        if let Err(error) = within(FLUSH_TIMEOUT, self.activity.write_events()).await {
            tracing::warn!(error = %error, "engine.write_events failed; tried again at the next tick");
        }
        let empty = self.context.index.erasures.empty_log_of_removals();
        match within(FLUSH_TIMEOUT, empty).await {
            Ok(true) => {}
            Ok(false) => tracing::debug!("engine.empty_log waits for a reader; tried again at the next tick"),
            Err(error) => {
                tracing::warn!(error = %error, "engine.empty_log failed; tried again at the next tick");
            }
        }
        Ok(written)
    }

    async fn write_key_uses(&self) -> Result<(), IndexError> {
        let mut uses = self.key_uses.take(&*self.context.clock);
        while let Some(batch) = uses.batch() {
            self.context.index.access_times.flush_keys(batch).await?;
            uses.note_written();
        }
        Ok(())
    }

    /// Records that this replica is alive, and up to which time its reads are written.
    /// While content is being moved, it only notes the move.
    pub(crate) async fn heartbeat(&self) -> Result<(), IndexError> {
        let (context, now, sent_at) = (&self.context, self.context.now(), Instant::now());
        // Checked before the heartbeat, so that a replica that may not serve does not
        // stop the move.
        if self.look_for_fence(now).await? {
            return Ok(());
        }
        // A flush advances this only after its writes succeeded.
        let flushed_through = self.access.flushed_through();
        let replicas = &context.index.replicas;
        replicas.beat(context.replica, self.role, now, flushed_through).await?;
        // Checked after the heartbeat too, because a move that began in between may not
        // have seen the heartbeat.
        if self.look_for_fence(now).await? {
            return Ok(());
        }
        let mut heartbeat_at = self.state.heartbeat_at.lock();
        if heartbeat_at.is_none_or(|(_, before)| before < sent_at) {
            *heartbeat_at = Some((now, sent_at));
        }
        Ok(())
    }

    /// Whether this replica met the fence of `keepsake blobs move`, now or before. Then
    /// the content may have moved, and only a restart reads its new place.
    async fn look_for_fence(&self, now: Timestamp) -> Result<bool, IndexError> {
        let is_up = self.is_fenced_off() || is_fence_up(&self.context.index, now).await?;
        if is_up && !self.state.is_fenced_off.swap(true, Ordering::AcqRel) {
            tracing::error!("engine.replica: content was moved: this server serves nothing until a restart");
        }
        Ok(is_up)
    }

    pub(crate) fn is_fenced_off(&self) -> bool {
        self.state.is_fenced_off.load(Ordering::Acquire)
    }

    /// Whether this replica may serve, after its first heartbeat: not while
    /// `keepsake blobs move` removes originals.
    ///
    /// `true` also when the database does not answer: then the replica refuses
    /// credentials until a heartbeat succeeds.
    pub async fn may_serve(&self) -> bool {
        self.end_cut_off().await;
        !self.is_fenced_off()
    }

    /// Whether other replicas may soon stop waiting for this replica's
    /// unwritten reads, and expire memories that it serves, or content is being
    /// moved. Always false for an index of a single process, which writes its
    /// reads before it expires memories.
    pub(crate) fn is_cut_off(&self) -> bool {
        if !self.context.index.is_shared() {
            return false;
        }
        if self.is_fenced_off() {
            return true;
        }
        let Some((at, sent_at)) = *self.state.heartbeat_at.lock() else {
            return true;
        };
        let now = self.context.now();
        // After the clock was set back, the heartbeat's time is in the future and does
        // not count.
        let is_valid = at <= now.plus(LIVES_FOR) && now < at.plus(FORGOTTEN_AFTER / 2);
        !is_valid || sent_at.elapsed() >= FORGOTTEN_AFTER / 2
    }

    /// The time since this replica last wrote its reads and sent its heartbeat.
    pub(crate) fn upkeep_age(&self) -> Duration {
        let heartbeat_at = self.state.heartbeat_at.lock().map(|(_, sent_at)| sent_at.elapsed());
        self.access.lag().max(heartbeat_at.unwrap_or_default())
    }

    /// Sends a heartbeat at once when the last one is too old, as after an
    /// outage, or when content was being moved.
    pub(crate) async fn end_cut_off(&self) {
        if !self.is_cut_off() || self.is_fenced_off() {
            return;
        }
        let asked_at = Instant::now();
        // Concurrent requests share one attempt.
        let mut ended_at = self.state.urgent_heartbeat.lock().await;
        if ended_at.is_some_and(|ended_at| asked_at < ended_at) {
            return;
        }
        if let Err(error) = within(URGENT_HEARTBEAT_TIMEOUT, self.heartbeat()).await {
            tracing::warn!(error = %error, "engine.heartbeat failed: no reads are served until one succeeds");
        }
        *ended_at = Some(Instant::now());
    }

    /// Checks that other replicas wait for reads of this replica before they expire
    /// memories, and that no content is being moved.
    pub(crate) async fn require_heartbeat(&self) -> Result<(), EngineError> {
        self.end_cut_off().await;
        if self.is_cut_off() {
            return Err(EngineError::CutOff);
        }
        Ok(())
    }

    /// The last count of live gateways, including this one.
    pub fn gateways(&self) -> u32 {
        self.state.gateways.load(Ordering::Relaxed).max(1)
    }

    /// Counts the live gateways. After an error, which is logged, the previous count stays.
    ///
    /// An index of a single process has no other gateway: the heartbeat of another one is that of a process
    /// that crashed, or comes from the backup that was restored.
    pub(crate) async fn count_gateways(&self) {
        if !self.context.index.is_shared() {
            return;
        }
        let (replicas, now) = (&self.context.index.replicas, self.context.now());
        match replicas.live_gateways(now).await {
            Ok(counted) => {
                let before = self.state.gateways.swap(counted, Ordering::Relaxed);
                if before != counted {
                    tracing::info!(
                        gateways = counted,
                        "engine.count_gateways: each takes its share of a rate"
                    );
                }
            }
            Err(error) => {
                tracing::warn!(error = %error, "engine.count_gateways failed; tried again at the next tick");
            }
        }
    }

    pub(crate) async fn announce(&self) {
        if let Err(error) = self.flush().await {
            tracing::warn!(error = %error, "engine.announce failed; tried again at the next tick");
        }
        self.count_gateways().await;
    }

    /// Marks this replica as gone, so that others no longer wait for its access
    /// times.
    pub(crate) async fn retire(&self) -> Result<(), IndexError> {
        self.flush().await?;
        self.context.index.replicas.retire(self.context.replica).await
    }
}

/// Whether a move keeps servers from starting.
async fn is_fence_up(index: &Index, now: Timestamp) -> Result<bool, IndexError> {
    // On SQLite, this process has the file's lock: a lease there belongs to a move that
    // was killed.
    Ok(index.is_shared() && index.job_runs.is_claimed(MOVE, now, MOVE_LEASE).await?)
}
