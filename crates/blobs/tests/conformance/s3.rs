//! What only a store in S3 must do.

use std::sync::{Arc, Mutex};

use bytes::Bytes;
use keepsake_blobs::{BlobError, BlobStore, ObjectVersions, S3Blobs};

use crate::backend::{connect, fresh_options, http, key, options_for, server_that_tells};

const ENABLED: &str = "<VersioningConfiguration><Status>Enabled</Status></VersioningConfiguration>";

fn count(requests: &Mutex<Vec<String>>, of: &str) -> usize {
    let requests = requests.lock().unwrap();
    requests.iter().filter(|line| line.contains(of)).count()
}

fn denied() -> String {
    http("403 Forbidden", "<Error><Code>AccessDenied</Code><Message>no</Message></Error>")
}

/// A store in a bucket that has no objects and deletes any, and the requests to it. It says this of
/// its versioning and of its versions.
async fn bucket_that_says(state: String, versions: String) -> (S3Blobs, Arc<Mutex<Vec<String>>>) {
    let (endpoint, requests) = server_that_tells(move |line| match line {
        line if line.starts_with("DELETE") => http("204 No Content", ""),
        line if line.contains("list-type=2") => http("200 OK", "<ListBucketResult/>"),
        line if line.contains("?versioning") => state.clone(),
        _ => versions.clone(),
    })
    .await;
    (connect(options_for(&endpoint)).await, requests)
}

#[tokio::test]
async fn unversioned_bucket_state_is_read_once_in_minutes() {
    let never = "<VersioningConfiguration xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"/>";
    let (store, requests) = bucket_that_says(http("200 OK", never), denied()).await;
    let replica = store.clone();
    for blob in 1..=3 {
        for store in [&store, &replica] {
            assert_eq!(store.erase(&key(1, 1, blob)).await.unwrap(), ObjectVersions::NotVersioned);
        }
    }
    assert_eq!((count(&requests, "DELETE"), count(&requests, "?versioning")), (6, 1));
    assert_eq!(requests.lock().unwrap().len(), 7);
}

#[tokio::test]
async fn forbidden_version_listing_is_reported_and_remembered() {
    let (store, requests) = bucket_that_says(denied(), denied()).await;
    for blob in 1..=3 {
        assert_eq!(store.erase(&key(1, 1, blob)).await.unwrap(), ObjectVersions::Kept);
    }
    assert_eq!((count(&requests, "?versioning"), count(&requests, "?versions")), (1, 1));
    // Erasing a whole tenant or store requests the state again.
    let one = key(1, 1, 1);
    for _ in 0..2 {
        let erased = store.erase_all(one.tenant_id, None, None, 10).await.unwrap();
        assert_eq!((erased.became, erased.last), (ObjectVersions::Kept, None));
        let erased = store.erase_all(one.tenant_id, Some(one.store_id), None, usize::MAX).await.unwrap();
        assert_eq!(erased.became, ObjectVersions::Kept);
    }
    assert_eq!(count(&requests, "?versions"), 5);
}

#[tokio::test]
async fn erasure_succeeds_whatever_the_server_says_of_versioning() {
    let (empty, listed) = (http("200 OK", ""), http("200 OK", "<ListVersionsResult/>"));
    let unknown = || http("501 Not Implemented", "");
    for (state, versions, expected) in [
        (empty.clone(), listed.clone(), Some(ObjectVersions::Deleted)),
        (empty.clone(), unknown(), Some(ObjectVersions::Kept)),
        (empty.clone(), empty.clone(), Some(ObjectVersions::Kept)),
        (http("200 OK", "{\"Status\": null}"), listed.clone(), Some(ObjectVersions::Deleted)),
        (http("200 OK", "<Versioning/>"), listed.clone(), Some(ObjectVersions::Deleted)),
        (
            http("404 Not Found", "<Error><Code>NoSuchConfiguration</Code></Error>"),
            listed,
            Some(ObjectVersions::Deleted),
        ),
        // Versions that the bucket has and does not list are an error with its cause.
        (http("200 OK", ENABLED), http("200 OK", "<html/>"), None),
    ] {
        let (store, _) = bucket_that_says(state.clone(), versions).await;
        let erased = store.erase(&key(1, 1, 1)).await;
        let why = erased.as_ref().err().map(ToString::to_string).unwrap_or_default();
        assert_eq!(erased.ok(), expected, "{state}: {why}");
        assert!(expected.is_some() || why.contains("html"), "{why}");
    }
}

#[tokio::test]
async fn locked_versions_are_counted_and_the_others_deleted() {
    let one = key(1, 1, 1);
    let mut options = fresh_options();
    let names: Vec<_> = (1..=3).map(|blob| format!("{}/{}", options.prefix, key(1, 1, blob))).collect();
    let held = names[1].clone();
    let version = |name| format!("<Version><Key>{name}</Key><VersionId>v1</VersionId></Version>");
    let listed = names.iter().map(version).collect::<Vec<_>>().concat();
    let (endpoint, requests) = server_that_tells(move |line| match line {
        line if line.contains("versionId=") && line.contains(&held) => denied(),
        line if line.starts_with("DELETE") => http("204 No Content", ""),
        line if line.contains("list-type=2") => http("200 OK", "<ListBucketResult/>"),
        line if line.contains("?versioning") => http("200 OK", ENABLED),
        _ => http(
            "200 OK",
            &format!("<ListVersionsResult><IsTruncated>false</IsTruncated>{listed}</ListVersionsResult>"),
        ),
    })
    .await;
    options.settings.endpoint = Some(endpoint);
    let erased = connect(options).await.erase_all(one.tenant_id, None, None, 10).await.unwrap();
    assert_eq!((erased.gone, erased.kept, erased.became), (2, 1, ObjectVersions::Kept));
    assert_eq!(count(&requests, "versionId=v1"), 3);
}

#[tokio::test]
async fn unreachable_failing_and_cut_off_servers_are_unavailable() {
    let unused_port = keepsake_testkit::keepsake_server::free_port();
    for endpoint in [format!("http://127.0.0.1:{unused_port}"), "http://no-such-host.invalid".to_owned()] {
        let outcome = connect(options_for(&endpoint)).await.check().await;
        assert!(matches!(outcome, Err(BlobError::Unavailable(_))), "{endpoint}: {outcome:?}");
    }

    let (endpoint, requests) = server_that_tells(|_| http("503 Service Unavailable", "")).await;
    let store = connect(options_for(&endpoint)).await;
    let outcome = store.put(&key(1, 1, 1), Bytes::from_static(b"text")).await;
    assert!(matches!(outcome, Err(BlobError::Unavailable(_))), "{outcome:?}");
    assert_eq!(requests.lock().unwrap().len(), 4, "attempts");

    let cut_off = "HTTP/1.1 200 OK\r\nContent-Length: 100\r\nConnection: close\r\n\r\nonly this";
    let (endpoint, _) = server_that_tells(move |_| cut_off.to_owned()).await;
    let outcome = connect(options_for(&endpoint)).await.get(&key(1, 1, 1), 1_000).await;
    assert!(matches!(outcome, Err(BlobError::Unavailable(_))), "{outcome:?}");
}

#[tokio::test]
async fn invalid_settings_are_refused() {
    for endpoint in ["127.0.0.1:9000", "ftp://host", "https://", "https://key:secret@host"] {
        let refused = S3Blobs::connect(options_for(endpoint)).await;
        assert!(matches!(refused, Err(BlobError::Misconfigured(_))), "{endpoint}: {refused:?}");
    }
    let folder = tempfile::tempdir().unwrap();
    let broken = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    for certificates in [None, Some("not a certificate"), Some(broken)] {
        let file = folder.path().join("ca.pem");
        if let Some(text) = certificates {
            std::fs::write(&file, text).unwrap();
        }
        let mut options = options_for("https://127.0.0.1:1");
        options.settings.ca_file = Some(file);
        let refused = S3Blobs::connect(options).await;
        assert!(matches!(refused, Err(BlobError::Misconfigured(_))), "{certificates:?}: {refused:?}");
    }
}
