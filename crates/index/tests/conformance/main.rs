//! The contract of the index on SQLite and on Postgres, and the facts of each database.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

mod audit;
mod batches;
mod blobs;
mod changes;
mod claims;
mod commits;
mod connections;
mod contents;
mod cost;
mod credentials;
mod deletions;
mod endings;
mod erasure_rows;
mod erasures;
mod expiry;
mod grants;
mod heads;
mod idempotency;
mod isolation;
mod jobs;
mod lists;
mod model;
mod operator;
mod partitioned;
mod place;
mod plans;
mod poolers;
mod postgres_only;
mod puts;
mod quotas;
mod races;
mod redactions;
mod refusals;
mod revivals;
mod schema;
mod search;
mod sessions;
mod sqlite_only;
mod stores;
mod subject;
mod tenants;
mod together;
mod upkeep;
mod versions;

/// Runs every fact of the suite against both databases, and against Postgres with
/// partitioned tables.
macro_rules! hold_on_both_databases {
    ($($module:ident: [$($fact:ident),+ $(,)?])+) => {
        mod sqlite {
            $(mod $module {
                $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $fact() {
                    crate::$module::$fact(&crate::subject::Subject::sqlite().await).await;
                })+
            })+
        }
        mod postgres {
            $(mod $module {
                $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $fact() {
                    crate::$module::$fact(&crate::subject::Subject::postgres().await).await;
                })+
            })+
        }
        mod partitions {
            $(mod $module {
                $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $fact() {
                    let subject = crate::subject::Subject::partitioned().await;
                    crate::$module::$fact(&subject).await;
                    crate::partitioned::assert_pruned(&subject).await;
                })+
            })+
        }
    };
}

hold_on_both_databases! {
    together: [
        batched_commits_do_not_affect_each_other,
        commit_of_another_tenant_in_a_batch_finds_no_store,
        puts_of_stores_and_tenants_go_together,
        refusals_within_a_batch_undo_only_themselves,
        idempotency_key_twice_in_a_batch_commits_once,
        limits_hold_within_a_batch,
        puts_renames_and_deletions_that_wait_are_all_made,
        more_commits_than_fit_one_batch_are_all_answered,
        commit_behind_many_abandoned_ones_is_answered,
        batched_lookups_see_only_their_tenant,
    ]
    contents: [
        content_is_stored_with_its_commit,
        every_change_of_a_commit_stores_its_content,
        refused_commit_leaves_no_content,
        content_larger_than_accepted_is_not_read,
        redaction_deletes_content_in_its_transaction,
        content_shared_by_a_rename_is_kept,
        erasure_deletes_content,
        inserted_content_needs_a_version,
        contents_are_listed_in_key_order,
    ]
    search: [
        terms_follow_every_change,
        changes_of_one_commit_are_returned_together,
        refused_commit_leaves_no_terms,
        terms_of_outdated_content_are_not_returned,
        whole_store_is_returned_after_a_purge,
        whole_store_is_returned_if_its_history_differs,
        missing_and_deleted_stores_are_none,
        memories_without_terms_are_found_and_written,
        late_terms_do_not_replace_newer_ones,
        large_terms_are_kept_byte_by_byte,
    ]
    credentials: [
        secrets_of_a_purpose_come_in_the_order_of_their_times,
        one_of_racing_secrets_with_the_same_name_is_kept,
        secret_is_rewrapped_only_if_unchanged_since_the_read,
        retirement_of_a_secret_never_moves_later,
        tenant_is_found_by_either_of_its_names,
        use_of_a_key_never_moves_back,
    ]
    heads: [
        missing_store_is_none,
        deleted_store_is_none,
        unused_path_is_missing,
        memory_is_found_with_its_version,
        directory_counts_everything_below_it,
        root_of_an_empty_store_is_an_empty_directory,
        children_of_the_root_are_in_byte_order,
        directory_is_removed_with_its_last_file,
        archived_store_is_marked,
        listing_is_two_levels_by_bytes_without_hidden_ones,
        hidden_directory_lists_itself_when_asked_for,
        short_listing_is_the_beginning_of_the_whole_one,
        heads_below_ends_where_the_directory_does,
        heads_below_are_the_heads_themselves,
    ]
    commits: [
        versions_of_a_memory_are_one_unbroken_chain,
        version_has_its_blob_and_hash,
        edit_brings_new_content_and_keeps_the_memory,
        first_line_stays_with_its_content,
        actor_of_every_version_is_recorded,
        versions_of_one_commit_follow_the_order_of_its_changes,
        created_at_decreases_only_after_a_clock_that_was_ahead,
        edit_moves_updated_at_and_leaves_created_at,
        path_of_a_deleted_memory_is_free_for_another,
        empty_memory_is_a_memory,
        text_is_kept_character_by_character,
        store_counts_follow_its_commits,
        content_that_stays_counts_once_in_the_history,
        largest_sizes_are_counted_exactly,
        commit_returns_the_epoch_of_the_last_purge,
    ]
    refusals: [
        unknown_store_is_refused,
        deleted_store_is_refused,
        changed_head_is_stale,
        renamed_or_deleted_head_is_stale,
        unknown_head_is_stale,
        one_stale_head_refuses_the_whole_commit,
        path_of_another_memory_is_taken,
        path_of_a_directory_is_refused,
        path_below_a_file_is_refused,
        memory_limit_holds_exactly_at_its_edge,
        byte_limit_holds_exactly_at_its_edge,
        commit_scanned_under_another_policy_is_stale,
        store_over_its_limits_may_still_shrink,
        guard_refuses_when_a_file_was_added,
        guard_refuses_when_its_directory_is_gone,
        condemned_blob_is_refused,
        archived_store_accepts_only_deletions,
        checks_run_in_a_fixed_order,
    ]
    lists: [
        every_page_size_lists_everything_once_in_byte_order,
        listing_begins_after_any_text,
        first_pages_show_every_change,
        unchanged_memories_are_listed_once_during_changes,
        deleted_and_renamed_ones_are_not_listed,
        memory_is_the_same_by_id_and_in_lists,
        deleted_memory_is_distinguished_from_an_unknown_one,
        memories_and_lists_show_the_state_of_their_store,
        missing_store_has_no_memories_and_no_lists,
    ]
    revivals: [
        restored_memory_keeps_its_id_and_creation_time,
        restore_brings_back_the_earlier_content,
        only_the_deletion_that_was_read_is_undone,
        restore_to_a_taken_path_is_refused,
        change_sets_the_pin_or_keeps_it,
        first_line_is_kept_unless_it_is_given,
        commit_of_an_older_epoch_is_stale,
        pin_is_set_and_removed_without_a_version,
        pin_of_a_changed_head_is_stale,
        pin_needs_a_writable_store,
        repeated_pin_is_set_once,
        call_without_a_pin_keeps_it,
        pin_racing_an_edit_is_set_or_stale,
    ]
    versions: [
        every_filter_lists_what_it_says_newest_first,
        extreme_times_are_valid_bounds,
        time_range_is_found_across_gaps_in_the_order,
        versions_created_while_listing_are_not_listed,
        version_is_the_same_by_id_by_place_and_in_lists,
        version_has_every_written_field,
        unknown_version_and_unknown_store_are_distinguished,
        versions_of_one_content_are_found_newest_first,
    ]
    stores: [
        repeated_call_makes_one_store,
        concurrent_duplicates_make_one_store,
        idempotency_key_of_a_commit_is_refused_for_a_store,
        stores_are_listed_newest_first_page_by_page,
        filters_of_stores_hold,
        listed_store_is_the_store,
        updated_at_moves_only_with_name_description_and_metadata,
        metadata_is_merged_within_its_limit,
        only_a_new_or_shorter_period_starts_again,
        repeated_update_is_applied_once,
        concurrent_updates_lose_nothing,
        archived_store_stays_as_it_is,
        unknown_store_is_not_changed,
    ]
    redactions: [
        redaction_leaves_who_did_what_and_when,
        redacting_twice_changes_nothing,
        content_of_a_live_memory_is_not_redacted,
        blob_is_removed_with_its_last_version,
        path_of_a_deleted_memory_is_removed_with_its_last_version,
        path_of_a_restored_memory_is_kept,
        redaction_by_the_operator_has_no_author,
        versions_of_an_archived_store_can_be_redacted,
        unknown_versions_are_not_redacted,
        redacted_content_is_not_committed_again,
        content_is_either_redacted_or_restored,
        redaction_in_one_store_does_not_affect_others,
    ]
    endings: [
        deleted_store_is_gone_for_every_reader,
        deleted_store_accepts_no_changes,
        store_deletion_frees_the_quota_at_once,
        store_deletion_moves_the_purge_epoch,
        deletion_during_commits_and_grants_keeps_the_byte_account_exact,
        purge_removes_everything_in_batches_of_any_size,
        interrupted_purge_is_resumed,
        concurrent_purges_remove_everything_once,
        purge_finds_blobs_whose_own_version_was_redacted,
        store_that_is_not_deleted_is_not_purged,
        deleted_stores_come_oldest_first_and_limited,
    ]
    erasure_rows: [
        idempotency_records_are_erased_with_their_objects,
        repeated_call_returns_its_erasure,
        finished_erasure_holds_no_path,
        erasures_are_listed_newest_first_and_by_store,
        open_erasures_of_a_tenant_are_bounded,
        erasure_belongs_to_one_worker_until_it_stops,
        erasure_of_another_tenant_is_not_found,
    ]
    erasures: [
        memories_below_the_prefix_are_erased_and_others_kept,
        memory_once_below_the_prefix_is_erased_completely,
        memories_created_after_the_request_are_kept,
        erased_memory_accepts_no_change,
        erasure_owns_its_blobs_until_they_are_removed,
        erasing_a_store_removes_its_rows,
        deleted_store_can_be_erased,
        stores_are_selected_by_all_their_pairs,
        two_workers_erase_everything_once,
        erasure_of_any_directory_claims_queued_blobs,
        erasure_waits_for_another_one_of_its_store,
        forgotten_blobs_have_no_row,
        erasure_of_any_history_removes_all_that_was_below_the_prefix,
    ]
    batches: [
        ten_thousand_files_are_deleted_at_once,
        ten_thousand_files_are_renamed_at_once,
        directory_moves_into_an_existing_one,
        commit_mixes_every_kind_of_change,
        directory_whose_files_are_all_replaced_is_kept,
        empty_commit_changes_nothing,
        commit_that_contradicts_itself_writes_nothing,
    ]
    sessions: [
        session_is_found_only_by_its_tenant,
        sessions_made_at_one_moment_are_paged_once_each,
        bound_credential_sees_sessions_of_its_own_stores_only,
        concurrent_attachments_stay_within_the_limit,
        deleted_store_is_no_longer_attached,
        events_are_kept_once_in_their_order,
        erasure_removes_events_that_name_erased_paths,
        late_event_from_before_an_erasure_is_dropped,
        erased_store_leaves_no_attachment_and_no_event,
        last_use_of_a_session_never_moves_back,
        ended_sessions_are_pruned_with_what_belongs_to_them,
    ]
    races: [
        file_and_directory_of_one_name_never_both_appear,
        one_of_many_creates_of_a_path_wins,
        one_of_many_renames_to_a_path_wins,
        one_of_many_changes_of_a_head_wins,
        edits_that_retry_lose_none_of_sixteen,
        look_ups_see_every_commit_that_was_answered,
        racing_creates_stop_exactly_at_the_memory_limit,
        creates_racing_in_many_directories_keep_every_count,
        blob_is_either_committed_or_condemned,
        commit_that_is_abandoned_leaves_the_store_usable,
    ]
    model: [
        any_history_equals_its_model,
    ]
    claims: [
        claim_goes_to_the_first_replica_until_it_ends,
        claim_ends_with_the_commit_of_its_replica,
        claim_covers_one_memory,
        claim_on_a_missing_memory_is_refused,
    ]
    grants: [
        first_byte_needs_a_grant,
        empty_memory_and_shrinking_need_no_grant,
        grant_exceeds_the_need_if_there_is_room,
        grant_to_a_missing_store_is_refused,
        tenant_limit_is_exact_over_its_stores,
        refused_grant_says_what_the_tenant_would_hold,
        lowered_limit_revokes_nothing,
        tenants_do_not_share_their_bytes,
        racing_writers_stop_exactly_at_the_tenants_limit,
    ]
    idempotency: [
        second_call_is_replayed_and_writes_nothing,
        replay_ends_with_its_window,
        another_scope_is_another_call,
        refused_call_may_be_made_again,
        replay_comes_before_every_other_refusal,
        concurrent_duplicates_commit_once,
        idempotency_key_of_another_request_writes_nothing,
    ]
    blobs: [
        orphan_is_condemned_and_due_in_time,
        condemning_twice_changes_nothing,
        blob_of_a_version_is_not_condemned,
        blob_shared_by_a_rename_is_not_condemned,
        blob_of_a_redacted_version_is_an_orphan,
        deletions_come_oldest_first_and_limited,
        failed_deletion_waits_and_counts,
        removed_blob_leaves_the_queue,
        removed_orphan_stays_condemned_until_its_time,
        queues_of_stores_do_not_mix,
        orphan_removed_by_two_runs_keeps_its_tombstone,
        run_without_its_lease_reports_no_removal,
        failed_removal_does_not_end_a_tombstone,
    ]
    tenants: [
        created_tenant_is_returned_unchanged,
        taken_external_id_creates_no_tenant,
        one_of_many_tenants_of_an_external_id_is_made,
        created_store_is_returned_unchanged,
        store_of_an_unknown_tenant_is_not_created,
        stores_limit_holds_exactly,
        racing_stores_stop_exactly_at_the_limit,
        taken_store_id_creates_no_second_store,
        secret_authenticates_its_key,
        credential_shows_changes_of_its_key_and_tenant,
        key_of_an_unknown_tenant_is_not_created,
        secret_belongs_to_only_one_key,
    ]
    operator: [
        tenants_are_listed_newest_first_page_by_page,
        tenant_update_changes_only_the_given_fields,
        external_id_of_another_tenant_is_refused,
        concurrent_changes_lose_nothing,
        keys_are_listed_newest_first_page_by_page,
        expired_or_revoked_key_creates_no_keys,
        second_revocation_keeps_the_first_time,
        repeated_call_makes_one_key,
        usage_equals_the_written_data,
        every_action_is_in_the_audit,
        refused_action_is_not_in_the_audit,
        audit_is_listed_newest_first_page_by_page,
        operators_store_counts_and_is_limited,
    ]
    audit: [
        changes_of_stores_are_in_the_audit,
        changes_of_sessions_are_in_the_audit,
        change_that_changes_nothing_is_not_in_the_audit,
        audit_is_filtered_by_action_actor_object_and_time,
        old_entries_are_pruned_and_no_others,
        audit_entries_of_jobs_do_not_count_towards_the_daily_limit,
    ]
    quotas: [
        racing_sessions_do_not_pass_the_limit,
        only_a_deleted_session_frees_the_quota,
        pruned_sessions_no_longer_count,
        total_bytes_of_session_descriptions_are_limited,
        racing_keys_do_not_pass_the_limit,
        racing_changes_do_not_pass_the_daily_audit_limit,
        revocations_and_deletions_ignore_the_daily_audit_limit,
    ]
    deletions: [
        tenant_marked_for_deletion_accepts_nothing_new,
        repeated_deletion_request_is_one_deletion,
        purge_leaves_no_row_in_any_table,
        purge_counts_the_same_in_batches_of_any_size,
        concurrent_purges_count_every_row_once,
        stores_refuse_commits_before_their_rows_are_removed,
        stores_of_a_deleted_tenant_are_not_purged_separately,
        live_tenant_is_not_purged,
        late_rows_are_removed_before_the_deletion_ends,
        blobs_are_counted_until_the_end,
        object_versions_are_noted_until_the_end,
        deletion_is_due_until_it_settles_and_then_once_more,
    ]
    isolation: [
        reads_find_nothing_of_another_tenant,
        commits_do_not_reach_another_tenant,
        idempotent_call_of_another_tenant_is_not_replayed,
        grants_do_not_reach_another_tenant,
        claims_do_not_reach_another_tenant,
        same_store_id_in_another_tenant_is_another_store,
        stores_of_one_tenant_do_not_mix,
        lists_and_history_of_another_tenant_are_not_found,
        store_of_another_tenant_is_not_changed_or_deleted,
    ]
    changes: [
        changes_come_in_the_order_of_their_commits,
        heads_are_those_of_the_watched_stores,
        recent_events_of_sessions_are_counted,
    ]
    upkeep: [
        database_without_damage_has_no_damage_to_report,
        blobs_are_named_in_the_order_of_their_keys,
        blob_of_a_deleted_store_is_named_until_it_is_purged,
        counters_do_not_drift_after_commits_and_redactions,
        drifted_counters_are_corrected,
        store_above_its_grant_gets_a_larger_grant,
        recounts_during_commits_find_and_cause_no_drift,
        drift_is_corrected_during_commits,
        head_without_a_version_is_reported,
        stores_and_tenants_come_in_their_order,
        counters_of_a_store_are_what_it_holds,
        old_idempotency_records_are_pruned_in_batches,
        old_job_runs_replicas_and_codes_are_pruned,
        job_runs_show_their_state,
        manual_run_is_in_the_audit,
        released_run_is_resumed,
        late_orphan_is_removed_again,
    ]
    expiry: [
        expiry_checks_again_before_it_deletes,
        memories_are_due_at_their_expiry_time_page_by_page,
        due_memory_is_checked_again_before_it_is_deleted,
        expiry_by_a_period_that_changed_deletes_nothing,
        expired_memory_of_another_store_stays,
        memories_are_paged_with_their_latest_use,
        stores_are_listed_once_a_memory_may_have_expired,
        stores_with_a_period_come_page_by_page,
        stores_with_a_history_come_page_by_page,
        slowest_replica_determines_how_far_reads_are_written,
        deleted_memories_are_removed_in_batches_of_any_size,
        retention_is_counted_from_the_deletion,
        deletion_by_a_clock_that_was_ahead_is_removed_with_those_after_it,
        current_version_of_a_live_memory_is_never_removed,
        usage_lists_unused_memories_with_their_last_reader,
    ]
    jobs: [
        access_time_never_moves_back,
        activity_later_than_a_read_stays,
        latest_of_two_reads_in_one_flush_stays,
        reads_of_a_deleted_store_are_dropped,
        concurrent_flushes_are_all_stored,
        heartbeat_is_kept_per_replica,
        gateway_is_live_until_it_ends_or_its_heartbeats_stop,
        second_owner_is_refused_until_the_lease_ends,
        lease_of_a_clock_that_was_ahead_can_be_taken,
        finished_slot_is_not_run_again,
        slot_of_a_dead_owner_is_run_again,
        renewed_lease_holds_longer,
        job_is_claimed_until_its_lease_ends_or_is_released,
        released_lease_is_not_renewed,
        run_records_what_it_did,
        jobs_do_not_wait_for_each_other,
        one_of_many_claims_of_a_slot_wins,
        due_time_of_a_job_is_exact_to_the_microsecond,
    ]
}
