//! Who may go on: within the tenant's rate, and where there is a place.
//!
//! Stands behind authentication: what a tenant asks for is its own to answer
//! for, and who shows no good credential takes no place.

use std::any::Any;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use governor::clock::MonotonicClock;
use keepsake_engine::{Engine, Principal, holding};
use keepsake_telemetry::Refused;

use crate::ServerOptions;
use crate::error::ApiError;
use crate::places::Places;
use crate::rate::{Rates, Verdict};

/// The bounds of one process; cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Admission {
    engine: Engine,
    rates: Rates,
    places: Places,
}

impl Admission {
    /// Bounds of which nothing is used yet.
    pub(crate) fn new(engine: Engine, options: &ServerOptions) -> Self {
        Self {
            engine,
            rates: Rates::new(MonotonicClock),
            places: Places::new(options.max_requests_in_flight),
        }
    }
}

type Held = Arc<dyn Any + Send + Sync>;

/// The request's place, for what serves it in a task of its own.
#[derive(Clone)]
pub(crate) struct Holder(pub(crate) Held);

/// Lets a request pass, perhaps a little later, or refuses it at once.
pub(crate) async fn admit(State(admission): State<Admission>, mut request: Request, next: Next) -> Response {
    let Some(principal) = request.extensions().get::<Arc<Principal>>() else {
        return ApiError::internal().into_response();
    };
    let (tenant_id, limits) = (principal.tenant_id, &principal.limits);
    let gateways = admission.engine.gateways();
    match admission.rates.take(tenant_id, limits, gateways) {
        Verdict::Passes(wait) if wait.is_zero() => {}
        Verdict::Passes(wait) => tokio::time::sleep(wait).await,
        Verdict::Refused { retry_after_seconds } => {
            admission.engine.metrics().rate_refused(Refused::Rate);
            let limit = limits.requests_per_second;
            return ApiError::over_rate(limit, retry_after_seconds).into_response();
        }
    }
    let Some(place) = admission.places.take(tenant_id) else {
        admission.engine.metrics().rate_refused(Refused::InFlight);
        return ApiError::too_many_in_flight().into_response();
    };
    let held: Held = Arc::new(place);
    request.extensions_mut().insert(Holder(Arc::clone(&held)));
    holding(held, next.run(request)).await
}
