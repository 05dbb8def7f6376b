//! The writes of an import, in batches.

use std::collections::VecDeque;

use futures::stream::{FuturesUnordered, StreamExt, TryStreamExt, iter};
use keepsake_archive::plan::{ImportStep, SourceMemory, batches};
use keepsake_archive::report::{Class, Outcome, Report};
use keepsake_client::ClientError;
use keepsake_config::Failure;
use reqwest::Method;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::progress::Progress;
use super::source::Source;
use crate::people::{StoreConnection, failure_of};

/// Batches that are read or sent at the same time.
const MAX_BATCHES_IN_FLIGHT: usize = 4;
/// Contents of a batch that are read from another store at the same time.
const MAX_READS_IN_FLIGHT: usize = 8;
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
    error: Option<OperationError>,
}

#[derive(Deserialize)]
struct OperationError {
    #[serde(rename = "type")]
    kind: String,
    message: String,
}

/// Carries out the steps, and reports each one. Steps before a failure are done.
pub(super) async fn run(
    connection: &StoreConnection,
    source: &Source,
    steps: &[ImportStep],
    report: &mut Report,
) -> Result<(), Failure> {
    let mut progress = Progress::new("imported", steps.len() as u64);
    let mut waiting: VecDeque<&[ImportStep]> = batches(steps).collect();
    let mut in_flight = FuturesUnordered::new();
    let mut done = 0;
    loop {
        while in_flight.len() < MAX_BATCHES_IN_FLIGHT
            && let Some(batch) = waiting.pop_front()
        {
            in_flight.push(send(connection, source, batch));
        }
        let Some(sent) = in_flight.next().await else {
            return Ok(());
        };
        let stopped = |failure: Failure| {
            let all = steps.len();
            failure.within(format!(
                "the import was stopped after {done} of {all} files, the same command continues it"
            ))
        };
        match sent.map_err(stopped)? {
            SentBatch::Done(outcomes) => {
                done += outcomes.len();
                progress.add(outcomes.len() as u64);
                for (step, outcome) in outcomes {
                    report.add_step(step, outcome);
                }
            }
            SentBatch::TooLarge(batch) => {
                let (first, second) = batch.split_at(batch.len() / 2);
                waiting.push_front(second);
                waiting.push_front(first);
            }
        }
    }
}

enum SentBatch<'a> {
    Done(Vec<(&'a ImportStep, Outcome)>),
    /// The server refused the call as a whole; it may accept a part of it.
    TooLarge(&'a [ImportStep]),
}

async fn send<'a>(
    connection: &StoreConnection,
    source: &Source,
    steps: &'a [ImportStep],
) -> Result<SentBatch<'a>, Failure> {
    let contents = iter(steps).map(|step| source.content(&step.item));
    let contents: Vec<_> = contents.buffered(MAX_READS_IN_FLIGHT).try_collect().await?;
    let mut outcomes = Vec::with_capacity(steps.len());
    let (mut sent, mut operations) = (Vec::new(), Vec::new());
    for (step, content) in steps.iter().zip(contents) {
        match content {
            Ok(content) => {
                sent.push(step);
                operations.push(operation(step, content));
            }
            Err(reason) => outcomes.push((step, Outcome::refused(Class::Rule, reason))),
        }
    }
    if sent.is_empty() {
        return Ok(SentBatch::Done(outcomes));
    }
    let body = json!({"atomic": false, "operations": operations});
    let path = connection.path(&["memories", "batch"]);
    let without_memories = [("memories", Some("false"))];
    match connection.client.send::<Answer>(Method::POST, &path, &without_memories, Some(&body)).await {
        Ok(answer) if answer.data.len() == sent.len() => {
            let results = answer.data.into_iter().map(outcome_of);
            outcomes.extend(sent.into_iter().zip(results));
            Ok(SentBatch::Done(outcomes))
        }
        Ok(answer) => Err(Failure::new(format!(
            "the server answered {} results to {} operations",
            answer.data.len(),
            sent.len()
        ))),
        Err(error) if is_about_an_operation(&error) => match sent.as_slice() {
            [step] => {
                let reason = error.to_string();
                outcomes.push((step, Outcome::refused(Class::Rule, reason)));
                Ok(SentBatch::Done(outcomes))
            }
            _ => Ok(SentBatch::TooLarge(steps)),
        },
        Err(error) => Err(failure_of("a batch was not written")(error)),
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
