//! Where metrics and traces go: an OTLP collector, and whoever reads `/metrics`.
//!
//! One meter provider has both readers. The exporters have threads of their
//! own: no request waits for a collector, and one that is away costs what it
//! was not told.

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

/// How long one export may take.
const EXPORT_TIMEOUT: Duration = Duration::from_secs(10);
/// What the targets of Keepsake's own spans begin with.
const OWN_TARGETS: &str = "keepsake";

/// What a process tells of itself, and to whom.
#[derive(Debug, Clone)]
pub struct TelemetryOptions {
    /// Its name, as collectors group processes.
    pub service_name: String,
    /// Its version.
    pub service_version: &'static str,
    /// What tells it from the others of its name.
    pub instance_id: String,
    /// More that is true of it: names and values.
    pub resource_attributes: Vec<(String, String)>,
    /// The collector; `None`: nothing is exported.
    pub otlp: Option<OtlpOptions>,
}

/// How a collector is told, over HTTP with protobuf.
#[derive(Debug, Clone)]
pub struct OtlpOptions {
    /// Its base URL, below which are `/v1/traces` and `/v1/metrics`.
    pub endpoint: String,
    /// Headers that every export carries; values may be secret.
    pub headers: Vec<(String, SecretString)>,
    /// Of traces that begin here, the share that is kept, from 0 to 1.
    pub sample_ratio: f64,
    /// How far apart metrics are told.
    pub metrics_interval: Duration,
}

/// Why telemetry cannot be set up.
#[derive(Debug, thiserror::Error)]
pub enum TelemetryError {
    /// The OTLP exporter cannot be made.
    #[error("the OTLP exporter: {0}")]
    Otlp(#[from] ExporterBuildError),
    /// The metrics cannot be made readable for Prometheus.
    #[error("the metrics: {0}")]
    Metrics(#[from] OTelSdkError),
}

/// The telemetry of one process.
#[derive(Debug)]
pub struct Telemetry {
    meters: SdkMeterProvider,
    tracers: Option<SdkTracerProvider>,
    exposition: Exposition,
    metrics: Metrics,
}

impl Telemetry {
    /// Begins to export, where there is a collector.
    ///
    /// # Errors
    /// [`TelemetryError`] when an exporter cannot be made; whether a collector
    /// answers is not asked.
    pub fn start(options: &TelemetryOptions) -> Result<Self, TelemetryError> {
        let resource = resource(options);
        let registry = Registry::new();
        // One process is one target: what is true of all its metrics is told by
        // the scrape, and there is one scope.
        let reader = opentelemetry_prometheus::exporter()
            .with_registry(registry.clone())
            .scope_info_enabled(false)
            .build()?;
        let mut meters = SdkMeterProvider::builder()
            .with_resource(resource.clone())
            .with_reader(reader);
        let mut tracers = None;
        if let Some(otlp) = &options.otlp {
            let exporter = configured(MetricExporter::builder().with_http(), otlp, "metrics").build()?;
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

    /// Where to record.
    pub fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    /// What Prometheus reads.
    pub fn exposition(&self) -> &Exposition {
        &self.exposition
    }

    /// What takes spans to the collector; `None`: there is none.
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

    /// Exports what has not been exported yet, and ends.
    ///
    /// Blocks, at most about `deadline` where the collector is away.
    ///
    /// # Errors
    /// [`OTelSdkError`]: something may not have arrived.
    pub fn shut_down(&self, deadline: Duration) -> Result<(), OTelSdkError> {
        let traces = self
            .tracers
            .as_ref()
            .map_or(Ok(()), |tracers| tracers.shutdown_with_timeout(deadline));
        self.meters.shutdown_with_timeout(deadline)?;
        traces
    }
}

/// Spans at `debug` level are what traces are made of.
fn is_of_a_trace(metadata: &Metadata<'_>) -> bool {
    metadata.is_span() && *metadata.level() == Level::DEBUG && metadata.target().starts_with(OWN_TARGETS)
}

/// An exporter of one signal with what both have.
fn configured<B: WithExportConfig + WithHttpConfig>(builder: B, otlp: &OtlpOptions, signal: &str) -> B {
    let endpoint = format!("{}/v1/{signal}", otlp.endpoint.trim_end_matches('/'));
    let headers = otlp.headers.iter();
    let headers: HashMap<_, _> = headers
        .map(|(name, value)| (name.clone(), value.expose_secret().to_owned()))
        .collect();
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
        .with_batch_exporter(exporter)
        .with_sampler(sampler)
        .with_resource(resource)
        .build())
}

fn resource(options: &TelemetryOptions) -> Resource {
    let named = options
        .resource_attributes
        .iter()
        .map(|(name, value)| KeyValue::new(name.clone(), value.clone()));
    Resource::builder()
        .with_attributes(named)
        .with_service_name(options.service_name.clone())
        .with_attributes([
            KeyValue::new("service.version", options.service_version),
            KeyValue::new("service.instance.id", options.instance_id.clone()),
        ])
        .build()
}

/// The metrics of a process as Prometheus reads them; cheap to clone.
#[derive(Clone)]
pub struct Exposition(Registry);

impl Exposition {
    /// The media type of the text.
    pub const CONTENT_TYPE: &'static str = prometheus::TEXT_FORMAT;

    /// Every metric as it is now; `None` when they cannot be written down.
    pub fn text(&self) -> Option<String> {
        TextEncoder::new().encode_to_string(&self.0.gather()).ok()
    }
}

impl fmt::Debug for Exposition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Exposition").finish_non_exhaustive()
    }
}
