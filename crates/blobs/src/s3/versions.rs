//! Object versions, which a bucket may keep of deleted objects.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use aws_sdk_s3::Client;
use aws_sdk_s3::config::http::HttpResponse;
use aws_sdk_s3::error::{ProvideErrorMetadata, SdkError};
use futures::stream::{self, StreamExt, TryStreamExt};
use keepsake_core::BlobKey;
use parking_lot::Mutex;

use super::list::PAGE_BYTES;
use super::{S3Blobs, error};
use crate::{BlobError, ObjectVersions};

/// The number of versions that are deleted concurrently.
const DELETIONS_AT_ONCE: usize = 16;
/// How long the versioning state of a bucket is cached, so that not every refused
/// write requests it. AWS needs longer to enable versioning.
const CACHE_LIFETIME: Duration = Duration::from_mins(5);

/// The answer to a request about versions.
enum Answer<T> {
    Given(T),
    /// The server does not support the request.
    Unknown,
    /// The credentials lack the permission.
    Refused,
    /// The answer cannot be read, with the reason.
    Unreadable(String),
}

impl<T> Answer<T> {
    fn map<U>(self, show: impl FnOnce(T) -> U) -> Answer<U> {
        match self {
            Self::Given(given) => Answer::Given(show(given)),
            Self::Unknown => Answer::Unknown,
            Self::Refused => Answer::Refused,
            Self::Unreadable(why) => Answer::Unreadable(why),
        }
    }

    /// An answer that must be readable.
    fn readable(self) -> Result<Self, BlobError> {
        match self {
            Self::Unreadable(why) => Err(BlobError::Unexpected(why)),
            answer => Ok(answer),
        }
    }
}

/// A version of an object, or a delete marker.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct ObjectVersion {
    /// The object's name.
    name: String,
    id: String,
    kind: VersionKind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum VersionKind {
    /// The current version, which a read returns.
    Current,
    /// Content that a later version or a delete marker hides.
    Noncurrent,
    DeleteMarker,
}

/// The start of a page: name and version.
type Marker = (Option<String>, Option<String>);

/// A page of versions with a common prefix, including delete markers.
struct ObjectVersionPage {
    versions: Vec<ObjectVersion>,
    next: Option<Marker>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Versioning {
    /// Versioning was never enabled.
    Never,
    /// There may be versions.
    Possible,
    /// The server's answer cannot be read; only a listing shows whether there are versions.
    Unclear,
    /// The bucket does not allow to list versions.
    Hidden,
}

/// The last known versioning state of a bucket and the time of the answer.
#[derive(Debug, Default)]
pub(super) struct VersioningCache(Mutex<Option<(Instant, Versioning)>>);

impl VersioningCache {
    /// The cached state, if it is still valid at a time.
    fn at(&self, now: Instant) -> Option<Versioning> {
        let seen = self.0.lock();
        seen.filter(|(at, _)| now.duration_since(*at) < CACHE_LIFETIME).map(|(_, versioning)| versioning)
    }

    fn remember(&self, versioning: Versioning, now: Instant) {
        let mut seen = self.0.lock();
        *seen = Some((now, versioning));
    }
}

/// The result of deleting the versions with a common prefix.
pub(super) enum VersionDeletion {
    /// The bucket has no versions.
    None,
    /// The bucket does not allow to list versions.
    Hidden,
    /// All versions were processed.
    Seen {
        /// The number of objects without remaining versions.
        gone: u64,
        /// The number of objects with remaining versions.
        kept: u64,
        /// The last object, if more may follow.
        last: Option<String>,
    },
}

impl VersionDeletion {
    pub(super) const fn became(&self) -> ObjectVersions {
        match self {
            Self::None => ObjectVersions::NotVersioned,
            Self::Seen { kept: 0, .. } => ObjectVersions::Deleted,
            Self::Seen { .. } | Self::Hidden => ObjectVersions::Kept,
        }
    }
}

impl S3Blobs {
    /// The versioning state of the bucket, from the cache or the server.
    pub(super) async fn versioning(&self) -> Result<Versioning, BlobError> {
        match self.seen.at(Instant::now()) {
            Some(versioning) => Ok(versioning),
            None => self.ask_versioning().await,
        }
    }

    /// The versioning state of the bucket from the server.
    pub(super) async fn ask_versioning(&self) -> Result<Versioning, BlobError> {
        let versioning = match self.was_versioned().await? {
            Answer::Given(false) | Answer::Unknown => Versioning::Never,
            // These credentials may nevertheless be allowed to list and delete versions.
            Answer::Given(true) | Answer::Refused => Versioning::Possible,
            Answer::Unreadable(why) => {
                tracing::warn!(error = %why, "blob.erase: the bucket's versioning state cannot be read");
                Versioning::Unclear
            }
        };
        self.seen.remember(versioning, Instant::now());
        Ok(versioning)
    }

    /// Deletes all versions of the first `limit` selected objects with a prefix,
    /// after the name `after`.
    ///
    /// The current objects must have been deleted before: without versioning there
    /// are no other versions.
    pub(super) async fn delete_versions(
        &self,
        versioning: Versioning,
        beginning: &str,
        after: Option<String>,
        limit: usize,
        is_wanted: impl Fn(&str) -> bool + Send,
    ) -> Result<VersionDeletion, BlobError> {
        match versioning {
            Versioning::Never => return Ok(VersionDeletion::None),
            Versioning::Hidden => return Ok(VersionDeletion::Hidden),
            Versioning::Possible | Versioning::Unclear => {}
        }
        // Each object, and whether all its versions were deleted.
        let mut objects = BTreeMap::new();
        let mut is_full = false;
        let mut next = after.clone().map(|after| (Some(after), None));
        loop {
            let page = self.sorted_page(versioning, beginning, after.as_deref(), &mut next);
            let Some(mut versions) = page.await? else {
                return Ok(VersionDeletion::Hidden);
            };
            versions.retain(|ObjectVersion { name, .. }| {
                if !is_wanted(name) {
                    return false;
                }
                if objects.len() == limit && !objects.contains_key(name) {
                    is_full = true;
                    return false;
                }
                objects.entry(name.clone()).or_insert(true);
                true
            });
            for name in self.delete_listed(versions).await? {
                objects.insert(name, false);
            }
            if is_full || next.is_none() {
                break;
            }
        }
        let gone = objects.values().filter(|went| **went).count();
        Ok(VersionDeletion::Seen {
            gone: gone as u64,
            kept: (objects.len() - gone) as u64,
            last: objects.last_key_value().map(|(name, _)| name.clone()).filter(|_| is_full),
        })
    }

    /// The first `limit` deleted blobs with a prefix that still have versions, after
    /// the name `after`; `None` if the bucket does not allow to list versions.
    pub(super) async fn removed_below(
        &self,
        versioning: Versioning,
        beginning: &str,
        after: Option<String>,
        limit: usize,
    ) -> Result<Option<Vec<BlobKey>>, BlobError> {
        match versioning {
            Versioning::Never => return Ok(Some(Vec::new())),
            Versioning::Hidden => return Ok(None),
            Versioning::Possible | Versioning::Unclear => {}
        }
        let mut removed = Vec::new();
        // The versions of one object may be on two pages.
        let mut last_object: Option<Object> = None;
        let mut next = after.clone().map(|after| (Some(after), None));
        loop {
            let page = self.sorted_page(versioning, beginning, after.as_deref(), &mut next);
            let Some(versions) = page.await? else {
                return Ok(None);
            };
            for version in versions {
                if last_object.as_ref().is_none_or(|object| object.name != version.name) {
                    let ended = last_object.replace(Object::of(&version));
                    removed.extend(ended.and_then(|object| self.removed_key(&object)));
                }
                if let Some(object) = &mut last_object {
                    object.count(version.kind);
                }
            }
            if removed.len() >= limit || next.is_none() {
                break;
            }
        }
        if next.is_none() {
            removed.extend(last_object.and_then(|object| self.removed_key(&object)));
        }
        removed.truncate(limit);
        Ok(Some(removed))
    }

    fn removed_key(&self, object: &Object) -> Option<BlobKey> {
        let is_removed = object.has_noncurrent && !object.has_current;
        is_removed.then(|| self.key_of(&object.name)).flatten()
    }

    /// Deletes versions; returns the names of objects whose versions it may not delete.
    async fn delete_listed(&self, versions: Vec<ObjectVersion>) -> Result<Vec<String>, BlobError> {
        stream::iter(versions)
            .map(|ObjectVersion { name, id, .. }| async move {
                let answer = self.delete_version(&name, &id).await?;
                Ok((!matches!(answer, Answer::Given(()))).then_some(name))
            })
            .buffer_unordered(DELETIONS_AT_ONCE)
            .try_filter_map(|refused| std::future::ready(Ok(refused)))
            .try_collect()
            .await
    }

    /// Whether versioning of the bucket is or ever was enabled.
    async fn was_versioned(&self) -> Result<Answer<bool>, BlobError> {
        let ask = |client: Client| {
            let request = client.get_bucket_versioning().bucket(&self.bucket);
            async move {
                let asked = request.send().await;
                answer(asked.map(|versioning| versioning.status().is_some()))
            }
        };
        self.calls.run(0, ask).await
    }

    /// The versions of a page after the name `after`, in order; `None` if the bucket
    /// does not allow to list versions. `next` becomes the start of the next page.
    async fn sorted_page(
        &self,
        versioning: Versioning,
        beginning: &str,
        after: Option<&str>,
        next: &mut Option<Marker>,
    ) -> Result<Option<Vec<ObjectVersion>>, BlobError> {
        let listed = self.versions(beginning, next.take()).await?;
        let listed = if versioning == Versioning::Unclear { listed } else { listed.readable()? };
        let Answer::Given(page) = listed else {
            self.seen.remember(Versioning::Hidden, Instant::now());
            return Ok(None);
        };
        *next = page.next;
        let mut versions = page.versions;
        // Some servers include the start name in the listing.
        versions.retain(|version| after.is_none_or(|after| *version.name > *after));
        versions.sort_unstable();
        Ok(Some(versions))
    }

    async fn versions(
        &self,
        beginning: &str,
        next: Option<Marker>,
    ) -> Result<Answer<ObjectVersionPage>, BlobError> {
        let (key_marker, version_id_marker) = next.unwrap_or_default();
        let list = |client: Client| {
            let request = client
                .list_object_versions()
                .bucket(&self.bucket)
                .prefix(beginning)
                .set_key_marker(key_marker.clone())
                .set_version_id_marker(version_id_marker.clone());
            async move { answer(request.send().await) }
        };
        let answer = self.calls.run(PAGE_BYTES, list).await?;
        Ok(answer.map(|listed| {
            let versions = listed.versions().iter().filter_map(|version| {
                let kind = match version.is_latest() {
                    Some(true) => VersionKind::Current,
                    Some(false) | None => VersionKind::Noncurrent,
                };
                Some((version.key()?, version.version_id()?, kind))
            });
            let markers = listed
                .delete_markers()
                .iter()
                .filter_map(|marker| Some((marker.key()?, marker.version_id()?, VersionKind::DeleteMarker)));
            let next = (listed.is_truncated() == Some(true)).then(|| {
                let name = listed.next_key_marker().map(str::to_owned);
                (name, listed.next_version_id_marker().map(str::to_owned))
            });
            ObjectVersionPage {
                versions: versions
                    .chain(markers)
                    .map(|(name, id, kind)| ObjectVersion { name: name.to_owned(), id: id.to_owned(), kind })
                    .collect(),
                // A truncated page without a marker is treated as the last one.
                next: next.filter(|(name, _)| name.is_some()),
            }
        }))
    }

    async fn delete_version(&self, name: &str, version: &str) -> Result<Answer<()>, BlobError> {
        let delete = |client: Client| {
            let request = client.delete_object().bucket(&self.bucket).key(name).version_id(version);
            async move {
                match request.send().await {
                    // Another process deleted it.
                    Err(failed) if matches!(error::code_of(&failed), Some("NoSuchKey" | "NoSuchVersion")) => {
                        Ok(Answer::Given(()))
                    }
                    asked => answer(asked.map(drop)),
                }
            }
        };
        self.calls.run(0, delete).await?.readable()
    }
}

/// The versions of an object in a listing.
struct Object {
    name: String,
    has_current: bool,
    has_noncurrent: bool,
}

impl Object {
    fn of(version: &ObjectVersion) -> Self {
        Self { name: version.name.clone(), has_current: false, has_noncurrent: false }
    }

    const fn count(&mut self, kind: VersionKind) {
        match kind {
            VersionKind::Current => self.has_current = true,
            VersionKind::Noncurrent => self.has_noncurrent = true,
            VersionKind::DeleteMarker => {}
        }
    }
}

/// Separates a denied or unusual answer, which the caller weighs, from a failure, which
/// is retried.
fn answer<T, E>(asked: Result<T, SdkError<E, HttpResponse>>) -> Result<Answer<T>, BlobError>
where
    E: ProvideErrorMetadata + std::error::Error + 'static,
{
    let failed = match asked {
        Ok(given) => return Ok(Answer::Given(given)),
        Err(failed) => failed,
    };
    let status = failed.raw_response().map(|response| response.status().as_u16());
    match (status, error::code_of(&failed)) {
        (Some(405 | 501), _) | (_, Some("NotImplemented")) => Ok(Answer::Unknown),
        (Some(403), _) => Ok(Answer::Refused),
        _ => match error::translate(&failed) {
            BlobError::Unexpected(why) => Ok(Answer::Unreadable(why)),
            failure => Err(failure),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versioning_state_is_cached_for_minutes() {
        let (seen, now) = (VersioningCache::default(), Instant::now());
        assert_eq!(seen.at(now), None);
        seen.remember(Versioning::Never, now);
        let last = now + CACHE_LIFETIME.saturating_sub(Duration::from_nanos(1));
        assert_eq!(seen.at(last), Some(Versioning::Never));
        assert_eq!(seen.at(now + CACHE_LIFETIME), None);
        seen.remember(Versioning::Possible, now + CACHE_LIFETIME);
        assert_eq!(seen.at(now + CACHE_LIFETIME), Some(Versioning::Possible));
    }
}
