//! `--follow`: a round after each change of the source.

use std::time::Duration;

use keepsake_config::{Failure, FailureClass};
use tokio_util::sync::CancellationToken;

use super::pass::StoreCopy;
use crate::store_changes::{LastProblem, SAFETY_INTERVAL, StoreChanges};

/// How long a round may take after the signal that ends it.
const END_LIMIT: Duration = Duration::from_secs(10);

/// Copies every change until a signal. Waits for servers that cannot be reached; fails only if
/// another attempt cannot help.
pub(super) async fn run(
    copy: &mut StoreCopy,
    every: Duration,
    ending: &CancellationToken,
) -> Result<(), Failure> {
    let mut changes = StoreChanges::default();
    let mut last_problem = LastProblem::none();
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
            Err(failure) if matches!(failure.class(), FailureClass::NotFound | FailureClass::NotAllowed) => {
                return Err(failure);
            }
            done => done.map_err(|failure| failure.to_string()),
        };
        last_problem.note(problem, "copied again");
        let wait = async {
            if last_problem.is_some() {
                return last_problem.wait().await;
            }
            let is_told = changes.are_told();
            tokio::select! {
                () = changes.next(every) => {}
                () = tokio::time::sleep(SAFETY_INTERVAL.max(every)) => {}
            }
            // A round lists the whole store of another server, so a change starts a round only after
            // the interval. Without a stream, the interval has passed.
            if is_told && !copy.to.is_keepsake {
                tokio::time::sleep(every).await;
            }
        };
        tokio::select! {
            () = wait => {}
            () = ending.cancelled() => return Ok(()),
        }
    }
}
