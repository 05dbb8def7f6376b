//! Scheduled jobs: their runs over time, whether they failed, and manual runs.

use std::cmp::Reverse;
use std::time::Duration;

use askama::Template;
use keepsake_core::{Timestamp, words};
use keepsake_engine::JobState;
use keepsake_index::{Auditor, JobRun, RunReason, RunStatus, RunTally};
use serde_json::{Number, Value};

use super::Operator;
use crate::frame::{Done, Frame};
use crate::page::{PageResult, Refusal, done, page};
use crate::path::{JobName, Path};
use crate::request::{Caller, Form, Pager};
use crate::text::markup::{Markup, encoded, to_the_second};
use crate::text::timeline::{Part, Timeline, time_of};

const PER_PAGE: u64 = 50;

/// A time that a person chooses, and its parts.
struct Period {
    name: &'static str,
    label: &'static str,
    part_minutes: u32,
    parts: u32,
}

const PERIODS: [Period; 2] = [
    Period { name: "day", label: "24 hours", part_minutes: 30, parts: 48 },
    Period { name: "week", label: "7 days", part_minutes: 240, parts: 42 },
];

impl Period {
    /// The first one, unless the address names another one.
    fn chosen(caller: &Caller<Operator>) -> &'static Self {
        let named = PERIODS.iter().find(|period| Some(period.name) == caller.query.filled("period"));
        named.unwrap_or(&PERIODS[0])
    }

    /// Name and label of each period, and whether it is this one.
    fn choices(&self) -> [(&'static str, &'static str, bool); 2] {
        PERIODS.map(|period| (period.name, period.label, period.name == self.name))
    }

    fn part_micros(&self) -> i64 {
        i64::from(self.part_minutes) * 60_000_000
    }

    /// The begin of the first part; the last part is under way.
    fn first(&self, now: Timestamp) -> Timestamp {
        let part = self.part_micros();
        let end = (now.as_micros().div_euclid(part) + 1) * part;
        Timestamp::from_micros(end - i64::from(self.parts) * part)
    }

    fn part(&self) -> Duration {
        Duration::from_mins(self.part_minutes.into())
    }
}

/// The purpose of a job in words; empty: the job has none.
fn purpose_of(job: &str) -> &'static str {
    match job {
        "count-totals" => "Sums up stores, memories and bytes of all tenants.",
        "delete-tenants" => "Continues the deletions of tenants.",
        "drain-deletions" => "Deletes removed content from the storage.",
        "embed-memories" => "Prepares memories for search by meaning, where this is missing.",
        "erase" => "Continues erasures.",
        "expire-unused" => {
            "Deletes memories at their expiry time, and memories that were unused for longer than their store allows."
        }
        "expire-versions" => "Removes versions that are kept no longer.",
        "fork" => "Continues copies of stores.",
        "index-memories" => "Prepares memories for search by words, where this is missing.",
        "prune" => "Removes old records, such as runs of jobs and ended sessions.",
        "prune-reads" => "Removes old records of who has seen which version.",
        "purge-stores" => "Removes the data of deleted stores.",
        "reconcile-usage" => "Counts memories and bytes again, and corrects the numbers of usage.",
        "sweep-blobs" => "Finds content that no memory has, and memories without their content.",
        "undo" => "Continues undos that need several commits.",
        _ => "",
    }
}

/// What precedes the time of the next run. A run that a day or an hour misses follows at the next trigger.
fn next_label(job: &JobState) -> &'static str {
    let period_micros = i64::try_from(job.period_seconds).unwrap_or(i64::MAX).saturating_mul(1_000_000);
    let minute = job.next_run_at.as_micros().rem_euclid(period_micros.max(1)) / 60_000_000;
    let is_late = words::first_minute(job.schedule).is_some_and(|first| minute > i64::from(first));
    match job.period_seconds {
        86_400 if is_late => "today's run is due",
        3_600 if is_late => "this hour's run is due",
        _ => "next",
    }
}

/// How long a run took; empty until it ends.
fn took(run: &JobRun) -> String {
    run.ended_at.map_or_else(String::new, |ended_at| {
        seconds((ended_at.as_micros() - run.started_at.as_micros()).max(0).unsigned_abs())
    })
}

fn seconds(micros: u64) -> String {
    let millis = micros / 1_000;
    format!("{}.{:03} s", millis / 1_000, millis % 1_000)
}

/// The counts and the error of a run. Counts of zero are left out.
fn result_of(run: &JobRun) -> String {
    let counts = run.counts.as_ref().map(described).unwrap_or_default();
    format!("{counts} {}", run.error.as_deref().unwrap_or_default())
}

fn described(counts: &Value) -> String {
    let mut parts = Vec::new();
    describe("", counts, &mut parts);
    if parts.is_empty() { "nothing to do".to_owned() } else { parts.join(", ") }
}

/// Adds the values that are not zero, false or empty; `outer` is put before their names.
fn describe(outer: &str, counts: &Value, parts: &mut Vec<String>) {
    for (name, value) in counts.as_object().into_iter().flatten() {
        let name = format!("{outer}{}", name.replace('_', " "));
        match value {
            Value::Null | Value::Bool(false) => {}
            Value::Bool(true) => parts.push(name),
            Value::Number(number) if number.as_u64() == Some(0) => {}
            Value::Number(number) => parts.push(format!("{name}: {}", number_of(&name, number))),
            Value::String(text) => {
                let time = Timestamp::parse(text).filter(|_| text.contains('T')).map(to_the_second);
                parts.push(format!("{name}: {}", time.unwrap_or_else(|| text.clone())));
            }
            Value::Array(items) if items.is_empty() => {}
            Value::Array(items) => {
                let text = |item: &Value| item.as_str().map_or_else(|| item.to_string(), str::to_owned);
                parts.push(format!("{name}: {}", items.iter().map(text).collect::<Vec<_>>().join(" ")));
            }
            Value::Object(_) => describe(&format!("{name} "), value, parts),
        }
    }
}

fn number_of(name: &str, number: &Number) -> String {
    match number.as_u64() {
        Some(bytes) if name.ends_with("bytes") => words::bytes(bytes),
        Some(count) => words::count(count),
        None => number.to_string(),
    }
}

/// The colour of a run's status.
const fn badge_of(status: RunStatus) -> &'static str {
    match status {
        RunStatus::Done => "good",
        RunStatus::Failed => "failed",
        RunStatus::Running => "modified",
        RunStatus::Interrupted => "",
    }
}

/// The runs of a job in a period.
#[derive(Default)]
struct History {
    parts: Vec<Part>,
    runs: u64,
    failed: u64,
    open: u64,
    longest_micros: u64,
}

impl History {
    fn of(job: &str, tallies: &[RunTally], period: &Period, first: Timestamp) -> Self {
        let mut history = Self::default();
        // A run of a clock that was ahead is in none of the parts.
        let is_shown = |tally: &&RunTally| tally.job == job && tally.part < i64::from(period.parts);
        for tally in tallies.iter().filter(is_shown) {
            history.runs += tally.runs;
            history.failed += tally.failed;
            history.open += tally.open;
            history.longest_micros = history.longest_micros.max(tally.longest_micros);
            history.parts.push(part_of(tally, period, first));
        }
        history
    }

    fn in_words(&self) -> String {
        match (self.runs, self.failed) {
            (0, _) => "no run".to_owned(),
            (runs, 0) => words::counted(runs, "run"),
            (runs, failed) => format!("{}, {} failed", words::counted(runs, "run"), words::count(failed)),
        }
    }

    fn timeline<'a>(&'a self, label: &'a str, period: &Period, first: Timestamp) -> Timeline<'a> {
        let (part_micros, count) = (period.part_micros(), i64::from(period.parts));
        Timeline { label, first, part_micros, count, parts: &self.parts }
    }
}

fn part_of(tally: &RunTally, period: &Period, first: Timestamp) -> Part {
    let at = |place: i64| Timestamp::from_micros(first.as_micros() + place * period.part_micros());
    let mut text = format!(
        "{} to {} UTC: {}",
        time_of(at(tally.part)),
        time_of(at(tally.part + 1)),
        words::counted(tally.runs, "run")
    );
    if tally.failed > 0 {
        text = format!("{text}, {} failed", words::count(tally.failed));
    }
    if tally.open > 0 {
        text = format!("{text}, {} not ended", words::count(tally.open));
    }
    if tally.longest_micros > 0 {
        text = format!("{text}, the longest took {}", seconds(tally.longest_micros));
    }
    let state = match (tally.failed, tally.open) {
        (1.., _) => "failed",
        (0, 1..) => "open",
        (0, 0) => "done",
    };
    Part { place: tally.part, state, words: text }
}

/// A job with its runs in the period.
struct Row {
    job: JobState,
    history: History,
    bars: Markup,
}

impl Row {
    fn of(job: JobState, tallies: &[RunTally], period: &Period, first: Timestamp) -> Self {
        let history = History::of(job.name, tallies, period, first);
        let label = format!("{} in {}: {}", job.name, period.label, history.in_words());
        let bars = history.timeline(&label, period, first).draw_bars();
        Self { job, history, bars }
    }

    fn is_failing(&self) -> bool {
        self.job.last_run.as_ref().is_some_and(|run| run.status == RunStatus::Failed)
    }
}

#[derive(Template)]
#[template(path = "operator/jobs.html")]
struct JobsPage {
    frame: Frame,
    /// Those that fail come first.
    rows: Vec<Row>,
    failing: usize,
    period: &'static Period,
}

pub(super) async fn list(caller: Caller<Operator>) -> PageResult {
    let (jobs, period) = (&caller.engine.manual_jobs, Period::chosen(&caller));
    let first = period.first(caller.engine.now());
    let tallies = jobs.tally(first, period.part()).await?;
    let rows = jobs.list().await?.into_iter().map(|job| Row::of(job, &tallies, period, first));
    let mut rows: Vec<_> = rows.collect();
    rows.sort_by_key(|row| Reverse((row.is_failing(), row.history.failed > 0)));
    let failing = rows.iter().filter(|row| row.is_failing()).count();
    page(&JobsPage { frame: caller.frame("Jobs"), rows, failing, period })
}

#[derive(Template)]
#[template(path = "operator/job.html")]
struct JobPage {
    frame: Frame,
    job: JobState,
    runs: Vec<JobRun>,
    pager: Pager,
    period: &'static Period,
    timeline: Markup,
    in_words: String,
    /// `None`: no run has ended in the period.
    longest: Option<String>,
    /// The newest dry run that has ended, on the first page.
    dry_run: Option<JobRun>,
    is_running: bool,
}

pub(super) async fn show(caller: Caller<Operator>, Path(JobName(name)): Path<JobName>) -> PageResult {
    let (jobs, period) = (&caller.engine.manual_jobs, Period::chosen(&caller));
    let job = jobs.list().await?.into_iter().find(|job| job.name == name);
    let job = job.ok_or(Refusal::NotFound("the job was not found"))?;
    let first = period.first(caller.engine.now());
    let history = History::of(job.name, &jobs.tally(first, period.part()).await?, period, first);
    let found = jobs.runs(job.name, &caller.query.page(PER_PAGE)).await?;
    let pager = caller.query.pager(found.next);
    let ended_dry = found.items.iter().find(|run| run.is_dry_run && run.ended_at.is_some());
    let label = format!("Runs in {}: {}", period.label, history.in_words());
    page(&JobPage {
        frame: caller.frame(job.name),
        timeline: history.timeline(&label, period, first).draw(),
        in_words: history.in_words(),
        longest: (history.longest_micros > 0).then(|| seconds(history.longest_micros)),
        dry_run: ended_dry.filter(|_| pager.is_first()).cloned(),
        is_running: job.last_run.as_ref().is_some_and(|run| run.status == RunStatus::Running),
        job,
        runs: found.items,
        pager,
        period,
    })
}

pub(super) async fn run(Path(JobName(name)): Path<JobName>, form: Form<Operator>) -> PageResult {
    let is_dry = form.fields.is_on("dry_run");
    form.engine.manual_jobs.run(&name, is_dry, Auditor::Operator).await?;
    done(&format!("/console/jobs/{}", encoded(&name)), Done::JobStarted)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::described;

    #[test]
    fn counts_are_shown_in_words() {
        let counts =
            json!({"drifted": ["a", "b"], "is_stalled": false, "lost_heads": 0, "totals": {"old_runs": 2}});
        assert_eq!(described(&counts), "drifted: a b, totals old runs: 2");
        let [none, time] =
            [json!({"a": []}), json!({"a": "2026-11-30T10:13:50.1Z"})].map(|it| described(&it));
        assert_eq!((none.as_str(), time.as_str()), ("nothing to do", "a: 2026-11-30 10:13:50 UTC"));
    }
}
