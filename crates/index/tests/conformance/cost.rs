//! A request reads about what it shows or changes, however much the store holds.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use keepsake_index::postgres::PostgresOptions;
use keepsake_index::{Directory, PostgresIndex, SqliteIndex};

use crate::place::{Place, deleted, edited};
use crate::subject::{Raw, postgres_index, sqlite_index};

const MEMORIES: u64 = 100_000;
const DIRECTORIES: u64 = 10;
const SHOWN: u64 = 1000;

/// A hundred thousand memories in ten directories of one store, among many
/// small stores of many tenants, written past the commits in an order that is
/// not that of their names.
async fn fill(place: &Place) {
    let (random_id, some_hash, no) = match place.raw {
        Raw::Sqlite(_) => ("randomblob(16)", "zeroblob(32)", "0"),
        Raw::Postgres(_) => ("gen_random_uuid()", "sha256('')", "false"),
    };
    // As many ids as there are tenants and stores, from the numbers of their rows.
    let id_of = |number: &str| match place.raw {
        Raw::Sqlite(_) => format!("unhex(printf('%032x', {number}))"),
        Raw::Postgres(_) => format!("CAST(lpad(to_hex({number}), 32, '0') AS uuid)"),
    };
    let (small_tenant, small_store) = (id_of("number / 100"), id_of("number / 10"));
    let version_id = id_of("1 + number");
    let mut stores = vec![("$1", "$2", MEMORIES)];
    if matches!(place.raw, Raw::Postgres(_)) {
        // Only its plans depend on what else there is.
        stores.push((&small_tenant, &small_store, 20_000));
    }
    for (tenant_id, store_id, count) in stores {
        let memories = format!(
            "INSERT INTO memory (tenant_id, store_id, memory_id, path, parent, name, head_seq, version_id, blob_id, \
             size_bytes, sha256, first_line, pinned, created_at, updated_at) \
             WITH RECURSIVE counted(n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM counted WHERE n + 1 < {count}), \
             numbered(number) AS (SELECT (n * 7919) % {count} FROM counted) \
             SELECT {tenant_id}, {store_id}, {random_id}, '/d' || (number % 10) || '/f' || (100000 + number), \
             '/d' || (number % 10) || '/', 'f' || (100000 + number), 1 + number, {version_id}, {version_id}, 7, \
             {some_hash}, 'a first line of usual length', {no}, 1, 1 FROM numbered"
        );
        let ids = place.ids();
        place
            .raw
            .execute(&memories, if tenant_id == "$1" { &ids } else { &[] })
            .await;
    }
    for statement in [
        "INSERT INTO directory (tenant_id, store_id, path, parent, name, files, bytes, visible_children) \
         SELECT tenant_id, store_id, parent, '/', substr(parent, 2, 2), count(*), 7 * count(*), count(*) \
         FROM memory GROUP BY tenant_id, store_id, parent",
        "INSERT INTO version (tenant_id, store_id, seq, version_id, memory_id, op, path, blob_id, size_bytes, \
         sha256, created_at) SELECT tenant_id, store_id, head_seq, version_id, memory_id, 'created', path, blob_id, \
         size_bytes, sha256, 1 FROM memory",
        "UPDATE directory SET files = 100000, bytes = 700000, visible_children = 10 WHERE path = '/'",
        "UPDATE store SET seq = 100000, memory_count = 100000, live_bytes = 700000",
    ] {
        place.raw.execute(statement, &[]).await;
    }
    place.raw.settle().await;
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
    raw: Raw,
    /// The least that each operation read, and what it may read.
    least: BTreeMap<&'static str, (u64, u64)>,
}

impl Watched {
    /// Counts the rows of tables and entries of indexes that `operation` reads.
    async fn watch<T>(&mut self, name: &'static str, limit: u64, operation: impl Future<Output = T>) -> T {
        let before = self.rows_read_so_far().await;
        let answer = operation.await;
        let read = self.rows_read_so_far().await - before;
        let least = &mut self.least.entry(name).or_insert((read, limit)).0;
        *least = read.min(*least);
        answer
    }

    async fn rows_read_so_far(&self) -> u64 {
        sqlx::query("SELECT pg_stat_force_next_flush()")
            .execute(self.index.app_pool())
            .await
            .unwrap();
        let read = "SELECT CAST(sum(pg_stat_get_tuples_returned(oid)) AS BIGINT) FROM pg_class \
                    WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'i')";
        u64::try_from(self.raw.numbers(read, &[]).await[0][0]).unwrap()
    }
}

#[tokio::test]
async fn postgres_reads_about_as_many_rows_as_it_shows_or_changes() {
    let (_index, raw, database) = postgres_index().await;
    let raw = Raw::Postgres(raw);
    let options = PostgresOptions {
        max_connections: 1,
        ..PostgresOptions::new(database.database.url())
    };
    let index = PostgresIndex::connect(&options).await.unwrap();
    let place = Place::on(Arc::new(index.clone()), raw.clone()).await;
    fill(&place).await;
    let least = BTreeMap::new();
    let mut watched = Watched { index, raw, least };
    for round in 0..8 {
        let root = watched
            .watch("list many", SHOWN + 200, place.directory("/", SHOWN))
            .await;
        assert_is_complete(&root);
        for at in ["/d3", "/"] {
            let short = watched.watch("list ten", 200, place.directory(at, 10)).await;
            assert_eq!(short.entries.len(), 10);
        }
        watched
            .watch("find a memory", 10, place.memory("/d7/f100007"))
            .await;

        let at = format!("/d3/new/{round}");
        let head = watched.watch("create a memory", 100, place.create(&at, 1)).await;
        let edit = place.commit_of(vec![edited(&head, 1)]);
        watched.watch("edit a memory", 100, place.run(&edit)).await;
        let version = place.index.version_at(place.tenant_id, place.store_id, head.seq);
        let found = watched.watch("find a version", 10, version).await.unwrap();
        assert_eq!(found.unwrap().content.unwrap().blob_id, head.blob_id);
        let delete = place.commit_of(vec![deleted(&place.memory(&at).await)]);
        watched.watch("delete a memory", 100, place.run(&delete)).await;

        if round == 4 {
            // From here on plans are for any parameters, and what the filling
            // read has been counted.
            watched.least.clear();
        }
    }
    assert!(
        watched.least["list many"].0 >= SHOWN,
        "the count of rows read does not work"
    );
    for (name, (read, limit)) in watched.least {
        assert!(read <= limit, "{read} rows were read to {name}");
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
