//! The rate limit of each tenant.
//!
//! A tenant's bucket fills at the tenant's rate and holds its burst. Each gateway enforces its
//! share: both values divided by the number of live gateways. A request slightly over the rate
//! waits in a short queue, in order; other requests are refused with a time to retry after.

use std::collections::HashMap;
use std::time::Duration;

use keepsake_core::{Limits, TenantId};
use parking_lot::Mutex;
use tokio::time::Instant;

/// Longest wait of a request in the queue.
const QUEUE: Duration = Duration::from_millis(50);
/// Maximum number of buckets. Full buckets are removed first; a tenant whose bucket was removed
/// starts with a full one.
const MAX_BUCKETS: usize = 100_000;
/// Longest time to fill a bucket; longer times would overflow its arithmetic.
const MAX_FILL_TIME: Duration = Duration::from_hours(24 * 365);
/// A rate above this is treated as unlimited.
const UNLIMITED: u64 = 1_000_000_000;
/// Maximum value of `retry-after`.
const MAX_RETRY_AFTER_SECONDS: u64 = 30;

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
    /// Time in which it regains the requests that pass at once.
    burst: Duration,
    /// Time in which it regains these and the further requests that may wait.
    room: Duration,
}

impl Share {
    /// `None`: the tenant's rate is unlimited.
    fn of(limits: &Limits, gateways: u32) -> Option<Self> {
        let gateways = u64::from(gateways.max(1));
        if limits.requests_per_second > UNLIMITED {
            return None;
        }
        // Each of N gateways passes the tenant's requests of one second in N seconds.
        let nanos_per_second = Duration::from_secs(gateways).as_nanos();
        let period_nanos = nanos_per_second / u128::from(limits.requests_per_second.max(1));
        let period = Duration::from_nanos(u64::try_from(period_nanos).unwrap_or(u64::MAX));
        let period = period.clamp(Duration::from_nanos(1), MAX_FILL_TIME);
        let max_burst = MAX_FILL_TIME.as_nanos() / period.as_nanos();
        let burst = u128::from(limits.request_burst.div_ceil(gateways)).min(max_burst);
        let queued = QUEUE.as_nanos() / period.as_nanos();
        let time_of = |requests: u128| period.saturating_mul(u32::try_from(requests).unwrap_or(u32::MAX));
        Some(Self { period, burst: time_of(burst), room: time_of(burst + queued) })
    }
}

#[derive(Debug)]
struct Bucket {
    share: Share,
    /// When the bucket is full again, unless more requests come: at most `share.room` from now.
    full_at: Instant,
}

impl Bucket {
    fn take(&mut self, now: Instant) -> Verdict {
        let full_at = self.full_at.max(now) + self.share.period;
        let missing = full_at - now;
        let over = missing.saturating_sub(self.share.room);
        if !over.is_zero() {
            return refused(over);
        }
        self.full_at = full_at;
        Verdict::Passes(missing.saturating_sub(self.share.burst))
    }

    /// Keeps the same proportion empty, so that a changed limit does not grant a new burst.
    fn change(&mut self, share: Share, now: Instant) {
        let missing = self.full_at.saturating_duration_since(now).as_nanos();
        let missing = missing * share.room.as_nanos() / self.share.room.as_nanos().max(1);
        self.full_at = now + Duration::from_nanos(u64::try_from(missing).unwrap_or(u64::MAX)).min(share.room);
        self.share = share;
    }
}

/// The rate limits of every tenant on this gateway.
#[derive(Debug, Default)]
pub(crate) struct Rates(Mutex<HashMap<TenantId, Bucket>>);

impl Rates {
    pub(crate) fn take(&self, tenant_id: TenantId, limits: &Limits, gateways: u32, now: Instant) -> Verdict {
        if limits.requests_per_second == 0 || limits.request_burst == 0 {
            return refused(Duration::MAX);
        }
        let Some(share) = Share::of(limits, gateways) else {
            return Verdict::Passes(Duration::ZERO);
        };
        let mut buckets = self.0.lock();
        if buckets.len() >= MAX_BUCKETS && !buckets.contains_key(&tenant_id) {
            buckets.retain(|_, bucket| bucket.full_at > now);
            if buckets.len() >= MAX_BUCKETS {
                buckets.clear();
            }
        }
        let bucket = buckets.entry(tenant_id).or_insert(Bucket { share, full_at: now });
        if bucket.share != share {
            bucket.change(share, now);
        }
        bucket.take(now)
    }
}

/// The time is rounded up, 1 to 30 seconds.
fn refused(wait: Duration) -> Verdict {
    let seconds = wait.as_secs().saturating_add(u64::from(wait.subsec_nanos() > 0));
    let seconds = seconds.clamp(1, MAX_RETRY_AFTER_SECONDS);
    Verdict::Refused { retry_after_seconds: u8::try_from(seconds).unwrap_or(u8::MAX) }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    const A: TenantId = TenantId::from_uuid(Uuid::from_u128(1));
    const B: TenantId = TenantId::from_uuid(Uuid::from_u128(2));
    const AT_ONCE: Verdict = Verdict::Passes(Duration::ZERO);

    fn limits(requests_per_second: u64, request_burst: u64) -> Limits {
        Limits { requests_per_second, request_burst, ..Limits::default() }
    }

    /// How many of `tried` requests pass at once, wait, and are refused.
    fn tried(rates: &Rates, now: Instant, tenant_id: TenantId, limits: &Limits, tried: usize) -> [usize; 3] {
        let mut seen = [0; 3];
        for _ in 0..tried {
            seen[match rates.take(tenant_id, limits, 1, now) {
                AT_ONCE => 0,
                Verdict::Passes(_) => 1,
                Verdict::Refused { .. } => 2,
            }] += 1;
        }
        seen
    }

    #[test]
    fn burst_passes_then_a_few_wait_and_others_are_refused() {
        let (rates, mut now) = (Rates::default(), Instant::now());
        let limits = limits(1_000, 2_000);
        assert_eq!(tried(&rates, now, A, &limits, 3_000), [2_000, 50, 950]);
        now += Duration::from_secs(1);
        assert_eq!(tried(&rates, now, A, &limits, 3_000), [950, 50, 2_000]);
        now += Duration::from_mins(1);
        assert_eq!(tried(&rates, now, A, &limits, 3_000), [2_000, 50, 950]);
    }

    #[test]
    fn refusal_has_the_time_until_the_next_token() {
        let (rates, mut now) = (Rates::default(), Instant::now());
        // A tenth of a request per second: one of ten gateways.
        let limits = limits(1, 1);
        let after = |retry_after_seconds| Verdict::Refused { retry_after_seconds };
        for (millis, verdict) in [(0, AT_ONCE), (0, after(10)), (6_500, after(4)), (3_500, AT_ONCE)] {
            now += Duration::from_millis(millis);
            assert_eq!(rates.take(A, &limits, 10, now), verdict);
        }
        assert_eq!(rates.take(B, &limits, 1_000, now), AT_ONCE);
        assert_eq!(rates.take(B, &limits, 1_000, now), after(30));
    }

    #[test]
    fn gateways_share_a_rate_and_waiting_requests_pass_in_order() {
        let (rates, now) = (Rates::default(), Instant::now());
        let limits = limits(400, 2_000);
        assert_eq!((0..500).filter(|_| rates.take(A, &limits, 4, now) == AT_ONCE).count(), 500);
        let waits = [(); 5].map(|()| rates.take(A, &limits, 4, now));
        assert_eq!(waits, [10, 20, 30, 40, 50].map(|ms| Verdict::Passes(Duration::from_millis(ms))));
        assert_eq!(rates.take(A, &limits, 4, now), Verdict::Refused { retry_after_seconds: 1 });
    }

    #[test]
    fn changed_limit_applies_at_once_without_a_new_burst() {
        let (rates, now) = (Rates::default(), Instant::now());
        assert_eq!(tried(&rates, now, A, &limits(1_000, 100), 200), [100, 50, 50]);
        assert_eq!(tried(&rates, now, A, &limits(2_000, 400), 10), [0, 0, 10]);
        assert_eq!(tried(&rates, now, B, &limits(10, 10), 4), [4, 0, 0]);
        // Half of the larger burst is left, rounded down.
        let [passed, ..] = tried(&rates, now, B, &limits(10, 100), 200);
        assert!((50..=60).contains(&passed), "{passed}");
    }

    #[test]
    fn zero_rate_refuses_all_and_huge_rate_admits_all() {
        let (rates, now) = (Rates::default(), Instant::now());
        let refused = Verdict::Refused { retry_after_seconds: 30 };
        assert_eq!(rates.take(A, &limits(0, 10), 1, now), refused);
        assert_eq!(rates.take(A, &limits(10, 0), 1, now), refused);
        assert_eq!(tried(&rates, now, A, &limits(u64::MAX, 1), 10_000), [10_000, 0, 0]);
        assert_eq!(tried(&rates, now, A, &limits(1, u64::MAX), 10_000), [10_000, 0, 0]);
        assert_eq!(tried(&rates, now, B, &limits(UNLIMITED, u64::MAX), 10_000), [10_000, 0, 0]);
    }

    #[test]
    fn full_buckets_are_removed_first() {
        let (rates, mut now) = (Rates::default(), Instant::now());
        let limits = limits(1, 1);
        for tenant in 0..MAX_BUCKETS {
            let tenant_id = TenantId::from_uuid(Uuid::from_u128(10 + tenant as u128));
            rates.take(tenant_id, &limits, 1, now);
        }
        now += Duration::from_secs(1);
        assert_eq!([A, B].map(|tenant_id| rates.take(tenant_id, &limits, 1, now)), [AT_ONCE; 2]);
        assert_eq!(rates.take(A, &limits, 1, now), Verdict::Refused { retry_after_seconds: 1 });
        assert_eq!(rates.0.lock().len(), 2);
    }
}
