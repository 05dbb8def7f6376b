//! A request reads about what it shows or changes, however much the store holds.

use std::collections::BTreeMap;

use keepsake_core::actor::ActorKind;
use keepsake_index::{Directory, Operation, RedactionOutcome, StoreListing, VersionListing};

use crate::prelude::*;

const MEMORIES: u64 = 100_000;
const DIRECTORIES: u64 = 10;
const SHOWN: u64 = 1000;

/// A hundred thousand memories in ten directories of one store, and the version that made each, among
/// many small stores of many tenants, written past the commits in an order that is not that of
/// their names; without statistics.
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
             numbered(number) AS (SELECT (n * CAST(7919 AS BIGINT)) % {count} FROM counted) \
             SELECT {tenant_id}, {store_id}, {random_id}, '/d' || (number % 10) || '/f' || ({count} + number), \
             '/d' || (number % 10) || '/', 'f' || ({count} + number), 1 + number, {version_id}, {version_id}, 7, \
             {some_hash}, 'a first line of usual length', {no}, 1, 1 FROM numbered"
        );
        let ids = place.ids();
        place.raw.execute(&memories, if tenant_id == "$1" { &ids } else { &[] }).await;
    }
    let root = format!(
        "UPDATE directory SET files = {MEMORIES}, bytes = 7 * {MEMORIES}, visible_children = 10 WHERE path = '/'"
    );
    let store =
        format!("UPDATE store SET seq = {MEMORIES}, memory_count = {MEMORIES}, live_bytes = 7 * {MEMORIES}");
    // One moment after the other, by ten actors in turn.
    let versions = format!(
        "INSERT INTO version (tenant_id, store_id, seq, version_id, memory_id, op, path, blob_id, size_bytes, \
         sha256, created_at, actor_type, actor_id) SELECT tenant_id, store_id, head_seq, version_id, memory_id, \
         'created', path, blob_id, size_bytes, sha256, head_seq, '{}', 'actor ' || (head_seq % 10) FROM memory",
        ActorKind::User.name()
    );
    for statement in [
        "INSERT INTO directory (tenant_id, store_id, path, parent, name, files, bytes, visible_children) \
         SELECT tenant_id, store_id, parent, '/', substr(parent, 2, 2), count(*), 7 * count(*), count(*) \
         FROM memory GROUP BY tenant_id, store_id, parent",
        &root,
        &store,
        &versions,
    ] {
        place.raw.execute(statement, &[]).await;
    }
}

/// Lists of all kinds that show little of much: what they are called, and what
/// they are. The first and the last page of one, and one of its middle, cost
/// the same.
fn memory_lists() -> Vec<(&'static str, MemoryListing, usize)> {
    let (middle, last) = (MEMORIES + MEMORIES / 2, 2 * MEMORIES - 1010);
    let in_root = |number: u64| Some(format!("/d{}/f{number}", number % 10));
    let in_directory = |number: u64| Some(format!("/d3/f{}", number / 10 * 10 + 3));
    vec![
        ("show the root", listing("/", Depth::Children, None, 20), 10),
        ("list from the beginning", listing("/", Depth::All, None, 100), 100),
        ("list from the middle", listing("/", Depth::All, in_root(middle), 100), 100),
        ("list to the end", listing("/", Depth::All, Some(format!("/d9/f{}", last / 10 * 10 + 9)), 100), 100),
        ("show a directory's middle", listing("/d3/", Depth::Children, in_directory(middle), 100), 100),
        ("show a directory's end", listing("/d3/", Depth::Children, in_directory(last), 100), 100),
    ]
}

fn version_lists(memory_id: MemoryId) -> Vec<(&'static str, VersionListing, usize)> {
    let page = VersionListing { limit: 20, ..VersionListing::default() };
    let older = VersionListing { before: Some(50_000), ..page.clone() };
    let at = |place| Some(Timestamp::from_micros(place));
    let within = |page, to| VersionListing { created_from: at(40_000), created_to: at(to), ..page };
    let of_actor = Some((ActorKind::User, "actor 3".to_owned()));
    vec![
        ("list older versions", older.clone(), 20),
        ("list a memory's versions", VersionListing { memory_id: Some(memory_id), ..page.clone() }, 1),
        ("list an actor's versions", VersionListing { actor: of_actor.clone(), ..older.clone() }, 20),
        ("list creations", VersionListing { operation: Some(Operation::Created), ..older }, 20),
        ("list versions of a time", within(page.clone(), 40_005), 6),
        (
            "list an actor's versions of a time",
            within(VersionListing { actor: of_actor, ..page }, 40_100),
            10,
        ),
    ]
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
        let flush = self.index.execute("SELECT pg_stat_force_next_flush()");
        flush.await.unwrap();
        let read = "SELECT CAST(sum(pg_stat_get_tuples_returned(oid)) AS BIGINT) FROM pg_class \
                    WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'i')";
        u64::try_from(self.raw.number(read, &[]).await).unwrap()
    }

    /// Reads and changes heads, as the memory tool does.
    async fn use_heads(&mut self, place: &Place, round: u32) {
        let at = format!("/d3/new/{round}");
        let head = self.watch("create a memory", 100, place.create(&at, 1)).await;
        let (ids, paths) = ([head.memory_id], [at.as_str(), "/d0/none", "/none"]);
        let memories = &place.index.memories;
        let all = memories.find_all(place.tenant_id, place.store_id, &ids, &paths);
        let all = self.watch("find several memories", 40, all).await;
        assert_eq!(all.unwrap().unwrap().memories.len(), 1);
        self.watch("edit a memory", 100, place.change(vec![edited(&head, 1)])).await;
        let delete = deleted(&place.memory(&at).await);
        self.watch("delete a memory", 100, place.change(vec![delete.clone()])).await;
        let mut back = created(&at, 1);
        back.memory_id = head.memory_id;
        back.wanted.from = Origin::Deleted(head.memory_id, delete.version_id);
        self.watch("bring a memory back", 100, place.change(vec![back])).await;
        let (redactions, audited) = (&place.index.redactions, audited_by(Auditor::Job, NOW));
        let redacted = redactions.redact(place.tenant_id, place.store_id, head.version_id, &audited);
        let redacted = self.watch("redact a version", 100, redacted).await.unwrap();
        assert!(matches!(redacted, RedactionOutcome::Redacted { .. }), "{redacted:?}");
        let head = place.memory(&at).await;
        self.watch("pin a memory", 20, place.pin(&head, ExpiryChange::pinned(true))).await;
    }

    /// Reads lists and history, as the memory stores API does; the lists are as
    /// long as they should be once the store is filled.
    async fn use_lists(&mut self, place: &Place, is_filled: bool) {
        let (tenant_id, store_id) = (place.tenant_id, place.store_id);
        for (name, listing, shown) in memory_lists() {
            let page = place.index.memories.list(tenant_id, store_id, &listing);
            // Each memory, its place in the index, and nothing where its last read would be.
            let limit = 2 * shown as u64 + 20;
            let page = self.watch(name, limit, page).await.unwrap().unwrap();
            assert!(!is_filled || page.items.len() == shown, "{name}");
        }
        let some_version = place.index.versions.find_at(tenant_id, store_id, 40_000);
        let some_version = self.watch("find a version", 10, some_version).await.unwrap();
        let unknown = (MemoryId::from_uuid(Uuid::nil()), VersionId::from_uuid(Uuid::nil()));
        let (memory_id, version_id) =
            some_version.map_or(unknown, |version| (version.memory_id, version.version_id));
        for (name, listing, shown) in version_lists(memory_id) {
            // Two times are found by halving a hundred thousand.
            let probes = if listing.created_from.is_some() { 80 } else { 0 };
            let limit = 2 * shown as u64 + probes + 20;
            let page = place.index.versions.list(tenant_id, store_id, &listing);
            let (_, versions) = self.watch(name, limit, page).await.unwrap().unwrap();
            assert!(!is_filled || versions.len() == shown, "{name}");
        }
        let memory = place.index.memories.find(tenant_id, store_id, memory_id);
        self.watch("find a memory by its id", 10, memory).await.unwrap();
        let version = place.index.versions.find(tenant_id, store_id, version_id);
        self.watch("find a version by its id", 10, version).await.unwrap();
        let stores = StoreListing { limit: 20, ..StoreListing::default() };
        let stores = place.index.stores.list(tenant_id, &stores);
        self.watch("list stores", 10, stores).await.unwrap();
    }

    fn assert_within_limits(&mut self) {
        for (name, (read, limit)) in std::mem::take(&mut self.least) {
            assert!(read <= limit, "{read} rows were read to {name}");
        }
    }
}

#[tokio::test]
async fn postgres_reads_about_as_many_rows_as_it_shows_or_changes() {
    let (_index, raw, database) = postgres_index().await;
    let options = PostgresOptions { max_connections: 1, ..PostgresOptions::new(database.database.url()) };
    let index = PostgresIndex::connect(&options).await.unwrap();
    let place = Place::on(index.clone().into(), Raw::Postgres(raw)).await;
    let mut watched = Watched { index, raw: place.raw.clone(), least: BTreeMap::new() };
    // A store grows while the sessions that serve it keep the plans they made when its
    // tables were empty.
    watched.use_lists(&place, false).await;
    watched.use_heads(&place, 0).await;
    for statement in [
        "DELETE FROM memory WHERE tenant_id = $1 AND store_id = $2",
        "DELETE FROM version WHERE tenant_id = $1 AND store_id = $2",
        "DELETE FROM directory WHERE tenant_id = $1 AND store_id = $2 AND path <> '/'",
    ] {
        place.raw.execute(statement, &place.ids()).await;
    }
    fill(&place).await;
    for round in 1..13 {
        watched.use_lists(&place, true).await;
        watched.use_heads(&place, round).await;
        place.change(vec![deleted(&place.memory(&format!("/d3/new/{round}")).await)]).await;
        if round == 4 {
            watched.assert_within_limits();
            // Then there are statistics, which the autovacuum makes within a minute.
            place.raw.execute("ANALYZE", &[]).await;
        }
        if round > 4 {
            let root = watched.watch("list many", SHOWN + 200, place.directory("/", SHOWN)).await;
            assert_is_complete(&root);
            for at in ["/d3", "/"] {
                let short = watched.watch("list ten", 200, place.directory(at, 10)).await;
                assert_eq!(short.entries.len(), 10);
            }
            watched.watch("find a memory", 10, place.memory("/d7/f100007")).await;
        }
        if matches!(round, 1 | 9) {
            // Drops the counts with rows that the planner and the filling read.
            watched.least.clear();
        }
    }
    assert!(watched.least["list many"].0 >= SHOWN, "the count of rows read does not work");
    watched.assert_within_limits();
}

#[tokio::test]
async fn sqlite_listing_does_work_in_proportion_to_what_it_shows() {
    let (place, index, _folder) = Place::on_sqlite().await;
    fill(&place).await;
    let hundreds_of_steps = count_steps(&index, 100).await;
    // Since the last time.
    let assert_steps_to = |name: &str, limit: u64| {
        let steps = hundreds_of_steps.swap(0, Ordering::Relaxed);
        assert!(steps <= limit, "{steps}00 steps to {name}");
        steps
    };
    assert_is_complete(&place.directory("/", SHOWN).await);
    let whole = assert_steps_to("show all entries", SHOWN);
    assert!(whole >= SHOWN / 100, "the count of steps does not work: {whole}");
    place.directory("/d3", 10).await;
    assert_steps_to("show 10 entries", 50);
    place.memory("/d7/f100007").await;
    assert_steps_to("find one memory", 10);

    let version = place.index.versions.find_at(place.tenant_id, place.store_id, 40_000).await;
    let version = version.unwrap().unwrap();
    let found = place.index.versions.find(place.tenant_id, place.store_id, version.version_id);
    assert_eq!(found.await.unwrap().unwrap().1, Some(version.clone()));
    let memory = place.index.memories.find(place.tenant_id, place.store_id, version.memory_id);
    memory.await.unwrap().unwrap();
    assert_steps_to("find two versions and a memory", 10);
    for (name, listing, shown) in memory_lists() {
        assert_eq!(place.page(&listing).await.items.len(), shown, "{name}");
        assert_steps_to(name, 2 * shown as u64);
    }
    for (name, listing, shown) in version_lists(version.memory_id) {
        let page = place.index.versions.list(place.tenant_id, place.store_id, &listing).await;
        assert_eq!(page.unwrap().unwrap().1.len(), shown, "{name}");
        assert_steps_to(name, 40);
    }
}
