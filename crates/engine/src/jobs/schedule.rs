//! When a job runs next.

use std::time::Duration;

use chrono::{DateTime, Utc};
use croner::parser::{CronParser, Seconds};
use keepsake_core::Timestamp;
use keepsake_index::{FAILED_RUN_DELAY, JobRun, RunStatus};

use super::Job;
use super::lease::slot_of;

/// When a worker runs the job next, according to the job's last runs.
pub(crate) fn next_run_at(job: &dyn Job, now: Timestamp, runs: &[JobRun]) -> Timestamp {
    let slot = slot_of(now, job.plan().period);
    let earliest = match runs.iter().find(|run| run.slot == slot) {
        // A slot has one run that succeeds.
        Some(JobRun { status: RunStatus::Running | RunStatus::Done, .. }) => slot.plus(job.plan().period),
        Some(JobRun { ended_at: Some(ended_at), .. }) => now.max(ended_at.plus(FAILED_RUN_DELAY)),
        _ => now,
    };
    next_trigger(job.plan().schedule, earliest).unwrap_or(earliest)
}

/// `None`: no trigger is at or after `earliest`.
fn next_trigger(schedule: &str, earliest: Timestamp) -> Option<Timestamp> {
    // The options match how the scheduler reads patterns.
    let parser = CronParser::builder().seconds(Seconds::Required).dom_and_dow(true).build();
    let pattern = parser.parse(schedule).ok()?;
    // Triggers are whole seconds.
    let from = earliest.plus(Duration::from_micros(999_999)).as_micros() / 1_000_000;
    let from = DateTime::<Utc>::from_timestamp_secs(from)?;
    let next = pattern.find_next_occurrence(&from, true).ok()?;
    Some(Timestamp::from_micros(next.timestamp_micros()))
}

#[cfg(test)]
mod tests {
    use keepsake_core::schemas::JobRunType;
    use keepsake_index::RunReason;

    use super::*;
    use crate::jobs::Prune;

    fn at(text: &str) -> Timestamp {
        Timestamp::parse(text).unwrap()
    }

    fn run(slot: &str, status: RunStatus, ended_at: Option<&str>) -> JobRun {
        JobRun {
            slot: at(slot),
            r#type: JobRunType,
            job: String::new(),
            status,
            reason: RunReason::Schedule,
            is_dry_run: false,
            started_at: at(slot),
            ended_at: ended_at.map(at),
            counts: None,
            error: None,
        }
    }

    #[test]
    fn daily_job_runs_at_the_first_trigger_of_a_day_without_a_run() {
        let (now, day) = (at("2026-03-01T14:00:00Z"), "2026-03-01T00:00:00Z");
        let done = run(day, RunStatus::Done, Some("2026-03-01T00:08:00Z"));
        let running = run(day, RunStatus::Running, None);
        let interrupted = run(day, RunStatus::Interrupted, None);
        let failed = run(day, RunStatus::Failed, Some("2026-03-01T13:59:00Z"));
        let yesterday = run("2026-02-28T00:00:00Z", RunStatus::Done, Some("2026-02-28T00:08:00Z"));
        for (runs, expected) in [
            (vec![], "2026-03-01T14:07:30Z"),
            (vec![yesterday.clone()], "2026-03-01T14:07:30Z"),
            (vec![interrupted], "2026-03-01T14:07:30Z"),
            (vec![failed], "2026-03-01T14:07:30Z"),
            (vec![running], "2026-03-02T00:07:30Z"),
            (vec![done, yesterday], "2026-03-02T00:07:30Z"),
        ] {
            assert_eq!(next_run_at(&Prune::default(), now, &runs), at(expected), "{runs:?}");
        }
    }
}
