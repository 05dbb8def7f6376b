//! A bucket with versioning.

use aws_sdk_s3::Client;
use aws_sdk_s3::config::{BehaviorVersion, Builder, Credentials, Region, RequestChecksumCalculation};
use aws_sdk_s3::error::ProvideErrorMetadata;
use aws_sdk_s3::types::{BucketVersioningStatus, VersioningConfiguration};
use aws_smithy_http_client::tls::rustls_provider::CryptoMode;
use aws_smithy_http_client::tls::{Provider, TlsContext, TrustStore};
use keepsake_blobs::S3Options;
use secrecy::ExposeSecret;

use super::{s3_options, unique_prefix};

/// The bucket of all tests, because servers reserve space for each bucket.
const BUCKET: &str = "keepsake-tests-versioned";

/// A prefix for one test in a bucket with versioning.
#[derive(Debug)]
pub struct VersionedPlace {
    pub options: S3Options,
    client: Client,
}

impl VersionedPlace {
    /// Versions and delete markers of all objects of the place.
    pub async fn versions(&self) -> usize {
        let listing = self.client.list_object_versions().bucket(BUCKET).prefix(&self.options.prefix);
        let listed = listing.send().await.expect("the server lists versions");
        assert_ne!(listed.is_truncated(), Some(true));
        listed.versions().len() + listed.delete_markers().len()
    }
}

/// A fresh place in a bucket that keeps versions; `None`: the server's buckets
/// keep none.
pub async fn versioned_s3() -> Option<VersionedPlace> {
    let client = raw_s3_client();
    if let Err(refused) = client.create_bucket().bucket(BUCKET).send().await {
        match refused.code() {
            Some("BucketAlreadyOwnedByYou" | "BucketAlreadyExists") => {}
            // Garage makes buckets by its own tool.
            Some("AccessDenied") => return None,
            _ => panic!("the bucket cannot be made: {refused:?}"),
        }
    }
    let versioning = VersioningConfiguration::builder().status(BucketVersioningStatus::Enabled).build();
    let set = client.put_bucket_versioning().bucket(BUCKET).versioning_configuration(versioning);
    set.send().await.expect("the bucket takes versioning");
    let mut options = s3_options(&unique_prefix());
    BUCKET.clone_into(&mut options.bucket);
    Some(VersionedPlace { options, client })
}

/// A client of the test server without Keepsake's code.
pub fn raw_s3_client() -> Client {
    let settings = s3_options("").settings;
    let credentials = settings.credentials.expect("the tests have fixed keys");
    let secret = credentials.secret_access_key.expose_secret();
    let mut trust_store = TrustStore::default();
    if let Some(ca_file) = settings.ca_file {
        trust_store.add_pem_certificate(std::fs::read(ca_file).expect("the CA file can be read"));
    }
    let tls =
        TlsContext::builder().with_trust_store(trust_store).build().expect("the CA file holds certificates");
    let http_client = aws_smithy_http_client::Builder::new()
        .tls_provider(Provider::rustls(CryptoMode::AwsLc))
        .tls_context(tls)
        .build_https();
    let config = Builder::new()
        .behavior_version(BehaviorVersion::latest())
        .http_client(http_client)
        .region(Region::new(settings.region.unwrap_or_default()))
        .credentials_provider(Credentials::new(credentials.access_key_id, secret, None, None, "test"))
        .endpoint_url(settings.endpoint.unwrap_or_default())
        .request_checksum_calculation(RequestChecksumCalculation::WhenRequired)
        .force_path_style(true)
        .build();
    Client::from_conf(config)
}
