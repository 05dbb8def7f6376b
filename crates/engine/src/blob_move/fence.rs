//! The fence of a move: it keeps servers from starting, and notices servers that start.
//!
//! The move first writes its lease and then reads the heartbeats. A server first writes
//! its heartbeat and then reads the lease ([`Replica`](crate::Replica)). So at least one
//! of them sees the other, and gives up. The lease has no effect on SQLite: there the
//! lock on the file keeps servers and the move apart.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use keepsake_core::Timestamp;
use keepsake_index::{Index, LIVES_FOR};
use parking_lot::Mutex;
use serde_json::Value;
use uuid::Uuid;

use super::MoveError;
use crate::replica::{MOVE, MOVE_LEASE};
use crate::{Clock, IdSource, RandomIds};

/// Age at which a check renews the lease, so that the lease does not end while an object
/// store is slow.
const RENEWED_AFTER: Duration = Duration::from_secs(30);

/// Keeps servers from starting while the originals of moved content are removed.
#[derive(Debug)]
pub struct MoveFence {
    index: Index,
    clock: Arc<dyn Clock>,
    began_at: Timestamp,
    fence: i64,
    /// When the lease was last renewed.
    held_at: Mutex<Instant>,
    /// The last heartbeats of servers that ended earlier without retiring.
    ended: HashMap<Uuid, Timestamp>,
}

impl MoveFence {
    /// From the return of this function on, no server starts.
    pub async fn put_up(index: Index, clock: Arc<dyn Clock>) -> Result<Self, MoveError> {
        let now = clock.now();
        // Checked before the claim, so that a refused move does not disturb the servers.
        require_ended(&index, now).await?;
        let owner = RandomIds.uuid(now);
        let claimed = index.job_runs.claim(MOVE, now, owner, now, now.plus(MOVE_LEASE));
        let Some(fence) = claimed.await? else {
            return Err(MoveError::AlreadyMoving);
        };
        // Checked after the claim too, because a server that started in between may not
        // have seen the lease.
        let ended = require_ended(&index, now).await;
        let mut fence = Self {
            index,
            clock,
            began_at: now,
            fence,
            held_at: Mutex::new(Instant::now()),
            ended: HashMap::new(),
        };
        match ended {
            Ok(ended) => {
                fence.ended = ended;
                Ok(fence)
            }
            Err(error) => {
                fence.take_down(&Value::Null, Some(&error)).await;
                Err(error)
            }
        }
    }

    /// Like [`Self::hold`], if the lease was last renewed at least 30 seconds ago.
    pub async fn hold_in_time(&self) -> Result<(), MoveError> {
        if self.held_at.lock().elapsed() < RENEWED_AFTER {
            return Ok(());
        }
        self.hold().await
    }

    /// Renews the lease, and checks that no server has started.
    ///
    /// Any new heartbeat counts, whatever its time: the clock of a server may be wrong.
    pub async fn hold(&self) -> Result<(), MoveError> {
        let (lease_until, began_at) = (self.clock.now().plus(MOVE_LEASE), Instant::now());
        let job_runs = &self.index.job_runs;
        if !job_runs.renew(MOVE, self.fence, lease_until, None).await? {
            return Err(MoveError::AlreadyMoving);
        }
        *self.held_at.lock() = began_at;
        let heartbeats = self.index.replicas.heartbeats().await?;
        let is_old = |(replica, at): (&Uuid, &Timestamp)| self.ended.get(replica) == Some(at);
        if heartbeats.iter().all(is_old) { Ok(()) } else { Err(MoveError::ServerStarted) }
    }

    /// Records what the move did. If that fails, the lease ends by itself.
    pub async fn take_down(self, counts: &Value, error: Option<&MoveError>) {
        let error = error.map(ToString::to_string);
        let (slot, ended_at) = (self.began_at, self.clock.now());
        let job_runs = &self.index.job_runs;
        let ended = job_runs.finish(MOVE, slot, self.fence, ended_at, counts, error.as_deref());
        if let Err(error) = ended.await {
            tracing::warn!(error = %error, "engine.move_blobs: servers can start in two minutes");
        }
    }
}

/// Checks that no server is running; returns the last heartbeats of servers that ended
/// without retiring.
async fn require_ended(index: &Index, now: Timestamp) -> Result<HashMap<Uuid, Timestamp>, MoveError> {
    let heartbeats = index.replicas.heartbeats().await?;
    // A later heartbeat was sent by a clock that was ahead. If its server lives, the next
    // heartbeat stops the move.
    let lives = now.minus(LIVES_FOR)..now.plus(LIVES_FOR);
    if heartbeats.values().any(|at| lives.contains(at)) {
        return Err(MoveError::Served);
    }
    Ok(heartbeats)
}
