//! `keepsake copy` between two servers, one of them behind a proxy that has only the official API.

use keepsake_testkit::{OfficialProxy, Seed};
use proptest::prelude::Rng;
use proptest::test_runner::{Config, TestRunner};
use tokio::io::AsyncReadExt;

use super::*;

/// The number of memories of a random history, instead of 40.
const MEMORIES: &str = "KEEPSAKE_TEST_COPY_MEMORIES";
/// The seconds of random edits, instead of some rounds.
pub(super) const SECONDS: &str = "KEEPSAKE_TEST_SYNC_SECONDS";
const ROUNDS: usize = 3;
const EDITS_PER_ROUND: usize = 20;

pub(super) fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok().map(|number| number.parse().unwrap())
}

/// Two people with a server each; `from` and `to` are what the command gets.
struct Servers {
    source: Person,
    target: Person,
    from: String,
    to: String,
}

impl Servers {
    async fn new() -> Self {
        let (source, target) = (Person::new().await, Person::new().await);
        let (from, to) = (source.server.url(), target.server.url());
        Self { source, target, from, to }
    }

    fn variables(&self) -> [(&'static str, &str); 3] {
        [
            ("KEEPSAKE_FROM_API_KEY", &self.source.tenant.key),
            ("KEEPSAKE_TO_API_KEY", &self.target.tenant.key),
            ("XDG_CONFIG_HOME", self.source.home.path().to_str().unwrap()),
        ]
    }

    fn line(&self, more: &str) -> String {
        format!("copy --from {}#notes --to {}#notes {more}", self.from, self.to)
    }

    async fn copy(&self, more: &str) -> Run {
        keepsake_with(&words(&self.line(more)), &self.variables()).await
    }
}

pub(super) struct Edits {
    runner: TestRunner,
    made: usize,
}

impl Edits {
    pub(super) fn new(seed: &Seed) -> Self {
        Self { runner: seed.runner(Config::default()), made: 0 }
    }

    pub(super) fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.runner.rng().next_u32()).unwrap() % end
    }

    pub(super) fn content(&mut self, side: &str) -> String {
        self.made += 1;
        let long = "é".repeat(self.below(200));
        format!("{side} {} {long}\n", self.made)
    }

    /// Makes, changes, moves or deletes a memory; answers the content that the store has taken.
    pub(super) async fn make(&mut self, store: &Store, paths: &[impl std::fmt::Display]) -> Option<String> {
        let [path, other] = [(); 2].map(|()| format!("/{}", paths[self.below(paths.len())]));
        let (action, content) = (self.below(10), self.content("store"));
        let found = ok(&store.client.get(&format!("{}?path={path}", store.memories())).await);
        let memory = &found["data"][0];
        let answer = match action {
            _ if memory.is_null() => store.try_create(&path, &content).await,
            0..5 => store.try_update(memory, &json!({"content": content})).await,
            5 => store.try_update(memory, &json!({"path": other, "content": content})).await,
            6..8 => store.try_update(memory, &json!({"path": other})).await,
            _ => delete(&store.client, &store.memory(memory)).await,
        };
        assert!(matches!(answer.status, 200 | 404 | 409), "{path}: {}", answer.text);
        (answer.status == 200 && (memory.is_null() || action <= 5)).then_some(content)
    }
}

/// Copies and follows during random edits, with the proxy before one of the servers.
async fn follow(is_source_official: bool) {
    let seed = Seed::new();
    let mut servers = Servers::new().await;
    let official = if is_source_official { &mut servers.from } else { &mut servers.to };
    let proxy = OfficialProxy::start(official, true, Some(seed.runner(Config::default()))).await;
    proxy.url().clone_into(official);
    // Some names are a file and a directory by turns.
    let count = usize::try_from(number(MEMORIES).unwrap_or(40)).unwrap();
    let name = |number: usize| match number % 7 {
        0 => format!("d{}", number / 20),
        1 => format!("d{}/deep/{number}.md", number / 20),
        _ => format!("n/{number}.md"),
    };
    let paths: Vec<_> = (0..count).map(name).collect();
    let (store, mut edits) = (servers.source.store(), Edits::new(&seed));
    for _ in 0..count * 2 {
        edits.make(&store, &paths).await;
    }
    let started = Instant::now();
    let line = servers.line("--follow --every 1s -o jsonl");
    let mut running = start_keepsake(&words(&line), &servers.variables());
    let is_equal = async || servers.target.texts().await == servers.source.texts().await;
    let seconds = number(SECONDS);
    for round in 0.. {
        for _ in 0..EDITS_PER_ROUND {
            edits.make(&store, &paths).await;
        }
        match seconds {
            Some(seconds) if started.elapsed() > Duration::from_secs(seconds) => break,
            Some(_) => {}
            None => soon("both are equal", is_equal).await,
        }
        if seconds.is_none() && round == ROUNDS {
            break;
        }
    }
    let expected = servers.source.texts().await;
    let edited = started.elapsed();
    soon("both are equal", async || servers.target.texts().await == expected).await;
    let behind = started.elapsed().saturating_sub(edited);
    signal(running.id().unwrap(), "INT").await;
    let mut printed = [String::new(), String::new()];
    running.stdout.take().unwrap().read_to_string(&mut printed[0]).await.unwrap();
    running.stderr.take().unwrap().read_to_string(&mut printed[1]).await.unwrap();
    assert_eq!(running.wait().await.unwrap().code(), Some(0), "{printed:?}");
    let receipt: Value = serde_json::from_str(printed[0].lines().next_back().unwrap()).unwrap();
    let store = &receipt["stores"][0];
    let told = json!([receipt["complete"], store["verified"], store["data"]]);
    assert_eq!(told, json!([true, expected.len(), []]), "{printed:?}");
    assert_eq!(servers.target.texts().await, expected);
    assert_eq!(proxy.refused(), ["GET /v1/tools no such route"]);
    eprintln!("{} edits, {} memories, {behind:?} behind: {}", edits.made, expected.len(), store["counts"]);
    // Another run, which remembers nothing, finds nothing to do.
    servers.copy("").await.ok();
    assert_eq!(servers.target.texts().await, expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn store_is_followed_from_and_to_another_makers_server_through_the_official_api() {
    join_all([true, false].map(|is_source_official| Box::pin(follow(is_source_official)))).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_target_cannot_hold_is_told_before_anything_is_written() {
    let mut servers = Servers::new().await;
    let proxy = OfficialProxy::start(&servers.to, true, None).await;
    proxy.url().clone_into(&mut servers.to);
    for (path, content) in
        [("a.md", "one\n"), ("b.md", "2\n"), ("b.md", "3\n"), ("c.md", "equal\n"), ("e.md", "5\n")]
    {
        servers.source.put(path, content).await;
    }
    servers.source.ok("memory pin a.md").await;
    servers.source.ok("store update notes --search-mode lexical").await;
    for (path, content) in [("b.md", "other\n"), ("c.md", "equal\n"), ("d.md", "own\n"), ("e.md", "6\n")] {
        servers.target.put(path, content).await;
    }
    let before = servers.target.texts().await;

    servers.copy("").await.ends(4, "something else at 2 paths, the first is /memories/b.md");
    let refused = servers.copy("--dry-run -o json").await;
    refused.ends(4, "something else at 2 paths");
    let planned: Value = serde_json::from_str(&refused.stdout).unwrap();
    let store = &planned["stores"][0];
    let mut conflicts = store["data"].as_array().unwrap().clone();
    conflicts.retain(|item| item["result"] == "refused");
    assert_eq!(strings(&conflicts, "path"), ["/b.md", "/e.md"]);
    let told = json!([planned["complete"], store["counts"]["refused"], store["not_shown"]]);
    assert_eq!(told, json!([false, 2, 0]));
    servers.copy("--strict --on-conflict skip").await.ends(1, "cannot hold: 1 pin");
    let planned = servers.copy("--dry-run --on-conflict replace --delete -o json").await.json();
    let store = &planned["stores"][0];
    let items = store["data"].as_array().unwrap();
    assert_eq!(strings(items, "result"), ["created", "replaced", "deleted", "replaced"]);
    assert_eq!(strings(items, "path"), ["/a.md", "/b.md", "/d.md", "/e.md"]);
    assert_eq!(strings(store["not_held"].as_array().unwrap(), "kind"), ["expiry", "store", "history"]);
    assert_eq!(servers.target.texts().await, before);

    for (more, told) in [
        ("--on-conflict skip", "1 created, 1 unchanged, 2 skipped, 1 only in the target; 2 verified\n"),
        ("--on-conflict replace --delete", "2 replaced, 1 deleted, 2 unchanged; 4 verified\n"),
    ] {
        let copied = servers.copy(more).await.ok();
        assert!(copied.ends_with(&format!("notes to notes: {told}")), "{copied}");
    }
    assert_eq!(servers.target.texts().await, servers.source.texts().await);
    let refused = proxy.refused();
    assert!(refused.iter().all(|call| call == "GET /v1/tools no such route"), "{refused:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn history_of_another_makers_server_without_hashes_is_copied_into_a_new_store() {
    let mut servers = Servers::new().await;
    let proxy = OfficialProxy::start(&servers.from, false, None).await;
    proxy.url().clone_into(&mut servers.from);
    let tests = (".keepsake/tests.yaml", "tests:\n- max_files: 9\n");
    for (path, content) in
        [("a.md", "one\n"), ("a.md", "two\n"), ("b.md", "gone\n"), ("c/d.md", "three\n"), tests]
    {
        servers.source.put(path, content).await;
    }
    servers.source.ok("memory rm b.md --yes").await;
    let line = format!("copy --from {}#notes --to {}#copied --versions --strict", servers.from, servers.to);
    let copied = keepsake_with(&words(&line), &servers.variables()).await.ok();
    assert!(copied.ends_with("notes to copied, which was created: 3 created; 2 verified\n"), "{copied}");
    let client = servers.target.client();
    let stores = client.all("/v1/memory_stores?limit=20").await;
    let store = stores.iter().find(|store| store["name"] == "copied").unwrap();
    let store = Store::new(&client, text(&store["id"]));
    let made = client.all(&format!("{}?view=full", store.versions())).await;
    let versions = |versions: &[Value]| -> Vec<Value> {
        let fields = ["operation", "path", "content", "created_at"];
        versions.iter().map(|version| fields.map(|field| version[field].clone()).into()).collect()
    };
    assert_eq!(versions(&made), versions(&servers.source.listed("memory_versions?view=full").await));
    // Without a store in the arguments, all are copied to those of the same names.
    servers.source.ok("memory rm .keepsake/tests.yaml --yes").await;
    let all = format!("copy --from {} --to {}", servers.from, servers.to);
    let copied = keepsake_with(&words(&all), &servers.variables()).await.ok();
    assert!(copied.ends_with("notes to notes: 2 created; 2 verified\n"), "{copied}");
    assert_eq!(servers.target.texts().await, servers.source.texts().await);
}
