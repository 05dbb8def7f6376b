//! The end of tenants: nothing new at once, nothing left in the end.

use std::collections::BTreeMap;

use futures::future::join_all;
use keepsake_core::{TenantId, VersionId};
use keepsake_index::{
    CommitOutcome, DeletionState, KeyCreation, Refusal, StoreCreation, TenantChange, TenantDeletion,
    TenantStatus, TenantUpdate, VersionCounts,
};

use crate::place::{
    NOW, PLENTY, Place, after_seconds, audited, by_tenant, created, edited, new_key, new_store, new_tenant,
    next_uuid,
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
        Raw::Sqlite(_) => (
            format!("SELECT name, type FROM pragma_table_info('{table}') WHERE \"notnull\""),
            false,
        ),
    };
    let value = move |of_type: &str| match of_type {
        "uuid" | "BLOB" => "$1",
        "bytea" => "decode(md5(CAST($1 AS text)), 'hex')",
        "jsonb" | "text" | "TEXT" => "'{}'",
        "boolean" if is_postgres => "false",
        _ => "1",
    };
    let rows = raw.rows(&query, &[]).await;
    rows.into_iter()
        .map(|row| (row[0].clone().unwrap(), value(row[1].as_deref().unwrap())))
        .collect()
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
        let insert = format!(
            "INSERT INTO {table} ({}) VALUES ({})",
            names.join(", "),
            values.join(", ")
        );
        subject.raw.execute(&insert, &[tenant_id.uuid()]).await;
    }
    let rows = rows_by_table(&subject.raw, tenant_id).await;
    assert!(
        rows.len() >= 14 && rows.values().all(|many| *many > 0),
        "{rows:?}"
    );
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
        let batch = subject
            .index
            .tenant_deletions
            .purge(tenant_id, NOW, limit)
            .await
            .unwrap();
        assert!(batch.rows <= u64::from(limit), "{batch:?}");
        (rows, batches) = (rows + batch.rows, batches + 1);
        if batch.is_done {
            return (rows, batches);
        }
    }
}

pub(crate) async fn tenant_marked_for_deletion_accepts_nothing_new(subject: &Subject) {
    let tenant_id = new_tenant(subject).await;
    let index = &subject.index;
    let key = new_key(tenant_id);
    index
        .keys
        .create(&key, &[1; 32], PLENTY, None, &audited())
        .await
        .unwrap();
    let begun = mark(subject, tenant_id).await;
    assert_eq!((begun.state, begun.requested_at), (DeletionState::Removing, NOW));
    let credential = index.credentials.authenticate(&[1; 32]).await.unwrap().unwrap();
    assert_eq!(credential.tenant_status, TenantStatus::Deleting);
    assert_eq!(
        index.tenants.find(tenant_id).await.unwrap().unwrap().status,
        TenantStatus::Deleting
    );
    let created = index
        .keys
        .create(&new_key(tenant_id), &[2; 32], PLENTY, None, &audited())
        .await;
    assert_eq!(created.unwrap(), KeyCreation::NoTenant);
    let created = index
        .stores
        .create(tenant_id, &new_store(), PLENTY, None, &by_tenant(NOW))
        .await;
    assert_eq!(created.unwrap(), StoreCreation::NoTenant);
    let resumed = TenantChange {
        status: Some(TenantStatus::Active),
        ..TenantChange::default()
    };
    let resumed = index.tenants.update(tenant_id, &resumed, &audited()).await;
    assert_eq!(resumed.unwrap(), TenantUpdate::Deleting);
    let revoked = index.keys.revoke(tenant_id, key.api_key_id, &audited()).await;
    assert_eq!(revoked.unwrap(), None);
}

pub(crate) async fn repeated_deletion_request_is_one_deletion(subject: &Subject) {
    let tenant_id = new_tenant(subject).await;
    let asked = join_all((0..4).map(|_| mark(subject, tenant_id))).await;
    assert!(asked.iter().all(|begun| *begun == asked[0]), "{asked:?}");
    let by_operator = subject.index.audit.list_of_operator(None, 100).await.unwrap();
    let deletes = by_operator.iter().filter(|entry| entry.action == "tenant.delete");
    assert_eq!(deletes.count(), 1);
    purge(subject, tenant_id, 100).await;
    assert!(
        subject
            .index
            .tenant_deletions
            .finish(tenant_id, NOW)
            .await
            .unwrap()
    );
    let done = deletion(subject, tenant_id).await;
    assert_eq!(done.state, DeletionState::Done);
    assert_eq!(mark(subject, tenant_id).await, done);
    assert_eq!(subject.index.tenants.find(tenant_id).await.unwrap(), None);
    let nobody = TenantId::from_uuid(next_uuid());
    assert_eq!(
        subject
            .index
            .tenant_deletions
            .begin(nobody, &audited())
            .await
            .unwrap(),
        None
    );
    assert_eq!(subject.index.tenant_deletions.find(nobody).await.unwrap(), None);
}

pub(crate) async fn purge_leaves_no_row_in_any_table(subject: &Subject) {
    let (tenant_id, other) = (
        tenant_with_everything(subject).await,
        tenant_with_everything(subject).await,
    );
    let before = rows_by_table(&subject.raw, other).await;
    mark(subject, tenant_id).await;
    let there = rows_by_table(&subject.raw, tenant_id).await;
    let (rows, _) = purge(subject, tenant_id, 1000).await;
    assert!(
        subject
            .index
            .tenant_deletions
            .finish(tenant_id, after_seconds(9))
            .await
            .unwrap()
    );
    let left = rows_by_table(&subject.raw, tenant_id).await;
    assert!(left.values().all(|many| *many == 0), "{left:?}");
    assert_eq!(rows_by_table(&subject.raw, other).await, before);
    let done = deletion(subject, tenant_id).await;
    assert_eq!(
        (done.state, done.ended_at),
        (DeletionState::Done, Some(after_seconds(9)))
    );
    assert_eq!(done.rows, there, "the report counts every row");
    assert_eq!(done.rows.values().sum::<u64>(), rows + 1);
    let by_operator = subject.index.audit.list_of_operator(None, 100).await.unwrap();
    let of_tenant = by_operator
        .iter()
        .filter(|entry| entry.object_id == Some(tenant_id.uuid()));
    assert_eq!(of_tenant.count(), 2, "made and deleted, for ever");
}

pub(crate) async fn purge_counts_the_same_in_batches_of_any_size(subject: &Subject) {
    for limit in [1, 2, 7] {
        let tenant_id = tenant_with_everything(subject).await;
        mark(subject, tenant_id).await;
        let mut there = rows_by_table(&subject.raw, tenant_id).await;
        there.remove("tenant");
        let (rows, batches) = purge(subject, tenant_id, limit).await;
        assert_eq!(rows, there.values().sum::<u64>());
        assert!(batches > rows / u64::from(limit), "{batches}");
        assert_eq!(deletion(subject, tenant_id).await.rows, there);
    }
}

pub(crate) async fn concurrent_purges_count_every_row_once(subject: &Subject) {
    let tenant_id = tenant_with_everything(subject).await;
    mark(subject, tenant_id).await;
    let mut there = rows_by_table(&subject.raw, tenant_id).await;
    there.remove("tenant");
    join_all((0..3).map(|_| purge(subject, tenant_id, 3))).await;
    assert_eq!(deletion(subject, tenant_id).await.rows, there);
}

pub(crate) async fn stores_refuse_commits_before_their_rows_are_removed(subject: &Subject) {
    let place = Place::new(subject).await;
    let head = place.create("/a", 1).await;
    mark(subject, place.tenant_id).await;
    // A request that began before may still commit until its store has ended.
    place.change(vec![edited(&head, 2)]).await;
    let first = subject
        .index
        .tenant_deletions
        .purge(place.tenant_id, NOW, 1000)
        .await
        .unwrap();
    assert_eq!((first.rows, first.is_done), (0, false));
    let late = place.try_changes(vec![created("/late", 1)]).await;
    assert_eq!(late, CommitOutcome::Refused(Refusal::NoStore));
    purge(subject, place.tenant_id, 1000).await;
    let late = place.try_changes(vec![created("/late", 1)]).await;
    assert_eq!(late, CommitOutcome::Refused(Refusal::NoStore));
    assert_eq!(count(&subject.raw, "version", place.tenant_id).await, 0);
}

pub(crate) async fn stores_of_a_deleted_tenant_are_not_purged_separately(subject: &Subject) {
    let (mine, theirs) = (Place::new(subject).await, Place::new(subject).await);
    for place in [&mine, &theirs] {
        let by = by_tenant(NOW);
        let deleted = subject
            .index
            .store_deletions
            .begin(place.tenant_id, place.store_id, &by);
        assert!(deleted.await.unwrap());
    }
    mark(subject, mine.tenant_id).await;
    assert_eq!(
        subject.index.store_deletions.due(10).await.unwrap(),
        [(theirs.tenant_id, theirs.store_id)]
    );
}

pub(crate) async fn live_tenant_is_not_purged(subject: &Subject) {
    let tenant_id = tenant_with_everything(subject).await;
    let before = rows_by_table(&subject.raw, tenant_id).await;
    assert_eq!(purge(subject, tenant_id, 1000).await, (0, 1));
    assert!(
        !subject
            .index
            .tenant_deletions
            .finish(tenant_id, NOW)
            .await
            .unwrap()
    );
    assert_eq!(rows_by_table(&subject.raw, tenant_id).await, before);
    assert_eq!(subject.index.tenant_deletions.due(NOW, 10).await.unwrap(), []);
}

pub(crate) async fn late_rows_are_removed_before_the_deletion_ends(subject: &Subject) {
    let tenant_id = new_tenant(subject).await;
    mark(subject, tenant_id).await;
    purge(subject, tenant_id, 1000).await;
    let late = "INSERT INTO idempotency (tenant_id, scope_sha256, request_sha256, created_at) \
                VALUES ($1, '1', '2', 1)";
    let late = match subject.raw {
        Raw::Postgres(_) => late.to_owned(),
        Raw::Sqlite(_) => late.replace("'1', '2'", "x'01', x'02'"),
    };
    subject.raw.execute(&late, &[tenant_id.uuid()]).await;
    assert!(
        !subject
            .index
            .tenant_deletions
            .finish(tenant_id, NOW)
            .await
            .unwrap()
    );
    assert_eq!(purge(subject, tenant_id, 1000).await.0, 1);
    assert!(
        subject
            .index
            .tenant_deletions
            .finish(tenant_id, NOW)
            .await
            .unwrap()
    );
}

pub(crate) async fn blobs_are_counted_until_the_end(subject: &Subject) {
    let place = Place::new(subject).await;
    let tenant_id = place.tenant_id;
    mark(subject, tenant_id).await;
    let last = place.blob(VersionId::from_uuid(next_uuid()));
    let counted = async || {
        subject
            .index
            .tenant_deletions
            .count_blobs(tenant_id, &last, 3, 1 << 40)
            .await
            .unwrap();
    };
    counted().await;
    counted().await;
    let found = deletion(subject, tenant_id).await;
    assert_eq!(
        (found.blobs, found.blob_bytes, found.blob_cursor),
        (6, 2 << 40, Some(last))
    );
    purge(subject, tenant_id, 1000).await;
    subject
        .index
        .tenant_deletions
        .settle(tenant_id, after_seconds(60))
        .await
        .unwrap();
    assert_eq!(
        deletion(subject, tenant_id).await.blob_cursor,
        None,
        "late blobs are counted from the start"
    );
    assert!(
        subject
            .index
            .tenant_deletions
            .finish(tenant_id, NOW)
            .await
            .unwrap()
    );
    counted().await;
    assert_eq!(deletion(subject, tenant_id).await.blobs, 6);
}

pub(crate) async fn object_versions_are_noted_until_the_end(subject: &Subject) {
    let (tenant_id, other) = (new_tenant(subject).await, new_tenant(subject).await);
    for tenant_id in [tenant_id, other] {
        let begun = mark(subject, tenant_id).await;
        assert_eq!(begun.object_versions, VersionCounts::default());
    }
    let counts = |deleted, not_versioned, kept| VersionCounts {
        deleted,
        not_versioned,
        kept,
    };
    let note = async |counts: VersionCounts| {
        let noted = subject
            .index
            .tenant_deletions
            .note_object_versions(tenant_id, &counts)
            .await;
        noted.unwrap();
        deletion(subject, tenant_id).await.object_versions
    };
    assert_eq!(note(counts(1, 2, 3)).await, counts(1, 2, 3));
    let last = counts(1 << 40, 5, 0);
    assert_eq!(note(last).await, last, "each is in place of the one before");
    purge(subject, tenant_id, 1000).await;
    let due = subject.index.tenant_deletions.due(NOW, 10).await.unwrap();
    let of_due = |id| due.iter().find(|deletion| deletion.tenant_id == id).unwrap();
    assert_eq!(of_due(tenant_id).object_versions, last);
    assert_eq!(of_due(other).object_versions, VersionCounts::default());
    assert!(
        subject
            .index
            .tenant_deletions
            .finish(tenant_id, NOW)
            .await
            .unwrap()
    );
    assert_eq!(note(counts(9, 9, 9)).await, last);
}

pub(crate) async fn deletion_is_due_until_it_settles_and_then_once_more(subject: &Subject) {
    let (first, second) = (new_tenant(subject).await, new_tenant(subject).await);
    let due = async |seconds, limit| {
        let due = subject.index.tenant_deletions.due(after_seconds(seconds), limit);
        let ids = due.await.unwrap().into_iter().map(|deletion| deletion.tenant_id);
        ids.collect::<Vec<_>>()
    };
    mark(subject, first).await;
    assert_eq!(due(0, 10).await, [first]);
    mark(subject, second).await;
    assert_eq!(due(0, 10).await.len(), 2);
    assert_eq!(due(0, 1).await.len(), 1);
    subject
        .index
        .tenant_deletions
        .settle(first, after_seconds(60))
        .await
        .unwrap();
    // A second settling moves nothing: the time is that of the first.
    subject
        .index
        .tenant_deletions
        .settle(first, after_seconds(90))
        .await
        .unwrap();
    let settling = deletion(subject, first).await;
    assert_eq!(
        (settling.state, settling.settles_at),
        (DeletionState::Settling, Some(after_seconds(60)))
    );
    assert_eq!(due(59, 10).await, [second]);
    assert_eq!(due(60, 10).await.len(), 2);
    purge(subject, first, 1000).await;
    assert!(
        subject
            .index
            .tenant_deletions
            .finish(first, after_seconds(60))
            .await
            .unwrap()
    );
    assert_eq!(due(90, 10).await, [second]);
}
