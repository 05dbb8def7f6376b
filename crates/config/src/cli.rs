//! What the command lines of Keepsake's programs share.

use std::fmt;
use std::path::PathBuf;

use clap::Args;

use crate::{ConfigError, Sources};

/// The sources of the configuration.
///
/// Later ones override earlier ones: defaults, the file, `KEEPSAKE_*` variables, flags.
#[derive(Debug, Clone, Default, Args)]
pub struct SourceArgs {
    /// A TOML file
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Keeps all data in a file in this folder; needs no other services
    #[arg(long, value_name = "DIR")]
    pub data_dir: Option<PathBuf>,
}

impl SourceArgs {
    /// These flags and the environment's variables.
    pub fn into_sources(self) -> Sources {
        Sources {
            file: self.config,
            variables: std::env::vars_os().collect(),
            data_dir: self.data_dir,
            ..Sources::default()
        }
    }
}

/// Why a command failed, as one sentence without secrets.
#[derive(Debug)]
pub struct Failure(String);

impl Failure {
    /// A failure with this text.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// Returns a function for `map_err` that puts `what` before the error's text.
    pub fn of<E: fmt::Display>(what: impl fmt::Display) -> impl FnOnce(E) -> Self {
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
