//! The short commit of Postgres beside the whole one.

use keepsake_core::{ContentHash, DirPath, Timestamp, VersionId};
use keepsake_index::{Change, CommitOutcome, Guard, Idempotency, SearchRow};
use uuid::Uuid;

use crate::place::{NOW, Place, REPLICA, after_seconds, created, edited};

/// Renames the function that makes any commit: calls of it fail until it has its name again.
async fn rename_commit(place: &Place, from: &str, to: &str) {
    place.raw.execute(&format!("ALTER FUNCTION {from} RENAME TO {to}"), &[]).await;
}

/// Everything a store has of the memories that both stores have, but whose it is.
async fn everything(place: &Place) -> Vec<String> {
    let mut all = Vec::new();
    for table in ["store", "memory", "version", "directory", "search_doc", "idempotency"] {
        let own = "- 'tenant_id' - 'store_id' - 'created_at' - 'updated_at'";
        let name = if table == "store" { "- 'name'" } else { "" };
        let rows = format!(
            "SELECT '{table}: ' || (to_jsonb(t) {own} {name})::text AS row FROM {table} t \
             WHERE tenant_id = $1 AND store_id = $2 ORDER BY row"
        );
        all.extend(place.raw.rows(&rows, &place.ids()).await.into_iter().flatten().flatten());
    }
    all.retain(|row| !row.contains("/d/before"));
    all
}

/// Commits a change under an idempotency key of its own, `number` seconds later.
async fn commit_later(place: &Place, change: Change, number: u8, guard: Option<Guard>) {
    let mut commit = place.commit_of(vec![change]);
    commit.now = after_seconds(i64::from(number));
    commit.guard = guard;
    commit.idempotency = Some(Idempotency {
        scope_sha256: [number; 32],
        request_sha256: [9; 32],
        since: Timestamp::from_micros(0),
    });
    let made = place.run(&commit).await;
    assert!(matches!(made, CommitOutcome::Committed { .. }), "{made:?}");
}

fn with_terms(mut change: Change, length: u32) -> Change {
    let after = change.after.as_mut().unwrap();
    after.search = Some(SearchRow { analyser: 7, length, terms: vec![1, 2, 3] });
    after.first_line = Some("The first line".to_owned());
    change
}

#[tokio::test]
async fn put_of_new_content_is_one_call_and_writes_what_the_whole_commit_writes() {
    let (by_put, _index, _database) = Place::on_postgres().await;
    let by_commit = by_put.stranger().await;
    // The same ids in both stores.
    let mut creations = ["/d/a", "/d/.hidden", "/b"].map(|path| with_terms(created(path, 10), 5));
    creations[2].after.as_mut().unwrap().expiry.is_pinned = Some(true);
    for (place, is_put) in [(&by_put, true), (&by_commit, false)] {
        // A guard that holds makes it a whole commit.
        let guard = async || {
            let files = place.directory("/", 0).await.files;
            (!is_put).then_some(Guard { directory: DirPath::root(), files })
        };
        place.create("/d/before", 3).await;
        if is_put {
            rename_commit(place, "commit_changes", "commit_changes_away").await;
        }
        for (number, change) in (1..).zip(&creations) {
            commit_later(place, change.clone(), number, guard().await).await;
        }
        for (number, (path, size_bytes)) in (11..).zip([("/d/a", 4), ("/b", 40), ("/d/.hidden", 0)]) {
            let head = place.memory(path).await;
            let memories = &place.index.memories;
            let until = after_seconds(9);
            let claim =
                memories.claim_edit(place.tenant_id, place.store_id, head.memory_id, REPLICA, NOW, until);
            assert!(claim.await.unwrap());
            let mut change = with_terms(edited(&head, size_bytes), 6);
            change.version_id = VersionId::from_uuid(Uuid::from_u128(u128::from(number)));
            let after = change.after.as_mut().unwrap();
            (after.blob_id, after.sha256) = (change.version_id, ContentHash::of(&[number]));
            commit_later(place, change, number, guard().await).await;
        }
        if is_put {
            rename_commit(place, "commit_changes_away", "commit_changes").await;
        }
        place.assert_recount().await;
    }
    let put = everything(&by_put).await;
    assert!(put.len() > 15, "{put:?}");
    assert_eq!(put, everything(&by_commit).await);
}
