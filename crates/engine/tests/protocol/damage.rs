//! Damage of the file of SQLite, as `keepsake verify` finds it.

use std::path::Path;

use sqlx::sqlite::SqliteConnection;
use sqlx::{AssertSqlSafe, Connection};

use crate::prelude::*;

const PAGE_BYTES: usize = 4096;
/// The smallest part of a file that a disk loses.
const SECTOR_BYTES: usize = 512;
const SECTORS: usize = PAGE_BYTES / SECTOR_BYTES;

/// Memories of several sizes, with history, and pages that became free.
async fn fill(setup: &TestEngine) {
    let words = |count: usize| {
        let word = |number: usize| format!("word{} ", number * number % 9_973);
        (0..count).map(word).collect::<String>()
    };
    for (number, count) in [3, 60, 300, 900, 3_000, 5, 1_500, 40, 200, 10].into_iter().enumerate() {
        let path = format!("/memories/folder{}/memory{number}.md", number % 3);
        setup.create(&path, &words(count)).await;
    }
    setup.call(insert("/memories/folder0/memory0.md", 0, "new")).await;
    setup.call(rename("/memories/folder1", "/memories/moved")).await;
    let large = setup.make("/large.md", &words(4_000)).await;
    setup.update(&large, new_content("small")).await.unwrap();
    setup.redact(&large).await;
    setup.engine.replica.flush().await.unwrap();
}

/// What a verification of a file finds; `None`: the file could not be opened or
/// verified.
async fn verify(file: &Path) -> Option<Verification> {
    let url = format!("sqlite://{}", file.display());
    let index = Index::from(SqliteIndex::open(&url).await.ok()?);
    let clock = Arc::new(ManualClock::new(Timestamp::default()));
    let found = engine_on(&index, None, &clock, |_| {}).verifier.run(4, |_| {}).await;
    index.close().await;
    found.ok()
}

/// Every value that can be read from a file, and its schema.
async fn dump(file: &Path) -> Vec<String> {
    let url = format!("sqlite://{}?mode=ro&immutable=1", file.display());
    let mut connection = SqliteConnection::connect(&url).await.unwrap();
    let tables: Vec<(String, String)> = sqlx::query_as(
        "SELECT name, sql FROM sqlite_schema WHERE type = 'table' AND sql IS NOT NULL ORDER BY name",
    )
    .fetch_all(&mut connection)
    .await
    .unwrap();
    let mut dump = Vec::new();
    for (table, schema) in tables {
        let quoted = format!(
            "SELECT group_concat('quote(\"' || name || '\")', ' || '','' || ') FROM pragma_table_info('{table}')"
        );
        let columns: String =
            sqlx::query_scalar(AssertSqlSafe(quoted)).fetch_one(&mut connection).await.unwrap();
        let rows = format!("SELECT {columns} AS line FROM \"{table}\" ORDER BY line");
        let rows: Vec<String> =
            sqlx::query_scalar(AssertSqlSafe(rows)).fetch_all(&mut connection).await.unwrap();
        dump.push(schema);
        dump.extend(rows);
    }
    connection.close().await.unwrap();
    dump
}

/// Inverts two or three sectors of each page, one at a time. A verification finds the
/// damage, or every value can still be read: then nothing used the bytes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn damaged_sector_of_any_page_is_found_or_unused() {
    let setup = TestEngine::sqlite().await;
    fill(&setup).await;
    setup.index.close().await;
    let file = setup.sqlite_file();
    let sound = std::fs::read(&file).unwrap();
    let pages = sound.len() / PAGE_BYTES;
    assert!(pages > 100, "{pages}");
    let copies = tempfile::tempdir().unwrap();
    let copy = copies.path().join("sound.db");
    std::fs::write(&copy, &sound).unwrap();
    let expected = dump(&copy).await;
    assert_eq!(verify(&copy).await.unwrap().problems, []);

    let mut found = 0;
    // Over three pages, the sectors at each place of a page have their turn.
    for sector in (0..pages * SECTORS).step_by(3) {
        let mut bytes = sound.clone();
        for byte in &mut bytes[sector * SECTOR_BYTES..][..SECTOR_BYTES] {
            *byte ^= 0xff;
        }
        let copy = copies.path().join(format!("{sector}.db"));
        std::fs::write(&copy, bytes).unwrap();
        if verify(&copy).await.is_none_or(|found| found.problem_count > 0) {
            found += 1;
        } else {
            let (page, part) = (sector / SECTORS + 1, sector % SECTORS);
            let read = dump(&copy).await;
            let other = read.iter().zip(&expected).find(|(read, expected)| read != expected);
            assert_eq!(other, None, "page {page}, sector {part}");
            assert_eq!(read.len(), expected.len(), "page {page}, sector {part}");
        }
        for suffix in ["", "-wal", "-shm"] {
            let _ = std::fs::remove_file(copies.path().join(format!("{sector}.db{suffix}")));
        }
    }
    assert!(3 * found > pages * 2, "{found} of {pages} pages with {SECTORS} sectors each");
}
