//! `keepsake doctor`: checks what the commands need, and says what to do.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use jiff::Timestamp;
use jiff::fmt::rfc2822::DateTimeParser;
use keepsake_client::{AnswerHead, Client, ClientError, StatusCode, Url, body_of, extended, from_json};
use keepsake_config::{Failure, FailureClass, cli::Result};
use keepsake_core::MeaningReason;
use keepsake_core::words::{counted, period};
use reqwest::Response;
use reqwest::header::DATE;
use serde_json::{Value, json};

use crate::cli::StoreArgs;
use crate::failures::{class_of, of_client};
use crate::names::Names;
use crate::output::{Column, Printer, Text, actor_id, bytes, items_of, limit};
use crate::people::{connect, meaning_of, open_store, text_of};
use crate::store_api::StoreApi;
use crate::sync;

/// A token is accepted with clocks that differ by this.
const MAX_CLOCK_DIFFERENCE: Duration = Duration::from_mins(1);
const TRY_AGAIN: &str = "try again, and tell the operator if it stays so";
/// A query with a word, for which meaning is used where it can be.
const QUERY: &str = "memory";
/// A store that has more of its limit than this, in hundredths, is almost full.
const ALMOST_FULL: u64 = 90;

const COLUMNS: [Column; 4] = [
    ("RESULT", "/result", Text),
    ("CHECK", "/check", Text),
    ("FOUND", "/found", Text),
    ("WHAT TO DO", "/advice", Text),
];

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  keepsake doctor
  keepsake doctor ~/memory            also the folder of `keepsake sync`

Ends with 1 if there is a problem.")]
pub(crate) struct DoctorArgs {
    #[command(flatten)]
    store: StoreArgs,
    /// The folder of `keepsake sync` [default: the current one, if it is such a folder]
    #[arg(value_name = "DIR")]
    folder: Option<PathBuf>,
}

/// The checks that were made.
#[derive(Default)]
struct Diagnosis(Vec<Value>);

/// What a check found, and what to do.
struct Finding {
    is_problem: bool,
    found: String,
    advice: Option<String>,
}

fn ok(found: impl Into<String>) -> Finding {
    Finding { is_problem: false, found: found.into(), advice: None }
}

fn advise(found: impl Into<String>, advice: impl Into<String>) -> Finding {
    Finding { is_problem: false, found: found.into(), advice: Some(advice.into()) }
}

fn problem(found: impl Into<String>, advice: impl Into<String>) -> Finding {
    Finding { is_problem: true, ..advise(found, advice) }
}

impl Diagnosis {
    /// Adds a check. Returns whether it found no problem.
    fn add(&mut self, check: &str, finding: Finding) -> bool {
        let Finding { is_problem, found, advice } = finding;
        let result = if is_problem { "problem" } else { "ok" };
        self.0.push(json!({"check": check, "result": result, "found": found, "advice": advice}));
        !is_problem
    }

    /// Prints the checks. Fails if there is a problem.
    fn end(self, printer: &Printer) -> Result<()> {
        printer.items(&self.0, &COLUMNS, "")?;
        match self.0.iter().filter(|check| check["result"] == "problem").count() as u64 {
            0 => Ok(()),
            count => Err(Failure::new(format!("{} found", counted(count, "problem")))),
        }
    }
}

pub(crate) async fn run(args: DoctorArgs) -> Result<()> {
    let printer = Printer::new(args.store.connection.output.output);
    let mut diagnosis = Diagnosis::default();
    match connect(&args.store.connection.server) {
        Ok((client, _)) => check_all(&mut diagnosis, &client, &args).await,
        Err(failure) => {
            let advice = "name a server and an API key, or run `keepsake login URL`";
            diagnosis.add("server", problem(failure.to_string(), advice));
        }
    }
    diagnosis.end(&printer)
}

/// Makes the checks, until one fails without which the others say nothing.
async fn check_all(diagnosis: &mut Diagnosis, client: &Client, args: &DoctorArgs) {
    let (server, is_ready, clocks) = check_server(client).await;
    diagnosis.add("server", server);
    if !is_ready {
        return;
    }
    if let Some(seconds) = clocks {
        diagnosis.add("clock", check_clock(seconds));
    }
    diagnosis.add("version", check_version(client).await);
    if !diagnosis.add("key", check_key(client).await) {
        return;
    }
    let store = match open_store(&args.store).await {
        Ok(store) => store,
        Err(failure) => {
            let advice = match failure.class() {
                FailureClass::NotAllowed => {
                    "use a key with the scope memory:read; a token of a session needs the id of a store"
                }
                _ => {
                    "name a store of `keepsake store list` with --store, KEEPSAKE_STORE or `keepsake context use`"
                }
            };
            diagnosis.add("store", problem(failure.to_string(), advice));
            return;
        }
    };
    diagnosis.add("store", check_store(&store).await);
    diagnosis.add("search", check_search(&store).await);
    diagnosis.add("folder", check_folder(&store, args.folder.as_deref()));
}

/// What a server answers, whether it can be checked further, and how far its clock is ahead in seconds.
async fn check_server(client: &Client) -> (Finding, bool, Option<i64>) {
    let url = client.url();
    let sent_at = Timestamp::now();
    let answer = match get(client, "readyz").await {
        Ok(answer) => answer,
        Err(failure) => {
            let advice = "start it, or correct the URL: `keepsake context list` shows the known servers";
            return (problem(failure.to_string(), advice), false, None);
        }
    };
    let clocks = difference(&answer, sent_at, Timestamp::now());
    let head = AnswerHead::of(&answer);
    let (status, body) = (head.status, body_of(answer).await.unwrap_or_default());
    match from_json::<Value>(&body) {
        Ok(ready) if status == StatusCode::OK && ready["index"].is_string() => {
            let parts = ["index", "blobs", "upkeep"].map(|part| format!("{part} {}", text_of(&ready, part)));
            let found = format!("{url}: {}", parts.join(", "));
            let is_well = ["index", "blobs", "upkeep"].iter().all(|part| ready[*part] == "ok");
            let advice = "tell the operator, whose log and alerts say more";
            (if is_well { ok(found) } else { problem(found, advice) }, true, clocks)
        }
        // Later checks would wait long for the database.
        Ok(answer) if status == StatusCode::SERVICE_UNAVAILABLE => {
            let advice = "wait until it is ready, or tell the operator, whose log says more";
            let reason = answer["error"]["message"].as_str();
            let reason = reason.map(|reason| format!(": {reason}")).unwrap_or_default();
            (problem(format!("{url} is not ready{reason}"), advice), false, None)
        }
        _ => (problem(client.no_json(head), "correct the URL"), false, None),
    }
}

/// Gets a path of the server outside the API, once.
async fn get(client: &Client, path: &str) -> Result<Response> {
    let url = Url::parse(client.url()).map_err(Failure::of("the URL"))?;
    let sent = client.http().get(extended(&url, &[path], &[])).send().await;
    let answer = sent.map_err(|error| of_client(client.unreachable(&error)))?;
    client.misdirected(&answer).map_or(Ok(answer), |error| Err(of_client(error)))
}

/// The seconds by which the clock of the server is ahead of the one of this machine. The server's time
/// is in whole seconds.
fn difference(answer: &Response, sent_at: Timestamp, received_at: Timestamp) -> Option<i64> {
    let date = answer.headers().get(DATE)?.to_str().ok()?;
    let of_server = DateTimeParser::new().parse_timestamp(date).ok()?.as_second();
    let (earliest, latest) = (sent_at.as_second(), received_at.as_second());
    Some(if of_server < earliest { of_server - earliest } else { (of_server - latest).max(0) })
}

fn check_clock(seconds: i64) -> Finding {
    let distance = seconds.unsigned_abs();
    if distance <= MAX_CLOCK_DIFFERENCE.as_secs() {
        return ok(format!("differs from the server's by {}", period(distance)));
    }
    let side = if seconds > 0 { "behind" } else { "ahead of" };
    problem(
        format!("{} {side} the server's", period(distance)),
        "set the clocks of both by NTP: times of expiry and of tokens are compared with them",
    )
}

async fn check_version(client: &Client) -> Finding {
    let of_command = env!("CARGO_PKG_VERSION");
    let document = match get(client, "openapi.json").await {
        Ok(answer) => body_of(answer).await.ok().and_then(|body| from_json::<Value>(&body).ok()),
        Err(_) => None,
    };
    match document.as_ref().and_then(|document| document["info"]["version"].as_str()) {
        None => {
            let advice = "commands for a server of another maker are `copy` and `import`";
            problem("the server does not tell its version", advice)
        }
        Some(version) if version == of_command => ok(version),
        Some(version) => advise(
            format!("the server has {version}, this command {of_command}"),
            "install the version of the server if a command fails",
        ),
    }
}

fn is_of_suspended_tenant(error: &ClientError) -> bool {
    matches!(error, ClientError::Refused(refusal) if refusal.tenant_status.as_deref() == Some("suspended"))
}

/// Whether the server accepts the credential.
async fn check_key(client: &Client) -> Finding {
    let credential: Value = match client.get(&["credential"], &[]).await {
        Ok(credential) => credential,
        Err(error) if class_of(&error) == FailureClass::NotFound => {
            return ok("the server is too old to tell its scopes");
        }
        Err(error) => {
            let advice = match error.status() {
                Some(StatusCode::UNAUTHORIZED) if is_of_suspended_tenant(&error) => {
                    "ask the operator, who ends it with `keepsake tenant resume`"
                }
                Some(StatusCode::UNAUTHORIZED) => {
                    "make a key on the page Keys of the console, and `keepsake login URL` with it"
                }
                // Of a token of a session.
                Some(StatusCode::FORBIDDEN) => "use an API key, which the checks need",
                _ => TRY_AGAIN,
            };
            return problem(error.to_string(), advice);
        }
    };
    let scopes: Vec<_> = items_of(&credential, "scopes").iter().filter_map(Value::as_str).collect();
    let stores = match credential["memory_store_ids"].as_array() {
        Some(stores) => format!("; for {}", counted(stores.len() as u64, "store")),
        None => String::new(),
    };
    let expiry = match credential["expires_at"].as_str() {
        Some(time) => format!("; expires at {time}"),
        None => String::new(),
    };
    let id = actor_id(&credential["actor"]);
    let get = async |list: &str, id: &str| {
        client.get::<Value>(&[list, id], &[]).await.map_err(|error| class_of(&error))
    };
    let names = Names::look_up(vec![&id], &["api_keys"], &get).await;
    let actor = names.of(&id).map_or_else(|| id.clone(), |name| format!("{name} ({id})"));
    if scopes.is_empty() {
        return problem(format!("{actor} has no scopes"), "make a key with scopes, or give its issuer some");
    }
    ok(format!("{actor}: {}{stores}{expiry}", scopes.join(", ")))
}

async fn check_store(store: &StoreApi) -> Finding {
    let found = match store.get::<Value>(&["usage"], &[("limit", Some("1"))]).await {
        Ok(usage) => store.get::<Value>(&[], &[]).await.map(|store| (store, usage)),
        Err(error) => Err(error),
    };
    let (about, usage) = match found {
        Ok(found) => found,
        Err(error) => return problem(error.to_string(), advice_to_read(&error)),
    };
    let number = |object: &Value, field: &str| object[field].as_u64().unwrap_or_default();
    let (memories, size) = (number(&usage, "memory_count"), number(&usage, "content_bytes"));
    let named = format!("{} ({})", text_of(&about, "name"), store.id);
    if !about["archived_at"].is_null() {
        return problem(format!("{named} is archived, and read-only"), "use another store");
    }
    for (name, used) in [("memories_per_store", memories), ("bytes_per_store", size)] {
        let maximum = usage["limits"][name].as_u64().unwrap_or(u64::MAX);
        if u128::from(used) * 100 > u128::from(maximum) * u128::from(ALMOST_FULL) {
            let found = format!("{named} has {} of {}: {name}", limit(name, used), limit(name, maximum));
            let advice = "delete memories that are not needed, or have the operator raise the limit";
            return problem(found, advice);
        }
    }
    ok(format!("{named}: {}, {}", counted(memories, "memory"), bytes(size)))
}

/// What to do if reading from the store failed.
fn advice_to_read(error: &ClientError) -> &'static str {
    match class_of(error) {
        FailureClass::NotAllowed => "use a key with the scope memory:read for this store",
        _ => TRY_AGAIN,
    }
}

async fn check_search(store: &StoreApi) -> Finding {
    let query = [("query", Some(QUERY)), ("limit", Some("1"))];
    let found = match store.get::<Value>(&["search"], &query).await {
        Ok(found) => found,
        Err(error) => return problem(error.to_string(), advice_to_read(&error)),
    };
    let Some(meaning) = meaning_of(&found) else {
        return ok("by words");
    };
    let Some(reason) = meaning.reason.filter(|_| !meaning.used) else {
        let pending = meaning.notice().map(|notice| format!("; {notice}")).unwrap_or_default();
        return ok(format!("by words and meaning{pending}"));
    };
    let found = format!("by words: {}", reason.in_words());
    match reason {
        MeaningReason::Off
        | MeaningReason::LexicalStore
        | MeaningReason::QuotedQuery
        | MeaningReason::NoWords
        | MeaningReason::Pending => ok(found),
        MeaningReason::NotInstalled => advise(
            found,
            "for search by meaning, `keepsake model install` on the server, unless it fetches the model now",
        ),
        MeaningReason::Unusable => problem(found, "`keepsake model status` on the server says why"),
        MeaningReason::Timeout | MeaningReason::Failed | MeaningReason::TooLarge => {
            problem(found, "tell the operator, whose log says more")
        }
    }
}

fn check_folder(store: &StoreApi, given: Option<&Path>) -> Finding {
    let folder = given.unwrap_or(Path::new("."));
    let shown = folder.display();
    match sync::state_of(folder, store) {
        Ok(Some(state)) => {
            let files = counted(state.files as u64, "file");
            let at = state.synced_at.map(|at| format!(", {at:.0}")).unwrap_or_default();
            let found = format!("{shown}: {files} at the last sync{at}");
            match state.ignored {
                0 => advise(found, format!("`keepsake sync {shown} --dry-run` shows changes since")),
                ignored => problem(
                    format!("{found}; damaged entries: {ignored}"),
                    format!("`keepsake sync {shown}` compares these files again"),
                ),
            }
        }
        Ok(None) if given.is_none() => ok("the current one is not synchronised"),
        Ok(None) => {
            problem(format!("{shown} was never synchronised"), format!("start with `keepsake sync {shown}`"))
        }
        Err(failure) => problem(failure.to_string(), "do what the message says, then sync again"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clocks_that_differ_by_more_than_a_minute_are_a_problem() {
        for (seconds, is_problem, found) in [
            (0, false, "differs from the server's by 0 seconds"),
            (-60, false, "differs from the server's by 1 minute"),
            (90, true, "90 seconds behind the server's"),
            (-7_200, true, "2 hours ahead of the server's"),
        ] {
            let finding = check_clock(seconds);
            assert_eq!((finding.is_problem, finding.found.as_str()), (is_problem, found));
        }
    }
}
