//! An exporter whose failures are in the log.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::metrics::Temporality;
use opentelemetry_sdk::metrics::data::ResourceMetrics;
use opentelemetry_sdk::metrics::exporter::PushMetricExporter;
use opentelemetry_sdk::trace::{SpanData, SpanExporter};

/// Logs the first of several failures in a row, and the first success after them.
#[derive(Debug)]
pub(crate) struct LoggedExporter<E> {
    exporter: E,
    /// What is exported: `traces` or `metrics`.
    signal: &'static str,
    is_failing: AtomicBool,
}

impl<E> LoggedExporter<E> {
    pub(crate) const fn new(exporter: E, signal: &'static str) -> Self {
        Self { exporter, signal, is_failing: AtomicBool::new(false) }
    }

    fn logged(&self, exported: OTelSdkResult) -> OTelSdkResult {
        let was_failing = self.is_failing.swap(exported.is_err(), Ordering::Relaxed);
        match &exported {
            Err(error) if !was_failing => {
                tracing::warn!(
                    telemetry.signal = self.signal,
                    error = %error,
                    "telemetry.export failed: the collector took no data"
                );
            }
            Ok(()) if was_failing => {
                tracing::info!(
                    telemetry.signal = self.signal,
                    "telemetry.export: the collector takes data again"
                );
            }
            Ok(()) | Err(_) => {}
        }
        exported
    }
}

impl<E: SpanExporter> SpanExporter for LoggedExporter<E> {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        self.logged(self.exporter.export(batch).await)
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.exporter.shutdown_with_timeout(timeout)
    }

    fn force_flush(&self) -> OTelSdkResult {
        self.exporter.force_flush()
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.exporter.set_resource(resource);
    }
}

impl<E: PushMetricExporter> PushMetricExporter for LoggedExporter<E> {
    async fn export(&self, metrics: &ResourceMetrics) -> OTelSdkResult {
        self.logged(self.exporter.export(metrics).await)
    }

    fn force_flush(&self) -> OTelSdkResult {
        self.exporter.force_flush()
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.exporter.shutdown_with_timeout(timeout)
    }

    fn temporality(&self) -> Temporality {
        self.exporter.temporality()
    }
}
