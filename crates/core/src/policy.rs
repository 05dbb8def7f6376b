//! The sensitive-data policy of a store.

use std::fmt;

/// How a store handles new content that contains sensitive data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SensitiveDataPolicy {
    /// The content is stored as it was sent.
    #[default]
    Off,
    /// The findings are replaced before the content is stored.
    Redact,
    /// The content is refused.
    Reject,
}

impl SensitiveDataPolicy {
    /// Every policy.
    pub const ALL: [Self; 3] = [Self::Off, Self::Redact, Self::Reject];

    /// The policy's name in the API and in the index.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Redact => "redact",
            Self::Reject => "reject",
        }
    }

    /// The policy of this name; `None` if there is none.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|policy| policy.name() == name)
    }
}

impl fmt::Display for SensitiveDataPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
