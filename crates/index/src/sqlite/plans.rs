//! Query plans of SQLite, on a database without statistics.

use sqlx::{AssertSqlSafe, Connection, Row, SqliteConnection};

use crate::database::with_lists;
use crate::expiry::{DUE, IDLE_BY_STORE, IDLE_BY_TENANT, LIVES, PERIOD};
use crate::memories::{DIRECTORIES_AT, FIND_ALL};
use crate::migrations;
use crate::removal::queue_unreferenced;
use crate::stores;
use crate::undo::{AT, DIRECTORIES, HEADS, OCCUPIED};
use crate::usage::FIRST_MEMORIES;
use crate::versions::VERSION_COLUMNS;

/// The steps of a statement's query plan.
pub(crate) async fn steps_of(statement: &str) -> Vec<String> {
    let mut connection = SqliteConnection::connect("sqlite::memory:").await.unwrap();
    migrations::sqlite().run(&mut connection).await.unwrap();
    let plan = sqlx::query(AssertSqlSafe(format!("EXPLAIN QUERY PLAN {}", with_lists(statement, false))));
    let steps = plan.fetch_all(&mut connection).await.unwrap();
    steps.iter().map(|step| step.get("detail")).collect()
}

/// Whether a step reads all rows of a store.
pub(crate) fn reads_whole_store(step: &str) -> bool {
    step.starts_with("SEARCH") && step.ends_with("(tenant_id=? AND store_id=?)")
}

/// Asserts that a statement's plan has these searches; returns its steps.
pub(crate) async fn assert_steps(statement: &str, searches: &[&str]) -> Vec<String> {
    let steps = steps_of(statement).await;
    for search in searches {
        assert!(steps.iter().any(|step| step.contains(search)), "{search}: {statement}\n{steps:#?}");
    }
    steps
}

/// Asserts that a statement's plan has these searches, sorts nothing, and does not read all rows
/// of a store, except the one row in the table `store`.
pub(crate) async fn assert_searches(statement: &str, searches: &[&str]) {
    let steps = assert_steps(statement, searches).await;
    let reads_memories = |step: &String| reads_whole_store(step) && !step.starts_with("SEARCH s ");
    let is_wrong = |step: &String| reads_memories(step) || step.contains("TEMP B-TREE");
    assert!(!steps.iter().any(is_wrong), "{statement}\n{steps:#?}");
}

#[tokio::test]
async fn rows_are_found_by_their_whole_keys() {
    let steps = steps_of(stores::FIND).await;
    assert!(steps.iter().any(|step| reads_whole_store(step)), "the test does not work: {steps:#?}");
    assert_searches(&queue_unreferenced(), &["SEARCH "]).await;
    let list = stores::LIST.replace("IN_IDS($7)", "IN (SELECT unhex(value) FROM json_each($7))");
    assert_searches(&list, &["store_created (tenant_id=? AND created_at>?"]).await;
    let at = AT.replace("VERSION_COLUMNS", VERSION_COLUMNS);
    for (statement, keys) in [
        (FIND_ALL, &["store_id=? AND memory_id=?)", "store_id=? AND path=?)"][..]),
        (DIRECTORIES_AT, &["store_id=? AND path=?)"]),
        (HEADS, &["PRIMARY KEY (tenant_id=? AND store_id=? AND memory_id=?)"]),
        (&at, &["PRIMARY KEY (tenant_id=? AND store_id=? AND seq=?)"]),
        (OCCUPIED, &["memory_path (tenant_id=? AND store_id=? AND path=?)"]),
        (DIRECTORIES, &["PRIMARY KEY (tenant_id=? AND store_id=? AND path=?)"]),
    ] {
        let steps = assert_steps(statement, keys).await;
        let reads_memories = |step: &String| reads_whole_store(step) && !step.starts_with("SEARCH s ");
        assert!(!steps.iter().any(reads_memories), "{steps:#?}");
    }
}

#[tokio::test]
async fn expiry_reads_ranges_in_the_order_of_their_indexes() {
    for (statement, wanted) in [
        (IDLE_BY_STORE, "store_period"),
        (IDLE_BY_TENANT, "SEARCH s "),
        (LIVES, "PRIMARY KEY (tenant_id=? AND store_id=? AND memory_id>?)"),
        (DUE, "memory_expires ((expires_at,tenant_id,store_id,memory_id)>(?,?,?,?)"),
        (PERIOD, "SEARCH s "),
    ] {
        assert_searches(statement, &[wanted]).await;
    }
    let access = "SEARCH a USING PRIMARY KEY (tenant_id=? AND store_id=? AND memory_id=?)";
    let steps = assert_steps(FIRST_MEMORIES, &["SEARCH m USING INDEX memory_path", access]).await;
    assert!(!steps.iter().any(|step| step.contains("TEMP B-TREE")), "{steps:#?}");
}
