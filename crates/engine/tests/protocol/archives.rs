//! Archives of a store whose history or contents are removed, and imports that end early.

use std::cell::Cell;

use keepsake_archive::Damage;
use keepsake_archive::packed::{UnpackLimit, read_files};
use keepsake_archive::plan::OnConflict;
use keepsake_archive::verified::MAX_MANIFEST_BYTES;
use serde_json::Map;
use tokio::time::Instant;

use crate::prelude::*;

on_backend! { sqlite_and_s3, of_redacted_content, redaction_of_a_listed_version_breaks_an_export_off, }
on_backend! {
    sqlite, on_sqlite,
    export_of_many_lost_contents_can_be_read,
    stopped_import_is_continued_by_the_same_archive,
}

async fn archive_of(setup: &TestEngine, has_versions: bool) -> Result<Vec<u8>, EngineError> {
    let form = ExportForm { store: Map::new(), version: |_| Ok(json!({})) };
    let exports = &setup.engine.exports;
    let extent = ExportExtent { has_versions, ..ExportExtent::default() };
    let mut export = exports.begin(&setup.principal, setup.store_id, extent, form).await?;
    let mut archive = Vec::new();
    while let Some(part) = export.next().await? {
        archive.extend_from_slice(&part);
    }
    Ok(archive)
}

async fn export(setup: &TestEngine, has_versions: bool) -> Result<BTreeMap<String, String>, EngineError> {
    let archive = archive_of(setup, has_versions).await?;
    let mut files = BTreeMap::new();
    let limit = UnpackLimit { bytes: 1 << 20, ratio: 1 };
    let read = read_files::<Damage>(&archive[..], limit, |name, _, content| {
        let text = std::io::read_to_string(content).map_err(|error| Damage(error.to_string()))?;
        files.insert(name.to_owned(), text);
        Ok(())
    });
    read.unwrap();
    Ok(files)
}

async fn redaction_of_a_listed_version_breaks_an_export_off(setup: TestEngine) {
    for (has_versions, is_listed) in [(false, true), (true, true), (true, false)] {
        let setup = setup.of_tenant_with(json!({})).await;
        let secret = setup.make("/a.md", "secret").await;
        setup.make("/b.md", "kept").await;
        let replace = new_content("public");
        if !is_listed {
            setup.update(&secret, replace.clone()).await.unwrap();
        }
        // With the first memory in its cache, an export reads the second one from the object store only.
        let reader = setup.elsewhere();
        reader.text_at("/memories/a.md").await;
        let writer = setup.clone();
        setup.blobs.before_get(once(async move {
            if is_listed {
                writer.update(&secret, replace).await.unwrap();
            }
            writer.redact(&secret).await;
        }));
        let files = match export(&reader, has_versions).await {
            Err(EngineError::Conflict(_)) if is_listed => export(&reader, has_versions).await.unwrap(),
            Ok(files) if !is_listed => files,
            other => panic!("{has_versions} {is_listed}: {other:?}"),
        };
        assert_eq!((files["memories/a.md"].as_str(), files["memories/b.md"].as_str()), ("public", "kept"));
        assert!(!files.values().any(|text| text.contains("secret")), "{files:?}");
    }
}

async fn export_of_many_lost_contents_can_be_read(setup: TestEngine) {
    let directories = format!("/{0}/{0}/{0}", "long".repeat(50));
    setup.write_all((0..400).map(|n| (format!("{directories}/{n}"), "x".to_owned()))).await;
    setup.index.contents.delete_store(setup.principal.tenant_id, setup.store_id).await.unwrap();
    let files = export(&setup.elsewhere(), false).await.unwrap();
    assert!((files["keepsake.json"].len() as u64) < MAX_MANIFEST_BYTES);
    let manifest: Value = serde_json::from_str(&files["keepsake.json"]).unwrap();
    let left_out = manifest["left_out"].as_array().unwrap();
    let further = format!("the contents of {} further memories", 401 - left_out.len());
    assert!(left_out.last().unwrap().as_str().unwrap().starts_with(&further), "{left_out:?}");
}

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
    setup.write_all((0..500).map(|n| (format!("/{n}.md"), "x".to_owned()))).await;
    let archive = Bytes::from(archive_of(&setup, false).await.unwrap());
    let copy = setup.of_tenant_with(json!({})).await;

    // One authentication for the list of the store, and one for each batch of 200.
    let (stopped, counts) = import(&copy, &archive, 2, None).await;
    assert!(stopped.contains("after 200 of 500 files: the key was revoked"), "{stopped}");
    assert_eq!(counts, [200, 0]);
    let (stopped, counts) = import(&copy, &archive, 10, Some(Instant::now())).await;
    assert!(stopped.contains("after 200 of 300 files: the time of the request is over"), "{stopped}");
    assert_eq!(counts, [200, 200]);
    assert_eq!(import(&copy, &archive, 10, None).await, (String::new(), [100, 400]));
}
