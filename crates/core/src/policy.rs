//! What a store does about sensitive data in new content.

use std::fmt;

/// What becomes of content in which something sensitive is found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SensitiveDataPolicy {
    /// It is stored as it was sent.
    #[default]
    Off,
    /// What was found is replaced before it is stored.
    Redact,
    /// It is refused.
    Reject,
}

impl SensitiveDataPolicy {
    /// Every policy there is.
    pub const ALL: [Self; 3] = [Self::Off, Self::Redact, Self::Reject];

    /// Its name in the API and in the index.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Redact => "redact",
            Self::Reject => "reject",
        }
    }

    /// Reads a name; `None`: no policy is called so.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|policy| policy.name() == name)
    }
}

impl fmt::Display for SensitiveDataPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
