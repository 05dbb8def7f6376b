//! The end of tenants, stores and memories: each row is removed and counted once.

use std::collections::BTreeMap;

use futures::future::join_all;
use keepsake_core::{ErasureId, TenantId};
use keepsake_index::{
    Auditor, DeletionState, ErasedBlobs, Erasure, ErasureCreation, NewErasure, ObjectVersions, Selector,
    TenantDeletion,
};

use crate::place::{
    NOW, Place, actor, after_seconds, audited, audited_by, by_tenant, edited, next_uuid, renamed,
};
use crate::subject::{Raw, Subject};

/// Tables that keep what they have of a tenant that is gone.
const KEPT: [&str; 1] = ["tenant_deletion"];

/// Every table that has a `tenant_id`, asked of the database itself: one that
/// is made later is looked at too.
async fn tables(raw: &Raw) -> Vec<String> {
    let query = match raw {
        Raw::Postgres(_) => {
            // Without the partitions of a table.
            "SELECT CAST(c.relname AS text) FROM pg_class c \
             JOIN pg_attribute a ON a.attrelid = c.oid AND a.attname = 'tenant_id' \
             WHERE c.relnamespace = 'public'::regnamespace AND c.relkind IN ('r', 'p') AND NOT c.relispartition \
             ORDER BY c.relname"
        }
        Raw::Sqlite(_) => {
            "SELECT t.name FROM sqlite_schema t JOIN pragma_table_info(t.name) c ON c.name = 'tenant_id' \
             WHERE t.type = 'table' ORDER BY t.name"
        }
    };
    let rows = raw.rows(query, &[]).await;
    let tables = rows.into_iter().map(|mut row| row.remove(0).unwrap());
    tables.filter(|table| !KEPT.contains(&table.as_str())).collect()
}

/// Columns that must have a value, and one that their type takes.
async fn columns(raw: &Raw, table: &str) -> Vec<(String, &'static str)> {
    let (query, is_postgres) = match raw {
        Raw::Postgres(_) => (
            format!(
                "SELECT CAST(column_name AS text), CAST(data_type AS text) FROM information_schema.columns \
                 WHERE table_schema = 'public' AND table_name = '{table}' AND is_nullable = 'NO' \
                 AND is_identity = 'NO'"
            ),
            true,
        ),
        Raw::Sqlite(_) => {
            (format!("SELECT name, type FROM pragma_table_info('{table}') WHERE \"notnull\""), false)
        }
    };
    let value = move |of_type: &str| match of_type {
        "uuid" | "BLOB" => "$1",
        "bytea" => "decode(md5(CAST($1 AS text)), 'hex')",
        "jsonb" | "text" | "TEXT" => "'{}'",
        "boolean" if is_postgres => "false",
        _ => "1",
    };
    let rows = raw.rows(&query, &[]).await;
    rows.into_iter().map(|row| (row[0].clone().unwrap(), value(row[1].as_deref().unwrap()))).collect()
}

async fn count(raw: &Raw, table: &str, tenant_id: TenantId) -> u64 {
    let count = format!("SELECT count(*) FROM {table} WHERE tenant_id = $1");
    u64::try_from(raw.numbers(&count, &[tenant_id.uuid()]).await[0][0]).unwrap()
}

async fn rows_by_table(raw: &Raw, tenant_id: TenantId) -> BTreeMap<String, u64> {
    let mut rows = BTreeMap::new();
    for table in tables(raw).await {
        let many = count(raw, &table, tenant_id).await;
        rows.insert(table, many);
    }
    rows
}

/// A tenant with rows in every table that there is.
async fn tenant_with_everything(subject: &Subject) -> TenantId {
    let place = Place::new(subject).await;
    let tenant_id = place.tenant_id;
    for number in 0..3 {
        let head = place.create(&format!("/d{number}/a"), 10).await;
        place.change(vec![edited(&head, 20)]).await;
    }
    Place::of_tenant(subject, tenant_id).await.create("/b", 5).await;
    for table in tables(&subject.raw).await {
        if count(&subject.raw, &table, tenant_id).await > 0 {
            continue;
        }
        let columns = columns(&subject.raw, &table).await;
        let names: Vec<_> = columns.iter().map(|(name, _)| name.as_str()).collect();
        let values: Vec<_> = columns.iter().map(|(_, value)| *value).collect();
        let insert = format!("INSERT INTO {table} ({}) VALUES ({})", names.join(", "), values.join(", "));
        subject.raw.execute(&insert, &[tenant_id.uuid()]).await;
    }
    let rows = rows_by_table(&subject.raw, tenant_id).await;
    assert!(rows.len() >= 14 && rows.values().all(|many| *many > 0), "{rows:?}");
    tenant_id
}

async fn mark(subject: &Subject, tenant_id: TenantId) -> TenantDeletion {
    let marked = subject.index.tenant_deletions.begin(tenant_id, &audited()).await;
    marked.unwrap().unwrap()
}

async fn deletion(subject: &Subject, tenant_id: TenantId) -> TenantDeletion {
    let found = subject.index.tenant_deletions.find(tenant_id).await;
    found.unwrap().unwrap()
}

/// Purges to the end; returns the number of removed rows and of batches.
async fn purge(subject: &Subject, tenant_id: TenantId, limit: u32) -> (u64, u64) {
    let (mut rows, mut batches) = (0, 0);
    loop {
        let batch = subject.index.tenant_deletions.purge(tenant_id, NOW, limit).await.unwrap();
        assert!(batch.rows <= u64::from(limit), "{batch:?}");
        (rows, batches) = (rows + batch.rows, batches + 1);
        if batch.is_done {
            return (rows, batches);
        }
    }
}

async fn finish(subject: &Subject, tenant_id: TenantId) -> bool {
    let finished = subject.index.tenant_deletions.finish(tenant_id, after_seconds(9));
    finished.await.unwrap()
}

/// A row that a request writes which began before the tenant's end.
async fn write_late(subject: &Subject, tenant_id: TenantId) {
    let late = "INSERT INTO idempotency (tenant_id, scope_sha256, request_sha256, created_at) \
                VALUES ($1, '1', '2', 1)";
    let late = match subject.raw {
        Raw::Postgres(_) => late.to_owned(),
        Raw::Sqlite(_) => late.replace("'1', '2'", "x'01', x'02'"),
    };
    subject.raw.execute(&late, &[tenant_id.uuid()]).await;
}

pub(crate) async fn purge_leaves_no_row_in_any_table(subject: &Subject) {
    let other = tenant_with_everything(subject).await;
    let others = rows_by_table(&subject.raw, other).await;
    for limit in [1, 7, 1000] {
        let tenant_id = tenant_with_everything(subject).await;
        let before = rows_by_table(&subject.raw, tenant_id).await;
        assert_eq!(purge(subject, tenant_id, limit).await, (0, 1), "it lives");
        assert!(!finish(subject, tenant_id).await);
        assert_eq!(rows_by_table(&subject.raw, tenant_id).await, before);
        assert_eq!(subject.index.tenant_deletions.due(NOW, 10).await.unwrap(), []);

        mark(subject, tenant_id).await;
        let mut there = rows_by_table(&subject.raw, tenant_id).await;
        let (rows, batches) = purge(subject, tenant_id, limit).await;
        assert!(batches > rows / u64::from(limit), "{batches}");
        write_late(subject, tenant_id).await;
        assert!(!finish(subject, tenant_id).await, "a row is left");
        assert_eq!(purge(subject, tenant_id, limit).await.0, 1);
        assert!(finish(subject, tenant_id).await);
        let left = rows_by_table(&subject.raw, tenant_id).await;
        assert!(left.values().all(|many| *many == 0), "{left:?}");
        assert_eq!(rows_by_table(&subject.raw, other).await, others);
        let done = deletion(subject, tenant_id).await;
        assert_eq!((done.state, done.ended_at), (DeletionState::Done, Some(after_seconds(9))));
        *there.get_mut("idempotency").unwrap() += 1;
        assert_eq!(done.rows, there, "the report counts every row");
        assert_eq!(done.rows.values().sum::<u64>(), rows + 2);
        let by_operator = subject.index.audit.list_of_operator(None, 100).await.unwrap();
        let of_tenant = by_operator.iter().filter(|entry| entry.object_id == Some(tenant_id.uuid()));
        assert_eq!(of_tenant.count(), 2, "made and deleted, for ever");
    }
    // Stores of a deleted tenant are not purged separately.
    let (mine, theirs) = (Place::new(subject).await, Place::new(subject).await);
    let stores = &subject.index.store_deletions;
    for place in [&mine, &theirs] {
        let by = by_tenant(NOW);
        let deleted = stores.begin(place.tenant_id, place.store_id, &by);
        assert!(deleted.await.unwrap());
    }
    mark(subject, mine.tenant_id).await;
    let due = stores.due(10).await.unwrap();
    assert_eq!(due, [(theirs.tenant_id, theirs.store_id)]);
}

/// Purges a deleted store to the end; returns the number of removed rows and of blobs.
async fn purge_store(place: Place) -> (u64, u64) {
    let (mut rows, mut blobs) = (0, 0);
    loop {
        let stores = &place.index.store_deletions;
        let batch = stores.purge(place.tenant_id, place.store_id, NOW, 3).await.unwrap();
        (rows, blobs) = (rows + batch.rows, blobs + batch.blobs);
        if batch.is_done {
            return (rows, blobs);
        }
    }
}

fn below(place: &Place, prefix: &str) -> Selector {
    Selector::PathPrefix { store_id: place.store_id, below: prefix.to_owned() }
}

async fn ask(place: &Place, selector: Selector) -> ErasureId {
    let erasure = NewErasure {
        erasure_id: ErasureId::from_uuid(next_uuid()),
        selector,
        audited: audited_by(Auditor::Credential(actor()), after_seconds(50)),
    };
    let made = place.index.erasures.create(place.tenant_id, &erasure, None).await;
    assert_eq!(made.unwrap(), ErasureCreation::Created);
    erasure.erasure_id
}

/// Erases all rows, a few in each step.
async fn erase_rows(place: Place, erasure_id: ErasureId) {
    let (now, until) = (after_seconds(60), after_seconds(120));
    let erasures = &place.index.erasures;
    while !erasures.erase_rows(place.tenant_id, erasure_id, now, until, 8).await.unwrap().is_done {}
}

/// Tells every queued blob removed, and ends the erasure.
async fn end(place: &Place, erasure_id: ErasureId) -> Erasure {
    let (erasures, tenant_id) = (&place.index.erasures, place.tenant_id);
    let keys = erasures.queued_blobs(tenant_id, erasure_id, 10_000).await;
    let blobs =
        ErasedBlobs { keys: keys.unwrap(), orphans: 0, object_versions: ObjectVersions::NotVersioned };
    // Told twice, counted once.
    for _ in 0..2 {
        let told = erasures.blobs_erased(tenant_id, erasure_id, &blobs, after_seconds(120));
        told.await.unwrap();
    }
    for is_first in [true, false] {
        let by = audited_by(Auditor::Job, after_seconds(90));
        let finished = erasures.finish(tenant_id, erasure_id, &by).await;
        assert_eq!(finished.unwrap(), is_first);
    }
    erasures.find(tenant_id, erasure_id).await.unwrap().unwrap()
}

pub(crate) async fn workers_that_run_together_count_every_row_once(subject: &Subject) {
    let tenant_id = tenant_with_everything(subject).await;
    mark(subject, tenant_id).await;
    let mut there = rows_by_table(&subject.raw, tenant_id).await;
    there.remove("tenant");
    join_all((0..3).map(|_| purge(subject, tenant_id, 3))).await;
    assert_eq!(deletion(subject, tenant_id).await.rows, there);

    let place = Place::new(subject).await;
    for number in 0..4 {
        let head = place.create(&format!("/d/{number}"), 10).await;
        place.change(vec![edited(&head, 20)]).await;
    }
    let (stores, by) = (&place.index.store_deletions, by_tenant(NOW));
    let deleted = stores.begin(place.tenant_id, place.store_id, &by);
    assert!(deleted.await.unwrap());
    let racing = (0..4).map(|_| tokio::spawn(purge_store(place.clone())));
    let purged = join_all(racing).await.into_iter().map(Result::unwrap);
    let sum = purged.fold((0, 0), |sum, purged| (sum.0 + purged.0, sum.1 + purged.1));
    // Eight versions of four memories, two directories and the store.
    assert_eq!(sum, (15, 8));

    let place = Place::new(subject).await;
    for number in 0..40 {
        let head = place.create(&format!("/p/{}/{number}", number % 3), 10).await;
        // The others are found by one version only.
        if number % 3 == 0 {
            place.change(vec![edited(&head, 5)]).await;
        }
    }
    let erasure_id = ask(&place, below(&place, "/p/")).await;
    let works = [(); 2].map(|()| tokio::spawn(erase_rows(place.clone(), erasure_id)));
    for number in 0..20 {
        place.create(&format!("/p/1/new{number}"), 1).await;
    }
    for work in works {
        work.await.unwrap();
    }
    let receipt = end(&place, erasure_id).await.receipt;
    assert_eq!((receipt.memories, receipt.versions), (40, 54));
    assert_eq!((receipt.blobs, receipt.bytes), (54, 470));
    assert_eq!(place.paths_below("/").await.len(), 20);
    place.assert_recount_with_gaps().await;
}

pub(crate) async fn memories_created_after_the_request_of_an_erasure_are_kept(subject: &Subject) {
    let place = Place::new(subject).await;
    let head = place.create("/p/old", 1).await;
    let outside = place.create("/outside", 2).await;
    let erasure_id = ask(&place, below(&place, "/p/")).await;
    place.create("/p/new", 4).await;
    place.change(vec![renamed(&outside, "/p/moved")]).await;
    // A memory that is moved away and edited is erased too.
    place.change(vec![renamed(&head, "/elsewhere")]).await;
    let moved = place.memory("/elsewhere").await;
    place.change(vec![edited(&moved, 9)]).await;
    erase_rows(place.clone(), erasure_id).await;
    end(&place, erasure_id).await;
    assert_eq!(place.paths_below("/").await, ["/p/moved", "/p/new"]);
    place.assert_recount_with_gaps().await;
}
