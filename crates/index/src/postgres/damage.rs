//! Finds rows that cannot be read, and damaged indexes.

use keepsake_core::TenantId;
use sqlx::AssertSqlSafe;
use uuid::Uuid;

use crate::IndexError;
use crate::database::{Database, NEXT_TENANT, Role};

/// Sees the rows of every tenant.
const ROLE: Role = Role::Job(None);

/// The tables that the role of jobs may read, and their sizes. A partition is read through
/// its table, on which the role has the privilege.
const TABLES: &str = "SELECT format('%I', r.relname), CAST(c.oid AS bigint), \
        pg_relation_size(c.oid) / CAST(current_setting('block_size') AS bigint) \
    FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace \
        JOIN pg_class r ON r.oid = coalesce(pg_partition_root(c.oid), c.oid) \
    WHERE n.nspname = current_schema() AND c.relkind = 'r' AND has_table_privilege(r.oid, 'SELECT') ORDER BY 1, 2";

const DISTRIBUTED_TABLES: &str =
    "SELECT CAST(logicalrelid AS text) FROM pg_dist_partition WHERE partmethod = 'h' ORDER BY 1";

/// Blocks of a table per statement. A row of a block can have large values elsewhere.
const BLOCKS: i64 = 64;
/// The B-trees; none if the role may not call the function of the extension `amcheck`
/// that checks them.
const INDEXES: &str = "SELECT CAST(c.oid AS bigint), format('%I', c.relname) \
    FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace JOIN pg_am a ON a.oid = c.relam \
    WHERE n.nspname = current_schema() AND c.relkind = 'i' AND a.amname = 'btree' \
        AND has_function_privilege(to_regprocedure('bt_index_check(regclass, boolean)'), 'EXECUTE') ORDER BY 2";

/// Checks the structure of an index, and that it has every row of its table.
const CHECK_INDEX: &str = "SELECT bt_index_check(CAST(CAST($1 AS oid) AS regclass), true)";

/// Maximum number of messages, as on SQLite.
const MAX_MESSAGES: usize = 100;

/// The damage, in Postgres's messages. Empty: every row of every table was read, with its
/// large values, and every index that can be checked was checked.
///
/// Rows that are written meanwhile may not be read.
pub(crate) async fn find(database: &Database) -> Result<Vec<String>, IndexError> {
    let mut tx = database.read_one("list_tables", ROLE).await?;
    let tables: Vec<(String, i64, i64)> = tx.query(TABLES).all().await?;
    let indexes: Vec<(i64, String)> = tx.query(INDEXES).all().await?;
    drop(tx);
    let mut damage = Vec::new();
    for (table, oid, blocks) in tables {
        read_rows(database, (&table, oid), blocks, &mut damage).await?;
    }
    if database.is_distributed() {
        read_tenants(database, &mut damage).await?;
    }
    for (oid, index) in indexes {
        let mut tx = database.read_one("check_index", ROLE).await?;
        let checked = tx.query(CHECK_INDEX).bind(oid).execute().await;
        note(checked, &format!("index {index}"), &mut damage)?;
    }
    Ok(damage)
}

/// Reads the rows of a table or of one of its partitions, a range of blocks at a time.
async fn read_rows(
    database: &Database,
    (table, oid): (&str, i64),
    blocks: i64,
    damage: &mut Vec<String>,
) -> Result<(), IndexError> {
    // A range of `ctid` reads only these blocks.
    let read = format!(
        "SELECT CAST(coalesce(sum(octet_length(CAST(t AS text))), 0) AS bigint) FROM {table} t \
         WHERE ctid >= CAST('(' || $1 || ',0)' AS tid) AND ctid < CAST('(' || $2 || ',0)' AS tid) \
         AND t.tableoid = CAST($3 AS oid)"
    );
    let mut first = 0;
    while first < blocks && damage.len() < MAX_MESSAGES {
        let end = first + BLOCKS;
        let values = (first.to_string(), end.to_string(), oid);
        let answer = database.scalar::<i64>("read_rows", ROLE, AssertSqlSafe(read.clone()), values).await;
        note(answer, &format!("table {table}"), damage)?;
        first = end;
    }
    Ok(())
}

/// Reads the rows of each tenant, which are on other nodes. The indexes there are not checked.
async fn read_tenants(database: &Database, damage: &mut Vec<String>) -> Result<(), IndexError> {
    let tables: Vec<(String,)> = database.all("list_tables", ROLE, DISTRIBUTED_TABLES, ()).await?;
    let mut after = TenantId::from_uuid(Uuid::nil());
    loop {
        let tenant: Option<(TenantId,)> = database.optional("next_tenant", ROLE, NEXT_TENANT, after).await?;
        let Some((tenant_id,)) = tenant else {
            return Ok(());
        };
        for (table,) in &tables {
            let read = format!(
                "SELECT CAST(coalesce(sum(octet_length(CAST(t AS text))), 0) AS bigint) FROM {table} t \
                 WHERE t.tenant_id = $1"
            );
            let answer = database.scalar::<i64>("read_rows", ROLE, AssertSqlSafe(read), tenant_id).await;
            note(answer, &format!("table {table}"), damage)?;
            if damage.len() >= MAX_MESSAGES {
                return Ok(());
            }
        }
        after = tenant_id;
    }
}

/// Adds the error of a statement to the damage. Fails with an error after which the
/// statement may succeed later.
fn note<T>(answer: Result<T, IndexError>, place: &str, damage: &mut Vec<String>) -> Result<(), IndexError> {
    match answer {
        Ok(_) => {}
        Err(error) if error.is_passing() => return Err(error),
        Err(error) => damage.push(format!("{place}: {}", error.words())),
    }
    Ok(())
}
