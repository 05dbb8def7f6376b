//! Blob keys: the names of blobs in the object store, built only here.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize, Serializer};

use crate::id::{StoreId, TenantId, VersionId};

/// Names one immutable blob, which is written once and never overwritten.
///
/// `blob_id` is the id of the version that introduced the content, so keys are
/// unique without a query to the object store. A later version with the same
/// content (a rename) refers to the same blob.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Deserialize)]
#[serde(try_from = "String")]
pub struct BlobKey {
    pub tenant_id: TenantId,
    pub store_id: StoreId,
    pub blob_id: VersionId,
}

/// `{tenant}/{store}/{version}`, the object's name below the configured prefix.
impl fmt::Display for BlobKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.tenant_id, self.store_id, self.blob_id)
    }
}

/// What became of the older versions of a deleted blob's object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ObjectVersions {
    /// Every version is deleted.
    Deleted,
    /// The object store keeps no versions.
    NotVersioned,
    /// Some may remain: the object store does not allow to list or delete them.
    Kept,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("is not a blob key of the form tenant/store/version")]
pub struct BlobKeyError;

impl FromStr for BlobKey {
    type Err = BlobKeyError;

    fn from_str(text: &str) -> Result<Self, BlobKeyError> {
        let mut parts = text.split('/');
        let (Some(tenant), Some(store), Some(version), None) =
            (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err(BlobKeyError);
        };
        Ok(Self {
            tenant_id: tenant.parse().map_err(|_| BlobKeyError)?,
            store_id: store.parse().map_err(|_| BlobKeyError)?,
            blob_id: version.parse().map_err(|_| BlobKeyError)?,
        })
    }
}

impl TryFrom<String> for BlobKey {
    type Error = BlobKeyError;

    fn try_from(text: String) -> Result<Self, BlobKeyError> {
        text.parse()
    }
}

impl Serialize for BlobKey {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}
