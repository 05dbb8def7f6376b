//! The waits between the attempts of a call.

use std::time::Duration;

use crate::{ClientError, Result};

/// Attempts of a call, the first included.
const MAX_ATTEMPTS: u32 = 6;
/// The maximum wait before the second attempt; it doubles with each attempt.
const FIRST_WAIT: Duration = Duration::from_millis(200);
const MAX_WAIT: Duration = Duration::from_secs(30);

/// Exponential backoff with jitter, bounded in number and time.
#[derive(Debug)]
pub(crate) struct Backoff {
    attempts: u32,
}

impl Backoff {
    pub(crate) const fn new() -> Self {
        Self { attempts: 1 }
    }

    /// The wait before the next attempt; `None` if no attempt is left.
    pub(crate) fn next_wait(&mut self, retry_after: Option<Duration>) -> Option<Duration> {
        if self.attempts == MAX_ATTEMPTS {
            return None;
        }
        let longest = FIRST_WAIT * 2_u32.pow(self.attempts - 1);
        let jittered = longest.mul_f64(rand::random_range(0.5..=1.0));
        self.attempts += 1;
        Some(retry_after.map_or(jittered, |least| least.max(jittered)).min(MAX_WAIT))
    }

    /// Waits before the next attempt. Returns `false` if no attempt is left.
    pub(crate) async fn wait(&mut self, retry_after: Option<Duration>) -> bool {
        let Some(wait) = self.next_wait(retry_after) else {
            return false;
        };
        tokio::time::sleep(wait).await;
        true
    }

    /// Waits before the next attempt; fails with the error if no attempt can help or is
    /// left.
    pub(crate) async fn wait_after(&mut self, error: ClientError) -> Result<()> {
        if error.is_transient() && self.wait(error.retry_after()).await { Ok(()) } else { Err(error) }
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::Instant;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn attempts_are_limited_and_waits_grow_or_are_as_the_server_says() {
        let (mut backoff, started) = (Backoff::new(), Instant::now());
        let mut waits = 0;
        while backoff.wait(None).await {
            waits += 1;
        }
        assert_eq!(waits, MAX_ATTEMPTS - 1);
        let longest = FIRST_WAIT * 31;
        assert!((longest / 2..=longest).contains(&started.elapsed()));
        let started = Instant::now();
        assert!(Backoff::new().wait(Some(Duration::from_secs(3))).await);
        assert_eq!(started.elapsed(), Duration::from_secs(3));
    }
}
