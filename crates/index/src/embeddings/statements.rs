//! The SQL of embeddings.

/// Whether the store `s` of the tenant `t` is searched by meaning.
macro_rules! is_hybrid {
    () => {
        "coalesce(s.search_mode, t.search_mode, 'hybrid') = 'hybrid'"
    };
}

/// Whether the vectors of the model `o` of a store are replaced by those of `$3`: these are
/// complete, and the first work with both and the last claim of `o` were before `$4`.
/// Otherwise replicas with different models would remove each other's vectors during a rollout.
/// `$4` is an hour ago. A time later than in an hour was made by a clock that was ahead, and does
/// not count.
macro_rules! is_replaced {
    () => {
        "o.model <> $3 AND e.is_complete AND e.edit NOT BETWEEN $4 + 1 AND $4 + 7200000000 \
            AND o.edit NOT BETWEEN $4 + 1 AND $4 + 7200000000 \
            AND coalesce(o.claimed_until, 0) NOT BETWEEN $4 + 1 AND $4 + 7200000000"
    };
}

/// The stores `$2` of a tenant.
macro_rules! stores_of {
    () => {
        "SELECT s.store_id FROM store s WHERE s.tenant_id = $1 AND s.store_id IN_IDS($2)"
    };
}

/// The position of a store, and its vectors that were written since `$4`.
pub(super) const CHANGES: &str = concat!(
    "WITH place AS MATERIALIZED (SELECT ",
    is_hybrid!(),
    " AS is_hybrid, coalesce(e.edit, 0) AS edit FROM store s JOIN tenant t ON t.tenant_id = s.tenant_id \
        LEFT JOIN embedded_store e ON e.tenant_id = $1 AND e.store_id = $2 AND e.model = $3 \
        WHERE s.tenant_id = $1 AND s.store_id = $2 AND s.deleted_at IS NULL) \
    SELECT p.is_hybrid, p.edit, NULL AS memory_id, NULL AS version_id, NULL AS chunks, NULL AS vectors FROM place p \
    UNION ALL SELECT NULL, NULL, m.memory_id, m.version_id, m.chunks, m.vectors \
    FROM place p CROSS JOIN embedding m WHERE p.is_hybrid AND m.tenant_id = $1 AND m.store_id = $2 \
        AND m.model = $3 AND m.edit > CASE WHEN $4 > p.edit THEN 0 ELSE $4 END"
);

/// The same in one round trip, for callers that have vectors already. The function collects
/// its rows before it returns the first one.
pub(super) const CHANGES_ON_POSTGRES: &str =
    "SELECT is_hybrid, edit, memory_id, version_id, chunks, vectors FROM embedding_changes($1, $2, $3, $4)";

/// Whether stores are searched by meaning, the last edit of each, whether its vectors are
/// replacing those of another model, and its size.
pub(super) const STATES: [&str; 2] = [
    "SELECT store_id, is_hybrid, edit, is_replacing, memory_count, live_bytes FROM embedding_states($1, $2, $3)",
    concat!(
        "SELECT s.store_id, ",
        is_hybrid!(),
        " AS is_hybrid, coalesce(e.edit, 0) AS edit, NOT coalesce(e.is_complete, FALSE) AND EXISTS ( \
            SELECT 1 FROM embedded_store o WHERE o.tenant_id = $1 AND o.store_id = s.store_id AND o.model <> $3 \
                AND o.is_complete) AS is_replacing, s.memory_count, s.live_bytes FROM json_each($2) ids \
        CROSS JOIN store s ON s.tenant_id = $1 AND s.store_id = unhex(ids.value) AND s.deleted_at IS NULL \
        JOIN tenant t ON t.tenant_id = s.tenant_id \
        LEFT JOIN embedded_store e ON e.tenant_id = $1 AND e.store_id = s.store_id AND e.model = $3"
    ),
];

/// The next `$5` stores of all tenants that the job has not left as `$7`, with whether each has
/// pending versions and outdated vectors. They are before `$7`, or after `$8`, which is at the end
/// of `$7` or later.
pub(super) const WORK: &str = concat!(
    "SELECT p.embedded_by, p.tenant_id, p.store_id, \
        p.status = 'active' AND p.is_hybrid AND $3 IS NOT NULL AND p.seq > coalesce(e.seq, 0) AS is_pending, \
        p.status <> 'deleting' AND EXISTS (SELECT 1 FROM embedded_store o WHERE o.tenant_id = p.tenant_id AND o.store_id = p.store_id \
            AND (NOT p.is_hybrid OR (",
    is_replaced!(),
    "))) AS has_outdated \
    FROM (SELECT s.embedded_by, s.tenant_id, s.store_id, s.seq, t.status, ",
    is_hybrid!(),
    " AS is_hybrid FROM (SELECT * FROM (SELECT embedded_by, tenant_id, store_id, seq, search_mode FROM store \
                WHERE (embedded_by, tenant_id, store_id) > ($6, $1, $2) AND embedded_by < $7 AND deleted_at IS NULL \
                ORDER BY embedded_by, tenant_id, store_id LIMIT $5 + 0) lower_part \
            UNION ALL SELECT * FROM (SELECT embedded_by, tenant_id, store_id, seq, search_mode FROM store \
                WHERE (embedded_by, tenant_id, store_id) > ($8, $9, $10) AND deleted_at IS NULL \
                ORDER BY embedded_by, tenant_id, store_id LIMIT $5 + 0) upper_part \
            ORDER BY embedded_by, tenant_id, store_id LIMIT $5 + 0) s \
        JOIN tenant t ON t.tenant_id = s.tenant_id) p \
    LEFT JOIN embedded_store e ON e.tenant_id = p.tenant_id AND e.store_id = p.store_id AND e.model = $3 \
    ORDER BY p.embedded_by, p.tenant_id, p.store_id"
);

/// The same on a distributed database, where each node limits its stores after it joined them; without
/// a model, `$3` is ''.
pub(super) const WORK_OF_NODES: &str = concat!(
    "SELECT s.embedded_by, s.tenant_id, s.store_id, \
        t.status = 'active' AND ",
    is_hybrid!(),
    " AND $3 <> '' AND s.seq > coalesce(e.seq, 0) AS is_pending, \
        t.status <> 'deleting' AND EXISTS (SELECT 1 FROM embedded_store o WHERE o.tenant_id = s.tenant_id AND o.store_id = s.store_id \
            AND (NOT ",
    is_hybrid!(),
    " OR (",
    is_replaced!(),
    "))) AS has_outdated \
    FROM store s JOIN tenant t ON t.tenant_id = s.tenant_id \
    LEFT JOIN embedded_store e ON e.tenant_id = s.tenant_id AND e.store_id = s.store_id AND e.model = $3 \
    WHERE s.deleted_at IS NULL AND ((s.embedded_by, s.tenant_id, s.store_id) > ($6, $1, $2) AND s.embedded_by < $7 \
        OR (s.embedded_by, s.tenant_id, s.store_id) > ($8, $9, $10)) \
    ORDER BY s.embedded_by, s.tenant_id, s.store_id LIMIT $5 + 0"
);

/// Those of the stores `$2` of a tenant in which the job has nothing to do for the model `$3`, now
/// or later, until they change.
pub(super) const SETTLED: &str = concat!(
    stores_of!(),
    " AND s.deleted_at IS NULL \
        AND NOT EXISTS (SELECT 1 FROM tenant t WHERE t.tenant_id = $1 AND t.status = 'active' AND $3 IS NOT NULL AND ",
    is_hybrid!(),
    " AND s.seq > coalesce((SELECT e.seq FROM embedded_store e \
                WHERE e.tenant_id = $1 AND e.store_id = s.store_id AND e.model = $3), 0)) \
        AND NOT EXISTS (SELECT 1 FROM embedded_store o JOIN tenant t ON t.tenant_id = $1 \
            WHERE o.tenant_id = $1 AND o.store_id = s.store_id AND (o.model <> $3 OR NOT ",
    is_hybrid!(),
    "))"
);

/// Stores that a commit or a change locks are left to the next run, so that no deadlock is
/// possible. The lock comes before [`SETTLED`], which then sees every commit: of a row that changed while
/// a statement ran, Postgres would look again at the row, but not at its other tables.
pub(super) const LOCK_STORES: [&str; 2] =
    [concat!(stores_of!(), " FOR NO KEY UPDATE SKIP LOCKED"), stores_of!()];

pub(super) const SETTLE: &str =
    "UPDATE store SET embedded_by = $3 WHERE tenant_id = $1 AND store_id IN_IDS($2)";

/// A tenant whose mode or status changed, and the last of its stores that the job looks at since.
pub(super) const UNSETTLED_TENANT: &str = "SELECT tenant_id, unsettled_after FROM tenant WHERE unsettled_after IS NOT NULL \
    ORDER BY tenant_id LIMIT 1";

pub(super) const NEXT_STORES: &str =
    "SELECT store_id FROM store WHERE tenant_id = $1 AND store_id > $2 ORDER BY store_id LIMIT $3 + 0";

pub(super) const UNSETTLE_STORES: &str =
    "UPDATE store SET embedded_by = '' WHERE tenant_id = $1 AND store_id IN_IDS($2) AND embedded_by <> ''";

pub(super) const UNSETTLED_THROUGH: &str = "UPDATE tenant SET unsettled_after = $2 WHERE tenant_id = $1";

/// Locks a store against the removal of its rows. Commits do not wait, except for [`BEGIN`].
pub(super) const LOCK: &str = "SELECT FROM store WHERE tenant_id = $1 AND store_id = $2 FOR KEY SHARE";

/// A store whose vectors may be written.
pub(super) const HYBRID: &str = concat!(
    "SELECT s.seq, s.purge_epoch, s.memory_count, s.live_bytes FROM store s JOIN tenant t ON t.tenant_id = s.tenant_id \
    WHERE s.tenant_id = $1 AND s.store_id = $2 AND s.deleted_at IS NULL AND t.status = 'active' AND ",
    is_hybrid!()
);

/// The first claim of a model makes the job look at the store again, because nothing else does if the model
/// is rolled back and no commit follows. It waits for [`SETTLED`], and is seen by it.
pub(super) const BEGIN: &str = "UPDATE store SET embedded_by = '' WHERE tenant_id = $1 AND store_id = $2 AND NOT EXISTS ( \
        SELECT 1 FROM embedded_store e WHERE e.tenant_id = $1 AND e.store_id = $2 AND e.model = $3)";

/// Claims a store that is embedded through an earlier version than `$7`. `edit` begins with
/// the time, so that it never repeats when a store was forgotten and is embedded again. A claim that
/// ends later than twice its length from now was made by a clock that was ahead, and does not count.
pub(super) const CLAIM: &str = "INSERT INTO embedded_store AS e (tenant_id, store_id, model, seq, edit, claimed_by, claimed_until) \
    VALUES ($1, $2, $3, 0, $4, $5, $6) ON CONFLICT (tenant_id, store_id, model) \
    DO UPDATE SET claimed_by = excluded.claimed_by, claimed_until = excluded.claimed_until \
    WHERE e.seq < $7 AND (e.claimed_until IS NULL OR e.claimed_until <= $4 OR e.claimed_until > $6 + $6 - $4 \
        OR e.claimed_by = excluded.claimed_by) \
    RETURNING seq";

/// Prolongs the claim of `$4` of the page after `$5`.
pub(super) const RENEW: &str = "UPDATE embedded_store SET claimed_until = $6 \
    WHERE tenant_id = $1 AND store_id = $2 AND model = $3 AND claimed_by = $4 AND seq = $5";

/// The next `$4` versions, and their memories unless they changed again or are gone. On
/// Postgres the memories are looked up one by one, whatever the planner's statistics say.
pub(super) const PAGE: [&str; 2] = [
    "SELECT v.seq, m.memory_id, m.version_id, m.head_seq, m.path, m.blob_id, m.sha256, m.size_bytes, \
        m.claimed_by, m.claimed_until \
    FROM (SELECT seq, version_id, memory_id FROM version \
        WHERE tenant_id = $1 AND store_id = $2 AND seq > $3 ORDER BY seq LIMIT $4 + 0) v \
    LEFT JOIN LATERAL (SELECT m.memory_id, m.version_id, m.head_seq, m.path, m.blob_id, m.sha256, m.size_bytes, \
            m.claimed_by, m.claimed_until, m.deleted_at \
        FROM memory m WHERE m.tenant_id = $1 AND m.store_id = $2 AND m.memory_id = v.memory_id LIMIT 1) m \
        ON m.version_id = v.version_id AND m.deleted_at IS NULL \
    ORDER BY v.seq",
    "SELECT v.seq, m.memory_id, m.version_id, m.head_seq, m.path, m.blob_id, m.sha256, m.size_bytes, \
        m.claimed_by, m.claimed_until \
    FROM (SELECT seq, version_id, memory_id FROM version \
        WHERE tenant_id = $1 AND store_id = $2 AND seq > $3 ORDER BY seq LIMIT $4 + 0) v \
    LEFT JOIN memory m ON m.tenant_id = $1 AND m.store_id = $2 AND m.memory_id = v.memory_id \
        AND m.version_id = v.version_id AND m.deleted_at IS NULL \
    ORDER BY v.seq",
];

/// Through which version a store is embedded.
pub(super) const EMBEDDED: &str =
    "SELECT seq FROM embedded_store WHERE tenant_id = $1 AND store_id = $2 AND model = $3";

/// Writes the vectors of a version, if it is still its memory's current one. On Postgres, the
/// values are arrays of those of many versions.
pub(super) const PUT: [&str; 2] = [
    "INSERT INTO embedding (tenant_id, store_id, memory_id, model, version_id, edit, chunks, vector_bytes, vectors) \
    SELECT $1, $2, m.memory_id, e.model, m.version_id, e.edit + 1, w.chunks, length(w.vectors), w.vectors \
    FROM embedded_store e \
    CROSS JOIN unnest($4::uuid[], $5::uuid[], $6::bigint[], $7::bytea[]) AS w(memory_id, version_id, chunks, vectors) \
    CROSS JOIN LATERAL (SELECT m.memory_id, m.version_id FROM memory m \
        WHERE m.tenant_id = $1 AND m.store_id = $2 AND m.memory_id = w.memory_id \
            AND CASE WHEN m.deleted_at IS NULL THEN m.version_id END = w.version_id OFFSET 0) m \
    WHERE e.tenant_id = $1 AND e.store_id = $2 AND e.model = $3 \
    ON CONFLICT (tenant_id, store_id, memory_id, model) DO UPDATE SET version_id = excluded.version_id, \
        edit = excluded.edit, chunks = excluded.chunks, vector_bytes = excluded.vector_bytes, vectors = excluded.vectors",
    "INSERT INTO embedding (tenant_id, store_id, memory_id, model, version_id, edit, chunks, vector_bytes, vectors) \
    SELECT e.tenant_id, e.store_id, m.memory_id, e.model, m.version_id, e.edit + 1, $6, length($7), $7 \
    FROM embedded_store e JOIN memory m ON m.tenant_id = $1 AND m.store_id = $2 AND m.memory_id = $4 \
        AND CASE WHEN m.deleted_at IS NULL THEN m.version_id END = $5 \
    WHERE e.tenant_id = $1 AND e.store_id = $2 AND e.model = $3 \
    ON CONFLICT (tenant_id, store_id, memory_id, model) DO UPDATE SET version_id = excluded.version_id, \
        edit = excluded.edit, chunks = excluded.chunks, vector_bytes = excluded.vector_bytes, vectors = excluded.vectors",
];

/// The memories that changed after `$4` through `$5` and have the vectors of their current text: they were only
/// moved, and of a path, only the file's name is part of the text. The order makes Postgres take the index of
/// versions by their ids, whatever the planner's statistics say.
pub(super) const SAME_TEXT: &str = "SELECT o.memory_id FROM (SELECT memory_id FROM version \
        WHERE tenant_id = $1 AND store_id = $2 AND seq > $4 AND seq <= $5) v \
    EACH[embedding o: o.tenant_id = $1 AND o.store_id = $2 AND o.memory_id = v.memory_id AND o.model = $3] \
    EACH[memory m: m.tenant_id = $1 AND m.store_id = $2 AND m.memory_id = o.memory_id] \
    WHERE o.chunks > 0 AND m.deleted_at IS NULL AND (SELECT w.blob_id = m.blob_id \
            AND substr(w.path, length(w.path) - length(m.name)) = '/' || m.name FROM version w \
        WHERE w.tenant_id = $1 AND w.store_id = $2 AND w.version_id BETWEEN o.version_id AND o.version_id \
        ORDER BY w.version_id LIMIT 1)";

/// Makes vectors those of the current versions of their memories.
pub(super) const KEEP: &str = "UPDATE embedding SET version_id = (SELECT m.version_id FROM memory m \
        WHERE m.tenant_id = $1 AND m.store_id = $2 AND m.memory_id = embedding.memory_id), \
    edit = (SELECT e.edit + 1 FROM embedded_store e WHERE e.tenant_id = $1 AND e.store_id = $2 AND e.model = $3) \
    WHERE tenant_id = $1 AND store_id = $2 AND model = $3 AND memory_id IN_IDS($4)";

/// The memories that changed after `$4` through `$5` and have vectors of an earlier version.
pub(super) const EARLIER: &str = "SELECT o.memory_id FROM (SELECT memory_id FROM version \
        WHERE tenant_id = $1 AND store_id = $2 AND seq > $4 AND seq <= $5) v \
    EACH[embedding o: o.tenant_id = $1 AND o.store_id = $2 AND o.memory_id = v.memory_id AND o.model = $3] \
    WHERE coalesce(o.version_id <> (SELECT CASE WHEN m.deleted_at IS NULL THEN m.version_id END FROM memory m \
        WHERE m.tenant_id = $1 AND m.store_id = $2 AND m.memory_id = o.memory_id), TRUE)";

pub(super) const REMOVE_EARLIER: &str =
    "DELETE FROM embedding WHERE tenant_id = $1 AND store_id = $2 AND model = $3 AND memory_id IN_IDS($4)";

/// Records that a store is embedded through `$4`, and releases the claim of `$5` if no later
/// version is left: `$6`. It is complete if all versions of the claim are embedded: `$7`; in a busy
/// store others have come since.
pub(super) const ADVANCE: &str = "UPDATE embedded_store SET seq = $4, edit = edit + 1, is_complete = is_complete OR $7, \
    claimed_until = CASE WHEN $6 AND claimed_by = $5 THEN NULL ELSE claimed_until END \
    WHERE tenant_id = $1 AND store_id = $2 AND model = $3";

/// The models of a store whose vectors are not needed: of a lexical store all, and else all
/// but `$3` that are replaced.
pub(super) const OUTDATED: &str = concat!(
    "SELECT o.model FROM store s JOIN tenant t ON t.tenant_id = s.tenant_id \
        JOIN embedded_store o ON o.tenant_id = $1 AND o.store_id = $2 \
        LEFT JOIN embedded_store e ON e.tenant_id = $1 AND e.store_id = $2 AND e.model = $3 \
    WHERE s.tenant_id = $1 AND s.store_id = $2 AND s.deleted_at IS NULL AND t.status <> 'deleting' \
        AND (NOT ",
    is_hybrid!(),
    " OR (",
    is_replaced!(),
    ")) ORDER BY o.model"
);

/// A store that is to be searched by meaning again is then embedded from its first version.
pub(super) const BEGIN_AGAIN: &str = "UPDATE embedded_store SET seq = 0, is_complete = FALSE WHERE tenant_id = $1 AND store_id = $2 AND model = $3 AND seq > 0";

/// The job then looks at the store again, if it has this model again.
pub(super) const UNSETTLE: &str =
    "UPDATE store SET embedded_by = '' WHERE tenant_id = $1 AND store_id = $2 AND embedded_by = $3";

/// Removes at most `$4` rows with about `$5` bytes, but at least one.
pub(super) const REMOVE: &str = "DELETE FROM embedding WHERE tenant_id = $1 AND store_id = $2 AND (memory_id, model) IN ( \
    SELECT memory_id, model FROM (SELECT memory_id, model, \
            sum(size_bytes) OVER (ORDER BY edit, memory_id) - size_bytes AS bytes_before \
        FROM (SELECT o.memory_id, o.model, o.edit, length(o.vectors) AS size_bytes FROM embedding o \
            WHERE o.tenant_id = $1 AND o.store_id = $2 AND o.model = $3 ORDER BY o.edit LIMIT $4 + 0) limited) counted \
    WHERE bytes_before < $5)";

pub(super) const REMOVE_STORE: &str = "DELETE FROM embedded_store WHERE tenant_id = $1 AND store_id = $2 AND model = $3 \
    AND NOT EXISTS (SELECT 1 FROM embedding o WHERE o.tenant_id = $1 AND o.store_id = $2 AND o.model = $3)";

#[cfg(test)]
mod tests {
    use super::{CHANGES, EARLIER, HYBRID, OUTDATED, PAGE, PUT, REMOVE, SAME_TEXT, SETTLED, STATES, WORK};
    use crate::sqlite::plans::{assert_steps, reads_whole_store};

    #[tokio::test]
    async fn vectors_are_found_by_ranges_and_keys() {
        let by_memory =
            "sqlite_autoindex_embedding_1 (tenant_id=? AND store_id=? AND memory_id=? AND model=?)";
        let memory = "SEARCH m USING PRIMARY KEY (tenant_id=? AND store_id=? AND memory_id=?)";
        let by_model = "PRIMARY KEY (tenant_id=? AND store_id=? AND model=?)";
        for (statement, parts) in [
            (CHANGES, &["embedding_edit (tenant_id=? AND store_id=? AND model=? AND edit>?)", by_model][..]),
            (STATES[1], &[by_model]),
            (WORK, &["USING INDEX store_embedded ((embedded_by,tenant_id,store_id)>(?,?,?)", by_model]),
            (SETTLED, &["SEARCH s USING PRIMARY KEY (tenant_id=? AND store_id=?)", by_model]),
            (HYBRID, &["SEARCH t USING PRIMARY KEY"]),
            (PAGE[1], &["PRIMARY KEY (tenant_id=? AND store_id=? AND seq>?)", memory]),
            (PUT[1], &[by_model, memory]),
            (EARLIER, &["PRIMARY KEY (tenant_id=? AND store_id=? AND seq>? AND seq<?)", by_memory, memory]),
            (SAME_TEXT, &[by_memory, "version_id (tenant_id=? AND store_id=? AND version_id>?", memory]),
            (OUTDATED, &[by_model]),
            (REMOVE, &["embedding_edit (tenant_id=? AND store_id=? AND model=?)", by_memory]),
        ] {
            let steps = assert_steps(statement, parts).await;
            // A store has one row, and few models.
            let reads_stores = |step: &String| step.starts_with("SEARCH s ") || step.starts_with("SEARCH o ");
            assert!(!steps.iter().any(|step| reads_whole_store(step) && !reads_stores(step)), "{steps:#?}");
        }
    }
}
