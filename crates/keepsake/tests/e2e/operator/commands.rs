//! The operator's commands, beside the database and over HTTP.

use std::time::Duration;

use reqwest::Method;
use serde_json::{Value, json};

use super::{Operator, STORES, assert_usage, ok, refused, text, write};
use crate::support::client::send;
use crate::support::command::{Run, keepsake, keepsake_in_terminal, keepsake_with, words};
use crate::support::deployment::ServerConfig;
use crate::support::{Client, Deployment, Pair, Server, eventually, secrets};

/// A server, and commands beside it.
struct Sides {
    operator: Operator,
    config_file: String,
    server: Server,
    deployment: Deployment,
}

impl Sides {
    async fn new() -> Self {
        let deployment = Deployment::new(Pair::Postgres).await;
        let operator = Operator::new();
        let command = deployment.command(&operator.config);
        Self {
            operator,
            config_file: command.config_file().display().to_string(),
            server: Server::start(command).await,
            deployment,
        }
    }

    /// Runs a command on the database.
    async fn beside(&self, line: &str) -> Run {
        run(line, &["--config", &self.config_file], &[]).await
    }

    /// Runs a command that asks the server.
    async fn remote(&self, line: &str) -> Run {
        let token = ("KEEPSAKE_OPERATOR_TOKEN", self.operator.token.as_str());
        run(line, &["--server", &self.operator.url], &[token]).await
    }
}

async fn run(line: &str, more: &[&str], variables: &[(&str, &str)]) -> Run {
    keepsake_with(&[words(line).as_slice(), more].concat(), variables).await
}

#[tokio::test(flavor = "multi_thread")]
async fn commands_print_the_same_locally_and_over_http() {
    let sides = Sides::new().await;
    let beside = async |line: &str| sides.beside(line).await;
    let remote = async |line: &str| sides.remote(line).await;

    let made = beside("tenant create --name one -o json").await.json();
    let other = remote("tenant create --name two --external-id t+w&o -o json").await.json();
    let (id, other_id) = (text(&made["id"]), text(&other["id"]));
    let create = format!("key create --tenant {id} --name k --expires-in-days 1 -o json");
    let key = remote(&create).await.json();
    secrets::remember(&text(&key["api_key"]), "an API key");
    let key_id = text(&key["id"]);
    assert_eq!(key["scopes"], json!(["memory:read", "memory:write"]));
    let rename = format!("tenant update {id} --name uno --limit bytes_per_memory=5");
    remote(&rename).await.ok();
    let limit = "--default-limit bytes_per_memory --limit max_view_chars=7";
    beside(&format!("tenant update {id} {limit}")).await.ok();
    let suspended = remote(&format!("tenant suspend {id}")).await.ok();
    assert!(suspended.contains("suspended"), "{suspended}");

    for output in ["table", "json", "jsonl"] {
        for line in [
            "tenant list",
            "tenant list --limit 1",
            "tenant list --external-id t+w&o",
            &format!("tenant get {id}"),
            &format!("tenant usage {id}"),
            &format!("tenant audit {id}"),
            "tenant audit",
            &format!("key list --tenant {id}"),
        ] {
            let line = format!("{line} -o {output}");
            let (one, two) = (beside(&line).await, remote(&line).await);
            assert_eq!(without_times(&one.stdout), without_times(&two.stdout), "{line}");
            let next = line.contains("--limit 1") && output != "json";
            assert_eq!(one.stderr.contains("repeat the command with --page page_"), next, "{line}");
            assert!(two.ok().contains("_0"), "{line} shows no id");
        }
    }
    let shown = remote(&format!("tenant get {id} -o json")).await.json();
    assert_eq!(shown["name"], "uno");
    assert_eq!(shown["status"], "suspended");
    assert_eq!(shown["limits"], json!({"max_view_chars": 7}));
    let listed = remote("tenant list --limit 1 -o json").await.json();
    let next = text(&listed["next_page"]);
    let rest = beside(&format!("tenant list --page {next} -o json")).await.json();
    assert_eq!(listed["data"][0]["id"], other_id);
    assert_eq!(rest["data"][0]["id"], id);

    let resumed = beside(&format!("tenant resume {id}")).await.ok();
    assert!(resumed.contains("resumed"), "{resumed}");
    let revoke = format!("key revoke --tenant {id} {key_id}");
    let revoked = beside(&format!("{revoke} --yes")).await.ok();
    assert!(revoked.contains("revoked"), "{revoked}");
    for line in [&format!("tenant delete {other_id}"), &revoke, "token-key rotate --compromised"] {
        remote(line).await.ends(2, "--yes");
    }
    remote(&format!("tenant delete {other_id} --yes")).await.ok();
    for run in [
        beside(&format!("tenant deletion {other_id} -o json")).await,
        remote(&format!("tenant deletion {other_id} -o json")).await,
    ] {
        assert_eq!(run.json()["id"], other_id);
    }
    assert_commands_are_audited(&sides.operator, &id, &other_id, &key_id).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn commands_report_errors_locally_and_over_http() {
    let sides = Sides::new().await;
    let nobody = "wrkspc_00000000000000000000000001";
    let unknown = format!("tenant get {nobody}");
    let errors = [sides.beside(&unknown).await, sides.remote(&unknown).await];
    assert_eq!(errors[0].stderr, errors[1].stderr);
    errors[0].ends(3, "not found");
    errors[1].ends(3, "not found");
    let ask = async |url: &str, token: &str| {
        let token = [("KEEPSAKE_OPERATOR_TOKEN", token)];
        run("tenant list", &["--server", url], &token).await
    };
    let (url, token) = (&sides.operator.url, &sides.operator.token);
    ask(url, "not-the-token").await.ends(5, "token");
    // The public listener does not have the operator's routes, and the other way round.
    let public = sides.server.url();
    ask(&public, token).await.ends(3, "(operator.listen)");
    let person = ["store", "list", "--url", url, "--api-key", "ks_live_x"];
    keepsake(&person).await.ends(3, "(server.listen)");
    for (url, code, cause) in [
        ("localhost:8081", 2, "it must start with http:// or https://"),
        ("http://127.0.0.1:9", 6, "http://127.0.0.1:9 cannot be reached: "),
    ] {
        let failed = ask(url, token).await;
        failed.ends(code, cause);
        assert!(!failed.stderr.contains("error sending request"), "{failed:?}");
    }
    let without = run("tenant list", &["--server", url], &[]).await;
    without.ends(2, "KEEPSAKE_OPERATOR_TOKEN");
}

/// A table or JSON without relative times, which change between two runs, and without
/// the widths that depend on them.
fn without_times(printed: &str) -> Vec<String> {
    let is_time = |word: &str| {
        word.parse::<u32>().is_ok()
            || word.starts_with("second")
            || ["now", "ago", "in", "minute"].contains(&word)
    };
    let line = |line: &str| {
        let words = line.split_whitespace().filter(|word| !is_time(word));
        words.collect::<Vec<_>>().join(" ")
    };
    printed.lines().map(line).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn operators_tables_have_headers_and_no_json() {
    let deployment = Deployment::new(Pair::Sqlite).await;
    let command = deployment.command(&ServerConfig::default());
    let file = command.config_file().display().to_string();
    let run = async |line: &str| {
        let words: Vec<_> = line.split(' ').chain(["--config", &file]).collect();
        keepsake_in_terminal(&words, &[], 200, "y\n").await
    };
    let made = run("tenant create --name one --limit bytes_per_memory=2048").await.ok();
    let id = made.split("created the tenant ").nth(1).unwrap().trim().to_owned();
    run("job run reconcile-usage").await.ok();
    for (line, shown) in [
        ("tenant list", "ID |STATUS|NAME|EXTERNAL ID|CREATED|active"),
        (&format!("tenant get {id}"), "bytes_per_memory=2.00 KiB"),
        (&format!("tenant usage {id}"), "LIMIT|bytes_per_memory|2.00 KiB|30 days"),
        ("tenant audit", "ACTOR|operator_cli|tenant.create"),
        ("job list", "SCHEDULE|daily at 00:05 UTC, next in |every minute|stores="),
        ("job history reconcile-usage", "ASKED FOR BY|done|drifted_stores=0"),
        ("verify", "0 blobs of 0 B, |1 tenant: all is well"),
        ("config check --connect", "[index]|KEY |STEP|RESULT|index.url|connect"),
    ] {
        let printed = console::strip_ansi_codes(&run(line).await.ok()).into_owned();
        for words in shown.split('|') {
            assert!(printed.contains(words), "{line} lacks {words}: {printed}");
        }
        assert!(!printed.contains("{\""), "{line}: {printed}");
    }
    // A person confirms at the terminal; an empty answer and the end of the input do not.
    let delete = ["tenant", "delete", &id, "--config", &file];
    for unsure in ["n\n", "\n", ""] {
        let kept = keepsake_in_terminal(&delete, &[], 200, unsure).await.stdout;
        assert!(kept.contains("nothing was changed"), "{unsure:?}: {kept}");
    }
    let deleted = run(&format!("tenant delete {id}")).await.ok();
    assert!(deleted.contains("with all its data, permanently? [y/N]"), "{deleted}");
    assert!(deleted.contains("is being deleted"), "{deleted}");
}

/// The audit has each command with its actor.
async fn assert_commands_are_audited(operator: &Operator, id: &str, other_id: &str, key_id: &str) {
    let told = operator.audit("/admin/v1/audit").await;
    for (actor, action, object) in [
        ("operator_cli", "tenant.create", id),
        ("operator", "tenant.create", other_id),
        ("operator", "api_key.create", key_id),
        ("operator", "tenant.update", id),
        ("operator_cli", "tenant.update", id),
        ("operator", "tenant.suspend", id),
        ("operator_cli", "tenant.resume", id),
        ("operator_cli", "api_key.revoke", key_id),
        ("operator", "tenant.delete", other_id),
    ] {
        let entry = (actor.to_owned(), action.to_owned(), object.to_owned());
        assert!(told.contains(&entry), "{entry:?} is not in {told:?}");
    }
    assert_eq!(told.len(), 9);
}

#[tokio::test(flavor = "multi_thread")]
async fn local_commands_manage_a_tenant_on_sqlite() {
    let deployment = Deployment::new(Pair::Sqlite).await;
    let command = deployment.command(&ServerConfig::default());
    let file = command.config_file().display().to_string();
    let run = async |line: &str| {
        let line = format!("{line} --config {file} -o json");
        keepsake(&words(&line)).await.json()
    };
    let id = text(&run("tenant create --name one").await["id"]);
    let scopes = "--scope stores:admin --scope memory:read --scope memory:write";
    let key = run(&format!("key create --tenant {id} --name k {scopes}")).await;
    let secret = text(&key["api_key"]);
    secrets::remember(&secret, "an API key");
    let mut server = Server::start(command).await;
    let client = Client::new(&server.url(), &secret);
    write(&client).await;
    // A deleted store and a revoked key are counted no longer.
    let gone = write(&client).await;
    let delete = client.request(Method::DELETE, &format!("{STORES}/{gone}"));
    ok(&send(delete).await);
    server.end().await;
    let spare = run(&format!("key create --tenant {id} --name spare")).await;
    secrets::remember(&text(&spare["api_key"]), "an API key");
    let spare = text(&spare["id"]);
    run(&format!("key revoke --tenant {id} {spare} --yes")).await;
    assert_usage(&run(&format!("tenant usage {id}")).await);
    let suspended = run(&format!("tenant suspend {id}")).await;
    assert_eq!(suspended["status"], "suspended");
    server.restart().await;
    assert_eq!(client.get(STORES).await.status, 401);
}

#[tokio::test(flavor = "multi_thread")]
async fn signing_key_is_rotated_locally_and_over_http_and_audited() {
    let mut sides = Sides::new().await;
    let tenant = sides.deployment.tenant().await;
    let client = sides.server.client(&tenant);
    let new = json!({"agent": "a", "environment_id": "e"});
    let session = ok(&client.post("/v1/sessions", &new).await);
    let path = format!("/v1/sessions/{}", text(&session["id"]));
    let holder_of = |token: &Value| {
        secrets::remember(token.as_str().unwrap(), "a session's token");
        client.with_key(token.as_str().unwrap())
    };
    let old = holder_of(&session["token"]);
    let issued = async || ok(&client.post(&format!("{path}/token"), &json!({})).await)["token"].clone();

    // A planned rotation ends no token.
    let rotated = sides.remote("token-key rotate -o json").await.json();
    assert_eq!(rotated["type"], "token_key");
    assert_eq!(rotated["id"], "token-2");
    ok(&old.get(&path).await);
    let shown = sides.beside("token-key rotate").await.ok();
    let told = "the new token signing key is token-3, which signs from ";
    assert!(shown.starts_with(told), "{shown}");
    ok(&holder_of(&issued().await).get(&path).await);

    let rotate = "token-key rotate --compromised --yes -o json";
    let rotated = sides.remote(rotate).await.json();
    assert_eq!(rotated["id"], "token-4");
    // A verified token is cached as long as a key.
    let is_refused = async || old.get(&path).await.status == 401;
    let what = "a distrusted token is refused";
    eventually(what, Duration::from_secs(5), is_refused).await;
    refused(&old.get(&path).await, 401, "authentication_error");
    ok(&holder_of(&issued().await).get(&path).await);
    // No later rotation makes it good again, also for a server that knows only the database.
    sides.remote("token-key rotate").await.ok();
    sides.server.end().await;
    sides.server.restart().await;
    refused(&old.get(&path).await, 401, "authentication_error");

    let audit = sides.operator.get("/admin/v1/audit?limit=100").await;
    let entries = audit["data"].as_array().unwrap().iter();
    let told = entries.filter(|entry| text(&entry["action"]).starts_with("token_key."));
    let told: Vec<_> =
        told.map(|entry| ["actor", "action", "object_id"].map(|field| entry[field].clone())).collect();
    let entry = |actor: &str, action: &str| [json!(actor), json!(action), json!(null)];
    assert_eq!(
        told,
        [
            entry("operator", "token_key.rotate"),
            entry("operator", "token_key.distrust"),
            entry("operator_cli", "token_key.rotate"),
            entry("operator", "token_key.rotate"),
        ]
    );
}
