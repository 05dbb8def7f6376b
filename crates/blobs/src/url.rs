//! The URL of the blob store in the configuration.

use std::fmt;
use std::str::FromStr;

use crate::BlobError;

/// The location of content.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum BlobUrl {
    /// `index:`: in the database of the index.
    #[default]
    Index,
    S3 {
        /// The bucket, which must exist.
        bucket: String,
        /// The prefix of all object names, without `/` at either end.
        prefix: String,
    },
}

/// Reads `index:` or `s3://bucket/prefix`, which is not decoded.
impl FromStr for BlobUrl {
    type Err = BlobError;

    fn from_str(text: &str) -> Result<Self, BlobError> {
        if text == "index:" {
            return Ok(Self::Index);
        }
        let rest = text
            .strip_prefix("s3://")
            .ok_or_else(|| misconfigured("a blob URL is `index:` or begins with `s3://`"))?;
        parse_s3(rest)
    }
}

fn parse_s3(rest: &str) -> Result<BlobUrl, BlobError> {
    let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
    let is_bucket_name = !bucket.is_empty()
        && !is_dots(bucket)
        && bucket.chars().all(|letter| letter.is_ascii_alphanumeric() || "-._".contains(letter));
    if !is_bucket_name {
        return Err(misconfigured("an S3 URL names a bucket: `s3://bucket/prefix`"));
    }
    let prefix = prefix.trim_end_matches('/');
    let has_empty_part = !prefix.is_empty() && prefix.split('/').any(str::is_empty);
    if has_empty_part || prefix.contains(['?', '#']) || prefix.chars().any(char::is_control) {
        return Err(misconfigured("the prefix of the S3 URL has empty parts or forbidden characters"));
    }
    if prefix.split('/').any(is_dots) {
        return Err(misconfigured(
            "the prefix of the S3 URL has a part `.` or `..`: write the prefix that is meant",
        ));
    }
    Ok(BlobUrl::S3 { bucket: bucket.to_owned(), prefix: prefix.to_owned() })
}

/// Whether a part of a URL is a dot segment, which would lead to another path.
fn is_dots(part: &str) -> bool {
    matches!(part, "." | "..")
}

pub(crate) fn misconfigured(what: &str) -> BlobError {
    BlobError::Misconfigured(what.to_owned())
}

impl fmt::Display for BlobUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Index => f.write_str("index:"),
            Self::S3 { bucket, prefix } if prefix.is_empty() => write!(f, "s3://{bucket}"),
            Self::S3 { bucket, prefix } => write!(f, "s3://{bucket}/{prefix}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn index_or_a_bucket_with_maybe_a_prefix_is_named() {
        assert_eq!(BlobUrl::from_str("index:").unwrap(), BlobUrl::Index);
        for (text, prefix, shown) in [
            ("s3://memories", "", "s3://memories"),
            ("s3://memories/", "", "s3://memories"),
            ("s3://memories/a/b/", "a/b", "s3://memories/a/b"),
        ] {
            let expected = BlobUrl::S3 { bucket: "memories".to_owned(), prefix: prefix.to_owned() };
            assert_eq!(BlobUrl::from_str(text).unwrap(), expected);
            assert_eq!(expected.to_string(), shown);
        }
        let urls = " /var/lib/blobs http://memories index:/ s3:// s3:///prefix s3://key:secret@memories \
            s3://memories//a s3://memories/a//b s3://memories/a?b s3://memories/../c s3://memories/a/./b s3://../a";
        for text in urls.split(' ') {
            assert!(matches!(BlobUrl::from_str(text), Err(BlobError::Misconfigured(_))), "{text}");
        }
    }
}
