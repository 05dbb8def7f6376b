//! Statements for search terms that both databases share.

/// Selects live memories after a given one, and whether each one needs indexing.
/// The limit applies before the joins.
pub(crate) const UNINDEXED: &str = "SELECT p.tenant_id, p.store_id, p.memory_id, p.blob_id, p.sha256, \
    coalesce(s.purge_epoch, 0), \
    s.store_id IS NOT NULL AND (d.blob_id IS NULL OR d.blob_id <> p.blob_id OR d.analyser < $5) \
    FROM (SELECT m.tenant_id, m.store_id, m.memory_id, m.blob_id, m.sha256 FROM memory m \
        WHERE (m.tenant_id, m.store_id, m.memory_id) > ($1, $2, $3) AND m.deleted_at IS NULL \
        ORDER BY m.tenant_id, m.store_id, m.memory_id LIMIT $4) p \
    LEFT JOIN store s ON s.tenant_id = p.tenant_id AND s.store_id = p.store_id AND s.deleted_at IS NULL \
    LEFT JOIN search_doc d ON d.tenant_id = p.tenant_id AND d.store_id = p.store_id AND d.memory_id = p.memory_id \
    ORDER BY p.tenant_id, p.store_id, p.memory_id";

/// Writes the terms of a content, if the memory still has that content.
pub(crate) const PUT_TERMS: &str = "INSERT INTO search_doc (tenant_id, store_id, memory_id, blob_id, analyser, \
        length, terms) \
    SELECT $1, $2, m.memory_id, m.blob_id, $5, $6, $7 FROM memory m \
    WHERE m.tenant_id = $1 AND m.store_id = $2 AND m.memory_id = $3 AND m.blob_id = $4 AND m.deleted_at IS NULL \
    ON CONFLICT (tenant_id, store_id, memory_id) DO UPDATE SET blob_id = excluded.blob_id, \
        analyser = excluded.analyser, length = excluded.length, terms = excluded.terms \
    WHERE search_doc.blob_id IS NULL OR search_doc.blob_id <> excluded.blob_id \
        OR search_doc.analyser < excluded.analyser";
