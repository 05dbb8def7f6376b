//! `keepsake verify`

use std::num::NonZeroU16;
use std::path::Path;

use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use keepsake_config::{Failure, IndexUrl, SourceArgs};
use keepsake_core::BlobKey;
use keepsake_engine::{Engine, Problem, Verification};
use keepsake_index::{Counter, Recount};
use serde_json::{Map, Value, json};

use super::open;
use crate::cli::OutputArgs;
use crate::output::{Printer, Text, bytes, counted};

/// The fields of a problem that have a column.
const COLUMNS: [&str; 4] = ["problem", "tenant", "memory_store", "memory_version"];

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
pub(crate) async fn run(args: VerifyArgs) -> Result<(), Failure> {
    refuse_to_make_an_index(&args)?;
    let (engine, backends) = open(args.sources.clone()).await?;
    let verified = verify(&engine, &args).await;
    backends.index.close().await;
    let (found, problems) = verified?;
    let printer = Printer::new(args.output.output);
    if printer.is_table() {
        print_problems(&printer, &problems)?;
    }
    printer.done(&report_of(&found, &problems), || totals_of(&found))?;
    match found.problem_count {
        0 => Ok(()),
        1 => Err(Failure::new("1 problem was found")),
        many => Err(Failure::new(format!("{many} problems were found"))),
    }
}

/// Refuses to create a missing SQLite file: this command changes nothing.
fn refuse_to_make_an_index(args: &VerifyArgs) -> Result<(), Failure> {
    let settings = args.sources.clone().into_sources().merge().settings()?;
    match &settings.index.url {
        IndexUrl::Sqlite { file, .. } if !Path::new(file).exists() => {
            Err(Failure::new(format!("there is no index to verify: {} does not exist", file.display())))
        }
        IndexUrl::Sqlite { .. } | IndexUrl::Postgres(_) => Ok(()),
    }
}

async fn verify(engine: &Engine, args: &VerifyArgs) -> Result<(Verification, Vec<Value>), Failure> {
    // Draws nothing unless stderr is a terminal.
    let bar = ProgressBar::new(0);
    if let Ok(style) = ProgressStyle::with_template("{bar:40} {pos}/{len} blobs, {elapsed_precise}") {
        bar.set_style(style);
    }
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
    let mut problems = Vec::with_capacity(found.problems.len());
    for problem in &found.problems {
        let path = match problem {
            Problem::MissingBlob { key } | Problem::DamagedBlob { key, .. } if args.paths => {
                engine.verifier.path_of_blob(key).await.map_err(failed())?
            }
            _ => None,
        };
        problems.push(described(problem, path, args.paths));
    }
    Ok((found, problems))
}

/// A problem with its ids and numbers; with paths only if requested.
pub(super) fn described(problem: &Problem, path: Option<String>, with_paths: bool) -> Value {
    let mut described = match problem {
        Problem::DamagedIndex { message } => of("damaged_index", &[("message", json!(message))]),
        Problem::NotVerified { message } => of("not_verified", &[("message", json!(message))]),
        Problem::DamagedSearchTerms { tenant_id, store_id, memory_id } => of(
            "damaged_search_terms",
            &[("tenant", json!(tenant_id)), ("memory_store", json!(store_id)), ("memory", json!(memory_id))],
        ),
        Problem::MissingBlob { key } => of_blob("missing_blob", key),
        Problem::DamagedBlob { key, expected_bytes, found_bytes } => {
            let mut described = of_blob("damaged_blob", key);
            described.insert("expected_bytes".to_owned(), json!(expected_bytes));
            described.insert("found_bytes".to_owned(), json!(found_bytes));
            described
        }
        Problem::Counters { place: (tenant_id, store_id), recount: Recount::Store(count) } => {
            let mut described =
                of("store_count", &[("tenant", json!(tenant_id)), ("memory_store", json!(store_id))]);
            let counters = [
                ("memory_count", count.memory_count),
                ("live_bytes", count.live_bytes),
                ("version_count", count.version_count),
                ("version_bytes", count.version_bytes),
            ];
            insert_drifted(&mut described, &counters);
            for (name, number) in [
                ("wrong_directories", count.directories.len() as u64),
                ("lost_heads", count.lost_heads),
                ("overdrawn_bytes", count.overdrawn_bytes),
            ] {
                if number > 0 {
                    described.insert(name.to_owned(), json!(number));
                }
            }
            if with_paths && !count.directories.is_empty() {
                let paths = count.directories.iter().map(|path| json!(path.as_str()));
                described.insert("directories".to_owned(), paths.collect());
            }
            described
        }
        Problem::Counters { place: (tenant_id, _), recount: Recount::Tenant(count) } => {
            let mut described = of("tenant_count", &[("tenant", json!(tenant_id))]);
            let counters = [("store_count", count.store_count), ("granted_bytes", count.granted_bytes)];
            insert_drifted(&mut described, &counters);
            described
        }
    };
    if let Some(path) = path {
        described.insert("path".to_owned(), path.into());
    }
    described.into()
}

fn of(kind: &str, ids: &[(&str, Value)]) -> Map<String, Value> {
    let mut described = Map::new();
    described.insert("problem".to_owned(), kind.into());
    for (name, id) in ids {
        described.insert((*name).to_owned(), id.clone());
    }
    described
}

fn of_blob(kind: &str, key: &BlobKey) -> Map<String, Value> {
    of(
        kind,
        &[
            ("tenant", json!(key.tenant_id)),
            ("memory_store", json!(key.store_id)),
            ("memory_version", json!(key.blob_id)),
        ],
    )
}

/// Wrong counters: the recorded and the actual values.
fn insert_drifted(described: &mut Map<String, Value>, counters: &[(&str, Counter)]) {
    for (name, counter) in counters {
        if counter.has_drifted() {
            let counts = json!({ "recorded": counter.recorded, "counted": counter.counted });
            described.insert((*name).to_owned(), counts);
        }
    }
}

fn report_of(found: &Verification, problems: &[Value]) -> Value {
    json!({
        "tenants": found.tenants,
        "memory_stores": found.stores,
        "memory_versions": found.versions,
        "blobs": found.blobs,
        "bytes": found.bytes,
        "problem_count": found.problem_count,
        "problems": problems,
    })
}

pub(super) fn print_problems(printer: &Printer, problems: &[Value]) -> Result<(), Failure> {
    if problems.is_empty() {
        return Ok(());
    }
    let rows: Vec<_> = problems
        .iter()
        .map(|problem| {
            let mut row = problem.clone();
            row["details"] = details_of(problem).into();
            row
        })
        .collect();
    let columns = [
        ("PROBLEM", "/problem", Text),
        ("TENANT", "/tenant", Text),
        ("MEMORY STORE", "/memory_store", Text),
        ("MEMORY VERSION", "/memory_version", Text),
        ("DETAILS", "/details", Text),
    ];
    printer.items(&rows, &columns, "")
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
    let fields = fields.filter(|(name, _)| !COLUMNS.contains(&name.as_str()));
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
