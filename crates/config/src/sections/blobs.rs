//! `[blobs]`

use std::fmt;

use keepsake_blobs::{BlobError, BlobUrl, S3Credentials, S3Settings};
use toml::Value;

use crate::checks::{boolean, http_url, owned, text};
use crate::reader::Reader;

#[derive(Clone)]
pub struct BlobSettings {
    /// The index or a bucket.
    pub url: BlobUrl,
    pub s3: S3Settings,
}

/// Shows nothing of the credentials, not even the key's id.
impl fmt::Debug for BlobSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BlobSettings").field("url", &self.url).finish_non_exhaustive()
    }
}

impl BlobSettings {
    pub(super) fn read(reader: &mut Reader) -> Self {
        Self {
            // Printed only when valid: an invalid URL may contain a password.
            url: reader.url("blobs.url", Some("index:"), blob_url).unwrap_or_default(),
            s3: S3Settings {
                endpoint: reader.url("blobs.endpoint", None, http_url),
                region: reader.optional("blobs.region", owned),
                path_style: reader.get("blobs.path_style", false, boolean),
                credentials: read_credentials(reader),
                sse_kms_key_id: reader.optional("blobs.sse_kms_key_id", owned),
                ca_file: reader.optional("blobs.ca_file", owned::<String>).map(Into::into),
                max_call: None,
            },
        }
    }
}

/// The two keys of one credential, which must be set together.
fn read_credentials(reader: &mut Reader) -> Option<S3Credentials> {
    const KEYS: [&str; 2] = ["blobs.access_key_id", "blobs.secret_access_key"];
    let access_key_id = reader.secret(KEYS[0], owned);
    let secret_access_key = reader.secret(KEYS[1], owned);
    let set: Vec<_> = KEYS.into_iter().filter(|key| reader.is_set(key)).collect();
    if let [only] = set.as_slice() {
        reader.refuse(
            only,
            "is set without the other key: set both blobs.access_key_id and blobs.secret_access_key",
        );
    }
    Some(S3Credentials { access_key_id: access_key_id?, secret_access_key: secret_access_key? })
}

fn blob_url(value: &Value) -> Result<BlobUrl, String> {
    text(value)?.parse().map_err(|error| match error {
        BlobError::Misconfigured(rule) => format!("is refused: {rule}"),
        other => format!("is refused: {other}"),
    })
}
