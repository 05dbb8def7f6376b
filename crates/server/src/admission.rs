//! Admission of requests by the tenant's rate limit and its shares of requests and memory.
//!
//! Memory is counted in bytes: bodies, the JSON values parsed from them, content read for answers,
//! and answers until they are sent. A request without a valid credential takes no share.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::http::Method;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use hyper::body::{Body as HttpBody, Frame, SizeHint};
use keepsake_engine::{Engine, FairShares, Principal, RequestShares, holding};
use keepsake_telemetry::Refused;
use tokio::time::Instant;

use crate::ServerOptions;
use crate::auth::authenticate;
use crate::error::ApiError;
use crate::rate::{Rates, Verdict};

/// Memory of a request besides its body and answer: head, task, spans.
const REQUEST_BYTES: u64 = 16 << 10;

/// Rate limits and shares of one process.
#[derive(Debug)]
pub(crate) struct Admission {
    engine: Engine,
    rates: Rates,
    requests: FairShares,
    memory: FairShares,
}

impl Admission {
    pub(crate) fn new(engine: Engine, options: &ServerOptions) -> Self {
        Self {
            engine,
            rates: Rates::default(),
            requests: FairShares::new(u64::try_from(options.max_requests_in_flight).unwrap_or(u64::MAX)),
            memory: FairShares::new(options.max_request_memory_bytes),
        }
    }
}

/// The shares of a request, as an extension: for the extractors that read its body, and for MCP,
/// which serves the request in another task.
#[derive(Clone)]
pub(crate) struct Holder(pub(crate) Arc<RequestShares>);

/// Marks an answer that holds none of its tenant's shares while it is sent.
#[derive(Debug, Clone, Copy)]
pub(crate) struct UnsharedAnswer;

/// Authenticates a request, then admits it, possibly after a short wait, or refuses it. The answer of an
/// error carries the principal, for the navigation of the console's page.
pub(crate) async fn admit(
    State(admission): State<Arc<Admission>>,
    mut request: Request,
    next: Next,
) -> Result<Response, Response> {
    let principal = authenticate(&admission.engine, &mut request).await?;
    let mut response = admitted(&admission, &principal, request, next).await.into_response();
    if response.status().is_client_error() || response.status().is_server_error() {
        response.extensions_mut().insert(principal);
    }
    Ok(response)
}

async fn admitted(
    admission: &Admission,
    principal: &Principal,
    mut request: Request,
    next: Next,
) -> Result<Response, ApiError> {
    let (tenant_id, limits) = (principal.tenant_id, &principal.limits);
    let gateways = admission.engine.replica.gateways();
    match admission.rates.take(tenant_id, limits, gateways, Instant::now()) {
        Verdict::Passes(wait) if wait.is_zero() => {}
        Verdict::Passes(wait) => tokio::time::sleep(wait).await,
        Verdict::Refused { retry_after_seconds } => {
            admission.engine.metrics().rate_refused(Refused::Rate);
            let limit = limits.requests_per_second;
            return Err(ApiError::over_rate(limit, retry_after_seconds));
        }
    }
    let shares = admission.requests.take(tenant_id, 1);
    let shares = shares.zip(admission.memory.take(tenant_id, REQUEST_BYTES));
    let Some((request_share, memory)) = shares else {
        admission.engine.metrics().rate_refused(Refused::InFlight);
        return Err(ApiError::too_many_in_flight());
    };
    let held = Arc::new(RequestShares { request: request_share, memory });
    request.extensions_mut().insert(Holder(Arc::clone(&held)));
    let is_read = matches!(*request.method(), Method::GET | Method::HEAD);
    let response = holding(Arc::clone(&held), next.run(request)).await;
    Ok(counted(held, response, is_read))
}

/// Charges an answer to the tenant's memory share until the client has received the answer.
///
/// An answer over the share is refused if the request only reads. Otherwise it is sent, and the
/// tenant's next requests are refused.
fn counted(held: Arc<RequestShares>, response: Response, is_read: bool) -> Response {
    if response.extensions().get::<UnsharedAnswer>().is_some() {
        return response;
    }
    let Some(bytes) = response.body().size_hint().exact() else {
        return response.map(|body| holding_until_sent(held, body));
    };
    let bytes = bytes.saturating_add(REQUEST_BYTES);
    if !held.memory.try_set(bytes) {
        if is_read {
            return ApiError::over_memory().into_response();
        }
        held.memory.set(bytes);
    }
    response.map(|body| holding_until_sent(held, body))
}

/// Holds a request's shares until the operating system has accepted all bytes of its answer,
/// possibly long after the body has ended.
pub(crate) fn holding_until_sent<H: Send + Sync + 'static>(held: Arc<H>, body: Body) -> Body {
    Body::new(CountedBody { body, held })
}

/// Each frame of this body holds the request's shares.
struct CountedBody<H> {
    body: Body,
    held: Arc<H>,
}

impl<H: Send + Sync + 'static> HttpBody for CountedBody<H> {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(context));
        let hold = |bytes| Bytes::from_owner(HeldBytes { bytes, _held: Arc::clone(&self.held) });
        Poll::Ready(frame.map(|frame| frame.map(|frame| frame.map_data(hold))))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        HttpBody::size_hint(&self.body)
    }
}

struct HeldBytes<H> {
    bytes: Bytes,
    _held: Arc<H>,
}

impl<H> AsRef<[u8]> for HeldBytes<H> {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}
