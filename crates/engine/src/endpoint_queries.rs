//! Requests of searches to an embeddings endpoint.

use std::time::Duration;

use keepsake_core::{Breaker, BreakerChange, MeaningReason, TenantId};
use keepsake_embeddings::{Endpoint, EndpointAnswer, EndpointError};
use keepsake_telemetry::Metrics;
use parking_lot::Mutex;
use tokio::time::{Instant, timeout_at};

use crate::EngineError;
use crate::fair::FairSlots;

/// Requests at a time, in all and of a tenant.
const AT_ONCE: usize = 8;
const PER_TENANT: usize = 4;
/// How long a search waits for an endpoint, with the wait for a slot: with the rest of its work, it takes at most
/// 300 ms more than a search by words.
const TIME_LIMIT: Duration = Duration::from_millis(290);
/// Each search may fail at the endpoint; there is one warning in this time.
const WARNED_AGAIN_AFTER: Duration = Duration::from_mins(1);

/// Bounds how long searches wait for an endpoint: each for a short time, and none of them while
/// the endpoint does not answer.
#[derive(Debug)]
pub(crate) struct EndpointQueries {
    slots: FairSlots,
    breaker: Breaker,
    failures: Mutex<Failures>,
    metrics: Metrics,
}

#[derive(Debug, Default)]
struct Failures {
    /// Why the last query failed; `None`: it did not.
    last: Option<MeaningReason>,
    warned_at: Option<Instant>,
}

impl EndpointQueries {
    pub(crate) fn new(metrics: Metrics) -> Self {
        let slots = FairSlots::new(AT_ONCE, PER_TENANT);
        Self { slots, breaker: Breaker::default(), failures: Mutex::default(), metrics }
    }

    /// Why the last query failed because of the endpoint; `None`: it did not.
    pub(crate) fn failure(&self) -> Option<MeaningReason> {
        self.failures.lock().last
    }

    /// Notes and logs how a query ended, after its answer was read.
    pub(crate) fn note(&self, error: Option<&EndpointError>) {
        let mut failures = self.failures.lock();
        let Some(error) = error else {
            failures.last = None;
            return;
        };
        // The query is too long for the model: that says nothing about the endpoint.
        if matches!(error, EndpointError::Refused { status: 413 | 422 }) {
            return;
        }
        let now = Instant::now();
        let is_warned = failures.warned_at.is_some_and(|warned_at| now < warned_at + WARNED_AGAIN_AFTER);
        // Time-outs are noted, with a warning, when the breaker opens.
        let is_timeout = matches!(error, EndpointError::TimedOut);
        if !is_timeout {
            failures.last = Some(MeaningReason::Failed);
        }
        if is_timeout || is_warned {
            tracing::debug!(error = %error, "engine.search goes without the meaning of its query");
        } else {
            failures.warned_at = Some(now);
            tracing::warn!(error = %error, "engine.search: the embeddings endpoint fails; searches use words only");
        }
    }

    /// The answer to a query, in time or not at all. After repeated time-outs, queries time out at
    /// once for some seconds.
    pub(crate) async fn ask(
        &self,
        endpoint: &Endpoint,
        tenant_id: TenantId,
        text: &str,
    ) -> Result<Result<EndpointAnswer, EndpointError>, EngineError> {
        let deadline = Instant::now() + TIME_LIMIT;
        let Ok(slot) = timeout_at(deadline, self.slots.take(tenant_id)).await else {
            return Ok(Err(EndpointError::TimedOut));
        };
        let _slot = slot?;
        let admitted_at = Instant::now();
        let Some(call) = self.breaker.admit(admitted_at.into_std()) else {
            return Ok(Err(EndpointError::TimedOut));
        };
        let left = deadline.saturating_duration_since(admitted_at);
        let answer = timeout_at(deadline, endpoint.embed_query(text, left)).await;
        let answer = answer.unwrap_or(Err(EndpointError::TimedOut));
        let is_timeout = matches!(answer, Err(EndpointError::TimedOut));
        // After a long wait behind other queries of its tenant, a time-out is not the endpoint's.
        if !is_timeout || left >= TIME_LIMIT / 2 {
            let change = call.ended(is_timeout, Instant::now().into_std());
            if let Some(change) = change {
                self.metrics.embedding_breaker_opened(change == BreakerChange::Opened);
            }
            match change {
                Some(BreakerChange::Opened) => {
                    self.failures.lock().last = Some(MeaningReason::Timeout);
                    tracing::warn!(
                        "engine.search stops asking the embeddings endpoint for some seconds, since it does not \
                         answer in time; searches use words only"
                    );
                }
                Some(BreakerChange::Closed) => {
                    tracing::info!("engine.search: the embeddings endpoint answers in time again");
                }
                None => {}
            }
        }
        Ok(answer)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::net::TcpListener;

    use futures::future::join_all;
    use keepsake_embeddings::EndpointConfig;
    use uuid::Uuid;

    use super::*;

    /// An endpoint whose connections the system accepts, and that never answers.
    pub(crate) fn hanging_endpoint() -> (TcpListener, EndpointConfig) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let config = EndpointConfig {
            url: format!("http://{}/v1", listener.local_addr().unwrap()),
            model: "model".to_owned(),
            key: None,
            dimensions: 2,
            query_prefix: String::new(),
            document_prefix: String::new(),
        };
        (listener, config)
    }

    pub(crate) fn tenant(number: u128) -> TenantId {
        TenantId::from_uuid(Uuid::from_u128(number))
    }

    /// Asks until an answer or the time limit; returns how long it took.
    async fn waited(queries: &EndpointQueries, endpoint: &Endpoint, tenant_id: TenantId) -> Duration {
        let began_at = Instant::now();
        let answer = queries.ask(endpoint, tenant_id, "terse").await.unwrap();
        assert_eq!(answer.unwrap_err(), EndpointError::TimedOut);
        began_at.elapsed()
    }

    #[tokio::test(start_paused = true)]
    async fn hanging_endpoint_costs_each_search_the_time_limit_and_then_nothing() {
        let (_listener, config) = hanging_endpoint();
        let (endpoint, queries) = (Endpoint::new(config).unwrap(), EndpointQueries::new(Metrics::default()));
        let (in_time, at_once) = (TIME_LIMIT..TIME_LIMIT * 11 / 10, Duration::ZERO..TIME_LIMIT / 10);
        // Of one tenant, more than its slots and than the breaker admits: the others wait for a slot.
        let of_one = (0..3 * PER_TENANT).map(|_| waited(&queries, &endpoint, tenant(1)));
        for waited in join_all(of_one).await {
            assert!(in_time.contains(&waited), "{waited:?}");
        }
        let another = waited(&queries, &endpoint, tenant(2)).await;
        assert!(at_once.contains(&another), "{another:?}");
        // A probe finds the endpoint as it was.
        tokio::time::advance(Duration::from_secs(1)).await;
        for expected in [in_time, at_once] {
            let waited = waited(&queries, &endpoint, tenant(2)).await;
            assert!(expected.contains(&waited), "{waited:?} is not in {expected:?}");
        }

        // Queries that wait long for their own tenant's slots say nothing about the endpoint.
        let queries = EndpointQueries::new(Metrics::default());
        let slots = join_all((0..PER_TENANT).map(|_| queries.slots.take(tenant(1)))).await;
        let late = async {
            tokio::time::sleep(TIME_LIMIT * 3 / 4).await;
            drop(slots);
        };
        let waiting = join_all((0..PER_TENANT).map(|_| waited(&queries, &endpoint, tenant(1))));
        let (waited_for, ()) = tokio::join!(waiting, late);
        assert!(waited_for.iter().all(|waited| *waited >= TIME_LIMIT), "{waited_for:?}");
        assert!(queries.breaker.admit(Instant::now().into_std()).is_some());
    }
}
