//! `keepsake import`

use std::collections::HashMap;

use indicatif::HumanCount;
use keepsake_archive::plan::{Destination, OnConflict, decide};
use keepsake_archive::report::{Class, Outcome, Report};
use keepsake_archive::verified::Prefix;
use keepsake_config::{Failure, cli::Result};
use keepsake_core::MemoryPath;
use keepsake_engine::{Clock, SystemClock};

use super::room::Room;
use super::source::Source;
use super::{ImportArgs, export, past, report, upload};
use crate::output::{Printer, counted, notice, printable};
use crate::people::{agent_path, api_path, open_store};
use crate::store_api::StoreApi;

/// Writes the memories of a source into a memory store, and prints the outcomes. With
/// `--on-conflict fail` nothing is written if a memory has other content.
pub(crate) async fn run(args: ImportArgs) -> Result<()> {
    let prefix = Prefix::new(&api_path(&args.prefix)?);
    let printer = Printer::new(args.store.connection.output.output);
    let store = open_store(&args.store).await?.for_backup();
    let (source, found) = match (&args.source, &args.from.from_url) {
        (Some(path), _) => Source::open(path, &prefix)?,
        (None, Some(url)) if args.versions => Source::receive(url, &args.from, &prefix).await?,
        (None, Some(url)) => Source::connect(url, &args.from, &prefix).await?,
        (None, None) => return Err(Failure::usage("no source: SOURCE or --from-url is required")),
    };
    // What the exporting server had lost.
    for reason in &found.left_out {
        notice(&format!("not in the archive: {}", printable(reason)));
    }
    if args.versions {
        let is_whole = if args.source.is_none() { export::require_whole(&found.left_out) } else { Ok(()) };
        let mut outcomes = past::import_into(&store, &source, found, args.dry_run).await?;
        report::print(&mut outcomes, &printer, args.dry_run)?;
        report::result(&outcomes)?;
        return is_whole;
    }
    if !found.versions.is_empty() {
        notice(&format!(
            "the archive has {} versions: --versions imports them, into an empty memory store",
            HumanCount(found.versions.len() as u64)
        ));
    }
    let mut outcomes = found.report;
    let (destination, sizes) = read_destination(&store, &mut outcomes).await?;
    let on_conflict = args.on_conflict;
    let mut steps = decide(found.items, &destination, on_conflict, SystemClock.now(), &mut outcomes);
    drop(destination);
    let conflicts = outcomes.conflicts().count();
    if on_conflict == OnConflict::Fail && conflicts > 0 {
        let first = outcomes.conflicts().next().map(agent_path).unwrap_or_default();
        report::print(&mut outcomes.only_refusals(), &printer, args.dry_run)?;
        return Err(Failure::conflict(format!(
            "nothing was imported: the memory store has something else at {}, the first is {first}; \
             --on-conflict skip or replace imports the rest",
            counted(conflicts as u64, "path")
        )));
    }
    if let Some(room) = Room::of(&store).await? {
        steps = room.refuse_large(steps, &mut outcomes);
        room.check_steps(&steps, &sizes).await?;
    }
    if args.dry_run {
        outcomes.assume(&steps);
    } else {
        report::tell_refused(&outcomes);
        upload::run(&store, &source, &steps, &mut outcomes).await?;
    }
    report::print(&mut outcomes, &printer, args.dry_run)?;
    report::result(&outcomes)
}

/// Lists the memories of the destination. Reports the memories whose path is invalid:
/// nothing that is imported can conflict with them. The sizes of the memories are by their ids.
async fn read_destination(
    store: &StoreApi,
    report: &mut Report,
) -> Result<(Destination, HashMap<String, u64>)> {
    let (mut destination, mut sizes) = (Destination::default(), HashMap::new());
    let (listed, _) = store.list().await?;
    for listed in listed.into_values() {
        match MemoryPath::parse(&listed.path) {
            Ok(path) => {
                destination.add(&path, listed.as_destination());
                sizes.insert(listed.id, listed.content_size_bytes);
            }
            Err(error) => {
                let reason = format!("the memory store lists it, but the path {error}");
                report.add(listed.path, Outcome::refused(Class::Rule, reason));
            }
        }
    }
    Ok((destination, sizes))
}
