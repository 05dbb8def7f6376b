//! Who is told of metrics and traces: `[telemetry]`.

use std::time::Duration;

use config::ValueKind;
use keepsake_telemetry::OtlpOptions;
use secrecy::SecretString;

use super::reader::{Reader, number, text, truth};
use super::settings::endpoint;

/// Headers that every export has of its own.
const RESERVED_HEADERS: [&str; 3] = ["content-type", "content-length", "host"];

/// What a process tells of itself, beside its log.
#[derive(Debug, Clone)]
pub(crate) struct TelemetrySettings {
    /// Its name, as collectors group processes.
    pub(crate) service_name: String,
    /// More that is true of it.
    pub(crate) resource_attributes: Vec<(String, String)>,
    /// The collector; `None`: nothing is exported.
    pub(crate) otlp: Option<OtlpOptions>,
    /// Whether `/metrics` asks for no token.
    pub(crate) metrics_without_token: bool,
}

pub(super) fn read_telemetry(reader: &mut Reader<'_>) -> Option<TelemetrySettings> {
    let endpoint = reader.get("telemetry.otlp_endpoint", endpoint);
    let headers = reader.get("telemetry.otlp_headers", headers);
    let sample_ratio = reader.get("telemetry.sample_ratio", share);
    let metrics_interval = reader.get("telemetry.metrics_interval_seconds", number(1));
    let service_name = reader.get("telemetry.service_name", |value| text(value).map(str::to_owned));
    let resource_attributes = reader.get("telemetry.resource_attributes", pairs);
    let metrics_without_token = reader.get("telemetry.metrics_without_token", truth);
    if reader.is_set("telemetry.otlp_headers") && !reader.is_set("telemetry.otlp_endpoint") {
        reader.refuse(
            "telemetry.otlp_headers",
            "has a meaning beside telemetry.otlp_endpoint alone",
        );
    }
    let (sample_ratio, metrics_interval) = (sample_ratio?, Duration::from_secs(metrics_interval?));
    let otlp = endpoint.map(|endpoint| OtlpOptions {
        endpoint,
        headers: headers.unwrap_or_default(),
        sample_ratio,
        metrics_interval,
    });
    Some(TelemetrySettings {
        service_name: service_name?,
        resource_attributes: resource_attributes.unwrap_or_default(),
        otlp,
        metrics_without_token: metrics_without_token?,
    })
}

/// `name=value` pairs with commas between them.
fn pairs(value: &ValueKind) -> Result<Vec<(String, String)>, String> {
    let pair = |pair: &str| {
        let (name, value) = pair.split_once('=')?;
        let (name, value) = (name.trim(), value.trim());
        (!name.is_empty() && !value.is_empty()).then(|| (name.to_owned(), value.to_owned()))
    };
    let pairs = text(value)?.split(',').map(pair);
    pairs
        .collect::<Option<_>>()
        .ok_or_else(|| "must be name=value pairs with commas between them".to_owned())
}

fn headers(value: &ValueKind) -> Result<Vec<(String, SecretString)>, String> {
    let mut headers = Vec::new();
    for (name, value) in pairs(value)? {
        let is_name = axum::http::HeaderName::try_from(name.as_str()).is_ok();
        let is_value = axum::http::HeaderValue::try_from(value.as_str()).is_ok();
        if !is_name || !is_value || RESERVED_HEADERS.contains(&name.to_ascii_lowercase().as_str()) {
            return Err("must be names and values of HTTP headers, none of the export's own".to_owned());
        }
        headers.push((name, SecretString::from(value)));
    }
    Ok(headers)
}

/// A share of a whole, also as text.
fn share(value: &ValueKind) -> Result<f64, String> {
    let share = match value {
        ValueKind::Float(share) => Some(*share),
        ValueKind::I64(0) => Some(0.0),
        ValueKind::I64(1) => Some(1.0),
        ValueKind::String(text) => text.trim().parse().ok(),
        _ => None,
    };
    share
        .filter(|share| (0.0..=1.0).contains(share))
        .ok_or_else(|| "must be a number from 0 to 1".to_owned())
}
