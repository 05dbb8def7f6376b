//! The texts of the statements of sessions.

use crate::sessions::SessionFilter;

pub(super) const SESSION: &str = "SELECT s.session_id, s.agent, s.environment_id, s.title, s.metadata, s.vault_ids, \
    s.created_at, s.updated_at, s.archived_at, s.last_used_at FROM session s \
    WHERE s.tenant_id = $1 AND s.session_id = $2 AND s.deleted_at IS NULL";

pub(super) const INSERT: &str = "INSERT INTO session (tenant_id, session_id, agent, agent_id, agent_name, \
    agent_version, environment_id, title, metadata, vault_ids, created_at, updated_at, description_bytes) \
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $11, $12)";

pub(super) const UPDATE: &str = "UPDATE session SET title = $3, metadata = $4, updated_at = $5, \
    archived_at = $6, description_bytes = $7 WHERE tenant_id = $1 AND session_id = $2";

/// As the session was counted: also with attachments of stores that were deleted since.
pub(super) const COUNTED_BYTES: &str =
    "SELECT description_bytes FROM session WHERE tenant_id = $1 AND session_id = $2";

/// Adds to the number of sessions that are not deleted, and to the bytes of their descriptions.
pub(super) const COUNT: &str = "INSERT INTO tenant_counter AS c (tenant_id, sessions, session_bytes, audit_day, audit_entries) \
    VALUES ($1, $2, $3, 0, 0) ON CONFLICT (tenant_id) DO UPDATE \
    SET sessions = c.sessions + excluded.sessions, session_bytes = c.session_bytes + excluded.session_bytes \
    RETURNING sessions, session_bytes";

pub(super) const DELETE: &str = "UPDATE session SET deleted_at = $3 \
    WHERE tenant_id = $1 AND session_id = $2 AND deleted_at IS NULL RETURNING description_bytes";

pub(super) const STORE_TO_ATTACH: &str = "SELECT name, description, archived_at IS NOT NULL AS is_archived FROM store \
    WHERE tenant_id = $1 AND store_id = $2 AND deleted_at IS NULL";

/// Inserts an attachment, or changes it.
pub(super) const PUT_ATTACHMENT: &str = "INSERT INTO session_resource (tenant_id, session_id, resource_id, position, \
    store_id, session_created_at, slug, access, instructions, name, description, created_at, updated_at) \
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13) \
    ON CONFLICT (tenant_id, session_id, resource_id) DO UPDATE \
    SET access = excluded.access, instructions = excluded.instructions, updated_at = excluded.updated_at";

pub(super) const DROP_ATTACHMENT: &str =
    "DELETE FROM session_resource WHERE tenant_id = $1 AND session_id = $2 AND resource_id = $3";

pub(super) const SESSIONS: &str = "SELECT s.session_id, s.agent, s.environment_id, s.title, s.metadata, s.vault_ids, \
    s.created_at, s.updated_at, s.archived_at, s.last_used_at FROM_IDS($2) \
    EACH[session s: s.tenant_id = $1 AND s.session_id = ids.id AND s.deleted_at IS NULL]";

pub(super) const SUMMARIES: &str = "SELECT s.session_id, s.agent_name, s.title, s.created_at, s.archived_at, \
    s.last_used_at FROM_IDS($2) \
    EACH[session s: s.tenant_id = $1 AND s.session_id = ids.id AND s.deleted_at IS NULL]";

/// Attachments of sessions to stores that are not deleted.
pub(super) const ATTACHMENTS: &str = "SELECT r.session_id, r.resource_id, r.store_id, \
    CAST(r.position AS bigint) AS position, r.slug, r.access, r.instructions, r.name, r.description, \
    r.created_at, r.updated_at FROM_IDS($2) \
    EACH[session_resource r: r.tenant_id = $1 AND r.session_id = ids.id] \
    EACH[store t: t.tenant_id = $1 AND t.store_id = r.store_id AND t.deleted_at IS NULL]";

/// Whether a session has stores, and only stores of the list in a parameter. A credential that is
/// bound to stores sees only such sessions.
fn has_only(list: &str) -> String {
    format!(
        "{list} IS NULL OR (EXISTS (SELECT 1 FROM session_resource o JOIN store t \
            ON t.tenant_id = $1 AND t.store_id = o.store_id AND t.deleted_at IS NULL \
            WHERE o.tenant_id = $1 AND o.session_id = s.session_id) \
        AND NOT EXISTS (SELECT 1 FROM session_resource o JOIN store t \
            ON t.tenant_id = $1 AND t.store_id = o.store_id AND t.deleted_at IS NULL \
            WHERE o.tenant_id = $1 AND o.session_id = s.session_id AND NOT (o.store_id IN_IDS({list}))))"
    )
}

/// The names of sessions.
pub(super) fn names() -> String {
    let has_only = has_only("$3");
    format!(
        "SELECT s.session_id, s.agent_name, s.title FROM_IDS($2) \
         EACH[session s: s.tenant_id = $1 AND s.session_id = ids.id AND s.deleted_at IS NULL] WHERE {has_only}"
    )
}

/// The rows of the JSON parameter of [`flush_events`].
pub(super) const EVENTS: [&str; 2] = [
    "jsonb_to_recordset($1::jsonb) AS e(tenant_id uuid, session_id uuid, at bigint, event_id uuid, store_id uuid, \
        path text, new_path text, name text, input text, is_error boolean)",
    "(SELECT unhex(r.value ->> 'tenant_id') AS tenant_id, unhex(r.value ->> 'session_id') AS session_id, \
        r.value ->> 'at' AS at, unhex(r.value ->> 'event_id') AS event_id, unhex(r.value ->> 'store_id') AS store_id, \
        r.value ->> 'path' AS path, r.value ->> 'new_path' AS new_path, r.value ->> 'name' AS name, \
        r.value ->> 'input' AS input, r.value ->> 'is_error' AS is_error FROM json_each($1) r) e",
];

/// Inserts each event once. Leaves out events of sessions and stores that were deleted,
/// and events from before an erasure.
pub(super) fn flush_events(events: &str) -> String {
    format!(
        "INSERT INTO session_event (tenant_id, session_id, at, event_id, store_id, path, new_path, name, input, is_error) \
        SELECT e.tenant_id, e.session_id, e.at, e.event_id, e.store_id, e.path, e.new_path, e.name, e.input, e.is_error \
        FROM {events} \
        WHERE EXISTS (SELECT 1 FROM session s WHERE s.tenant_id = e.tenant_id AND s.session_id = e.session_id \
                AND s.deleted_at IS NULL) \
            AND (e.store_id IS NULL OR EXISTS (SELECT 1 FROM store t WHERE t.tenant_id = e.tenant_id \
                AND t.store_id = e.store_id AND t.deleted_at IS NULL)) \
            AND NOT EXISTS (SELECT 1 FROM erasure x WHERE x.tenant_id = e.tenant_id AND x.store_id = e.store_id \
                AND x.created_at >= e.at) \
        ON CONFLICT (tenant_id, session_id, at, event_id) DO NOTHING"
    )
}

/// Sessions by their time of creation, from the index that the filter needs: that of
/// a store, of an agent, or of all sessions.
///
/// Agents may be large: the query counts their bytes and does not read them.
pub(super) fn find_sessions(filter: &SessionFilter) -> String {
    let (from, time, id) = if filter.store_id.is_some() {
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
    // One text for both cases could not use the index of agents.
    let of_agent = if filter.agent_id.is_some() { "s.agent_id = $9" } else { "$9 IS NULL" };
    let (order, is_after) = if filter.oldest_first { ("ASC", ">") } else { ("DESC", "<") };
    let has_only = has_only("$10");
    format!(
        "SELECT s.session_id, s.created_at, CAST(octet_length(s.agent) AS bigint) AS agent_bytes FROM {from} \
         AND {time} >= $2 AND {time} <= $3 AND ({time}, {id}) {is_after} ($4, $5) AND s.deleted_at IS NULL \
         AND (($6 AND s.archived_at IS NULL) OR ($7 AND s.archived_at IS NOT NULL)) \
         AND ($8 IS NULL OR s.agent_version = $8) AND {of_agent} AND ({has_only}) \
         ORDER BY {time} {order}, {id} {order} LIMIT $11 + 0"
    )
}

/// Events of a session by their times. A credential that is bound to stores sees only
/// events of these stores, and events of no store.
pub(super) fn list_events(newest_first: bool) -> String {
    let (order, is_after) = if newest_first { ("DESC", "<") } else { ("ASC", ">") };
    format!(
        "SELECT tenant_id, session_id, event_id, at, store_id, path, new_path, name, input, is_error FROM session_event \
         WHERE tenant_id = $1 AND session_id = $2 AND at >= $3 AND at <= $4 AND (at, event_id) {is_after} ($5, $6) \
         AND (store_id IS NULL OR $8 IS NULL OR store_id IN_IDS($8)) \
         ORDER BY at {order}, event_id {order} LIMIT $7 + 0"
    )
}

#[cfg(test)]
mod tests {
    use super::{SUMMARIES, names};
    use crate::sqlite::plans::assert_steps;

    #[tokio::test]
    async fn names_of_sessions_are_found_by_their_whole_keys() {
        let key = "(tenant_id=? AND session_id=?)";
        assert_steps(&names(), &[key, "store_id=?)"]).await;
        assert_steps(SUMMARIES, &[key]).await;
    }
}
