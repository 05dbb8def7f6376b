//! A request reads about what it shows or changes, however much the store holds.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use keepsake_index::postgres::PostgresOptions;
use keepsake_index::{Directory, PostgresIndex, SqliteIndex};

use crate::place::{Place, deleted, edited};
use crate::subject::{Raw, postgres_index, sqlite_index};

const MEMORIES: u64 = 100_000;
const DIRECTORIES: u64 = 10;
const SHOWN: u64 = 1000;

/// A hundred thousand memories in ten directories, written past the commits in
/// an order that is not that of their names.
async fn fill(place: &Place) {
    let numbers = "WITH RECURSIVE counted(n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM counted WHERE n < 99999), \
        numbered(number) AS (SELECT (n * 7919) % 100000 FROM counted) ";
    let random_id = match place.raw {
        Raw::Sqlite(_) => "randomblob(16)",
        Raw::Postgres(_) => "gen_random_uuid()",
    };
    let (no, some_hash) = match place.raw {
        Raw::Sqlite(_) => ("0", "zeroblob(32)"),
        Raw::Postgres(_) => ("false", "sha256('')"),
    };
    let memories = format!(
        "INSERT INTO memory (tenant_id, store_id, memory_id, path, parent, name, head_seq, version_id, blob_id, \
         size_bytes, sha256, first_line, pinned, created_at, updated_at) {numbers} \
         SELECT $1, $2, {random_id}, '/d' || (number % 10) || '/f' || (100000 + number), '/d' || (number % 10) || '/', \
         'f' || (100000 + number), 1, {random_id}, {random_id}, 7, {some_hash}, 'a first line of usual length', {no}, \
         1, 1 FROM numbered"
    );
    place.raw.execute(&memories, &place.ids()).await;
    place
        .raw
        .execute(
            "INSERT INTO directory (tenant_id, store_id, path, parent, name, files, bytes, visible_children) \
             SELECT tenant_id, store_id, parent, '/', substr(parent, 2, 2), count(*), 7 * count(*), count(*) \
             FROM memory WHERE tenant_id = $1 AND store_id = $2 GROUP BY tenant_id, store_id, parent",
            &place.ids(),
        )
        .await;
    place
        .raw
        .execute(
            "UPDATE directory SET files = 100000, bytes = 700000, visible_children = 10 \
             WHERE tenant_id = $1 AND store_id = $2 AND path = '/'",
            &place.ids(),
        )
        .await;
    if matches!(place.raw, Raw::Postgres(_)) {
        // As its autovacuum does; nothing does in SQLite.
        place.raw.execute("ANALYZE", &[]).await;
    }
}

fn assert_is_complete(root: &Directory) {
    assert_eq!((root.files, root.size_bytes), (MEMORIES, 7 * MEMORIES));
    assert_eq!(root.total_entries, DIRECTORIES + MEMORIES);
    assert_eq!(root.entries.len() as u64, SHOWN);
    assert_eq!(root.entries[0].path, "/d0/");
    assert_eq!(root.entries[1].path, "/d0/f100000");
    assert_eq!(root.entries[999].path, "/d0/f109980");
}

/// An index of one connection, whose statistics can be asked for.
struct Watched {
    index: PostgresIndex,
    place: Place,
}

impl Watched {
    /// Rows of tables and entries of indexes that `operation` reads.
    async fn rows_read(&self, operation: impl Future<Output = ()>) -> u64 {
        let before = self.rows_read_so_far().await;
        operation.await;
        self.rows_read_so_far().await - before
    }

    async fn rows_read_so_far(&self) -> u64 {
        sqlx::query("SELECT pg_stat_force_next_flush()")
            .execute(self.index.app_pool())
            .await
            .unwrap();
        let read = "SELECT CAST(sum(pg_stat_get_tuples_returned(oid)) AS BIGINT) FROM pg_class \
                    WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'i')";
        u64::try_from(self.place.raw.numbers(read, &[]).await[0][0]).unwrap()
    }
}

#[tokio::test]
async fn postgres_reads_about_as_many_rows_as_it_shows_or_changes() {
    let (_index, raw, database) = postgres_index().await;
    let options = PostgresOptions {
        max_connections: 1,
        ..PostgresOptions::new(database.database.url())
    };
    let index = PostgresIndex::connect(&options).await.unwrap();
    let place = Place::on(Arc::new(index.clone()), Raw::Postgres(raw)).await;
    fill(&place).await;
    let watched = Watched {
        index,
        place: place.clone(),
    };
    // Often enough that plans for any parameters replace those for these.
    for round in 0..8 {
        let read = watched
            .rows_read(async { assert_is_complete(&place.directory("/", SHOWN).await) })
            .await;
        assert!(read >= SHOWN, "the count of rows read does not work: {read}");
        assert!(read <= SHOWN + 200, "{read} rows to show {SHOWN}");
        for at in ["/d3", "/"] {
            let short = async { assert_eq!(place.directory(at, 10).await.entries.len(), 10) };
            let read = watched.rows_read(short).await;
            assert!(read <= 200, "{read} rows to show 10 of {at}");
        }
        let read = watched
            .rows_read(async { drop(place.memory("/d7/f100007").await) })
            .await;
        assert!(read <= 10, "{read} rows to find one memory");

        let at = format!("/d3/new/{round}");
        let read = watched
            .rows_read(async { drop(place.create(&at, 1).await) })
            .await;
        assert!(read <= 200, "{read} rows to create one memory");
        let head = place.memory(&at).await;
        let edit = place.commit_of(vec![edited(&head, 1)]);
        let read = watched.rows_read(async { drop(place.run(&edit).await) }).await;
        assert!(read <= 100, "{read} rows to edit one memory");
        let head = place.memory(&at).await;
        let delete = place.commit_of(vec![deleted(&head)]);
        let read = watched.rows_read(async { drop(place.run(&delete).await) }).await;
        assert!(read <= 100, "{read} rows to delete one memory");
    }
}

/// Counts what SQLite's readers do, in hundreds of steps of its machine.
async fn watch(index: &SqliteIndex) -> Arc<AtomicU64> {
    let hundreds_of_steps = Arc::new(AtomicU64::new(0));
    let pool = index.reader_pool();
    let mut readers = Vec::new();
    for _ in 0..pool.options().get_max_connections() {
        let mut reader = pool.acquire().await.unwrap();
        let counter = Arc::clone(&hundreds_of_steps);
        reader
            .lock_handle()
            .await
            .unwrap()
            .set_progress_handler(100, move || {
                counter.fetch_add(1, Ordering::Relaxed);
                true
            });
        readers.push(reader);
    }
    hundreds_of_steps
}

#[tokio::test]
async fn sqlite_listing_does_work_in_proportion_to_what_it_shows() {
    let (index, raw, _folder) = sqlite_index().await;
    let place = Place::on(Arc::new(index.clone()), Raw::Sqlite(raw)).await;
    fill(&place).await;
    let hundreds_of_steps = watch(&index).await;
    assert_is_complete(&place.directory("/", SHOWN).await);
    let whole = hundreds_of_steps.swap(0, Ordering::Relaxed);
    assert!(whole >= SHOWN / 100, "the count of steps does not work: {whole}");
    assert!(whole <= SHOWN, "{whole}00 steps to show {SHOWN} entries");

    place.directory("/d3", 10).await;
    let short = hundreds_of_steps.swap(0, Ordering::Relaxed);
    assert!(short <= 50, "{short}00 steps to show 10 entries");
    place.memory("/d7/f100007").await;
    let one = hundreds_of_steps.swap(0, Ordering::Relaxed);
    assert!(one <= 10, "{one}00 steps to find one memory");
}
