//! Fresh stores, and a way past them to plant foreign objects.

use std::sync::Arc;

use aws_sdk_s3::primitives::ByteStream;
use keepsake_blobs::{BlobStore, BlobUrl, S3Blobs};
use keepsake_core::{BlobKey, StoreId, TenantId, VersionId};
use keepsake_telemetry::Metrics;
use keepsake_testkit::s3::{raw_s3_client, s3_options, unique_prefix};
use uuid::Uuid;

/// An empty place for blobs, which may be opened many times.
pub(crate) struct Backend {
    prefix: String,
}

impl Backend {
    pub(crate) fn fresh_s3() -> Self {
        Self { prefix: unique_prefix() }
    }

    pub(crate) async fn open(&self) -> Arc<dyn BlobStore> {
        Arc::new(S3Blobs::connect(s3_options(&self.prefix)).await.unwrap())
    }

    /// As the server opens it, from what its configuration says.
    pub(crate) async fn open_by_url(&self) -> Arc<dyn BlobStore> {
        let options = s3_options(&self.prefix);
        let url = format!("s3://{}/{}", options.bucket, self.prefix);
        let url = url.parse::<BlobUrl>().unwrap();
        let opened = keepsake_blobs::open(&url, &options.settings, &Metrics::default()).await;
        opened.unwrap().unwrap()
    }

    /// Writes an object of any name among the blobs.
    pub(crate) async fn plant(&self, name: &str) {
        let options = s3_options(&self.prefix);
        raw_s3_client()
            .put_object()
            .bucket(options.bucket)
            .key(format!("{}/{name}", self.prefix))
            .body(ByteStream::from_static(b"foreign"))
            .send()
            .await
            .unwrap();
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
