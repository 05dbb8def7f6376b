//! `[telemetry]`

use axum::http::{HeaderName, HeaderValue};
use keepsake_telemetry::{OtlpOptions, TelemetryOptions};
use secrecy::SecretString;
use toml::Value;

use crate::checks::{decimal, http_url, owned, seconds, text};
use crate::reader::Reader;

/// Headers that each export sets itself.
const RESERVED_HEADERS: [&str; 3] = ["content-type", "content-length", "host"];

pub(super) fn read(reader: &mut Reader) -> TelemetryOptions {
    let endpoint = reader.url("telemetry.otlp_endpoint", None, http_url);
    let headers = reader.secret("telemetry.otlp_headers", headers);
    if reader.is_set("telemetry.otlp_headers") && !reader.is_set("telemetry.otlp_endpoint") {
        reader.refuse("telemetry.otlp_headers", "is allowed only together with telemetry.otlp_endpoint");
    }
    let sample_ratio = reader.get("telemetry.sample_ratio", 1, ratio);
    let metrics_interval = reader.get("telemetry.metrics_interval_seconds", 60, seconds(1));
    TelemetryOptions {
        service_name: reader.get("telemetry.service_name", "keepsake", owned),
        resource_attributes: reader.optional("telemetry.resource_attributes", pairs).unwrap_or_default(),
        otlp: endpoint.map(|endpoint| OtlpOptions {
            endpoint,
            headers: headers.unwrap_or_default(),
            sample_ratio,
            metrics_interval,
        }),
    }
}

/// `name=value` pairs with commas between them.
fn pairs(value: &Value) -> Result<Vec<(String, String)>, String> {
    let pair = |pair: &str| {
        let (name, value) = pair.split_once('=')?;
        let (name, value) = (name.trim(), value.trim());
        (!name.is_empty() && !value.is_empty()).then(|| (name.to_owned(), value.to_owned()))
    };
    let pairs: Option<_> = text(value)?.split(',').map(pair).collect();
    pairs.ok_or_else(|| "must be name=value pairs with commas between them".to_owned())
}

fn headers(value: &Value) -> Result<Vec<(String, SecretString)>, String> {
    let is_header = |(name, value): &(String, String)| {
        HeaderName::try_from(name).is_ok()
            && HeaderValue::try_from(value).is_ok()
            && !RESERVED_HEADERS.contains(&name.to_ascii_lowercase().as_str())
    };
    let pairs = pairs(value)?;
    if !pairs.iter().all(is_header) {
        return Err(format!(
            "must be names and values of HTTP headers other than {}",
            RESERVED_HEADERS.join(", ")
        ));
    }
    let secret = |(name, value): (String, String)| (name, SecretString::from(value));
    Ok(pairs.into_iter().map(secret).collect())
}

fn ratio(value: &Value) -> Result<f64, String> {
    decimal(value)
        .filter(|ratio| (0.0..=1.0).contains(ratio))
        .ok_or_else(|| "must be a number from 0 to 1".to_owned())
}
