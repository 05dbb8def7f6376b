//! The short commit of Postgres beside the whole one.

use keepsake_core::{ContentHash, DirPath, Timestamp, VersionId};
use keepsake_index::{Change, CommitOutcome, Guard, Idempotency, IndexError, SearchRow};
use sqlx::postgres::PgPool;
use sqlx::{AssertSqlSafe, Executor as _};
use uuid::Uuid;

use crate::place::{NOW, Place, REPLICA, after_seconds, created, edited, renamed};
use crate::subject::{Raw, postgres_index};

/// Renames the function that makes any commit, so that calls of it fail.
async fn rename_commit(raw: &PgPool, from: &str, to: &str) {
    let rename = format!("ALTER FUNCTION {from} RENAME TO {to}");
    raw.execute(AssertSqlSafe(rename)).await.unwrap();
}

#[tokio::test]
async fn new_content_at_one_path_is_one_call_of_put() {
    let (index, raw, _database) = postgres_index().await;
    let place = Place::on(index.clone().into(), Raw::Postgres(raw.clone())).await;
    let first = place.create("/d/a", 10).await;
    rename_commit(&raw, "commit_changes", "commit_changes_away").await;
    place.create("/b", 1).await;
    place.create("/d/.c", 2).await;
    place.change(vec![edited(&first, 25)]).await;
    let again = place.memory("/d/a").await;
    assert_eq!((again.memory_id, again.seq), (first.memory_id, 4));
    place.change(vec![edited(&again, 25)]).await;
    place.assert_recount().await;

    let call = |secret: u8| {
        let mut commit = place.commit_of(vec![created(&format!("/d/{secret}"), 1)]);
        commit.idempotency = Some(Idempotency {
            scope_sha256: [secret; 32],
            request_sha256: [secret; 32],
            since: Timestamp::from_micros(0),
        });
        commit
    };
    let named = call(1);
    let made = place.run(&named).await;
    assert!(matches!(made, CommitOutcome::Committed { seq: 6, .. }), "{made:?}");

    // The other function handles other commits, and every refusal.
    let before = place.rows().await;
    let mut of_epoch = place.commit_of(vec![created("/e", 1)]);
    of_epoch.purge_epoch = Some(0);
    let mut named_in_new_directory = call(2);
    named_in_new_directory.changes = vec![created("/new/first", 1)];
    for commit in [
        named,
        of_epoch,
        named_in_new_directory,
        place.commit_of(vec![created("/new/first", 1)]),
        place.commit_of(vec![created("/b", 1)]),
        place.commit_of(vec![created("/d", 1)]),
        place.commit_of(vec![edited(&first, 1)]),
        place.commit_of(vec![renamed(&first, "/e")]),
        place.commit_of(vec![created("/e", 1), created("/f", 1)]),
    ] {
        let failed = place.index.memories.commit(place.tenant_id, &commit).await;
        assert!(matches!(failed, Err(IndexError::Database { .. })), "{failed:?}");
        assert_eq!(place.rows().await, before);
    }
    rename_commit(&raw, "commit_changes_away", "commit_changes").await;
    place.create("/new/first", 1).await;
    place.assert_recount().await;
}

/// Everything a store has, but whose it is.
async fn everything(raw: &PgPool, place: &Place) -> Vec<String> {
    let mut all = Vec::new();
    for (table, own) in [
        ("store", "'name'"),
        ("memory", "''"),
        ("version", "''"),
        ("directory", "''"),
        ("search_doc", "''"),
        ("idempotency", "''"),
    ] {
        let rows = format!(
            "SELECT CAST(to_jsonb(t) - 'tenant_id' - 'store_id' - 'created_at' - 'updated_at' - {own} AS text) AS row \
             FROM {table} t WHERE tenant_id = $1 AND store_id = $2 ORDER BY row"
        );
        let rows: Vec<String> = sqlx::query_scalar(AssertSqlSafe(rows))
            .bind(place.tenant_id.uuid())
            .bind(place.store_id.uuid())
            .fetch_all(raw)
            .await
            .unwrap();
        all.extend(rows.into_iter().map(|row| format!("{table}: {row}")));
    }
    all
}

#[tokio::test]
async fn put_writes_what_the_whole_commit_writes() {
    let (index, raw, _database) = postgres_index().await;
    let place_of = async || Place::on(index.clone().into(), Raw::Postgres(raw.clone())).await;
    let (by_put, by_commit) = (place_of().await, place_of().await);
    for place in [&by_put, &by_commit] {
        place.create("/d/before", 3).await;
    }
    let with_terms = |mut change: Change, length: u32| {
        let after = change.after.as_mut().unwrap();
        after.search = Some(SearchRow { analyser: 7, length, terms: vec![1, 2, 3] });
        after.first_line = Some("The first line".to_owned());
        change
    };
    let mut same = Vec::new();
    for (number, path) in ["/d/a", "/d/.hidden", "/b"].into_iter().enumerate() {
        let mut change = with_terms(created(path, 10), 5);
        change.after.as_mut().unwrap().expiry.is_pinned = (number == 2).then_some(true);
        same.push(change);
    }
    // The same ids in both stores; a guard that holds makes it a whole commit.
    for place in [&by_put, &by_commit] {
        let in_both = |change: &Change, secret: u8| {
            let mut commit = place.commit_of(vec![change.clone()]);
            commit.idempotency = Some(Idempotency {
                scope_sha256: [secret; 32],
                request_sha256: [9; 32],
                since: Timestamp::from_micros(0),
            });
            commit
        };
        let guard = async || Guard { directory: DirPath::root(), files: place.directory("/", 0).await.files };
        for (secret, change) in (1..).zip(&same) {
            let mut commit = in_both(change, secret);
            if place.store_id == by_commit.store_id {
                commit.guard = Some(guard().await);
            }
            let made = place.run(&commit).await;
            assert!(matches!(made, CommitOutcome::Committed { .. }), "{made:?}");
        }
        for (secret, (path, size_bytes)) in (11..).zip([("/d/a", 4), ("/b", 40), ("/d/.hidden", 0)]) {
            let head = place.memory(path).await;
            let until = after_seconds(9);
            let claimed = place
                .index
                .memories
                .claim_edit(place.tenant_id, place.store_id, head.memory_id, REPLICA, NOW, until)
                .await;
            assert!(claimed.unwrap());
            let mut change = with_terms(edited(&head, size_bytes), 6);
            let version_id = VersionId::from_uuid(Uuid::from_u128(u128::from(secret)));
            change.version_id = version_id;
            let after = change.after.as_mut().unwrap();
            (after.blob_id, after.sha256) = (version_id, ContentHash::of(&[secret]));
            let mut commit = in_both(&change, secret);
            commit.now = after_seconds(i64::from(secret));
            if place.store_id == by_commit.store_id {
                commit.guard = Some(guard().await);
            }
            let made = place.run(&commit).await;
            assert!(matches!(made, CommitOutcome::Committed { .. }), "{made:?}");
        }
    }
    let (put, whole) = (everything(&raw, &by_put).await, everything(&raw, &by_commit).await);
    assert!(put.len() > 15, "{put:?}");
    let same_ids = |rows: &[String]| -> Vec<String> {
        let same = rows.iter().filter(|row| !row.contains("/d/before"));
        same.cloned().collect()
    };
    for (by_put, by_commit) in same_ids(&put).iter().zip(same_ids(&whole)) {
        assert_eq!(*by_put, by_commit);
    }
    assert_eq!(put.len(), whole.len());

    // A failed put changes only the store's time.
    let store_row = async || everything(&raw, &by_put).await.remove(0);
    let before = store_row().await;
    let mut taken = by_put.commit_of(vec![created("/b", 1)]);
    let (last, later) = (after_seconds(13), after_seconds(60));
    taken.now = later;
    assert!(matches!(by_put.run(&taken).await, CommitOutcome::Refused(_)));
    let moved = before.replace(&last.as_micros().to_string(), &later.as_micros().to_string());
    assert_ne!(before, moved);
    assert_eq!(store_row().await, moved);
}
