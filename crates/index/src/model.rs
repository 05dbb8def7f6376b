//! The types of the index's parameters and results.

mod audit;
mod deletion;
mod job;
mod lookup;
mod memory;
mod past;
mod read;
mod store;
mod tenant;
mod version;

use serde_json::{Map, Value};

use crate::ChangeError;

pub use audit::*;
pub use deletion::*;
pub use job::*;
pub(crate) use lookup::*;
pub use memory::*;
pub use past::*;
pub(crate) use read::NO_SESSION;
pub use read::*;
pub use store::*;
pub use tenant::*;
pub use version::*;

/// The most pairs of metadata that a store or a session has.
const MAX_METADATA_PAIRS: usize = 16;

/// Refuses too many pairs of metadata.
pub fn check_pairs(field: &'static str, count: usize) -> Result<(), ChangeError> {
    if count > MAX_METADATA_PAIRS {
        let rule = format!("must have at most {MAX_METADATA_PAIRS} pairs, but has {count}");
        return Err(ChangeError::Invalid { field, rule });
    }
    Ok(())
}

/// Sets metadata pairs, or removes those without a value. Refuses too many pairs, if there
/// were fewer before.
pub(crate) fn merge_metadata(
    metadata: &mut Map<String, Value>,
    changes: &[(String, Option<String>)],
) -> Result<(), ChangeError> {
    let before = metadata.len();
    for (key, value) in changes {
        match value {
            Some(value) => metadata.insert(key.clone(), Value::String(value.clone())),
            None => metadata.remove(key),
        };
    }
    let count = metadata.len();
    if count > before { check_pairs("metadata", count) } else { Ok(()) }
}
