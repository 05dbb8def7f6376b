use std::os::unix::fs::symlink;

use keepsake_testkit::HoldingProxy;
use tokio::process::Child;

use super::*;

mod histories;
mod hostile;
mod sources;

fn counts([created, replaced, unchanged, skipped, refused]: [u32; 5]) -> String {
    let conflicts = format!("{skipped} skipped, {refused} refused\n");
    format!("{created} created, {replaced} replaced, {unchanged} unchanged, {conflicts}")
}

const COPY: &str = "--store copy";

fn lines(file: &Path) -> Vec<Value> {
    let text = fs::read_to_string(file).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

impl Person {
    fn many(&self, count: usize) -> String {
        let folder = self.path("many");
        fs::create_dir(&folder).unwrap();
        for number in 0..count {
            fs::write(format!("{folder}/{number}.md"), format!("number {number}\n")).unwrap();
        }
        folder
    }

    async fn contents(&self, store: &str) -> BTreeMap<String, Value> {
        let listed = self.ok(&format!("memory ls -R -o jsonl {store}")).await;
        let listed = listed.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        listed.map(|it| (text(&it["path"]).to_owned(), it["content_sha256"].clone())).collect()
    }

    /// Starts a command through a proxy, and returns it when a request is held.
    async fn run_until_held(&self, line: &str, more: &[(&str, &str)], proxy: &HoldingProxy) -> Child {
        let own = self.variables();
        let variables = [&borrowed(&own)[..], &[("KEEPSAKE_URL", proxy.url())], more].concat();
        let mut child = start_keepsake(&words(line), &variables);
        tokio::select! {
            () = proxy.held() => {}
            ended = child.wait() => panic!("ended too early: {ended:?}"),
        }
        child
    }

    /// Kills an import of which a request is held and 200 memories are written.
    async fn kill_when_partly_done(&self, import: &str, proxy: &HoldingProxy, store: &str) {
        let mut killed = self.run_until_held(import, &[], proxy).await;
        let is_partly_done = async || self.contents(store).await.len() >= 200;
        soon("a part is written", is_partly_done).await;
        killed.kill().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_export_begins_again() {
    let person = Person::new().await;
    person.ok(&format!("import {}", person.many(60))).await;
    let target = person.path("archive.tar.zst");
    person.ends("export notes.zip", 2, "ends in .tar.zst").await;
    person.ends("export -", 2, "not written to stdout").await;
    let proxy = HoldingProxy::start(&person.server.url(), "/export", 0).await;
    let export = format!("export {target}");
    let mut killed = person.run_until_held(&export, &[], &proxy).await;
    killed.kill().await.unwrap();
    assert!(!Path::new(&target).exists());
    let unfinished = person.path("archive.tar.zst.partial");
    person.ends(&format!("import {unfinished}"), 1, "is an unfinished export").await;
    person.ok(&export).await;
    assert!(!Path::new(&unfinished).exists());
    person.ok("store create copy").await;
    person.ok(&format!("import {target} {COPY}")).await;
    assert_eq!(person.contents("").await, person.contents(COPY).await);
    person.ends(&export, 4, "exists").await;
    // Nothing is removed that no export made.
    let other = person.path("other");
    fs::create_dir(format!("{other}.partial")).unwrap();
    fs::write(format!("{other}.partial/kept"), "kept").unwrap();
    person.ends(&format!("export {other}"), 4, "is not an unfinished export").await;
    assert_eq!(files(format!("{other}.partial")).len(), 1);
    let file = person.path("file.tar.zst");
    fs::write(format!("{file}.partial"), "kept").unwrap();
    person.ends(&format!("export {file}"), 4, "is not an unfinished export").await;
    assert_eq!(fs::read_to_string(format!("{file}.partial")).unwrap(), "kept");
    // Nor through a symbolic link in an unfinished export.
    let partial = person.path("archive.partial");
    fs::create_dir_all(format!("{partial}/memories")).unwrap();
    fs::write(format!("{partial}/export.json"), r#"{"memory_store_id":"memstore_x"}"#).unwrap();
    symlink(format!("{other}.partial"), format!("{partial}/memories/b")).unwrap();
    person.put("b/c.md", "two\n").await;
    person.ok(&format!("export {}/", person.path("archive"))).await;
    assert_eq!(files(format!("{other}.partial")).len(), 1);
    assert_eq!(fs::read_to_string(person.path("archive/memories/b/c.md")).unwrap(), "two\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn archives_are_written_once_and_unpacked_without_a_name() {
    let person = Person::new().await;
    person.put("a.md", "one\n").await;
    person.ok("store create copy").await;
    for name in ["archive", "archive.tar.zst"] {
        let target = person.path(name);
        let export = format!("export {target}");
        let proxy = HoldingProxy::start(&person.server.url(), "/export", 0).await;
        let first = person.run_until_held(&export, &[], &proxy).await;
        person.ends(&export, 4, "another export writes it").await;
        proxy.release();
        let ended = first.wait_with_output().await.unwrap();
        assert!(ended.status.success(), "{ended:?}");
        person.ok(&format!("import {target} {COPY}")).await;
        assert_eq!(person.contents("").await, person.contents(COPY).await);
    }
    let archive = person.path("archive.tar.zst");
    let temporary = person.path("tmp");
    fs::create_dir(&temporary).unwrap();
    let variables = [("TMPDIR", temporary.as_str())];
    let proxy = HoldingProxy::start(&person.server.url(), "get ", 0).await;
    let mut held = person.run_until_held(&format!("import {archive}"), &variables, &proxy).await;
    let opened = fs::read_dir(format!("/proc/{}/fd", held.id().unwrap())).unwrap();
    let opened = opened.filter_map(|file| fs::read_link(file.unwrap().path()).ok());
    assert_eq!(opened.filter(|file| file.starts_with(&temporary)).count(), 1, "the archive is unpacked");
    assert!(files(&temporary).is_empty());
    held.kill().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn memories_that_move_while_a_store_is_read_are_all_read() {
    let person = Person::new().await;
    person.ok(&format!("import {}", person.many(120))).await;
    let folder = person.path("folder");
    // While the second page is held, the last memories move to the first one, and the first to the end.
    let proxy = HoldingProxy::start(&person.server.url(), "/memories?", 1).await;
    let reader = person.run_until_held(&format!("sync {folder}"), &[], &proxy).await;
    let before = person.contents("").await;
    let last = before.keys().rev().take(15).map(|path| (path, "!"));
    for (path, prefix) in last.chain(before.keys().take(1).map(|path| (path, "z"))) {
        let name = path.trim_start_matches('/');
        person.ok(&format!("memory mv {name} {prefix}{name}")).await;
    }
    person.ok("memory rm 1.md --yes").await;
    person.put("1.md", "another memory").await;
    proxy.release();
    let ended = reader.wait_with_output().await.unwrap();
    assert!(ended.status.success(), "{ended:?}");
    let files = files(&folder).into_keys().filter(|file| !file.starts_with(".keepsake"));
    assert!(files.map(|file| format!("/{file}")).eq(person.contents("").await.into_keys()));
}

#[tokio::test(flavor = "multi_thread")]
async fn expiry_times_are_kept_and_those_that_cannot_be_are_counted() {
    let person = Person::new().await;
    let store = person.store();
    for path in ["/a.md", "/pinned.md"] {
        let memory = store.create(path, "x").await;
        store.update(&memory, &json!({"expires_at": "2099-01-01T00:00:00Z"})).await;
    }
    person.ok("memory pin pinned.md").await;
    // The period of a store ends no memory of another store.
    person.put("unused.md", "x").await;
    ok(&store.client.post(&store.path, &json!({"expires_unused_after": 90 * 86_400})).await);
    let archive = person.path("archive");
    let exported = person.ok(&format!("export {archive} --versions")).await;
    assert!(exported.ends_with(&format!(" to the folder {archive}\n")), "{exported}");
    for (copy, more) in [("copy", ""), ("past", "--versions")] {
        person.ok(&format!("store create {copy}")).await;
        let imported = person.ok(&format!("import {archive} --store {copy} {more}")).await;
        assert!(imported.contains("the memory is pinned"), "{imported}");
        assert!(imported.ends_with("0 refused, 1 without their expiry time\n"), "{imported}");
        let listed = person.json(&format!("memory ls -R -o json --store {copy}")).await;
        let expiry = listed["data"].as_array().unwrap().iter().map(|memory| &memory["expires_at"]);
        assert!(expiry.eq([&json!("2099-01-01T00:00:00.000000Z"), &Value::Null, &Value::Null]), "{listed}");
    }
    // A memory that has the content already.
    person.ok("memory expire a.md --never --store copy").await;
    let lost = ", 1 without their expiry time";
    for (more, replaced, end) in [("", 0, lost), ("--on-conflict replace", 1, ""), ("", 0, "")] {
        let imported = person.ok(&format!("import {archive} --store copy {more}")).await;
        let counts = format!("{replaced} replaced, {} unchanged, 0 skipped, 0 refused{end}\n", 3 - replaced);
        assert!(imported.ends_with(&counts), "{imported}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn conflict_fails_is_skipped_or_replaced() {
    let person = Person::new().await;
    let vault = person.path("vault");
    fs::create_dir_all(format!("{vault}/x")).unwrap();
    for (name, content) in [("a.md", "new\n"), ("b.md", "same\n"), ("c.md", "created\n"), ("x/y.md", "")] {
        fs::write(format!("{vault}/{name}"), content).unwrap();
    }
    person.put("v/a.md", "old\n").await;
    person.put("v/b.md", "same\n").await;
    let before = person.contents("").await;
    let import = async |more: &str| person.line(&format!("import {vault} --prefix {more}")).await;
    import("v").await.ends(4, "nothing was imported: ");
    let dry = import("v --on-conflict replace --dry-run").await.ok();
    assert_eq!(dry, format!("would be: {}", counts([2, 1, 1, 0, 0])));
    assert_eq!(person.contents("").await, before);
    let skipped = import("v --on-conflict skip").await.ok();
    assert_eq!(skipped.lines().last(), Some(counts([2, 0, 1, 1, 0]).trim()));
    assert_eq!(import("v --on-conflict replace").await.ok(), counts([0, 1, 3, 0, 0]));
    assert_eq!(person.ok("memory cat v/a.md").await, "new\n");
    // A directory of the store is in the way of a file, and a memory in that of a directory.
    person.put("w/a.md/b", "x").await;
    person.put("w/x", "x").await;
    let blocked = import("w --on-conflict replace").await;
    blocked.ends(4, "");
    let why = ["is a directory in the memory store", "/memories/w/x is a memory, not a directory"];
    says(&blocked.stdout, &why);
}
