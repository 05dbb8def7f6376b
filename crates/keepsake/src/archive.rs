//! `keepsake export` and `keepsake import`: archives of a memory store.
//!
//! An archive is a folder, or the same as a `.tar.zst`:
//!
//! | file | content |
//! |---|---|
//! | `keepsake.json` | [`Manifest`](format::Manifest); written last |
//! | `index.jsonl` | an [`Entry`](format::Entry) for each memory, by path in byte order |
//! | `memories/…` | the contents, at the paths that agents see |
//! | `versions.jsonl` | optional: the versions as the API shows them, oldest first |
//! | `blobs/{sha256}` | contents that have no file below `memories/` |
//!
//! Both commands are clients of the HTTP API. Neither trusts a path that it reads from
//! an archive or a server: [`folder`] follows no symbolic link.

mod export;
mod folder;
mod format;
mod history;
mod import;
mod packed;
mod past;
mod placement;
mod plan;
mod progress;
mod report;
mod source;
mod upload;
mod verified;

pub(crate) use export::run as export;
pub(crate) use import::run as import;
