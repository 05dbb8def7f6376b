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
        commits_that_go_together_do_not_harm_each_other,
        more_commits_than_one_batch_takes_are_all_answered,
        commit_behind_many_abandoned_ones_is_answered,
        lookups_that_go_together_see_their_own_tenant,
    ]
    contents: [
        content_is_there_with_its_commit,
        every_change_of_a_commit_brings_its_content,
        refused_commit_leaves_no_content,
        content_larger_than_accepted_is_not_read,
        redaction_deletes_content_in_its_transaction,
        content_that_a_rename_shares_stays,
        erasure_deletes_content,
        content_from_elsewhere_needs_a_version,
        contents_are_listed_in_key_order,
    ]
    search: [
        terms_follow_every_change,
        changes_of_one_commit_are_told_together,
        refused_commit_leaves_no_terms,
        terms_of_other_content_are_not_told,
        store_is_told_whole_after_a_purge,
        store_with_another_history_is_told_whole,
        stores_that_are_not_there_are_none,
        memories_without_terms_are_found_and_written,
        late_terms_give_way_to_newer_content,
        large_terms_are_kept_byte_by_byte,
    ]
    credentials: [
        secrets_of_a_purpose_come_in_the_order_of_their_times,
        of_racing_secrets_of_one_name_one_is_kept,
        secret_is_wrapped_anew_only_from_the_form_that_was_read,
        secret_is_retired_no_later_than_it_was,
        tenant_is_found_by_either_of_its_names,
        use_of_a_key_never_moves_back,
    ]
    heads: [
        missing_store_is_none,
        deleted_store_is_none,
        path_of_nothing_is_missing,
        memory_is_found_with_its_version,
        directory_counts_everything_below_it,
        root_of_an_empty_store_is_an_empty_directory,
        directory_goes_with_its_last_file,
        archived_store_says_so,
        listing_is_two_levels_by_bytes_without_hidden_ones,
        hidden_directory_lists_itself_when_asked_for,
        short_listing_is_the_beginning_of_the_whole_one,
        heads_below_ends_where_the_directory_does,
        heads_below_are_the_heads_themselves,
    ]
    commits: [
        versions_of_a_memory_are_one_unbroken_chain,
        version_tells_its_blob_and_hash,
        edit_brings_new_content_and_keeps_the_memory,
        first_line_stays_with_its_content,
        actor_of_every_version_is_recorded,
        versions_of_one_commit_follow_the_order_of_its_changes,
        created_at_never_decreases_when_the_clock_goes_back,
        edit_moves_updated_at_and_leaves_created_at,
        path_of_a_deleted_memory_is_free_for_another,
        empty_memory_is_a_memory,
        text_is_kept_character_by_character,
        store_shows_what_commits_made_of_it,
        content_that_stays_counts_once_in_the_history,
        largest_sizes_are_counted_exactly,
        commit_tells_the_epoch_of_the_last_purge,
    ]
    refusals: [
        unknown_store_is_refused,
        deleted_store_is_refused,
        head_that_moved_is_stale,
        head_that_was_renamed_or_deleted_is_stale,
        head_that_never_was_is_stale,
        one_stale_head_refuses_the_whole_commit,
        path_of_another_memory_is_taken,
        path_of_a_directory_is_refused,
        path_below_a_file_is_refused,
        memory_limit_holds_exactly_at_its_edge,
        byte_limit_holds_exactly_at_its_edge,
        commit_judged_under_another_policy_is_stale,
        store_over_its_limits_may_still_shrink,
        guard_refuses_when_a_file_was_added,
        guard_on_a_directory_that_is_gone_refuses,
        condemned_blob_is_refused,
        archived_store_takes_deletes_alone,
        checks_answer_in_their_order,
    ]
    lists: [
        every_page_size_lists_everything_once_in_byte_order,
        listing_begins_after_any_text,
        what_stays_is_listed_once_while_others_come_and_go,
        deleted_and_renamed_ones_are_not_listed,
        memory_is_the_same_by_id_and_in_lists,
        deleted_memory_is_told_from_one_that_never_was,
        memories_and_lists_tell_the_state_of_their_store,
        store_that_is_not_there_has_no_memories_and_no_lists,
    ]
    revivals: [
        memory_comes_back_with_its_id_and_age,
        memory_comes_back_to_the_content_it_had,
        only_the_deletion_that_was_read_is_undone,
        returning_memory_finds_its_path_taken,
        pin_comes_with_a_change_or_stays_as_it_was,
        first_line_is_kept_unless_it_is_given,
        commit_of_an_older_epoch_is_stale,
        pin_is_set_and_taken_off_without_a_version,
        pin_of_a_head_that_moved_is_stale,
        pin_needs_a_store_that_takes_changes,
        pin_that_is_sent_twice_is_set_once,
        call_that_asks_for_no_pin_keeps_it,
        pin_racing_an_edit_is_set_or_stale,
    ]
    versions: [
        every_filter_lists_what_it_says_newest_first,
        farthest_times_are_no_bounds,
        time_range_is_found_across_gaps_in_the_order,
        versions_that_come_while_listing_are_not_in_it,
        version_is_the_same_by_id_by_place_and_in_lists,
        version_tells_all_that_was_written,
        version_of_no_id_and_store_of_no_id_are_told_apart,
        versions_of_one_content_are_found_newest_first,
    ]
    stores: [
        call_that_is_sent_twice_makes_one_store,
        concurrent_duplicates_make_one_store,
        name_of_a_commits_call_is_not_one_of_a_store,
        stores_are_listed_newest_first_page_by_page,
        filters_of_stores_hold,
        listed_store_is_the_store,
        updated_at_moves_with_what_is_called_and_told_alone,
        metadata_is_merged_within_its_limit,
        only_a_new_or_shorter_period_begins_now,
        update_that_is_sent_twice_is_made_once,
        updates_at_the_same_time_lose_nothing,
        archived_store_stays_as_it_is,
        store_of_no_id_is_not_changed,
    ]
    redactions: [
        redaction_leaves_who_did_what_and_when,
        redacting_twice_changes_nothing,
        content_of_a_live_memory_is_not_redacted,
        blob_goes_with_the_last_version_that_names_it,
        path_of_a_deleted_memory_goes_with_its_last_version,
        path_of_a_memory_that_came_back_stays,
        operator_redacts_without_a_name,
        archived_store_is_redacted_all_the_same,
        what_is_not_there_is_not_redacted,
        redacted_content_is_not_committed_again,
        content_is_either_redacted_or_restored,
        redaction_in_one_store_leaves_others_alone,
    ]
    endings: [
        deleted_store_is_gone_for_every_reader,
        deleted_store_takes_no_changes,
        tenant_has_its_place_and_bytes_back_at_once,
        deletion_is_told_to_the_caches,
        deletion_among_commits_and_grants_keeps_the_account,
        purge_takes_everything_in_batches_of_any_size,
        purge_goes_on_where_it_was_interrupted,
        purges_at_the_same_time_take_everything_once,
        purge_finds_blobs_whose_own_version_was_redacted,
        store_that_is_not_deleted_is_not_purged,
        deleted_stores_come_oldest_first_and_limited,
    ]
    erasure_rows: [
        records_of_calls_go_with_what_they_made,
        call_that_is_sent_again_finds_its_erasure,
        row_of_an_erasure_holds_no_path_at_its_end,
        erasures_are_listed_newest_first_and_by_store,
        open_erasures_of_a_tenant_are_bounded,
        erasure_is_one_workers_until_it_stops,
        erasure_of_another_tenant_is_not_found,
    ]
    erasures: [
        memories_below_go_and_their_neighbours_stay,
        memory_that_once_stood_below_goes_wholly,
        what_is_made_after_the_request_stays,
        erased_memory_takes_no_change_any_more,
        blobs_are_the_erasures_until_they_are_gone,
        store_goes_with_its_row,
        store_that_was_deleted_before_is_erased,
        stores_are_selected_by_all_their_pairs,
        two_workers_take_everything_once,
        blobs_that_were_queued_before_go_with_any_directory,
        erasure_does_not_end_before_another_of_its_store_has,
        forgotten_blobs_are_those_without_a_row,
        any_history_loses_what_ever_stood_below,
    ]
    batches: [
        ten_thousand_files_are_deleted_at_once,
        ten_thousand_files_are_renamed_at_once,
        directory_moves_into_one_that_is_there,
        commit_mixes_every_kind_of_change,
        directory_whose_files_are_exchanged_stays,
        commit_of_nothing_changes_nothing,
        commit_that_contradicts_itself_writes_nothing,
    ]
    sessions: [
        session_is_found_as_it_was_made_by_its_tenant_alone,
        sessions_made_at_one_moment_are_paged_once_each,
        bound_credential_sees_sessions_of_its_own_stores_only,
        attachments_at_the_same_time_are_none_too_many,
        store_that_is_deleted_is_attached_no_longer,
        events_are_kept_once_in_their_order,
        erasure_takes_the_events_that_name_what_goes,
        event_from_before_an_erasure_comes_too_late,
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
        creates_racing_at_the_memory_limit_end_exactly_on_it,
        creates_racing_in_many_directories_keep_every_count,
        blob_is_either_committed_or_condemned,
        commit_that_is_abandoned_leaves_the_store_usable,
    ]
    model: [
        any_history_leaves_what_a_model_of_it_has,
    ]
    claims: [
        claim_goes_to_the_first_replica_until_it_ends,
        claim_ends_with_the_commit_of_its_replica,
        claim_covers_one_memory,
        claim_on_a_memory_that_is_not_there_is_refused,
    ]
    grants: [
        first_byte_needs_a_grant,
        empty_memory_and_shrinking_need_no_grant,
        grant_is_more_than_needed_where_there_is_room,
        grant_to_a_store_that_is_not_there_is_refused,
        tenant_limit_is_exact_over_its_stores,
        refused_grant_says_what_the_tenant_would_hold,
        limit_lowered_below_what_is_held_takes_nothing_away,
        tenants_do_not_share_their_bytes,
        writers_racing_at_the_tenants_edge_end_exactly_on_it,
    ]
    idempotency: [
        second_call_is_replayed_and_writes_nothing,
        replay_ends_with_its_window,
        another_scope_is_another_call,
        refused_call_may_be_made_again,
        replay_comes_before_every_other_refusal,
        concurrent_duplicates_commit_once,
        name_used_for_another_request_writes_nothing,
    ]
    blobs: [
        orphan_is_condemned_and_due_in_time,
        condemning_twice_changes_nothing,
        blob_that_a_version_names_is_not_condemned,
        blob_shared_by_a_rename_is_not_condemned,
        blob_of_a_redacted_version_is_an_orphan,
        deletions_come_oldest_first_and_limited,
        failed_deletion_waits_and_counts,
        removed_blob_leaves_the_queue,
        removed_orphan_stays_condemned_until_its_time,
        queues_of_stores_do_not_mix,
        orphan_removed_by_two_runs_keeps_its_tombstone,
        run_without_its_lease_reports_no_removal,
        failed_removal_leaves_a_tombstone_alone,
    ]
    tenants: [
        tenant_comes_back_as_it_was_made,
        external_id_that_is_taken_makes_no_tenant,
        one_of_many_tenants_of_an_external_id_is_made,
        store_comes_back_as_it_was_made,
        store_of_nobody_is_not_made,
        stores_limit_holds_exactly,
        stores_racing_at_the_limit_end_exactly_on_it,
        store_id_that_is_taken_makes_no_second_store,
        secret_authenticates_its_key,
        credential_shows_what_became_of_key_and_tenant,
        key_of_nobody_is_not_made,
        secret_belongs_to_one_key_alone,
    ]
    operator: [
        tenants_are_listed_newest_first_page_by_page,
        tenant_changes_in_what_is_given_alone,
        external_id_of_another_tenant_is_refused,
        changes_at_the_same_time_lose_nothing,
        keys_are_listed_newest_first_page_by_page,
        key_that_is_good_no_more_makes_none,
        revoked_key_keeps_its_first_end,
        key_call_that_is_sent_twice_makes_one_key,
        usage_is_what_was_written,
        every_action_is_in_the_audit,
        action_that_is_refused_leaves_nothing,
        audit_is_listed_newest_first_page_by_page,
        operators_store_counts_and_is_limited,
    ]
    audit: [
        changes_of_stores_are_in_the_audit,
        changes_of_sessions_are_in_the_audit,
        change_that_changes_nothing_is_not_in_the_audit,
        audit_is_filtered_by_action_actor_object_and_time,
        old_entries_are_pruned_and_no_others,
        job_is_in_the_audit_of_no_credential,
    ]
    quotas: [
        racing_sessions_do_not_pass_the_limit,
        session_that_is_deleted_makes_room_and_one_that_is_archived_does_not,
        pruned_sessions_are_counted_no_more,
        descriptions_of_sessions_hold_so_many_bytes_together,
        racing_keys_do_not_pass_the_limit,
        racing_changes_do_not_pass_the_entries_of_a_day,
        what_ends_something_is_done_when_the_day_is_used_up,
    ]
    deletions: [
        marked_tenant_gets_nothing_new,
        deletion_that_is_asked_for_twice_is_one,
        purge_leaves_no_row_in_any_table,
        purge_counts_the_same_in_batches_of_any_size,
        purges_at_the_same_time_count_every_row_once,
        stores_end_before_their_rows,
        stores_of_a_tenant_that_goes_are_not_purged_by_themselves,
        tenant_that_stays_is_not_purged,
        what_comes_late_is_removed_before_the_end,
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
        store_of_the_same_id_is_another_store,
        stores_of_one_tenant_do_not_mix,
        lists_and_history_of_another_tenant_are_not_found,
        store_of_another_tenant_is_not_changed_nor_ended,
    ]
    changes: [
        changes_come_in_the_order_of_their_commits,
        heads_are_those_of_the_watched_stores,
        sessions_have_as_many_recent_events_as_are_written,
    ]
    upkeep: [
        blobs_are_named_in_the_order_of_their_keys,
        blob_of_a_deleted_store_is_named_until_it_is_purged,
        what_commits_and_redactions_leave_has_not_drifted,
        counters_that_drifted_are_mended,
        store_that_holds_more_than_its_grant_is_granted_it,
        recounts_beside_commits_find_no_drift_and_make_none,
        drift_is_mended_beside_commits,
        head_that_is_no_version_is_told,
        stores_and_tenants_come_in_their_order,
        counters_of_a_store_are_what_it_holds,
        old_records_of_calls_go_in_batches,
        old_rows_of_the_fleet_go,
        runs_tell_how_they_stand,
        run_that_was_asked_for_is_in_the_audit,
        run_that_is_given_back_is_gone_on_with,
        orphan_that_comes_late_is_removed_again,
    ]
    expiry: [
        expiry_looks_again_before_it_deletes,
        memories_are_due_at_their_expiry_time_page_by_page,
        due_memory_is_looked_at_again_before_it_is_deleted,
        expiry_by_a_period_that_changed_deletes_nothing,
        expired_memory_of_another_store_stays,
        lives_come_page_by_page_with_their_latest_sign,
        stores_are_looked_at_once_something_may_be_past_its_time,
        stores_with_a_period_come_page_by_page,
        stores_with_a_history_come_page_by_page,
        slowest_replica_tells_how_far_reads_are_written,
        deleted_memories_go_in_batches_of_any_size,
        retention_is_counted_from_the_deletion,
        current_version_of_a_live_memory_never_goes,
        usage_tells_who_used_what_last,
    ]
    jobs: [
        access_time_never_moves_back,
        activity_later_than_a_read_stays,
        latest_of_two_reads_in_one_flush_stays,
        reads_of_a_deleted_store_are_dropped,
        flushes_at_the_same_time_all_land,
        heartbeat_is_kept_per_replica,
        gateway_lives_until_it_ends_or_falls_silent,
        second_owner_is_refused_until_the_lease_ends,
        slot_that_ended_is_not_run_again,
        slot_whose_owner_died_is_run_again,
        renewed_lease_holds_longer,
        lease_that_was_given_back_is_not_renewed,
        run_records_what_it_did,
        jobs_do_not_wait_for_each_other,
        one_of_many_claims_of_a_slot_wins,
        due_time_of_a_job_is_told_to_the_microsecond,
    ]
}
