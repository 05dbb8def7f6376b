//! Prefixes in the bucket of the test S3 server, one for each test.

mod versioned;

use std::path::PathBuf;
use std::sync::Arc;

use keepsake_blobs::{BlobStore, S3Blobs, S3Credentials, S3Options, S3Settings};
use secrecy::ExposeSecret;

use crate::{required_variable, unique_name};

pub use versioned::{VersionedPlace, raw_s3_client, versioned_s3};

/// The options for the test server, with all names below `prefix`.
///
/// Read from `KEEPSAKE_TEST_S3_ENDPOINT`, `_BUCKET`, `_ACCESS_KEY_ID` and
/// `_SECRET_ACCESS_KEY`, and if set `_REGION` and `_CA_FILE`.
pub fn s3_options(prefix: &str) -> S3Options {
    let credentials = S3Credentials {
        access_key_id: required_variable("KEEPSAKE_TEST_S3_ACCESS_KEY_ID", "the S3 server's key"),
        secret_access_key: required_variable("KEEPSAKE_TEST_S3_SECRET_ACCESS_KEY", "that key's secret")
            .into(),
    };
    S3Options {
        bucket: required_variable("KEEPSAKE_TEST_S3_BUCKET", "a bucket that may be filled"),
        prefix: prefix.to_owned(),
        settings: S3Settings {
            endpoint: Some(required_variable("KEEPSAKE_TEST_S3_ENDPOINT", "http://127.0.0.1:9000")),
            region: Some(std::env::var("KEEPSAKE_TEST_S3_REGION").unwrap_or_else(|_| "us-east-1".to_owned())),
            path_style: true,
            credentials: Some(credentials),
            sse_kms_key_id: None,
            ca_file: std::env::var_os("KEEPSAKE_TEST_S3_CA_FILE").map(PathBuf::from),
            max_call: None,
        },
    }
}

/// The same options as the section `[blobs]` of a server's configuration.
pub fn s3_section(options: S3Options) -> String {
    let S3Options { bucket, prefix, settings } = options;
    let credentials = settings.credentials.expect("the tests have fixed keys");
    let ca_file = settings.ca_file.map(|file| format!("ca_file = {:?}\n", file.display().to_string()));
    format!(
        "url = \"s3://{bucket}/{prefix}\"\nendpoint = \"{}\"\nregion = \"{}\"\npath_style = true\n\
         access_key_id = \"{}\"\nsecret_access_key = \"{}\"\n{}",
        settings.endpoint.unwrap_or_default(),
        settings.region.unwrap_or_default(),
        credentials.access_key_id,
        credentials.secret_access_key.expose_secret(),
        ca_file.unwrap_or_default(),
    )
}

/// An empty blob store on the test server: a prefix that no other test uses.
pub async fn fresh_s3() -> Arc<dyn BlobStore> {
    let blobs = S3Blobs::connect(s3_options(&unique_prefix())).await;
    Arc::new(blobs.expect("the test S3 server's settings are wrong"))
}

pub fn unique_prefix() -> String {
    unique_name()
}
