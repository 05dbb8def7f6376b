//! Both migrations describe one logical schema.

use std::collections::BTreeSet;

use crate::prelude::*;

/// The tables without a tenant; every other one is a tenant's.
pub(crate) const GLOBAL_TABLES: [&str; 10] = [
    "audit_horizon",
    "credential",
    "flushed_batch",
    "job",
    "job_run",
    "operator_audit",
    "redeemed_code",
    "replica",
    "server_secret",
    "tenant_deletion",
];

/// The one unique key of a tenant's table that spans tenants: the operator's
/// own name for a tenant.
const ACROSS_TENANTS: (&str, &str) = ("tenant", "external_id");

/// Columns that an index of SQLite contains only to avoid reading the table: table,
/// keys, and the columns after them. Postgres has `INCLUDE` for this.
const CARRIED_BY_SQLITE: [(&str, &str, &str); 1] =
    [("memory", "tenant_id store_id parent name", "size_bytes deleted_at")];

/// In Postgres text sorts by its bytes, and in SQLite a column takes its type only.
const POSTGRES_COLUMNS: &str = "SELECT CAST(c.relname AS text), CAST(a.attname AS text), \
    CASE format_type(a.atttypid, a.atttypmod) WHEN 'uuid' THEN 'bytes' WHEN 'bytea' THEN 'bytes' \
        WHEN 'text' THEN 'text' WHEN 'jsonb' THEN 'text' WHEN 'bigint' THEN 'integer' WHEN 'boolean' THEN 'integer' \
        ELSE format_type(a.atttypid, a.atttypmod) END, \
    CASE WHEN a.attnotnull THEN 'not null' ELSE 'nullable' END, \
    CASE WHEN a.attcollation = 0 OR a.attcollation = '\"C\"'::regcollation THEN 'strict' ELSE 'not by bytes' END \
    FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped \
    WHERE c.relnamespace = 'public'::regnamespace AND c.relkind IN ('r', 'p') AND c.relname <> '_sqlx_migrations'";

// The columns of a primary key are never null, though SQLite does not say so of a rowid.
const SQLITE_COLUMNS: &str = "SELECT t.name, c.name, \
    CASE c.type WHEN 'BLOB' THEN 'bytes' WHEN 'TEXT' THEN 'text' WHEN 'INTEGER' THEN 'integer' ELSE c.type END, \
    CASE WHEN c.\"notnull\" OR c.pk > 0 THEN 'not null' ELSE 'nullable' END, \
    CASE (SELECT l.strict FROM pragma_table_list(t.name) l WHERE l.schema = 'main') \
        WHEN 1 THEN 'strict' ELSE 'of any type' END \
    FROM sqlite_schema t JOIN pragma_table_info(t.name) c \
    WHERE t.type = 'table' AND t.name NOT LIKE 'sqlite\\_%' ESCAPE '\\' AND t.name <> '_sqlx_migrations'";

/// Table, kind, columns in their order, predicate of every key and index.
const POSTGRES_KEYS: &str = "SELECT CAST(t.relname AS text), \
    CASE WHEN i.indisprimary THEN 'primary' WHEN i.indisunique THEN 'unique' ELSE 'plain' END, \
    (SELECT string_agg(CAST(a.attname AS text), ' ' ORDER BY k.place) \
        FROM unnest(i.indkey) WITH ORDINALITY k(attnum, place) \
        JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.attnum \
        WHERE k.place <= i.indnkeyatts), \
    pg_get_expr(i.indpred, i.indrelid) \
    FROM pg_index i JOIN pg_class t ON t.oid = i.indrelid \
    WHERE t.relnamespace = 'public'::regnamespace AND t.relname <> '_sqlx_migrations'";

const SQLITE_KEYS: &str = "SELECT t.name, CASE WHEN l.\"unique\" THEN 'unique' ELSE 'plain' END, \
    (SELECT group_concat(k.name, ' ' ORDER BY k.seqno) FROM pragma_index_info(l.name) k), \
    CASE WHEN l.partial THEN (SELECT substr(s.sql, instr(s.sql, ' WHERE ') + 7) FROM sqlite_schema s \
        WHERE s.type = 'index' AND s.name = l.name) END \
    FROM sqlite_schema t JOIN pragma_index_list(t.name) l \
    WHERE t.type = 'table' AND t.name <> '_sqlx_migrations' AND l.origin <> 'pk' \
    UNION ALL \
    SELECT t.name, 'primary', (SELECT group_concat(c.name, ' ' ORDER BY c.pk) FROM pragma_table_info(t.name) c \
        WHERE c.pk > 0), NULL \
    FROM sqlite_schema t \
    WHERE t.type = 'table' AND t.name NOT LIKE 'sqlite\\_%' ESCAPE '\\' AND t.name <> '_sqlx_migrations'";

/// Rows to compare, with predicates in one way of writing.
async fn described(raw: &Raw, query: &str) -> BTreeSet<Vec<String>> {
    let as_written_once = |text: Option<String>| {
        let text = text.unwrap_or_default().replace(['(', ')'], "").replace("::text", "");
        text.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    let rows: Vec<TextRow> = raw.rows(query, &[]).await;
    let count = rows.len();
    let described: BTreeSet<Vec<_>> =
        rows.into_iter().map(|row| row.into_iter().map(as_written_once).collect()).collect();
    assert_eq!(described.len(), count, "two of one description");
    described
}

fn assert_same(postgres: &BTreeSet<Vec<String>>, sqlite: &BTreeSet<Vec<String>>) {
    let only_postgres: Vec<_> = postgres.difference(sqlite).collect();
    let only_sqlite: Vec<_> = sqlite.difference(postgres).collect();
    assert!(
        only_postgres.is_empty() && only_sqlite.is_empty(),
        "only Postgres has {only_postgres:#?}, only SQLite has {only_sqlite:#?}"
    );
}

#[tokio::test]
async fn both_databases_have_the_same_columns_and_keys() {
    let (_index, postgres, _database) = postgres_index().await;
    let (_index, sqlite, _folder) = sqlite_index().await;
    let (in_postgres, in_sqlite) = (Raw::Postgres(postgres), Raw::Sqlite(sqlite));
    let postgres = described(&in_postgres, POSTGRES_COLUMNS).await;
    let tables: BTreeSet<_> = postgres.iter().map(|column| column[0].as_str()).collect();
    assert!(tables.is_superset(&GLOBAL_TABLES.into()) && tables.contains("memory"), "{tables:?}");
    assert_same(&postgres, &described(&in_sqlite, SQLITE_COLUMNS).await);

    let postgres = described(&in_postgres, POSTGRES_KEYS).await;
    let mut sqlite = described(&in_sqlite, SQLITE_KEYS).await;
    assert!(postgres.iter().any(|key| key[3] == "deleted_at IS NULL"), "no partial index was found");
    for (table, keys, carried) in CARRIED_BY_SQLITE {
        let whole = format!("{keys} {carried}");
        let of_keys = |mut index: Vec<String>| {
            if index[0] == table && index[2] == whole {
                keys.clone_into(&mut index[2]);
            }
            index
        };
        sqlite = sqlite.into_iter().map(of_keys).collect();
    }
    assert_same(&postgres, &sqlite);
    let mut led = 0;
    for key in &postgres {
        let (table, kind, columns) = (key[0].as_str(), key[1].as_str(), key[2].as_str());
        let is_exception = GLOBAL_TABLES.contains(&table) || (table, columns) == ACROSS_TENANTS;
        if kind != "plain" && !is_exception {
            assert_eq!(columns.split(' ').next(), Some("tenant_id"), "{kind} key of {table}: {columns}");
            led += 1;
        }
    }
    assert!(led >= 12, "only {led} keys were found");
}
