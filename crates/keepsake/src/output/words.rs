//! Numbers and schedules in words.

use serde_json::Value;

pub(super) use keepsake_core::words::period;
pub(crate) use keepsake_core::words::{bytes, counted, limit};

/// When a job runs: `daily at 00:03 UTC`, `hourly at minute 3`, `every minute`.
pub(super) fn schedule(job: &Value) -> String {
    let period_seconds = job["period_seconds"].as_u64().unwrap_or_default();
    keepsake_core::words::schedule(job["schedule"].as_str().unwrap_or_default(), period_seconds)
}
