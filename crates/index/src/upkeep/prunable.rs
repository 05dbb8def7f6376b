//! The rows that upkeep removes after some time.

/// Moves the time from which the audit is complete.
pub(super) const MOVE_AUDIT_HORIZON: &str = "INSERT INTO audit_horizon AS h (id, kept_from) VALUES (1, $1) \
    ON CONFLICT (id) DO UPDATE SET kept_from = excluded.kept_from WHERE excluded.kept_from > h.kept_from";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Prunable {
    /// Job runs, by start time.
    JobRuns,
    /// Replicas, by last heartbeat, except the last one that showed content: its reads may be
    /// missing.
    Replicas,
    /// Batches of counts that replicas wrote, by time.
    FlushedBatches,
    /// Codes of issuers with which people signed in, by time.
    RedeemedCodes,
    /// Session events, by time.
    SessionEvents,
    /// Events of ended sessions, which were archived before the time or deleted.
    EventsOfEndedSessions,
    /// Entries of the tenants' audit logs, by time; the operator's audit log is kept
    /// forever.
    Audit,
    ResourcesOfEndedSessions,
    /// Ended sessions without remaining events or attachments.
    EndedSessions,
    /// Parts of undos that ended before the time.
    PartsOfEndedUndos,
    /// Undos that ended before the time, without remaining parts.
    EndedUndos,
    /// Counts of the use on days that ended before the time.
    DailyUse,
}

impl Prunable {
    /// The statement that counts all such rows from before `$1`, and the statement that
    /// removes at most `$2` of them.
    pub(super) const fn texts(self) -> [&'static str; 2] {
        match self {
            Self::JobRuns => [
                "SELECT count(*) FROM job_run WHERE started_at < $1",
                "DELETE FROM job_run WHERE (name, slot) IN ( \
                    SELECT name, slot FROM job_run WHERE started_at < $1 LIMIT $2 + 0)",
            ],
            Self::Replicas => [
                "SELECT count(*) FROM replica WHERE heartbeat_at < $1 AND id NOT IN ( \
                    SELECT id FROM replica WHERE heartbeat_at < $1 AND role IN ('all', 'gateway') \
                    ORDER BY heartbeat_at DESC, id LIMIT 1)",
                "DELETE FROM replica WHERE id IN ( \
                    SELECT id FROM replica WHERE heartbeat_at < $1 AND id NOT IN ( \
                        SELECT id FROM replica WHERE heartbeat_at < $1 AND role IN ('all', 'gateway') \
                        ORDER BY heartbeat_at DESC, id LIMIT 1) \
                    LIMIT $2 + 0)",
            ],
            Self::FlushedBatches => [
                "SELECT count(*) FROM flushed_batch WHERE flushed_at < $1",
                "DELETE FROM flushed_batch WHERE (replica, log) IN ( \
                    SELECT replica, log FROM flushed_batch WHERE flushed_at < $1 LIMIT $2 + 0)",
            ],
            Self::RedeemedCodes => [
                "SELECT count(*) FROM redeemed_code WHERE redeemed_at < $1",
                "DELETE FROM redeemed_code WHERE code_sha256 IN ( \
                    SELECT code_sha256 FROM redeemed_code WHERE redeemed_at < $1 LIMIT $2 + 0)",
            ],
            Self::SessionEvents => [
                "SELECT count(*) FROM session_event WHERE at < $1",
                "DELETE FROM session_event WHERE (tenant_id, session_id, at, event_id) IN ( \
                    SELECT tenant_id, session_id, at, event_id FROM session_event \
                    WHERE at < $1 ORDER BY at LIMIT $2 + 0)",
            ],
            Self::EventsOfEndedSessions => [
                "SELECT count(*) FROM session s JOIN session_event e \
                    ON e.tenant_id = s.tenant_id AND e.session_id = s.session_id \
                    WHERE s.archived_at < $1 OR s.deleted_at IS NOT NULL",
                "DELETE FROM session_event WHERE (tenant_id, session_id, at, event_id) IN ( \
                    SELECT e.tenant_id, e.session_id, e.at, e.event_id FROM session s JOIN session_event e \
                    ON e.tenant_id = s.tenant_id AND e.session_id = s.session_id \
                    WHERE s.archived_at < $1 OR s.deleted_at IS NOT NULL LIMIT $2 + 0)",
            ],
            Self::Audit => [
                "SELECT count(*) FROM audit WHERE at < $1",
                "DELETE FROM audit WHERE (tenant_id, id) IN ( \
                    SELECT tenant_id, id FROM audit WHERE at < $1 ORDER BY at LIMIT $2 + 0)",
            ],
            Self::ResourcesOfEndedSessions => [
                "SELECT count(*) FROM session s JOIN session_resource r \
                    ON r.tenant_id = s.tenant_id AND r.session_id = s.session_id \
                    WHERE s.archived_at < $1 OR s.deleted_at IS NOT NULL",
                "DELETE FROM session_resource WHERE (tenant_id, session_id, resource_id) IN ( \
                    SELECT r.tenant_id, r.session_id, r.resource_id FROM session s JOIN session_resource r \
                    ON r.tenant_id = s.tenant_id AND r.session_id = s.session_id \
                    WHERE s.archived_at < $1 OR s.deleted_at IS NOT NULL LIMIT $2 + 0)",
            ],
            Self::EndedSessions => [
                "SELECT count(*) FROM session WHERE archived_at < $1 OR deleted_at IS NOT NULL",
                "DELETE FROM session WHERE (tenant_id, session_id) IN ( \
                    SELECT s.tenant_id, s.session_id FROM session s \
                    WHERE (s.archived_at < $1 OR s.deleted_at IS NOT NULL) \
                    AND NOT EXISTS (SELECT 1 FROM session_event e \
                        WHERE e.tenant_id = s.tenant_id AND e.session_id = s.session_id) \
                    AND NOT EXISTS (SELECT 1 FROM session_resource r \
                        WHERE r.tenant_id = s.tenant_id AND r.session_id = s.session_id) \
                    LIMIT $2 + 0) \
                RETURNING tenant_id, CAST(CASE WHEN deleted_at IS NULL THEN 1 ELSE 0 END AS bigint) AS counted, description_bytes",
            ],
            Self::PartsOfEndedUndos => [
                "SELECT count(*) FROM memory_undo u JOIN memory_undo_part p \
                    ON p.tenant_id = u.tenant_id AND p.store_id = u.store_id AND p.undo_id = u.undo_id \
                    WHERE u.ended_at < $1",
                "DELETE FROM memory_undo_part WHERE (tenant_id, store_id, undo_id, part) IN ( \
                    SELECT p.tenant_id, p.store_id, p.undo_id, p.part FROM memory_undo u JOIN memory_undo_part p \
                    ON p.tenant_id = u.tenant_id AND p.store_id = u.store_id AND p.undo_id = u.undo_id \
                    WHERE u.ended_at < $1 LIMIT $2 + 0)",
            ],
            Self::EndedUndos => [
                "SELECT count(*) FROM memory_undo WHERE ended_at < $1",
                "DELETE FROM memory_undo WHERE (tenant_id, store_id, undo_id) IN ( \
                    SELECT u.tenant_id, u.store_id, u.undo_id FROM memory_undo u WHERE u.ended_at < $1 \
                    AND NOT EXISTS (SELECT 1 FROM memory_undo_part p WHERE p.tenant_id = u.tenant_id \
                        AND p.store_id = u.store_id AND p.undo_id = u.undo_id) LIMIT $2 + 0)",
            ],
            Self::DailyUse => [
                "SELECT count(*) FROM daily_use WHERE day < $1 / 86400000000",
                "DELETE FROM daily_use WHERE (tenant_id, store_id, day, surface) IN ( \
                    SELECT tenant_id, store_id, day, surface FROM daily_use \
                    WHERE day < $1 / 86400000000 ORDER BY day LIMIT $2 + 0)",
            ],
        }
    }
}
