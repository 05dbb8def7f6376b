//! Timeouts and retries of S3 calls.

use std::sync::Arc;
use std::time::Duration;

use aws_sdk_s3::Client;
use tokio::time::Instant;

use crate::BlobError;
use crate::breaker::Breaker;

/// Timeout of the first attempt, without the transfer.
const ATTEMPT_LIMIT: Duration = Duration::from_millis(2_200);
/// Timeout of a call with all its attempts, without the transfer. While the server
/// is down, clients get their 503 within 5 seconds.
const CALL_LIMIT: Duration = Duration::from_millis(4_500);
/// The minimum transfer rate that timeouts allow.
const MIN_BYTES_PER_SECOND: u64 = 512 << 10;
/// Maximum duration of a transfer of any size.
const MAX_TRANSFER: Duration = Duration::from_secs(10);
const MAX_ATTEMPTS: u32 = 4;
/// The backoff before the second attempt; doubled for each further attempt.
const FIRST_BACKOFF: Duration = Duration::from_millis(100);

/// Runs S3 calls with timeouts, and retries them after transient errors.
///
/// Every call is safe to retry: a key is written only once, with the same bytes.
#[derive(Clone)]
pub(super) struct Calls {
    /// A client with a connection pool.
    pooled: Client,
    /// A client that opens a connection for each call. If one pooled connection
    /// failed, the others are probably broken too, so retries must not use them.
    unpooled: Client,
    /// Maximum duration of a call of any size.
    max_call: Duration,
    pub(super) breaker: Option<Arc<Breaker>>,
}

/// The time limits of one call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Limits {
    attempt: Duration,
    call: Duration,
}

impl Limits {
    /// The limits of a call that transfers at most `size_bytes`.
    fn of(size_bytes: u64, max_call: Duration) -> Self {
        let transfer = Duration::from_millis(size_bytes.saturating_mul(1_000) / MIN_BYTES_PER_SECOND);
        let transfer = transfer.min(MAX_TRANSFER);
        let call = (CALL_LIMIT + 2 * transfer).min(max_call);
        Self { attempt: (ATTEMPT_LIMIT + transfer).min(call / 2), call }
    }
}

impl Calls {
    pub(super) const fn new(pooled: Client, unpooled: Client, max_call: Duration) -> Self {
        Self { pooled, unpooled, max_call, breaker: None }
    }

    /// Runs a call that transfers at most `size_bytes`; the error is that of the last attempt.
    pub(super) async fn run<T, F>(
        &self,
        size_bytes: u64,
        attempt: impl Fn(Client) -> F,
    ) -> Result<T, BlobError>
    where
        F: Future<Output = Result<T, BlobError>>,
    {
        let breaker = self.breaker.as_deref();
        let pending = breaker.map(Breaker::admit).transpose()?;
        let limits = Limits::of(size_bytes, self.max_call);
        let deadline = Instant::now() + limits.call;
        let mut until = Instant::now() + limits.attempt;
        let mut client = &self.pooled;
        let mut tried = 1;
        let outcome = loop {
            let answer = tokio::time::timeout_at(until, attempt(client.clone())).await;
            let outcome = answer.unwrap_or_else(|_| {
                let waited = limits.call.as_secs_f32();
                Err(BlobError::Unavailable(format!("no answer within {waited} s")))
            });
            let wait = backoff(tried);
            let is_last = tried == MAX_ATTEMPTS || Instant::now() + wait >= deadline;
            match outcome {
                Err(BlobError::Unavailable(_)) if !is_last => tokio::time::sleep(wait).await,
                outcome => break outcome,
            }
            client = &self.unpooled;
            until = deadline;
            tried += 1;
        };
        if let (Some(breaker), Some(pending)) = (breaker, pending) {
            breaker.ended(pending, outcome.as_ref().err());
        }
        outcome
    }
}

/// The backoff after a failed attempt; its second half is random, so that clients
/// that failed together do not retry together.
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
}
