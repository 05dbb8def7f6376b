//! Imports of archives that end early.

use std::cell::Cell;
use std::sync::Arc;

use bytes::Bytes;
use keepsake_archive::plan::OnConflict;
use keepsake_core::limits::LimitOverrides;
use keepsake_engine::{EngineError, FairShares, ImportOptions, MemoryBatch, RequestShares, holding};
use serde_json::json;
use tokio::time::Instant;

use super::exports::archive_of;
use crate::test_engine::TestEngine;

crate::on_backend! { sqlite, on_sqlite, stopped_import_is_continued_by_the_same_archive, }

/// Imports an archive. The credential is good for a number of authentications. Returns why the import
/// was stopped, and the numbers of created and unchanged memories.
async fn import(
    setup: &TestEngine,
    archive: &Bytes,
    authentications: usize,
    deadline: Option<Instant>,
) -> (String, [usize; 2]) {
    let shares = FairShares::new(1 << 30);
    let share = || shares.take(setup.principal.tenant_id, 1).unwrap();
    let held = Arc::new(RequestShares { request: share(), memory: share() });
    let left = Cell::new(authentications);
    let authenticate = || {
        let now_left = left.get().checked_sub(1);
        left.set(now_left.unwrap_or_default());
        let principal = Arc::clone(&setup.principal);
        let ended = EngineError::Unauthenticated("the key was revoked");
        async move { now_left.map(|_| principal).ok_or(ended) }
    };
    let work = async {
        let imports = &setup.engine.imports;
        let verified = imports.verify(&setup.principal, archive.clone(), "/").await?;
        let options = ImportOptions { on_conflict: OnConflict::Fail, is_dry_run: false, deadline };
        imports.write(verified, setup.store_id, options, authenticate).await
    };
    let imported = holding(held, Box::pin(work)).await.unwrap();
    let [(_, created), _, (_, unchanged), ..] = imported.report.counts();
    (imported.stopped.unwrap_or_default(), [created, unchanged])
}

async fn stopped_import_is_continued_by_the_same_archive(setup: TestEngine) {
    let operation = |number| json!({"type": "create", "path": format!("/{number}.md"), "content": "x"});
    let operations: Vec<_> = (0..500).map(operation).collect();
    let batch = serde_json::from_value::<MemoryBatch>(json!({"operations": operations})).unwrap();
    setup.engine.memories.batch(&setup.principal, setup.store_id, batch).await.unwrap();
    let archive = Bytes::from(archive_of(&setup, false).await.unwrap());
    let copy = setup.of_tenant_with(LimitOverrides::default()).await;

    // One authentication for the list of the store, and one for each batch of 200.
    let (stopped, counts) = import(&copy, &archive, 2, None).await;
    assert!(stopped.contains("after 200 of 500 files: the key was revoked"), "{stopped}");
    assert_eq!(counts, [200, 0]);
    let (stopped, counts) = import(&copy, &archive, 10, Some(Instant::now())).await;
    assert!(stopped.contains("after 200 of 300 files: the time of the request is over"), "{stopped}");
    assert_eq!(counts, [200, 200]);
    assert_eq!(import(&copy, &archive, 10, None).await, (String::new(), [100, 400]));
}
