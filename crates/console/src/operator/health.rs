//! Health of this server: its backends, caches and work.

use askama::Template;
use axum::Extension;
use axum::extract::State;
use keepsake_core::words;
use keepsake_engine::{Engine, StoreHealth};

use super::{Operator, Readings};
use crate::frame::{Frame, Tab};
use crate::page::{PageResult, page};

struct Part {
    name: &'static str,
    state: &'static str,
    is_ok: bool,
    advice: &'static str,
}

impl Part {
    fn of(name: &'static str, health: StoreHealth) -> Self {
        Self {
            name,
            state: health.name(),
            is_ok: health == StoreHealth::Ok,
            advice: match health {
                StoreHealth::Ok => "",
                StoreHealth::Unavailable => "It does not answer. Requests that need it are answered 503.",
                StoreHealth::AccessDenied => {
                    "It refuses the server's credentials: check them and their permissions."
                }
                StoreHealth::Misconfigured => {
                    "The settings do not match it: run `keepsake config check --connect`."
                }
                StoreHealth::DiskFull => "Reads work, writes are answered 507: make room on the disk.",
            },
        }
    }
}

struct Reading {
    name: String,
    value: String,
}

#[derive(Template)]
#[template(path = "operator/health.html")]
struct HealthPage {
    frame: Frame,
    parts: Vec<Part>,
    is_ready: bool,
    gateways: u32,
    readings: Vec<Reading>,
}

/// `GET /console/health`
pub(super) async fn show(
    State(engine): State<Engine>,
    Extension(readings): Extension<Readings>,
    operator: Operator,
) -> PageResult {
    let readiness = engine.health.check().await;
    page(&HealthPage {
        frame: operator.frame("Health", Tab::Health),
        parts: vec![
            Part::of("Database, with a schema that this version knows", readiness.index),
            Part::of("Content storage", readiness.blobs),
        ],
        is_ready: readiness.has_index(),
        gateways: engine.replica.gateways(),
        readings: readings.read().map(|text| shown(&text)).unwrap_or_default(),
    })
}

/// Metrics of the page, with names for people.
const SHOWN: [(&str, &str, Unit); 9] = [
    ("keepsake_http_requests_in_flight", "Requests under way", Unit::Number),
    ("keepsake_cache_size_bytes", "Cache", Unit::Bytes),
    ("keepsake_cache_lookups_total", "Look-ups in a cache", Unit::Number),
    ("keepsake_access_flush_lag_seconds", "Reads not yet written, seconds", Unit::Number),
    ("keepsake_blob_breaker_open", "Circuit breaker of the content storage is open", Unit::Number),
    ("keepsake_conflicts_total", "Conflicts", Unit::Number),
    ("keepsake_retries_total", "Retries", Unit::Number),
    ("keepsake_quota_refusals_total", "Refused by a quota", Unit::Number),
    ("keepsake_rate_refusals_total", "Not admitted", Unit::Number),
];

#[derive(Clone, Copy)]
enum Unit {
    Number,
    Bytes,
}

/// The readings of the metrics in [`SHOWN`], with their labels.
fn shown(text: &str) -> Vec<Reading> {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let readings = lines.filter_map(|line| {
        let (series, value) = line.rsplit_once(' ')?;
        let (name, labels) = series.split_once('{').unwrap_or((series, ""));
        let (_, words, unit) = SHOWN.iter().find(|(metric, ..)| *metric == name)?;
        let labels = labels.trim_end_matches('}').replace('"', "").replace(',', ", ").replace('=', " ");
        Some(Reading {
            name: if labels.is_empty() { (*words).to_owned() } else { format!("{words}: {labels}") },
            value: with_unit(value, *unit),
        })
    });
    readings.collect()
}

fn with_unit(value: &str, unit: Unit) -> String {
    match (unit, value.parse::<u64>()) {
        (Unit::Bytes, Ok(bytes)) => words::bytes(bytes),
        (Unit::Number, Ok(number)) => words::count(number),
        _ => value.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_are_read() {
        let text = "# HELP x\nkeepsake_cache_size_bytes{cache=\"content\"} 4096\nother 1\nkeepsake_http_requests_in_flight 2\n";
        let readings: Vec<_> = shown(text).into_iter().map(|reading| (reading.name, reading.value)).collect();
        assert_eq!(
            readings,
            [
                ("Cache: cache content".to_owned(), "4.00 KiB".to_owned()),
                ("Requests under way".to_owned(), "2".to_owned())
            ]
        );
    }
}
