//! What an archive leaves out.

use std::collections::HashSet;

use keepsake_core::MemoryId;
use serde_json::Value;

/// Bytes of reasons in `keepsake.json`, which no reader accepts above 256 KiB.
const MAX_REASON_BYTES: usize = 128 << 10;
/// The bytes between two reasons in `keepsake.json`.
const REASON_SEPARATOR_BYTES: usize = 8;

/// Memories and contents that an archive leaves out, because a content is missing or damaged.
#[derive(Debug, Default)]
pub(super) struct Omissions {
    pub(super) memories: HashSet<MemoryId>,
    /// Contents that only the history has, by hash.
    pub(super) contents: HashSet<[u8; 32]>,
    reasons: Vec<String>,
    reason_bytes: usize,
    /// The number of reasons that do not fit into `keepsake.json`.
    further: u64,
}

impl Omissions {
    pub(super) fn add(&mut self, reason: String) {
        let bytes = Value::from(reason.as_str()).to_string().len() + REASON_SEPARATOR_BYTES;
        if self.reason_bytes + bytes > MAX_REASON_BYTES {
            self.further += 1;
        } else {
            self.reason_bytes += bytes;
            self.reasons.push(reason);
        }
    }

    pub(super) fn reasons(&self) -> Vec<String> {
        let further = self.further;
        let count = || {
            format!(
                "the contents of {further} further memories or older versions are missing or damaged in the \
                 content store"
            )
        };
        let further = (further > 0).then(count);
        self.reasons.iter().cloned().chain(further).collect()
    }
}
