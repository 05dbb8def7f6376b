//! Keepsake: memory for agents, hosted by you.
//!
//! The binary starts a server from a [configuration](keepsake_config) and has the
//! operator's commands. The other crates implement the product.

mod backends;
mod cli;
mod data_dir;
mod dev;
mod logs;
mod mcp;
mod operator;
mod serve;
mod signals;

use std::process::ExitCode;

use clap::Parser;
use keepsake_config::Failure;

use cli::{BlobCommand, Cli, Command, ConfigCommand, StoreCommand};

/// Faster than the system allocator for many short allocations on many threads.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

#[tokio::main]
async fn main() -> ExitCode {
    // On the heap: the future of the largest command is too large for a stack.
    match Box::pin(run(Cli::parse().command)).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("keepsake: {failure}");
            ExitCode::FAILURE
        }
    }
}

async fn run(command: Command) -> Result<(), Failure> {
    match command {
        Command::Serve(args) => serve::run(args).await,
        Command::Mcp(args) => mcp::run(args).await,
        Command::Config {
            command: ConfigCommand::Check(args),
        } => operator::check_config(args).await,
        Command::Migrate(args) => operator::migrate(args).await,
        Command::Tenant { command } => operator::run_tenant(command).await,
        Command::Key { command } => operator::run_key(command).await,
        Command::TokenKey { command } => operator::run_token_key(command).await,
        Command::Store {
            command: StoreCommand::Create(args),
        } => operator::create_store(args).await,
        Command::Job { command } => operator::run_job(command).await,
        Command::Verify(args) => operator::verify(args).await,
        Command::Blobs {
            command: BlobCommand::Move(args),
        } => operator::move_blobs(args).await,
        Command::Openapi(args) => operator::print_openapi(&args),
    }
}
