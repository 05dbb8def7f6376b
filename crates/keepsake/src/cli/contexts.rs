//! Arguments of `keepsake login` and `keepsake context`.

use clap::{Args, Subcommand};

use super::OutputArgs;

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  keepsake login https://memory.example.com
  keepsake login https://memory.example.com --name work --store notes < key.txt")]
pub(crate) struct LoginArgs {
    /// The server's URL
    #[arg(value_name = "URL")]
    pub(crate) url: String,
    /// The name of the context [default: the host]
    #[arg(long, value_name = "NAME")]
    pub(crate) name: Option<String>,
    /// The memory store that commands use: its id or its name
    #[arg(short, long, value_name = "STORE")]
    pub(crate) store: Option<String>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ContextCommand {
    /// Lists the contexts
    #[command(visible_alias = "ls")]
    List(OutputArgs),
    /// Makes a context the current one
    Use(UseContextArgs),
    /// Prints a context as variables, for clients
    Env(EnvContextArgs),
    /// Removes a context and its API key
    #[command(visible_alias = "rm")]
    Remove(RemoveContextArgs),
}

#[derive(Debug, Args)]
pub(crate) struct UseContextArgs {
    /// The context
    #[arg(value_name = "NAME")]
    pub(crate) name: String,
    /// The memory store that commands use from now on: its id or its name
    #[arg(short, long, value_name = "STORE")]
    pub(crate) store: Option<String>,
}

#[derive(Debug, Args)]
#[command(after_help = "Example:
  eval \"$(keepsake context env dev)\"")]
pub(crate) struct EnvContextArgs {
    /// The context [default: the current one]
    #[arg(value_name = "NAME")]
    pub(crate) name: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct RemoveContextArgs {
    /// The context
    #[arg(value_name = "NAME")]
    pub(crate) name: String,
}
