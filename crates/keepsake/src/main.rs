//! Keepsake: memory for agents, hosted by you.
//!
//! The binary starts a server from a [configuration](keepsake_config) and has the
//! operator's commands. The other crates implement the product.

// Only `output` prints texts of servers and agents.
#![warn(clippy::print_stdout, clippy::print_stderr)]

mod archive;
mod backends;
mod cli;
mod contexts;
mod data_dir;
mod dev;
mod failures;
mod logs;
mod manual;
mod mcp;
mod open_folder;
mod operator;
mod output;
mod people;
mod serve;
mod signals;
mod sync;
mod whole_store;

use std::process::ExitCode;

use clap::Parser;
use keepsake_config::Failure;

use cli::{BlobCommand, Cli, Command, ConfigCommand};

/// Faster than the system allocator for many short allocations on many threads.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

#[tokio::main]
async fn main() -> ExitCode {
    // On the heap: the future of the largest command is too large for a stack.
    let ended = Box::pin(run(Cli::parse().command)).await;
    logs::flush();
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            output::notice(&format!("keepsake: {failure}"));
            ExitCode::from(failure.exit_code())
        }
    }
}

async fn run(command: Command) -> Result<(), Failure> {
    match command {
        Command::Serve(args) => serve::run(args).await,
        Command::Mcp(args) => mcp::run(args).await,
        Command::Config { command: ConfigCommand::Check(args) } => {
            Box::pin(operator::check_config(args)).await
        }
        Command::Migrate(args) => operator::migrate(args).await,
        Command::Tenant { command } => operator::run_tenant(command).await,
        Command::Key { command } => operator::run_key(command).await,
        Command::TokenKey { command } => operator::run_token_key(command).await,
        Command::Login(args) => people::login(args).await,
        Command::Context { command } => people::run_context(command),
        Command::Store { command } => people::run_store(command).await,
        Command::Memory { command } => people::run_memory(command).await,
        Command::Export(args) => archive::export(args).await,
        Command::Import(args) => archive::import(args).await,
        Command::Session { command } => people::run_session(command).await,
        Command::Audit(args) => people::show_audit(args).await,
        Command::Usage(args) => people::show_usage(args).await,
        Command::Sync(args) => sync::run(args).await,
        Command::Job { command } => operator::run_job(command).await,
        Command::Verify(args) => operator::verify(args).await,
        Command::Blobs { command: BlobCommand::Move(args) } => operator::move_blobs(args).await,
        Command::Openapi(args) => operator::print_openapi(&args),
        Command::Completions(args) => manual::print_completions(&args),
        Command::Man(args) => manual::print_manual(&args),
    }
}
