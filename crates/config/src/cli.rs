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
pub struct Failure {
    text: String,
    class: FailureClass,
    is_refusal: bool,
}

/// The result of a command, or of a part of one.
pub type Result<T, E = Failure> = std::result::Result<T, E>;

/// The class of a failure, as the exit code of the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum FailureClass {
    /// Any other failure.
    Failed = 1,
    /// The arguments, variables or contexts are wrong.
    Usage = 2,
    NotFound = 3,
    /// A precondition does not hold, or the object is in another state.
    Conflict = 4,
    /// The credential is unknown or lacks the permission.
    NotAllowed = 5,
    /// The server cannot be reached or is overloaded; a later attempt may succeed.
    Unavailable = 6,
}

impl Failure {
    pub fn new(text: impl Into<String>) -> Self {
        Self::of_class(FailureClass::Failed, text)
    }

    pub fn usage(text: impl Into<String>) -> Self {
        Self::of_class(FailureClass::Usage, text)
    }

    pub fn not_found(text: impl Into<String>) -> Self {
        Self::of_class(FailureClass::NotFound, text)
    }

    pub fn conflict(text: impl Into<String>) -> Self {
        Self::of_class(FailureClass::Conflict, text)
    }

    pub fn of_class(class: FailureClass, text: impl Into<String>) -> Self {
        let text = text.into();
        Self { text, class, is_refusal: false }
    }

    /// As [`Self::of_class`]; the text is what a server says of a request that it refuses.
    pub fn refusal(class: FailureClass, text: impl Into<String>) -> Self {
        Self { is_refusal: true, ..Self::of_class(class, text) }
    }

    /// For `map_err`: puts `what` before the error's text.
    pub fn of<E: fmt::Display>(what: impl fmt::Display) -> impl FnOnce(E) -> Self {
        move |error| Self::new(format!("{what}: {error}"))
    }

    /// Puts `what` before the text, and keeps the class.
    #[must_use]
    pub fn within(self, what: impl fmt::Display) -> Self {
        Self { text: format!("{what}: {}", self.text), ..self }
    }

    /// Whether the text ends with what a server says of a request that it refuses.
    pub const fn is_refusal(&self) -> bool {
        self.is_refusal
    }

    pub const fn class(&self) -> FailureClass {
        self.class
    }

    pub const fn exit_code(&self) -> u8 {
        self.class as u8
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl From<ConfigError> for Failure {
    fn from(error: ConfigError) -> Self {
        Self::new(error.to_string())
    }
}
