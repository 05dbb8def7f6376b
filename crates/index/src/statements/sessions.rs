//! Statements of sessions that both databases share.

use crate::sessions::SessionListing;

/// Selects a session. All readers of session rows use this order of columns.
pub(crate) const SESSION: &str = "SELECT s.session_id, s.agent, s.environment_id, s.title, s.metadata, s.vault_ids, \
    s.created_at, s.updated_at, s.archived_at, s.last_used_at FROM session s \
    WHERE s.tenant_id = $1 AND s.session_id = $2 AND s.deleted_at IS NULL";

/// Inserts a session.
pub(crate) const INSERT_SESSION: &str = "INSERT INTO session (tenant_id, session_id, agent, agent_id, agent_version, \
    environment_id, title, metadata, vault_ids, created_at, updated_at, description_bytes) \
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $10, $11)";

/// Updates every mutable field of a session.
pub(crate) const UPDATE_SESSION: &str = "UPDATE session SET title = $3, metadata = $4, updated_at = $5, \
    archived_at = $6, description_bytes = $7 WHERE tenant_id = $1 AND session_id = $2";

/// A tenant's session counters, which triggers maintain.
pub(crate) const SESSION_COUNTERS: &str =
    "SELECT sessions, session_bytes FROM tenant_counter WHERE tenant_id = $1";

/// Marks a session as deleted, which hides it from every reader.
pub(crate) const DELETE_SESSION: &str =
    "UPDATE session SET deleted_at = $3 WHERE tenant_id = $1 AND session_id = $2 AND deleted_at IS NULL";

/// The fields of a store that its attachment copies or checks.
pub(crate) const STORE_TO_ATTACH: &str = "SELECT name, description, archived_at IS NOT NULL FROM store \
    WHERE tenant_id = $1 AND store_id = $2 AND deleted_at IS NULL";

/// Inserts or updates an attachment.
pub(crate) const PUT_ATTACHMENT: &str = "INSERT INTO session_resource (tenant_id, session_id, resource_id, position, \
    store_id, session_created_at, slug, access, instructions, name, description, created_at, updated_at) \
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13) \
    ON CONFLICT (tenant_id, session_id, resource_id) DO UPDATE \
    SET access = excluded.access, instructions = excluded.instructions, updated_at = excluded.updated_at";

/// Deletes an attachment.
pub(crate) const DROP_ATTACHMENT: &str =
    "DELETE FROM session_resource WHERE tenant_id = $1 AND session_id = $2 AND resource_id = $3";

/// Selects sessions by creation time, from the index for the listing's filter: by
/// store, by agent, or of all sessions.
///
/// `only` is the condition on sessions for a credential that is restricted to
/// stores. Agents may be large, so the statement reads only their length.
pub(crate) fn find_sessions(listing: &SessionListing, only: &str) -> String {
    let (from, time, id) = if listing.store_id.is_some() {
        (
            "session_resource r CROSS JOIN session s WHERE r.tenant_id = $1 AND r.store_id = $12 \
             AND s.tenant_id = $1 AND s.session_id = r.session_id AND EXISTS (SELECT 1 FROM store t \
             WHERE t.tenant_id = $1 AND t.store_id = $12 AND t.deleted_at IS NULL)",
            "r.session_created_at",
            "r.session_id",
        )
    } else {
        ("session s WHERE s.tenant_id = $1", "s.created_at", "s.session_id")
    };
    // An optional parameter in one condition would prevent the use of the index of
    // agents.
    let of_agent = if listing.agent_id.is_some() {
        "s.agent_id = $9"
    } else {
        "$9 IS NULL"
    };
    let (order, is_after) = if listing.oldest_first {
        ("ASC", ">")
    } else {
        ("DESC", "<")
    };
    format!(
        "SELECT s.session_id, s.created_at, octet_length(s.agent) FROM {from} \
         AND {time} >= $2 AND {time} <= $3 AND ({time}, {id}) {is_after} ($4, $5) AND s.deleted_at IS NULL \
         AND (($6 AND s.archived_at IS NULL) OR ($7 AND s.archived_at IS NOT NULL)) \
         AND ($8 IS NULL OR s.agent_version = $8) AND {of_agent} AND ({only}) \
         ORDER BY {time} {order}, {id} {order} LIMIT $11"
    )
}

/// Deletes events that contain a directory of a store, or a path below it.
pub(crate) const TAKE_EVENTS_BELOW: &str = "DELETE FROM session_event WHERE tenant_id = $1 \
    AND (session_id, at, event_id) IN (SELECT e.session_id, e.at, e.event_id FROM session_event e \
        WHERE e.tenant_id = $1 AND e.store_id = $2 AND (e.path = $3 OR (e.path >= $4 AND e.path < $5) \
            OR e.new_path = $3 OR (e.new_path >= $4 AND e.new_path < $5)) LIMIT $6)";

/// Counts sessions that ended long ago, including deleted ones.
pub(crate) const COUNT_ENDED_SESSIONS: &str =
    "SELECT count(*) FROM session WHERE archived_at < $1 OR deleted_at IS NOT NULL";

/// Deletes a batch of these sessions that have no events or attachments left.
pub(crate) const PRUNE_SESSIONS: &str = "DELETE FROM session WHERE (tenant_id, session_id) IN ( \
    SELECT s.tenant_id, s.session_id FROM session s WHERE (s.archived_at < $1 OR s.deleted_at IS NOT NULL) \
        AND NOT EXISTS (SELECT 1 FROM session_event e WHERE e.tenant_id = s.tenant_id AND e.session_id = s.session_id) \
        AND NOT EXISTS (SELECT 1 FROM session_resource r WHERE r.tenant_id = s.tenant_id AND r.session_id = s.session_id) \
    LIMIT $2)";

/// Counts the events of these sessions.
pub(crate) const COUNT_EVENTS_OF_SESSIONS: &str = "SELECT count(*) FROM session s JOIN session_event e \
    ON e.tenant_id = s.tenant_id AND e.session_id = s.session_id WHERE s.archived_at < $1 OR s.deleted_at IS NOT NULL";

/// Deletes a batch of these events.
pub(crate) const PRUNE_EVENTS_OF_SESSIONS: &str = "DELETE FROM session_event WHERE (tenant_id, session_id, at, event_id) IN ( \
    SELECT e.tenant_id, e.session_id, e.at, e.event_id FROM session s JOIN session_event e \
        ON e.tenant_id = s.tenant_id AND e.session_id = s.session_id \
    WHERE s.archived_at < $1 OR s.deleted_at IS NOT NULL LIMIT $2)";

/// Counts the attachments of these sessions.
pub(crate) const COUNT_RESOURCES_OF_SESSIONS: &str = "SELECT count(*) FROM session s JOIN session_resource r \
    ON r.tenant_id = s.tenant_id AND r.session_id = s.session_id WHERE s.archived_at < $1 OR s.deleted_at IS NOT NULL";

/// Deletes a batch of these attachments.
pub(crate) const PRUNE_RESOURCES_OF_SESSIONS: &str = "DELETE FROM session_resource WHERE (tenant_id, session_id, resource_id) IN ( \
    SELECT r.tenant_id, r.session_id, r.resource_id FROM session s JOIN session_resource r \
        ON r.tenant_id = s.tenant_id AND r.session_id = s.session_id \
    WHERE s.archived_at < $1 OR s.deleted_at IS NOT NULL LIMIT $2)";

/// Counts old events.
pub(crate) const COUNT_EVENTS: &str = "SELECT count(*) FROM session_event WHERE at < $1";

/// Deletes a batch of these events.
pub(crate) const PRUNE_EVENTS: &str = "DELETE FROM session_event WHERE (tenant_id, session_id, at, event_id) IN ( \
    SELECT tenant_id, session_id, at, event_id FROM session_event WHERE at < $1 ORDER BY at LIMIT $2)";

/// Selects events of a session in ascending or descending order of time.
///
/// `only` is the condition on events for a credential that is restricted to stores.
pub(crate) fn list_events(newest_first: bool, only: &str) -> String {
    let (order, is_after) = if newest_first { ("DESC", "<") } else { ("ASC", ">") };
    format!(
        "SELECT event_id, at, name, input FROM session_event WHERE tenant_id = $1 AND session_id = $2 \
         AND at >= $3 AND at <= $4 AND (at, event_id) {is_after} ($5, $6) \
         AND (store_id IS NULL OR {only}) \
         ORDER BY at {order}, event_id {order} LIMIT $7"
    )
}
