//! The loop of the jobs that remove data.

use std::collections::HashSet;

use keepsake_core::{StoreId, TenantId};

use super::Lease;
use crate::EngineError;

/// A tenant, or one of its stores.
pub(super) type RemovalScope = (TenantId, Option<StoreId>);

pub(super) trait Selection: Send {
    /// A unit of removal, such as a store; it may need many batches.
    type Item: Send;

    /// `None`: a failure of the item ends the run.
    fn place(_: &Self::Item) -> Option<RemovalScope> {
        None
    }

    /// Reads the next items; the last page is empty. It may contain the `left` items that
    /// this run leaves to the next run.
    fn page(&mut self, left: u32) -> impl Future<Output = Result<Vec<Self::Item>, EngineError>> + Send;

    fn batch(&mut self, item: &mut Self::Item) -> impl Future<Output = Result<Step, EngineError>> + Send;
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    More,
    Done,
    /// The next run tries again.
    Left,
    /// The run must stop.
    Stopped,
}

/// Removes what a job selects, until nothing is left, the lease is lost, or the
/// process shuts down. Renews the lease between batches. Returns the number of
/// failures.
///
/// A tenant or store that fails is left to the next run, so that the others are
/// processed.
pub(super) async fn remove_all<S: Selection>(
    selection: &mut S,
    lease: &Lease<'_>,
) -> Result<u64, EngineError> {
    let (mut left, mut failures) = (HashSet::new(), 0);
    loop {
        let page = selection.page(u32::try_from(left.len()).unwrap_or(u32::MAX));
        let mut is_last = true;
        for mut item in page.await? {
            let place = S::place(&item);
            if place.is_some_and(|place| left.contains(&place)) {
                continue;
            }
            is_last = false;
            match (remove(selection, &mut item, lease).await, place) {
                (Ok(Step::Stopped), _) => return Ok(failures),
                (Ok(Step::Left), _) => left.extend(place),
                (Ok(Step::More | Step::Done), _) => {}
                (Err(error), None) => return Err(error),
                (Err(error), Some(place)) => {
                    tracing::warn!(
                        job.name = lease.fence().job, tenant.id = %place.0,
                        store.id = place.1.map(tracing::field::display), error = %error,
                        "job.run failed with a tenant or a store; the next run tries again"
                    );
                    left.insert(place);
                    failures += 1;
                }
            }
        }
        if is_last || !lease.renew(None).await? {
            return Ok(failures);
        }
    }
}

/// Removes an item in batches. Stops between two batches if the lease cannot be renewed.
async fn remove<S: Selection>(
    selection: &mut S,
    item: &mut S::Item,
    lease: &Lease<'_>,
) -> Result<Step, EngineError> {
    loop {
        match selection.batch(item).await? {
            Step::More if lease.renew(None).await? => {}
            Step::More => return Ok(Step::Stopped),
            step => return Ok(step),
        }
    }
}
