//! The writes of an import or a copy: in batches, or one by one on a server of another maker.

use std::collections::VecDeque;

use futures::stream::{FuturesUnordered, StreamExt, TryStreamExt, iter};
use keepsake_archive::plan::{ImportStep, SourceMemory, batches};
use keepsake_archive::report::{Class, Outcome, Report};
use keepsake_client::{ClientError, ErrorObject};
use keepsake_config::{Failure, cli::Result};
use keepsake_core::ContentHash;
use reqwest::Method;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::report::Progress;
use super::source::Source;
use crate::failures::failure_of;
use crate::store_api::{ReadMemory, StoreApi};

/// Batches that are read or sent at the same time.
const MAX_BATCHES_IN_FLIGHT: usize = 4;
/// Contents of a batch that are read from another store at the same time.
const MAX_READS_IN_FLIGHT: usize = 8;
/// Memories that are written one by one at the same time.
const MAX_SINGLE_WRITES_IN_FLIGHT: usize = 8;
/// Types of errors that say that the store has something else at the path.
const CONFLICTS: [&str; 3] =
    ["conflict_error", "memory_path_conflict_error", "memory_precondition_failed_error"];

#[derive(Deserialize)]
struct Answer {
    data: Vec<OperationResult>,
}

#[derive(Deserialize)]
struct OperationResult {
    status: String,
    error: Option<ErrorObject>,
}

/// Carries out the steps, and reports each one. Steps before a failure are done.
pub(super) async fn run(
    store: &StoreApi,
    source: &Source,
    steps: &[ImportStep],
    report: &mut Report,
) -> Result<()> {
    let (mut progress, mut done) = (Progress::new("imported", steps.len() as u64), 0);
    let written = write(store, true, source, steps, |written| {
        done += 1;
        progress.add(1);
        let lost = || Outcome::refused(Class::Rule, "was deleted during the import");
        report.add_step(written.step, written.outcome.unwrap_or_else(lost));
    });
    let written = written.await;
    written.map_err(|failure| {
        let all = steps.len();
        failure.within(format!(
            "the import was stopped after {done} of {all} files, the same command continues it"
        ))
    })
}

pub(crate) struct WrittenStep<'a> {
    pub(crate) step: &'a ImportStep,
    /// The hash of the content that was sent, which may be newer than that of the plan.
    pub(crate) sha256: Option<ContentHash>,
    /// `None`: the memory was deleted in the source, or it is unknown whether the write was applied.
    pub(crate) outcome: Option<Outcome>,
}

/// Carries out the steps, and passes each one on. Steps before a failure are done. Only a Keepsake takes
/// batches.
pub(crate) async fn write<'a>(
    store: &'a StoreApi,
    takes_batches: bool,
    source: &'a Source,
    steps: &'a [ImportStep],
    mut each: impl FnMut(WrittenStep<'a>),
) -> Result<()> {
    let (mut waiting, max_in_flight): (VecDeque<&[ImportStep]>, _) = if takes_batches {
        (batches(steps).collect(), MAX_BATCHES_IN_FLIGHT)
    } else {
        (steps.chunks(1).collect(), MAX_SINGLE_WRITES_IN_FLIGHT)
    };
    let mut in_flight = FuturesUnordered::new();
    loop {
        while in_flight.len() < max_in_flight
            && let Some(batch) = waiting.pop_front()
        {
            in_flight.push(send(store, takes_batches, source, batch));
        }
        let Some(sent) = in_flight.next().await else {
            return Ok(());
        };
        match sent? {
            SentBatch::Done(written) => written.into_iter().for_each(&mut each),
            SentBatch::TooLarge(batch) => {
                let (first, second) = batch.split_at(batch.len() / 2);
                waiting.push_front(second);
                waiting.push_front(first);
            }
        }
    }
}

enum SentBatch<'a> {
    Done(Vec<WrittenStep<'a>>),
    /// The server refused the call as a whole; it may accept a part of it.
    TooLarge(&'a [ImportStep]),
}

async fn send<'a>(
    store: &StoreApi,
    takes_batches: bool,
    source: &Source,
    steps: &'a [ImportStep],
) -> Result<SentBatch<'a>> {
    let contents = iter(steps).map(|step| source.content(&step.item));
    let contents: Vec<_> = contents.buffered(MAX_READS_IN_FLIGHT).try_collect().await?;
    let mut written = Vec::with_capacity(steps.len());
    let (mut sent, mut operations) = (Vec::new(), Vec::new());
    for (step, content) in steps.iter().zip(contents) {
        match content {
            ReadMemory::Memory(content) => {
                sent.push((step, Some(ContentHash::of(content.as_bytes()))));
                operations.push(operation(step, content));
            }
            ReadMemory::Deleted => written.push(WrittenStep { step, sha256: None, outcome: None }),
            ReadMemory::Unusable(reason) => {
                let outcome = Some(Outcome::refused(Class::Rule, reason));
                written.push(WrittenStep { step, sha256: None, outcome });
            }
        }
    }
    if sent.is_empty() {
        return Ok(SentBatch::Done(written));
    }
    if !takes_batches {
        for ((step, sha256), operation) in sent.into_iter().zip(operations) {
            let outcome = write_one(store, step, operation).await?;
            written.push(WrittenStep { step, sha256, outcome });
        }
        return Ok(SentBatch::Done(written));
    }
    let body = json!({"atomic": false, "operations": operations});
    let path = store.path(&["memories", "batch"]);
    let without_memories = [("memories", Some("false"))];
    match store.client.send::<Answer>(Method::POST, &path, &without_memories, Some(&body)).await {
        Ok(answer) if answer.data.len() == sent.len() => {
            let results = answer.data.into_iter().map(|result| Some(outcome_of(result)));
            let results = sent.into_iter().zip(results);
            written.extend(results.map(|((step, sha256), outcome)| WrittenStep { step, sha256, outcome }));
            Ok(SentBatch::Done(written))
        }
        Ok(answer) => Err(Failure::new(format!(
            "the server answered {} results to {} operations",
            answer.data.len(),
            sent.len()
        ))),
        Err(error) if is_about_an_operation(&error) => match sent.as_slice() {
            [(step, sha256)] => {
                let outcome = Some(Outcome::refused(Class::Rule, error.to_string()));
                written.push(WrittenStep { step, sha256: *sha256, outcome });
                Ok(SentBatch::Done(written))
            }
            _ => Ok(SentBatch::TooLarge(steps)),
        },
        Err(error) => Err(failure_of("a batch was not written")(error)),
    }
}

/// Sends an operation of a batch as a separate call, with the fields of the official API. `None`:
/// it is unknown whether the write was applied.
async fn write_one(store: &StoreApi, step: &ImportStep, mut operation: Value) -> Result<Option<Outcome>> {
    if let Some(fields) = operation.as_object_mut() {
        fields.retain(|name, _| ["path", "content", "precondition"].contains(&name.as_str()));
    }
    let (path, done) = match &step.replaces {
        None => (vec!["memories"], Outcome::Created),
        Some(existing) => (vec!["memories", &existing.id], Outcome::Replaced),
    };
    let written = store.post::<Value>(&path, &operation).await;
    match written {
        Ok(_) => Ok(Some(done)),
        Err(error) if error.is_outcome_unknown() => Ok(None),
        Err(error) => {
            let class = match error.status().map(|status| status.as_u16()) {
                Some(409) => Class::Conflict,
                // The memory was deleted; for a new memory, it is the store that is missing.
                Some(404) if step.replaces.is_some() => Class::Conflict,
                // A quota is 429 without the advice to try again.
                Some(400 | 413 | 422 | 429) if !error.is_transient() => Class::Rule,
                _ => return Err(failure_of("a memory was not written")(error)),
            };
            Ok(Some(Outcome::refused(class, error.to_string())))
        }
    }
}

/// Whether the server may accept the call without one of its operations.
fn is_about_an_operation(error: &ClientError) -> bool {
    matches!(error.status().map(|status| status.as_u16()), Some(400 | 413))
}

fn operation(step: &ImportStep, content: String) -> Value {
    let item = &step.item;
    let mut operation = match &step.replaces {
        None => json!({"type": "create", "path": item.path.as_str()}),
        Some(existing) => json!({
            "type": "update",
            "memory_id": existing.id,
            "precondition": {"type": "content_sha256", "content_sha256": existing.sha256},
        }),
    };
    operation["content"] = content.into();
    if let Some(fields) = operation.as_object_mut() {
        fields.extend(expiry_of(item));
    }
    operation
}

/// The fields of a write that say how a memory expires.
pub(super) fn expiry_of(item: &SourceMemory) -> Map<String, Value> {
    let pinned = item.is_pinned.then(|| ("pinned".to_owned(), Value::from(true)));
    let expires_at = item.expires_at.map(|at| ("expires_at".to_owned(), Value::from(at.to_rfc3339())));
    pinned.into_iter().chain(expires_at).collect()
}

fn outcome_of(result: OperationResult) -> Outcome {
    match (result.status.as_str(), result.error) {
        ("created", _) => Outcome::Created,
        ("updated", _) => Outcome::Replaced,
        ("unchanged", _) => Outcome::Unchanged,
        (_, Some(error)) if CONFLICTS.contains(&error.kind.as_str()) => {
            Outcome::refused(Class::Conflict, error.message)
        }
        (_, Some(error)) => Outcome::refused(Class::Rule, error.message),
        (status, None) => Outcome::refused(Class::Rule, format!("the server answered `{status}`")),
    }
}
