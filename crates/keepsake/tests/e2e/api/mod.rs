//! The rules of the memory stores API: those that a database could break on both main
//! pairs, others on SQLite. The facts of an area share one server; each has a separate tenant.

mod access;
mod audit;
mod backend_faults;
mod batches;
mod bodies;
mod conventions;
mod cursors;
mod idempotency;
mod imports;
mod listing;
mod prompts;
mod queries;
pub(crate) mod quotas;
mod races;
mod readers;
mod replicas;
mod session_rights;
pub(crate) mod sessions;
mod store_tests;
pub(crate) mod support;
pub(crate) mod undo;
mod usage;
mod versions;

use crate::prelude::*;

/// Makes a test of an area on each pair.
macro_rules! area {
    ($area:ident: $facts:tt) => {
        area! { $area on PostgresS3, Sqlite: $facts }
    };
    ($area:ident on $($pair:ident),+: [$($fact:path),+ $(,)?]) => {
        async fn $area(pair: Pair) {
            support::check(pair, vec![$(support::fact!($fact)),+]).await;
        }
        on_pairs! { $area: $($pair),+ }
    };
}

area! {
    requests_are_checked on Sqlite: [
        conventions::every_answer_names_its_request_and_tenant_and_stays_out_of_caches,
        conventions::unknown_routes_and_methods_get_an_error_envelope,
        bodies::unknown_fields_and_wrong_values_are_refused_by_name,
        bodies::bodies_other_than_objects_are_refused,
        bodies::other_than_json_is_415_and_over_the_limit_413,
        bodies::invalid_tool_call_is_400_and_a_bad_input_is_a_tool_error,
        queries::unknown_parameters_are_ignored_except_on_delete_and_bad_ones_refused,
        access::each_route_asks_for_its_scope,
        access::write_only_key_sees_nothing_of_existing_memories,
        access::tool_results_hide_existing_content_from_a_write_only_key,
        access::settings_need_the_scope_of_stores_and_a_bound_key_sees_one_store,
    ]
}

area! {
    audit_tells_who_did_what: [
        audit::every_change_of_a_session_is_in_the_audit,
        audit::keys_redactions_and_erasures_are_in_the_audit,
        audit::deletion_of_a_store_is_in_the_audit_which_is_filtered_and_paged,
        audit::audit_holds_no_names_and_needs_an_unbound_administrator,
    ]
}

area! {
    sessions_behave: [
        prompts::text_for_models_has_its_options_everywhere,
        prompts::session_is_told_of_each_store_and_users_stay_on_their_line,
        prompts::file_index_shows_the_first_lines_of_200_files,
        sessions::fields_unrelated_to_memory_are_refused_by_name,
        sessions::sessions_are_listed_with_every_filter,
        sessions::sessions_with_large_agents_are_listed_once,
        sessions::agents_calls_are_attributed_to_their_session,
        sessions::events_record_each_call_without_content,
        sessions::archived_session_takes_no_change,
        sessions::stores_are_attached_and_detached_in_a_live_session,
        sessions::root_shows_the_stores_and_their_entries_in_byte_order,
        sessions::repeated_calls_are_made_once_in_each_session,
        session_rights::session_has_no_more_rights_than_its_maker,
        session_rights::token_reaches_no_store_that_its_key_may_not_see,
        session_rights::bound_key_sees_only_sessions_of_its_stores,
        session_rights::each_route_of_sessions_asks_for_its_scopes,
    ]
}

area! {
    stores_and_batches_behave: [
        access::malformed_ids_answer_like_ids_that_never_existed,
        access::archived_store_can_be_read_and_deleted_only,
        usage::expiry_time_of_a_memory_is_set_and_removed,
        usage::reading_content_is_access_and_listing_is_not,
        usage::reads_and_writes_of_each_day_are_counted_by_surface,
        usage::usage_lists_next_expiries_and_unread_memories,
        usage::usage_counts_content_that_stays_once,
        batches::results_come_in_the_order_sent,
        batches::five_hundred_operations_or_eight_mebibytes_are_one_batch,
        batches::atomic_batch_fails_with_its_first_refused_operation,
    ]
}

area! {
    store_tests_behave: [
        store_tests::tests_are_made_on_the_memories_as_they_are,
        store_tests::gate_refuses_a_change_of_many_memories_as_a_whole,
        store_tests::archive_is_tested_as_a_whole,
        store_tests::tests_are_changed_by_administrators_and_hidden_from_agents,
    ]
}

area! {
    archives_are_imported on Sqlite: [
        imports::archive_is_imported_and_a_conflict_fails_is_skipped_or_replaced,
        imports::damaged_or_large_archive_changes_nothing,
        imports::import_asks_for_both_scopes_and_a_writable_store,
    ]
}

area! {
    races_have_one_winner: [
        races::one_creation_gets_the_path,
        races::deletion_and_update_leave_one_history,
        races::no_merge_of_metadata_and_no_pin_is_lost,
        races::session_gets_no_more_stores_than_it_may_have,
        races::nothing_is_written_after_the_archiving,
        races::directory_is_deleted_as_a_whole_while_files_are_created_in_it,
        races::racing_changes_are_made_once_seen_and_counted,
    ]
}

area! {
    lists_behave: [
        listing::directories_are_listed_in_byte_order,
        listing::list_of_a_path_has_the_memory_there_or_nothing,
        queries::every_store_that_the_credential_may_read_is_searched,
        listing::first_page_shows_every_change,
        cursors::pages_of_any_size_make_one_list,
        cursors::unchanged_memories_are_listed_once_while_others_change,
        cursors::stores_and_versions_are_listed_once_while_others_change,
    ]
}

area! {
    history_behaves: [
        versions::filters_work_alone_and_combined_in_a_history_with_gaps,
        versions::list_is_in_the_order_of_commits,
        versions::deleted_memories_are_listed_until_they_are_restored_or_redacted,
        undo::undo_of_any_changes_equals_a_model,
        undo::paths_are_swapped_in_one_commit,
        undo::undo_asks_for_scopes_and_filters_and_is_made_once,
        undo::large_undo_is_made_in_parts,
        undo::fork_gets_the_memories_of_a_point,
        readers::readers_are_listed_by_version_session_and_surface,
        readers::readers_are_recorded_where_the_store_says_so_and_go_with_their_version,
        versions::content_is_redacted_when_it_is_no_longer_live,
        versions::path_of_a_deleted_memory_is_redacted_and_a_repeated_edit_shows_nothing,
    ]
}

area! {
    calls_sent_again_are_made_once: [
        idempotency::bad_key_and_key_with_another_body_are_400_and_patch_takes_none,
        idempotency::key_is_scoped_to_one_credential_and_path,
        idempotency::repeated_call_is_answered_even_if_it_is_now_forbidden,
    ]
}
