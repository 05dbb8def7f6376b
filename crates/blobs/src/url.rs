//! The URL of the blob store in the configuration.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use percent_encoding::percent_decode_str;

use crate::BlobError;

/// A folder or a bucket with an optional prefix.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BlobUrl {
    /// `file:///path/to/folder`
    File {
        /// The folder, an absolute path.
        root: PathBuf,
    },
    /// `s3://bucket/prefix`
    S3 {
        /// The bucket, which must exist.
        bucket: String,
        /// The prefix of all object names, without `/` at either end.
        prefix: String,
    },
}

impl BlobUrl {
    /// Reads `file:///path` or `s3://bucket/prefix`.
    ///
    /// A file path may be percent-encoded; bucket and prefix are not decoded.
    ///
    /// # Errors
    /// [`BlobError::Misconfigured`] with the rule that the text breaks.
    pub fn parse(text: &str) -> Result<Self, BlobError> {
        if let Some(rest) = text.strip_prefix("file://") {
            return parse_file(rest);
        }
        if let Some(rest) = text.strip_prefix("s3://") {
            return parse_s3(rest);
        }
        Err(misconfigured("a blob URL begins with `file://` or `s3://`"))
    }
}

fn parse_file(rest: &str) -> Result<BlobUrl, BlobError> {
    let path = rest.strip_prefix("localhost").unwrap_or(rest);
    if !path.starts_with('/') {
        return Err(misconfigured(
            "a file URL names an absolute path: `file:///path/to/folder`",
        ));
    }
    let decoded = percent_decode_str(path)
        .decode_utf8()
        .map_err(|_| misconfigured("the path of the file URL is not UTF-8"))?;
    if decoded.contains('\0') {
        return Err(misconfigured("the path of the file URL contains a NUL character"));
    }
    Ok(BlobUrl::File {
        root: PathBuf::from(decoded.into_owned()),
    })
}

fn parse_s3(rest: &str) -> Result<BlobUrl, BlobError> {
    let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
    let is_bucket_name = !bucket.is_empty()
        && bucket
            .chars()
            .all(|letter| letter.is_ascii_alphanumeric() || "-._".contains(letter));
    if !is_bucket_name {
        return Err(misconfigured("an S3 URL names a bucket: `s3://bucket/prefix`"));
    }
    let prefix = prefix.trim_end_matches('/');
    let has_empty_part = !prefix.is_empty() && prefix.split('/').any(str::is_empty);
    if has_empty_part || prefix.contains(['?', '#']) || prefix.chars().any(char::is_control) {
        return Err(misconfigured(
            "the prefix of the S3 URL has empty parts or forbidden characters",
        ));
    }
    Ok(BlobUrl::S3 {
        bucket: bucket.to_owned(),
        prefix: prefix.to_owned(),
    })
}

fn misconfigured(what: &str) -> BlobError {
    BlobError::Misconfigured(what.to_owned())
}

impl FromStr for BlobUrl {
    type Err = BlobError;

    fn from_str(text: &str) -> Result<Self, BlobError> {
        Self::parse(text)
    }
}

/// For logs; the path is not percent-encoded.
impl fmt::Display for BlobUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File { root } => write!(f, "file://{}", root.display()),
            Self::S3 { bucket, prefix } if prefix.is_empty() => write!(f, "s3://{bucket}"),
            Self::S3 { bucket, prefix } => write!(f, "s3://{bucket}/{prefix}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str) -> BlobUrl {
        BlobUrl::File {
            root: PathBuf::from(path),
        }
    }

    fn s3(bucket: &str, prefix: &str) -> BlobUrl {
        BlobUrl::S3 {
            bucket: bucket.to_owned(),
            prefix: prefix.to_owned(),
        }
    }

    #[test]
    fn file_urls_name_absolute_paths() {
        assert_eq!(
            BlobUrl::parse("file:///var/lib/blobs").unwrap(),
            file("/var/lib/blobs")
        );
        assert_eq!(BlobUrl::parse("file://localhost/srv").unwrap(), file("/srv"));
        assert_eq!(BlobUrl::parse("file:///a%20folder").unwrap(), file("/a folder"));
    }

    #[test]
    fn s3_urls_name_a_bucket_and_maybe_a_prefix() {
        assert_eq!(BlobUrl::parse("s3://memories").unwrap(), s3("memories", ""));
        assert_eq!(BlobUrl::parse("s3://memories/").unwrap(), s3("memories", ""));
        assert_eq!(
            BlobUrl::parse("s3://memories/a/b/").unwrap(),
            s3("memories", "a/b")
        );
    }

    #[test]
    fn other_texts_are_refused() {
        for text in [
            "",
            "/var/lib/blobs",
            "http://memories",
            "file://relative/path",
            "file://",
            "file:///a%ff",
            "file:///a%00",
            "s3://",
            "s3:///prefix",
            "s3://key:secret@memories",
            "s3://memories//a",
            "s3://memories/a//b",
            "s3://memories/a?b",
        ] {
            assert!(
                matches!(BlobUrl::parse(text), Err(BlobError::Misconfigured(_))),
                "{text}"
            );
        }
    }

    #[test]
    fn text_round_trips() {
        for text in ["file:///var/lib/blobs", "s3://memories", "s3://memories/a/b"] {
            assert_eq!(BlobUrl::parse(text).unwrap().to_string(), text);
        }
    }
}
