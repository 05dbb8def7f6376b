//! Many files at once, written as rows: their blobs are not there.

use keepsake_core::ContentHash;
use uuid::Uuid;

use super::*;

pub(crate) const FILE_BYTES: u64 = 10;

/// Fills a tenant's empty store with files, spread evenly over directories:
/// `/d0/f1000000.md` and so on, with ids that sort by age as real ones do. No
/// server may have a SQLite index meanwhile.
pub(crate) async fn fill(deployment: &Deployment, tenant: &Tenant, files: u64, directories: u64) {
    deployment.execute(statements(deployment.pair, tenant, files, directories)).await;
}

fn statements(pair: Pair, tenant: &Tenant, files: u64, directories: u64) -> String {
    let hash = ContentHash::of(b"0123456789").to_string();
    let hex = |uuid: Uuid| uuid.simple().to_string();
    let (tenant_id, store_id) = (hex(tenant.id.uuid()), hex(tenant.store_id.uuid()));
    let (tenant_id, store_id, hash, id, numbers, tidy) = if pair.has_postgres() {
        (
            format!("'{tenant_id}'::uuid"),
            format!("'{store_id}'::uuid"),
            format!("decode('{hash}', 'hex')"),
            "lpad(to_hex(n), 32, '0')::uuid",
            format!("SELECT n FROM generate_series(1, {files}) AS n"),
            "ANALYZE version; ANALYZE memory; ANALYZE directory; ANALYZE store",
        )
    } else {
        (
            format!("x'{tenant_id}'"),
            format!("x'{store_id}'"),
            format!("x'{hash}'"),
            "unhex(printf('%032x', n))",
            format!(
                "WITH RECURSIVE numbers(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < {files}) \
                 SELECT n FROM numbers"
            ),
            "SELECT 1",
        )
    };
    let bytes = files * FILE_BYTES;
    format!(
        "BEGIN;
         CREATE TEMP TABLE filler AS
         SELECT n, {id} AS memory_id, {id} AS version_id, 'd' || (n % {directories}) AS directory,
                'f' || (1000000 + n) || '.md' AS name
           FROM ({numbers}) AS numbered;
         INSERT INTO version (tenant_id, store_id, seq, version_id, memory_id, op, path, blob_id, size_bytes,
                              sha256, created_at)
         SELECT {tenant_id}, {store_id}, n, version_id, memory_id, 'created', '/' || directory || '/' || name,
                version_id, {FILE_BYTES}, {hash}, 1
           FROM filler;
         INSERT INTO memory (tenant_id, store_id, memory_id, path, parent, name, head_seq, version_id, blob_id,
                             size_bytes, sha256, first_line, pinned, created_at, updated_at)
         SELECT {tenant_id}, {store_id}, memory_id, '/' || directory || '/' || name, '/' || directory || '/', name,
                n, version_id, version_id, {FILE_BYTES}, {hash}, '0123456789', {unpinned}, 1, 1
           FROM filler;
         INSERT INTO directory (tenant_id, store_id, path, parent, name, files, bytes, visible_children)
         SELECT {tenant_id}, {store_id}, '/' || directory || '/', '/', directory, count(*), {FILE_BYTES} * count(*),
                count(*)
           FROM filler GROUP BY directory;
         UPDATE directory SET files = {files}, bytes = {bytes}, visible_children = {directories}
          WHERE tenant_id = {tenant_id} AND store_id = {store_id} AND path = '/';
         UPDATE store SET seq = {files}, last_version_at = 1, memory_count = {files}, live_bytes = {bytes},
                granted_bytes = {bytes}, version_count = {files}, version_bytes = {bytes}
          WHERE tenant_id = {tenant_id} AND store_id = {store_id};
         UPDATE tenant SET granted_bytes = granted_bytes + {bytes} WHERE tenant_id = {tenant_id};
         DROP TABLE filler;
         COMMIT;
         {tidy};",
        unpinned = if pair.has_postgres() { "false" } else { "0" },
    )
}
