//! `keepsake verify`

use std::num::NonZeroU16;

use clap::Args;
use indicatif::ProgressBar;
use keepsake_config::{Failure, SourceArgs, cli::Result};
use keepsake_core::DirPath;
use keepsake_engine::{Engine, Problem, Verification};
use serde_json::{Value, json};

use super::target::CommandDatabase;
use crate::cli::OutputArgs;
use crate::output::{Column, Printer, Text, bytes, counted, items_of, progress_bar};

const COLUMNS: [Column; 5] = [
    ("PROBLEM", "/problem", Text),
    ("TENANT", "/tenant", Text),
    ("MEMORY STORE", "/memory_store", Text),
    ("MEMORY VERSION", "/memory_version", Text),
    ("DETAILS", "/details", Text),
];

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  keepsake verify --config keepsake.toml
  keepsake verify --data-dir ~/.local/share/keepsake --paths -o json")]
pub(crate) struct VerifyArgs {
    #[command(flatten)]
    sources: SourceArgs,
    /// Number of blobs read at a time
    #[arg(long, value_name = "N", default_value = "16")]
    concurrency: NonZeroU16,
    /// Also prints the paths of the memories concerned
    #[arg(long)]
    paths: bool,
    #[command(flatten)]
    output: OutputArgs,
}

/// Reads every row, checks every blob's hash and recounts the totals; changes nothing.
/// Prints the problems and then fails if there are any, or if the check could not be
/// completed.
pub(crate) async fn run(args: VerifyArgs) -> Result<()> {
    let database = CommandDatabase::find(args.sources.clone())?;
    // This command changes nothing: it makes no database.
    database.require_file()?;
    let (engine, backends) = database.open().await?;
    let verified = verify(&engine, &args).await;
    backends.index.close().await;
    let (found, report) = verified?;
    let printer = Printer::new(args.output.output);
    if printer.is_table() {
        print_problems(&printer, &report)?;
    }
    printer.done(&report, || totals_of(&found))?;
    match found.problem_count {
        0 => Ok(()),
        1 => Err(Failure::new("1 problem was found")),
        many => Err(Failure::new(format!("{many} problems were found"))),
    }
}

/// The counts and problems, also as JSON; with paths only if requested.
async fn verify(engine: &Engine, args: &VerifyArgs) -> Result<(Verification, Value)> {
    let bar = progress_bar(ProgressBar::new(0), "{bar:40} {pos}/{len} blobs, {elapsed_precise}");
    let found = engine
        .verifier
        .run(usize::from(args.concurrency.get()), |progress| {
            bar.set_length(progress.versions);
            bar.set_position(progress.blobs);
        })
        .await;
    bar.finish_and_clear();
    let failed = || Failure::of("the stores cannot be verified");
    let found = found.map_err(failed())?;
    let mut report = json!(found);
    for (position, problem) in found.problems.iter().enumerate().filter(|_| args.paths) {
        let shown = &mut report["problems"][position];
        match problem {
            Problem::MissingBlob { key } | Problem::DamagedBlob { key, .. } => {
                if let Some(path) = engine.verifier.path_of_blob(key).await.map_err(failed())? {
                    shown["path"] = path.into();
                }
            }
            Problem::StoreCount { count, .. } if !count.directories.is_empty() => {
                shown["directories"] = count.directories.iter().map(DirPath::as_str).collect();
            }
            _ => {}
        }
    }
    Ok((found, report))
}

pub(super) fn print_problems(printer: &Printer, report: &Value) -> Result<()> {
    let mut problems = items_of(report, "problems").to_vec();
    if problems.is_empty() {
        return Ok(());
    }
    for problem in &mut problems {
        problem["details"] = details_of(problem).into();
    }
    printer.items(&problems, &COLUMNS, "")
}

fn totals_of(found: &Verification) -> String {
    let problems = match found.problem_count {
        0 => "all is well".to_owned(),
        many => counted(many, "problem"),
    };
    format!(
        "{} of {}, {}, {}, {}: {problems}\n",
        counted(found.blobs, "blob"),
        bytes(found.bytes),
        counted(found.versions, "version"),
        counted(found.stores, "memory store"),
        counted(found.tenants, "tenant"),
    )
}

/// The fields of a problem that have no column.
fn details_of(problem: &Value) -> String {
    let fields = problem.as_object().into_iter().flatten();
    let has_column =
        |name: &str| COLUMNS.iter().any(|(_, pointer, _)| pointer.strip_prefix('/') == Some(name));
    let fields = fields.filter(|(name, _)| !has_column(name));
    let shown = fields.map(|(name, value)| match value {
        Value::Object(counter) => {
            let number = |of: &str| counter.get(of).cloned().unwrap_or_default();
            format!("{name}={} (counted {})", number("recorded"), number("counted"))
        }
        Value::String(value) => format!("{name}={value}"),
        value => format!("{name}={value}"),
    });
    shown.collect::<Vec<_>>().join(", ")
}
