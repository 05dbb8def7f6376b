//! Metrics and traces, and their export.
//!
//! [`Metrics`] has all instruments; the other crates record in them.
//! [`Telemetry`] exports metrics and spans to an OTLP collector, if one is
//! configured, and renders the metrics for Prometheus. [`trace`] continues the
//! trace of a client.
//!
//! Traces consist of the spans at `debug` level. Events go only to the log.
//! Spans and metrics never contain content, paths or secrets. The tenant is an
//! attribute of spans and never a metric label.

mod export;
mod logged;
mod metrics;
pub mod trace;

pub use export::{Exposition, OtlpOptions, Telemetry, TelemetryError, TelemetryOptions};
pub use metrics::{
    Cache, Conflict, Embedded, EmbeddingFailure, JobRun, Metrics, Outcome, PoolState, Refused,
    RequestUnderWay, Retried, StoredTotals,
};
