//! `keepsake copy`: copies memories from one server to another, each of any maker.
//!
//! # Passes
//!
//! A pass lists both stores, compares them by path and hash ([`plan`]), and writes what differs
//! ([`pass`]). Every write has a precondition, or creates a memory where none is; a write that found
//! something else, or whose outcome is unknown, is left to the next pass, which looks again. So a
//! run that was stopped is repeated, and nothing is written twice. The base, a list of the copied
//! memories in this process only, tells a later pass whether the source or the target changed.
//!
//! # Only the official API
//!
//! A server gets only the calls, fields and headers that the official SDKs send, until it has
//! answered one call of Keepsake's own ([`server`]). Then pins and expiry times are copied, writes
//! are sent in batches, and changes come from the stream of changes.

mod history;
mod listing;
mod not_held;
mod pass;
mod plan;
mod receipt;
mod server;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use futures::future::join_all;
use keepsake_archive::plan::OnConflict;
use keepsake_config::{Failure, FailureClass, cli::Result};
use tokio_util::sync::CancellationToken;

use crate::archive::ON_CONFLICT;
use crate::cli::{OutputArgs, choice, parse_period};
use crate::output::{Printer, notice};
use crate::signals::{self, or_end};
use crate::store_changes::{LastProblem, SAFETY_INTERVAL, StoreChanges};

use pass::{Options, StoreCopy};
use server::Server;

/// How long a round may take after the signal that ends `--follow`.
const END_LIMIT: Duration = Duration::from_secs(10);
/// The shortest interval of `--every`.
const MIN_INTERVAL: Duration = Duration::from_secs(1);

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  keepsake copy --from https://api.example.com#notes --to new#notes --dry-run
  keepsake copy --from old --to new --follow
  keepsake copy --from old#notes --to new#notes --versions

SERVER is a URL without /v1, or the name of a context (`keepsake context list`).
Each server has its own key: in a file, in KEEPSAKE_FROM_API_KEY and
KEEPSAKE_TO_API_KEY, or in the context.
Without #STORE, all memory stores are copied to those of the same names. Stores
that are missing are created. The same command continues a stopped copy.")]
#[expect(clippy::struct_excessive_bools, reason = "the flags of the command")]
pub(crate) struct CopyArgs {
    /// The server to copy from, and the id or the name of one memory store
    #[arg(long, value_name = "SERVER[#STORE]")]
    from: String,
    /// The server to copy to, and the id or the name of one memory store
    #[arg(long, value_name = "SERVER[#STORE]")]
    to: String,
    /// A file with an API key of the server to copy from, instead of `KEEPSAKE_FROM_API_KEY`
    #[arg(long, value_name = "FILE")]
    from_key_file: Option<PathBuf>,
    /// A file with an API key of the server to copy to, instead of `KEEPSAKE_TO_API_KEY`
    #[arg(long, value_name = "FILE")]
    to_key_file: Option<PathBuf>,
    /// The action if the target has other content at the path of a memory
    #[arg(long, value_name = "ACTION", value_parser = choice(OnConflict::parse, ON_CONFLICT), default_value = "fail")]
    on_conflict: OnConflict,
    /// Deletes the memories of the target that the source does not have
    #[arg(long)]
    delete: bool,
    /// Copies the history as well; the target is an empty memory store of a Keepsake server
    #[arg(long)]
    versions: bool,
    /// Goes on until Ctrl-C, and copies later changes of the source as they come
    #[arg(short, long)]
    follow: bool,
    /// With --follow, how often to look for changes on a server that does not report them: 10s, 1m
    #[arg(long, value_name = "TIME", value_parser = parse_period, default_value = "10s")]
    every: Duration,
    /// Writes nothing if the target cannot hold something, such as the history or a pin
    #[arg(long)]
    strict: bool,
    /// Shows what would be done and changes nothing
    #[arg(short = 'n', long, conflicts_with = "follow")]
    dry_run: bool,
    #[command(flatten)]
    output: OutputArgs,
}

/// Copies once, or until a signal, and prints the receipt.
pub(crate) async fn run(args: CopyArgs) -> Result<()> {
    let ending = signals::shutdown_token()?;
    let printer = Printer::new(args.output.output);
    let (mut copies, begins) = or_end(&ending, Box::pin(open(&args, &printer))).await?;
    if args.dry_run {
        return receipt::end(copies.iter().map(|copy| &copy.receipt), &printer, true, begins);
    }
    begins?;
    let first_rounds = or_end(&ending, async {
        for copy in &mut copies {
            copy.prepare().await?;
            if !args.follow {
                copy.round().await?;
            }
        }
        Ok(())
    });
    let mut done = first_rounds.await;
    if args.follow && done.is_ok() {
        done = follow_all(&mut copies, args.every.max(MIN_INTERVAL), &ending).await;
    }
    for copy in &mut copies {
        if done.is_ok() {
            done = copy.verify().await;
        }
    }
    receipt::end(copies.iter().map(|copy| &copy.receipt), &printer, false, done)
}

/// Follows all stores until a signal. A store that cannot be followed any more does not end the others.
async fn follow_all(copies: &mut [StoreCopy], every: Duration, ending: &CancellationToken) -> Result<()> {
    notice("following: Ctrl-C ends");
    let following = copies.iter_mut().map(|copy| async move {
        let followed = follow(copy, every, ending).await;
        followed.inspect_err(|failure| notice(&format!("not followed any more: {failure}")))
    });
    join_all(following).await.into_iter().collect()
}

/// Connects to both servers, finds the stores, and plans their first passes. Nothing is written. The inner
/// failure is the first reason why nothing must be written.
async fn open(args: &CopyArgs, printer: &Printer) -> Result<(Vec<StoreCopy>, Result<()>)> {
    let from = Server::connect("from", &args.from, args.from_key_file.as_deref()).await?;
    let to = Arc::new(Server::connect("to", &args.to, args.to_key_file.as_deref()).await?);
    if args.versions && !to.is_keepsake {
        return Err(Failure::usage(format!(
            "--versions: {} is no Keepsake, or a proxy hides that it is one",
            to.client.url()
        )));
    }
    let pairs =
        server::pairs(from.stores().await?, &to.stores().await?, from.store.as_deref(), to.store.as_deref())?;
    let options =
        Options { on_conflict: args.on_conflict, deletes: args.delete, copies_history: args.versions };
    let (mut copies, mut begins) = (Vec::new(), Ok(()));
    for pair in pairs {
        let is_itself = pair.to.as_ref().is_some_and(|to| to.id == pair.from.id);
        if is_itself && from.client.url() == to.client.url() {
            return Err(Failure::usage(format!("{} is both the source and the target", pair.from.id)));
        }
        let mut copy = StoreCopy::new(&from, Arc::clone(&to), pair, options, printer.clone());
        begins = begins.and(copy.survey().await?);
        copies.push(copy);
        if begins.is_err() && !args.dry_run {
            return Ok((copies, begins));
        }
    }
    let not_held: usize = copies.iter().map(|copy| copy.receipt.not_held.len()).sum();
    if args.strict && not_held > 0 {
        return Err(Failure::new(format!("nothing was written: the target cannot hold {not_held} things")));
    }
    Ok((copies, begins))
}

/// Copies every change until a signal. Waits for servers that cannot be reached; fails only if
/// another attempt cannot help.
async fn follow(copy: &mut StoreCopy, every: Duration, ending: &CancellationToken) -> Result<()> {
    let mut changes = StoreChanges::default();
    let mut last_problem = LastProblem::none();
    loop {
        let round = async {
            if copy.source.is_keepsake {
                // Opened before the round: a change during the round must cause another one.
                changes.open(&copy.source.store).await?;
            }
            copy.round().await
        };
        let is_over = async {
            ending.cancelled().await;
            tokio::time::sleep(END_LIMIT).await;
        };
        let done = tokio::select! {
            done = round => done,
            () = is_over => Ok(()),
        };
        if ending.is_cancelled() {
            return copy.tell_step();
        }
        copy.tell_step()?;
        let problem = match done {
            Err(failure) if matches!(failure.class(), FailureClass::NotFound | FailureClass::NotAllowed) => {
                return Err(failure);
            }
            done => done.map_err(|failure| failure.to_string()),
        };
        last_problem.note(problem, "copied again");
        let wait = async {
            if last_problem.is_some() {
                return last_problem.wait().await;
            }
            let is_told = changes.are_told();
            tokio::select! {
                () = changes.next(every) => {}
                () = tokio::time::sleep(SAFETY_INTERVAL.max(every)) => {}
            }
            // A round lists the whole store of another server, so a change starts a round only after
            // the interval. Without a stream, the interval has passed.
            if is_told && !copy.to.is_keepsake {
                tokio::time::sleep(every).await;
            }
        };
        tokio::select! {
            () = wait => {}
            () = ending.cancelled() => return Ok(()),
        }
    }
}
