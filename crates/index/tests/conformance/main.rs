//! The contract of the index on SQLite and on Postgres, and the facts of each database.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

mod blobs;
mod connections;
mod cost;
mod database;
mod deletions;
mod embeddings;
mod expiry;
mod jobs;
mod place;
mod plans;
mod poolers;
mod postgres_only;
mod prelude;
mod races;
mod schema;
mod sqlite_only;
mod together;
mod upkeep;

/// Runs every fact of the suite in a new store on each database.
macro_rules! hold_on_both_databases {
    ($($module:ident: [$($fact:ident),+ $(,)?])+) => {
        mod sqlite {
            $(mod $module {
                $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $fact() {
                    let (place, _index, _folder) = crate::place::Place::on_sqlite().await;
                    crate::$module::$fact(place).await;
                })+
            })+
        }
        mod postgres {
            $(mod $module {
                $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $fact() {
                    let (place, _index, _database) = crate::place::Place::on_postgres().await;
                    crate::$module::$fact(place).await;
                })+
            })+
        }
    };
}

hold_on_both_databases! {
    together: [
        batched_commits_do_not_mix_or_affect_each_other,
        batched_lookups_see_only_their_tenant,
    ]
    races: [
        blob_is_either_committed_or_condemned,
        commit_of_outdated_heads_or_counts_writes_nothing,
        created_at_decreases_only_after_a_clock_that_was_ahead,
        late_terms_do_not_replace_newer_ones,
        paths_are_swapped_in_one_commit,
        claim_goes_to_the_first_replica_until_it_ends,
        secret_is_rewrapped_only_if_unchanged_since_the_read,
    ]
    blobs: [
        orphan_stays_condemned_until_its_time_after_its_removal,
        blob_that_a_version_names_is_not_condemned,
        run_without_its_lease_reports_no_removal,
    ]
    deletions: [
        purge_leaves_no_row_in_any_table,
        workers_that_run_together_count_every_row_once,
        memories_that_come_after_the_request_of_an_erasure_stay,
    ]
    embeddings: [
        each_version_is_embedded_once,
        pages_end_at_their_limits_and_lack_settings,
        late_vectors_are_not_written,
        vectors_are_removed_with_their_content,
        stores_come_that_are_to_be_embedded_or_forgotten,
    ]
    upkeep: [
        drift_is_corrected_during_commits,
        directories_have_the_time_of_their_last_change,
        stores_and_tenants_come_in_their_order,
        old_job_runs_replicas_and_codes_are_pruned,
        daily_use_adds_up_until_its_store_or_its_time_ends,
    ]
    expiry: [
        expiry_checks_again_before_it_deletes,
        stores_with_a_period_or_a_history_come_page_by_page,
        deleted_memories_are_removed_in_batches_of_any_size,
        deletion_by_a_clock_that_was_ahead_is_removed_with_those_after_it,
    ]
    jobs: [
        late_flushes_move_nothing_back,
        worker_whose_copy_or_undo_was_taken_over_records_nothing,
        undos_of_a_store_are_bounded,
        concurrent_flushes_are_all_stored,
        lease_has_one_owner_until_it_ends,
        one_of_many_claims_of_a_slot_wins,
    ]
}
