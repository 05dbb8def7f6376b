//! Statements of sessions that both databases share.

/// Events that name a directory of a store, or what is below it.
pub(crate) const TAKE_EVENTS_BELOW: &str = "DELETE FROM session_event WHERE tenant_id = $1 \
    AND (session_id, at, event_id) IN (SELECT e.session_id, e.at, e.event_id FROM session_event e \
        WHERE e.tenant_id = $1 AND e.store_id = $2 AND (e.path = $3 OR (e.path >= $4 AND e.path < $5) \
            OR e.new_path = $3 OR (e.new_path >= $4 AND e.new_path < $5)) LIMIT $6)";
