//! Why a command failed, as the one sentence it ends with.

use std::fmt;

use crate::config::ConfigError;

/// What went wrong and where; holds no secret.
#[derive(Debug)]
pub(crate) struct Failure(String);

impl Failure {
    /// A failure in its own words.
    pub(crate) fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// What was tried or is concerned, then the error, for `map_err`.
    pub(crate) fn of<E: fmt::Display>(what: impl fmt::Display) -> impl FnOnce(E) -> Self {
        move |error| Self(format!("{what}: {error}"))
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl From<ConfigError> for Failure {
    fn from(error: ConfigError) -> Self {
        Self(error.to_string())
    }
}
