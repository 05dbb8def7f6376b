//! `keepsake doctor`: checks what the commands need, and says what to do.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use jiff::Timestamp;
use jiff::fmt::rfc2822::DateTimeParser;
use keepsake_client::{Client, ClientError, StatusCode, Url, body_of, extended, from_json};
use keepsake_config::{Failure, FailureClass};
use keepsake_core::MeaningReason;
use keepsake_core::words::{counted, period};
use reqwest::Response;
use reqwest::header::DATE;
use serde_json::{Value, json};

use crate::cli::StoreArgs;
use crate::failures::{class_of, of_client};
use crate::output::{Column, Printer, Text, actor_id, bytes, items_of, limit};
use crate::people::{StoreConnection, connect, meaning_of, text_of};
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
  keepsake doctor ~/memory            also the folder, which `keepsake sync` keeps equal to a store

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

impl Diagnosis {
    fn ok(&mut self, check: &str, found: impl Into<String>) {
        self.add("ok", check, found, None);
    }

    fn advise(&mut self, check: &str, found: impl Into<String>, advice: &str) {
        self.add("ok", check, found, Some(advice));
    }

    fn problem(&mut self, check: &str, found: impl Into<String>, advice: &str) {
        self.add("problem", check, found, Some(advice));
    }

    fn add(&mut self, result: &str, check: &str, found: impl Into<String>, advice: Option<&str>) {
        self.0.push(json!({"check": check, "result": result, "found": found.into(), "advice": advice}));
    }

    /// Prints the checks. Fails if there is a problem.
    fn end(self, printer: &Printer) -> Result<(), Failure> {
        printer.items(&self.0, &COLUMNS, "")?;
        match self.0.iter().filter(|check| check["result"] == "problem").count() as u64 {
            0 => Ok(()),
            count => Err(Failure::new(format!("{} found", counted(count, "problem")))),
        }
    }
}

pub(crate) async fn run(args: DoctorArgs) -> Result<(), Failure> {
    let printer = Printer::new(args.store.connection.output.output);
    let mut diagnosis = Diagnosis::default();
    match connect(&args.store.connection.server) {
        Ok((client, _)) => check_all(&mut diagnosis, &client, &args).await,
        Err(failure) => diagnosis.problem(
            "server",
            failure.to_string(),
            "name a server and an API key, or run `keepsake login URL`",
        ),
    }
    diagnosis.end(&printer)
}

/// Makes the checks, until one fails without which the others say nothing.
async fn check_all(diagnosis: &mut Diagnosis, client: &Client, args: &DoctorArgs) {
    if !check_server(diagnosis, client).await {
        return;
    }
    check_version(diagnosis, client).await;
    if !check_key(diagnosis, client).await {
        return;
    }
    let store = match StoreConnection::open(&args.store).await {
        Ok(connection) => connection.store,
        Err(failure) => {
            let advice = match failure.class() {
                FailureClass::NotAllowed => {
                    "use a key with the scope memory:read; a token of a session needs the id of a store"
                }
                _ => {
                    "name a store of `keepsake store list` with --store, KEEPSAKE_STORE or `keepsake context use`"
                }
            };
            return diagnosis.problem("store", failure.to_string(), advice);
        }
    };
    check_store(diagnosis, &store).await;
    check_search(diagnosis, &store).await;
    check_folder(diagnosis, &store, args.folder.as_deref());
}

/// Whether a server answers.
async fn check_server(diagnosis: &mut Diagnosis, client: &Client) -> bool {
    let url = client.url();
    let sent_at = Timestamp::now();
    let answer = match get(client, "readyz").await {
        Ok(answer) => answer,
        Err(failure) => {
            let advice = "start it, or correct the URL: `keepsake context list` shows the known servers";
            diagnosis.problem("server", failure.to_string(), advice);
            return false;
        }
    };
    let clocks = difference(&answer, sent_at, Timestamp::now());
    let (status, body) = (answer.status(), body_of(answer).await.unwrap_or_default());
    match from_json::<Value>(&body) {
        Ok(ready) if status == StatusCode::OK && ready["index"].is_string() => {
            let parts = ["index", "blobs", "upkeep"].map(|part| format!("{part} {}", text_of(&ready, part)));
            let found = format!("{url}: {}", parts.join(", "));
            if ["index", "blobs", "upkeep"].iter().all(|part| ready[*part] == "ok") {
                diagnosis.ok("server", found);
            } else {
                diagnosis.problem("server", found, "tell the operator, whose log and alerts say more");
            }
        }
        // Later checks would wait long for the database.
        Ok(answer) if status == StatusCode::SERVICE_UNAVAILABLE => {
            let advice = "wait until it is ready, or tell the operator, whose log says more";
            let reason = answer["error"]["message"].as_str();
            let reason = reason.map(|reason| format!(": {reason}")).unwrap_or_default();
            diagnosis.problem("server", format!("{url} is not ready{reason}"), advice);
            return false;
        }
        _ => {
            diagnosis.problem("server", client.no_json(status), "correct the URL");
            return false;
        }
    }
    if let Some(seconds) = clocks {
        check_clock(diagnosis, seconds);
    }
    true
}

/// Gets a path of the server outside the API, once.
async fn get(client: &Client, path: &str) -> Result<Response, Failure> {
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

fn check_clock(diagnosis: &mut Diagnosis, seconds: i64) {
    let distance = seconds.unsigned_abs();
    if distance <= MAX_CLOCK_DIFFERENCE.as_secs() {
        return diagnosis.ok("clock", format!("differs from the server's by {}", period(distance)));
    }
    let side = if seconds > 0 { "behind" } else { "ahead of" };
    diagnosis.problem(
        "clock",
        format!("{} {side} the server's", period(distance)),
        "set the clocks of both by NTP: times of expiry and of tokens are compared with them",
    );
}

async fn check_version(diagnosis: &mut Diagnosis, client: &Client) {
    let of_command = env!("CARGO_PKG_VERSION");
    let document = match get(client, "openapi.json").await {
        Ok(answer) => body_of(answer).await.ok().and_then(|body| from_json::<Value>(&body).ok()),
        Err(_) => None,
    };
    let version = document.as_ref().and_then(|document| document["info"]["version"].as_str());
    match version {
        None => {
            let advice = "commands for a server of another maker are `copy` and `import`";
            diagnosis.problem("version", "the server does not tell its version", advice);
        }
        Some(version) if version == of_command => diagnosis.ok("version", version),
        Some(version) => diagnosis.advise(
            "version",
            format!("the server has {version}, this command {of_command}"),
            "install the version of the server if a command fails",
        ),
    }
}

fn is_of_suspended_tenant(error: &ClientError) -> bool {
    matches!(error, ClientError::Refused(refusal) if refusal.tenant_status.as_deref() == Some("suspended"))
}

/// Whether the server accepts the credential.
async fn check_key(diagnosis: &mut Diagnosis, client: &Client) -> bool {
    let credential: Value = match client.get(&["credential"], &[]).await {
        Ok(credential) => credential,
        Err(error) if class_of(&error) == FailureClass::NotFound => {
            diagnosis.ok("key", "the server is too old to tell its scopes");
            return true;
        }
        Err(error) => {
            let advice = match error.status() {
                Some(StatusCode::UNAUTHORIZED) if is_of_suspended_tenant(&error) => {
                    "ask the operator, who ends it with `keepsake tenant resume`"
                }
                Some(StatusCode::UNAUTHORIZED) => {
                    "make a key on the page Keys of the console, and `keepsake login URL` with it"
                }
                _ => TRY_AGAIN,
            };
            diagnosis.problem("key", error.to_string(), advice);
            return false;
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
    let actor = actor_id(&credential["actor"]);
    if scopes.is_empty() {
        diagnosis.problem(
            "key",
            format!("{actor} has no scopes"),
            "make a key with scopes, or give its issuer some",
        );
        return false;
    }
    diagnosis.ok("key", format!("{actor}: {}{stores}{expiry}", scopes.join(", ")));
    true
}

async fn check_store(diagnosis: &mut Diagnosis, store: &StoreApi) {
    let found = match store.get::<Value>(&["usage"], &[("limit", Some("1"))]).await {
        Ok(usage) => store.get::<Value>(&[], &[]).await.map(|store| (store, usage)),
        Err(error) => Err(error),
    };
    let (about, usage) = match found {
        Ok(found) => found,
        Err(error) => {
            return diagnosis.problem("store", error.to_string(), advice_to_read(&error));
        }
    };
    let number = |object: &Value, field: &str| object[field].as_u64().unwrap_or_default();
    let (memories, size) = (number(&usage, "memory_count"), number(&usage, "content_bytes"));
    let named = format!("{} ({})", text_of(&about, "name"), store.id);
    if !about["archived_at"].is_null() {
        return diagnosis.problem(
            "store",
            format!("{named} is archived, and read-only"),
            "use another store",
        );
    }
    for (name, used) in [("memories_per_store", memories), ("bytes_per_store", size)] {
        let maximum = usage["limits"][name].as_u64().unwrap_or(u64::MAX);
        if u128::from(used) * 100 > u128::from(maximum) * u128::from(ALMOST_FULL) {
            let found = format!("{named} has {} of {}: {name}", limit(name, used), limit(name, maximum));
            let advice = "delete memories that are not needed, or have the operator raise the limit";
            return diagnosis.problem("store", found, advice);
        }
    }
    diagnosis.ok("store", format!("{named}: {}, {}", counted(memories, "memory"), bytes(size)));
}

/// What to do if reading from the store failed.
fn advice_to_read(error: &ClientError) -> &'static str {
    match class_of(error) {
        FailureClass::NotAllowed => "use a key with the scope memory:read for this store",
        _ => TRY_AGAIN,
    }
}

async fn check_search(diagnosis: &mut Diagnosis, store: &StoreApi) {
    let query = [("query", Some(QUERY)), ("limit", Some("1"))];
    let found = match store.get::<Value>(&["search"], &query).await {
        Ok(found) => found,
        Err(error) => return diagnosis.problem("search", error.to_string(), advice_to_read(&error)),
    };
    let Some(meaning) = meaning_of(&found) else {
        return diagnosis.ok("search", "by words");
    };
    let Some(reason) = meaning.reason.filter(|_| !meaning.used) else {
        let pending = meaning.notice().map(|notice| format!("; {notice}")).unwrap_or_default();
        return diagnosis.ok("search", format!("by words and meaning{pending}"));
    };
    let found = format!("by words: {}", reason.in_words());
    match reason {
        MeaningReason::Off
        | MeaningReason::LexicalStore
        | MeaningReason::QuotedQuery
        | MeaningReason::NoWords
        | MeaningReason::Pending => {
            diagnosis.ok("search", found);
        }
        MeaningReason::NotInstalled => {
            diagnosis.advise(
                "search",
                found,
                "for search by meaning, `keepsake model install` on the server",
            );
        }
        MeaningReason::Unusable => {
            diagnosis.problem("search", found, "`keepsake model status` on the server says why");
        }
        MeaningReason::Timeout | MeaningReason::Failed | MeaningReason::TooLarge => {
            diagnosis.problem("search", found, "tell the operator, whose log says more");
        }
    }
}

fn check_folder(diagnosis: &mut Diagnosis, store: &StoreApi, given: Option<&Path>) {
    let folder = given.unwrap_or(Path::new("."));
    let shown = folder.display();
    match sync::state_of(folder, store) {
        Ok(Some(state)) => {
            let files = counted(state.files as u64, "file");
            let at = state.synced_at.map(|at| format!(", {at:.0}")).unwrap_or_default();
            let found = format!("{shown}: {files} at the last sync{at}");
            match state.ignored {
                0 => diagnosis.advise(
                    "folder",
                    found,
                    &format!("`keepsake sync {shown} --dry-run` shows changes since"),
                ),
                ignored => diagnosis.problem(
                    "folder",
                    format!("{found}; damaged entries: {ignored}"),
                    &format!("`keepsake sync {shown}` compares these files again"),
                ),
            }
        }
        Ok(None) if given.is_none() => {
            diagnosis.ok("folder", "the current one is not synchronised");
        }
        Ok(None) => {
            let advice = format!("start with `keepsake sync {shown}`");
            diagnosis.problem("folder", format!("{shown} was never synchronised"), &advice);
        }
        Err(failure) => {
            diagnosis.problem("folder", failure.to_string(), "do what the message says, then sync again");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clocks_that_differ_by_more_than_a_minute_are_a_problem() {
        for (seconds, result, found) in [
            (0, "ok", "differs from the server's by 0 seconds"),
            (-60, "ok", "differs from the server's by 1 minute"),
            (90, "problem", "90 seconds behind the server's"),
            (-7_200, "problem", "2 hours ahead of the server's"),
        ] {
            let mut diagnosis = Diagnosis::default();
            check_clock(&mut diagnosis, seconds);
            assert_eq!([&diagnosis.0[0]["result"], &diagnosis.0[0]["found"]], [result, found]);
        }
    }
}
