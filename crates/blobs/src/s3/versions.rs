//! Object versions: what a bucket keeps of objects that were deleted.

use std::collections::BTreeSet;

use aws_sdk_s3::config::http::HttpResponse;
use aws_sdk_s3::error::{ProvideErrorMetadata, SdkError};
use keepsake_core::{BlobKey, StoreId, TenantId, VersionId};
use uuid::Uuid;

use super::{S3Blobs, error};
use crate::{BlobError, BlobStore, Erased};

/// Blobs of a store deleted between two listings.
const BLOBS_AT_ONCE: usize = 1_000;

/// What a request about versions was answered.
enum Answer<T> {
    /// What was asked for.
    Given(T),
    /// The server knows no such request.
    Unknown,
    /// The credentials may not ask.
    Refused,
}

/// Versions of objects that begin alike, delete markers included.
struct Page {
    /// Name and version of each.
    versions: Vec<(String, String)>,
    /// Where the next page begins: name and version.
    next: Option<(Option<String>, Option<String>)>,
}

impl S3Blobs {
    /// Deletes every version of the wanted objects whose names begin so; answers
    /// how many objects had some.
    ///
    /// A bucket in which versioning was never enabled has none beside the object
    /// itself, which must be deleted by then.
    pub(super) async fn delete_versions(
        &self,
        beginning: &str,
        is_wanted: impl Fn(&str) -> bool + Send,
    ) -> Result<(u64, Erased), BlobError> {
        match self.was_versioned().await? {
            Answer::Given(false) | Answer::Unknown => return Ok((0, Erased::NotVersioned)),
            // Whoever may not ask may be let list and delete all the same.
            Answer::Given(true) | Answer::Refused => {}
        }
        let mut objects = BTreeSet::new();
        let mut next = None;
        loop {
            let page = match self.versions(beginning, next).await? {
                Answer::Given(page) => page,
                Answer::Unknown | Answer::Refused => return Ok((0, Erased::OlderVersionsKept)),
            };
            for (name, version) in page.versions.into_iter().filter(|(name, _)| is_wanted(name)) {
                if let Answer::Unknown | Answer::Refused = self.delete_version(&name, &version).await? {
                    return Ok((objects.len() as u64, Erased::OlderVersionsKept));
                }
                objects.insert(name);
            }
            next = page.next;
            if next.is_none() {
                return Ok((objects.len() as u64, Erased::EveryVersion));
            }
        }
    }

    /// Deletes the blobs of a store that are there; answers how many.
    pub(super) async fn delete_current(
        &self,
        tenant_id: TenantId,
        store_id: StoreId,
    ) -> Result<u64, BlobError> {
        let mut after = BlobKey {
            tenant_id,
            store_id,
            blob_id: VersionId::from_uuid(Uuid::nil()),
        };
        let mut deleted = 0;
        loop {
            let listed = self.list(Some(&after), BLOBS_AT_ONCE).await?;
            let of_store = listed
                .iter()
                .take_while(|blob| (blob.key.tenant_id, blob.key.store_id) == (tenant_id, store_id));
            let keys: Vec<_> = of_store.map(|blob| blob.key).collect();
            for key in &keys {
                self.delete(key).await?;
            }
            deleted += keys.len() as u64;
            match keys.last() {
                Some(last) if keys.len() == BLOBS_AT_ONCE => after = *last,
                _ => return Ok(deleted),
            }
        }
    }

    /// Whether versioning of the bucket is or ever was enabled.
    async fn was_versioned(&self) -> Result<Answer<bool>, BlobError> {
        let asked = self
            .client
            .get_bucket_versioning()
            .bucket(&self.bucket)
            .send()
            .await;
        answer(asked.map(|versioning| versioning.status().is_some()))
    }

    async fn versions(
        &self,
        beginning: &str,
        next: Option<(Option<String>, Option<String>)>,
    ) -> Result<Answer<Page>, BlobError> {
        let (key_marker, version_id_marker) = next.unwrap_or_default();
        let asked = self
            .client
            .list_object_versions()
            .bucket(&self.bucket)
            .prefix(beginning)
            .set_key_marker(key_marker)
            .set_version_id_marker(version_id_marker)
            .send()
            .await;
        answer(asked.map(|listed| {
            let versions = listed
                .versions()
                .iter()
                .filter_map(|version| Some((version.key()?, version.version_id()?)));
            let markers = listed
                .delete_markers()
                .iter()
                .filter_map(|marker| Some((marker.key()?, marker.version_id()?)));
            let next = (listed.is_truncated() == Some(true)).then(|| {
                let name = listed.next_key_marker().map(str::to_owned);
                (name, listed.next_version_id_marker().map(str::to_owned))
            });
            Page {
                versions: versions
                    .chain(markers)
                    .map(|(name, version)| (name.to_owned(), version.to_owned()))
                    .collect(),
                // A server that says there is more and not where is at its end.
                next: next.filter(|(name, _)| name.is_some()),
            }
        }))
    }

    async fn delete_version(&self, name: &str, version: &str) -> Result<Answer<()>, BlobError> {
        let asked = self
            .client
            .delete_object()
            .bucket(&self.bucket)
            .key(name)
            .version_id(version)
            .send()
            .await;
        match asked {
            // Somebody else deleted it.
            Err(failed) if matches!(code_of(&failed), Some("NoSuchKey" | "NoSuchVersion")) => {
                Ok(Answer::Given(()))
            }
            asked => answer(asked.map(drop)),
        }
    }
}

/// Tells a refusal from a failure: the first is told, the second tried again.
fn answer<T, E>(asked: Result<T, SdkError<E, HttpResponse>>) -> Result<Answer<T>, BlobError>
where
    E: ProvideErrorMetadata + std::error::Error + 'static,
{
    let failed = match asked {
        Ok(given) => return Ok(Answer::Given(given)),
        Err(failed) => failed,
    };
    let status = failed.raw_response().map(|response| response.status().as_u16());
    match (status, code_of(&failed)) {
        (Some(405 | 501), _) | (_, Some("NotImplemented")) => Ok(Answer::Unknown),
        (Some(403), _) => Ok(Answer::Refused),
        _ => Err(error::translate(&failed)),
    }
}

fn code_of<E: ProvideErrorMetadata>(failed: &SdkError<E, HttpResponse>) -> Option<&str> {
    failed.as_service_error().and_then(ProvideErrorMetadata::code)
}
