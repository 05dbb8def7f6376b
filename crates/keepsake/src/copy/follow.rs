//! `--follow`: a round after each change of the source.

use std::time::Duration;

use keepsake_config::{Failure, FailureClass};
use tokio_util::sync::CancellationToken;

use super::pass::StoreCopy;
use crate::output::notice;
use crate::store_changes::StoreChanges;

/// The interval of rounds without a change: the target may have been changed.
const SAFETY_INTERVAL: Duration = Duration::from_mins(1);
/// How long a round may take after the signal that ends it.
const END_LIMIT: Duration = Duration::from_secs(10);
const FIRST_BACKOFF: Duration = Duration::from_secs(1);
const MAX_BACKOFF: Duration = Duration::from_secs(30);

/// Copies every change until a signal. Waits for servers that cannot be reached; fails only if
/// another attempt cannot help.
pub(super) async fn run(
    copy: &mut StoreCopy,
    every: Duration,
    ending: &CancellationToken,
) -> Result<(), Failure> {
    let mut changes = StoreChanges::default();
    let mut backoff = FIRST_BACKOFF;
    let mut last_problem = String::new();
    loop {
        let round = async {
            if copy.source.is_keepsake {
                // Opened before the round: a change during the round must cause another one.
                changes.open(&copy.source.store).await?;
            }
            copy.round().await
        };
        let is_over = async {
            ending.cancelled().await;
            tokio::time::sleep(END_LIMIT).await;
        };
        let done = tokio::select! {
            done = round => done,
            () = is_over => Ok(()),
        };
        if ending.is_cancelled() {
            return copy.tell_step();
        }
        copy.tell_step()?;
        let problem = match done {
            Ok(()) => {
                backoff = FIRST_BACKOFF;
                String::new()
            }
            Err(failure) => match failure.class() {
                FailureClass::NotFound | FailureClass::NotAllowed => return Err(failure),
                _ => failure.to_string(),
            },
        };
        if problem != last_problem {
            notice(&if problem.is_empty() {
                "copied again".to_owned()
            } else {
                format!("{problem}; trying again")
            });
        }
        last_problem = problem;
        let wait = async {
            if !last_problem.is_empty() {
                tokio::time::sleep(backoff).await;
                backoff = (backoff * 2).min(MAX_BACKOFF);
                return;
            }
            let is_told = changes.are_told();
            tokio::select! {
                () = changes.next(every) => {}
                () = tokio::time::sleep(SAFETY_INTERVAL.max(every)) => {}
            }
            // A round lists the whole store of another server, so a change starts a round only after
            // the interval. Without a stream, the interval has passed.
            if is_told && !copy.is_target_keepsake() {
                tokio::time::sleep(every).await;
            }
        };
        tokio::select! {
            () = wait => {}
            () = ending.cancelled() => return Ok(()),
        }
    }
}
