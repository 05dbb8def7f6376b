//! The requirements for every blob store, and those for each kind.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

mod backend;
mod faults;
mod s3;
mod suite;
mod versioned;

/// Runs the whole suite against one kind of store.
macro_rules! runs_the_suite {
    ($($fact:ident),* $(,)?) => {
        mod s3_conforms {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $fact() {
                crate::suite::$fact(&crate::backend::Backend::fresh_s3()).await;
            })*
        }
    };
}

runs_the_suite![
    stored_bytes_are_returned_unchanged,
    absent_blob_is_none,
    larger_blob_is_refused,
    delete_is_idempotent,
    erased_blob_is_gone_and_its_neighbours_stay,
    erased_store_is_empty_and_its_neighbours_stay,
    erased_tenant_is_empty_and_its_neighbours_stay,
    listing_is_in_key_order_and_pages,
    listing_of_a_tenant_has_only_its_blobs,
    listing_skips_foreign_objects,
    listing_shows_sizes_and_times,
    keys_of_two_tenants_never_mix,
    concurrent_puts_are_all_stored,
    reopened_store_finds_everything,
    check_of_a_usable_store_succeeds,
];
