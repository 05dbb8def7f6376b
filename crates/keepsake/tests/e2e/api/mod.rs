//! The rules of the memory stores API: those that a database could break on both main
//! pairs, others on SQLite.
//!
//! The facts of an area share one server; each has a separate tenant.

mod access;
mod audit;
mod backend_faults;
mod batches;
mod bodies;
mod changes;
mod contents;
mod conventions;
mod creation;
mod cursors;
mod idempotency;
mod listing;
mod outage;
mod paths;
mod prompts;
mod queries;
mod quotas;
mod races;
mod redaction;
mod replicas;
mod session_rights;
mod sessions;
mod settings;
mod stores;
mod support;
mod usage;
mod versions;

use crate::support::Pair;

/// Makes one test of an area for each main pair, or one on SQLite.
macro_rules! area {
    ($on_sqlite:ident, [$($fact:path),+ $(,)?]) => {
        #[tokio::test(flavor = "multi_thread")]
        async fn $on_sqlite() {
            support::check(Pair::Sqlite, vec![$(support::fact!($fact)),+]).await;
        }
    };
    ($on_postgres_and_s3:ident, $on_sqlite:ident, [$($fact:path),+ $(,)?]) => {
        #[tokio::test(flavor = "multi_thread")]
        async fn $on_postgres_and_s3() {
            support::check(Pair::PostgresS3, vec![$(support::fact!($fact)),+]).await;
        }

        #[tokio::test(flavor = "multi_thread")]
        async fn $on_sqlite() {
            support::check(Pair::Sqlite, vec![$(support::fact!($fact)),+]).await;
        }
    };
}

area!(
    conventions_hold_on_sqlite,
    [
        conventions::every_answer_names_its_request_and_its_tenant,
        conventions::unknown_routes_and_methods_get_an_error_envelope,
        conventions::headers_of_the_sdk_are_accepted,
        conventions::ids_sort_by_creation_time,
        conventions::null_equals_an_omitted_field,
        bodies::unknown_fields_are_refused_by_name,
        bodies::wrong_values_are_refused_by_the_field_name,
        bodies::erasures_that_select_too_little_or_too_much_are_refused,
        bodies::bodies_other_than_objects_are_refused,
        bodies::other_than_json_is_415,
        bodies::bodies_of_archive_redact_and_restore_may_be_left_out,
        bodies::body_over_the_limit_is_413,
        bodies::invalid_tool_call_is_400_and_a_bad_input_is_a_tool_error,
        queries::unknown_parameters_are_ignored_except_on_delete,
        queries::parameter_given_twice_is_400,
        queries::bad_parameters_are_refused_by_name,
        queries::limit_is_1_to_100,
        queries::view_shows_content_or_not,
    ]
);

area!(
    access_is_kept_on_sqlite,
    [
        access::malformed_ids_of_stores_answer_like_ids_that_never_existed,
        access::each_route_asks_for_its_scope,
        access::each_tool_asks_for_its_scope,
        access::write_only_key_sees_nothing_of_existing_memories,
        access::tool_results_hide_existing_content_from_a_write_only_key,
        access::findings_of_a_write_only_key_have_line_numbers_of_the_request,
        access::metadata_expiry_and_policy_need_the_scope_of_stores,
        access::bound_key_sees_no_other_store,
    ]
);

area!(
    audit_tells_who_did_what_on_postgres_and_s3,
    audit_tells_who_did_what_on_sqlite,
    [
        audit::deletion_of_a_store_is_in_the_audit,
        audit::every_change_of_a_session_is_in_the_audit,
        audit::keys_redactions_and_erasures_are_in_the_audit,
        audit::audit_is_filtered_and_paged,
        audit::audit_needs_an_unbound_administrator,
        audit::audit_holds_no_names_and_no_content,
    ]
);

area!(
    sessions_behave_on_postgres_and_s3,
    sessions_behave_on_sqlite,
    [
        prompts::text_for_models_has_its_options_everywhere,
        prompts::options_of_the_text_are_checked,
        prompts::session_is_told_of_each_store_with_its_access_and_instructions,
        prompts::text_of_users_stays_on_its_line,
        prompts::file_index_shows_the_first_line_of_what_a_file_holds,
        sessions::session_has_the_fields_that_clients_know,
        sessions::fields_unrelated_to_memory_are_refused_by_name,
        sessions::sessions_are_listed_with_every_filter,
        sessions::sessions_with_large_agents_are_listed_once,
        sessions::agents_calls_are_attributed_to_their_session,
        sessions::events_record_each_call_without_content,
        sessions::each_route_of_sessions_asks_for_its_scope,
        sessions::bodies_of_archive_and_token_may_be_left_out,
        sessions::repeated_creation_with_a_key_makes_one_session,
        sessions::stores_are_attached_and_detached_in_a_live_session,
        sessions::update_of_a_session_merges_its_metadata,
        sessions::deleted_store_is_no_longer_attached,
        sessions::root_shows_the_stores_and_their_entries_in_byte_order,
        sessions::same_block_in_another_session_is_another_call,
        sessions::events_hold_sizes_of_what_may_be_content,
        session_rights::session_has_no_more_rights_than_its_maker,
        session_rights::token_reaches_no_store_that_its_key_may_not_see,
        session_rights::token_of_a_reading_key_never_writes,
        session_rights::bound_key_sees_only_sessions_of_its_stores,
        session_rights::session_is_shown_only_with_the_scope_to_read,
    ]
);

area!(
    stores_behave_on_postgres_and_s3,
    stores_behave_on_sqlite,
    [
        stores::created_store_has_the_given_fields,
        stores::name_and_description_are_bounded_in_characters,
        stores::metadata_is_bounded,
        stores::metadata_is_bounded_after_the_merge,
        stores::update_changes_what_it_names_by_post_and_by_patch,
        stores::updated_at_moves_only_with_the_store,
        stores::stores_are_listed_newest_first_with_filters,
        stores::archive_is_one_way_and_idempotent,
        stores::archived_store_can_be_read_deleted_and_redacted_only,
        access::deleted_store_answers_like_one_that_never_existed,
        settings::expiry_and_policy_are_set_and_cleared,
        settings::expiry_time_of_a_memory_is_set_and_removed,
        settings::memories_show_their_expiry_time,
        settings::reading_content_is_access_and_listing_is_not,
        usage::usage_lists_next_expiries_and_unread_memories,
        usage::usage_without_a_period_and_its_bounds,
    ]
);

area!(
    memories_behave_on_postgres_and_s3,
    memories_behave_on_sqlite,
    [
        creation::created_memory_has_the_given_fields,
        creation::beta_header_decides_between_create_and_upsert,
        creation::sdk_of_the_preview_never_overwrites,
        creation::upsert_keeps_the_id_and_writes_a_version,
        creation::not_exists_makes_every_creation_create_only,
        creation::conflicting_path_is_named,
        changes::content_path_and_both_change_in_one_version,
        changes::update_that_changes_nothing_writes_no_version,
        changes::content_precondition_is_checked_against_the_stored_content,
        changes::malformed_preconditions_are_400,
        changes::rename_to_a_conflicting_path_is_409,
        changes::rename_if_not_exists_is_all_or_nothing,
        changes::delete_expects_the_hash_it_names,
        changes::deleted_memory_is_gone_and_its_path_free,
        changes::pin_writes_no_version,
        access::objects_of_another_store_answer_like_ids_that_never_existed,
        paths::good_paths_are_kept_as_they_are,
        paths::bad_paths_are_refused_everywhere,
        paths::paths_are_case_sensitive,
        contents::content_is_kept_byte_for_byte,
        contents::content_is_bounded_in_bytes,
        contents::content_refused_changes_nothing,
    ]
);

area!(
    batches_behave_on_postgres_and_s3,
    batches_behave_on_sqlite,
    [
        batches::results_come_in_the_order_sent,
        batches::each_kind_of_operation_is_made_in_one_batch,
        batches::path_freed_by_a_batch_is_still_taken_within_it,
        batches::five_hundred_operations_are_one_commit,
        batches::atomic_batch_fails_with_its_first_refused_operation,
        batches::body_of_a_batch_may_have_eight_mebibytes,
        batches::batch_with_a_key_is_made_once,
    ]
);

area!(
    races_have_one_winner_on_postgres_and_s3,
    races_have_one_winner_on_sqlite,
    [
        races::one_creation_gets_the_path,
        races::file_and_directory_of_one_name_are_not_both_created,
        races::racing_upserts_are_one_memory,
        races::one_update_meets_its_precondition,
        races::deletion_and_update_leave_one_history,
        races::no_merge_of_metadata_is_lost,
        races::content_is_either_redacted_or_restored,
        races::pin_and_edit_are_both_made,
        races::session_gets_no_more_stores_than_it_may_have,
        races::nothing_is_written_after_the_archiving,
        races::directory_is_deleted_as_a_whole_while_files_are_created_in_it,
        races::answered_edits_are_seen,
        races::racing_changes_keep_every_count,
    ]
);

area!(
    lists_behave_on_postgres_and_s3,
    lists_behave_on_sqlite,
    [
        listing::memories_are_listed_in_byte_order_of_their_paths,
        listing::prefix_matches_whole_segments,
        listing::prefix_is_not_a_pattern,
        listing::bad_prefixes_are_refused,
        listing::listing_of_a_path_has_the_memory_there_or_nothing,
        listing::depth_one_rolls_up_what_is_deeper,
        listing::page_with_content_has_at_most_20,
        queries::times_are_accepted_in_every_form,
        queries::every_store_that_the_credential_may_read_is_searched,
        listing::first_page_shows_every_change,
        cursors::page_before_another_one_is_never_empty,
        cursors::cursor_is_valid_with_another_limit,
        cursors::cursor_is_valid_only_for_its_query,
        cursors::unchanged_memories_are_listed_once_while_others_change,
        cursors::unchanged_prefixes_are_listed_once_while_others_change,
        cursors::unchanged_stores_are_listed_once_while_others_change,
        cursors::erasures_are_listed_once_newest_first,
        cursors::versions_are_listed_once_while_new_ones_are_added,
    ]
);

area!(
    history_behaves_on_postgres_and_s3,
    history_behaves_on_sqlite,
    [
        versions::versions_show_what_was_done,
        versions::filters_work_alone_and_combined,
        versions::list_is_in_the_order_of_commits,
        versions::times_are_found_in_a_history_with_gaps,
        versions::tool_and_api_write_one_history_with_its_actors,
        versions::restored_version_is_a_new_one,
        versions::restored_memory_keeps_its_id,
        versions::restore_of_a_version_without_content_is_refused,
        versions::restore_needs_its_precondition_and_a_free_path,
        redaction::redaction_removes_content_and_keeps_who_did_what,
        redaction::live_content_is_not_redacted,
        redaction::shared_blob_is_removed_with_its_last_version,
        redaction::redaction_lists_versions_with_the_same_content,
        redaction::path_of_a_deleted_memory_is_redacted_too,
        redaction::repeated_edit_shows_nothing_of_a_redacted_version,
    ]
);

area!(
    calls_sent_again_are_made_once_on_postgres_and_s3,
    calls_sent_again_are_made_once_on_sqlite,
    [
        idempotency::store_is_made_once,
        idempotency::memory_is_made_once,
        idempotency::every_post_answers_the_same_object_again,
        idempotency::concurrent_duplicates_are_made_once,
        idempotency::key_with_another_body_is_400,
        idempotency::key_is_scoped_to_one_credential_and_path,
        idempotency::refusal_is_not_recorded,
        idempotency::bad_keys_are_400,
        idempotency::repeated_call_is_answered_even_if_it_is_now_forbidden,
        idempotency::patch_and_delete_take_no_key,
    ]
);
