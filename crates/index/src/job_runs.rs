//! Leases and records of scheduled jobs.

use std::time::Duration;

use keepsake_core::Timestamp;
use serde_json::{Value, json};
use sqlx::types::Json;
use uuid::Uuid;

use crate::IndexError;
use crate::audit::record_of_operator;
use crate::database::{Database, Role, from_row};
use crate::model::{AuditedAction, JobRun, RunPlace, RunTally, job_action};

/// A lease that ends after `$5` was taken by a clock that was ahead, and no longer
/// counts.
const TAKE_LEASE: &str = "INSERT INTO job AS j (name, owner, lease_until, fence) VALUES ($1, $2, $3, 1) \
    ON CONFLICT (name) DO UPDATE \
    SET owner = excluded.owner, lease_until = excluded.lease_until, fence = j.fence + 1 \
    WHERE j.owner IS NULL OR j.lease_until <= $4 OR j.lease_until > $5 RETURNING fence";

/// A slot is run again when its run never ended, or failed before `$6`.
const BEGIN_RUN: &str = "INSERT INTO job_run AS r (name, slot, started_at, owner, fence) VALUES ($1, $2, $3, $4, $5) \
    ON CONFLICT (name, slot) DO UPDATE \
    SET started_at = excluded.started_at, owner = excluded.owner, fence = excluded.fence, \
        ended_at = NULL, counts = NULL, error = NULL \
    WHERE r.ended_at IS NULL OR (r.error IS NOT NULL AND r.ended_at <= $6)";

const RENEW_LEASE: &str =
    "UPDATE job SET lease_until = $3, cursor = $4 WHERE name = $1 AND fence = $2 AND owner IS NOT NULL";

const RELEASE_LEASE: &str =
    "UPDATE job SET owner = NULL WHERE name = $1 AND fence = $2 AND owner IS NOT NULL";

const END_RUN: &str =
    "UPDATE job_run SET ended_at = $3, counts = $4, error = $5 WHERE name = $1 AND slot = $2";

const IS_CLAIMED: &str = "SELECT EXISTS (SELECT 1 FROM job WHERE name = $1 AND owner IS NOT NULL \
    AND lease_until > $2 AND lease_until <= $3)";

const CURSOR: &str = "SELECT cursor FROM job WHERE name = $1";

const NOTE_MANUAL: &str = "UPDATE job_run SET by_hand = true, is_dry_run = $3 WHERE name = $1 AND slot = $2";

const LIST: &str = "SELECT r.name AS job, r.slot, r.started_at, r.ended_at, \
        CASE WHEN r.ended_at IS NOT NULL THEN CASE WHEN r.error IS NULL THEN 'done' ELSE 'failed' END \
            WHEN j.owner IS NOT NULL AND j.fence = r.fence AND j.lease_until > $2 THEN 'running' \
            ELSE 'interrupted' END AS status, \
        CASE WHEN r.by_hand THEN 'operator' ELSE 'schedule' END AS reason, \
        r.is_dry_run, nullif(r.counts, 'null') AS counts, r.error \
    FROM job_run r LEFT JOIN job j ON j.name = r.name \
    WHERE r.name = $1 AND (r.started_at, r.slot) < ($3, $4) ORDER BY r.started_at DESC, r.slot DESC LIMIT $5 + 0";

/// The runs since `$2`, by job and by parts of `$3` microseconds.
const TALLY: &str = "SELECT r.name AS job, (r.started_at - $2) / $3 AS part, count(*) AS runs, \
        CAST(sum(CASE WHEN r.error IS NULL THEN 0 ELSE 1 END) AS bigint) AS failed, \
        CAST(sum(CASE WHEN r.ended_at IS NULL THEN 1 ELSE 0 END) AS bigint) AS open, \
        CAST(coalesce(max(r.ended_at - r.started_at), 0) AS bigint) AS longest_micros \
    FROM_TEXTS($1) EACH[job_run r: r.name = texts.text AND r.started_at >= $2] \
    GROUP BY 1, 2 ORDER BY 1, 2";

/// Delay before a failed run of the schedule is repeated.
pub const FAILED_RUN_DELAY: Duration = Duration::from_mins(5);

#[derive(Debug, Clone)]
pub struct JobRuns(pub(crate) Database);

from_row! {
    JobRun { job, slot, status, reason, is_dry_run, started_at, ended_at, counts, error .. r#type }
    RunTally { job, part, runs, failed, open, longest_micros }
}

impl JobRuns {
    /// Takes the lease of a job for one slot of its schedule.
    ///
    /// Returns the fence of the lease, higher than every earlier one, or `None` if
    /// another replica holds the lease or the slot's run has ended. A slot can be taken
    /// again if its run never ended (its owner died), or if its run failed at least
    /// [`FAILED_RUN_DELAY`] ago. A lease that ends later than twice its length from now
    /// was taken by a clock that was ahead, and can be taken.
    pub async fn claim(
        &self,
        job: &str,
        slot: Timestamp,
        owner: Uuid,
        now: Timestamp,
        lease_until: Timestamp,
    ) -> Result<Option<i64>, IndexError> {
        let mut tx = self.0.write("claim_run", Role::Shared(None)).await?;
        // Clocks of replicas may differ, but by less than the length of a lease.
        let length = Duration::from_micros(lease_until.as_micros().abs_diff(now.as_micros()));
        let implausible = lease_until.plus(length);
        let query = tx.query(TAKE_LEASE).bind((job, owner, lease_until, now));
        let query = query.bind(implausible);
        let fence: Option<i64> = query.optional_scalar().await?;
        let Some(fence) = fence else {
            return Ok(None);
        };
        let query = tx.query(BEGIN_RUN).bind((job, slot, now, owner, fence));
        let begun = query.bind(now.minus(FAILED_RUN_DELAY)).execute().await?;
        if begun == 0 {
            return Ok(None); // the slot was run: dropping the transaction gives the lease back
        }
        tx.commit().await?;
        Ok(Some(fence))
    }

    /// Extends a lease and stores the job's cursor; `false`: the lease was lost.
    pub async fn renew(
        &self,
        job: &str,
        fence: i64,
        lease_until: Timestamp,
        cursor: Option<&str>,
    ) -> Result<bool, IndexError> {
        let values = (job, fence, lease_until, cursor);
        Ok(self.0.change("renew_run", Role::Shared(None), RENEW_LEASE, values).await? > 0)
    }

    /// Ends a run, records its result, and releases its lease.
    ///
    /// Returns `false`, and records nothing, if the lease was lost.
    pub async fn finish(
        &self,
        job: &str,
        slot: Timestamp,
        fence: i64,
        ended_at: Timestamp,
        counts: &Value,
        error: Option<&str>,
    ) -> Result<bool, IndexError> {
        let mut tx = self.0.write("finish_run", Role::Shared(None)).await?;
        if tx.query(RELEASE_LEASE).bind((job, fence)).execute().await? == 0 {
            return Ok(false);
        }
        let query = tx.query(END_RUN).bind((job, slot, ended_at, Json(counts), error));
        query.execute().await?;
        tx.commit().await?;
        Ok(true)
    }

    /// Releases a lease without ending its run; the next claim of its slot continues
    /// it.
    pub async fn release(&self, job: &str, fence: i64) -> Result<(), IndexError> {
        self.0.change("release_run", Role::Shared(None), RELEASE_LEASE, (job, fence)).await.map(drop)
    }

    /// Whether a worker holds the lease of a job, which lasts `length`. A lease that ends
    /// later than twice `length` from now was taken by a clock that was ahead, and does
    /// not count.
    pub async fn is_claimed(&self, job: &str, now: Timestamp, length: Duration) -> Result<bool, IndexError> {
        let values = (job, now, now.plus(2 * length));
        self.0.scalar("run_is_claimed", Role::Shared(None), IS_CLAIMED, values).await
    }

    /// The cursor of the last run that was interrupted.
    pub async fn cursor(&self, job: &str) -> Result<Option<String>, IndexError> {
        let row: Option<(Option<String>,)> =
            self.0.optional("job_cursor", Role::Shared(None), CURSOR, job).await?;
        Ok(row.and_then(|(cursor,)| cursor))
    }

    /// Records in the run's record and in the operator's audit that a person asked for
    /// the run.
    pub async fn note_manual(
        &self,
        job: &str,
        slot: Timestamp,
        is_dry_run: bool,
        audited: &AuditedAction,
    ) -> Result<(), IndexError> {
        let mut tx = self.0.write("note_manual_run", Role::Shared(None)).await?;
        let query = tx.query(NOTE_MANUAL).bind((job, slot, is_dry_run));
        query.execute().await?;
        record_of_operator(&mut tx, audited, &job_action(job, is_dry_run), None).await?;
        tx.commit().await
    }

    /// Runs of a job before a place, newest first.
    pub async fn list(
        &self,
        job: &str,
        before: Option<RunPlace>,
        now: Timestamp,
        limit: u32,
    ) -> Result<Vec<JobRun>, IndexError> {
        let (started_at, slot) =
            before.map_or((i64::MAX, i64::MAX), |(at, slot)| (at.as_micros(), slot.as_micros()));
        let values = (job, now, started_at, slot, limit);
        self.0.all("job_runs", Role::Shared(None), LIST, values).await
    }

    /// How many runs of these jobs began in each part of the time since `since`, without parts that
    /// have none.
    pub async fn tally(
        &self,
        jobs: &[&str],
        since: Timestamp,
        part: Duration,
    ) -> Result<Vec<RunTally>, IndexError> {
        let part = u64::try_from(part.as_micros()).unwrap_or(u64::MAX).max(1);
        let values = (json!(jobs).to_string(), since, part);
        self.0.all_with_lists("tally_runs", Role::Shared(None), TALLY, values).await
    }
}
