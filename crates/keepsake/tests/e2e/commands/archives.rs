use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::process::Child;

use super::{Person, words};
use crate::support::command::{borrowed, start_keepsake};
use crate::support::eventually;
use crate::support::holding_proxy::HoldingProxy;

mod histories;
mod hostile;
mod sources;

/// What an import prints: how many were created, replaced, unchanged, skipped and refused.
fn counts([created, replaced, unchanged, skipped, refused]: [u32; 5]) -> String {
    format!(
        "{created} created, {replaced} replaced, {unchanged} unchanged, {skipped} skipped, {refused} refused\n"
    )
}

/// The arguments that name another store.
const COPY: &str = "--store copy";

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
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
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
        let made = client.post(&route, &json!({"path": path, "content": content})).await;
        assert_eq!(made.status, 200, "{}", made.text);
        made.json()["id"].as_str().unwrap().to_owned()
    }

    /// A folder with many small files.
    fn many(&self, count: usize) -> String {
        let folder = self.home.path().join("many");
        fs::create_dir(&folder).unwrap();
        for number in 0..count {
            fs::write(folder.join(format!("{number}.md")), format!("number {number}\n")).unwrap();
        }
        self.path("many")
    }

    /// Many small memories.
    async fn create_many(&self, count: usize) {
        self.ok(&format!("import {}", self.many(count))).await;
    }

    /// Creates the store that [`COPY`] names.
    async fn copy(&self) {
        self.ok("store create copy").await;
    }

    /// The paths and contents of the memories, as `memory ls` lists them.
    async fn contents(&self, store: &str) -> BTreeMap<String, Value> {
        let listed = self.ok(&format!("memory ls -R -o jsonl {store}")).await;
        let listed = listed.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        let each = listed.map(|memory| {
            let path = memory["path"].as_str().unwrap().to_owned();
            (path, memory["content_sha256"].clone())
        });
        each.collect()
    }

    /// Starts a command through a proxy, and returns it when a request is held.
    async fn run_until_held(&self, line: &str, more: &[(&str, &str)], proxy: &HoldingProxy) -> Child {
        let url = proxy.url();
        let variables = self.variables();
        let through = [("KEEPSAKE_URL", url.as_str())];
        let variables = [borrowed(&variables).as_slice(), &through, more].concat();
        let mut child = start_keepsake(&words(line), &variables);
        tokio::select! {
            () = proxy.held() => {}
            ended = child.wait() => panic!("ended too early: {ended:?}"),
        }
        child
    }
}

async fn round_trip(extension: &str) {
    let person = Person::new().await;
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
    person.ok("memory pin changed.md").await;
    person.create("/deleted.md", "deleted\n").await;
    person.ok("memory rm deleted.md -y").await;
    let redacted = person.create("/redacted.md", "secret\n").await;
    person.put("redacted.md", "public\n").await;
    let history = person.json(&format!("memory log --memory {redacted} -o json")).await;
    let version = history["data"][1]["id"].as_str().unwrap();
    person.ok(&format!("memory redact {version} -y")).await;

    let first = person.path(&format!("first{extension}"));
    let manifest = person.json(&format!("export {first} --versions -o json")).await;
    assert_eq!(manifest["counts"]["memories"], 8);
    assert_eq!(manifest["counts"]["versions"], 12);
    person.copy().await;
    let imported = person.ok(&format!("import {first} {COPY}")).await;
    assert_eq!(imported, counts([8, 0, 0, 0, 0]));
    for (name, store) in [("one", ""), ("two", COPY)] {
        let folder = person.path(name);
        person.ok(&format!("export {folder} {store}")).await;
    }
    let (one, two) = (person.home.path().join("one"), person.home.path().join("two"));
    assert_eq!(lasting(&one), lasting(&two));
    for name in ["memories", "blobs"] {
        assert_eq!(files(&one.join(name)), files(&two.join(name)));
    }
    let text = fs::read_to_string(one.join("memories/Grüße/日本.md"));
    assert_eq!(text.unwrap(), "🎉\n");
    let elsewhere = lasting(&one);
    let elsewhere = elsewhere.iter().filter(|entry| entry["file"].is_string());
    assert_eq!(elsewhere.count(), 2, "the long name and the other case");

    if extension.is_empty() {
        let versions = lines(&Path::new(&first).join("versions.jsonl"));
        let of = |id: &str| {
            let of = versions.iter().filter(|version| version["memory_id"] == id);
            of.map(|version| version["operation"].as_str().unwrap()).collect::<Vec<_>>()
        };
        assert_eq!(of(&changed), ["created", "modified"]);
        let blobs: Vec<_> = files(&Path::new(&first).join("blobs")).into_values().collect();
        for (content, is_there) in [("before\n", true), ("deleted\n", true), ("secret\n", false)] {
            let found = blobs.iter().any(|blob| blob == content.as_bytes());
            assert_eq!(found, is_there, "{content}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn round_trip_is_equal() {
    round_trip("").await;
    round_trip(".tar.zst").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_export_is_continued() {
    let person = Person::new().await;
    person.create_many(60).await;
    let target = person.path("archive.tar.zst");
    let proxy = HoldingProxy::start(&person.server.url(), "/memories/mem_", 40).await;
    let export = format!("export {target}");
    let mut killed = person.run_until_held(&export, &[], &proxy).await;
    killed.kill().await.unwrap();
    assert!(!Path::new(&target).exists());
    let unfinished = person.path("archive.tar.zst.partial");
    person.ends(&format!("import {unfinished}"), 1, "is an unfinished export").await;
    let exported = files(&Path::new(&unfinished).join("memories"));
    let before = exported.len();
    assert!(before >= 30, "{before}");
    let changed = exported.keys().next().unwrap().to_string_lossy();
    person.put(&changed, "changed since then\n").await;

    person.copy().await;
    let told = "is an unfinished export of memstore_";
    person.ends(&format!("{export} {COPY}"), 4, told).await;

    let counter = HoldingProxy::start(&person.server.url(), "/memories/mem_", usize::MAX).await;
    let through = [("KEEPSAKE_URL", counter.url())];
    let continued = person.run_with(&words(&export), &borrowed(&through), "").await;
    continued.ok();
    // Those that are missing, and the changed one.
    assert!(counter.seen() <= 61 - before, "{} of {before}", counter.seen());
    assert!(!Path::new(&unfinished).exists());
    person.ok(&format!("import {target} {COPY}")).await;
    assert_eq!(person.contents("").await, person.contents(COPY).await);
    person.ends(&export, 4, "").await;
}

impl Person {
    /// Moves the last memories of the list to its beginning, and the first one to its end,
    /// while a reader has the first page, and lets the reader end.
    async fn move_behind_reader(&self, line: &str, more: &[(&str, &str)], proxy: &HoldingProxy) {
        let reader = self.run_until_held(line, more, proxy).await;
        let before = self.contents("").await;
        let last = before.keys().rev().take(15).map(|path| (path, "!"));
        let first = before.keys().take(1).map(|path| (path, "z"));
        for (path, prefix) in last.chain(first) {
            let name = path.trim_start_matches('/');
            let moved = format!("{prefix}{name}");
            self.ok(&format!("memory mv {name} {moved}")).await;
        }
        self.ok("memory rm 1.md --yes").await;
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
    let export = format!("export {target}");
    person.move_behind_reader(&export, &[], &proxy).await;
    let expected = person.contents("").await;
    assert_eq!(expected.len(), 120);
    person.copy().await;
    person.ok(&format!("import {target} {COPY}")).await;
    assert_eq!(person.contents(COPY).await, expected);

    person.ok("store create other").await;
    let proxy = person.proxy_of_lists().await;
    let from = format!("import --from-url {} --from-store notes --store other", proxy.url());
    let url = person.server.url();
    let keys = [("KEEPSAKE_FROM_API_KEY", person.tenant.key.as_str()), ("KEEPSAKE_URL", &url)];
    person.move_behind_reader(&from, &keys, &proxy).await;
    let imported = person.contents("--store other").await;
    assert_eq!(imported, person.contents("").await);

    let (proxy, folder) = (person.proxy_of_lists().await, person.path("folder"));
    let sync = format!("sync {folder}");
    person.move_behind_reader(&sync, &[], &proxy).await;
    let files = files(Path::new(&folder)).into_keys();
    let files: Vec<_> = files.filter(|file| !file.starts_with(".keepsake")).collect();
    let memories = person.contents("").await.into_keys();
    let memories = memories.map(|path| PathBuf::from(path.trim_start_matches('/')));
    assert_eq!(files, memories.collect::<Vec<_>>());
}

#[tokio::test(flavor = "multi_thread")]
async fn temporary_folder_is_private_and_a_killed_import_leaves_it_to_the_next() {
    let person = Person::new().await;
    person.create("/a.md", "a secret\n").await;
    let archive = person.path("archive.tar.zst");
    person.ok(&format!("export {archive}")).await;
    let temporary = person.home.path().join("tmp");
    fs::create_dir(&temporary).unwrap();
    let temporary_name = temporary.to_string_lossy().into_owned();
    let folders = || fs::read_dir(&temporary).unwrap().count();
    let variables = [("TMPDIR", temporary_name.as_str())];
    let again = async || {
        let run = person.run_with(&["import", &archive], &variables, "").await;
        run.ok();
    };

    let proxy = HoldingProxy::start(&person.server.url(), "get ", 0).await;
    let import = format!("import {archive}");
    let mut held = person.run_until_held(&import, &variables, &proxy).await;
    assert_eq!(folders(), 1);
    let mut found = vec![temporary.read_dir().unwrap().next().unwrap().unwrap().path()];
    while let Some(path) = found.pop() {
        let about = path.symlink_metadata().unwrap();
        let mode = about.permissions().mode() & 0o777;
        let expected = if about.is_dir() { 0o700 } else { 0o600 };
        assert_eq!(mode, expected, "{}", path.display());
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
    let import = format!("import {}", person.many(1_100));
    let proxy = HoldingProxy::start(&person.server.url(), "/memories/batch", 2).await;
    let mut killed = person.run_until_held(&import, &[], &proxy).await;
    let is_partly_done = async || person.contents("").await.len() >= 200;
    eventually("a batch is written", Duration::from_mins(1), is_partly_done).await;
    killed.kill().await.unwrap();
    let before = person.contents("").await.len();
    assert!((200..1_100).contains(&before), "{before}");
    let result = person.json(&format!("{import} -o json")).await;
    let results = result["data"].as_array().unwrap();
    let count = |of: &str| results.iter().filter(|file| file["result"] == of).count();
    assert_eq!(count("created") + count("unchanged"), 1_100);
    assert!(count("unchanged") >= before, "{before}");
    assert_eq!(person.contents("").await.len(), 1_100);
    let log = person.ok("memory log -n 2000 -o jsonl").await;
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
    let before = person.contents("").await;
    let import = async |more: &str| person.line(&format!("import {source} --prefix v {more}")).await;
    let told =
        "nothing was imported: the memory store has something else at 1 paths, the first is /memories/v/a.md";
    import("").await.ends(4, told);
    assert_eq!(person.contents("").await, before);

    let dry = import("--on-conflict replace --dry-run").await.ok();
    assert_eq!(dry, format!("would be: {}", counts([1, 1, 1, 0, 0])));
    assert_eq!(person.contents("").await, before);

    let skipped = import("--on-conflict skip -o json").await.json();
    let expected = json!({"data": [
        {"path": "/v/a.md", "result": "skipped", "reason": "has other content"},
        {"path": "/v/b.md", "result": "unchanged", "reason": null},
        {"path": "/v/c.md", "result": "created", "reason": null},
    ]});
    assert_eq!(skipped, expected);
    let replaced = import("--on-conflict replace").await.ok();
    assert_eq!(replaced, counts([0, 1, 2, 0, 0]));
    assert_eq!(person.ok("memory cat v/a.md").await, "new\n");

    // A directory of the store is in the way of a file, and a memory in that of a directory.
    person.create("/w/a.md/b", "").await;
    person.create("/w/x", "").await;
    fs::create_dir(folder.join("x")).unwrap();
    fs::write(folder.join("x/y.md"), "").unwrap();
    let blocked = format!("import {source} --prefix w --on-conflict replace");
    let blocked = person.line(&blocked).await;
    blocked.ends(4, "");
    for told in ["is a directory in the memory store", "/memories/w/x is a memory, not a directory"] {
        assert!(blocked.stdout.contains(told), "{}", blocked.stdout);
    }
}
