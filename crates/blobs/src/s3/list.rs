//! Lists the objects of a bucket in key order.

use aws_sdk_s3::Client;
use aws_sdk_s3::primitives::DateTime;
use aws_sdk_s3::types::Object;
use keepsake_core::{BlobKey, Timestamp};

use super::{S3Blobs, error};
use crate::{BlobError, ListedBlob};

/// The maximum number of objects in one S3 response.
const MAX_PAGE: usize = 1_000;
/// The approximate size of one object in a response.
const LISTED_BYTES: u64 = 300;
/// The approximate size of a response.
pub(super) const PAGE_BYTES: u64 = MAX_PAGE as u64 * LISTED_BYTES;

impl S3Blobs {
    /// The first blobs whose object names start with `prefix`, after a key.
    pub(super) async fn list_below(
        &self,
        prefix: &str,
        after: Option<&BlobKey>,
        limit: usize,
    ) -> Result<Vec<ListedBlob>, BlobError> {
        let mut listed = Vec::new();
        let mut start_after = after.map(|key| self.object_name(key));
        while listed.len() < limit {
            let page_size = (limit - listed.len()).min(MAX_PAGE);
            let list = |client: Client| {
                let request = client
                    .list_objects_v2()
                    .bucket(&self.bucket)
                    .prefix(prefix)
                    .set_start_after(start_after.clone())
                    .max_keys(i32::try_from(page_size).unwrap_or(i32::MAX));
                async move { request.send().await.map_err(|error| error::translate(&error)) }
            };
            let page = self.calls.run(page_size as u64 * LISTED_BYTES, list).await?;
            listed.extend(page.contents().iter().filter_map(|object| self.listed_blob(object)));
            // By name instead of the server's token, because foreign objects count too.
            start_after = page.contents().last().and_then(|object| object.key()).map(str::to_owned);
            if page.is_truncated() != Some(true) || start_after.is_none() {
                break;
            }
        }
        listed.truncate(limit);
        Ok(listed)
    }

    /// `None` for a foreign object.
    fn listed_blob(&self, object: &Object) -> Option<ListedBlob> {
        let key = self.key_of(object.key()?)?;
        Some(ListedBlob {
            key,
            size_bytes: u64::try_from(object.size()?).ok()?,
            modified_at: timestamp(object.last_modified()?),
        })
    }
}

fn timestamp(time: &DateTime) -> Timestamp {
    let micros = time.as_nanos() / 1_000;
    Timestamp::from_micros(i64::try_from(micros).unwrap_or(i64::MAX))
}
