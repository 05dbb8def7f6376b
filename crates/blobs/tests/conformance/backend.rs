//! Fresh stores of each kind, and a way past them to plant foreign objects.

use std::sync::Arc;

use aws_sdk_s3::config::{BehaviorVersion, Builder, Credentials, Region, RequestChecksumCalculation};
use aws_sdk_s3::primitives::ByteStream;
use aws_smithy_http_client::tls::rustls_provider::CryptoMode;
use aws_smithy_http_client::tls::{Provider, TlsContext, TrustStore};
use keepsake_blobs::{BlobStore, BlobUrl, FileBlobs, S3Blobs, S3Settings};
use keepsake_core::{BlobKey, StoreId, TenantId, VersionId};
use keepsake_testkit::s3::{s3_options, unique_prefix};
use secrecy::ExposeSecret;
use tempfile::TempDir;
use uuid::Uuid;

/// An empty place for blobs, which may be opened many times.
pub(crate) enum Backend {
    Files { folder: TempDir },
    S3 { prefix: String },
}

impl Backend {
    pub(crate) fn fresh_files() -> Self {
        Self::Files {
            folder: tempfile::tempdir().unwrap(),
        }
    }

    pub(crate) fn fresh_s3() -> Self {
        Self::S3 {
            prefix: unique_prefix(),
        }
    }

    pub(crate) async fn open(&self) -> Arc<dyn BlobStore> {
        match self {
            Self::Files { folder } => Arc::new(FileBlobs::open(folder.path().to_owned()).await.unwrap()),
            Self::S3 { prefix } => Arc::new(S3Blobs::connect(s3_options(prefix)).await.unwrap()),
        }
    }

    /// As the server opens it, from what its configuration says.
    pub(crate) async fn open_by_url(&self) -> Arc<dyn BlobStore> {
        let (url, settings) = match self {
            Self::Files { folder } => (
                format!("file://{}", folder.path().display()),
                S3Settings::default(),
            ),
            Self::S3 { prefix } => {
                let options = s3_options(prefix);
                (format!("s3://{}/{prefix}", options.bucket), options.settings)
            }
        };
        keepsake_blobs::open(&BlobUrl::parse(&url).unwrap(), &settings)
            .await
            .unwrap()
    }

    /// Writes an object of any name among the blobs.
    pub(crate) async fn plant(&self, name: &str) {
        match self {
            Self::Files { folder } => {
                let path = folder.path().join(name);
                std::fs::create_dir_all(path.parent().unwrap()).unwrap();
                std::fs::write(path, "foreign").unwrap();
            }
            Self::S3 { prefix } => {
                let options = s3_options(prefix);
                raw_client()
                    .put_object()
                    .bucket(options.bucket)
                    .key(format!("{prefix}/{name}"))
                    .body(ByteStream::from_static(b"foreign"))
                    .send()
                    .await
                    .unwrap();
            }
        }
    }
}

/// The S3 client itself.
pub(crate) fn raw_client() -> aws_sdk_s3::Client {
    let settings = s3_options("").settings;
    let credentials = settings.credentials.unwrap();
    let secret = credentials.secret_access_key.expose_secret();
    let mut trust_store = TrustStore::default();
    if let Some(ca_file) = settings.ca_file {
        trust_store.add_pem_certificate(std::fs::read(ca_file).unwrap());
    }
    let tls = TlsContext::builder()
        .with_trust_store(trust_store)
        .build()
        .unwrap();
    let http_client = aws_smithy_http_client::Builder::new()
        .tls_provider(Provider::rustls(CryptoMode::AwsLc))
        .tls_context(tls)
        .build_https();
    let config = Builder::new()
        .behavior_version(BehaviorVersion::latest())
        .http_client(http_client)
        .region(Region::new(settings.region.unwrap()))
        .credentials_provider(Credentials::new(
            credentials.access_key_id,
            secret,
            None,
            None,
            "test",
        ))
        .endpoint_url(settings.endpoint.unwrap())
        .request_checksum_calculation(RequestChecksumCalculation::WhenRequired)
        .force_path_style(true)
        .build();
    aws_sdk_s3::Client::from_conf(config)
}

/// The key of a small number each for tenant, store and blob.
pub(crate) fn key(tenant: u128, store: u128, blob: u128) -> BlobKey {
    BlobKey {
        tenant_id: TenantId::from_uuid(Uuid::from_u128(tenant)),
        store_id: StoreId::from_uuid(Uuid::from_u128(store)),
        blob_id: VersionId::from_uuid(Uuid::from_u128(blob)),
    }
}
