//! `keepsake config check`

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use clap::{Args, Subcommand};
use keepsake_blobs::BlobStore;
use keepsake_config::{Failure, MergedConfig, Settings, SourceArgs, cli::Result};
use keepsake_core::{BlobKey, StoreId, TenantId, VersionId};
use keepsake_embeddings::{Embedder, ModelFolder};
use keepsake_engine::{Clock, IdSource, RandomIds, SystemClock};
use keepsake_telemetry::Metrics;
use serde_json::{Value, json};
use uuid::Uuid;

use crate::backends;
use crate::cli::OutputArgs;
use crate::output::{Column, Printer, Text, print};

/// The text of the probe object, and the one whose vector an endpoint computes.
const PROBE_TEXT: &str = "keepsake config check --connect";
const PROBE: &[u8] = PROBE_TEXT.as_bytes();
const COLUMNS: [Column; 4] =
    [("KEY", "/key", Text), ("STEP", "/step", Text), ("RESULT", "/result", Text), ("ERROR", "/error", Text)];
const NO_MODEL: &str =
    "no model is installed, so search goes by words only; `keepsake model install` installs it";
/// A server may load its model first.
const EMBEDDING_LIMIT: Duration = Duration::from_secs(30);

#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Prints the merged configuration with secrets hidden, and all problems
    Check(CheckArgs),
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  keepsake config check --config keepsake.toml
  keepsake config check --config keepsake.toml --connect -o json")]
pub(crate) struct CheckArgs {
    #[command(flatten)]
    sources: SourceArgs,
    /// Connects to the database and the blob store; writes, reads, lists and deletes a probe object
    #[arg(long)]
    connect: bool,
    #[command(flatten)]
    output: OutputArgs,
}

/// Prints the merged configuration and its problems; with `--connect`, also tests
/// both stores.
pub(crate) async fn run(args: CheckArgs) -> Result<()> {
    let printer = Printer::new(args.output.output);
    let merged = args.sources.into_sources().merge();
    if printer.is_table() {
        print(&merged.to_toml())?;
    }
    let settings = merged.settings();
    let mut report = Report::default();
    if let (true, Ok(settings)) = (args.connect, &settings) {
        check(settings, &mut report).await;
    }
    if !printer.is_table() {
        printer.done(&document(&merged, &report), String::new)?;
    } else if !report.steps.is_empty() {
        print("\n")?;
        printer.items(&report.steps, &COLUMNS, "")?;
    }
    settings?;
    match report.failed {
        0 => Ok(()),
        failed => Err(Failure::new(format!("{failed} of the steps above failed"))),
    }
}

/// The configuration and the steps, for programs.
fn document(merged: &MergedConfig, report: &Report) -> Value {
    let keys = merged.values().map(|(key, value, origin)| {
        let parsed = toml::from_str::<toml::Table>(&format!("value = {value}"));
        let value = parsed.ok().and_then(|table| serde_json::to_value(table.get("value")).ok());
        json!({"key": key, "value": value, "origin": origin})
    });
    json!({"configuration": keys.collect::<Vec<_>>(), "steps": report.steps})
}

/// Connects to the index, tries the master key on its secrets and, if there is an object store,
/// tries the operations of that. Asks an endpoint of embeddings for a vector, or reads the model. Reads the discovery documents of
/// issuers at whose page people sign in.
/// Independent steps are tried also after a failure.
async fn check(settings: &Settings, report: &mut Report) {
    let index = backends::probe_index(&settings.index).await;
    report.step("index.url", "connect", &index);
    if let Some(secrets) = index.ok().filter(|secrets| !secrets.is_empty()) {
        report.step("secrets.master_key", "open", &backends::open_secrets(settings, &secrets));
    }
    match backends::open_blobs(&settings.blobs.url, settings, &Metrics::default()).await {
        Ok(Some(blobs)) => use_blobs(&blobs, report).await,
        Ok(None) => {}
        Err(failure) => {
            report.step("blobs.url", "connect", &Err::<(), _>(failure));
        }
    }
    match backends::embedder(&settings.search) {
        Ok(Embedder::Endpoint(endpoint)) => {
            let embedded = endpoint.embed_query(PROBE_TEXT, EMBEDDING_LIMIT).await;
            let embedded = embedded.and_then(|answer| answer.vector());
            report.step("search.embeddings.url", "embed", &embedded);
        }
        Ok(Embedder::Embedded(_)) => read_model(&settings.search.model_path, report),
        Ok(Embedder::Off) | Err(_) => {}
    }
    for (position, found) in settings.engine.issuers.check_discovery(SystemClock.now()).await {
        let key = format!("auth.issuers[{position}].console");
        report.step(&key, "discovery", &found);
    }
}

/// Without a model, a server works.
fn read_model(folder: &Path, report: &mut Report) {
    const STEP: [&str; 2] = ["search.model_path", "read"];
    match ModelFolder::new(folder).status() {
        Ok(None) => report.skipped(STEP, Some(NO_MODEL)),
        status => {
            report.step(STEP[0], STEP[1], &status);
        }
    }
}

/// Writes, reads, lists and deletes a probe object.
async fn use_blobs(blobs: &Arc<dyn BlobStore>, report: &mut Report) {
    const KEY: &str = "blobs.url";
    // No tenant and no store has the nil id, and the object is deleted at the end.
    let key = BlobKey {
        tenant_id: TenantId::from_uuid(Uuid::nil()),
        store_id: StoreId::from_uuid(Uuid::nil()),
        blob_id: VersionId::from_uuid(RandomIds.uuid(SystemClock.now())),
    };
    if !report.step(KEY, "connect", &blobs.check().await) {
        for step in ["write", "read", "list", "delete"] {
            report.skipped([KEY, step], None);
        }
        return;
    }
    let is_written = report.step(KEY, "write", &blobs.put(&key, Bytes::from_static(PROBE)).await);
    let read = match blobs.get(&key, PROBE.len() as u64).await {
        Ok(Some(bytes)) if bytes == PROBE => Ok(()),
        Ok(Some(_)) => Err("the probe object has other content than was written".to_owned()),
        Ok(None) => Err("the probe object was not found".to_owned()),
        Err(error) => Err(error.to_string()),
    };
    let listed = match blobs.list(Some(key.tenant_id), None, usize::MAX).await {
        Ok(listed) if listed.iter().any(|blob| blob.key == key) => Ok(()),
        Ok(_) => Err("the probe object is not in the listing".to_owned()),
        Err(error) => Err(error.to_string()),
    };
    if is_written {
        report.step(KEY, "read", &read);
        report.step(KEY, "list", &listed);
    } else {
        report.skipped([KEY, "read"], None);
        report.skipped([KEY, "list"], None);
    }
    // The delete also follows a failed write, which may have stored the object.
    report.step(KEY, "delete", &blobs.erase(&key).await);
}

#[derive(Debug, Default)]
struct Report {
    steps: Vec<Value>,
    failed: usize,
}

impl Report {
    /// Notes the result of a step; returns whether it succeeded.
    fn step<T, E: std::fmt::Display>(&mut self, key: &str, step: &str, outcome: &Result<T, E>) -> bool {
        let (result, error) = match outcome {
            Ok(_) => ("ok", None),
            Err(error) => ("failed", Some(error.to_string())),
        };
        self.failed += usize::from(error.is_some());
        self.steps.push(json!({"key": key, "step": step, "result": result, "error": error}));
        outcome.is_ok()
    }

    fn skipped(&mut self, [key, step]: [&str; 2], why: Option<&str>) {
        self.steps.push(json!({"key": key, "step": step, "result": "skipped", "error": why}));
    }
}
