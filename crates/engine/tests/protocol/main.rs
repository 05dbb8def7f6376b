//! The commit protocol, rule by rule, on both pairs of real backends.

#![expect(clippy::unwrap_used, reason = "a test that meets the unexpected ends there")]

mod access;
mod agent_tools;
mod any_life;
mod api;
mod bed;
mod brakes;
mod credentials;
mod erasures;
mod expiry;
mod history;
mod idempotency;
mod jobs;
mod listing;
mod pins;
mod reads;
mod removals;
mod search;
mod sensitive;
mod sessions;
mod tenants;
mod upkeep;
mod write_only;
mod writes;

/// Makes one test per fact and pair of backends.
macro_rules! on_both_pairs {
    ($($fact:ident,)*) => {
        mod on_sqlite_and_files {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $fact() {
                super::$fact(crate::bed::Bed::sqlite_and_files().await).await;
            })*
        }
        mod on_postgres_and_s3 {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $fact() {
                super::$fact(crate::bed::Bed::postgres_and_s3().await).await;
            })*
        }
    };
}
pub(crate) use on_both_pairs;
