//! Blobs as objects of an S3 bucket, of AWS or of a compatible server.
//!
//! An object's name is the configured prefix, a `/`, and the blob's key. The
//! credentials need `s3:GetObject`, `s3:PutObject`, `s3:DeleteObject` and
//! `s3:ListBucket`; without the last, AWS answers "access denied" instead of
//! "absent". In a bucket with versioning, a deleted blob stays until the bucket's
//! lifecycle rules remove it. Erasing a blob also deletes its object versions, for
//! which the credentials need `s3:GetBucketVersioning`,
//! `s3:ListBucketVersions` and `s3:DeleteObjectVersion`.

mod calls;
mod client;
mod error;
mod list;
mod versions;

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use aws_sdk_s3::Client;
use aws_sdk_s3::operation::get_object::{GetObjectError, GetObjectOutput};
use aws_sdk_s3::primitives::ByteStream;
use aws_sdk_s3::types::ServerSideEncryption;
use bytes::{Bytes, BytesMut};
use keepsake_core::{BlobKey, StoreId, TenantId, causes};
use keepsake_telemetry::Metrics;
use secrecy::SecretString;
use tracing::instrument;

use self::calls::Calls;
use self::versions::{VersionDeletion, VersioningCache};
use crate::breaker::Breaker;
use crate::{BlobError, BlobStore, ErasedBatch, ListedBlob, ObjectVersions};

/// Default of [`S3Settings::max_call`].
const DEFAULT_MAX_CALL: Duration = Duration::from_secs(30);

/// The bucket of an [`S3Blobs`] and its settings.
#[derive(Debug, Clone)]
pub struct S3Options {
    /// The bucket, which must exist.
    pub bucket: String,
    /// The prefix of all object names, without `/` at either end; may be empty.
    pub prefix: String,
    /// How to reach the server.
    pub settings: S3Settings,
}

/// The connection to an S3 server; the default is AWS with its environment variables.
#[derive(Debug, Clone, Default)]
pub struct S3Settings {
    /// The server's URL; `None` is AWS.
    pub endpoint: Option<String>,
    /// The region; `None` takes it from AWS's environment variables and files, or is
    /// `us-east-1` with an endpoint.
    pub region: Option<String>,
    /// Whether the bucket is in the path instead of the host name, as most servers
    /// other than AWS require.
    pub path_style: bool,
    /// Fixed keys; `None` uses AWS's chain: environment, profile files, web identity,
    /// container and instance roles.
    pub credentials: Option<S3Credentials>,
    /// The KMS key for encrypting objects; `None` uses the bucket's default.
    pub sse_kms_key_id: Option<String>,
    /// PEM certificates to trust in addition to the system's.
    pub ca_file: Option<PathBuf>,
    /// Maximum duration of a call with all its attempts; `None` is 30 seconds. Small
    /// transfers have shorter limits.
    pub max_call: Option<Duration>,
}

#[derive(Debug, Clone)]
pub struct S3Credentials {
    pub access_key_id: String,
    /// The secret that signs requests.
    pub secret_access_key: SecretString,
}

/// A [`BlobStore`] in an S3 bucket.
///
/// Calls are retried after transient errors, with backoff and jitter, within a time
/// limit that depends on the size of the transfer.
#[derive(Clone)]
pub struct S3Blobs {
    calls: Calls,
    bucket: String,
    /// Empty, or ends with `/`.
    prefix: String,
    sse_kms_key_id: Option<String>,
    /// The cached versioning state of the bucket.
    seen: Arc<VersioningCache>,
}

impl S3Blobs {
    /// Creates a client without a request to the server.
    pub async fn connect(options: S3Options) -> Result<Self, BlobError> {
        let S3Options { bucket, prefix, settings } = options;
        let max_call = settings.max_call.unwrap_or(DEFAULT_MAX_CALL);
        let (pooled, unpooled) = client::build(&settings).await?;
        let prefix = match prefix.trim_matches('/') {
            "" => String::new(),
            prefix => format!("{prefix}/"),
        };
        Ok(Self {
            calls: Calls::new(pooled, unpooled, max_call),
            bucket,
            prefix,
            sse_kms_key_id: settings.sse_kms_key_id,
            seen: Arc::default(),
        })
    }

    /// While the server does not answer, requests are refused at once.
    pub(crate) fn with_breaker(mut self, metrics: Metrics) -> Self {
        self.calls.breaker = Some(Arc::new(Breaker::new(metrics)));
        self
    }

    fn object_name(&self, key: &BlobKey) -> String {
        format!("{}{key}", self.prefix)
    }

    /// The key of an object; `None` if it is not a blob.
    fn key_of(&self, object: &str) -> Option<BlobKey> {
        object.strip_prefix(&self.prefix)?.parse().ok()
    }

    fn folder_of(&self, tenant_id: TenantId, store_id: Option<StoreId>) -> String {
        let store = store_id.map(|store_id| format!("{store_id}/")).unwrap_or_default();
        format!("{}{tenant_id}/{store}", self.prefix)
    }
}

/// Shows the bucket and the prefix, and no credentials.
impl fmt::Debug for S3Blobs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("S3Blobs")
            .field("bucket", &self.bucket)
            .field("prefix", &self.prefix)
            .finish_non_exhaustive()
    }
}

#[async_trait]
impl BlobStore for S3Blobs {
    #[instrument(name = "blob.put", level = "debug", skip_all, fields(tenant.id = %key.tenant_id))]
    async fn put(&self, key: &BlobKey, bytes: Bytes) -> Result<(), BlobError> {
        let (name, size_bytes) = (self.object_name(key), bytes.len() as u64);
        let put = |client: Client| {
            let encryption = self.sse_kms_key_id.as_ref().map(|_| ServerSideEncryption::AwsKms);
            let request = client
                .put_object()
                .bucket(&self.bucket)
                .key(&name)
                .set_server_side_encryption(encryption)
                .set_ssekms_key_id(self.sse_kms_key_id.clone())
                .body(ByteStream::from(bytes.clone()));
            async move {
                let answer = request.send().await;
                answer.map(drop).map_err(|error| error::translate(&error))
            }
        };
        self.calls.run(size_bytes, put).await
    }

    #[instrument(name = "blob.get", level = "debug", skip_all, fields(tenant.id = %key.tenant_id))]
    async fn get(&self, key: &BlobKey, max_bytes: u64) -> Result<Option<Bytes>, BlobError> {
        let name = self.object_name(key);
        let get = |client: Client| {
            let request = client.get_object().bucket(&self.bucket).key(&name);
            async move {
                match request.send().await {
                    Ok(object) => read_body(object, max_bytes).await.map(Some),
                    Err(error) if error.as_service_error().is_some_and(GetObjectError::is_no_such_key) => {
                        Ok(None)
                    }
                    Err(error) => Err(error::translate(&error)),
                }
            }
        };
        self.calls.run(max_bytes, get).await
    }

    #[instrument(name = "blob.delete", level = "debug", skip_all, fields(tenant.id = %key.tenant_id))]
    async fn delete(&self, key: &BlobKey) -> Result<(), BlobError> {
        let name = self.object_name(key);
        let delete = |client: Client| {
            let request = client.delete_object().bucket(&self.bucket).key(&name);
            async move {
                match request.send().await {
                    Ok(_) => Ok(()),
                    // AWS answers 204 for an absent object; some servers answer NoSuchKey.
                    Err(error) if error::code_of(&error) == Some("NoSuchKey") => Ok(()),
                    Err(error) => Err(error::translate(&error)),
                }
            }
        };
        self.calls.run(0, delete).await
    }

    #[instrument(name = "blob.erase", level = "debug", skip_all, fields(tenant.id = %key.tenant_id))]
    async fn erase(&self, key: &BlobKey) -> Result<ObjectVersions, BlobError> {
        self.delete(key).await?;
        let versioning = self.versioning().await?;
        let name = self.object_name(key);
        let versions =
            self.delete_versions(versioning, &name, None, usize::MAX, |object| object == name).await?;
        Ok(versions.became())
    }

    #[instrument(name = "blob.list_removed", level = "debug", skip_all, fields(tenant.id = %tenant_id))]
    async fn list_removed(
        &self,
        tenant_id: TenantId,
        store_id: StoreId,
        after: Option<&BlobKey>,
        limit: usize,
    ) -> Result<Option<Vec<BlobKey>>, BlobError> {
        let versioning = self.ask_versioning().await?;
        let folder = self.folder_of(tenant_id, Some(store_id));
        let after = after.map(|key| self.object_name(key));
        self.removed_below(versioning, &folder, after, limit).await
    }

    #[instrument(name = "blob.erase_all", level = "debug", skip_all, fields(tenant.id = %tenant_id))]
    async fn erase_all(
        &self,
        tenant_id: TenantId,
        store_id: Option<StoreId>,
        after: Option<&BlobKey>,
        limit: usize,
    ) -> Result<ErasedBatch, BlobError> {
        let folder = self.folder_of(tenant_id, store_id);
        let listed = self.list_below(&folder, after, limit).await?;
        for blob in &listed {
            self.delete(&blob.key).await?;
        }
        let versioning = self.ask_versioning().await?;
        let after = after.map(|key| self.object_name(key));
        let is_blob = |object: &str| self.key_of(object).is_some();
        let versions = self.delete_versions(versioning, &folder, after, limit, is_blob).await?;
        let deleted = listed.len() as u64;
        let last_deleted = listed.last().map(|blob| blob.key).filter(|_| listed.len() == limit);
        let (gone, kept, last) = match &versions {
            VersionDeletion::None => (deleted, 0, last_deleted),
            VersionDeletion::Hidden => (0, deleted, last_deleted),
            // The versions were processed up to this object.
            VersionDeletion::Seen { gone, kept, last } => {
                (*gone, *kept, last.as_deref().and_then(|object| self.key_of(object)))
            }
        };
        Ok(ErasedBatch { gone, kept, became: versions.became(), last })
    }

    #[instrument(name = "blob.list", level = "debug", skip_all, fields(tenant.id = tenant_id.map(tracing::field::display)))]
    async fn list(
        &self,
        tenant_id: Option<TenantId>,
        after: Option<&BlobKey>,
        limit: usize,
    ) -> Result<Vec<ListedBlob>, BlobError> {
        let prefix = tenant_id.map_or_else(|| self.prefix.clone(), |id| self.folder_of(id, None));
        self.list_below(&prefix, after, limit).await
    }

    /// Lists at most one object, which checks the bucket, the region and the
    /// credentials.
    #[instrument(name = "blob.check", level = "debug", skip_all)]
    async fn check(&self) -> Result<(), BlobError> {
        let check = |client: Client| {
            let request = client.list_objects_v2().bucket(&self.bucket);
            let request = request.prefix(&self.prefix).max_keys(1);
            async move {
                let answer = request.send().await;
                answer.map(drop).map_err(|error| error::translate(&error))
            }
        };
        self.calls.run(0, check).await
    }
}

/// The body of an object; a body larger than `max_bytes` is not read.
async fn read_body(object: GetObjectOutput, max_bytes: u64) -> Result<Bytes, BlobError> {
    let too_large = |found_bytes| BlobError::TooLarge { found_bytes, max_bytes };
    let broke_off = |why: &str| BlobError::Unavailable(format!("the body broke off: {why}"));
    let length = object.content_length().and_then(|length| u64::try_from(length).ok());
    if let Some(length) = length.filter(|length| *length > max_bytes) {
        return Err(too_large(length));
    }
    let mut bytes = BytesMut::new();
    let mut body = object.body;
    while let Some(chunk) = body.next().await {
        let chunk = chunk.map_err(|error| broke_off(&causes(&error)))?;
        // A response may have no content length.
        let read_bytes = (bytes.len() + chunk.len()) as u64;
        if read_bytes > max_bytes {
            return Err(too_large(read_bytes));
        }
        bytes.extend_from_slice(&chunk);
    }
    if length.is_some_and(|length| length != bytes.len() as u64) {
        return Err(broke_off("it is shorter than its length"));
    }
    Ok(bytes.freeze())
}
