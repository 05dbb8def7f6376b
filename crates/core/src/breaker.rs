//! A circuit breaker for calls to a server.

use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// Failures in a row that open the breaker.
const MAX_FAILURES: u32 = 3;
/// How long the breaker stays open at first; each failed probe doubles it.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
/// Maximum time that the breaker stays open, so that service resumes soon after the server
/// is back.
const MAX_PAUSE: Duration = Duration::from_secs(4);
/// How long other calls are refused while a probe runs; then the next call is a probe too.
const PROBE_LIMIT: Duration = Duration::from_secs(5);

/// Refuses calls at once while a server does not answer, so that requests do not
/// queue up until their time limits. The caller has the clock, and decides what a failure is.
#[derive(Debug, Default)]
pub struct Breaker(Mutex<State>);

/// What the end of a call changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BreakerChange {
    /// Calls are refused from now on.
    Opened,
    /// Calls go through again.
    Closed,
}

impl Breaker {
    /// Lets a call through; `None`: it is refused.
    pub fn admit(&self, now: Instant) -> Option<PendingCall<'_>> {
        let admission = self.0.lock().admit(now)?;
        Some(PendingCall { breaker: self, admission: Some(admission) })
    }
}

/// A running call. If it is dropped before it ended, it counts neither as a success nor as a
/// failure, and after a probe the next call is a probe.
#[derive(Debug)]
pub struct PendingCall<'a> {
    breaker: &'a Breaker,
    admission: Option<Admission>,
}

impl PendingCall<'_> {
    /// Counts the call; `None`: it opened or closed nothing.
    pub fn ended(mut self, has_failed: bool, now: Instant) -> Option<BreakerChange> {
        let admission = self.admission.take()?;
        let mut state = self.breaker.0.lock();
        let was_closed = state.is_closed();
        if has_failed {
            state.failed(admission, now);
        } else {
            state.succeeded();
        }
        match (was_closed, state.is_closed()) {
            (true, false) => Some(BreakerChange::Opened),
            (false, true) => Some(BreakerChange::Closed),
            (true, true) | (false, false) => None,
        }
    }
}

impl Drop for PendingCall<'_> {
    fn drop(&mut self) {
        if let Some(Admission::Probe) = self.admission {
            self.breaker.0.lock().probe_abandoned();
        }
    }
}

/// How a call was let through.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Admission {
    /// The breaker is closed.
    Regular,
    /// The breaker is half open: this call tells whether the server is back.
    Probe,
}

/// The states of the breaker.
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

    /// Closes the breaker: the server answered a regular call or a probe.
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
    fn probe_abandoned(&mut self) {
        if let Self::HalfOpen { probed_at, pause } = *self {
            *self = Self::Open { until: probed_at, pause };
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
        let mut now = Instant::now();
        let mut breaker = opened(now);
        let mut pause = FIRST_PAUSE;
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
    fn abandoned_or_slow_probe_is_replaced_and_late_failures_are_ignored() {
        let now = Instant::now();
        let mut breaker = opened(now);
        let (before, now) = (breaker, now + FIRST_PAUSE);
        breaker.failed(Admission::Regular, now);
        assert_eq!(breaker, before);
        assert_eq!(breaker.admit(now), Some(Admission::Probe));
        breaker.probe_abandoned();
        assert_eq!(breaker.admit(now), Some(Admission::Probe));
        assert_eq!(breaker.admit(now + PROBE_LIMIT / 2), None);
        assert_eq!(breaker.admit(now + PROBE_LIMIT), Some(Admission::Probe));
        breaker.failed(Admission::Regular, now + PROBE_LIMIT);
        breaker.succeeded();
        assert!(breaker.is_closed());
    }
}
