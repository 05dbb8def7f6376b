//! Facts of SQLite only: a full disk, its audit, another process, its log, look-ups that need no connection.

use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;

use keepsake_index::MemoryItem;
use tokio::time::timeout;

use crate::prelude::*;

const MAX_PAGES: u32 = 1_073_741_823;

#[tokio::test]
async fn full_disk_refuses_every_commit_of_a_transaction_and_serves_reads() {
    let (place, index, _folder) = Place::on_sqlite().await;
    let there = place.create("/there", 1).await;
    let pages = place.raw.number("SELECT page_count FROM pragma_page_count", &[]).await;
    // Some commits fit, so that a transaction fails after it made others.
    index.limit_pages(u32::try_from(pages + 40).unwrap()).await.unwrap();

    // The first takes the connection; the others share the next transaction.
    let commits: Vec<_> = (0..200)
        .map(|number| place.commit_of(vec![created(&format!("/new/{number}/{}", "x".repeat(900)), 1)]))
        .collect();
    let outcomes =
        join_all(commits.iter().map(|commit| place.index.memories.commit(place.tenant_id, commit))).await;
    let (done, refused): (Vec<_>, Vec<_>) = outcomes.into_iter().partition(Result::is_ok);
    assert!(!refused.is_empty());
    for outcome in refused {
        assert!(matches!(outcome, Err(IndexError::DiskFull(_))), "{outcome:?}");
    }
    assert_eq!(place.paths_below("/").await.len(), 1 + done.len());
    assert_eq!(place.memory("/there").await.version_id, there.version_id);
    place.assert_recount().await;

    index.limit_pages(MAX_PAGES).await.unwrap();
    place.create("/there-is-room", 1).await;
    place.assert_recount().await;
}

#[tokio::test]
async fn audit_is_append_only() {
    let (index, raw, _folder) = sqlite_index().await;
    Place::on(index.into(), Raw::Sqlite(raw.clone())).await;
    for statement in [
        "UPDATE audit SET actor = 'nobody'",
        "DELETE FROM audit",
        "UPDATE operator_audit SET actor = 'nobody'",
        "DELETE FROM operator_audit",
    ] {
        let refused = sqlx::query(statement).execute(&raw).await.unwrap_err().to_string();
        assert!(refused.contains("the audit is append-only"), "{statement}: {refused}");
    }
}

#[tokio::test]
async fn writes_of_another_process_are_noticed() {
    let (place, _index, _folder) = Place::on_sqlite().await;
    place.create("/x/a", 1).await;
    let size = async || {
        let page = place.page(&listing("/x/", Depth::All, None, 10)).await;
        match &page.items[..] {
            [MemoryItem::Memory((memory, _))] => memory.head.content.size_bytes,
            other => panic!("{other:?}"),
        }
    };
    let write = async |bytes: i64| {
        let text = format!("UPDATE memory SET size_bytes = {bytes} WHERE path = '/x/a'");
        place.raw.execute(&text, &[]).await;
    };
    assert_eq!([size().await, size().await], [1, 1]);
    // The next commit finds it, also one elsewhere.
    write(2).await;
    place.create("/y/b", 3).await;
    assert_eq!(size().await, 2);
    // So does the periodic work.
    write(4).await;
    place.index.erasures.empty_log_of_removals().await.unwrap();
    assert_eq!(size().await, 4);
}

#[tokio::test]
async fn log_is_copied_into_the_file_after_a_removal_by_a_job() {
    let (place, _index, folder) = Place::on_sqlite().await;
    place.create("/copied", 1).await;
    let is_copied = || {
        let file = std::fs::read(folder.path().join("index.db")).unwrap();
        file.windows(7).any(|bytes| bytes == b"/copied")
    };
    assert!(!is_copied(), "the commit is in the log only");
    place.index.read_retention.prune(place.tenant_id, NOW, 10, false).await.unwrap();
    assert!(is_copied());
}

/// Drops a call after it was polled so often, or when it has ended.
async fn abandon_after(polls: u32, call: impl Future) {
    let mut call = pin!(call);
    for _ in 0..polls {
        let polled = poll_fn(|context| Poll::Ready(call.as_mut().poll(context))).await;
        if polled.is_ready() {
            return;
        }
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn abandoned_reads_hold_no_snapshot() {
    let (index, raw, _folder) = sqlite_index().await;
    let place = Place::on(index.into(), Raw::Sqlite(raw.clone())).await;
    for polls in 0..12 {
        // Nothing is known, so the listing takes several statements.
        place.create(&format!("/d/{polls}"), 1).await;
        let memories = &place.index.memories;
        abandon_after(polls, memories.head(place.tenant_id, place.store_id, None, 100)).await;
    }
    place.create("/d/last", 1).await;
    for _ in 0..1000 {
        let is_held: bool =
            sqlx::query_scalar("PRAGMA wal_checkpoint(TRUNCATE)").fetch_one(&raw).await.unwrap();
        if !is_held {
            assert_eq!(place.directory("/", 100).await.files, 13);
            return;
        }
        tokio::task::yield_now().await;
    }
    panic!("a snapshot is open");
}

#[tokio::test]
async fn long_read_delays_the_emptying_of_the_log_and_no_writer() {
    let (index, raw, _folder) = sqlite_index().await;
    let place = Place::on(index.into(), Raw::Sqlite(raw.clone())).await;
    place.create("/before", 1).await;
    let mut read = raw.begin().await.unwrap();
    sqlx::query("SELECT 1 FROM memory").execute(&mut *read).await.unwrap();
    place.create("/meanwhile", 1).await;
    let emptied = timeout(Duration::from_secs(2), place.index.erasures.empty_log()).await;
    assert!(!emptied.expect("writers wait for the read").unwrap());
    // The next writer waits for a lock as long as usual, also if the emptying was abandoned.
    let _ = timeout(Duration::from_millis(25), place.index.erasures.empty_log()).await;
    read.rollback().await.unwrap();
    let mut write = raw.begin().await.unwrap();
    sqlx::query("DELETE FROM memory WHERE false").execute(&mut *write).await.unwrap();
    let created = timeout(Duration::from_millis(250), place.create("/locked", 1)).await;
    assert!(created.is_err(), "the writer did not wait for the lock");
    write.rollback().await.unwrap();
    assert!(place.index.erasures.empty_log().await.unwrap());
}

#[tokio::test]
async fn look_ups_are_known_until_a_commit_changes_them() {
    let (place, index, _folder) = Place::on_sqlite().await;
    let steps = count_steps(&index, 1).await;
    let steps_of_reads = || steps.swap(0, Ordering::Relaxed);

    let head = place.create("/d/file", 7).await;
    let other = place.create("/shared/other", 7).await;
    let shared = listing("/shared/", Depth::All, None, 100);
    let pages = [Depth::All, Depth::Children].map(|depth| listing("/", depth, None, 100));
    let look_up = async || {
        let memories = [place.memory("/d/file").await, place.memory("/shared/other").await];
        let pages = [place.page(&pages[0]).await, place.page(&pages[1]).await, place.page(&shared).await];
        (memories, place.directory("/", 100).await, pages)
    };
    let (memories, directory, lists) = look_up().await;
    assert_eq!(memories, [head, other]);
    assert_ne!(lists[0], lists[1]);
    assert!(steps_of_reads() > 0, "the count of steps does not work");
    let known = (memories, directory, lists);
    for _ in 0..3 {
        assert_eq!(look_up().await, known);
    }
    assert_eq!(steps_of_reads(), 0, "known look-ups read the file");

    // A commit makes its heads known, and leaves what it does not change.
    let ([head, other], _, [all, _, of_shared]) = known;
    place.change(vec![edited(&head, 7)]).await;
    let edited = place.memory("/d/file").await;
    assert_ne!(edited.version_id, head.version_id);
    assert_eq!(place.memory("/shared/other").await, other);
    assert_eq!(place.page(&shared).await, of_shared);
    assert_eq!(steps_of_reads(), 0, "look-ups after a commit read the file");
    assert_eq!(place.heads_below("/d/").await, [edited]);
    assert_ne!(place.page(&pages[0]).await, all);
    place.assert_recount().await;
}
