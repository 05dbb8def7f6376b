use crate::prelude::*;

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

    async fn beside(&self, line: &str) -> Run {
        run(line, &["--config", &self.config_file], &[]).await
    }

    async fn remote(&self, line: &str) -> Run {
        let token = ("KEEPSAKE_OPERATOR_TOKEN", self.operator.token.as_str());
        run(line, &["--server", &self.operator.url], &[token]).await
    }
}

async fn run(line: &str, more: &[&str], variables: &[(&str, &str)]) -> Run {
    keepsake_with(&[words(line).as_slice(), more].concat(), variables).await
}

#[tokio::test(flavor = "multi_thread")]
async fn commands_print_the_same_and_fail_alike_locally_and_over_http() {
    let sides = Sides::new().await;
    let made = sides.beside("tenant create --name one -o json").await.json();
    let other = sides.remote("tenant create --name two --external-id t+w&o -o json").await.json();
    let (id, other_id) = (text(&made["id"]), text(&other["id"]));
    let create = format!("key create --tenant {id} --name k --expires-in-days 1 -o json");
    sides.remote(&format!("{create} --store notes")).await.ends(2, "with --server, --store takes only");
    let key = sides.remote(&create).await.json();
    secret(&key, "api_key");
    let key_id = text(&key["id"]);
    assert_eq!(key["scopes"], json!(["memory:read", "memory:write"]));
    let update = format!("tenant update {id} --name uno --limit bytes_per_memory=5KB --search-mode hybrid");
    sides.remote(&update).await.ok();
    let limits = "--default-limit bytes_per_memory --limit max_view_chars=7 --search-mode lexical";
    sides.beside(&format!("tenant update {id} {limits}")).await.ok();
    let refused = sides.remote(&format!("tenant update {id} --limit expires_unused_after=99999d")).await;
    refused.ends(1, "the tenant was not changed: `--limit` ");
    sides.remote(&format!("tenant update {id}")).await.ends(2, "nothing says what to change");
    let suspended = sides.remote(&format!("tenant suspend {id}")).await.ok();
    assert_eq!(suspended, format!("suspended the tenant uno ({id})\n"));
    let (url, api_key) = (sides.server.url(), text(&key["api_key"]));
    let variables = [("KEEPSAKE_URL", &*url), ("KEEPSAKE_API_KEY", api_key), ("XDG_CONFIG_HOME", "/nowhere")];
    let doctor = keepsake_with(&["doctor"], &variables).await;
    doctor.ends(1, "1 problem found");
    says(&doctor.stdout, &["the tenant is suspended", "`keepsake tenant resume`"]);

    for line in [
        "tenant list --limit 1",
        "tenant list --external-id t+w&o",
        &format!("tenant get {id}"),
        &format!("tenant usage {id}"),
        &format!("tenant audit {id}"),
        &format!("key list --tenant {id}"),
    ] {
        let line = format!("{line} -o json");
        assert_eq!(sides.beside(&line).await.ok(), sides.remote(&line).await.ok(), "{line}");
    }
    sides.remote("tenant list --limit 1").await.ends(0, "repeat the command with --page page_");
    let shown = sides.remote(&format!("tenant get {id} -o json")).await.json();
    let shown = ["name", "status", "limits", "search_mode"].map(|field| &shown[field]);
    assert_eq!(json!(shown), json!(["uno", "suspended", {"max_view_chars": 7}, "lexical"]));
    let listed = sides.remote("tenant list --limit 1 -o json").await.json();
    let next = text(&listed["next_page"]);
    let rest = sides.beside(&format!("tenant list --page {next} -o json")).await.json();
    assert_eq!([&listed["data"][0]["id"], &rest["data"][0]["id"]], [&other_id, &id]);

    sides.beside(&format!("tenant resume {id}")).await.ok();
    let revoke = format!("key revoke --tenant {id} k");
    let delete = format!("tenant delete {other_id}");
    for line in [delete.as_str(), &revoke, "tenant delete nobody", "token-key rotate --compromised"] {
        sides.remote(line).await.ends(2, "--yes");
    }
    sides.beside(&format!("{revoke} --yes")).await.ok();
    sides.remote(&format!("{delete} --yes")).await.ok();
    let deletion = format!("tenant deletion {other_id} -o json");
    assert_eq!(sides.beside(&deletion).await.json()["id"], other_id);
    assert_eq!(sides.remote(&deletion).await.json()["id"], other_id);
    let again = sides.beside("tenant create --name two -o json").await.json();
    assert_eq!(sides.remote("tenant get two -o json").await.json()["id"], again["id"]);
    let audited = [
        format!("operator_cli tenant.create {}", text(&again["id"])),
        format!("operator_cli tenant.create {id}"),
        format!("operator tenant.create {other_id}"),
        format!("operator api_key.create {key_id}"),
        format!("operator tenant.update {id}"),
        format!("operator_cli tenant.update {id}"),
        format!("operator tenant.suspend {id}"),
        format!("operator_cli tenant.resume {id}"),
        format!("operator_cli api_key.revoke {key_id}"),
        format!("operator tenant.delete {other_id}"),
    ];
    assert_eq!(sides.operator.audit("/admin/v1/audit").await, BTreeSet::from(audited));
    let twin = format!("another tenant has this name: {}", text(&again["id"]));
    sides.beside("tenant create --name two").await.ends(0, &twin);

    let words_of = |run: Run| run.ok().split_whitespace().collect::<Vec<_>>().join(" ");
    says(
        &words_of(sides.beside(&format!("tenant audit {id}")).await),
        &[
            "operator, by a command revoked an API key k",
            "operator changed a tenant: bytes_per_memory default → 5KB, name, search_mode default → hybrid uno",
            "changed a tenant: bytes_per_memory 5KB → default, max_view_chars default → 7, search_mode hybrid → lexical",
        ],
    );
    let with_ids = words_of(sides.remote(&format!("tenant audit {id} --ids")).await);
    says(&with_ids, &["operator_cli revoked an API key apikey_"]);
    let listed = words_of(sides.remote("tenant audit").await);
    says(&listed, &["created a tenant", "two ", &format!("created an API key {key_id} uno ")]);

    let unknown = "tenant get wrkspc_00000000000000000000000001";
    for run in [sides.beside(unknown).await, sides.remote(unknown).await] {
        run.ends(3, "not found");
    }
    wrong_servers_and_tokens_are_named(&sides).await;
}

async fn wrong_servers_and_tokens_are_named(sides: &Sides) {
    let (url, token) = (sides.operator.url.as_str(), sides.operator.token.as_str());
    let public = sides.server.url();
    // The public listener does not have the operator's routes, and the other way round.
    let scheme = "it must start with http:// or https://: write http://localhost:8081, or";
    for (url, token, code, cause) in [
        (url, "not-the-token", 5, "token"),
        (&public, token, 3, "(operator.listen)"),
        ("localhost:8081", token, 2, scheme),
        ("http://127.0.0.1:9", token, 6, "http://127.0.0.1:9 cannot be reached: "),
    ] {
        let token = [("KEEPSAKE_OPERATOR_TOKEN", token)];
        run("tenant list", &["--server", url], &token).await.ends(code, cause);
    }
    run("store list", &["--url", url, "--api-key", "ks_live_x"], &[]).await.ends(3, "(server.listen)");
    run("tenant list", &["--server", url], &[]).await.ends(2, "KEEPSAKE_OPERATOR_TOKEN");
}

#[tokio::test(flavor = "multi_thread")]
async fn deletion_of_a_tenant_is_confirmed_in_a_terminal() {
    let deployment = Deployment::new(Pair::Sqlite).await;
    let command = deployment.command(&ServerConfig::default());
    let file = command.config_file().display().to_string();
    let made = keepsake(&["tenant", "create", "--name", "one", "-o", "json", "--config", &file]).await.json();
    let id = text(&made["id"]);
    let delete = ["tenant", "delete", &id[..20], "--config", &file];
    let answering = async |answer: &str| keepsake_in_terminal(&delete, &[], 200, answer).await.stdout;
    // An empty answer and the end of the input do not confirm.
    for unsure in ["n\n", "\n", ""] {
        let kept = answering(unsure).await;
        assert!(kept.contains("nothing was changed"), "{unsure:?}: {kept}");
    }
    let deleted = answering("y\n").await;
    let question = format!("Delete the tenant one ({id}) with all its data, permanently? [y/N]");
    says(&deleted, &[&question, &format!("`keepsake tenant deletion {id} --config {file}` shows")]);
}

#[tokio::test(flavor = "multi_thread")]
async fn signing_key_is_rotated_locally_and_over_http_and_audited() {
    let mut sides = Sides::new().await;
    let tenant = sides.deployment.tenant().await;
    let client = sides.server.client(&tenant);
    let session = ok(&client.post("/v1/sessions", &json!({"agent": "a", "environment_id": "e"})).await);
    let path = format!("/v1/sessions/{}", text(&session["id"]));
    let holder_of = |issued: &Value| client.with_key(secret(issued, "token"));
    let old = holder_of(&session);
    let new_holder = async || holder_of(&ok(&client.post(&format!("{path}/token"), &json!({})).await));
    // A planned rotation ends no token.
    let rotated = sides.remote("token-key rotate -o json").await.json();
    assert_eq!(rotated["id"], "token-2");
    let shown = sides.beside("token-key rotate").await.ok();
    assert!(shown.starts_with("the new token signing key is token-3, which signs from "), "{shown}");
    ok(&old.get(&path).await);
    ok(&new_holder().await.get(&path).await);
    let shown = sides.remote("token-key rotate --compromised --yes").await.ok();
    says(&shown, &["tokens that were signed before are refused within about a minute"]);
    // A verified token is cached as long as a key.
    let is_refused = async || old.get(&path).await.status == 401;
    eventually("a distrusted token is refused", Duration::from_secs(5), is_refused).await;
    ok(&new_holder().await.get(&path).await);
    // No later rotation makes it good again, also for a server that knows only the database.
    sides.remote("token-key rotate").await.ok();
    sides.server.end().await;
    sides.server.restart().await;
    refused(&old.get(&path).await, 401, "authentication_error");
    let audit = sides.operator.get("/admin/v1/audit?limit=100").await;
    let entries = audit["data"].as_array().unwrap().iter();
    let entries = entries.map(|entry| ["actor", "action"].map(|name| text(&entry[name])).join(" "));
    let rotations: Vec<_> = entries.filter(|entry| entry.contains(" token_key.")).collect();
    let [rotated, distrusted] = ["operator token_key.rotate", "operator token_key.distrust"];
    assert_eq!(rotations, [rotated, distrusted, "operator_cli token_key.rotate", rotated]);
}
