//! W3C trace context: continues the trace of a client.

use http::HeaderMap;
use opentelemetry::propagation::TextMapPropagator;
use opentelemetry::trace::{Status, TraceContextExt};
use opentelemetry_http::HeaderExtractor;
use opentelemetry_sdk::propagation::TraceContextPropagator;
use tracing::Span;
use tracing_opentelemetry::OpenTelemetrySpanExt;

/// The attribute of spans with the id of a memory store.
const STORE_ID: &str = "gen_ai.memory.store.id";
const TRACEPARENT: &str = "traceparent";

/// Makes a span a child of the span in the request's headers, if there is one.
///
/// Returns the id of the request's trace, which the client or this process
/// started; `None` if there is no trace.
pub fn join(span: &Span, headers: &HeaderMap) -> Option<String> {
    let mut trace_id = None;
    if headers.contains_key(TRACEPARENT) {
        let parent = TraceContextPropagator::new().extract(&HeaderExtractor(headers));
        let parent_span = parent.span().span_context().clone();
        if parent_span.is_valid() {
            trace_id = Some(parent_span.trace_id());
            // Fails if nothing is exported or the span is not in a trace.
            let _ = span.set_parent(parent);
        }
    }
    if !span.is_disabled() {
        let own = span.context().span().span_context().clone();
        if own.is_valid() {
            trace_id = Some(own.trace_id());
        }
    }
    trace_id.map(|trace_id| trace_id.to_string())
}

/// Records the status of the response; 5xx marks the span as failed.
pub fn answered(span: &Span, status: http::StatusCode) {
    span.set_attribute("http.response.status_code", i64::from(status.as_u16()));
    if status.is_server_error() {
        span.set_status(Status::error(""));
    }
}

/// Names the memory store of a request, as the semantic conventions for generative AI do.
pub fn of_store(span: &Span, store_id: impl std::fmt::Display) {
    span.set_attribute(STORE_ID, store_id.to_string());
}

pub fn of_tenant(span: &Span, tenant_id: &str) {
    span.set_attribute("tenant.id", tenant_id.to_owned());
}
