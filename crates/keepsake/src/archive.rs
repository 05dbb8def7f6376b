//! `keepsake export` and `keepsake import`: archives of a memory store.
//!
//! `keepsake-archive` has the format and the plan of an import.
//!
//! Both commands are clients of the HTTP API. Neither trusts a path that it reads from
//! an archive or a server: paths are parsed, and [`folder`] follows no symbolic link.

mod export;
mod folder;
mod import;
mod past;
mod progress;
mod report;
mod source;
mod spooled;
mod unpacked;
mod upload;

pub(crate) use export::run as export;
pub(crate) use import::run as import;
