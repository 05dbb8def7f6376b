//! The types of the index's parameters and results.

mod audit;
mod deletion;
mod job;
mod lookup;
mod memory;
mod store;
mod tenant;
mod version;

use serde_json::{Map, Value};

pub use audit::*;
pub use deletion::*;
pub use job::*;
pub(crate) use lookup::*;
pub use memory::*;
pub use store::*;
pub use tenant::*;
pub use version::*;

/// The most pairs of metadata that a store or a session has.
pub const MAX_METADATA_PAIRS: usize = 16;

/// Sets metadata pairs, or removes those without a value. Fails with the number of pairs
/// if it grows above [`MAX_METADATA_PAIRS`].
pub(crate) fn merge_metadata(
    metadata: &mut Map<String, Value>,
    changes: &[(String, Option<String>)],
) -> Result<(), usize> {
    let before = metadata.len();
    for (key, value) in changes {
        match value {
            Some(value) => metadata.insert(key.clone(), Value::String(value.clone())),
            None => metadata.remove(key),
        };
    }
    let count = metadata.len();
    if count > MAX_METADATA_PAIRS && count > before { Err(count) } else { Ok(()) }
}
