//! Statements of sessions that both databases share.

/// Events that name a directory of a store, or what is below it.
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
