//! The commands for people, which call a server's API over HTTP.

pub(crate) mod access;
mod connection;
mod editor;
pub(crate) mod erasures;
mod history;
pub(crate) mod keys;
pub(crate) mod memories;
mod names;
mod search;
pub(crate) mod sessions;
pub(crate) mod store_tests;
pub(crate) mod stores;
pub(crate) mod undo;

use keepsake_config::{Failure, cli::Result};
use keepsake_core::nfc;
use serde_json::Value;

pub(crate) use crate::failures::failure_of;
pub(crate) use crate::output::text_of;
use crate::output::{answer, confirm};

pub(crate) use search::meaning_of;

pub(crate) use connection::{connect, connect_quietly, find_store, is_same_server, open_store, store_of};

/// The path in the API of a path as agents see it. Refuses an absolute path that is not
/// below `/memories`, and repeated slashes.
pub(crate) fn api_path(path: &str) -> Result<String> {
    let below = match path.strip_prefix(AGENT_ROOT) {
        Some(below) if below.is_empty() || below.starts_with('/') => below,
        _ if path.starts_with('/') => {
            return Err(Failure::usage(format!(
                "{path}: an absolute path starts with /memories/: write {AGENT_ROOT}{path}"
            )));
        }
        _ => path,
    };
    if below.contains("//") {
        return Err(Failure::usage(format!(
            "{path}: a path must not have an empty segment (a repeated `/`)"
        )));
    }
    Ok(format!("/{}", nfc(below.trim_matches('/'))))
}

/// As [`api_path`], of a folder: the path ends with `/`.
pub(crate) fn api_folder(path: &str) -> Result<String> {
    api_path(path).map(|path| format!("{}/", path.trim_end_matches('/')))
}

/// The directory of all memories in the paths of agents.
const AGENT_ROOT: &str = "/memories";

/// Shown for a path that was removed by a redaction.
const REDACTED: &str = "(redacted)";

/// Shows the path of each item as agents see it.
fn put_agent_paths(items: &mut [Value]) {
    for item in items {
        item["path"] = item["path"].as_str().map_or_else(|| REDACTED.to_owned(), agent_path).into();
    }
}

/// The path as agents see it, without characters that control a terminal.
pub(crate) fn agent_path(path: &str) -> String {
    crate::output::printable(&format!("{AGENT_ROOT}{path}"))
}
