use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::process::Child;

use super::Person;
use crate::support::command::start_keepsake;
use crate::support::holding_proxy::HoldingProxy;
use crate::support::{Pair, eventually};

mod histories;
mod hostile;
mod sources;

/// Files below a folder with their contents, by their paths.
fn files(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(current) = folders.pop() {
        for item in fs::read_dir(&current).unwrap() {
            let path = item.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else {
                let name = path.strip_prefix(folder).unwrap().to_owned();
                found.insert(name, fs::read(&path).unwrap());
            }
        }
    }
    found
}

/// The lines of a file of JSON lines.
fn lines(file: &Path) -> Vec<Value> {
    let text = fs::read_to_string(file).unwrap();
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

/// The index but for ids and times.
fn lasting(archive: &Path) -> Vec<Value> {
    let mut entries = lines(&archive.join("index.jsonl"));
    for entry in &mut entries {
        for field in ["id", "version_id", "created_at", "updated_at", "expires_at"] {
            entry.as_object_mut().unwrap().remove(field).unwrap();
        }
    }
    entries
}

impl Person {
    /// A path in the home folder.
    fn path(&self, name: &str) -> String {
        self.home.path().join(name).to_string_lossy().into_owned()
    }

    /// Creates a memory through the API.
    async fn create(&self, path: &str, content: &str) -> String {
        let client = self.server.client(&self.tenant);
        let route = format!("/v1/memory_stores/{}/memories", self.tenant.store_id);
        let made = client
            .post(&route, &json!({"path": path, "content": content}))
            .await;
        assert_eq!(made.status, 200, "{}", made.text);
        made.json()["id"].as_str().unwrap().to_owned()
    }

    /// Many small memories.
    async fn create_many(&self, count: usize) {
        let folder = self.home.path().join("many");
        fs::create_dir(&folder).unwrap();
        for number in 0..count {
            fs::write(folder.join(format!("{number}.md")), format!("number {number}\n")).unwrap();
        }
        self.run(&["import", &folder.to_string_lossy()]).await.ok();
    }

    /// Creates another store, which the arguments name.
    async fn copy(&self) -> [&'static str; 2] {
        self.run(&["store", "create", "copy"]).await.ok();
        ["--store", "copy"]
    }

    /// The paths and contents of the memories, as `memory ls` lists them.
    async fn contents(&self, store: &[&str]) -> BTreeMap<String, Value> {
        let arguments = [&["memory", "ls", "-R", "-o", "jsonl"], store].concat();
        let listed = self.run(&arguments).await.ok();
        let listed = listed
            .lines()
            .map(|line| serde_json::from_str::<Value>(line).unwrap());
        listed
            .map(|memory| {
                (
                    memory["path"].as_str().unwrap().to_owned(),
                    memory["content_sha256"].clone(),
                )
            })
            .collect()
    }

    /// Starts a command through a proxy, and returns it when a request is held.
    async fn run_until_held(&self, arguments: &[&str], more: &[(&str, &str)], proxy: &HoldingProxy) -> Child {
        let url = proxy.url();
        let mut variables = self.variables();
        variables.retain(|(name, _)| *name != "KEEPSAKE_URL");
        variables.push(("KEEPSAKE_URL", url));
        let given = variables.iter().map(|(name, value)| (*name, value.as_str()));
        let variables: Vec<_> = given.chain(more.iter().copied()).collect();
        let mut child = start_keepsake(arguments, &variables);
        tokio::select! {
            () = proxy.held() => {}
            ended = child.wait() => panic!("ended too early: {ended:?}"),
        }
        child
    }
}

async fn round_trip(pair: Pair, extension: &str) {
    let person = Person::on(pair).await;
    let long = format!("/{}.md", "n".repeat(300));
    for (path, content) in [
        ("/notes/plan.md", "one\r\ntwo"),
        ("/notes/PLAN.md", "another case\n"),
        ("/Grüße/日本.md", "🎉\n"),
        ("/empty", ""),
        (long.as_str(), "long name\n"),
        ("/same", "one\r\ntwo"),
    ] {
        person.create(path, content).await;
    }
    let changed = person.create("/changed.md", "before\n").await;
    person.put("changed.md", "after\n").await;
    person.run(&["memory", "pin", "changed.md"]).await.ok();
    person.create("/deleted.md", "deleted\n").await;
    person.run(&["memory", "rm", "deleted.md", "-y"]).await.ok();
    let redacted = person.create("/redacted.md", "secret\n").await;
    person.put("redacted.md", "public\n").await;
    let history = person
        .run(&["memory", "log", "--memory", &redacted, "-o", "json"])
        .await
        .json();
    let version = history["data"][1]["id"].as_str().unwrap();
    person.run(&["memory", "redact", version, "-y"]).await.ok();

    let first = person.path(&format!("first{extension}"));
    let manifest = person
        .run(&["export", &first, "--versions", "-o", "json"])
        .await
        .json();
    assert_eq!(manifest["counts"]["memories"], 8);
    assert_eq!(manifest["counts"]["versions"], 12);
    let copy = person.copy().await;
    let imported = person
        .run(&[&["import", first.as_str()], copy.as_slice()].concat())
        .await
        .ok();
    assert_eq!(
        imported,
        "8 created, 0 replaced, 0 unchanged, 0 skipped, 0 refused\n"
    );
    for (name, store) in [("one", &[][..]), ("two", &copy)] {
        let folder = person.path(name);
        person.run(&[&["export", &folder], store].concat()).await.ok();
    }
    let (one, two) = (person.home.path().join("one"), person.home.path().join("two"));
    assert_eq!(lasting(&one), lasting(&two));
    assert_eq!(files(&one.join("memories")), files(&two.join("memories")));
    assert_eq!(files(&one.join("blobs")), files(&two.join("blobs")));
    assert_eq!(
        fs::read(one.join("memories/Grüße/日本.md")).unwrap(),
        "🎉\n".as_bytes()
    );
    let elsewhere = lasting(&one);
    let elsewhere = elsewhere.iter().filter(|entry| entry["file"].is_string());
    assert_eq!(elsewhere.count(), 2, "the long name and the other case");

    if extension.is_empty() {
        let versions = lines(&Path::new(&first).join("versions.jsonl"));
        let of = |id: &str| {
            let of = versions.iter().filter(|version| version["memory_id"] == id);
            of.map(|version| version["operation"].as_str().unwrap())
                .collect::<Vec<_>>()
        };
        assert_eq!(of(&changed), ["created", "modified"]);
        let blobs: Vec<_> = files(&Path::new(&first).join("blobs"))
            .into_values()
            .map(|content| String::from_utf8(content).unwrap())
            .collect();
        for content in ["before\n", "deleted\n"] {
            assert!(blobs.iter().any(|blob| blob == content), "{content}");
        }
        assert!(!blobs.iter().any(|blob| blob == "secret\n"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn round_trip_is_equal_on_sqlite() {
    round_trip(Pair::Sqlite, "").await;
    round_trip(Pair::Sqlite, ".tar.zst").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn round_trip_is_equal_on_postgres_and_s3() {
    round_trip(Pair::PostgresS3, "").await;
    round_trip(Pair::PostgresS3, ".tar.zst").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_export_is_continued() {
    let person = Person::new().await;
    person.create_many(60).await;
    let target = person.path("archive.tar.zst");
    let proxy = HoldingProxy::start(&person.server.url(), "/memories/mem_", 40).await;
    let mut export = person.run_until_held(&["export", &target], &[], &proxy).await;
    export.kill().await.unwrap();
    assert!(!Path::new(&target).exists());
    let unfinished = person.path("archive.tar.zst.partial");
    let refused = person.run(&["import", &unfinished]).await;
    assert_eq!(refused.code, Some(1));
    assert!(
        refused.stderr.contains("is an unfinished export"),
        "{}",
        refused.stderr
    );
    let before = files(&Path::new(&unfinished).join("memories")).len();
    assert!(before >= 30, "{before}");

    let copy = person.copy().await;
    let other = person
        .run(&[&["export", target.as_str()], copy.as_slice()].concat())
        .await;
    assert_eq!(other.code, Some(4));
    assert!(
        other.stderr.contains("is an unfinished export of memstore_"),
        "{}",
        other.stderr
    );

    let counter = HoldingProxy::start(&person.server.url(), "/memories/mem_", usize::MAX).await;
    let url = counter.url();
    person
        .run_with(&["export", &target], &[("KEEPSAKE_URL", &url)], "")
        .await
        .ok();
    assert!(counter.seen() <= 60 - before, "{} of {before}", counter.seen());
    assert!(!Path::new(&unfinished).exists());
    person
        .run(&[&["import", target.as_str()], copy.as_slice()].concat())
        .await
        .ok();
    assert_eq!(person.contents(&[]).await, person.contents(&copy).await);
    let again = person.run(&["export", &target]).await;
    assert_eq!(again.code, Some(4));
}

impl Person {
    /// Moves the last memories of the list to its beginning while a reader has the first
    /// page, and lets the reader end.
    async fn move_behind_reader(&self, arguments: &[&str], more: &[(&str, &str)], proxy: &HoldingProxy) {
        let reader = self.run_until_held(arguments, more, proxy).await;
        for path in self.contents(&[]).await.keys().rev().take(15) {
            let name = path.trim_start_matches('/');
            self.run(&["memory", "mv", name, &format!("!{name}")]).await.ok();
        }
        self.run(&["memory", "rm", "1.md", "--yes"]).await.ok();
        self.create("/1.md", "another memory").await;
        proxy.release();
        let ended = reader.wait_with_output().await.unwrap();
        assert!(ended.status.success(), "{ended:?}");
    }

    /// A proxy that holds the second page of a list.
    async fn proxy_of_lists(&self) -> HoldingProxy {
        HoldingProxy::start(&self.server.url(), "/memories?", 1).await
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn memories_that_move_while_a_store_is_read_are_all_read() {
    let person = Person::new().await;
    person.create_many(120).await;
    let target = person.path("archive");
    let proxy = person.proxy_of_lists().await;
    person.move_behind_reader(&["export", &target], &[], &proxy).await;
    let expected = person.contents(&[]).await;
    assert_eq!(expected.len(), 120);
    let copy = person.copy().await;
    person
        .run(&[&["import", target.as_str()], copy.as_slice()].concat())
        .await
        .ok();
    assert_eq!(person.contents(&copy).await, expected);

    person.run(&["store", "create", "other"]).await.ok();
    let (proxy, url) = (person.proxy_of_lists().await, person.server.url());
    let from = [
        "import",
        "--from-url",
        &proxy.url(),
        "--from-store",
        "notes",
        "--store",
        "other",
    ];
    let keys = [
        ("KEEPSAKE_FROM_API_KEY", person.tenant.key.as_str()),
        ("KEEPSAKE_URL", &url),
    ];
    person.move_behind_reader(&from, &keys, &proxy).await;
    assert_eq!(
        person.contents(&["--store", "other"]).await,
        person.contents(&[]).await
    );

    let (proxy, folder) = (person.proxy_of_lists().await, person.path("folder"));
    person.move_behind_reader(&["sync", &folder], &[], &proxy).await;
    let files = files(Path::new(&folder)).into_keys();
    let files: Vec<_> = files.filter(|file| !file.starts_with(".keepsake")).collect();
    let memories: Vec<_> = person.contents(&[]).await.into_keys().collect();
    let memories: Vec<_> = memories
        .iter()
        .map(|path| PathBuf::from(path.trim_start_matches('/')))
        .collect();
    assert_eq!(files, memories);
}

#[tokio::test(flavor = "multi_thread")]
async fn temporary_folder_is_private_and_a_killed_import_leaves_it_to_the_next() {
    let person = Person::new().await;
    person.create("/a.md", "a secret\n").await;
    let archive = person.path("archive.tar.zst");
    person.run(&["export", &archive]).await.ok();
    let temporary = person.home.path().join("tmp");
    fs::create_dir(&temporary).unwrap();
    let temporary_name = temporary.to_string_lossy().into_owned();
    let folders = || fs::read_dir(&temporary).unwrap().count();
    let import = ["import", &archive];
    let again = async || {
        let variables = [("TMPDIR", temporary_name.as_str())];
        person.run_with(&import, &variables, "").await.ok();
    };

    let proxy = HoldingProxy::start(&person.server.url(), "get ", 0).await;
    let variables = [("TMPDIR", temporary_name.as_str())];
    let mut held = person.run_until_held(&import, &variables, &proxy).await;
    assert_eq!(folders(), 1);
    let mut found = vec![temporary.read_dir().unwrap().next().unwrap().unwrap().path()];
    while let Some(path) = found.pop() {
        let about = path.symlink_metadata().unwrap();
        let mode = about.permissions().mode() & 0o777;
        assert_eq!(
            mode,
            if about.is_dir() { 0o700 } else { 0o600 },
            "{}",
            path.display()
        );
        if about.is_dir() {
            found.extend(path.read_dir().unwrap().map(|item| item.unwrap().path()));
        }
    }
    again().await;
    assert_eq!(folders(), 1, "the folder is in use");
    held.kill().await.unwrap();
    assert_eq!(folders(), 1, "nothing removed it");
    again().await;
    assert_eq!(folders(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_import_is_continued() {
    let person = Person::new().await;
    let folder = person.home.path().join("many");
    fs::create_dir(&folder).unwrap();
    for number in 0..1_100 {
        fs::write(folder.join(format!("{number}.md")), format!("number {number}\n")).unwrap();
    }
    let source = folder.to_string_lossy().into_owned();
    let proxy = HoldingProxy::start(&person.server.url(), "/memories/batch", 2).await;
    let mut import = person.run_until_held(&["import", &source], &[], &proxy).await;
    let is_partly_done = async || person.contents(&[]).await.len() >= 200;
    eventually("a batch is written", Duration::from_mins(1), is_partly_done).await;
    import.kill().await.unwrap();
    let before = person.contents(&[]).await.len();
    assert!((200..1_100).contains(&before), "{before}");
    let result = person.run(&["import", &source, "-o", "json"]).await.json();
    let results = result["data"].as_array().unwrap();
    let count = |of: &str| results.iter().filter(|file| file["result"] == of).count();
    assert_eq!(count("created") + count("unchanged"), 1_100);
    assert!(count("unchanged") >= before, "{before}");
    assert_eq!(person.contents(&[]).await.len(), 1_100);
    let log = person
        .run(&["memory", "log", "-n", "2000", "-o", "jsonl"])
        .await
        .ok();
    assert_eq!(log.lines().count(), 1_100, "nothing was written twice");
}

#[tokio::test(flavor = "multi_thread")]
async fn conflict_fails_is_skipped_or_replaced() {
    let person = Person::new().await;
    let folder = person.home.path().join("vault");
    fs::create_dir(&folder).unwrap();
    for (name, content) in [("a.md", "new\n"), ("b.md", "same\n"), ("c.md", "created\n")] {
        fs::write(folder.join(name), content).unwrap();
    }
    let source = folder.to_string_lossy().into_owned();
    person.create("/v/a.md", "old\n").await;
    person.create("/v/b.md", "same\n").await;
    let before = person.contents(&[]).await;
    let import = async |more: &[&str]| {
        let arguments = [&["import", source.as_str(), "--prefix", "v"], more].concat();
        person.run(&arguments).await
    };

    let refused = import(&[]).await;
    assert_eq!(refused.code, Some(4), "{}", refused.stderr);
    assert!(
        refused
            .stderr
            .contains("nothing was imported: the memory store has something else at 1 paths, the first is /memories/v/a.md"),
        "{}",
        refused.stderr
    );
    assert_eq!(person.contents(&[]).await, before);

    let dry = import(&["--on-conflict", "replace", "--dry-run"]).await.ok();
    assert_eq!(
        dry,
        "would be: 1 created, 1 replaced, 1 unchanged, 0 skipped, 0 refused\n"
    );
    assert_eq!(person.contents(&[]).await, before);

    let skipped = import(&["--on-conflict", "skip", "-o", "json"]).await.json();
    let expected = json!({"data": [
        {"path": "/v/a.md", "result": "skipped", "reason": "has other content"},
        {"path": "/v/b.md", "result": "unchanged", "reason": null},
        {"path": "/v/c.md", "result": "created", "reason": null},
    ]});
    assert_eq!(skipped, expected);
    let replaced = import(&["--on-conflict", "replace"]).await.ok();
    assert_eq!(
        replaced,
        "0 created, 1 replaced, 2 unchanged, 0 skipped, 0 refused\n"
    );
    assert_eq!(person.run(&["memory", "cat", "v/a.md"]).await.ok(), "new\n");

    // A directory of the store is in the way of a file, and a memory in that of a directory.
    person.create("/w/a.md/b", "").await;
    person.create("/w/x", "").await;
    fs::create_dir(folder.join("x")).unwrap();
    fs::write(folder.join("x/y.md"), "").unwrap();
    let blocked = person
        .run(&["import", &source, "--prefix", "w", "--on-conflict", "replace"])
        .await;
    assert_eq!(blocked.code, Some(4), "{}", blocked.stderr);
    assert!(
        blocked.stdout.contains("is a directory in the memory store"),
        "{}",
        blocked.stdout
    );
    assert!(
        blocked
            .stdout
            .contains("/memories/w/x is a memory, not a directory"),
        "{}",
        blocked.stdout
    );
}
