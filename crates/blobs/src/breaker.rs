//! A circuit breaker for requests to a blob store.

use std::time::Duration;

use keepsake_telemetry::Metrics;
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::BlobError;

/// Failures in a row that open the breaker.
const MAX_FAILURES: u32 = 3;
/// How long the breaker stays open at first; each failed probe doubles it.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
/// Maximum time that the breaker stays open, so that service resumes soon after the store
/// is back.
const MAX_PAUSE: Duration = Duration::from_secs(4);
/// How long other calls are refused while a probe runs; then the next call is a probe too.
const PROBE_LIMIT: Duration = Duration::from_secs(5);

/// Refuses calls at once while the store does not answer, so that requests do not
/// queue up until their time limits.
///
/// Only [`BlobError::Unavailable`] counts as a failure: a store that refuses
/// credentials does answer.
#[derive(Debug)]
pub(crate) struct Breaker {
    state: Mutex<State>,
    metrics: Metrics,
}

impl Breaker {
    pub(crate) fn new(metrics: Metrics) -> Self {
        Self { state: Mutex::default(), metrics }
    }

    /// Lets a call through, or refuses it.
    pub(crate) fn admit(&self) -> Result<PendingCall<'_>, BlobError> {
        let Some(admission) = self.state.lock().admit(Instant::now()) else {
            self.metrics.blob_call_refused();
            let text = "it did not answer the last calls, and is tried again within seconds";
            return Err(BlobError::Unavailable(text.to_owned()));
        };
        Ok(PendingCall { breaker: self, admission: Some(admission) })
    }
}

/// A running call. If the caller of a probe is dropped, the next call is a probe.
pub(crate) struct PendingCall<'a> {
    breaker: &'a Breaker,
    admission: Option<Admission>,
}

impl PendingCall<'_> {
    pub(crate) fn ended(mut self, error: Option<&BlobError>) {
        let Some(admission) = self.admission.take() else {
            return;
        };
        let mut state = self.breaker.state.lock();
        let was_closed = state.is_closed();
        match error {
            Some(BlobError::Unavailable(_)) => state.failed(admission, Instant::now()),
            _ => state.succeeded(),
        }
        let is_closed = state.is_closed();
        drop(state);
        if was_closed == is_closed {
            return;
        }
        self.breaker.metrics.blob_breaker_opened(!is_closed);
        if let Some(error) = error {
            tracing::warn!(error = %error, "blob.breaker opened: calls are refused until the store answers a probe");
        } else {
            tracing::info!("blob.breaker closed: the store answers");
        }
    }
}

impl Drop for PendingCall<'_> {
    fn drop(&mut self) {
        if let Some(Admission::Probe) = self.admission {
            self.breaker.state.lock().probe_abandoned(Instant::now());
        }
    }
}

/// How a call was let through.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Admission {
    /// The breaker is closed.
    Regular,
    /// The breaker is half open: this call tells whether the store is back.
    Probe,
}

/// The states of the breaker; the caller has the clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Calls go through.
    Closed { failures_in_a_row: u32 },
    /// Calls are refused until a time.
    Open { until: Instant, pause: Duration },
    /// One call goes through.
    HalfOpen { probed_at: Instant, pause: Duration },
}

impl Default for State {
    fn default() -> Self {
        Self::Closed { failures_in_a_row: 0 }
    }
}

impl State {
    const fn is_closed(&self) -> bool {
        matches!(self, Self::Closed { .. })
    }

    /// Lets a call through; `None`: it is refused.
    fn admit(&mut self, now: Instant) -> Option<Admission> {
        let (probe_from, pause) = match *self {
            Self::Closed { .. } => return Some(Admission::Regular),
            Self::Open { until, pause } => (until, pause),
            Self::HalfOpen { probed_at, pause } => (probed_at + PROBE_LIMIT, pause),
        };
        if now < probe_from {
            return None;
        }
        *self = Self::HalfOpen { probed_at: now, pause };
        Some(Admission::Probe)
    }

    /// Closes the breaker: the store answered a regular call or a probe.
    fn succeeded(&mut self) {
        *self = Self::default();
    }

    fn failed(&mut self, admission: Admission, now: Instant) {
        let open = |pause| Self::Open { until: now + pause, pause };
        match (*self, admission) {
            (Self::Closed { failures_in_a_row }, _) if failures_in_a_row + 1 < MAX_FAILURES => {
                *self = Self::Closed { failures_in_a_row: failures_in_a_row + 1 };
            }
            (Self::Closed { .. }, _) => *self = open(FIRST_PAUSE),
            (Self::HalfOpen { pause, .. }, Admission::Probe) => *self = open((pause * 2).min(MAX_PAUSE)),
            // A call from before the breaker opened.
            (Self::Open { .. }, _) | (Self::HalfOpen { .. }, Admission::Regular) => {}
        }
    }

    /// The caller of a probe was dropped: the next call is a probe.
    fn probe_abandoned(&mut self, now: Instant) {
        if let Self::HalfOpen { pause, .. } = *self {
            *self = Self::Open { until: now, pause };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn opened(now: Instant) -> State {
        let mut breaker = State::default();
        for _ in 0..MAX_FAILURES {
            let admission = breaker.admit(now).unwrap();
            breaker.failed(admission, now);
        }
        breaker
    }

    #[test]
    fn only_consecutive_failures_open_the_breaker() {
        let now = Instant::now();
        let mut breaker = State::default();
        for _ in 0..10 {
            for _ in 1..MAX_FAILURES {
                breaker.failed(Admission::Regular, now);
            }
            breaker.succeeded();
        }
        assert_eq!(breaker.admit(now), Some(Admission::Regular));
        assert_eq!(opened(now).admit(now), None);
    }

    #[test]
    fn single_probe_closes_the_breaker_or_prolongs_the_pause() {
        let now = Instant::now();
        let mut breaker = opened(now);
        let mut pause = FIRST_PAUSE;
        let mut now = now;
        for _ in 0..6 {
            now += pause;
            assert_eq!(breaker.admit(now), Some(Admission::Probe));
            assert_eq!(breaker.admit(now), None, "one at a time");
            breaker.failed(Admission::Probe, now);
            assert_eq!(breaker.admit(now), None);
            pause = (pause * 2).min(MAX_PAUSE);
        }
        now += MAX_PAUSE;
        assert_eq!(breaker.admit(now), Some(Admission::Probe));
        breaker.succeeded();
        assert_eq!(breaker.admit(now), Some(Admission::Regular));
    }

    #[test]
    fn abandoned_or_slow_probe_is_replaced() {
        let now = Instant::now();
        let mut breaker = opened(now);
        let now = now + FIRST_PAUSE;
        assert_eq!(breaker.admit(now), Some(Admission::Probe));
        breaker.probe_abandoned(now);
        assert_eq!(breaker.admit(now), Some(Admission::Probe));
        assert_eq!(breaker.admit(now + PROBE_LIMIT / 2), None);
        assert_eq!(breaker.admit(now + PROBE_LIMIT), Some(Admission::Probe));
    }

    #[test]
    fn late_failures_of_earlier_calls_are_ignored() {
        let now = Instant::now();
        let mut breaker = opened(now);
        let before = breaker;
        breaker.failed(Admission::Regular, now + FIRST_PAUSE);
        assert_eq!(breaker, before);
        assert_eq!(breaker.admit(now + FIRST_PAUSE), Some(Admission::Probe));
        breaker.failed(Admission::Regular, now + FIRST_PAUSE);
        breaker.succeeded();
        assert!(breaker.is_closed());
    }
}
