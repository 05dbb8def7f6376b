//! An OTLP collector: receives traces and metrics over HTTP for a test to read.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::routing::post;
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use prost::Message;
use tokio::task::JoinSet;

use crate::{listen, locked, serve};

/// A collector that runs until it is dropped.
#[derive(Debug)]
pub struct Collector {
    url: String,
    received: Arc<Mutex<ReceivedTelemetry>>,
    _serving: JoinSet<()>,
}

/// A span as it was exported; ids are in hexadecimal.
#[derive(Debug, Clone, PartialEq)]
pub struct CollectedSpan {
    pub trace_id: String,
    pub span_id: String,
    /// The span above it; empty: none.
    pub parent_span_id: String,
    pub name: String,
    /// 2 is a server's, 3 a client's.
    pub kind: i32,
    /// Its attributes, numbers as text.
    pub attributes: BTreeMap<String, String>,
    /// The attributes of the process.
    pub resource: BTreeMap<String, String>,
}

type Shared = State<Arc<Mutex<ReceivedTelemetry>>>;

#[derive(Debug, Default)]
struct ReceivedTelemetry {
    authorization: String,
    spans: Vec<CollectedSpan>,
    metrics: BTreeSet<String>,
    /// Every export as it was sent, unreadable ones included.
    bodies: Vec<Bytes>,
}

impl Collector {
    /// Starts on a free loopback port; takes exports that carry `authorization`.
    pub async fn start(authorization: &str) -> Self {
        let received = Arc::new(Mutex::new(ReceivedTelemetry {
            authorization: authorization.to_owned(),
            ..ReceivedTelemetry::default()
        }));
        let router = Router::new()
            .route("/v1/traces", post(take_traces))
            .route("/v1/metrics", post(take_metrics))
            .with_state(Arc::clone(&received));
        let (listener, url) = listen().await;
        Self { url, received, _serving: serve(listener, router) }
    }

    pub fn url(&self) -> &str {
        &self.url
    }

    pub fn spans(&self) -> Vec<CollectedSpan> {
        locked(&self.received).spans.clone()
    }

    pub fn metrics(&self) -> BTreeSet<String> {
        locked(&self.received).metrics.clone()
    }

    pub fn has_seen(&self, text: &str) -> bool {
        let bodies = &locked(&self.received).bodies;
        let text = text.as_bytes();
        bodies.iter().any(|body| body.windows(text.len()).any(|part| part == text))
    }
}

/// Keeps an export's bytes, and reads them where it is authorized.
fn read<T: Message + Default>(
    received: &Mutex<ReceivedTelemetry>,
    headers: &HeaderMap,
    body: &Bytes,
) -> Result<T, StatusCode> {
    let mut received = locked(received);
    received.bodies.push(body.clone());
    let authorization = headers.get(header::AUTHORIZATION);
    if authorization.is_none_or(|value| value.as_bytes() != received.authorization.as_bytes()) {
        return Err(StatusCode::UNAUTHORIZED);
    }
    T::decode(body.as_ref()).map_err(|_| StatusCode::BAD_REQUEST)
}

async fn take_traces(State(received): Shared, headers: HeaderMap, body: Bytes) -> Result<(), StatusCode> {
    let export: ExportTraceServiceRequest = read(&received, &headers, &body)?;
    for of_resource in export.resource_spans {
        let resource = of_resource.resource.unwrap_or_default();
        let resource = attributes(&resource.attributes);
        let spans = of_resource.scope_spans.into_iter().flat_map(|scope| scope.spans);
        let spans = spans.map(|span| CollectedSpan {
            trace_id: hex(&span.trace_id),
            span_id: hex(&span.span_id),
            parent_span_id: hex(&span.parent_span_id),
            name: span.name,
            kind: span.kind,
            attributes: attributes(&span.attributes),
            resource: resource.clone(),
        });
        locked(&received).spans.extend(spans);
    }
    Ok(())
}

async fn take_metrics(State(received): Shared, headers: HeaderMap, body: Bytes) -> Result<(), StatusCode> {
    let export: ExportMetricsServiceRequest = read(&received, &headers, &body)?;
    let scopes = export.resource_metrics.into_iter().flat_map(|it| it.scope_metrics);
    let names = scopes.flat_map(|scope| scope.metrics).map(|metric| metric.name);
    locked(&received).metrics.extend(names);
    Ok(())
}

fn attributes(pairs: &[KeyValue]) -> BTreeMap<String, String> {
    let text = |pair: &KeyValue| {
        let value = pair.value.as_ref().and_then(|value| value.value.as_ref());
        match value {
            Some(Value::StringValue(text)) => text.clone(),
            Some(Value::IntValue(number)) => number.to_string(),
            Some(Value::DoubleValue(number)) => number.to_string(),
            Some(Value::BoolValue(truth)) => truth.to_string(),
            other => format!("{other:?}"),
        }
    };
    pairs.iter().map(|pair| (pair.key.clone(), text(pair))).collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |text, byte| text + &format!("{byte:02x}"))
}
