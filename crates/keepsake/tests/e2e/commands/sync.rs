mod random;

use keepsake_testkit::ProcessClock;
use tokio::process::Child;

use super::*;

/// How long `--watch` may take to carry a change over, on a busy machine.
const SOON: Duration = Duration::from_secs(30);

struct Workplace {
    person: Person,
    folder: PathBuf,
}

impl Workplace {
    async fn new() -> Self {
        Self::of(Person::new().await)
    }

    fn of(person: Person) -> Self {
        let folder = person.home.path().join("memory");
        Self { person, folder }
    }

    async fn with(files: &[(&str, &str)]) -> Self {
        Self::new().await.filled(files).await
    }

    async fn filled(self, files: &[(&str, &str)]) -> Self {
        for (name, content) in files {
            self.write(name, content);
        }
        self.sync("").await.ok();
        self
    }

    async fn sync(&self, more: &str) -> Run {
        self.person.line(&format!("sync {} {more}", self.folder.display())).await
    }

    /// Starts to synchronise, with `--watch` until a signal.
    fn start(&self, more: &[&str]) -> Child {
        let folder = self.folder.display().to_string();
        start_keepsake(&[&["sync", &folder], more].concat(), &borrowed(&self.person.variables()))
    }

    fn write(&self, name: &str, content: impl AsRef<[u8]>) {
        let place = self.folder.join(name);
        fs::create_dir_all(place.parent().unwrap()).unwrap();
        fs::write(place, content).unwrap();
    }

    fn delete(&self, name: &str) {
        fs::remove_file(self.folder.join(name)).unwrap();
    }

    fn rename(&self, from: &str, to: &str) {
        let to = self.folder.join(to);
        fs::create_dir_all(to.parent().unwrap()).unwrap();
        fs::rename(self.folder.join(from), to).unwrap();
    }

    fn files(&self) -> BTreeMap<String, String> {
        let files = files(&self.folder).into_iter().filter(|(name, _)| !name.starts_with('.'));
        files.map(|(name, content)| (name, String::from_utf8(content).unwrap())).collect()
    }

    async fn memories(&self) -> BTreeMap<String, String> {
        let memories = self.person.texts().await.into_iter();
        memories.map(|(path, content)| (path[1..].to_owned(), content)).collect()
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

    async fn back_up(&mut self) {
        self.person.server.end().await;
        fs::copy(self.person.deployment.sqlite_file(), self.person.path("backup.db")).unwrap();
        self.person.server.restart().await;
    }

    async fn restore_backup(&mut self) {
        self.person.server.end().await;
        fs::copy(self.person.path("backup.db"), self.person.deployment.sqlite_file()).unwrap();
        self.person.server.restart().await;
    }

    async fn erase(&self, below: &str) {
        let Store { client, id, .. } = self.person.store();
        let selector = json!({"memory_store_id": id, "path_prefix": below});
        client.receipt(&client.post("/v1/erasures", &selector).await.json()).await;
    }

    /// Synchronises twice, which skips a file and leaves these files and memories.
    async fn skips(&self, skipped: &str, files: &[&str], memories: &[&str]) {
        for _ in 0..2 {
            self.sync("").await.ends(1, &format!("skipped {skipped}"));
            assert!(self.files().keys().eq(files), "{:?}", self.files());
            assert!(self.memories().await.keys().eq(memories), "{:?}", self.memories().await);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn changes_of_both_sides_are_carried_over() {
    let place = Workplace::new().await;
    place.person.put("from/store.md", "store").await;
    let dry_run = "would download from/store.md\ndry run: 1 downloaded; 0 synchronised\n";
    assert_eq!(place.sync("--dry-run").await.ok(), dry_run);
    assert!(!place.folder.exists());
    place.write("from/folder.md", "folder");
    let told = "downloaded from/store.md\nuploaded from/folder.md\n";
    assert_eq!(place.sync("").await.ok(), format!("{told}1 downloaded, 1 uploaded; 2 synchronised\n"));
    place.assert_equal(&[("from/folder.md", "folder"), ("from/store.md", "store")]).await;
    place.write("from/store.md", "edited");
    place.person.put("from/folder.md", "changed").await;
    place.person.put("third.md", "3").await;
    place.sync("").await.ok();
    let edited = [("from/folder.md", "changed"), ("from/store.md", "edited"), ("third.md", "3")];
    place.assert_equal(&edited).await;
    place.delete("from/store.md");
    place.person.ok("memory rm third.md --yes").await;
    let deleted = place.sync("").await.ok();
    says(&deleted, &["deleted from/store.md in the store\n", "deleted third.md in the folder\n"]);
    place.assert_equal(&edited[..1]).await;
    // A file that is put back as it was is a new one.
    place.write("from/store.md", "edited");
    place.sync("").await.ok();
    place.assert_equal(&edited[..2]).await;
    assert_eq!(place.sync("").await.ok(), "nothing to do; 2 synchronised\n");
    // A file in the place of a folder is named.
    let file = place.folder.join("from/store.md").display().to_string();
    for line in ["sync FILE", "sync FILE --dry-run", "sync FILE/d", "export FILE/x", "mcp --data-dir FILE"] {
        place.person.ends(&line.replace("FILE", &file), 2, &format!("{file} is a file; ")).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn change_of_both_sides_keeps_both_and_a_renamed_file_stays_one_memory() {
    let place = Workplace::with(&[("n.md", "base"), ("same.md", "base")]).await;
    place.write("n.md", "mine");
    place.person.put("n.md", "theirs").await;
    place.write("same.md", "equal");
    place.person.put("same.md", "equal").await;
    place.sync("").await.ends(4, "");
    let files = place.files();
    let kept = files.keys().find(|name| name.contains(".conflict-")).unwrap();
    place.assert_equal(&[(kept.as_str(), "mine"), ("n.md", "theirs"), ("same.md", "equal")]).await;
    place.sync("").await.ok();
    let place = Workplace::with(&[("a.md", "1"), ("b.md", "2")]).await;
    place.rename("a.md", "d/A.md");
    place.person.ok("memory mv b.md B.md").await;
    let told = "moved b.md to B.md in the folder\nmoved a.md to d/A.md in the store\n";
    assert_eq!(place.sync("").await.ok(), format!("{told}2 moved; 2 synchronised\n"));
    place.assert_equal(&[("B.md", "2"), ("d/A.md", "1")]).await;
    // Two were created and two moved; none was deleted.
    assert_eq!(place.person.ok("memory log -o jsonl").await.lines().count(), 4);
}

#[tokio::test(flavor = "multi_thread")]
async fn emptied_side_does_not_empty_the_other() {
    let both = [("a.md", "1"), ("b.md", "2")];
    let place = Workplace::with(&both).await;
    place.delete("a.md");
    place.delete("b.md");
    place.sync("").await.ends(4, "--allow-emptying");
    assert_eq!(place.memories().await.len(), 2);
    place.write("a.md", "");
    place.write("b.md", "");
    place.sync("").await.ends(4, "--allow-emptying");
    assert!(place.memories().await.values().all(|content| !content.is_empty()));
    // A folder that lost the state, too, is filled again.
    fs::remove_dir_all(&place.folder).unwrap();
    place.sync("").await.ok();
    place.assert_equal(&both).await;
    place.person.ok("memory rm a.md --yes").await;
    place.person.ok("memory rm b.md --yes").await;
    place.sync("").await.ends(4, "");
    assert_eq!(place.files().len(), 2);
    place.sync("--allow-emptying").await.ok();
    place.assert_equal(&[]).await;
}

/// Its token cannot read versions, so what the store removes is kept.
#[tokio::test(flavor = "multi_thread")]
async fn token_of_a_session_synchronises_and_removes_no_last_copy() {
    let before = [("a.md", "a1"), ("b.md", "b1"), ("c.md", "c1")];
    let mut place = Workplace::with(&before).await;
    let session = place.person.session("read_write").await;
    let token = session["token"].as_str().unwrap();
    secrets::remember(token, "a session's token");
    let with_token = format!("--api-key {token}");
    place.back_up().await;
    place.write("a.md", "a2");
    place.delete("b.md");
    place.person.put("c.md", "c2").await;
    place.write("new.md", "of the folder");
    place.sync(&with_token).await.ok();
    let now = [("a.md", "a2"), ("c.md", "c2"), ("new.md", "of the folder")];
    place.assert_equal(&now).await;
    place.restore_backup().await;
    place.sync(&with_token).await.ok();
    place.assert_equal(&before).await;
    let removed = place.folder.join(".keepsake/removed");
    let kept: BTreeSet<_> = files(&removed).into_values().collect();
    // `c1` was removed before the restore: the token could not ask for its version either.
    let expected = ["a2", "c1", "c2", "of the folder"].map(|text| text.as_bytes().to_vec());
    assert_eq!(kept, BTreeSet::from(expected));
    let old = removed.join(format!("20200101T000000Z-{}", "0".repeat(64)));
    fs::write(&old, "old").unwrap();
    place.sync(&with_token).await.ok();
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
    let lost = ["a2", "b2", "of the folder", "of the store"];
    place.restore_backup().await;
    // A memory that is edited or deleted since then is as always.
    place.person.put("c.md", "c2").await;
    place.person.ok("memory rm d.md --yes").await;
    place.sync("").await.ends(4, "a.md is kept: ");
    let files = place.files();
    assert_eq!(files, place.memories().await);
    for content in lost {
        assert!(files.values().any(|kept| kept == content), "{content}: {files:?}");
    }
    let restored = ["a.md", "b.md", "c.md"].map(|name| files[name].as_str());
    assert_eq!(restored, ["a1", "b1", "c2"]);
    // Beside them the four newer contents; `d.md` is deleted, and `c1` is in the history.
    assert_eq!(files.len(), restored.len() + lost.len(), "{files:?}");
    place.sync("").await.ok();
    assert_eq!(place.files(), files);
}

/// The erasure takes the newest versions that were synchronised.
#[tokio::test(flavor = "multi_thread")]
async fn erased_memory_is_deleted_in_the_folder_and_never_uploaded_again() {
    let before = [("a.md", "1"), ("s/a.md", "secret a"), ("s/b.md", "secret b"), ("s/c.md", "secret c")];
    let mut place = Workplace::with(&before).await;
    place.write("s/b.md", "secret b, edited");
    place.rename("s/c.md", "c.md");
    place.erase("/s/").await;
    for skipped in ["s/b.md: its memory was erased", "c.md: its memory was erased"] {
        place.skips(skipped, &["a.md", "c.md", "s/b.md"], &["a.md"]).await;
    }
    // Nor after the server is one from a backup.
    place.back_up().await;
    place.restore_backup().await;
    place.sync("").await.ends(1, "skipped s/b.md: ");
    place.delete("c.md");
    place.delete("s/b.md");
    place.sync("").await.ok();
    place.write("a.md", "1, edited");
    place.person.ok("memory rm a.md --yes").await;
    let store = place.person.store();
    store.redact(&store.history().await[1]["id"]).await;
    place.sync("").await.ends(1, "skipped a.md: the content that it was made from was redacted");
    assert!(place.memories().await.is_empty());
    // A person may upload a file all the same. The erasure of all memories empties the folder.
    place.delete("a.md");
    place.sync("").await.ok();
    place.write("s/a.md", "1, edited");
    place.sync("").await.ok();
    place.assert_equal(&[("s/a.md", "1, edited")]).await;
    place.erase("/s/").await;
    place.sync("").await.ok();
    place.assert_equal(&[]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn erasure_after_a_restored_backup_takes_no_last_copy_and_uploads_nothing() {
    let before = [("a.md", "1"), ("s/a.md", "secret")];
    let reason = "the store's history does not have its content";
    // The restored history was shortened as often as the lost one, but by another erasure.
    let mut place = Workplace::with(&before).await;
    place.back_up().await;
    place.write("x/a.md", "of the lost time");
    place.sync("").await.ok();
    place.erase("/x/").await;
    place.sync("").await.ok();
    place.restore_backup().await;
    place.erase("/s/").await;
    place.skips(&format!("s/a.md: {reason}"), &["a.md", "s/a.md"], &["a.md"]).await;
    let mut person = Person::new().await;
    let clock = ProcessClock::new(person.home.path().join("clock"));
    person.server.end().await;
    person.server = Server::start(clock.of(person.deployment.command(&ServerConfig::default()))).await;
    let mut place = Workplace::of(person).filled(&before).await;
    place.back_up().await;
    place.write("b.md", "of the lost time");
    place.sync("").await.ok();
    place.restore_backup().await;
    // An operator needs longer than the 100 ms within which two versions may have their ids in another order than their commits.
    clock.set(1);
    // The new history has as many changes as the lost one.
    place.person.put("c.md", "3").await;
    place.person.put("d.md", "4").await;
    place.erase("/s/").await;
    let files = ["a.md", "b.md", "c.md", "d.md", "s/a.md"];
    place.skips(&format!("b.md: {reason}"), &files, &["a.md", "c.md", "d.md"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn skipped_files_stay_on_their_side() {
    let place = Workplace::with(&[("a.md", "1"), ("z.md", "z")]).await;
    place.person.ok("store update notes --sensitive-data reject").await;
    place.write(".keepsakeignore", "private/\n");
    place.write("private/own.md", "own");
    place.write("secret.md", "card: 4111 1111 1111 1111\n");
    place.write("y.md", "2");
    place.person.put("private/theirs.md", "theirs").await;
    let run = place.sync("").await;
    for name in ["private", "private/theirs.md", "secret.md"] {
        run.ends(1, &format!("skipped {name}: "));
    }
    assert!(!place.folder.join("private/theirs.md").exists());
    // A path that became ignored stays in the store; a memory that moves to one leaves the folder.
    place.write(".keepsakeignore", "private/\na.md\n");
    place.delete("a.md");
    place.delete("secret.md");
    place.person.ok("memory mv z.md private/z.md").await;
    place.sync("--allow-emptying").await.ok();
    assert!(!place.folder.join("z.md").exists());
    let memories = ["a.md", "private/theirs.md", "private/z.md", "y.md"];
    assert!(place.memories().await.keys().eq(&memories), "the others are carried over");
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
    assert_eq!((place.files().len(), place.memories().await.len()), (3, 2));
    // A file whose move is refused stays at its new place.
    place.rename("a.md", "d/a.md");
    for _ in 0..2 {
        let refused = place.sync(&by_reader).await;
        assert!(refused.stderr.contains("skipped a.md"), "{}", refused.stderr);
        assert!(place.files().contains_key("d/a.md"), "{:?}", place.files());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn watch_carries_changes_over_and_waits_for_the_server() {
    let mut place = Workplace::with(&[("a.md", "1")]).await;
    let mut watching = place.start(&["--watch"]);
    place.write("b.md", "2");
    place.person.put("c.md", "3").await;
    let is_carried_over = async || place.files().len() == 3 && place.is_equal().await;
    eventually("both files are on both sides", SOON, is_carried_over).await;
    place.sync("").await.ends(1, "another process");
    place.delete("b.md");
    place.rename("c.md", "f.md");
    eventually("what stays gone is deleted or moved", SOON, || place.is_equal()).await;
    place.person.server.end().await;
    place.write("d.md", "4");
    place.rename("a.md", "e.md");
    place.person.server.restart().await;
    let has_arrived = async || place.memories().await.contains_key("d.md") && place.is_equal().await;
    eventually("the changes arrive after the restart", SOON, has_arrived).await;
    signal(watching.id().unwrap(), "INT").await;
    assert_eq!(watching.wait().await.unwrap().code(), Some(0));
    assert_eq!(place.sync("").await.ok(), "nothing to do; 3 synchronised\n");
}
