//! Postgres's plans, explained in a session that serves requests, in tables of which nothing
//! is known. SQLite's plans are checked beside its queries; what lists read is counted in
//! `cost.rs`.

use crate::prelude::*;
use keepsake_index::Past;

/// The plan of a query for any values of its variables, which have these types.
async fn plan(index: &PostgresIndex, place: &Place, query: &str, types: &str) -> String {
    let values = vec!["NULL"; types.split(", ").count()].join(", ");
    let mut session = index.app_session().await.unwrap();
    let mut transaction = session.begin().await.unwrap();
    for statement in [
        format!("SELECT set_config('keepsake.tenant', '{}', true)", place.tenant_id.uuid()),
        format!("PREPARE explained ({types}) AS {query}"),
    ] {
        sqlx::raw_sql(AssertSqlSafe(statement)).execute(&mut *transaction).await.unwrap();
    }
    let explain =
        sqlx::query_scalar(AssertSqlSafe(format!("EXPLAIN (COSTS off) EXECUTE explained ({values})")));
    let lines: Vec<String> = explain.fetch_all(&mut *transaction).await.unwrap();
    lines.join("\n")
}

/// A statement, as the sources have it.
fn statement(name: &str) -> String {
    let source = concat!(
        include_str!("../../src/search.rs"),
        include_str!("../../src/embeddings/statements.rs"),
        include_str!("../../src/expiry.rs"),
        include_str!("../../src/memories.rs"),
        include_str!("../../src/removal/retention.rs"),
        include_str!("../../src/sessions/queries/texts.rs"),
        include_str!("../../src/undo.rs"),
        include_str!("../../src/past.rs"),
        include_str!("../../src/usage.rs"),
        include_str!("../../src/versions.rs")
    );
    let from = source.split(&format!("const {name}: ")).nth(1).unwrap();
    let text = from.split('"').nth(1).unwrap();
    PostgresIndex::text_of(&text.replace("\\\n", " "))
}

/// A statement of `selects!` in the source of readers.
fn selected_readers(name: &str) -> String {
    let source = include_str!("../../src/reads.rs");
    let text = |begin: &str| source.split(begin).nth(1).unwrap().split('"').next().unwrap();
    let (columns, rest) = (text("selects! {\n    \""), text(&format!("const {name} = \"")));
    PostgresIndex::text_of(&format!("SELECT {columns} {rest}").replace("\\\n", " "))
}

#[tokio::test]
async fn readers_and_expiry_read_ranges_of_indexes_in_their_order() {
    let (place, index, _database) = Place::on_postgres().await;
    let of_key = "Index Scan Backward using memory_read_pkey";
    let ids = "uuid, uuid, uuid, uuid, uuid, text, text, text, bigint";
    let of_session = "uuid, uuid, bigint, uuid, text, text, text, uuid[], bigint";
    let of_past = "uuid, uuid, bigint, bigint, bigint, bigint, bigint";
    let of_deletions = "(ROW(op, seq) > ROW('deleted'::text, $3))";
    let version = "Index Scan using version_id on version v";
    let of_time = "(session_id = $2) AND (ROW(first_read_at, version_id) <= ROW($3, $4))";
    for (name, types, parts) in [
        ("OF_STORE", ids, &[of_key, version, "(ROW(memory_id, version_id, session_id, "][..]),
        ("OF_MEMORY", ids, &[of_key, version, "(memory_id = $3) AND (ROW(version_id, session_id, "]),
        ("OF_VERSION", ids, &[of_key, version, "(version_id = $4) AND (ROW(session_id, "]),
        ("OF_SESSION", of_session, &["using memory_read_session", version, of_time]),
        ("IDLE_BY_STORE", "uuid, uuid, bigint, bigint", &["store_period", "tenant_pkey"]),
        ("IDLE_BY_TENANT", "uuid, uuid, bigint, bigint", &["store_pkey"]),
        (
            "LIVES",
            "uuid, uuid, uuid, bigint",
            &["using memory_pkey", "(memory_id > $3)", "memory_access_pkey"],
        ),
        ("DUE", "uuid, uuid, uuid, bigint, bigint, bigint", &["Index Only Scan using memory_expires"]),
        ("FIRST_MEMORIES", "uuid, uuid, bigint", &["using memory_path", "memory_access_pkey", "store_pkey"]),
        ("HISTORIES", "uuid, uuid, bigint", &["store_pkey", "version_op"]),
        ("DELETIONS", "uuid, uuid, bigint, bigint", &["Index Scan using version_op", of_deletions]),
        ("PAST", of_past, &["Index Scan using version_pkey", "version_memory", "memory_pkey"]),
    ] {
        let is_of_readers = name.starts_with("OF_");
        let query = if is_of_readers { selected_readers(name) } else { statement(name) };
        let plan = plan(&index, &place, &query, types).await;
        for part in parts {
            assert!(plan.contains(part), "{name}: {part} is not in\n{plan}");
        }
        let may_scan_tenants = name == "IDLE_BY_TENANT";
        assert!(may_scan_tenants || !plan.contains("Seq Scan"), "{name}\n{plan}");
        assert!(!plan.contains("Hash"), "{name}\n{plan}");
        assert!(!is_of_readers || name == "OF_SESSION" || !plan.contains("Sort"), "{name}\n{plan}");
    }
}

/// Every row that the query reads is found by a key of an index, among others by these.
async fn assert_is_by_keys(index: &PostgresIndex, place: &Place, query: &str, types: &str, keys: &[&str]) {
    let plan = plan(index, place, query, types).await;
    for part in keys {
        let is_key = |line: &str| line.contains("Index ") && line.contains(part);
        assert!(plan.lines().any(is_key), "{part} is not a key in\n{plan}");
    }
    // A hash may only remove duplicates.
    assert!(!plan.replace("HashAggregate", "").contains("Hash"), "{plan}");
    assert!(!plan.contains("Seq Scan") && !plan.contains("Join Filter"), "{plan}");
}

/// The query that a function answers, with its variables by their numbers.
async fn query_of(place: &Place, function: &str, variables: &[&str]) -> String {
    let source = format!("SELECT prosrc FROM pg_proc WHERE proname = '{function}'");
    let source = place.raw.rows(&source, &[]).await[0][0].clone().unwrap();
    let query = source.split("RETURN QUERY").nth(1).unwrap().split(';').next().unwrap().to_owned();
    (1..)
        .zip(variables)
        .fold(query, |query, (number, variable)| query.replace(variable, &format!("${number}")))
}

/// The memories, sessions, terms and vectors of a list are found one by one. A point of the past costs a probe of
/// the log for each memory that has changed since; an undo finds heads, versions and paths by their keys.
#[tokio::test]
async fn lists_past_and_undo_are_found_key_by_key() {
    let (place, index, _database) = Place::on_postgres().await;
    let [unchanged, by_log, by_heads, redacted, of_memory, differences, batch, number] =
        Past::statements_on_postgres();
    let at_paths = "uuid, uuid, bigint, text, text, bigint";
    let of_store = "(tenant_id = $1) AND (store_id = $2)";
    let memory = "using memory_pkey";
    let probe = "using version_memory";
    let version = "using version_pkey";
    let at = statement("AT").replace("VERSION_COLUMNS", &statement("VERSION_COLUMNS"));
    let terms = "(tenant_id = $1) AND (store_id = $2) AND (memory_id = m.memory_id)";
    let of_versions = "(store_id = $2) AND (memory_id = version.memory_id)";
    let of_models = "(store_id = $2) AND (memory_id = version.memory_id) AND (model = $3)";
    let of_version = "(store_id = $2) AND (version_id >= ";
    let of_changes = "(tenant_id = $1) AND (store_id = $2) AND (seq > $3)";
    let of_vectors = ["p_tenant", "p_store", "p_model", "v_since"];
    let of_states = ["p_tenant", "p_stores", "p_model"];
    let of_search = ["p_tenant", "p_store", "p_since", "p_analyser", "p_unindexed"];
    let vectors = query_of(&place, "embedding_changes", &of_vectors).await;
    let states = query_of(&place, "embedding_states", &of_states).await;
    let search = query_of(&place, "search_changes", &of_search).await;
    let (head, doc) = ("Index Scan using memory_pkey", "Index Scan using search_doc_pkey");
    let earlier = ["(seq > $4) AND (seq <= $5)", of_models, "(store_id = $2) AND (memory_id = o.memory_id)"];
    for (query, types, parts) in [
        (unchanged, at_paths, &["using memory_path", "(path >= $4) AND (path < $5)"][..]),
        (by_log, at_paths, &["(seq > $3)", memory, probe, version]),
        (by_heads, at_paths, &[memory, probe, version, of_store]),
        (redacted, "uuid, uuid, bigint, uuid, bigint", &["(seq > $3)", memory, probe, version]),
        (of_memory, "uuid, uuid, bigint, uuid", &["(memory_id = $4)", memory, probe, version]),
        (differences, "uuid, uuid, bigint, bigint", &["(seq > $3)", memory, probe, version]),
        (batch, "uuid, uuid, bigint, bigint, uuid, uuid", &["(memory_id > $5)", memory, probe, version]),
        (number, "uuid, uuid, bigint, uuid, uuid", &["(memory_id <= $5)", memory, probe, version]),
        (statement("CREATED_SINCE"), "uuid, uuid, bigint", &[version, "(seq >= $3)"]),
        (statement("HEADS"), "uuid, uuid, uuid[]", &[memory, "(memory_id = ids.id)"]),
        (at, "uuid, uuid, text", &[version, "(store_id = $2) AND (seq = "]),
        (statement("OCCUPIED"), "uuid, uuid, text", &["using memory_path", "(path = texts.text)"]),
        (statement("DIRECTORIES"), "uuid, uuid, text", &["using directory_pkey", "(path = texts.text)"]),
        (statement("DIRECTORIES_AT"), "uuid, uuid, text", &["(path = texts.text)"]),
        (statement("SESSIONS"), "uuid, uuid[]", &["(session_id = ids.id)"]),
        (statement("ATTACHMENTS"), "uuid, uuid[]", &["(session_id = ids.id)", "(store_id = r.store_id)"]),
        (statement("WHOLE"), "uuid, uuid, bigint", &[doc, terms]),
        (statement("PAGE"), "uuid, uuid, bigint, bigint", &["(seq > $3)", of_versions]),
        (statement("EARLIER"), "uuid, uuid, text, bigint, bigint", &earlier),
        (statement("SAME_TEXT"), "uuid, uuid, text, bigint, bigint", &[of_models, of_version, head]),
        (vectors, "uuid, uuid, text, bigint", &["(store_id = $2) AND (model = $3) AND (edit > $4)"]),
        (states, "uuid, uuid[], text", &["(store_id = ids.id)", "(store_id = ids.id) AND (model = $3)"]),
        (search, "uuid, uuid, bigint, bigint, uuid[]", &[of_changes, head, doc, terms]),
    ] {
        assert_is_by_keys(&index, &place, &query, types, parts).await;
    }
}
