//! The commit protocol, rule by rule, on real backends: SQLite and Postgres, with
//! content in the index and in an object store.

#![expect(clippy::unwrap_used, reason = "a test that meets the unexpected ends there")]

mod access;
mod agent_tools;
mod any_life;
mod api;
mod bed;
mod blob_moves;
mod brakes;
mod contents;
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

/// Makes one test per fact on one kind of bed.
macro_rules! on_bed {
    ($bed:ident, $module:ident, $($fact:ident,)*) => {
        mod $module {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $fact() {
                super::$fact(crate::bed::Bed::$bed().await).await;
            })*
        }
    };
}
pub(crate) use on_bed;

/// For facts that do not depend on where content is.
macro_rules! on_both_databases {
    ($($fact:ident,)*) => {
        crate::on_bed! { sqlite, on_sqlite, $($fact,)* }
        crate::on_bed! { postgres_and_s3, on_postgres_and_s3, $($fact,)* }
    };
}
pub(crate) use on_both_databases;

/// For facts that depend on where content is.
macro_rules! on_every_bed {
    ($($fact:ident,)*) => {
        crate::on_both_databases! { $($fact,)* }
        crate::on_bed! { postgres, on_postgres, $($fact,)* }
    };
}
pub(crate) use on_every_bed;

/// For facts of content in the index.
macro_rules! with_index_content {
    ($($fact:ident,)*) => {
        crate::on_bed! { sqlite, on_sqlite, $($fact,)* }
        crate::on_bed! { postgres, on_postgres, $($fact,)* }
    };
}
pub(crate) use with_index_content;

/// For facts that need an object store: its calls, its faults, its orphans.
macro_rules! with_object_store {
    ($($fact:ident,)*) => {
        crate::on_bed! { sqlite_and_s3, object_store_on_sqlite, $($fact,)* }
        crate::on_bed! { postgres_and_s3, object_store_on_postgres, $($fact,)* }
    };
}
pub(crate) use with_object_store;
