//! Statements of retention for Postgres; for SQLite, the statements name the index
//! instead. Row comparisons make sure that no other index provides the order.

/// Selects stores with a history, after a given one, and each store's first
/// unprocessed deletion.
pub(crate) const HISTORIES: &str = "SELECT s.tenant_id, s.store_id, t.limits, s.retention_seq, \
    (SELECT v.created_at FROM version v WHERE v.tenant_id = s.tenant_id AND v.store_id = s.store_id \
        AND (v.op, v.seq) > ('deleted', s.retention_seq) AND v.op <= 'deleted' AND v.op <> 'modified' \
        ORDER BY v.op, v.seq LIMIT 1) \
    FROM store s JOIN tenant t ON t.tenant_id = s.tenant_id \
    WHERE s.deleted_at IS NULL AND t.status <> 'deleting' AND s.version_count > 0 \
    AND (s.tenant_id, s.store_id) > ($1, $2) ORDER BY s.tenant_id, s.store_id LIMIT $3";

/// Selects deletions of a store after a sequence number, and whether the memory is
/// still deleted by that version.
pub(crate) const DELETIONS: &str = "SELECT v.seq, v.memory_id, v.created_at, \
    coalesce((SELECT m.head_seq FROM memory m WHERE m.tenant_id = $1 AND m.store_id = $2 \
        AND m.memory_id = v.memory_id) = v.seq, FALSE) \
    FROM version v WHERE v.tenant_id = $1 AND v.store_id = $2 AND (v.op, v.seq) > ('deleted', $3) \
    AND v.op <= 'deleted' AND v.op <> 'modified' ORDER BY v.op, v.seq LIMIT $4";

/// Selects versions of a store after a sequence number, up to the first one that
/// was created too late. The page is limited before the versions are compared, so
/// that only one page of the history is read. The next version of a memory is a
/// subquery per row in the order of its index; the memory is looked up by its
/// primary key, which is not a partial index.
pub(crate) const PAST: &str = "SELECT v.seq, v.created_at, \
    (SELECT n.created_at FROM version n WHERE n.tenant_id = $1 AND n.store_id = $2 \
        AND (n.memory_id, n.seq) > (v.memory_id, v.seq) AND n.memory_id <= v.memory_id \
        ORDER BY n.memory_id, n.seq LIMIT 1), \
    coalesce((SELECT m.deleted_at IS NULL AND m.head_seq <> v.seq FROM memory m \
        WHERE m.tenant_id = $1 AND m.store_id = $2 AND m.memory_id = v.memory_id), FALSE), \
    ($5 > 0 AND EXISTS (SELECT 1 FROM version n WHERE n.tenant_id = $1 AND n.store_id = $2 \
        AND (n.memory_id, n.seq) > (v.memory_id, v.seq) AND n.memory_id <= v.memory_id \
        ORDER BY n.memory_id, n.seq LIMIT 1 OFFSET $5 - 1)) \
    FROM (SELECT seq, memory_id, created_at FROM version WHERE tenant_id = $1 AND store_id = $2 AND seq > $3 \
        ORDER BY seq LIMIT $6) v WHERE v.created_at <= $4 ORDER BY v.seq";

/// Subtracts versions and their bytes from a store's counters, and records up to
/// where deletions are processed. If a version was removed, changes the purge epoch
/// so that caches drop the store.
pub(crate) const COUNT_OUTDATED: &str = "UPDATE store SET version_count = version_count - $3, \
    version_bytes = version_bytes - $4, purge_epoch = purge_epoch + CASE WHEN $3 > 0 THEN 1 ELSE 0 END, \
    retention_seq = coalesce($5, retention_seq) WHERE tenant_id = $1 AND store_id = $2";
