//! Search: results follow what changes behind a replica's back.

use crate::meaning::{asked, paths, search};
use crate::prelude::*;
use crate::writes::move_head;

on_both_databases! { memories_of_an_earlier_release_are_indexed_by_searches_and_the_job, }

with_object_store! { hit_that_changes_meanwhile_shows_the_content_that_was_found, }

async fn hit_that_changes_meanwhile_shows_the_content_that_was_found(setup: TestEngine) {
    let (other, moved) = (setup.elsewhere(), setup.clone());
    setup.create("/memories/a.txt", "an apple\n").await;
    setup.blobs.before_get(once(async move { move_head(&moved).await }));
    assert_eq!(search(&other, &asked("apple")).await.items[0].snippet, "an ⟦apple⟧\n");
    assert_eq!(paths(&other, "apple").await, Vec::<String>::new());
}

/// Only on Postgres: a standby that was behind takes over while replicas run on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn search_follows_a_restored_database() {
    const TABLES: [&str; 5] = ["store", "memory", "version", "directory", "search_doc"];
    let setup = TestEngine::postgres_and_s3().await;
    let restore = async || {
        for table in TABLES {
            setup.database().execute(&format!("DELETE FROM {table}")).await;
            setup.database().execute(&format!("INSERT INTO {table} SELECT * FROM saved_{table}")).await;
        }
    };
    setup.make("/kept.md", "zebra").await;
    for table in TABLES {
        setup.database().execute(&format!("CREATE TABLE saved_{table} AS SELECT * FROM {table}")).await;
    }
    // The second time, the new history is longer than the lost one before it is searched.
    for found in [&["/kept.md"][..], &["/kept.md", "/new.md", "/newer.md"]] {
        setup.make("/lost.md", "zebra").await;
        assert_eq!(paths(&setup, "zebra").await, ["/kept.md", "/lost.md"]);
        restore().await;
        for path in &found[1..] {
            setup.make(path, "zebra").await;
        }
        assert_eq!(paths(&setup, "zebra").await, found);
    }
}

async fn memories_of_an_earlier_release_are_indexed_by_searches_and_the_job(setup: TestEngine) {
    let other = setup.elsewhere();
    setup.create("/memories/a.txt", "one\n").await;
    assert_eq!(paths(&other, "one").await, ["/a.txt"]);
    move_head(&setup).await;
    assert_eq!(setup.dry_run(IndexMemories).await["would_index"], 1);
    setup.clock.advance(DAY);
    setup.run_stopped(IndexMemories).await;
    let counts = setup.run(IndexMemories).await;
    assert_eq!((&counts["indexed"], &counts["failed"]), (&json!(0), &json!(0)));
    for engine in [&setup, &other] {
        assert_eq!(paths(engine, "moved after").await, ["/a.txt"]);
    }
    move_head(&setup).await;
    assert_eq!(paths(&setup, "moved").await, [""; 0], "not yet");
    assert_eq!(paths(&setup, "moved a.txt").await, ["/a.txt"], "by its path");
    let is_found = async { while paths(&setup, "moved after").await.is_empty() {} };
    tokio::time::timeout(MINUTE, is_found).await.unwrap();
    assert_eq!(setup.run(IndexMemories).await["indexed"], 0);
}
