//! The rate limit of each tenant.
//!
//! A tenant's token bucket (GCRA) fills at the tenant's rate and holds its burst. Each gateway
//! enforces its share: both values divided by the number of live gateways. A request slightly over
//! the rate waits in a short queue, in order; other requests are refused with a time to retry
//! after.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::{Duration, Instant};

use governor::clock::{Clock, MonotonicClock};
use governor::middleware::StateInformationMiddleware;
use governor::state::{InMemoryState, NotKeyed};
use governor::{Quota, RateLimiter};
use keepsake_core::{Limits, TenantId};
use moka::Expiry;
use moka::sync::Cache;

/// Longest wait of a request in the queue.
const QUEUE: Duration = Duration::from_millis(50);
/// Maximum number of buckets; an evicted tenant starts with a full bucket.
const MAX_BUCKETS: u64 = 100_000;
/// How long a bucket is kept after it is full again.
const FULL_BUCKET_TTL: Duration = Duration::from_mins(1);
/// Longest time to fill a bucket; longer times would overflow its arithmetic.
const MAX_FILL_TIME: Duration = Duration::from_hours(24 * 365);
/// A rate above this is treated as unlimited.
const UNLIMITED: u64 = 1_000_000_000;
/// Maximum value of `retry-after`.
const MAX_RETRY_AFTER_SECONDS: u64 = 30;

type Limiter<C> = RateLimiter<NotKeyed, InMemoryState, C, StateInformationMiddleware>;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The request continues after this time, mostly zero.
    Passes(Duration),
    /// The client may retry after this time.
    Refused { retry_after_seconds: u8 },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Share {
    /// Time in which the bucket regains one request.
    period: Duration,
    /// Requests that pass at once.
    burst: u32,
    /// Further requests that may wait.
    queue: u32,
}

impl Share {
    /// `None`: the tenant's rate is unlimited.
    fn of(limits: &Limits, gateways: u32) -> Option<Self> {
        let gateways = u64::from(gateways.max(1));
        if limits.requests_per_second > UNLIMITED {
            return None;
        }
        let second_nanos = Duration::from_secs(gateways).as_nanos();
        let nanos = second_nanos / u128::from(limits.requests_per_second.max(1));
        let period = Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX));
        let period = period.clamp(Duration::from_nanos(1), MAX_FILL_TIME);
        let most = MAX_FILL_TIME.as_nanos() / period.as_nanos();
        let burst = u128::from(limits.request_burst.div_ceil(gateways)).min(most);
        let queue = QUEUE.as_nanos() / period.as_nanos();
        Some(Self {
            period,
            burst: u32::try_from(burst).unwrap_or(u32::MAX / 2),
            queue: u32::try_from(queue).unwrap_or(u32::MAX / 2),
        })
    }

    fn room(self) -> u32 {
        self.burst.saturating_add(self.queue)
    }

    fn fills_within(self) -> Duration {
        self.period.saturating_mul(self.room())
    }
}

#[derive(Debug)]
struct Bucket<C: Clock> {
    share: Share,
    limiter: Limiter<C>,
}

impl<C: Clock> Bucket<C> {
    fn new(share: Share, clock: C) -> Option<Self> {
        let quota = Quota::with_period(share.period)?.allow_burst(NonZeroU32::new(share.room())?);
        let limiter = RateLimiter::direct_with_clock(quota, clock).with_middleware();
        Some(Self { share, limiter })
    }

    /// Takes one request and returns how many more would pass or wait now.
    fn left(&self) -> u32 {
        let taken = self.limiter.check();
        taken.map_or(0, |snapshot| snapshot.remaining_burst_capacity())
    }

    /// Takes the same proportion as was taken of another bucket, so that a changed limit does not
    /// grant a new burst.
    fn copy_usage(&self, other: &Self) {
        let room = |bucket: &Self| u64::from(bucket.share.room());
        let taken = room(other).saturating_sub(u64::from(other.left()));
        let taken = (taken * room(self)).div_ceil(room(other).max(1));
        let taken = u32::try_from(taken.min(room(self))).unwrap_or(u32::MAX);
        if let Some(taken) = NonZeroU32::new(taken) {
            let _ = self.limiter.check_n(taken);
        }
    }
}

/// Evicts an unused bucket at least [`FULL_BUCKET_TTL`] after it is full again.
struct FullBucketExpiry;

impl FullBucketExpiry {
    fn time_to_live<C: Clock>(bucket: &Bucket<C>) -> Duration {
        FULL_BUCKET_TTL.saturating_add(bucket.share.fills_within())
    }
}

impl<C: Clock> Expiry<TenantId, Arc<Bucket<C>>> for FullBucketExpiry {
    fn expire_after_create(&self, _: &TenantId, bucket: &Arc<Bucket<C>>, _: Instant) -> Option<Duration> {
        Some(Self::time_to_live(bucket))
    }

    fn expire_after_read(
        &self,
        _: &TenantId,
        bucket: &Arc<Bucket<C>>,
        _: Instant,
        _: Option<Duration>,
        _: Instant,
    ) -> Option<Duration> {
        Some(Self::time_to_live(bucket))
    }

    fn expire_after_update(
        &self,
        _: &TenantId,
        bucket: &Arc<Bucket<C>>,
        _: Instant,
        _: Option<Duration>,
    ) -> Option<Duration> {
        Some(Self::time_to_live(bucket))
    }
}

/// The rate limits of every tenant on this gateway; cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Rates<C: Clock + Send + Sync + 'static = MonotonicClock> {
    buckets: Cache<TenantId, Arc<Bucket<C>>>,
    clock: C,
}

impl<C: Clock + Clone + Send + Sync + 'static> Rates<C> {
    pub(crate) fn new(clock: C) -> Self {
        let buckets = Cache::builder().max_capacity(MAX_BUCKETS).expire_after(FullBucketExpiry).build();
        Self { buckets, clock }
    }

    pub(crate) fn take(&self, tenant_id: TenantId, limits: &Limits, gateways: u32) -> Verdict {
        let nothing_passes = Verdict::Refused { retry_after_seconds: retry_after_seconds(Duration::MAX) };
        if limits.requests_per_second == 0 || limits.request_burst == 0 {
            return nothing_passes;
        }
        let Some(share) = Share::of(limits, gateways) else {
            return Verdict::Passes(Duration::ZERO);
        };
        let Some(bucket) = self.bucket(tenant_id, share) else {
            return nothing_passes;
        };
        match bucket.limiter.check() {
            Ok(taken) => {
                let waiting = share.queue.saturating_sub(taken.remaining_burst_capacity());
                Verdict::Passes(share.period.saturating_mul(waiting))
            }
            Err(until) => Verdict::Refused {
                retry_after_seconds: retry_after_seconds(until.wait_time_from(self.clock.now())),
            },
        }
    }

    fn bucket(&self, tenant_id: TenantId, share: Share) -> Option<Arc<Bucket<C>>> {
        let known = self.buckets.get(&tenant_id);
        if let Some(bucket) = &known
            && bucket.share == share
        {
            return known;
        }
        let entry = self.buckets.entry(tenant_id).and_try_compute_with(|entry| {
            let known = entry.map(moka::Entry::into_value);
            // Another request may have inserted the bucket meanwhile.
            if known.as_ref().is_some_and(|bucket| bucket.share == share) {
                return Ok(moka::ops::compute::Op::Nop);
            }
            let bucket = Bucket::new(share, self.clock.clone()).ok_or(())?;
            if let Some(known) = known {
                bucket.copy_usage(&known);
            }
            Ok::<_, ()>(moka::ops::compute::Op::Put(Arc::new(bucket)))
        });
        entry.ok()?.into_entry().map(moka::Entry::into_value)
    }
}

/// Rounded up, 1 to 30.
fn retry_after_seconds(wait: Duration) -> u8 {
    let seconds = wait.as_secs().saturating_add(u64::from(wait.subsec_nanos() > 0));
    u8::try_from(seconds.clamp(1, MAX_RETRY_AFTER_SECONDS)).unwrap_or(u8::MAX)
}

#[cfg(test)]
mod tests {
    use governor::clock::FakeRelativeClock;
    use uuid::Uuid;

    use super::*;

    const A: TenantId = TenantId::from_uuid(Uuid::from_u128(1));
    const B: TenantId = TenantId::from_uuid(Uuid::from_u128(2));

    fn limits(requests_per_second: u64, request_burst: u64) -> Limits {
        Limits { requests_per_second, request_burst, ..Limits::default() }
    }

    /// How many of `tried` requests pass at once, wait, and are refused.
    fn tried(
        rates: &Rates<FakeRelativeClock>,
        tenant_id: TenantId,
        limits: &Limits,
        tried: usize,
    ) -> [usize; 3] {
        let mut seen = [0; 3];
        for _ in 0..tried {
            seen[match rates.take(tenant_id, limits, 1) {
                Verdict::Passes(Duration::ZERO) => 0,
                Verdict::Passes(_) => 1,
                Verdict::Refused { .. } => 2,
            }] += 1;
        }
        seen
    }

    #[test]
    fn burst_passes_then_a_few_wait_and_others_are_refused() {
        let clock = FakeRelativeClock::default();
        let rates = Rates::new(clock.clone());
        let limits = limits(1_000, 2_000);
        assert_eq!(tried(&rates, A, &limits, 3_000), [2_000, 50, 950]);
        // Another tenant has a separate bucket.
        assert_eq!(tried(&rates, B, &limits, 256), [256, 0, 0]);
        clock.advance(Duration::from_secs(1));
        assert_eq!(tried(&rates, A, &limits, 3_000), [950, 50, 2_000]);
        clock.advance(Duration::from_mins(1));
        assert_eq!(tried(&rates, A, &limits, 3_000), [2_000, 50, 950]);
    }

    #[test]
    fn refusal_has_the_time_until_the_next_token() {
        let clock = FakeRelativeClock::default();
        let rates = Rates::new(clock.clone());
        // A tenth of a request per second: one of ten gateways.
        let limits = limits(1, 1);
        assert_eq!(rates.take(A, &limits, 10), Verdict::Passes(Duration::ZERO));
        let after = |retry_after_seconds| Verdict::Refused { retry_after_seconds };
        assert_eq!(rates.take(A, &limits, 10), after(10));
        clock.advance(Duration::from_millis(6_500));
        assert_eq!(rates.take(A, &limits, 10), after(4));
        clock.advance(Duration::from_millis(3_500));
        assert_eq!(rates.take(A, &limits, 10), Verdict::Passes(Duration::ZERO));
        assert_eq!(rates.take(B, &limits, 1_000), Verdict::Passes(Duration::ZERO));
        assert_eq!(rates.take(B, &limits, 1_000), after(30));
    }

    #[test]
    fn gateways_share_a_rate_and_waiting_requests_pass_in_order() {
        let rates = Rates::new(FakeRelativeClock::default());
        let limits = limits(400, 2_000);
        let passed = (0..500).filter(|_| rates.take(A, &limits, 4) == Verdict::Passes(Duration::ZERO));
        assert_eq!(passed.count(), 500);
        let waits = [(); 5].map(|()| rates.take(A, &limits, 4));
        assert_eq!(waits, [10, 20, 30, 40, 50].map(|ms| Verdict::Passes(Duration::from_millis(ms))));
        let refused = Verdict::Refused { retry_after_seconds: 1 };
        assert_eq!(rates.take(A, &limits, 4), refused);
    }

    #[test]
    fn changed_limit_applies_at_once_without_a_new_burst() {
        let rates = Rates::new(FakeRelativeClock::default());
        assert_eq!(tried(&rates, A, &limits(1_000, 100), 200), [100, 50, 50]);
        assert_eq!(tried(&rates, A, &limits(2_000, 400), 10), [0, 0, 10]);
        assert_eq!(tried(&rates, B, &limits(10, 10), 4), [4, 0, 0]);
        // Half of the larger burst is left, rounded down.
        let [passed, ..] = tried(&rates, B, &limits(10, 100), 200);
        assert!((50..=60).contains(&passed), "{passed}");
    }

    #[test]
    fn zero_rate_refuses_all_and_huge_rate_admits_all() {
        let rates = Rates::new(FakeRelativeClock::default());
        let refused = Verdict::Refused { retry_after_seconds: 30 };
        assert_eq!(rates.take(A, &limits(0, 10), 1), refused);
        assert_eq!(rates.take(A, &limits(10, 0), 1), refused);
        assert_eq!(tried(&rates, A, &limits(u64::MAX, 1), 10_000), [10_000, 0, 0]);
        assert_eq!(tried(&rates, A, &limits(1, u64::MAX), 10_000), [10_000, 0, 0]);
        assert_eq!(tried(&rates, B, &limits(UNLIMITED, u64::MAX), 10_000), [10_000, 0, 0]);
    }

    #[test]
    fn full_bucket_is_evicted() {
        let share = Share::of(&limits(10, 100), 1).unwrap();
        assert_eq!(share.fills_within(), Duration::from_secs(10));
        let bucket = Bucket::new(share, FakeRelativeClock::default()).unwrap();
        let kept = FullBucketExpiry::time_to_live(&bucket);
        assert_eq!(kept, Duration::from_secs(70));
    }
}
