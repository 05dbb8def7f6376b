//! `keepsake blobs move`

use std::fmt::Write as _;

use indicatif::{ProgressBar, ProgressStyle};
use keepsake_config::{Failure, Settings};
use keepsake_engine::{BlobMove, Clock, Moved, SystemClock};
use keepsake_telemetry::Metrics;
use serde_json::json;

use super::verify::{described, print_problems};
use crate::backends::{self, Backends};
use crate::cli::MoveBlobsArgs;
use crate::output::{Printer, bytes, counted, print};
use crate::{data_dir, logs};

/// Copies all content to another place, compares it with the hashes in the index and
/// then, without `--keep`, removes the originals.
///
/// # Errors
/// [`Failure`] if a server runs, a store fails, or content is missing or damaged; the
/// originals are then kept.
pub(crate) async fn run(args: MoveBlobsArgs) -> Result<(), Failure> {
    let folder = args.sources.data_dir.clone();
    let settings = args.sources.clone().into_sources().merge().settings()?;
    let from = args.from.as_ref().unwrap_or(&settings.blobs.url);
    if *from == args.to {
        return Err(Failure::new(format!("--from and --to are both {from}")));
    }
    logs::start(&settings.log, None);
    if let Some(folder) = &folder {
        data_dir::prepare(folder)?;
    }
    let backends = Backends::open(&settings, Metrics::default()).await?;
    let moved = run_on(&backends, &settings, &args).await;
    backends.index.close().await;
    let moved = moved?;
    report(&args, &moved)
}

async fn run_on(backends: &Backends, settings: &Settings, args: &MoveBlobsArgs) -> Result<Moved, Failure> {
    let open = async |url| backends::open_blobs_at(url, settings, &Metrics::default()).await;
    let from = open(args.from.as_ref().unwrap_or(&settings.blobs.url)).await?;
    let job = BlobMove::new(backends.index.clone(), from, open(&args.to).await?);
    let failed = || Failure::of("the content was not moved; run the command again to continue");
    if !args.keep && job.is_served(SystemClock.now()).await.map_err(failed())? {
        return Err(Failure::new(
            "a server was running within the last 90 seconds: stop the servers first, or copy with --keep",
        ));
    }
    // Draws nothing unless stderr is a terminal.
    let bar = ProgressBar::new_spinner();
    if let Ok(style) = ProgressStyle::with_template("{spinner} {msg}, {elapsed_precise}") {
        bar.set_style(style);
    }
    let show = |moved: &Moved| {
        bar.set_message(format!(
            "{} copied, {} there before, {} originals removed",
            moved.copied, moved.present, moved.removed
        ));
    };
    let mut moved = Moved::default();
    let at_once = usize::from(args.concurrency.get());
    job.copy(at_once, &mut moved, show).await.map_err(failed())?;
    if moved.problems.is_empty() && !args.keep {
        job.remove_originals(&mut moved, show).await.map_err(failed())?;
    }
    bar.finish_and_clear();
    Ok(moved)
}

fn report(args: &MoveBlobsArgs, moved: &Moved) -> Result<(), Failure> {
    let problems: Vec<_> = moved
        .problems
        .iter()
        .map(|problem| described(problem, None, false))
        .collect();
    let printer = Printer::new(args.output.output);
    if printer.is_table() {
        print_problems(&printer, &problems)?;
    }
    let report = json!({
        "copied": moved.copied,
        "copied_bytes": moved.copied_bytes,
        "present": moved.present,
        "removed": moved.removed,
        "foreign": moved.foreign,
        "problems": problems,
    });
    printer.done(&report, || sentences_of(moved))?;
    match problems.len() {
        0 if args.keep || !printer.is_table() => Ok(()),
        0 => print(&format!(
            "set blobs.url = \"{}\" before you start a server\n",
            args.to
        )),
        many => Err(Failure::new(format!(
            "{many} contents are missing or damaged, and the originals were kept"
        ))),
    }
}

fn sentences_of(moved: &Moved) -> String {
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
