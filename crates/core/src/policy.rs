//! The sensitive-data policy of a store.

use std::fmt;

crate::named_enum! {
    /// How a store handles new content that contains sensitive data.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
    pub enum SensitiveDataPolicy {
        /// The content is stored as it was sent.
        #[default]
        Off = "off",
        /// The findings are replaced before the content is stored.
        Redact = "redact",
        /// The content is refused.
        Reject = "reject",
    }
}

impl fmt::Display for SensitiveDataPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
