//! Every step of `tests/conformance/memory_tool.json`, on all four pairs.

use futures::stream::{self, StreamExt};
use keepsake_core::limits::LimitOverrides;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::support::{Client, Deployment, Pair, Tenant};

const FILE: &str = include_str!("../../../../tests/conformance/memory_tool.json");
/// Sequences that run at the same time.
const AT_ONCE: usize = 8;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    format: u32,
    tool: String,
    sequences: Vec<Sequence>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Sequence {
    name: String,
    #[serde(rename = "about")]
    _about: String,
    limits: Option<LimitOverrides>,
    steps: Vec<Step>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Step {
    input: Option<Value>,
    block: Option<Value>,
    is_error: bool,
    content: Option<Value>,
    contains: Option<Vec<String>>,
}

impl File {
    fn read() -> Self {
        let file: Self = serde_json::from_str(FILE).unwrap();
        assert_eq!((file.format, file.tool.as_str()), (1, "memory_20250818"));
        file
    }
}

/// The names of the sequences that need limits, and these limits.
pub(crate) fn limits() -> impl Iterator<Item = (String, LimitOverrides)> {
    let sequences = File::read().sequences.into_iter();
    sequences.filter_map(|sequence| Some((sequence.name, sequence.limits?)))
}

#[tokio::test(flavor = "multi_thread")]
async fn every_step_holds_on_postgres_and_s3() {
    run(Pair::PostgresS3).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_step_holds_on_sqlite() {
    run(Pair::Sqlite).await;
}

async fn run(pair: Pair) {
    let file = File::read();
    let deployment = Deployment::new(pair).await;
    let provision = deployment.provision().await;
    let mut subjects = Vec::new();
    for sequence in &file.sequences {
        let limits = sequence.limits.clone().unwrap_or_default();
        subjects.push((sequence, provision.tenant(limits).await));
    }
    provision.close().await;
    let server = deployment.start().await;
    let client = Client::new(&server.url(), "");

    let outcomes: Vec<_> = stream::iter(subjects)
        .map(|(sequence, tenant)| run_sequence(client.with_key(&tenant.key), sequence, tenant))
        .buffer_unordered(AT_ONCE)
        .collect()
        .await;
    let failures: Vec<_> =
        outcomes.iter().filter_map(|outcome| outcome.as_ref().err()).map(String::as_str).collect();
    assert!(failures.is_empty(), "{} sequences fail:\n{}", failures.len(), failures.join("\n"));
    let steps_run: usize = outcomes.iter().flatten().sum();
    assert!(steps_run >= 1000, "only {steps_run} steps were run");
}

/// Runs the steps until one fails; returns their number.
async fn run_sequence(client: Client, sequence: &Sequence, tenant: Tenant) -> Result<usize, String> {
    for (position, step) in sequence.steps.iter().enumerate() {
        run_step(&client, &tenant, step).await.map_err(|(expected, got)| {
            let sent = step.block.as_ref().or(step.input.as_ref()).unwrap();
            format!("{}, step {position}: {sent}\n  expected {expected}\n       got {got}", sequence.name)
        })?;
    }
    Ok(sequence.steps.len())
}

/// Sends one step; an error has the expected and the actual answer.
async fn run_step(client: &Client, tenant: &Tenant, step: &Step) -> Result<(), (String, String)> {
    let (sent, tool_use_id) = match (&step.input, &step.block) {
        (Some(input), None) => (expand(input), None),
        (None, Some(block)) => (expand(block), Some(block["id"].clone())),
        _ => panic!("a step has either `input` or `block`"),
    };
    let answer = client.call(tenant.store_id, &sent).await;
    let got = || (answer.status, answer.text.clone());
    if answer.status != 200 {
        return Err(("status 200".to_owned(), format!("{:?}", got())));
    }
    let block = answer.json();
    let is_as_expected = match (&step.content, &step.contains) {
        (Some(content), None) => {
            let mut expected = json!({
                "type": "tool_result", "content": expand(content), "is_error": step.is_error,
            });
            if let Some(id) = tool_use_id {
                expected["tool_use_id"] = id;
            }
            if block == expected {
                return Ok(());
            }
            return Err((expected.to_string(), block.to_string()));
        }
        (None, Some(parts)) => {
            let content = block["content"].as_str().unwrap_or_default();
            block["is_error"] == step.is_error
                && block.get("tool_use_id") == tool_use_id.as_ref()
                && parts.iter().all(|part| content.contains(part.as_str()))
        }
        _ => panic!("a step has either `content` or `contains`"),
    };
    if is_as_expected {
        return Ok(());
    }
    let expected =
        format!("is_error {}, tool_use_id {tool_use_id:?}, containing {:?}", step.is_error, step.contains);
    Err((expected, block.to_string()))
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
