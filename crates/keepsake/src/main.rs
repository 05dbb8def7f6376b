//! Keepsake: memory for agents, hosted by you.
//!
//! The binary starts a server from a [configuration](keepsake_config) and has the
//! operator's commands. The other crates implement the product.

// Only `output` prints texts of servers and agents.
#![warn(clippy::print_stdout, clippy::print_stderr)]

mod archive;
mod backends;
mod cli;
mod completions;
mod contexts;
mod copy;
mod data_dir;
mod dev;
mod doctor;
mod failures;
mod ids;
mod logs;
mod manual;
mod mcp;
mod model;
mod names;
mod open_folder;
mod operator;
mod output;
mod people;
mod serve;
mod signals;
mod store_api;
mod store_changes;
mod sync;

use std::fmt::Write as _;
use std::process::ExitCode;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::parser::ValueSource;
use clap::{Arg, ArgMatches, CommandFactory, FromArgMatches, Parser, Subcommand};
use keepsake_config::cli::Result;

use cli::example;
use operator::{backup, blobs, check, jobs, model as models, tenants, token_keys, verify};
use people::{access, erasures, keys, memories, sessions, store_tests, stores, undo};

/// Memory for agents, hosted by you.
#[derive(Debug, Parser)]
#[command(name = "keepsake", version = env!("COMMAND_VERSION"), after_help = EXIT_CODES)]
struct Cli {
    /// Also accepted before the name of a command that has it
    #[arg(long, global = true, hide = true)]
    context: Option<String>,
    #[command(subcommand)]
    command: Command,
}

impl Cli {
    /// The command. Refuses `--context` for a command that does not have it.
    fn into_command(self, matches: &ArgMatches) -> Result<Command, clap::Error> {
        let (called, _) = called(matches);
        if self.context.is_some() && called.get_arguments().all(|argument| argument.get_id() != "context") {
            let text = "'--context' cannot be used with this command, which uses no context";
            return Err(Self::command().error(ErrorKind::ArgumentConflict, text));
        }
        Ok(self.command)
    }
}

/// The commands by who uses them.
const GROUPS: [(&str, &str); 4] = [
    (
        "Memories, with an API key of a server",
        "login context store memory undo test export import copy sync session audit usage mcp doctor",
    ),
    ("Administration of a tenant, with an API key that has an admin scope", "key erase erasure"),
    (
        "The server, on its machine",
        "serve config migrate backup restore verify blobs tenant token-key job model",
    ),
    ("Help", "completions man openapi help"),
];

/// The program whose help lists the commands in [`GROUPS`].
fn grouped(program: clap::Command) -> clap::Command {
    let header = *program.get_styles().get_header();
    let literal = *program.get_styles().get_literal();
    let mut commands = String::new();
    for (title, names) in GROUPS {
        let _ = writeln!(commands, "{header}{title}:{header:#}");
        for name in names.split(' ') {
            let about = match program.find_subcommand(name) {
                Some(command) => command.get_about().map(ToString::to_string).unwrap_or_default(),
                None if name == "help" => "Explains a command".to_owned(),
                None => continue,
            };
            let _ = writeln!(commands, "  {literal}{name:<12}{literal:#}{about}");
        }
        commands.push('\n');
    }
    program.help_template(format!(
        "{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\n{commands}{header}Options:{header:#}\n{{options}}{{after-help}}"
    ))
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
enum Command {
    /// Remembers a server and an API key
    Login(access::LoginArgs),
    /// Manages the servers that the commands know
    #[command(subcommand)]
    Context(access::ContextCommand),
    /// Manages memory stores
    #[command(subcommand)]
    Store(stores::StoreCommand),
    /// Reads and changes memories and their history
    #[command(subcommand)]
    Memory(memories::MemoryCommand),
    /// Takes back changes of memories
    Undo(undo::UndoArgs),
    /// Writes a memory store into an archive
    Export(archive::ExportArgs),
    /// Writes an archive, a folder or another store into a memory store
    Import(archive::ImportArgs),
    /// Copies memories from one server to another
    Copy(copy::CopyArgs),
    /// Shows sessions and what agents did in them
    #[command(subcommand)]
    Session(sessions::SessionCommand),
    /// Lists who did what, newest first
    #[command(after_help = "Examples:
  keepsake audit -n 100
  keepsake audit --action memory_store.delete -o jsonl")]
    Audit(sessions::AuditLogArgs),
    /// Shows the size of all memory stores
    #[command(after_help = example("keepsake usage"))]
    Usage(cli::ConnectionArgs),
    /// Manages API keys
    #[command(subcommand)]
    Key(keys::KeyCommand),
    /// Erases memories with their history and every trace, permanently
    Erase(erasures::EraseArgs),
    /// Lists and shows erasures
    #[command(subcommand)]
    Erasure(erasures::ErasureCommand),
    /// Checks what the commands need, and says what to do
    Doctor(doctor::DoctorArgs),
    /// Runs the tests of a memory store
    Test(store_tests::TestArgs),
    /// Keeps a folder and a memory store equal, in both directions
    Sync(sync::SyncArgs),
    /// Serves requests and runs the scheduled jobs
    #[command(after_help = "Examples:
  keepsake serve --dev                  all data in one folder, to try it
  keepsake serve --config keepsake.toml")]
    Serve(serve::ServeArgs),
    /// Serves one MCP client over stdio, from a folder or as a bridge
    Mcp(mcp::McpArgs),
    /// Checks the configuration
    #[command(subcommand)]
    Config(check::ConfigCommand),
    /// Migrates the database to the schema of this version
    #[command(after_help = example("keepsake migrate --config keepsake.toml"))]
    Migrate(operator::MigrateArgs),
    /// Manages tenants
    #[command(subcommand)]
    Tenant(tenants::TenantCommand),
    /// Manages the token signing keys
    #[command(subcommand)]
    TokenKey(token_keys::TokenKeyCommand),
    /// Lists and runs the scheduled jobs
    #[command(subcommand)]
    Job(jobs::JobCommand),
    /// Writes the database into a file, also while a server uses it
    Backup(backup::BackupArgs),
    /// Replaces the database with a backup, and keeps the old one
    Restore(backup::RestoreArgs),
    /// Checks all rows and blobs, and recounts totals; changes nothing
    Verify(verify::VerifyArgs),
    /// Manages where content is
    #[command(subcommand)]
    Blobs(blobs::BlobCommand),
    /// Manages the embedded model of search by meaning
    #[command(subcommand)]
    Model(models::ModelCommand),
    /// Prints the OpenAPI document of the HTTP API
    #[command(after_help = "Examples:
  keepsake openapi > openapi.json
  keepsake openapi --admin > openapi-admin.json")]
    Openapi {
        /// The document of the operator API
        #[arg(long)]
        admin: bool,
    },
    /// Prints a shell's completions
    Completions(completions::CompletionsArgs),
    /// Prints the manual page, or writes those of all commands
    Man(manual::ManArgs),
}

/// Faster than the system allocator for many short allocations on many threads.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    completions::answer_shell(Cli::command);
    let matches = grouped(Cli::command()).try_get_matches();
    let matches = matches.unwrap_or_else(|error| with_places(error).exit());
    match Cli::from_arg_matches(&matches).and_then(|cli| cli.into_command(&matches)) {
        Ok(command) => run_to_end(command, &matches),
        Err(error) => error.exit(),
    }
}

/// Names the commands of the unknown name in other places: `log` is `memory log`, `store test` is `test`.
fn with_places(mut error: clap::Error) -> clap::Error {
    let Some(ContextValue::String(name)) = error.get(ContextKind::InvalidSubcommand) else {
        return error;
    };
    let program = Cli::command();
    if program.find_subcommand(name).is_some() {
        let above = ContextValue::Strings(vec![format!("keepsake {name}")]);
        error.insert(ContextKind::SuggestedSubcommand, above);
        return error;
    }
    // A similar command beside the unknown one is a better guess: `memory move` is not `blobs move`.
    if let Some(ContextValue::Strings(similar)) = error.get(ContextKind::SuggestedSubcommand)
        && similar.iter().any(|beside| program.find_subcommand(beside).is_none())
    {
        return error;
    }
    let places = program.get_subcommands().filter_map(|above| {
        let below = above.find_subcommand(name)?;
        Some(format!("{} {}", above.get_name(), below.get_name()))
    });
    let places: Vec<_> = places.collect();
    if !places.is_empty() {
        error.insert(ContextKind::SuggestedSubcommand, ContextValue::Strings(places));
    }
    error
}

#[tokio::main]
async fn run_to_end(command: Command, matches: &ArgMatches) -> ExitCode {
    // On the heap: the future of the largest command is too large for a stack.
    let ended = Box::pin(run(command)).await;
    logs::flush();
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            let text = failures::with_option(&failure, &options(matches));
            output::notice(&format!("keepsake: {text}"));
            ExitCode::from(failure.exit_code())
        }
    }
}

/// The command that was called, with its own arguments.
fn called(mut matches: &ArgMatches) -> (clap::Command, &ArgMatches) {
    let mut command = Cli::command();
    while let Some((name, below)) = matches.subcommand() {
        let Some(found) = command.find_subcommand(name).cloned() else {
            break;
        };
        (command, matches) = (found, below);
    }
    (command, matches)
}

/// The long options of the command that was called, the given ones first.
fn options(matches: &ArgMatches) -> Vec<String> {
    let (command, matches) = called(matches);
    let is_given =
        |option: &&Arg| matches.value_source(option.get_id().as_str()) == Some(ValueSource::CommandLine);
    let options = command.get_arguments().filter(|option| option.get_long().is_some());
    let (given, others): (Vec<_>, Vec<_>) = options.partition(is_given);
    given.into_iter().chain(others).filter_map(Arg::get_long).map(str::to_owned).collect()
}

async fn run(command: Command) -> Result<()> {
    match command {
        Command::Login(args) => access::login(args).await,
        Command::Context(command) => access::run_context(command).await,
        Command::Store(command) => Box::pin(stores::run(command)).await,
        Command::Memory(command) => memories::run(command).await,
        Command::Undo(args) => undo::run(args).await,
        Command::Export(args) => archive::export(args).await,
        Command::Import(args) => archive::import(args).await,
        Command::Copy(args) => Box::pin(copy::run(args)).await,
        Command::Session(command) => sessions::run(command).await,
        Command::Audit(args) => sessions::show_audit(args).await,
        Command::Usage(args) => sessions::show_usage(&args).await,
        Command::Key(command) => Box::pin(keys::run(command)).await,
        Command::Erase(args) => erasures::erase(args).await,
        Command::Erasure(command) => erasures::run(command).await,
        Command::Doctor(args) => doctor::run(args).await,
        Command::Test(args) => store_tests::run(args).await,
        Command::Sync(args) => sync::run(args).await,
        Command::Serve(args) => Box::pin(serve::run(args)).await,
        Command::Mcp(args) => mcp::run(args).await,
        Command::Config(check::ConfigCommand::Check(args)) => Box::pin(check::run(args)).await,
        Command::Migrate(args) => operator::migrate(args).await,
        Command::Tenant(command) => tenants::run(command).await,
        Command::TokenKey(command) => token_keys::run(command).await,
        Command::Job(command) => jobs::run(command).await,
        Command::Backup(args) => Box::pin(backup::back_up(args)).await,
        Command::Restore(args) => Box::pin(backup::restore(args)).await,
        Command::Verify(args) => Box::pin(verify::run(args)).await,
        Command::Blobs(blobs::BlobCommand::Move(args)) => blobs::run(args).await,
        Command::Model(command) => models::run(command).await,
        Command::Openapi { admin: true } => output::print(keepsake_server::operator_openapi()),
        Command::Openapi { admin: false } => output::print(keepsake_server::openapi()),
        Command::Completions(args) => completions::print_completions(&args),
        Command::Man(args) => manual::print_manual(Cli::command(), &args),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(arguments: &str) -> Result<Command, clap::Error> {
        let arguments = ["keepsake"].into_iter().chain(arguments.split_whitespace());
        let matches = Cli::command().try_get_matches_from(arguments)?;
        Cli::from_arg_matches(&matches)?.into_command(&matches)
    }

    #[test]
    fn help_names_every_command_with_an_example() {
        Cli::command().debug_assert();
        let program = Cli::command();
        let named: Vec<_> = GROUPS.iter().flat_map(|(_, names)| names.split(' ')).collect();
        let mut rest = vec![("keepsake".to_owned(), &program)];
        while let Some((line, command)) = rest.pop() {
            let below: Vec<_> = command.get_subcommands().collect();
            if below.is_empty() {
                let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
                assert!(help.contains(&line), "{line} has no example: {help}");
            }
            rest.extend(below.into_iter().map(|below| (format!("{line} {}", below.get_name()), below)));
        }
        for command in program.get_subcommands() {
            assert!(named.contains(&command.get_name()), "{} is in no group", command.get_name());
        }
        let help = grouped(program).render_help().to_string();
        assert!(help.contains("\nThe server, on its machine:\n  serve       Serves requests"), "{help}");
    }

    #[test]
    fn wrong_usage_is_refused_with_2() {
        let of_tenant = "--tenant wrkspc_00000000000000000000000001 --name n";
        for arguments in [
            "",
            "serve --dev --config c",
            "serve --no-model",
            "--context work migrate",
            "import a --from-url http://h --from-api-key k --from-store s",
            "tenant create --name n --limit bytes_per_memory",
            "tenant create --name n --limit bytes_per_memroy=1",
            "tenant list --server http://h --config c",
            "tenant update wrkspc_00000000000000000000000001 --external-id x --no-external-id",
            "tenant update wrkspc_00000000000000000000000001 --default-limit bytes_per_memroy",
            "sync d --watch --dry-run",
            "undo --session sesn_00000000000000000000000001 --key apikey_00000000000000000000000001",
            "undo --since yesterday",
            "store restore notes",
            "store restore notes --at 2h --at-seq 3",
            "copy --from http://h --to http://g --follow --dry-run",
            "copy --from http://h --to http://g --on-conflict merge",
            "blobs move --to file:///blobs",
            &format!("key create {of_tenant} --scope all"),
            &format!("key create {of_tenant} --expires-in-days 0"),
        ] {
            assert_eq!(parse(arguments).unwrap_err().exit_code(), 2, "{arguments}");
        }
        let unknown = parse("tenant create --name n --limit bytes_per_memroy=1").unwrap_err().to_string();
        assert!(unknown.contains("the limits are api_keys_per_tenant, "), "{unknown}");
        let elsewhere = with_places(parse("readers").unwrap_err()).to_string();
        assert!(elsewhere.contains("a similar subcommand exists: 'memory readers'"), "{elsewhere}");
        let above = with_places(parse("store test").unwrap_err()).to_string();
        assert!(above.contains("a similar subcommand exists: 'keepsake test'"), "{above}");
    }
}
