//! Sources of time and randomness.

use std::fmt::Debug;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use keepsake_core::Timestamp;
use parking_lot::Mutex;
use rand::Rng as _;
use uuid::Uuid;

pub trait Clock: Send + Sync + Debug {
    fn now(&self) -> Timestamp;
}

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
    pub const fn new(start: Timestamp) -> Self {
        Self(AtomicI64::new(start.as_micros()))
    }

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

pub trait IdSource: Send + Sync + Debug {
    /// A UUID version 7 that sorts after every earlier one of this method in the process,
    /// also after the clock went back. Its time is `now`, or the time of the last UUID if
    /// that is later.
    fn uuid(&self, now: Timestamp) -> Uuid;

    /// A UUID version 7 with exactly the given time.
    fn uuid_at(&self, at: Timestamp) -> Uuid;

    /// 32 bytes from a cryptographically secure source.
    fn secret(&self) -> [u8; 32];

    /// A random duration below `bound`, so that waiting processes do not run in
    /// step.
    fn jitter(&self, bound: Duration) -> Duration;
}

#[derive(Debug, Clone, Copy, Default)]
pub struct RandomIds;

impl IdSource for RandomIds {
    fn uuid(&self, now: Timestamp) -> Uuid {
        let fresh = UuidParts::random(now);
        let mut last = LAST_UUID.lock();
        *last = if fresh.millis > last.millis { fresh } else { last.followed_by(fresh.random) };
        last.uuid()
    }

    fn uuid_at(&self, at: Timestamp) -> Uuid {
        UuidParts::random(at).uuid()
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

/// Random bits of a UUID version 7, besides its time.
const RANDOM_BITS: u32 = 74;
/// Random bits behind the variant.
const LOW_BITS: u32 = 62;
/// Two UUIDs of one millisecond differ by less than two to this power.
const STEP_BITS: u32 = 48;

/// The last UUID, which sorts after all earlier ones.
static LAST_UUID: Mutex<UuidParts> = Mutex::new(UuidParts { millis: 0, random: 0 });

#[derive(Debug, Clone, Copy)]
struct UuidParts {
    millis: u64,
    random: u128,
}

impl UuidParts {
    fn random(at: Timestamp) -> Self {
        let mut bytes = [0_u8; 16];
        rand::rng().fill_bytes(&mut bytes);
        Self {
            millis: u64::try_from(at.as_micros() / 1000).unwrap_or_default(),
            random: u128::from_be_bytes(bytes) >> (u128::BITS - RANDOM_BITS),
        }
    }

    /// Parts that sort later: a random step further, or in the next millisecond.
    const fn followed_by(self, random: u128) -> Self {
        let next = self.random + 1 + random % (1 << STEP_BITS);
        if next < 1 << RANDOM_BITS {
            Self { random: next, ..self }
        } else {
            Self { millis: self.millis + 1, random }
        }
    }

    fn uuid(self) -> Uuid {
        let high = (self.random >> LOW_BITS) << u64::BITS;
        let low = self.random & ((1 << LOW_BITS) - 1);
        let mut random = [0_u8; 10];
        random.copy_from_slice(&(high | low).to_be_bytes()[6..]);
        uuid::Builder::from_unix_timestamp_millis(self.millis, &random).into_uuid()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_sort_by_creation_after_the_clock_went_back() {
        let at = |millis: i64| Timestamp::from_micros(1_000 * millis);
        let mut times = [vec![2_000; 1_000], vec![1_000], vec![3_000, 2_999]].concat();
        times.extend([3_000; 2]);
        let ids: Vec<_> = times.into_iter().map(|millis| RandomIds.uuid(at(millis))).collect();
        assert!(ids.is_sorted_by(|one, next| one < next), "{ids:?}");
        assert!(ids.iter().all(|id| id.get_version_num() == 7));
        let last = UuidParts { millis: 5, random: (1 << RANDOM_BITS) - 1 };
        assert!(last.uuid() < last.followed_by(0).uuid());
        assert_eq!(RandomIds.uuid_at(at(7)).get_timestamp().unwrap().to_unix(), (0, 7_000_000));
    }
}
