//! `keepsake sync` with a real folder and a real server.

mod random;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::process::{Child, Command};

use super::Person;
use crate::support::command::Run;
use crate::support::server::signal;
use crate::support::{Pair, binary, eventually, secrets};

/// How long `--watch` may take to carry a change over, on a busy machine.
const SOON: Duration = Duration::from_secs(30);

/// A person with a folder that is synchronised.
struct Workplace {
    person: Person,
    folder: PathBuf,
}

impl Workplace {
    async fn new() -> Self {
        Self::on(Pair::Sqlite).await
    }

    async fn on(pair: Pair) -> Self {
        let person = Person::on(pair).await;
        let folder = person.home.path().join("memory");
        Self { person, folder }
    }

    /// With these files on both sides.
    async fn with(files: &[(&str, &str)]) -> Self {
        let place = Self::new().await;
        for (name, content) in files {
            place.write(name, content);
        }
        place.sync("").await.ok();
        place
    }

    async fn sync(&self, more: &str) -> Run {
        let line = format!("sync {} {more}", self.folder.display());
        self.person.line(&line).await
    }

    /// Starts to synchronise, with `--watch` until a signal.
    fn start(&self, more: &[&str]) -> Child {
        let mut command = Command::new(binary());
        command
            .arg("sync")
            .arg(&self.folder)
            .args(more)
            .envs(self.person.variables())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .unwrap()
    }

    fn write(&self, name: &str, content: impl AsRef<[u8]>) {
        let place = self.folder.join(name);
        std::fs::create_dir_all(place.parent().unwrap()).unwrap();
        std::fs::write(place, content).unwrap();
    }

    fn delete(&self, name: &str) {
        std::fs::remove_file(self.folder.join(name)).unwrap();
    }

    fn rename(&self, from: &str, to: &str) {
        let to = self.folder.join(to);
        std::fs::create_dir_all(to.parent().unwrap()).unwrap();
        std::fs::rename(self.folder.join(from), to).unwrap();
    }

    /// The synchronised files with their content.
    fn files(&self) -> BTreeMap<String, String> {
        let mut files = BTreeMap::new();
        collect(&self.folder, "", &mut files);
        files
    }

    /// The memories with their content.
    async fn memories(&self) -> BTreeMap<String, String> {
        let mut memories = BTreeMap::new();
        for memory in self.listed("full").await {
            let path = memory["path"].as_str().unwrap().trim_start_matches('/');
            memories.insert(path.to_owned(), memory["content"].as_str().unwrap().to_owned());
        }
        memories
    }

    async fn listed(&self, view: &str) -> Vec<Value> {
        let client = self.person.server.client(&self.person.tenant);
        let store = self.person.tenant.store_id;
        let mut all = Vec::new();
        let mut page = String::new();
        loop {
            let path = format!("/v1/memory_stores/{store}/memories?view={view}&limit=20{page}");
            let answer = client.get(&path).await.json();
            all.extend(answer["data"].as_array().unwrap().iter().cloned());
            match answer["next_page"].as_str() {
                Some(next) => page = format!("&page={next}"),
                None => return all,
            }
        }
    }

    async fn is_equal(&self) -> bool {
        self.files() == self.memories().await
    }

    async fn assert_equal(&self, expected: &[(&str, &str)]) {
        let owned = |(name, content): &(&str, &str)| ((*name).to_owned(), (*content).to_owned());
        let expected = expected.iter().map(owned).collect();
        assert_eq!(self.files(), expected);
        assert_eq!(self.memories().await, expected);
    }

    async fn rm(&self, name: &str) {
        self.person.ok(&format!("memory rm {name} --yes")).await;
    }

    /// The name of the only file that was kept because of a conflict.
    fn kept(&self) -> String {
        let kept = self.files().into_keys();
        let kept: Vec<_> = kept.filter(|name| name.contains(".conflict-")).collect();
        assert_eq!(kept.len(), 1, "{kept:?}");
        kept[0].clone()
    }
}

fn collect(folder: &Path, prefix: &str, files: &mut BTreeMap<String, String>) {
    let Ok(entries) = folder.read_dir() else { return };
    for entry in entries {
        let entry = entry.unwrap();
        let name = entry.file_name().into_string().unwrap();
        if name.starts_with('.') {
            continue;
        }
        let path = format!("{prefix}{name}");
        if entry.file_type().unwrap().is_dir() {
            collect(&entry.path(), &format!("{path}/"), files);
        } else {
            files.insert(path, std::fs::read_to_string(entry.path()).unwrap());
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn changes_of_both_sides_are_carried_over() {
    let place = Workplace::new().await;
    place.person.put("from/store.md", "store").await;
    place.write("from/folder.md", "folder");
    let first = place.sync("").await.ok();
    assert_eq!(
        first,
        "downloaded from/store.md\nuploaded from/folder.md\n1 downloaded, 1 uploaded; 2 synchronised\n"
    );
    place.assert_equal(&[("from/folder.md", "folder"), ("from/store.md", "store")]).await;

    place.write("from/store.md", "edited");
    place.person.put("from/folder.md", "changed").await;
    place.person.put("third.md", "3").await;
    place.sync("").await.ok();
    place
        .assert_equal(&[("from/folder.md", "changed"), ("from/store.md", "edited"), ("third.md", "3")])
        .await;

    place.delete("from/store.md");
    place.rm("third.md").await;
    let deleted = place.sync("").await.ok();
    assert!(deleted.contains("deleted from/store.md in the store\n"), "{deleted}");
    assert!(deleted.contains("deleted third.md in the folder\n"), "{deleted}");
    place.assert_equal(&[("from/folder.md", "changed")]).await;

    // A file that is put back as it was is a new one.
    place.write("from/store.md", "edited");
    place.sync("").await.ok();
    place.assert_equal(&[("from/folder.md", "changed"), ("from/store.md", "edited")]).await;

    let state = || std::fs::read(place.folder.join(".keepsake/state.json")).unwrap();
    let before = state();
    assert_eq!(place.sync("").await.ok(), "nothing to do; 2 synchronised\n");
    assert_eq!(state(), before);
}

#[tokio::test(flavor = "multi_thread")]
async fn change_of_both_sides_keeps_both_and_ends_with_4() {
    let place = Workplace::with(&[("n.md", "base"), ("same.md", "base"), ("a.md", "1"), ("b.md", "1")]).await;
    place.write("n.md", "mine");
    place.person.put("n.md", "theirs").await;
    place.write("same.md", "equal");
    place.person.put("same.md", "equal").await;
    // A change wins over the deletion of the other side.
    place.write("a.md", "2");
    place.rm("a.md").await;
    place.delete("b.md");
    place.person.put("b.md", "2").await;
    let run = place.sync("-o json").await;
    assert_eq!(run.code, Some(4), "{}", run.stderr);
    let result: Value = serde_json::from_str(&run.stdout).unwrap();
    assert_eq!(result["counts"]["conflict"], 1);
    let kept = place.kept();
    let (ours, theirs) = ([("a.md", "2"), ("b.md", "2")], [("n.md", "theirs"), ("same.md", "equal")]);
    let expected = [&ours[..], &theirs, &[(kept.as_str(), "mine")]].concat();
    place.assert_equal(&expected).await;
    place.sync("").await.ok();
}

#[tokio::test(flavor = "multi_thread")]
async fn renamed_file_stays_one_memory() {
    let place = Workplace::with(&[("a.md", "1"), ("b.md", "2")]).await;
    let ids = async || {
        let ids = place.listed("basic").await;
        let mut ids: Vec<_> = ids.iter().map(|memory| memory["id"].to_string()).collect();
        ids.sort();
        ids
    };
    let before = ids().await;
    place.rename("a.md", "d/A.md");
    place.person.ok("memory mv b.md B.md").await;
    let moved = place.sync("").await.ok();
    assert_eq!(
        moved,
        "moved b.md to B.md in the folder\nmoved a.md to d/A.md in the store\n2 moved; 2 synchronised\n"
    );
    place.assert_equal(&[("B.md", "2"), ("d/A.md", "1")]).await;
    assert_eq!(ids().await, before);
}

#[tokio::test(flavor = "multi_thread")]
async fn file_and_directory_of_one_name_are_both_kept() {
    let place = Workplace::with(&[("z.md", "1")]).await;
    place.write("a", "mine");
    place.person.put("a/b.md", "theirs").await;
    place.write("c/d.md", "mine");
    place.person.put("c", "theirs").await;
    place.sync("").await.ends(4, "");
    let files = place.files();
    assert_eq!(files, place.memories().await);
    assert_eq!([&files["a/b.md"], &files["c"]], ["theirs"; 2]);
    let mine = files.values().filter(|content| *content == "mine");
    assert_eq!(mine.count(), 2, "{files:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn directory_in_the_place_of_a_file_does_not_stop_a_run() {
    let place = Workplace::with(&[("a", "1"), ("b", "2"), ("c.md", "3"), ("d.md", "4")]).await;
    place.sync("").await.ok();
    // A file became a directory: with a file, and with nothing in it.
    for name in ["a", "b"] {
        place.delete(name);
    }
    place.write("a/x.md", "5");
    std::fs::create_dir(place.folder.join("b")).unwrap();
    // Memories moved or were created where the folder has only directories.
    for name in ["e/empty", "f/empty"] {
        std::fs::create_dir_all(place.folder.join(name)).unwrap();
    }
    place.person.ok("memory mv c.md e").await;
    place.person.put("f", "6").await;
    place.sync("").await.ok();
    let expected = [("a/x.md", "5"), ("d.md", "4"), ("e", "3"), ("f", "6")];
    place.assert_equal(&expected).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn emptied_side_does_not_empty_the_other() {
    let place = Workplace::with(&[("a.md", "1"), ("b.md", "2")]).await;
    place.delete("a.md");
    place.delete("b.md");
    place.sync("").await.ends(4, "--allow-emptying");
    assert_eq!(place.memories().await.len(), 2);

    // A folder that lost the state, too, is filled again.
    std::fs::remove_dir_all(&place.folder).unwrap();
    place.sync("").await.ok();
    place.assert_equal(&[("a.md", "1"), ("b.md", "2")]).await;

    place.rm("a.md").await;
    place.rm("b.md").await;
    place.sync("").await.ends(4, "");
    assert_eq!(place.files().len(), 2);
    place.sync("--allow-emptying").await.ok();
    place.assert_equal(&[]).await;
}

impl Workplace {
    /// Copies the file of the stopped server; the server goes on.
    async fn back_up(&mut self) {
        self.person.server.end().await;
        std::fs::copy(self.person.deployment.sqlite_file(), self.backup()).unwrap();
        self.person.server.restart().await;
    }

    async fn restore_backup(&mut self) {
        self.person.server.end().await;
        std::fs::copy(self.backup(), self.person.deployment.sqlite_file()).unwrap();
        self.person.server.restart().await;
    }

    fn backup(&self) -> PathBuf {
        self.person.home.path().join("backup.db")
    }
}

/// Its token cannot read versions, so what the store removes is kept.
#[tokio::test(flavor = "multi_thread")]
async fn token_of_a_session_synchronises_and_removes_no_last_copy() {
    let mut place = Workplace::with(&[("a.md", "a1"), ("b.md", "b1"), ("c.md", "c1")]).await;
    let client = place.person.server.client(&place.person.tenant);
    let store = json!({"type": "memory_store", "memory_store_id": place.person.tenant.store_id, "access": "read_write"});
    let session = json!({"agent": "a", "environment_id": "e", "resources": [store]});
    let session = client.post("/v1/sessions", &session).await.json();
    let token = session["token"].as_str().unwrap();
    secrets::remember(token, "a session's token");
    let with_token = format!("--api-key {token}");
    let sync = async |place: &Workplace| place.sync(&with_token).await.ok();
    place.back_up().await;
    place.write("a.md", "a2");
    place.delete("b.md");
    place.person.put("c.md", "c2").await;
    place.write("new.md", "of the folder");
    sync(&place).await;
    let now = [("a.md", "a2"), ("c.md", "c2"), ("new.md", "of the folder")];
    place.assert_equal(&now).await;

    place.restore_backup().await;
    sync(&place).await;
    place.assert_equal(&[("a.md", "a1"), ("b.md", "b1"), ("c.md", "c1")]).await;
    let removed = place.folder.join(".keepsake/removed");
    let kept = removed.read_dir().unwrap();
    let kept = kept.map(|file| std::fs::read_to_string(file.unwrap().path()).unwrap());
    let mut kept: Vec<_> = kept.collect();
    kept.sort();
    // `c1` was removed before the restore: the token could not ask for its version either.
    assert_eq!(kept, ["a2", "c1", "c2", "of the folder"]);
    let old = removed.join(format!("20200101T000000Z-{}", "0".repeat(64)));
    std::fs::write(&old, "old").unwrap();
    sync(&place).await;
    assert!(!old.exists());
    assert_eq!(removed.read_dir().unwrap().count(), kept.len());
}

#[tokio::test(flavor = "multi_thread")]
async fn restored_store_does_not_take_the_last_copies() {
    let mut place = Workplace::with(&[("a.md", "a1"), ("b.md", "b1"), ("c.md", "c1"), ("d.md", "d1")]).await;
    place.back_up().await;
    // An edit of each side, and a new memory of each.
    place.write("a.md", "a2");
    place.write("new.md", "of the folder");
    place.person.put("b.md", "b2").await;
    place.person.put("other.md", "of the store").await;
    place.sync("").await.ok();
    let lost = [("a.md", "a2"), ("b.md", "b2"), ("new.md", "of the folder"), ("other.md", "of the store")];

    place.restore_backup().await;
    // A memory that is edited or deleted since then is as always.
    place.person.put("c.md", "c2").await;
    place.rm("d.md").await;
    place.sync("").await.ends(4, "a.md is kept: ");
    let files = place.files();
    assert_eq!(files, place.memories().await);
    for (name, content) in lost {
        assert!(files.values().any(|kept| kept == content), "{name}: {files:?}");
    }
    let restored = ["a.md", "b.md", "c.md"].map(|name| files[name].as_str());
    assert_eq!(restored, ["a1", "b1", "c2"]);
    // Beside them the four newer contents; `d.md` is deleted, and `c1` is in the history.
    assert_eq!(files.len(), restored.len() + lost.len(), "{files:?}");
    place.sync("").await.ok();
    assert_eq!(place.files(), files);
}

#[tokio::test(flavor = "multi_thread")]
async fn erased_memory_is_deleted_in_the_folder() {
    let place = Workplace::with(&[("secret/a.md", "secret"), ("b.md", "1")]).await;
    place.person.put("b.md", "2").await;
    place.sync("").await.ok();
    let client = place.person.server.client(&place.person.tenant);
    let selector = json!({"memory_store_id": place.person.tenant.store_id, "path_prefix": "/secret/"});
    let erasure = client.post("/v1/erasures", &selector).await.json();
    let route = format!("/v1/erasures/{}", erasure["id"].as_str().unwrap());
    eventually("the erasure has ended", SOON, async || client.get(&route).await.json()["state"] == "done")
        .await;
    place.sync("").await.ok();
    place.assert_equal(&[("b.md", "2")]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn folder_belongs_to_one_store() {
    let place = Workplace::with(&[("a.md", "1")]).await;
    place.person.ok("store create other").await;
    let told = "belongs to the memory store";
    place.sync("--store other").await.ends(2, told);
    let url = place.person.server.url().replace("127.0.0.1", "localhost");
    place.sync(&format!("--url {url}")).await.ends(2, "");
}

#[tokio::test(flavor = "multi_thread")]
async fn dry_run_shows_the_steps_and_writes_nothing() {
    let place = Workplace::new().await;
    place.person.put("a.md", "1").await;
    let shown = place.sync("--dry-run").await.ok();
    let told = "would download a.md\ndry run: 1 downloaded; 0 synchronised\n";
    assert_eq!(shown, told);
    assert!(!place.folder.exists());
    place.write("b.md", "2");
    let shown = place.sync("--dry-run -o jsonl").await.ok();
    let steps = shown.lines().map(serde_json::from_str);
    let steps: Vec<Value> = steps.map(Result::unwrap).collect();
    assert_eq!(steps[0]["action"], "download");
    assert_eq!(steps[1]["action"], "upload");
    assert_eq!(steps[2]["dry_run"], true);
    assert!(!place.folder.join(".keepsake").exists());
    assert_eq!(place.memories().await.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn skipped_files_stay_on_their_side() {
    let place = Workplace::with(&[("a.md", "1")]).await;
    place.write(".keepsakeignore", "private/\n");
    place.write("private/own.md", "own");
    place.write("binary.md", [0xff, 0xfe]);
    place.write("large.md", "x".repeat(200_000));
    place.person.put("private/theirs.md", "theirs").await;
    place.person.put(".hidden.md", "theirs").await;
    place.person.put("binary.md", "theirs").await;
    let run = place.sync("").await;
    for line in [
        "skipped private: listed in .keepsakeignore",
        "skipped private/theirs.md: listed in .keepsakeignore",
        "skipped .hidden.md: hidden",
        "skipped binary.md: is not UTF-8 text",
        "skipped large.md: is 200000 bytes, over the store's limit",
    ] {
        run.ends(0, line);
    }
    assert_eq!(place.memories().await.len(), 4);
    assert!(!place.folder.join("private/theirs.md").exists());
    // A synchronised path that becomes ignored stays in the store.
    place.write(".keepsakeignore", "private/\na.md\n");
    place.delete("a.md");
    place.sync("--allow-emptying").await.ok();
    assert_eq!(place.memories().await["a.md"], "1");
    // A memory that moves to an ignored path leaves the folder.
    place.write("z.md", "z");
    place.sync("").await.ok();
    place.person.ok("memory mv z.md private/z.md").await;
    place.sync("--allow-emptying").await.ok();
    assert!(!place.folder.join("z.md").exists());
    assert_eq!(place.memories().await["private/z.md"], "z");
}

#[tokio::test(flavor = "multi_thread")]
async fn refused_file_is_reported_and_the_others_are_carried_over() {
    let place = Workplace::with(&[("a.md", "1")]).await;
    place.person.ok("store update notes --sensitive-data reject").await;
    place.write("secret.md", "card: 4111 1111 1111 1111\n");
    place.write("z.md", "2");
    place.sync("").await.ends(1, "skipped secret.md");
    assert_eq!(place.memories().await.len(), 2);
    assert_eq!(place.files().len(), 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn read_only_key_downloads_and_reports_edits() {
    let place = Workplace::new().await;
    place.person.put("a.md", "1").await;
    let by_reader = format!("--api-key {}", place.person.reader);
    place.sync(&by_reader).await.ok();
    place.write("b.md", "2");
    place.person.put("c.md", "3").await;
    place.sync(&by_reader).await.ends(1, "skipped b.md");
    assert_eq!(place.files().len(), 3);
    assert_eq!(place.memories().await.len(), 2);
    // A file whose move is refused stays at its new place.
    place.rename("a.md", "d/a.md");
    for _ in 0..2 {
        let refused = place.sync(&by_reader).await;
        assert!(refused.stderr.contains("skipped a.md"), "{}", refused.stderr);
        assert!(place.files().contains_key("d/a.md"), "{:?}", place.files());
    }
    place.sync("--api-key ks_live_unknown").await.ends(5, "");
}

#[tokio::test(flavor = "multi_thread")]
async fn watch_carries_changes_over_and_waits_for_the_server() {
    let mut place = Workplace::with(&[("a.md", "1")]).await;
    let mut watching = place.start(&["--watch"]);
    place.write("b.md", "2");
    place.person.put("c.md", "3").await;
    eventually("both files are on both sides", SOON, || async {
        place.files().len() == 3 && place.is_equal().await
    })
    .await;
    place.sync("").await.ends(1, "another process");
    place.delete("b.md");
    place.rename("c.md", "f.md");
    eventually("what stays gone is deleted or moved", SOON, || place.is_equal()).await;

    place.person.server.end().await;
    place.write("d.md", "4");
    place.rename("a.md", "e.md");
    place.person.server.restart().await;
    eventually("the changes arrive after the restart", SOON, || async {
        place.memories().await.contains_key("d.md") && place.is_equal().await
    })
    .await;

    signal(watching.id().unwrap(), "INT").await;
    assert_eq!(watching.wait().await.unwrap().code(), Some(0));
    assert_eq!(place.sync("").await.ok(), "nothing to do; 3 synchronised\n");
}

/// An editor moves the file away, writes the new one and removes the old one, with passes
/// in between.
#[tokio::test(flavor = "multi_thread")]
async fn slow_save_of_an_editor_stays_one_memory() {
    let place = Workplace::with(&[("a.md", "0")]).await;
    let _watching = place.start(&["--watch"]);
    let memory = |all: &[Value], path: &str| all.iter().find(|memory| memory["path"] == path).cloned();
    let id = memory(&place.listed("full").await, "/a.md").unwrap()["id"].clone();
    // A machine that is too busy takes longer than a file may be gone.
    for attempt in 1..10 {
        let content = attempt.to_string();
        let mark = format!("mark{attempt}.md");
        let started = Instant::now();
        place.rename("a.md", "a.md~");
        place.write(&mark, "a pass has run");
        eventually("a pass has run", SOON, || async { place.memories().await.contains_key(&mark) }).await;
        let during = place.memories().await;
        place.write("a.md", &content);
        place.delete("a.md~");
        eventually("the new content has arrived", SOON, || async {
            place.memories().await.get("a.md") == Some(&content)
        })
        .await;
        if started.elapsed() < Duration::from_secs(3) {
            assert!(!during.contains_key("a.md~"), "{during:?}");
            let saved = memory(&place.listed("full").await, "/a.md").unwrap();
            assert_eq!(saved["id"], id, "attempt {attempt}");
            return;
        }
        eventually("the folder is synchronised", SOON, || place.is_equal()).await;
    }
    panic!("no attempt was fast enough");
}
