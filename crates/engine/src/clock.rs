//! Sources of time and randomness.

use std::fmt::Debug;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use keepsake_core::Timestamp;
use rand::Rng as _;
use uuid::Uuid;

/// A source of the current time.
pub trait Clock: Send + Sync + Debug {
    /// The current time.
    fn now(&self) -> Timestamp;
}

/// The machine's clock.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    #[expect(clippy::disallowed_methods, reason = "the one place that reads the machine's clock")]
    fn now(&self) -> Timestamp {
        let since_epoch =
            std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        Timestamp::from_micros(i64::try_from(since_epoch.as_micros()).unwrap_or(i64::MAX))
    }
}

/// A clock for tests that only moves when it is advanced.
#[derive(Debug)]
pub struct ManualClock(AtomicI64);

impl ManualClock {
    /// Creates a clock with the time `start`.
    pub const fn new(start: Timestamp) -> Self {
        Self(AtomicI64::new(start.as_micros()))
    }

    /// Advances the clock.
    pub fn advance(&self, duration: Duration) {
        let micros = i64::try_from(duration.as_micros()).unwrap_or(i64::MAX);
        self.0.fetch_add(micros, Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_micros(self.0.load(Ordering::SeqCst))
    }
}

/// A source of ids and secrets.
pub trait IdSource: Send + Sync + Debug {
    /// A UUID version 7 with the given time.
    fn uuid(&self, now: Timestamp) -> Uuid;

    /// 32 bytes from a cryptographically secure source.
    fn secret(&self) -> [u8; 32];

    /// A random duration below `bound`, so that waiting processes do not run in
    /// step.
    fn jitter(&self, bound: Duration) -> Duration;
}

/// The system's randomness.
#[derive(Debug, Clone, Copy, Default)]
pub struct RandomIds;

impl IdSource for RandomIds {
    fn uuid(&self, now: Timestamp) -> Uuid {
        let mut random = [0_u8; 10];
        rand::rng().fill_bytes(&mut random);
        let millis = u64::try_from(now.as_micros() / 1000).unwrap_or_default();
        uuid::Builder::from_unix_timestamp_millis(millis, &random).into_uuid()
    }

    fn secret(&self) -> [u8; 32] {
        let mut secret = [0_u8; 32];
        rand::rng().fill_bytes(&mut secret);
        secret
    }

    fn jitter(&self, bound: Duration) -> Duration {
        bound.mul_f64(f64::from(rand::rng().next_u32()) / (f64::from(u32::MAX) + 1.0))
    }
}
