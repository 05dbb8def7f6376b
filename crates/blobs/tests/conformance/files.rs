//! Requirements for a store of files.

use std::fs::File;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use bytes::Bytes;
use keepsake_blobs::{BlobError, BlobStore, FileBlobs};

use crate::backend::key;

async fn open(root: &Path) -> FileBlobs {
    FileBlobs::open(root.to_owned()).await.unwrap()
}

fn entries(folder: &Path) -> usize {
    std::fs::read_dir(folder).unwrap().count()
}

fn mode(path: &Path) -> u32 {
    std::fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[tokio::test]
async fn put_onto_an_existing_key_fails_and_leaves_it_unchanged() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path()).await;
    store
        .put(&key(1, 1, 1), Bytes::from_static(b"first"))
        .await
        .unwrap();
    let refused = store.put(&key(1, 1, 1), Bytes::from_static(b"second")).await;
    assert!(matches!(refused, Err(BlobError::Io { .. })), "{refused:?}");
    assert_eq!(
        store.get(&key(1, 1, 1), 1_000).await.unwrap().as_deref(),
        Some(&b"first"[..])
    );
    assert_eq!(entries(&folder.path().join("tmp")), 0);
}

#[tokio::test]
async fn leftovers_of_cut_short_writes_are_removed_at_open() {
    let folder = tempfile::tempdir().unwrap();
    open(folder.path()).await;
    let temp_folder = folder.path().join("tmp");
    std::fs::write(temp_folder.join("put-crashed"), "half").unwrap();
    std::fs::write(temp_folder.join("note"), "not ours").unwrap();
    let being_written = File::create(temp_folder.join("put-alive")).unwrap();
    being_written.lock().unwrap();

    open(folder.path()).await;
    assert!(!temp_folder.join("put-crashed").exists());
    assert!(temp_folder.join("note").exists());
    assert!(temp_folder.join("put-alive").exists());

    drop(being_written);
    open(folder.path()).await;
    assert!(!temp_folder.join("put-alive").exists());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn opening_it_elsewhere_disturbs_no_write() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path()).await;
    let root = folder.path().to_owned();
    let opening = tokio::spawn(async move {
        for _ in 0..2000 {
            open(&root).await;
        }
    });
    let mut written = 0;
    while !opening.is_finished() {
        written += 1;
        let bytes = Bytes::from_static(b"content");
        store.put(&key(1, 1, written), bytes).await.unwrap();
    }
    opening.await.unwrap();
    assert!(written > 10, "{written} writes show nothing");
}

#[tokio::test]
async fn only_the_owner_may_read_folders_and_blobs() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("new/root");
    let store = open(&root).await;
    store
        .put(&key(1, 1, 1), Bytes::from_static(b"secret"))
        .await
        .unwrap();
    let blob = root.join(key(1, 1, 1).to_string());
    assert_eq!(mode(&blob), 0o600);
    for inner in blob.ancestors().skip(1).take(3) {
        assert_eq!(mode(inner), 0o700, "{}", inner.display());
    }
    assert_eq!(mode(&root.join("tmp")), 0o700);
}

#[tokio::test]
async fn folder_removed_behind_its_back_is_made_again() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path()).await;
    store
        .put(&key(1, 1, 1), Bytes::from_static(b"one"))
        .await
        .unwrap();
    std::fs::remove_dir_all(folder.path().join(key(1, 1, 1).tenant_id.to_string())).unwrap();
    store
        .put(&key(1, 1, 2), Bytes::from_static(b"two"))
        .await
        .unwrap();
    assert_eq!(
        store.get(&key(1, 1, 2), 1_000).await.unwrap().as_deref(),
        Some(&b"two"[..])
    );
}

#[tokio::test]
async fn root_that_is_a_file_or_gone_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    std::fs::write(&file, "").unwrap();
    assert!(FileBlobs::open(file).await.is_err());

    let root = folder.path().join("root");
    let store = open(&root).await;
    std::fs::remove_dir_all(&root).unwrap();
    assert!(store.check().await.is_err());
}
