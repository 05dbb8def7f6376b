//! Replicas of the server: their heartbeats, and how far each has written its reads.

use std::collections::HashMap;
use std::time::Duration;

use keepsake_core::Timestamp;
use uuid::Uuid;

use crate::IndexError;
use crate::database::{Database, Role};

const BEAT: &str = "INSERT INTO replica (id, role, heartbeat_at, access_flushed_through) VALUES ($1, $2, $3, $4) \
    ON CONFLICT (id) DO UPDATE SET heartbeat_at = excluded.heartbeat_at, \
    access_flushed_through = excluded.access_flushed_through";

const RETIRE: &str = "DELETE FROM replica WHERE id = $1";

const HEARTBEATS: &str = "SELECT id, heartbeat_at FROM replica";

/// How far the other replicas with a heartbeat since `$1` have written their reads, and the
/// last heartbeat of the silent ones. Workers show no content, so a worker that died lost no reads.
const OTHERS_FLUSHED: &str = "SELECT min(CASE WHEN heartbeat_at > $1 THEN access_flushed_through END) AS through, \
        max(CASE WHEN heartbeat_at <= $1 AND role IN ('all', 'gateway') THEN heartbeat_at END) AS forgotten \
    FROM replica WHERE id <> $2";

/// A heartbeat after `$2` was sent by a clock that was ahead.
const COUNT_GATEWAYS: &str = "SELECT count(*) FROM replica WHERE role IN ('all', 'gateway') AND heartbeat_at > $1 AND heartbeat_at <= $2";

/// How long a replica counts as live after a heartbeat: three of them, which come
/// every half minute.
pub const LIVES_FOR: Duration = Duration::from_secs(90);

/// How long expiry and lists of readers wait for the unwritten reads of a replica that sends
/// no heartbeat and has not retired; longer than network failures usually last. A replica of
/// a shared index shows nothing from half of this time on.
pub const FORGOTTEN_AFTER: Duration = Duration::from_mins(10);

/// How far the other replicas have written their reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OthersFlushed {
    /// Reads before this time are written, or lost; `None`: no other replica lives.
    pub through: Option<Timestamp>,
    /// Reads from before this time may be lost; `None`: no other replica has died.
    pub lost_before: Option<Timestamp>,
}

#[derive(Debug, Clone)]
pub struct Replicas(pub(crate) Database);

impl Replicas {
    /// Records that a replica lives, and how far its access times are written.
    pub async fn beat(
        &self,
        replica: Uuid,
        role: &str,
        now: Timestamp,
        access_flushed_through: Timestamp,
    ) -> Result<(), IndexError> {
        let values = (replica, role, now, access_flushed_through);
        self.0.change("heartbeat", Role::Shared(None), BEAT, values).await?;
        self.0.disk().took_write();
        Ok(())
    }

    /// Records that a replica has ended and has written all its access times.
    pub async fn retire(&self, replica: Uuid) -> Result<(), IndexError> {
        self.0.change("retire", Role::Shared(None), RETIRE, replica).await.map(drop)
    }

    /// The last heartbeat of each replica, workers included, that has not retired.
    pub async fn heartbeats(&self) -> Result<HashMap<Uuid, Timestamp>, IndexError> {
        let rows: Vec<(Uuid, Timestamp)> =
            self.0.all("heartbeats", Role::Shared(None), HEARTBEATS, ()).await?;
        Ok(rows.into_iter().collect())
    }

    /// How far every other replica has written its reads. The unwritten reads of a replica that
    /// sends no heartbeat for [`FORGOTTEN_AFTER`] and has not retired count as lost, unless it
    /// returns.
    pub async fn others_flushed(&self, replica: Uuid, now: Timestamp) -> Result<OthersFlushed, IndexError> {
        let values = (now.minus(FORGOTTEN_AFTER), replica);
        let (through, forgotten): (_, Option<Timestamp>) =
            self.0.one("others_flushed", Role::Shared(None), OTHERS_FLUSHED, values).await?;
        let lost_before = forgotten.map(|heartbeat_at| heartbeat_at.plus(FORGOTTEN_AFTER));
        Ok(OthersFlushed { through, lost_before })
    }

    /// How many replicas that serve requests had a heartbeat within [`LIVES_FOR`].
    pub async fn live_gateways(&self, now: Timestamp) -> Result<u32, IndexError> {
        let values = (now.minus(LIVES_FOR), now.plus(LIVES_FOR));
        self.0.scalar("live_gateways", Role::Shared(None), COUNT_GATEWAYS, values).await
    }
}
