//! `keepsake blobs move`

use std::fmt::Write as _;
use std::num::NonZeroU16;
use std::sync::Arc;

use clap::{Args, Subcommand};
use indicatif::ProgressBar;
use keepsake_blobs::BlobUrl;
use keepsake_config::{Failure, SourceArgs, cli::Result};
use keepsake_engine::{BlobMove, MoveError, MoveReport, SystemClock};
use keepsake_telemetry::Metrics;
use serde_json::json;

use super::verify::print_problems;
use crate::backends::{self, Backends};
use crate::cli::OutputArgs;
use crate::output::{Printer, bytes, counted, print, progress_bar};

#[derive(Debug, Subcommand)]
pub(crate) enum BlobCommand {
    /// Moves content between index and object store; run it again to continue
    Move(MoveBlobsArgs),
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  keepsake blobs move --config keepsake.toml --from index: --to s3://data --keep
  keepsake blobs move --config keepsake.toml --from s3://data --to index:")]
pub(crate) struct MoveBlobsArgs {
    #[command(flatten)]
    sources: SourceArgs,
    #[arg(
        long,
        value_name = "URL",
        help = "The current storage of content: index: or s3://bucket/prefix [default: blobs.url]"
    )]
    from: Option<BlobUrl>,
    #[arg(long, value_name = "URL", help = "The new storage of content: index: or s3://bucket/prefix")]
    to: BlobUrl,
    /// Keeps the originals; only then may servers run meanwhile
    #[arg(long)]
    keep: bool,
    /// Number of contents copied at a time
    #[arg(long, value_name = "N", default_value = "16")]
    concurrency: NonZeroU16,
    #[command(flatten)]
    output: OutputArgs,
}

/// Copies all content to another place, compares it with the hashes in the index and
/// then, without `--keep`, removes the originals. Refuses to run beside a server. A
/// failure says whether originals were removed.
pub(crate) async fn run(args: MoveBlobsArgs) -> Result<()> {
    let folder = args.sources.data_dir.clone();
    let settings = args.sources.clone().into_sources().merge().settings()?;
    let from = args.from.as_ref().unwrap_or(&settings.blobs.url);
    if *from == args.to {
        return Err(Failure::new(format!("--from and --to are both {from}")));
    }
    let backends = Backends::open_for_command(&settings, folder.as_deref()).await?;
    let moved = async {
        let open = async |url| backends::open_blobs(url, &settings, &Metrics::default()).await;
        let from = open(from).await?;
        let to = open(&args.to).await?;
        let job = BlobMove::new(backends.index.clone(), from, to, Arc::new(SystemClock));
        let bar = progress_bar(ProgressBar::new_spinner(), "{spinner} {msg}, {elapsed_precise}");
        let show = |moved: &MoveReport| {
            bar.set_message(format!(
                "{} copied, {} there before, {} originals removed",
                moved.copied, moved.present, moved.removed
            ));
        };
        let mut moved = MoveReport::default();
        let at_once = usize::from(args.concurrency.get());
        let outcome = if args.keep {
            job.copy(at_once, &mut moved, show).await
        } else {
            job.run(at_once, &mut moved, show).await
        };
        bar.finish_and_clear();
        match outcome {
            Ok(()) => Ok(moved),
            Err(error) => Err(unfinished(&moved, &error)),
        }
    };
    let moved = moved.await;
    backends.index.close().await;
    let moved = moved?;
    report(&args, &moved)
}

/// The failure of a move that stopped before its end.
fn unfinished(moved: &MoveReport, error: &MoveError) -> Failure {
    let next = match error {
        MoveError::Served => "stop the servers first, or copy with --keep",
        MoveError::ServerStarted | MoveError::ContentWritten => {
            "stop the servers, and run the command again before you start them"
        }
        MoveError::AlreadyMoving | MoveError::Failed(_) if moved.has_begun_removal => {
            "run the command again before you start a server"
        }
        MoveError::AlreadyMoving | MoveError::Failed(_) => "run the command again to continue",
    };
    let originals = if moved.has_begun_removal {
        let removed = counted(moved.removed, "original");
        // The answer to the last removal may have been lost.
        format!("{removed} removed, perhaps one more; the others were kept")
    } else {
        "all originals were kept".to_owned()
    };
    Failure::new(format!("{error}. The move is not finished; {originals}: {next}"))
}

fn report(args: &MoveBlobsArgs, moved: &MoveReport) -> Result<()> {
    let (printer, report) = (Printer::new(args.output.output), json!(moved));
    if printer.is_table() {
        print_problems(&printer, &report)?;
    }
    printer.done(&report, || sentences_of(moved))?;
    match moved.problems.len() {
        0 if args.keep || !printer.is_table() => Ok(()),
        0 => print(&format!("set blobs.url = \"{}\" before you start a server\n", args.to)),
        many => {
            Err(Failure::new(format!("{many} contents are missing or damaged, and the originals were kept")))
        }
    }
}

fn sentences_of(moved: &MoveReport) -> String {
    let mut text = format!(
        "{} of {} copied, {} there before, {} removed\n",
        counted(moved.copied, "content"),
        bytes(moved.copied_bytes),
        moved.present,
        counted(moved.removed, "original"),
    );
    if moved.foreign > 0 {
        let foreign = counted(moved.foreign, "object");
        let _ = writeln!(text, "{foreign} of other installations left unchanged");
    }
    text
}

#[cfg(test)]
mod tests {
    use keepsake_engine::EngineError;

    use super::*;

    #[test]
    fn unfinished_move_says_what_became_of_the_originals() {
        let refused = unfinished(&MoveReport::default(), &MoveError::Served).to_string();
        let kept = "all originals were kept: stop the servers first, or copy with --keep";
        assert!(refused.ends_with(kept), "{refused}");
        let copying = MoveReport { copied: 7, ..MoveReport::default() };
        let failed = MoveError::Failed(EngineError::Internal("a store failed"));
        let text = unfinished(&copying, &failed).to_string();
        assert!(text.ends_with("all originals were kept: run the command again to continue"), "{text}");
        let removing = MoveReport { removed: 3, has_begun_removal: true, ..copying };
        for error in [failed, MoveError::ServerStarted, MoveError::ContentWritten] {
            let text = unfinished(&removing, &error).to_string();
            assert!(text.starts_with(&format!("{error}. The move is not finished; ")), "{text}");
            assert!(text.contains("3 originals removed, perhaps one more; the others were kept"), "{text}");
            assert!(text.contains("run the command again before you start"), "{text}");
        }
    }
}
