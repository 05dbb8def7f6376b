//! The commit protocol, rule by rule, on real backends: SQLite and Postgres, with
//! content in the index and in an object store.

#![expect(clippy::unwrap_used, reason = "a test that meets the unexpected ends there")]

mod access;
mod archives;
mod blob_moves;
mod contents;
mod credentials;
mod damage;
mod erasures;
mod expiry;
mod meaning;
mod past;
mod prelude;
mod readers;
mod removals;
mod search;
mod sensitive;
mod sessions;
mod tenants;
mod test_engine;
mod undos;
mod upkeep;
mod writes;

/// Makes one test per fact on one backend.
macro_rules! on_backend {
    ($backend:ident, $module:ident, $($fact:ident,)*) => {
        mod $module {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $fact() {
                super::$fact(crate::test_engine::TestEngine::$backend().await).await;
            })*
        }
    };
}
pub(crate) use on_backend;

/// For facts that do not depend on the location of content.
macro_rules! on_both_databases {
    ($($fact:ident,)*) => {
        crate::on_backend! { sqlite, on_sqlite, $($fact,)* }
        crate::on_backend! { postgres_and_s3, on_postgres_and_s3, $($fact,)* }
    };
}
pub(crate) use on_both_databases;

/// For facts of content in the index.
macro_rules! with_index_content {
    ($($fact:ident,)*) => {
        crate::on_backend! { sqlite, on_sqlite, $($fact,)* }
        crate::on_backend! { postgres, on_postgres, $($fact,)* }
    };
}
pub(crate) use with_index_content;

/// For facts that need an object store: its calls, its faults, its orphans.
macro_rules! with_object_store {
    ($($fact:ident,)*) => {
        crate::on_backend! { sqlite_and_s3, object_store_on_sqlite, $($fact,)* }
        crate::on_backend! { postgres_and_s3, object_store_on_postgres, $($fact,)* }
    };
}
pub(crate) use with_object_store;
