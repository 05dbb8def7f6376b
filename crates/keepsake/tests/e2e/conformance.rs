//! Every step of `tests/conformance/memory_tool.json`, on both main pairs.

use futures::stream::{self, StreamExt};

use crate::prelude::*;

const FILE: &str = include_str!("../../../../tests/conformance/memory_tool.json");
const AT_ONCE: usize = 8;

fn sequences() -> Vec<Value> {
    let file: Value = serde_json::from_str(FILE).unwrap();
    assert_eq!((&file["format"], &file["tool"]), (&json!(1), &json!("memory_20250818")));
    file["sequences"].as_array().unwrap().clone()
}

fn limits_of(sequence: &Value) -> Option<Value> {
    Some(sequence["limits"].clone()).filter(Value::is_object)
}

/// The names of the sequences that need limits, and these limits.
pub(crate) fn limits() -> impl Iterator<Item = (String, Value)> {
    let named = |sequence: Value| Some((sequence["name"].as_str()?.to_owned(), limits_of(&sequence)?));
    sequences().into_iter().filter_map(named)
}

on_pairs! { every_step_holds }

async fn every_step_holds(pair: Pair) {
    let deployment = Deployment::new(pair).await;
    let provision = deployment.provision().await;
    let mut subjects = Vec::new();
    for sequence in sequences() {
        let tenant = provision.tenant_with(limits_of(&sequence).unwrap_or_else(|| json!({}))).await;
        subjects.push((sequence, tenant));
    }
    provision.close().await;
    let server = deployment.start().await;
    let (steps, failures): (Vec<usize>, Vec<Option<String>>) = stream::iter(subjects)
        .map(|(sequence, tenant)| run_sequence(server.client(&tenant), sequence, tenant))
        .buffer_unordered(AT_ONCE)
        .unzip()
        .await;
    let failures: Vec<_> = failures.into_iter().flatten().collect();
    assert!(failures.is_empty(), "{} sequences fail:\n{}", failures.len(), failures.join("\n"));
    let steps: usize = steps.iter().sum();
    assert!(steps >= 1000, "only {steps} steps were run");
}

/// Runs the steps until one fails; answers how many were run, and the failure.
async fn run_sequence(client: Client, sequence: Value, tenant: Tenant) -> (usize, Option<String>) {
    let steps = sequence["steps"].as_array().unwrap();
    for (position, step) in steps.iter().enumerate() {
        let sent = expand(step.get("input").unwrap_or(&step["block"]));
        let answer = client.call(tenant.store_id, &sent).await;
        if answer.status != 200 || !is_as_expected(&answer.json(), step) {
            let (name, answer) = (&sequence["name"], answer.text);
            return (position, Some(format!("{name}, step {position}: {step}\n  got {answer}")));
        }
    }
    (steps.len(), None)
}

fn is_as_expected(told: &Value, step: &Value) -> bool {
    let holds = match step["contains"].as_array() {
        Some(parts) => {
            let content = told["content"].as_str().unwrap_or_default();
            parts.iter().all(|part| content.contains(part.as_str().unwrap()))
        }
        None => told["content"] == expand(&step["content"]),
    };
    let known = json!({"type": "tool_result", "content": told["content"], "is_error": step["is_error"]});
    let mut expected = known.as_object().unwrap().clone();
    expected.extend(step.get("block").map(|block| ("tool_use_id".to_owned(), block["id"].clone())));
    holds && *told == Value::Object(expected)
}

/// Puts long strings together, wherever one is written in pieces.
fn expand(value: &Value) -> Value {
    match value {
        Value::Object(fields) if fields.len() == 1 && fields.contains_key("$concat") => {
            let pieces = fields["$concat"].as_array().unwrap();
            pieces.iter().map(expand_piece).collect::<String>().into()
        }
        Value::Object(fields) => fields.iter().map(|(name, value)| (name.clone(), expand(value))).collect(),
        Value::Array(values) => values.iter().map(expand).collect(),
        other => other.clone(),
    }
}

fn expand_piece(piece: &Value) -> String {
    if let Some(text) = piece.as_str() {
        return text.to_owned();
    }
    let times = usize::try_from(piece["times"].as_u64().unwrap()).unwrap();
    piece["repeat"].as_str().unwrap().repeat(times)
}
