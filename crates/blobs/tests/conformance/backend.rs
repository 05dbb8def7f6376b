//! Fresh stores of each kind, and a way past them to plant foreign objects.

use std::sync::Arc;

use aws_sdk_s3::primitives::ByteStream;
use keepsake_blobs::{BlobStore, BlobUrl, FileBlobs, S3Blobs, S3Settings};
use keepsake_core::{BlobKey, StoreId, TenantId, VersionId};
use keepsake_telemetry::Metrics;
use keepsake_testkit::s3::{raw_s3_client, s3_options, unique_prefix};
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
        keepsake_blobs::open(&BlobUrl::parse(&url).unwrap(), &settings, &Metrics::default())
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
                raw_s3_client()
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

/// The key of a small number each for tenant, store and blob.
pub(crate) fn key(tenant: u128, store: u128, blob: u128) -> BlobKey {
    BlobKey {
        tenant_id: TenantId::from_uuid(Uuid::from_u128(tenant)),
        store_id: StoreId::from_uuid(Uuid::from_u128(store)),
        blob_id: VersionId::from_uuid(Uuid::from_u128(blob)),
    }
}
