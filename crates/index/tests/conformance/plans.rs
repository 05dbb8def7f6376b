//! Postgres's plans of the list queries, explained in a session that serves requests.
//! SQLite's plans are checked beside its queries.

use keepsake_index::PostgresIndex;
use sqlx::{AssertSqlSafe, Connection as _};

use crate::place::Place;
use crate::subject::{Raw, postgres_index};

/// A variable of a function, its type, and some value of it.
type Variable = (&'static str, &'static str, &'static str);

/// The queries that a function answers with, as its source has them.
async fn queries_of(raw: &Raw, function: &str) -> Vec<String> {
    let source = format!("SELECT prosrc FROM pg_proc WHERE proname = '{function}'");
    let source = raw.rows(&source, &[]).await[0][0].clone().unwrap();
    source.split("RETURN QUERY").skip(1).map(|rest| rest.split(';').next().unwrap().to_owned()).collect()
}

/// The plan of a query for any values of its variables.
async fn plan(index: &PostgresIndex, place: &Place, query: &str, variables: &[Variable]) -> String {
    let mut query = query.to_owned();
    for (number, (variable, _, _)) in variables.iter().enumerate() {
        query = query.replace(variable, &format!("${}", number + 1));
    }
    let types: Vec<_> = variables.iter().map(|(_, of_type, _)| *of_type).collect();
    let values: Vec<_> = variables.iter().map(|(_, _, value)| *value).collect();
    let mut session = index.app_session().await.unwrap();
    let mut transaction = session.begin().await.unwrap();
    let set_tenant = format!("SELECT set_config('keepsake.tenant', '{}', true)", place.tenant_id.uuid());
    let prepare = format!("PREPARE listing ({}) AS {query}", types.join(", "));
    let execute = format!("EXPLAIN (COSTS off) EXECUTE listing ({})", values.join(", "));
    for statement in [set_tenant, prepare] {
        sqlx::raw_sql(AssertSqlSafe(statement)).execute(&mut *transaction).await.unwrap();
    }
    let lines: Vec<String> =
        sqlx::query_scalar(AssertSqlSafe(execute)).fetch_all(&mut *transaction).await.unwrap();
    sqlx::raw_sql("DEALLOCATE listing").execute(&mut *transaction).await.unwrap();
    lines.join("\n")
}

const MEMORIES: [Variable; 7] = [
    ("p_tenant", "uuid", "NULL"),
    ("p_store", "uuid", "NULL"),
    ("p_directory", "text", "'/'"),
    ("p_from", "text", "'/'"),
    ("p_end", "text", "'0'"),
    ("p_after_name", "text", "''"),
    ("p_limit", "bigint", "20"),
];

const VERSIONS: [Variable; 10] = [
    ("p_tenant", "uuid", "NULL"),
    ("p_store", "uuid", "NULL"),
    ("p_memory", "uuid", "NULL"),
    ("p_op", "text", "NULL"),
    ("p_actor_type", "text", "NULL"),
    ("p_imported_type", "text", "NULL"),
    ("p_actor_id", "text", "NULL"),
    ("v_low", "bigint", "0"),
    ("v_high", "bigint", "9"),
    ("p_limit", "bigint", "20"),
];

const SEARCH: [Variable; 5] = [
    ("p_tenant", "uuid", "NULL"),
    ("p_store", "uuid", "NULL"),
    ("p_since", "bigint", "7"),
    ("p_analyser", "bigint", "3"),
    ("p_unindexed", "uuid[]", "'{}'"),
];

/// Holds the plan of each query of a function to the parts it must have.
async fn assert_plans(function: &str, variables: &[Variable], expected: &[&[&str]]) {
    let (index, raw, _database) = postgres_index().await;
    let raw = Raw::Postgres(raw);
    let place = Place::on(index.clone().into(), raw.clone()).await;
    let queries = queries_of(&raw, function).await;
    assert_eq!(queries.len(), expected.len());
    for (query, parts) in queries.iter().zip(expected) {
        let plan = plan(&index, &place, query, variables).await;
        for part in *parts {
            assert!(plan.contains(part), "{part} is not in\n{plan}");
        }
        // The two ranges of children are merged by a sort of what they gave.
        let is_merge = plan.contains("Append");
        assert!(is_merge || !plan.contains("Sort"), "{plan}");
        // A hash may only remove duplicates.
        let joins = plan.replace("HashAggregate", "");
        assert!(!plan.contains("Seq Scan") && !joins.contains("Hash"), "{plan}");
        assert!(!plan.contains("Join Filter"), "{plan}");
    }
}

#[tokio::test]
async fn lists_of_memories_are_ranges_of_indexes_in_their_order() {
    let all = ["Index Scan using memory_path", "(path > $4) AND (path < $5))", "memory_access_pkey"];
    let children = [
        "Index Scan using memory_parent",
        "(parent = $3) AND (name > $6))",
        "Index Scan using directory_children",
        "(ROW(parent, path) > ROW($3, $4)) AND (parent <= $3))",
        "memory_access_pkey",
    ];
    assert_plans("list_memories", &MEMORIES, &[&all, &children]).await;
}

/// Each memory's terms by their key, in tables of which nothing is known yet.
#[tokio::test]
async fn search_looks_terms_up_memory_by_memory() {
    let terms = "(tenant_id = $1) AND (store_id = $2) AND (memory_id = m.memory_id)";
    let whole = ["Index Scan using search_doc_pkey", terms];
    let (index, raw, _database) = postgres_index().await;
    let place = Place::on(index.clone().into(), Raw::Postgres(raw)).await;
    let variables = [("$1", "uuid", "NULL"), ("$2", "uuid", "NULL"), ("$3", "bigint", "3")];
    let plan = plan(&index, &place, &statement("WHOLE"), &variables).await;
    assert!(whole.iter().all(|part| plan.contains(part)), "{plan}");
    assert!(!plan.contains("Seq Scan") && !plan.contains("Hash") && !plan.contains("Join Filter"), "{plan}");

    let since = [
        "(tenant_id = $1) AND (store_id = $2) AND (seq > $3)",
        "Index Scan using memory_pkey",
        "Index Scan using search_doc_pkey",
        terms,
    ];
    assert_plans("search_changes", &SEARCH, &[&since]).await;
}

#[tokio::test]
async fn lists_of_versions_are_ranges_of_the_index_of_their_filter() {
    let of_memory = ["Index Scan Backward using version_memory", "(ROW(memory_id, seq) < ROW($3, $9))"];
    let of_actor = ["Index Scan Backward using version_actor", "(ROW(actor_id, seq) < ROW($7, $9))"];
    let of_operation = ["Index Scan Backward using version_op", "(ROW(op, seq) < ROW($4, $9))"];
    let of_all = ["Index Scan Backward using version_pkey", "(seq < $9) AND (seq > $8))"];
    let expected: [&[&str]; 4] = [&of_memory, &of_actor, &of_operation, &of_all];
    assert_plans("list_versions", &VERSIONS, &expected).await;
}

/// A statement, as the sources have it.
fn statement(name: &str) -> String {
    let source = concat!(
        include_str!("../../src/search.rs"),
        include_str!("../../src/expiry.rs"),
        include_str!("../../src/memories.rs"),
        include_str!("../../src/removal/retention.rs"),
        include_str!("../../src/sessions/queries/texts.rs")
    );
    let from = source.split(&format!("const {name}: ")).nth(1).unwrap();
    let text = from.split('"').nth(1).unwrap();
    PostgresIndex::text_of(&text.replace("\\\n", " "))
}

/// A list of keys finds each row by its whole key, in tables of which nothing is known.
#[tokio::test]
async fn lists_are_found_key_by_key() {
    let (index, raw, _database) = postgres_index().await;
    let place = Place::on(index.clone().into(), Raw::Postgres(raw)).await;
    let key = |name| (name, "uuid", "NULL");
    let ids = |name| (name, "uuid[]", "'{}'");
    let texts = |name| (name, "text", "'[]'");
    for (name, others, parts) in [
        (
            "FIND_ALL",
            vec![key("$2"), ids("$3"), texts("$4")],
            vec!["(memory_id = ids.id)", "(path = texts.text)", "(memory_id = m_1.memory_id)"],
        ),
        ("DIRECTORIES_AT", vec![key("$2"), texts("$3")], vec!["(path = texts.text)"]),
        ("SESSIONS", vec![ids("$2")], vec!["(session_id = ids.id)"]),
        ("ATTACHMENTS", vec![ids("$2")], vec!["(session_id = ids.id)", "(store_id = r.store_id)"]),
    ] {
        let variables: Vec<_> = [key("$1")].into_iter().chain(others).collect();
        let plan = plan(&index, &place, &statement(name), &variables).await;
        for part in parts {
            let is_key = |line: &str| line.contains("Index Cond: ") && line.contains(part);
            assert!(plan.lines().any(is_key), "{name}: {part} is not a key in\n{plan}");
        }
        let reads_all = plan.contains("Seq Scan") || plan.contains("Hash") || plan.contains("Join Filter");
        assert!(!reads_all, "{name}\n{plan}");
    }
}

/// The planner may prefer another index to one on an expression.
#[tokio::test]
async fn sql_functions_find_no_row_by_an_expression() {
    let (_index, raw, _database) = postgres_index().await;
    let sources = Raw::Postgres(raw)
        .rows("SELECT proname, prosrc FROM pg_proc WHERE pronamespace = 'public'::regnamespace", &[])
        .await;
    assert!(sources.len() > 9);
    for source in sources {
        let (name, text) = (source[0].as_deref().unwrap(), source[1].as_deref().unwrap());
        let by_expression = text.lines().find(|line| {
            let condition = line.split(" := ").next().unwrap();
            condition.contains(" = ") && condition.contains("||")
        });
        assert_eq!(by_expression, None, "{name}");
    }
}

#[tokio::test]
async fn directories_of_a_directory_are_a_range_of_their_index() {
    let (index, raw, _database) = postgres_index().await;
    let raw = Raw::Postgres(raw);
    let place = Place::on(index.clone().into(), raw.clone()).await;
    let source = "SELECT prosrc FROM pg_proc WHERE proname = 'read_directory'";
    let source = raw.rows(source, &[]).await[0][0].clone().unwrap();
    let (_, rest) = source.split_once("FROM (SELECT d.visible_children").unwrap();
    let query = format!("SELECT d.visible_children{}", rest.split(") d;").next().unwrap());
    let plan = plan(&index, &place, &query, &MEMORIES[..3]).await;
    assert!(plan.contains("Index Scan using directory_parent") && plan.contains("(parent = $3)"), "{plan}");
}

#[tokio::test]
async fn expiry_reads_ranges_of_indexes_in_their_order() {
    let (index, raw, _database) = postgres_index().await;
    let place = Place::on(index.clone().into(), Raw::Postgres(raw)).await;
    let ids: [Variable; 2] = [("$1", "uuid", "NULL"), ("$2", "uuid", "NULL")];
    let number = |name: &'static str| (name, "bigint", "1");
    for (name, others, parts) in [
        ("IDLE_BY_STORE", vec![number("$3"), number("$4")], vec!["store_period", "tenant_pkey"]),
        ("IDLE_BY_TENANT", vec![number("$3"), number("$4")], vec!["store_pkey"]),
        (
            "LIVES",
            vec![("$3", "uuid", "NULL"), number("$4")],
            vec!["Index Scan using memory_pkey", "(memory_id > $3)", "memory_access_pkey"],
        ),
        (
            "DUE",
            vec![("$3", "uuid", "NULL"), number("$4"), number("$5"), number("$6")],
            vec!["Index Only Scan using memory_expires"],
        ),
        ("HISTORIES", vec![number("$3")], vec!["store_pkey", "version_op"]),
        (
            "DELETIONS",
            vec![number("$3"), number("$4")],
            vec!["Index Scan using version_op", "(ROW(op, seq) > ROW('deleted'::text, $3))"],
        ),
        (
            "PAST",
            vec![number("$3"), number("$4"), number("$5"), number("$6"), number("$7")],
            vec!["Index Scan using version_pkey", "version_memory", "memory_pkey"],
        ),
    ] {
        let variables: Vec<_> = ids.into_iter().chain(others).collect();
        let plan = plan(&index, &place, &statement(name), &variables).await;
        for part in parts {
            assert!(plan.contains(part), "{name}: {part} is not in\n{plan}");
        }
        let may_scan_tenants = name == "IDLE_BY_TENANT";
        assert!(may_scan_tenants || !plan.contains("Seq Scan"), "{name}\n{plan}");
        assert!(!plan.contains("Hash"), "{name}\n{plan}");
    }
}
