//! Health of this server as lights, each with the number that matters and a sentence.

use askama::Template;
use axum::Extension;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use keepsake_core::words;
use keepsake_engine::{Engine, MeaningReason, Readiness, StoreHealth};
use keepsake_index::RunStatus;
use keepsake_telemetry::Exposition;

use super::Operator;
use crate::frame::Frame;
use crate::page::{PageResult, Refusal, page, secured};
use crate::request::Caller;
use crate::text::markup;

/// The longest queue that is counted.
const MAX_COUNTED: u32 = 1_000;
/// Reads are written each half minute.
const READS_LATE_SECS: u64 = 90;
/// Other replicas stop waiting for the reads of a replica soon after this.
const READS_LOST_SECS: u64 = 300;

/// The order of the lights: a failing part is first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Level {
    Bad,
    Look,
    Good,
    /// A choice of the operator.
    Unused,
}

impl Level {
    const fn class(self) -> &'static str {
        match self {
            Self::Good => "good",
            Self::Look => "look",
            Self::Bad => "bad",
            Self::Unused => "unused",
        }
    }

    const fn word(self) -> &'static str {
        match self {
            Self::Good => "OK",
            Self::Look => "Look at it",
            Self::Bad => "Failing",
            Self::Unused => "Not in use",
        }
    }
}

/// One part of the server.
struct Light {
    name: &'static str,
    level: Level,
    value: String,
    /// What the value means, or what to do.
    words: String,
    /// The page with more about the part; empty: there is none.
    href: &'static str,
}

impl Light {
    fn new(name: &'static str, value: impl Into<String>, (level, words): (Level, impl Into<String>)) -> Self {
        Self { name, level, value: value.into(), words: words.into(), href: "" }
    }
}

const fn advice(health: StoreHealth) -> &'static str {
    match health {
        StoreHealth::Ok => "It answers, and takes writes.",
        StoreHealth::Unavailable => {
            "It does not answer, and requests that need it fail (status 503). Check that it runs."
        }
        StoreHealth::AccessDenied => "It refuses the server's credentials: check them and their permissions.",
        StoreHealth::Misconfigured => "The settings do not match it: run `keepsake config check --connect`.",
        StoreHealth::DiskFull => {
            "Its disk is full: reads work, writes fail (status 507). Make room on the disk."
        }
    }
}

/// The kind of a store, or the reason why it cannot be used.
const fn state_of(health: StoreHealth, kind: &'static str) -> &'static str {
    match health {
        StoreHealth::Ok => kind,
        StoreHealth::Unavailable => "no answer",
        StoreHealth::AccessDenied => "access denied",
        StoreHealth::Misconfigured => "wrong settings",
        StoreHealth::DiskFull => "disk full",
    }
}

const fn level_of(health: StoreHealth) -> Level {
    if matches!(health, StoreHealth::Ok) { Level::Good } else { Level::Bad }
}

/// Readings of the metrics of this process.
struct Readings(Vec<(String, u64)>);

impl Readings {
    /// Series with their labels, and their values without fractions.
    fn of(text: &str) -> Self {
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        let readings = lines.filter_map(|line| {
            let (series, value) = line.rsplit_once(' ')?;
            let whole = value.split('.').next().unwrap_or_default();
            Some((series.to_owned(), whole.parse().ok()?))
        });
        Self(readings.collect())
    }

    /// The sum of the series of a metric that have this label.
    fn sum(&self, metric: &str, label: &str) -> u64 {
        let is_wanted = |series: &str| {
            let (name, labels) = series.split_once('{').unwrap_or((series, ""));
            name == metric && labels.contains(label)
        };
        let wanted = self.0.iter().filter(|(series, _)| is_wanted(series));
        wanted.map(|(_, value)| value).sum()
    }

    fn all(&self, metric: &str) -> u64 {
        self.sum(metric, "")
    }
}

fn of_backends(engine: &Engine, readiness: Readiness, readings: &Readings) -> Vec<Light> {
    let (index, blobs) = (readiness.index, readiness.blobs);
    let in_use = readings.sum("keepsake_index_pool_connections", "state=\"in_use\"");
    let limit = readings.all("keepsake_index_pool_limit");
    let waiting = readings.all("keepsake_index_pool_waiting");
    let waits = match waiting {
        0 => (Level::Good, "No request waits for a connection."),
        _ => (
            Level::Look,
            "Requests wait for a connection: look for slow statements, or raise `index.max_connections`.",
        ),
    };
    let (schema, known) = if readiness.has_index() {
        ("fits", (Level::Good, "The tables of the database fit this version of the server."))
    } else {
        let unknown = "It could not be checked. If the log says that it is too old, run `keepsake migrate`.";
        ("unknown", (Level::Bad, unknown))
    };
    let connections = format!("{in_use} of {limit} in use, {} waiting", words::count(waiting));
    let health = &engine.health;
    let database = if health.is_on_postgres() { "Postgres" } else { "SQLite" };
    let content = if health.has_bucket() { "bucket" } else { "in the database" };
    let mut lights = vec![
        Light::new("Database", state_of(index, database), (level_of(index), advice(index))),
        Light::new("Schema", schema, known),
        Light::new("Database connections", connections, waits),
        Light::new("Content storage", state_of(blobs, content), (level_of(blobs), advice(blobs))),
    ];
    if health.has_bucket() {
        lights.push(of_bucket(readings));
    }
    lights
}

fn of_bucket(readings: &Readings) -> Light {
    let calls = "keepsake_blob_call_duration_seconds_count";
    let failed = readings.all(calls).saturating_sub(readings.sum(calls, "outcome=\"ok\""));
    let breaker = match readings.all("keepsake_blob_breaker_open") {
        0 => (Level::Good, "Calls are sent to the bucket."),
        _ => (Level::Bad, "The bucket did not answer. Until it does, requests that need it fail at once."),
    };
    Light::new("Calls to the bucket", format!("{} failed since the start", words::count(failed)), breaker)
}

fn of_replicas(engine: &Engine, readiness: Readiness, readings: &Readings) -> [Light; 3] {
    let lag = readings.all("keepsake_access_flush_lag_seconds");
    let reads = if lag <= READS_LATE_SECS {
        (Level::Good, "The times of reads are written to the database each half minute.")
    } else if lag <= READS_LOST_SECS {
        (Level::Look, "The last write of these times is late: look at the log of this server.")
    } else {
        (Level::Bad, "These times cannot be written: check that this server reaches the database.")
    };
    let upkeep = if readiness.is_upkeep_late {
        (Level::Bad, "This server sent no sign of life for three minutes: look at its log.")
    } else {
        (Level::Good, "Servers that take requests. They share the request rates of the tenants.")
    };
    let refused = words::counted(readings.all("keepsake_rate_refusals_total"), "request");
    let refused = format!("Over the request rate of a tenant: {refused} refused since the start.");
    let under_way = words::count(readings.all("keepsake_http_requests_in_flight"));
    [
        Light::new("Live gateways", words::count(engine.replica.gateways().into()), upkeep),
        Light::new("Reads not yet written", format!("for {lag} s"), reads),
        Light::new("Requests under way", under_way, (Level::Good, refused)),
    ]
}

async fn of_work(engine: &Engine, readings: &Readings) -> [Light; 4] {
    const UNREAD: (Level, &str) = (Level::Bad, "It could not be read from the database.");
    let (overdue, deletions) = match engine.health.overdue_deletions(MAX_COUNTED).await {
        Ok(0) => ("0 overdue".to_owned(), (Level::Good, "Removed content is deleted in time.")),
        Ok(number) => {
            let number = u64::try_from(number).unwrap_or(u64::MAX);
            let at_least = if number >= u64::from(MAX_COUNTED) { "at least " } else { "" };
            let words = "Removed content is still stored, and its deletion is late: look at the job `drain-deletions`.";
            (format!("{at_least}{} overdue", words::count(number)), (Level::Look, words))
        }
        Err(_) => ("unknown".to_owned(), UNREAD),
    };
    let (failing, jobs) = match engine.manual_jobs.list().await {
        Ok(jobs) => {
            let last_runs = jobs.iter().filter_map(|job| job.last_run.as_ref());
            let failed = last_runs.filter(|run| run.status == RunStatus::Failed).count();
            let words = match failed {
                0 => (Level::Good, "No job failed in its last run."),
                _ => (Level::Look, "The last run of a job failed: look at its result."),
            };
            (format!("{failed} failed"), words)
        }
        Err(_) => ("unknown".to_owned(), UNREAD),
    };
    let waiting = readings.all("keepsake_embedding_waiting_stores");
    let (model, meaning) = match engine.health.meaning() {
        Ok(model) => {
            (model.to_string(), (Level::Good, "Memories are found by words and by meaning.".to_owned()))
        }
        Err(reason) => {
            let is_choice = matches!(reason, MeaningReason::Off | MeaningReason::NotInstalled);
            let level = if is_choice { Level::Unused } else { Level::Look };
            let why = reason.in_words();
            let words = match reason {
                MeaningReason::NotInstalled => {
                    format!(
                        "Because {why}. To search by meaning, too, install it with `keepsake model install`."
                    )
                }
                MeaningReason::Timeout | MeaningReason::Failed => {
                    format!("At the last search, {why}. The server's log says more.")
                }
                _ => format!("Because {why}."),
            };
            ("by words only".to_owned(), (level, words))
        }
    };
    let soon = (Level::Good, "Stores whose newest memories are found by words, and soon by meaning.");
    let deletions = Light::new("Deletions of content", overdue, deletions);
    [
        Light { href: "/console/jobs/drain-deletions", ..deletions },
        Light { href: "/console/jobs", ..Light::new("Jobs", failing, jobs) },
        Light::new("Search", model, meaning),
        Light::new("Not yet found by meaning", words::counted(waiting, "store"), soon),
    ]
}

#[derive(Template)]
#[template(path = "operator/health.html")]
struct HealthPage {
    frame: Frame,
    is_ready: bool,
    lights: Vec<Light>,
}

pub(super) async fn show(
    caller: Caller<Operator>,
    Extension(exposition): Extension<Exposition>,
) -> PageResult {
    let engine = &caller.engine;
    let readiness = engine.health.check().await;
    let readings = Readings::of(&exposition.text().unwrap_or_default());
    let mut lights = of_backends(engine, readiness, &readings);
    lights.extend(of_replicas(engine, readiness, &readings));
    lights.extend(of_work(engine, &readings).await);
    lights.sort_by_key(|light| light.level);
    page(&HealthPage { frame: caller.frame("Health"), is_ready: readiness.has_index(), lights })
}

/// `GET /console/metrics`: what `/metrics` has, for a person who is signed in
pub(super) async fn metrics(
    _: Caller<Operator>,
    Extension(exposition): Extension<Exposition>,
) -> Result<Response, Refusal> {
    let text = exposition.text().ok_or(Refusal::Internal)?;
    Ok(secured(([(header::CONTENT_TYPE, "text/plain; charset=utf-8")], text).into_response()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn series_are_summed_up_by_label() {
        let text = "# HELP x\na_count{outcome=\"ok\"} 4\na_count{outcome=\"error\"} 2\na_counts 9\nlag 1.5\n";
        let readings = Readings::of(text);
        assert_eq!((readings.all("a_count"), readings.sum("a_count", "outcome=\"ok\"")), (6, 4));
        assert_eq!((readings.all("lag"), readings.all("none")), (1, 0));
    }
}
