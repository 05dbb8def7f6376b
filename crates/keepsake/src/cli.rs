//! The command line.

mod archives;
mod blobs;
mod connection;
mod contexts;
mod jobs;
mod manual;
mod memories;
mod operator;
mod sessions;
mod stores;
mod sync;

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};
use keepsake_config::{Role, SourceArgs};

pub(crate) use archives::{ExportArgs, FromArgs, ImportArgs};
pub(crate) use blobs::{BlobCommand, MoveBlobsArgs};
pub(crate) use connection::{ConnectionArgs, OutputArgs, OutputFormat, ServerArgs, StoreArgs};
pub(crate) use contexts::{ContextCommand, LoginArgs, UseContextArgs};
pub(crate) use jobs::{JobCommand, ListJobsArgs, RunJobArgs, VerifyArgs};
pub(crate) use manual::{CompletionsArgs, ManArgs};
pub(crate) use memories::{
    CatArgs, DiffArgs, ExpireArgs, ExpiryTime, LogArgs, LsArgs, MemoryCommand, MvArgs, PathArgs, PinArgs,
    PutArgs, RedactArgs, RestoreArgs, RmArgs, SearchArgs,
};
pub(crate) use operator::{
    AuditArgs, CreateKeyArgs, CreateTenantArgs, DeleteTenantArgs, KeyCommand, ListTenantsArgs, PageArgs,
    RevokeKeyArgs, TargetArgs, TenantArgs, TenantCommand, TokenKeyCommand, UpdateTenantArgs,
};
pub(crate) use sessions::{
    AuditLogArgs, ListSessionsArgs, SessionArgs, SessionCommand, SessionEventsArgs, UsageArgs,
};
pub(crate) use stores::{
    CreateStoreArgs, ListStoresArgs, Period, SensitiveData, ShowStoreArgs, StoreCommand, StoreFields,
    SureStoreArgs, UpdateStoreArgs,
};
pub(crate) use sync::SyncArgs;

/// Memory for agents, hosted by you.
#[derive(Debug, Parser)]
#[command(name = "keepsake", version = env!("COMMAND_VERSION"), after_help = EXIT_CODES)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// What the exit codes of all commands mean.
const EXIT_CODES: &str = "\
Exit codes:
  0  done
  1  failed
  2  wrong usage: arguments, variables or contexts
  3  not found
  4  conflict: a precondition does not hold, or a path is taken
  5  not allowed: the credential is unknown or lacks the permission
  6  unavailable: the server cannot be reached or is overloaded; try again later";

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Remembers a server and an API key
    Login(LoginArgs),
    /// Manages the servers that the commands know
    Context {
        #[command(subcommand)]
        command: ContextCommand,
    },
    /// Manages memory stores
    Store {
        #[command(subcommand)]
        command: StoreCommand,
    },
    /// Reads and changes memories and their history
    Memory {
        #[command(subcommand)]
        command: MemoryCommand,
    },
    /// Writes a memory store into an archive
    Export(ExportArgs),
    /// Writes an archive, a folder or another store's memories into a memory store
    Import(ImportArgs),
    /// Shows sessions and what agents did in them
    Session {
        #[command(subcommand)]
        command: SessionCommand,
    },
    /// Lists who did what, newest first
    Audit(AuditLogArgs),
    /// Shows the size of all memory stores
    Usage(UsageArgs),
    /// Keeps a folder and a memory store equal, in both directions
    Sync(SyncArgs),
    /// Serves requests and runs the scheduled jobs
    Serve(ServeArgs),
    /// Serves one MCP client over stdin and stdout, from a local folder or as a bridge to a server
    Mcp(McpArgs),
    /// Checks the configuration
    Config {
        #[command(subcommand)]
        command: ConfigCommand,
    },
    /// Migrates the database to the schema of this version
    Migrate(SourceArgs),
    /// Manages tenants
    Tenant {
        #[command(subcommand)]
        command: TenantCommand,
    },
    /// Manages API keys
    Key {
        #[command(subcommand)]
        command: KeyCommand,
    },
    /// Manages the token signing keys
    TokenKey {
        #[command(subcommand)]
        command: TokenKeyCommand,
    },
    /// Lists and runs the scheduled jobs
    Job {
        #[command(subcommand)]
        command: JobCommand,
    },
    /// Reads every row, checks every blob's hash and recounts the totals; changes nothing
    Verify(VerifyArgs),
    /// Manages where content is
    Blobs {
        #[command(subcommand)]
        command: BlobCommand,
    },
    /// Prints the OpenAPI document of the HTTP API
    Openapi(OpenapiArgs),
    /// Prints a shell's completions
    Completions(CompletionsArgs),
    /// Prints the manual page, or writes those of all commands
    Man(ManArgs),
}

#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Prints the merged configuration with secrets hidden, and all problems
    Check(CheckArgs),
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  keepsake config check --config keepsake.toml
  keepsake config check --config keepsake.toml --connect -o json")]
pub(crate) struct CheckArgs {
    #[command(flatten)]
    pub(crate) sources: SourceArgs,
    /// Connects to the database and the blob store; writes, reads, lists and deletes a probe object
    #[arg(long)]
    pub(crate) connect: bool,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

#[derive(Debug, Args)]
pub(crate) struct ServeArgs {
    #[command(flatten)]
    pub(crate) sources: SourceArgs,
    /// Keeps all data in one folder; creates a tenant, a store and a key at the first start
    #[arg(long, conflicts_with = "config")]
    pub(crate) dev: bool,
    /// The address to listen on: host:port
    #[arg(long, value_name = "ADDR")]
    pub(crate) listen: Option<String>,
    /// The work of this process
    #[arg(long, value_name = "ROLE", value_enum)]
    pub(crate) role: Option<Role>,
    /// Migrates a Postgres database before serving; a sqlite:// one always is
    #[arg(long)]
    pub(crate) migrate: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  keepsake mcp
  keepsake mcp --data-dir memories --store projects
  keepsake mcp --url https://memory.example.com --store notes
  keepsake mcp --context work")]
pub(crate) struct McpArgs {
    /// Keeps all data in this folder, as `serve --dev` does; the default if no server or context is named
    #[arg(long, visible_alias = "data", value_name = "DIR")]
    pub(crate) data_dir: Option<PathBuf>,
    /// The memory store: in a folder its name, created if missing; on a server its id or name, not needed with a session token
    #[arg(short, long, value_name = "STORE")]
    pub(crate) store: Option<String>,
    #[command(flatten)]
    pub(crate) server: ServerArgs,
}

#[derive(Debug, Args)]
pub(crate) struct OpenapiArgs {
    /// The document of the operator API
    #[arg(long)]
    pub(crate) admin: bool,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    fn parse(arguments: &str) -> Result<Command, clap::Error> {
        let arguments = ["keepsake"].into_iter().chain(arguments.split_whitespace());
        Cli::try_parse_from(arguments).map(|cli| cli.command)
    }

    #[test]
    fn definition_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn wrong_usage_is_refused_with_2() {
        let of_tenant = "--tenant wrkspc_00000000000000000000000001 --name n";
        for arguments in [
            "",
            "serve --dev --config c",
            "import",
            "import a --from-url http://h --from-api-key k --from-store s",
            "tenant create --name n --limit bytes_per_memory",
            "tenant create --name n --limit bytes_per_memroy=1",
            "tenant list --server http://h --config c",
            "tenant update wrkspc_00000000000000000000000001 --external-id x --no-external-id",
            "tenant update wrkspc_00000000000000000000000001 --default-limit bytes_per_memroy",
            "sync d --watch --dry-run",
            "blobs move --to file:///blobs",
            "key create --tenant memstore_00000000000000000000000001 --name n",
            &format!("key create {of_tenant} --scope all"),
            &format!("key create {of_tenant} --expires-in-days 0"),
        ] {
            assert_eq!(parse(arguments).unwrap_err().exit_code(), 2, "{arguments}");
        }
        let unknown = parse("tenant create --name n --limit bytes_per_memroy=1").unwrap_err().to_string();
        assert!(unknown.contains("expected one of `bytes_per_memory`"), "{unknown}");
    }
}
