//! What a process tells of itself: metrics, traces, and where they go.
//!
//! [`Metrics`] holds every instrument, made once; whoever does the work records
//! there. [`Telemetry`] is the process's own: it takes metrics and spans to an
//! OTLP collector where one is configured, and renders the metrics as
//! Prometheus reads them. [`trace`] takes a trace over from a client.
//!
//! A span at `debug` level is part of a trace, and nothing else is: events stay
//! in the log. Neither spans nor metrics hold content, paths or secrets; the
//! tenant is on spans, never a label of a metric.

mod export;
mod metrics;
pub mod trace;

pub use export::{Exposition, OtlpOptions, Telemetry, TelemetryError, TelemetryOptions};
pub use metrics::{Cache, Conflict, JobRun, Metrics, Outcome, Quota, Refused, RequestUnderWay, Retried};
