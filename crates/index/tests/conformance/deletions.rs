//! The end of tenants, stores and memories: each row is removed and counted once.

use std::collections::BTreeMap;

use keepsake_core::{ErasureId, ObjectVersions};
use keepsake_index::{AuditFilter, ErasedBlobs, Erasure, NewErasure, Selector};

use crate::prelude::*;

/// Tables that keep what they have of a tenant that is gone.
const KEPT: [&str; 2] = ["operator_audit", "tenant_deletion"];

/// Every table that has a `tenant_id`, asked of the database itself: one that
/// is made later is looked at too.
pub(crate) async fn tables(raw: &Raw) -> Vec<String> {
    let query = match raw {
        Raw::Postgres(_) => {
            "SELECT CAST(table_name AS text) FROM information_schema.columns \
             WHERE table_schema = 'public' AND column_name = 'tenant_id' ORDER BY table_name"
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
    let query = match raw {
        Raw::Postgres(_) => format!(
            "SELECT CAST(column_name AS text), CAST(data_type AS text) FROM information_schema.columns \
             WHERE table_schema = 'public' AND table_name = '{table}' AND is_nullable = 'NO' AND is_identity = 'NO'"
        ),
        Raw::Sqlite(_) => format!("SELECT name, type FROM pragma_table_info('{table}') WHERE \"notnull\""),
    };
    let value = |of_type: &str| match of_type {
        "uuid" | "BLOB" => "$1",
        "bytea" => "decode(md5(CAST($1 AS text)), 'hex')",
        "jsonb" | "text" | "TEXT" => "'{}'",
        "boolean" => "false",
        _ => "1",
    };
    let rows = raw.rows(&query, &[]).await;
    rows.into_iter().map(|row| (row[0].clone().unwrap(), value(row[1].as_deref().unwrap()))).collect()
}

async fn rows_by_table(raw: &Raw, tenant_id: TenantId) -> BTreeMap<String, u64> {
    let mut rows = BTreeMap::new();
    for table in tables(raw).await {
        let count = format!("SELECT count(*) FROM {table} WHERE tenant_id = $1");
        let count = raw.number(&count, &[tenant_id.uuid()]).await;
        rows.insert(table, count.try_into().unwrap());
    }
    rows
}

pub(crate) async fn tenant_with_everything(place: &Place) -> TenantId {
    let (raw, tenant_id) = (&place.raw, place.tenant_id);
    for number in 0..3 {
        place.change(vec![edited(&place.create(&format!("/d{number}/a"), 10).await, 20)]).await;
    }
    place.sibling().await.create("/b", 5).await;
    let rows = rows_by_table(raw, tenant_id).await;
    for (table, _) in rows.into_iter().filter(|(_, count)| *count == 0) {
        let (names, values): (Vec<_>, Vec<_>) = columns(raw, &table).await.into_iter().unzip();
        let insert = format!("INSERT INTO {table} ({}) VALUES ({})", names.join(", "), values.join(", "));
        raw.execute(&insert, &[tenant_id.uuid()]).await;
    }
    let rows = rows_by_table(raw, tenant_id).await;
    assert!(rows.len() >= 14 && rows.values().all(|many| *many > 0), "{rows:?}");
    tenant_id
}

async fn mark(place: &Place, tenant_id: TenantId) {
    assert!(place.index.tenant_deletions.begin(tenant_id, &audited()).await.unwrap().is_some());
}

/// Purges to the end; returns the number of removed rows.
async fn purge(place: &Place, tenant_id: TenantId, limit: u32) -> u64 {
    let mut rows = 0;
    loop {
        let batch = place.index.tenant_deletions.purge(tenant_id, NOW, limit).await.unwrap();
        assert!(batch.rows() <= u64::from(limit), "{batch:?}");
        rows += batch.rows();
        if batch.is_done {
            return rows;
        }
    }
}

pub(crate) async fn purge_leaves_no_row_in_any_table(place: Place) {
    let deletions = &place.index.tenant_deletions;
    let finish = async |tenant_id| deletions.finish(tenant_id, after_seconds(9)).await.unwrap();
    let other = tenant_with_everything(&place).await;
    let others = rows_by_table(&place.raw, other).await;
    // A row that a request writes which began before the tenant's end.
    let values = if matches!(place.raw, Raw::Postgres(_)) { "'1', '2'" } else { "x'01', x'02'" };
    let late = format!(
        "INSERT INTO idempotency (tenant_id, scope_sha256, request_sha256, created_at) VALUES ($1, {values}, 1)"
    );
    for limit in [1, 7, 1000] {
        let tenant_id = tenant_with_everything(&place.stranger().await).await;
        let before = rows_by_table(&place.raw, tenant_id).await;
        assert_eq!(purge(&place, tenant_id, limit).await, 0, "it lives");
        assert!(!finish(tenant_id).await);
        assert_eq!(rows_by_table(&place.raw, tenant_id).await, before);

        mark(&place, tenant_id).await;
        let mut there = rows_by_table(&place.raw, tenant_id).await;
        purge(&place, tenant_id, limit).await;
        place.raw.execute(&late, &[tenant_id.uuid()]).await;
        assert!(!finish(tenant_id).await, "a row is left");
        assert_eq!(purge(&place, tenant_id, limit).await, 1);
        assert!(finish(tenant_id).await);
        let left = rows_by_table(&place.raw, tenant_id).await;
        assert!(left.values().all(|many| *many == 0), "{left:?}");
        *there.get_mut("idempotency").unwrap() += 1;
        let done = deletions.find(tenant_id).await.unwrap().unwrap();
        assert_eq!(done.rows, there, "the report counts every row");
        let entries = place.index.audit.list_of_operator(&AuditFilter::default(), None, 100).await.unwrap();
        let objects = entries.into_iter().filter_map(|entry| entry.object);
        let of_tenant = objects.filter(|object| object.id == tenant_id.to_string());
        assert_eq!(of_tenant.count(), 2, "made and deleted, for ever");
    }
    assert_eq!(rows_by_table(&place.raw, other).await, others);
    // Stores of a deleted tenant are not purged separately.
    let (mine, theirs) = (place.stranger().await, place.stranger().await);
    mine.delete_store().await;
    theirs.delete_store().await;
    mark(&place, mine.tenant_id).await;
    let due = place.index.store_deletions.due(10).await.unwrap();
    assert_eq!(due, [(theirs.tenant_id, theirs.store_id)]);
}

/// Purges a deleted store to the end; returns the number of removed rows and of blobs.
pub(crate) async fn purge_store(place: Place) -> (u64, u64) {
    let (mut rows, mut blobs) = (0, 0);
    loop {
        let stores = &place.index.store_deletions;
        let batch = stores.purge(place.tenant_id, place.store_id, NOW, 3).await.unwrap();
        (rows, blobs) = (rows + batch.rows(), blobs + batch.blobs);
        if batch.is_done {
            return (rows, blobs);
        }
    }
}

pub(crate) async fn ask(place: &Place, selector: Selector) -> ErasureId {
    let erasure = NewErasure {
        erasure_id: ErasureId::from_uuid(next_uuid()),
        selector,
        audited: audited_by(Auditor::Credential(actor()), after_seconds(50)),
    };
    place.index.erasures.create(place.tenant_id, &erasure, None).await.unwrap()
}

pub(crate) fn below_p(place: &Place) -> Selector {
    Selector::PathPrefix { store_id: place.store_id, below: "/p/".to_owned() }
}

pub(crate) async fn erase_rows(place: Place, erasure_id: ErasureId) {
    let (now, until) = (after_seconds(60), after_seconds(120));
    let erasures = &place.index.erasures;
    while !erasures.erase_rows(place.tenant_id, erasure_id, now, until, 8).await.unwrap().is_done {}
}

/// Tells every queued blob removed, and ends the erasure.
async fn end(place: &Place, erasure_id: ErasureId) -> Erasure {
    let (erasures, tenant_id) = (&place.index.erasures, place.tenant_id);
    let keys = erasures.queued_blobs(tenant_id, erasure_id, 10_000).await.unwrap();
    let blobs = ErasedBlobs { keys, orphans: 0, object_versions: ObjectVersions::NotVersioned };
    // Told twice, counted once.
    for _ in 0..2 {
        erasures.blobs_erased(tenant_id, erasure_id, &blobs, after_seconds(120)).await.unwrap();
    }
    for is_first in [true, false] {
        let by = audited_by(Auditor::Job, after_seconds(90));
        assert_eq!(erasures.finish(tenant_id, erasure_id, &by).await.unwrap(), is_first);
    }
    erasures.find(tenant_id, erasure_id).await.unwrap().unwrap()
}

pub(crate) async fn workers_that_run_together_count_every_row_once(first: Place) {
    let tenant_id = tenant_with_everything(&first).await;
    mark(&first, tenant_id).await;
    let mut there = rows_by_table(&first.raw, tenant_id).await;
    there.remove("tenant");
    join_all((0..3).map(|_| purge(&first, tenant_id, 3))).await;
    let report = first.index.tenant_deletions.find(tenant_id).await.unwrap().unwrap();
    assert_eq!(report.rows, there);

    let place = first.stranger().await;
    for number in 0..4 {
        place.change(vec![edited(&place.create(&format!("/d/{number}"), 10).await, 20)]).await;
    }
    place.delete_store().await;
    let racing = (0..4).map(|_| tokio::spawn(purge_store(place.clone())));
    let (rows, blobs): (Vec<_>, Vec<_>) = join_all(racing).await.into_iter().map(Result::unwrap).unzip();
    // Eight versions of four memories, two directories and the store.
    assert_eq!((rows.iter().sum::<u64>(), blobs.iter().sum::<u64>()), (15, 8));

    let place = first.stranger().await;
    for number in 0..40 {
        let head = place.create(&format!("/p/{}/{number}", number % 3), 10).await;
        // The others are found by one version only.
        if number % 3 == 0 {
            place.change(vec![edited(&head, 5)]).await;
        }
    }
    let erasure_id = ask(&place, below_p(&place)).await;
    let works = [(); 2].map(|()| tokio::spawn(erase_rows(place.clone(), erasure_id)));
    for number in 0..20 {
        place.create(&format!("/p/1/new{number}"), 1).await;
    }
    for work in works {
        work.await.unwrap();
    }
    let erased = end(&place, erasure_id).await.removed;
    assert_eq!((erased.memories, erased.versions), (40, 54));
    assert_eq!((erased.blobs, erased.bytes), (54, 470));
    assert_eq!(place.paths_below("/").await.len(), 20);
    place.assert_recount_with_gaps().await;
}

pub(crate) async fn memories_that_come_after_the_request_of_an_erasure_stay(place: Place) {
    let head = place.create("/p/old", 1).await;
    let outside = place.create("/outside", 2).await;
    let erasure_id = ask(&place, below_p(&place)).await;
    place.create("/p/new", 4).await;
    place.change(vec![renamed(&outside, "/p/moved")]).await;
    // One that is moved away and edited is erased too.
    let moved = place.changed(renamed(&head, "/elsewhere")).await;
    place.change(vec![edited(&moved, 9)]).await;
    erase_rows(place.clone(), erasure_id).await;
    end(&place, erasure_id).await;
    assert_eq!(place.paths_below("/").await, ["/p/moved", "/p/new"]);
    place.assert_recount_with_gaps().await;
}
