//! Traces that begin at a client: W3C trace context.

use http::HeaderMap;
use opentelemetry::propagation::TextMapPropagator;
use opentelemetry::trace::{Status, TraceContextExt};
use opentelemetry_http::HeaderExtractor;
use opentelemetry_sdk::propagation::TraceContextPropagator;
use tracing::Span;
use tracing_opentelemetry::OpenTelemetrySpanExt;

const TRACEPARENT: &str = "traceparent";

/// Makes a span the child of what the headers name, if they name something.
///
/// Answers the id of the trace that the request belongs to: the client's, or
/// the one that begins here; `None` where there is neither.
pub fn join(span: &Span, headers: &HeaderMap) -> Option<String> {
    let mut trace_id = None;
    if headers.contains_key(TRACEPARENT) {
        let parent = TraceContextPropagator::new().extract(&HeaderExtractor(headers));
        let parent_span = parent.span().span_context().clone();
        if parent_span.is_valid() {
            trace_id = Some(parent_span.trace_id());
            // Fails where nothing is exported, or the span is none of a trace.
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

/// Notes with what status a request was answered; one of 5xx is a failure.
pub fn answered(span: &Span, status: http::StatusCode) {
    span.set_attribute("http.response.status_code", i64::from(status.as_u16()));
    if status.is_server_error() {
        span.set_status(Status::error(""));
    }
}

/// Notes whose request it is.
pub fn of_tenant(span: &Span, tenant_id: &str) {
    span.set_attribute("tenant.id", tenant_id.to_owned());
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    /// What the log is told where nothing is exported.
    fn told(traceparent: &str) -> Option<String> {
        let mut headers = HeaderMap::new();
        headers.insert(TRACEPARENT, HeaderValue::from_str(traceparent).unwrap());
        join(&Span::none(), &headers)
    }

    #[test]
    fn clients_trace_is_told_where_it_is_one() {
        let trace = "0af7651916cd43dd8448eb211c80319c";
        for flags in ["00", "01"] {
            let traceparent = format!("00-{trace}-b7ad6b7169203331-{flags}");
            assert_eq!(told(&traceparent).as_deref(), Some(trace));
        }
        for malformed in [
            String::new(),
            trace.to_owned(),
            format!("00-{trace}-0000000000000000-01"),
            "00-00000000000000000000000000000000-b7ad6b7169203331-01".to_owned(),
            format!("00-{}-b7ad6b7169203331-01", "x".repeat(32)),
            format!("00-{trace}-b7ad6b7169203331-01-more"),
            format!("ff-{trace}-b7ad6b7169203331-01"),
        ] {
            assert_eq!(told(&malformed), None, "{malformed}");
        }
        assert_eq!(join(&Span::none(), &HeaderMap::new()), None);
    }
}
