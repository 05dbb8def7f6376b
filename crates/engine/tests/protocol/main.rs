//! The commit protocol, rule by rule, on real backends: SQLite and Postgres, with
//! content in the index and in an object store.

#![expect(clippy::unwrap_used, reason = "a test that meets the unexpected ends there")]

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

/// For facts that do not depend on the location of content.
macro_rules! on_both_databases {
    ($($fact:ident,)*) => {
        on_backend! { sqlite, on_sqlite, $($fact,)* }
        on_backend! { postgres_and_s3, on_postgres_and_s3, $($fact,)* }
    };
}

/// For facts of content in the index.
macro_rules! with_index_content {
    ($($fact:ident,)*) => {
        on_backend! { sqlite, on_sqlite, $($fact,)* }
        on_backend! { postgres, on_postgres, $($fact,)* }
    };
}

/// For facts that need an object store: its calls, its faults, its orphans.
macro_rules! with_object_store {
    ($($fact:ident,)*) => {
        on_backend! { sqlite_and_s3, object_store_on_sqlite, $($fact,)* }
        on_backend! { postgres_and_s3, object_store_on_postgres, $($fact,)* }
    };
}

mod access;
mod archives;
mod blob_moves;
mod contents;
mod credentials;
mod damage;
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
