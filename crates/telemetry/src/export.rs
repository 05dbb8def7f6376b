//! Exports metrics and traces to an OTLP collector, and metrics to `/metrics`.
//!
//! One meter provider has both readers. Exporters run in background threads, so
//! no request waits for a collector. Data is lost while the collector is
//! unreachable, which is logged.

use std::collections::HashMap;
use std::fmt;
use std::time::Duration;

use opentelemetry::KeyValue;
use opentelemetry::metrics::MeterProvider;
use opentelemetry::trace::TracerProvider;
use opentelemetry_otlp::{
    ExporterBuildError, MetricExporter, Protocol, SpanExporter, WithExportConfig, WithHttpConfig,
};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::OTelSdkError;
use opentelemetry_sdk::metrics::{PeriodicReader, SdkMeterProvider};
use opentelemetry_sdk::trace::{Sampler, SdkTracerProvider};
use prometheus::{Registry, TextEncoder};
use secrecy::{ExposeSecret, SecretString};
use tracing::{Level, Metadata, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::filter::filter_fn;
use tracing_subscriber::registry::LookupSpan;

use crate::Metrics;
use crate::logged::LoggedExporter;

const EXPORT_TIMEOUT: Duration = Duration::from_secs(10);
/// The prefix of the targets of Keepsake's spans.
const OWN_TARGETS: &str = "keepsake";

/// The name of the process, and its collector.
#[derive(Debug, Clone)]
pub struct TelemetryOptions {
    /// The name by which collectors group processes.
    pub service_name: String,
    pub resource_attributes: Vec<(String, String)>,
    /// The collector; `None`: nothing is exported.
    pub otlp: Option<OtlpOptions>,
}

/// The collector, to which OTLP is sent over HTTP with protobuf.
#[derive(Debug, Clone)]
pub struct OtlpOptions {
    /// Its base URL, below which are `/v1/traces` and `/v1/metrics`.
    pub endpoint: String,
    /// Headers of every export; their values may be secret.
    pub headers: Vec<(String, SecretString)>,
    /// The share of the traces started here that is sampled, from 0 to 1.
    pub sample_ratio: f64,
    pub metrics_interval: Duration,
}

#[derive(Debug, thiserror::Error)]
pub enum TelemetryError {
    #[error("the OTLP exporter: {0}")]
    Otlp(#[from] ExporterBuildError),
    #[error("the metrics: {0}")]
    Metrics(#[from] OTelSdkError),
}

#[derive(Debug)]
pub struct Telemetry {
    meters: SdkMeterProvider,
    tracers: Option<SdkTracerProvider>,
    exposition: Exposition,
    metrics: Metrics,
}

impl Telemetry {
    /// Starts exporting if there is a collector, without connecting to it yet. `instance_id`
    /// differs between processes of the same name.
    pub fn start(
        options: &TelemetryOptions,
        service_version: &'static str,
        instance_id: String,
    ) -> Result<Self, TelemetryError> {
        let named = options.resource_attributes.iter();
        let resource = Resource::builder()
            .with_attributes(named.map(|(name, value)| KeyValue::new(name.clone(), value.clone())))
            .with_service_name(options.service_name.clone())
            .with_attributes([
                KeyValue::new("service.version", service_version),
                KeyValue::new("service.instance.id", instance_id),
            ])
            .build();
        let registry = Registry::new();
        // One process is one scrape target with one scope, so metrics need no
        // labels for resource and scope.
        let reader = opentelemetry_prometheus::exporter()
            .with_registry(registry.clone())
            .scope_info_enabled(false)
            .build()?;
        let mut meters = SdkMeterProvider::builder().with_resource(resource.clone()).with_reader(reader);
        let mut tracers = None;
        if let Some(otlp) = &options.otlp {
            let exporter = configured(MetricExporter::builder().with_http(), otlp, "metrics").build()?;
            let exporter = LoggedExporter::new(exporter, "metrics");
            let reader = PeriodicReader::builder(exporter).with_interval(otlp.metrics_interval);
            meters = meters.with_reader(reader.build());
            tracers = Some(tracer_provider(otlp, resource)?);
        }
        let meters = meters.build();
        Ok(Self {
            metrics: Metrics::new(&meters.meter("keepsake")),
            meters,
            tracers,
            exposition: Exposition(registry),
        })
    }

    pub fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    pub fn exposition(&self) -> &Exposition {
        &self.exposition
    }

    /// The layer that exports spans; `None` without a collector.
    pub fn layer<S>(&self) -> Option<impl Layer<S> + Send + Sync + use<S>>
    where
        S: Subscriber + for<'a> LookupSpan<'a> + Send + Sync,
    {
        let tracer = self.tracers.as_ref()?.tracer("keepsake");
        let layer = tracing_opentelemetry::layer()
            .with_tracer(tracer)
            .with_location(false)
            .with_threads(false)
            .with_target(false)
            .with_tracked_inactivity(false);
        Some(layer.with_filter(filter_fn(is_of_a_trace)))
    }

    /// Exports the remaining data and stops the exporters. An error means that some data may
    /// not have arrived.
    ///
    /// Blocks for up to about `deadline` if the collector is unreachable.
    pub fn shut_down(&self, deadline: Duration) -> Result<(), OTelSdkError> {
        let traces = self.tracers.as_ref().map_or(Ok(()), |tracers| tracers.shutdown_with_timeout(deadline));
        self.meters.shutdown_with_timeout(deadline)?;
        traces
    }
}

/// Selects the spans of a trace: those at `debug` level.
fn is_of_a_trace(metadata: &Metadata<'_>) -> bool {
    metadata.is_span() && *metadata.level() == Level::DEBUG && metadata.target().starts_with(OWN_TARGETS)
}

/// Sets the options that the exporters of traces and metrics share.
fn configured<B: WithExportConfig + WithHttpConfig>(builder: B, otlp: &OtlpOptions, signal: &str) -> B {
    let endpoint = format!("{}/v1/{signal}", otlp.endpoint.trim_end_matches('/'));
    let headers = otlp.headers.iter();
    let headers: HashMap<_, _> =
        headers.map(|(name, value)| (name.clone(), value.expose_secret().to_owned())).collect();
    builder
        .with_protocol(Protocol::HttpBinary)
        .with_endpoint(endpoint)
        .with_headers(headers)
        .with_timeout(EXPORT_TIMEOUT)
}

fn tracer_provider(otlp: &OtlpOptions, resource: Resource) -> Result<SdkTracerProvider, ExporterBuildError> {
    let exporter = configured(SpanExporter::builder().with_http(), otlp, "traces").build()?;
    let sampler = Sampler::ParentBased(Box::new(Sampler::TraceIdRatioBased(otlp.sample_ratio)));
    Ok(SdkTracerProvider::builder()
        .with_batch_exporter(LoggedExporter::new(exporter, "traces"))
        .with_sampler(sampler)
        .with_resource(resource)
        .build())
}

/// The metrics of a process in Prometheus format; cheap to clone.
#[derive(Clone)]
pub struct Exposition(Registry);

impl Exposition {
    pub const CONTENT_TYPE: &'static str = prometheus::TEXT_FORMAT;

    /// The current value of every metric; `None` if they cannot be encoded.
    pub fn text(&self) -> Option<String> {
        TextEncoder::new().encode_to_string(&self.0.gather()).ok()
    }
}

impl fmt::Debug for Exposition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Exposition").finish_non_exhaustive()
    }
}
