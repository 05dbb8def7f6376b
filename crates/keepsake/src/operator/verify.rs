//! `keepsake verify`

use std::fmt::Write as _;
use std::path::Path;

use indicatif::{ProgressBar, ProgressStyle};
use keepsake_config::{Failure, IndexUrl};
use keepsake_core::BlobKey;
use keepsake_engine::{Engine, Problem, Verification};
use keepsake_index::Counter;
use serde_json::{Map, Value, json};

use super::{open, print, print_json};
use crate::backends::Backends;
use crate::cli::VerifyArgs;

/// The fields that come first on a problem's line.
const FIRST: [&str; 4] = ["problem", "tenant", "memory_store", "memory_version"];

/// Checks every blob's hash and recounts the totals; changes nothing.
///
/// # Errors
/// [`Failure`] if problems were found, which are printed first, or if the check
/// could not be completed.
pub(crate) async fn run(args: VerifyArgs) -> Result<(), Failure> {
    refuse_to_make_an_index(&args)?;
    let (engine, backends) = open(args.sources.clone()).await?;
    let verified = verify(&engine, &args).await;
    close(&backends).await;
    let (found, problems) = verified?;
    let report = report_of(&found, &problems);
    if args.json {
        print_json(&report)?;
    } else {
        print(&text_of(&report))?;
    }
    match found.problem_count {
        0 => Ok(()),
        1 => Err(Failure::new("1 problem was found")),
        many => Err(Failure::new(format!("{many} problems were found"))),
    }
}

async fn close(backends: &Backends) {
    backends.index.close().await;
}

/// Refuses to create a missing SQLite file: this command changes nothing.
fn refuse_to_make_an_index(args: &VerifyArgs) -> Result<(), Failure> {
    let settings = args.sources.clone().into_sources().merge().settings()?;
    match &settings.index.url {
        IndexUrl::Sqlite { file, .. } if !Path::new(file).exists() => Err(Failure::new(format!(
            "there is no index to verify: {} does not exist",
            file.display()
        ))),
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
        .verify(usize::from(args.concurrency.get()), |progress| {
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
                engine.path_of_blob(key).await.map_err(failed())?
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
        Problem::MissingBlob { key } => of_blob("missing_blob", key),
        Problem::DamagedBlob {
            key,
            expected_bytes,
            found_bytes,
        } => {
            let mut described = of_blob("damaged_blob", key);
            described.insert("expected_bytes".to_owned(), json!(expected_bytes));
            described.insert("found_bytes".to_owned(), json!(found_bytes));
            described
        }
        Problem::Store {
            tenant_id,
            store_id,
            count,
        } => {
            let mut described = of(
                "store_count",
                &[("tenant", json!(tenant_id)), ("memory_store", json!(store_id))],
            );
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
            described
        }
        Problem::Tenant { tenant_id, count } => {
            let mut described = of("tenant_count", &[("tenant", json!(tenant_id))]);
            let counters = [
                ("store_count", count.store_count),
                ("granted_bytes", count.granted_bytes),
            ];
            insert_drifted(&mut described, &counters);
            described
        }
    };
    if let Some(path) = path {
        described.insert("path".to_owned(), path.into());
    }
    if with_paths && !problem.directories().is_empty() {
        let paths = problem.directories().iter().map(|path| json!(path.as_str()));
        described.insert("directories".to_owned(), paths.collect());
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

/// The report as text: one line for each problem, then the totals.
fn text_of(report: &Value) -> String {
    let mut text = String::new();
    for problem in report["problems"].as_array().into_iter().flatten() {
        text.push_str(&line_of(problem));
    }
    let _ = writeln!(
        text,
        "{} blobs of {} bytes, {} versions, {} memory stores, {} tenants: {}",
        report["blobs"],
        report["bytes"],
        report["memory_versions"],
        report["memory_stores"],
        report["tenants"],
        match report["problem_count"].as_u64() {
            Some(0) => "all is well".to_owned(),
            _ => format!("{} wrong", report["problem_count"]),
        }
    );
    text
}

/// A problem as one line.
pub(super) fn line_of(problem: &Value) -> String {
    let rest = problem.as_object().into_iter().flatten();
    let rest = rest.filter(|(name, _)| !FIRST.contains(&name.as_str()));
    let first = FIRST
        .into_iter()
        .filter_map(|name| Some((name, problem.get(name)?)));
    let fields = first.chain(rest.map(|(name, value)| (name.as_str(), value)));
    let shown: Vec<_> = fields
        .map(|(name, value)| match value {
            Value::String(value) if name == "problem" => value.clone(),
            Value::String(value) => format!("{name}={value}"),
            Value::Object(counter) => {
                let number = |of: &str| counter.get(of).cloned().unwrap_or_default();
                format!("{name}={} counted={}", number("recorded"), number("counted"))
            }
            value => format!("{name}={value}"),
        })
        .collect();
    format!("{}\n", shown.join(" "))
}

#[cfg(test)]
mod tests {
    use keepsake_core::{StoreId, TenantId, VersionId};
    use uuid::Uuid;

    use super::*;

    #[test]
    fn problems_are_reported_with_ids_and_numbers() {
        let key = BlobKey {
            tenant_id: TenantId::from_uuid(Uuid::from_u128(1)),
            store_id: StoreId::from_uuid(Uuid::from_u128(2)),
            blob_id: VersionId::from_uuid(Uuid::from_u128(3)),
        };
        let found = Verification {
            problem_count: 1,
            ..Verification::default()
        };
        let problem = described(&Problem::MissingBlob { key }, None, false);
        let text = text_of(&report_of(&found, &[problem]));
        let expected = format!(
            "missing_blob tenant={} memory_store={} memory_version={}\n",
            key.tenant_id, key.store_id, key.blob_id
        );
        assert!(text.starts_with(&expected), "{text}");
        assert!(text.ends_with("0 tenants: 1 wrong\n"), "{text}");
    }
}
