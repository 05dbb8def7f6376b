//! Archives of memory stores: the format, and the plan of an import.
//!
//! An archive is a folder, or the same as a `.tar.zst`:
//!
//! | file | content |
//! |---|---|
//! | `keepsake.json` | [`Manifest`](format::Manifest) |
//! | `index.jsonl` | an [`Entry`](format::Entry) for each memory, by path in byte order |
//! | `memories/…` | the contents, at the paths that agents see |
//! | `versions.jsonl` | optional: the versions as the API shows them, oldest first |
//! | `blobs/{sha256}` | contents that have no file below `memories/` |
//!
//! The engine makes archives; the commands for people and the console read them. Neither
//! trusts an archive: [`packed`] limits the size that an archive unpacks to, and
//! [`verified`] checks all of it before anything is imported. The crate knows neither the
//! server nor its client.

pub mod format;
pub mod packed;
pub mod placement;
pub mod plan;
pub mod report;
pub mod scanned;
pub mod verified;

use std::fmt;

/// Why an archive is refused as a whole: a file's name and its fault.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Damage(pub String);

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Damage {}
