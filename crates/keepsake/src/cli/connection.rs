//! Arguments that all commands over HTTP share.

use clap::{Args, ValueEnum};
use keepsake_config::Failure;

/// The server and the credential of a command, and the format of its output.
#[derive(Debug, Args)]
pub(crate) struct ConnectionArgs {
    #[command(flatten)]
    pub(crate) server: ServerArgs,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

/// The server and the credential of a command.
#[derive(Debug, Args)]
pub(crate) struct ServerArgs {
    /// The context with URL, API key and store, instead of the current one
    #[arg(
        long,
        value_name = "NAME",
        env = "KEEPSAKE_CONTEXT",
        hide_env_values = true,
        help_heading = "Connection"
    )]
    pub(crate) context: Option<String>,
    /// The server's URL
    #[arg(
        long,
        value_name = "URL",
        env = "KEEPSAKE_URL",
        hide_env_values = true,
        help_heading = "Connection"
    )]
    pub(crate) url: Option<String>,
    /// An API key or a token; prefer the variable, other users can see arguments
    #[arg(
        long,
        value_name = "KEY",
        env = "KEEPSAKE_API_KEY",
        hide_env_values = true,
        help_heading = "Connection"
    )]
    pub(crate) api_key: Option<String>,
}

impl ServerArgs {
    /// Refuses arguments of a server for a command that uses none. Variables are
    /// ignored.
    pub(crate) fn refuse_beside(&self, other: &str) -> Result<(), Failure> {
        let given = [
            ("--context", "KEEPSAKE_CONTEXT", &self.context),
            ("--url", "KEEPSAKE_URL", &self.url),
            ("--api-key", "KEEPSAKE_API_KEY", &self.api_key),
        ];
        let of_argument = given
            .into_iter()
            .find(|(_, variable, value)| value.is_some() && std::env::var(variable).ok() != **value);
        match of_argument {
            Some((argument, ..)) => Err(Failure::usage(format!("{argument} cannot be used with {other}"))),
            None => Ok(()),
        }
    }
}

/// The connection, and the store that a command works on.
#[derive(Debug, Args)]
pub(crate) struct StoreArgs {
    #[command(flatten)]
    pub(crate) connection: ConnectionArgs,
    /// The memory store: its id or its name
    #[arg(
        short,
        long,
        value_name = "STORE",
        env = "KEEPSAKE_STORE",
        hide_env_values = true,
        help_heading = "Connection"
    )]
    pub(crate) store: Option<String>,
}

/// The format of a command's output.
#[derive(Debug, Clone, Copy, Args)]
pub(crate) struct OutputArgs {
    /// The format
    #[arg(short, long, value_name = "FORMAT", value_enum, default_value = "table", help_heading = "Output")]
    pub(crate) output: OutputFormat,
}

/// How a command prints its result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum OutputFormat {
    /// For people: aligned columns, human sizes, relative times
    Table,
    /// One JSON document, as the API answers
    Json,
    /// One JSON object per line
    Jsonl,
}
