//! The operator's commands, beside the database and over HTTP.

use std::time::Duration;

use serde_json::{Value, json};

use super::{Operator, STORES, assert_nothing_is_left, ok, refused, remove, text, write};
use crate::support::command::{Run, keepsake, keepsake_in_terminal, keepsake_with};
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
        let command = deployment.command(&operator.config());
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
        run(line, &["--server", &self.operator.url()], &[token]).await
    }
}

async fn run(line: &str, more: &[&str], variables: &[(&str, &str)]) -> Run {
    let words: Vec<_> = line.split(' ').chain(more.iter().copied()).collect();
    keepsake_with(&words, variables).await
}

#[tokio::test(flavor = "multi_thread")]
async fn commands_print_the_same_locally_and_over_http() {
    let sides = Sides::new().await;
    let beside = async |line: &str| sides.beside(line).await;
    let remote = async |line: &str| sides.remote(line).await;

    let made = beside("tenant create --name one -o json").await.json();
    let other = remote("tenant create --name two --external-id t+w&o -o json")
        .await
        .json();
    let (id, other_id) = (text(&made["id"]), text(&other["id"]));
    let key = remote(&format!(
        "key create --tenant {id} --name k --expires-in-days 1 -o json"
    ))
    .await
    .json();
    secrets::remember(&text(&key["api_key"]), "an API key");
    let key_id = text(&key["id"]);
    assert_eq!(key["scopes"], json!(["memory:read", "memory:write"]));
    remote(&format!(
        "tenant update {id} --name uno --limit bytes_per_memory=5"
    ))
    .await
    .ok();
    beside(&format!(
        "tenant update {id} --default-limit bytes_per_memory --limit max_view_chars=7"
    ))
    .await
    .ok();
    assert!(
        remote(&format!("tenant suspend {id}"))
            .await
            .ok()
            .contains("suspended")
    );

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
            assert_eq!(
                one.stderr.contains("repeat the command with --page page_"),
                next,
                "{line}"
            );
            assert!(two.ok().contains("_0"), "{line} shows no id");
        }
    }
    let shown = remote(&format!("tenant get {id} -o json")).await.json();
    assert_eq!(
        (&shown["name"], &shown["status"]),
        (&json!("uno"), &json!("suspended"))
    );
    assert_eq!(shown["limits"], json!({"max_view_chars": 7}));
    let listed = remote("tenant list --limit 1 -o json").await.json();
    let next = text(&listed["next_page"]);
    let rest = beside(&format!("tenant list --page {next} -o json")).await.json();
    assert_eq!(
        (&listed["data"][0]["id"], &rest["data"][0]["id"]),
        (&json!(other_id), &json!(id))
    );

    assert!(
        beside(&format!("tenant resume {id}"))
            .await
            .ok()
            .contains("resumed")
    );
    assert!(
        beside(&format!("key revoke --tenant {id} {key_id} --yes"))
            .await
            .ok()
            .contains("revoked")
    );
    for line in [
        &format!("tenant delete {other_id}"),
        &format!("key revoke --tenant {id} {key_id}"),
        "token-key rotate --compromised",
    ] {
        let unsure = remote(line).await;
        assert_eq!(unsure.code, Some(2), "{line}");
        assert!(unsure.stderr.contains("--yes"), "{}", unsure.stderr);
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
    let errors = [
        sides.beside(&format!("tenant get {nobody}")).await,
        sides.remote(&format!("tenant get {nobody}")).await,
    ];
    assert_eq!(errors[0].stderr, errors[1].stderr);
    assert!(
        errors
            .iter()
            .all(|run| run.code == Some(3) && run.stderr.contains("not found"))
    );
    let wrong = [("KEEPSAKE_OPERATOR_TOKEN", "not-the-token")];
    let wrong = keepsake_with(&["tenant", "list", "--server", &sides.operator.url()], &wrong).await;
    assert!(
        wrong.code == Some(5) && wrong.stderr.contains("token"),
        "{}",
        wrong.stderr
    );
    // The public listener does not have the operator's routes, and the other way round.
    let token = [("KEEPSAKE_OPERATOR_TOKEN", sides.operator.token.as_str())];
    let public = keepsake_with(&["tenant", "list", "--server", &sides.server.url()], &token).await;
    assert_eq!(public.code, Some(3), "{}", public.stderr);
    assert!(public.stderr.contains("(operator.listen)"), "{}", public.stderr);
    let person = [
        "store",
        "list",
        "--url",
        &sides.operator.url(),
        "--api-key",
        "ks_live_x",
    ];
    let person = keepsake(&person).await;
    assert_eq!(person.code, Some(3), "{}", person.stderr);
    assert!(person.stderr.contains("(server.listen)"), "{}", person.stderr);
    for (url, code, cause) in [
        ("localhost:8081", 2, "it must start with http:// or https://"),
        ("http://127.0.0.1:9", 6, "http://127.0.0.1:9 cannot be reached: "),
    ] {
        let failed = keepsake_with(&["tenant", "list", "--server", url], &token).await;
        assert_eq!(failed.code, Some(code), "{}", failed.stderr);
        assert!(failed.stderr.contains(cause), "{}", failed.stderr);
        assert!(
            !failed.stderr.contains("error sending request"),
            "{}",
            failed.stderr
        );
    }
    let without = keepsake(&["tenant", "list", "--server", &sides.operator.url()]).await;
    assert_eq!(without.code, Some(2));
    assert!(
        without.stderr.contains("KEEPSAKE_OPERATOR_TOKEN"),
        "{}",
        without.stderr
    );
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
    let made = run("tenant create --name one --limit bytes_per_memory=2048")
        .await
        .ok();
    let id = made
        .split("created the tenant ")
        .nth(1)
        .unwrap()
        .trim()
        .to_owned();
    run("job run reconcile-usage").await.ok();
    for (line, shown) in [
        (
            "tenant list",
            vec!["ID ", "STATUS", "NAME", "EXTERNAL ID", "CREATED", "active"],
        ),
        (&format!("tenant get {id}"), vec!["bytes_per_memory=2.00 KiB"]),
        (
            &format!("tenant usage {id}"),
            vec!["LIMIT", "bytes_per_memory", "2.00 KiB", "30 days"],
        ),
        ("tenant audit", vec!["ACTOR", "operator_cli", "tenant.create"]),
        (
            "job list",
            vec![
                "SCHEDULE",
                "daily at 00:05 UTC, next in ",
                "every minute",
                "stores=",
            ],
        ),
        (
            "job history reconcile-usage",
            vec!["ASKED FOR BY", "done", "drifted_stores=0"],
        ),
        ("verify", vec!["0 blobs of 0 B, ", "1 tenant: all is well"]),
        (
            "config check --connect",
            vec!["[index]", "KEY ", "STEP", "RESULT", "index.url", "connect"],
        ),
    ] {
        let printed = console::strip_ansi_codes(&run(line).await.ok()).into_owned();
        for words in shown {
            assert!(printed.contains(words), "{line} lacks {words}: {printed}");
        }
        assert!(!printed.contains("{\""), "{line}: {printed}");
    }
    // A person confirms at the terminal.
    let deleted = run(&format!("tenant delete {id}")).await.ok();
    assert!(
        deleted.contains("with all its data, permanently? [y/N]") && deleted.contains("is being deleted"),
        "{deleted}"
    );
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
    let run = async |arguments: &[&str]| {
        keepsake(&[arguments, &["--config", &file, "-o", "json"]].concat())
            .await
            .json()
    };
    let id = text(&run(&["tenant", "create", "--name", "one"]).await["id"]);
    let key = run(&[
        "key",
        "create",
        "--tenant",
        &id,
        "--name",
        "k",
        "--scope",
        "stores:admin",
        "--scope",
        "memory:read",
        "--scope",
        "memory:write",
    ])
    .await;
    let secret = text(&key["api_key"]);
    secrets::remember(&secret, "an API key");
    let mut server = Server::start(command).await;
    write(&Client::new(&server.url(), &secret)).await;
    server.end().await;
    let usage = run(&["tenant", "usage", &id]).await;
    assert_eq!(
        (&usage["memories"], &usage["content_bytes"]),
        (&json!(2), &json!(15))
    );
    assert_eq!(run(&["tenant", "suspend", &id]).await["status"], "suspended");
    server.restart().await;
    assert_eq!(Client::new(&server.url(), &secret).get(STORES).await.status, 401);
    server.end().await;
    assert_eq!(
        run(&["tenant", "delete", &id, "--yes"]).await["status"],
        "removing"
    );
    remove(&deployment, &id).await;
    assert_nothing_is_left(&deployment, &id).await;
    assert_eq!(run(&["tenant", "deletion", &id]).await["status"], "done");
}

#[tokio::test(flavor = "multi_thread")]
async fn signing_key_is_rotated_locally_and_over_http_and_audited() {
    let sides = Sides::new().await;
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
    assert_eq!(
        (&rotated["type"], &rotated["id"]),
        (&json!("token_key"), &json!("token-2"))
    );
    ok(&old.get(&path).await);
    let shown = sides.beside("token-key rotate").await.ok();
    assert!(
        shown.starts_with("the new token signing key is token-3, which signs from "),
        "{shown}"
    );
    ok(&holder_of(&issued().await).get(&path).await);

    let rotated = sides
        .remote("token-key rotate --compromised --yes -o json")
        .await
        .json();
    assert_eq!(rotated["id"], "token-4");
    // A verified token is cached as long as a key.
    let is_refused = async || old.get(&path).await.status == 401;
    eventually(
        "a distrusted token is refused",
        Duration::from_secs(5),
        is_refused,
    )
    .await;
    refused(&old.get(&path).await, 401, "authentication_error");
    ok(&holder_of(&issued().await).get(&path).await);

    let audit = sides.operator.get("/admin/v1/audit?limit=100").await;
    let entries = audit["data"].as_array().unwrap().iter();
    let told: Vec<_> = entries
        .filter(|entry| text(&entry["action"]).starts_with("token_key."))
        .map(|entry| {
            (
                text(&entry["actor"]),
                text(&entry["action"]),
                entry["object_id"].clone(),
            )
        })
        .collect();
    let entry = |actor: &str, action: &str| (actor.to_owned(), action.to_owned(), Value::Null);
    assert_eq!(
        told,
        [
            entry("operator", "token_key.distrust"),
            entry("operator_cli", "token_key.rotate"),
            entry("operator", "token_key.rotate"),
        ]
    );
}
