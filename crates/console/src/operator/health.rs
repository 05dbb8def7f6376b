//! Health of this server: its backends, caches and work.

use askama::Template;
use axum::Extension;
use keepsake_core::words;
use keepsake_engine::StoreHealth;
use keepsake_telemetry::Exposition;

use super::Operator;
use crate::frame::Frame;
use crate::page::{PageResult, page};
use crate::request::Caller;

const fn advice(health: StoreHealth) -> &'static str {
    match health {
        StoreHealth::Ok => "",
        StoreHealth::Unavailable => "It does not answer. Requests that need it are answered 503.",
        StoreHealth::AccessDenied => "It refuses the server's credentials: check them and their permissions.",
        StoreHealth::Misconfigured => "The settings do not match it: run `keepsake config check --connect`.",
        StoreHealth::DiskFull => "Reads work, writes are answered 507: make room on the disk.",
    }
}

#[derive(Template)]
#[template(path = "operator/health.html")]
struct HealthPage {
    frame: Frame,
    parts: [(&'static str, StoreHealth); 2],
    is_ready: bool,
    gateways: u32,
    /// Name and value.
    readings: Vec<(String, String)>,
}

/// `GET /console/health`
pub(super) async fn show(
    caller: Caller<Operator>,
    Extension(exposition): Extension<Exposition>,
) -> PageResult {
    let engine = &caller.engine;
    let readiness = engine.health.check().await;
    page(&HealthPage {
        frame: caller.frame("Health"),
        parts: [
            ("Database, with a schema that this version knows", readiness.index),
            ("Content storage", readiness.blobs),
        ],
        is_ready: readiness.has_index(),
        gateways: engine.replica.gateways(),
        readings: exposition.text().map(|text| shown(&text)).unwrap_or_default(),
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
fn shown(text: &str) -> Vec<(String, String)> {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let readings = lines.filter_map(|line| {
        let (series, value) = line.rsplit_once(' ')?;
        let (name, labels) = series.split_once('{').unwrap_or((series, ""));
        let (_, words, unit) = SHOWN.iter().find(|(metric, ..)| *metric == name)?;
        let labels = labels.trim_end_matches('}').replace('"', "").replace(',', ", ").replace('=', " ");
        let name = if labels.is_empty() { (*words).to_owned() } else { format!("{words}: {labels}") };
        Some((name, with_unit(value, *unit)))
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
        assert_eq!(
            shown(text),
            [
                ("Cache: cache content".to_owned(), "4.00 KiB".to_owned()),
                ("Requests under way".to_owned(), "2".to_owned())
            ]
        );
    }
}
