//! How long calls of an S3 server may take, and how often they are tried.

use std::time::Duration;

use aws_sdk_s3::Client;
use tokio::time::Instant;

use crate::BlobError;

/// How long the first attempt of a call may take, beside the transfer.
const ATTEMPT_LIMIT: Duration = Duration::from_millis(2_200);
/// How long a call may take with all its attempts, beside the transfer. While the
/// server is down, clients get their 503 within 5 seconds.
const CALL_LIMIT: Duration = Duration::from_millis(4_500);
/// The slowest transfer that is waited for.
const MIN_BYTES_PER_SECOND: u64 = 512 << 10;
/// How long a transfer may take, whatever its size.
const MAX_TRANSFER: Duration = Duration::from_secs(10);
/// Attempts of a call, at most.
const MAX_ATTEMPTS: u32 = 4;
/// The wait before the second attempt; each further one doubles.
const FIRST_BACKOFF: Duration = Duration::from_millis(100);

/// Runs calls of an S3 server within time limits, and repeats a call that failed
/// for a passing reason.
///
/// Every call is safe to repeat: a key is written once, with the same bytes.
#[derive(Clone)]
pub(super) struct Calls {
    /// Keeps its connections for later calls.
    pooled: Client,
    /// Opens a connection for each call. When one pooled connection failed, the
    /// others are likely as dead: a repeated call must not meet them one by one.
    unpooled: Client,
    /// How long a call may take, whatever the size of its transfer.
    max_call: Duration,
}

/// The time limits of one call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Limits {
    attempt: Duration,
    call: Duration,
}

impl Limits {
    /// The limits of a call that moves at most `size_bytes`.
    fn of(size_bytes: u64, max_call: Duration) -> Self {
        let transfer = Duration::from_millis(size_bytes.saturating_mul(1_000) / MIN_BYTES_PER_SECOND);
        let transfer = transfer.min(MAX_TRANSFER);
        let call = (CALL_LIMIT + 2 * transfer).min(max_call);
        Self {
            attempt: (ATTEMPT_LIMIT + transfer).min(call / 2),
            call,
        }
    }
}

impl Calls {
    pub(super) const fn new(pooled: Client, unpooled: Client, max_call: Duration) -> Self {
        Self {
            pooled,
            unpooled,
            max_call,
        }
    }

    /// Runs a call that moves at most `size_bytes`.
    ///
    /// # Errors
    /// That of the last attempt, once no time or no attempt is left.
    pub(super) async fn run<T, F>(
        &self,
        size_bytes: u64,
        attempt: impl Fn(Client) -> F,
    ) -> Result<T, BlobError>
    where
        F: Future<Output = Result<T, BlobError>>,
    {
        let limits = Limits::of(size_bytes, self.max_call);
        let deadline = Instant::now() + limits.call;
        let mut until = Instant::now() + limits.attempt;
        let mut client = &self.pooled;
        let mut tried = 1;
        loop {
            let answer = tokio::time::timeout_at(until, attempt(client.clone())).await;
            let outcome = answer.unwrap_or_else(|_| {
                let waited = limits.call.as_secs_f32();
                Err(BlobError::Unavailable(format!("no answer within {waited} s")))
            });
            let wait = backoff(tried);
            let is_last = tried == MAX_ATTEMPTS || Instant::now() + wait >= deadline;
            match outcome {
                Err(BlobError::Unavailable(_)) if !is_last => tokio::time::sleep(wait).await,
                outcome => return outcome,
            }
            client = &self.unpooled;
            until = deadline;
            tried += 1;
        }
    }
}

/// The wait after an attempt that failed: its second half is random, so that
/// clients that failed together do not come back together.
fn backoff(tried: u32) -> Duration {
    let whole = FIRST_BACKOFF * 2_u32.pow(tried.saturating_sub(1).min(8));
    whole.mul_f32(0.5 + rand::random::<f32>() / 2.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_grow_with_the_size_and_stay_below_the_maximum() {
        let max = Duration::from_secs(30);
        let small = Limits::of(0, max);
        assert_eq!((small.attempt, small.call), (ATTEMPT_LIMIT, CALL_LIMIT));
        let usual = Limits::of(102_400, max);
        assert!(usual.attempt > ATTEMPT_LIMIT && usual.call < Duration::from_secs(5));
        let large = Limits::of(u64::MAX, max);
        assert_eq!(large.attempt, ATTEMPT_LIMIT + MAX_TRANSFER);
        assert_eq!(large.call, CALL_LIMIT + 2 * MAX_TRANSFER);
        let hurried = Limits::of(u64::MAX, Duration::from_secs(1));
        assert_eq!((hurried.attempt, hurried.call), (max / 60, max / 30));
    }

    #[test]
    fn waits_grow_and_differ() {
        for tried in 1..=4 {
            let whole = FIRST_BACKOFF * 2_u32.pow(tried - 1);
            let waits: Vec<_> = (0..20).map(|_| backoff(tried)).collect();
            assert!(waits.iter().all(|wait| (whole / 2..=whole).contains(wait)));
            assert!(waits.iter().any(|wait| *wait != waits[0]));
        }
    }
}
