//! Arguments of `keepsake session`, `keepsake audit` and `keepsake usage`.

use clap::{Args, Subcommand};

use super::ConnectionArgs;

#[derive(Debug, Subcommand)]
pub(crate) enum SessionCommand {
    /// Lists the sessions, newest first
    #[command(visible_alias = "ls")]
    List(ListSessionsArgs),
    /// Shows a session and the stores attached to it
    Show(SessionArgs),
    /// Lists the tool calls of a session, oldest first
    Events(SessionEventsArgs),
}

#[derive(Debug, Args)]
pub(crate) struct ListSessionsArgs {
    #[command(flatten)]
    pub(crate) connection: ConnectionArgs,
    /// Includes archived sessions
    #[arg(short, long)]
    pub(crate) all: bool,
    /// Number of sessions
    #[arg(short = 'n', long, value_name = "N", default_value = "50")]
    pub(crate) limit: usize,
}

#[derive(Debug, Args)]
pub(crate) struct SessionArgs {
    #[command(flatten)]
    pub(crate) connection: ConnectionArgs,
    /// The session: sesn_…
    #[arg(value_name = "ID")]
    pub(crate) session: String,
}

#[derive(Debug, Args)]
pub(crate) struct SessionEventsArgs {
    #[command(flatten)]
    pub(crate) session: SessionArgs,
    /// Waits for further events until Ctrl-C
    #[arg(short, long)]
    pub(crate) follow: bool,
}

#[derive(Debug, Args)]
pub(crate) struct AuditLogArgs {
    #[command(flatten)]
    pub(crate) connection: ConnectionArgs,
    /// Only this action, such as `memory_store.delete`
    #[arg(long, value_name = "ACTION")]
    pub(crate) action: Option<String>,
    /// Number of entries
    #[arg(short = 'n', long, value_name = "N", default_value = "50")]
    pub(crate) limit: usize,
}

#[derive(Debug, Args)]
pub(crate) struct UsageArgs {
    #[command(flatten)]
    pub(crate) connection: ConnectionArgs,
}
