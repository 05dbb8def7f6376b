use std::os::unix::fs::{PermissionsExt, symlink};
use std::task::{Context, Waker};

use tempfile::TempDir;

use super::super::plan::KnownMemory;
use super::super::plan::tests::{hash, path};
use super::super::store::NotDone;
use super::*;

struct Disk {
    root: TempDir,
    folder: Folder,
    state: State,
}

impl Disk {
    fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        let private = root.path().join(PRIVATE_FOLDER);
        std::fs::create_dir(&private).unwrap();
        Self {
            folder: Folder::open(root.path().to_owned(), Some(100), false).unwrap(),
            state: State::read(private.join("state.json"), "http://a", "memstore_1").unwrap(),
            root,
        }
    }

    fn put(&self, name: &str, content: impl AsRef<[u8]>) {
        let place = self.root.path().join(name);
        std::fs::create_dir_all(place.parent().unwrap()).unwrap();
        std::fs::write(place, content).unwrap();
    }

    fn content(&self, name: &str) -> Option<String> {
        std::fs::read_to_string(self.root.path().join(name)).ok()
    }

    fn list(&mut self) -> Listing {
        let scope = Scope::read(self.root.path()).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(self.folder.list(&self.state, &scope)).unwrap()
    }

    /// Visible files below the root.
    fn names(&self) -> Vec<String> {
        let entries = self.root.path().read_dir().unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<_> = names.filter(|name| !name.starts_with('.')).collect();
        names.sort();
        names
    }
}

#[test]
fn invalid_files_are_skipped_with_a_reason() {
    let mut disk = Disk::new();
    disk.put("good.md", "good");
    disk.put("d/also good.md", "good");
    disk.put(".hidden", "");
    disk.put("draft.tmp", "");
    disk.put("binary", [0xff, 0xfe]);
    disk.put("nul", "a\0b");
    disk.put("large", "x".repeat(101));
    disk.put("control\u{7}", "");
    disk.put(&format!("{}x", "s/".repeat(20)), "");
    disk.put(IGNORE_FILE, "*.tmp\n");
    symlink("/etc", disk.root.path().join("link")).unwrap();
    let found = disk.list();
    let present = found.files.iter().filter(|(_, side)| matches!(side, Side::Present(_)));
    let present: Vec<_> = present.map(|(path, _)| path.as_str()).collect();
    assert_eq!(present, ["/d/also good.md", "/good.md"]);
    for (name, part) in [
        ("/.hidden", "hidden"),
        ("/draft.tmp", ".keepsakeignore"),
        ("/binary", "not UTF-8 text"),
        ("/nul", "NUL"),
        ("/large", "over the store's limit of 100 bytes"),
        ("/control\u{7}", "control character"),
        ("/link", "symbolic link"),
        (format!("/{}x", "s/".repeat(20)).as_str(), "segments"),
    ] {
        let skipped = found.skipped.iter().find(|(path, _)| path == name).unwrap();
        assert!(skipped.1.contains(part), "{skipped:?}");
    }
    assert_eq!(found.skipped.len(), 8, "{:?}", found.skipped);
}

/// The files of this folder of Linux say that they are empty.
#[tokio::test]
async fn listing_believes_no_size_and_pauses_between_files() {
    let disk = Disk::new();
    let scope = Scope::read(disk.root.path()).unwrap();
    let mut folder = Folder::open("/proc/sys/kernel".into(), Some(1), true).unwrap();
    let mut listing = std::pin::pin!(folder.list(&disk.state, &scope));
    let mut context = Context::from_waker(Waker::noop());
    assert!(listing.as_mut().poll(&mut context).is_pending());
    let skipped = listing.await.unwrap().skipped;
    assert!(skipped.iter().any(|(_, reason)| reason.contains("more bytes than it says")), "{skipped:?}");
}

#[test]
fn names_are_compared_in_nfc_and_keep_their_form_on_the_disk() {
    let mut disk = Disk::new();
    disk.put("e\u{301}t/e\u{301}.md", "one");
    let found = disk.list();
    let paths: Vec<_> = found.files.keys().map(MemoryPath::as_str).collect();
    assert_eq!(paths, ["/\u{e9}t/\u{e9}.md"]);
    let known = path("/\u{e9}t/\u{e9}.md");
    assert!(disk.folder.write(&known, "two", Some(hash("one"))).is_ok());
    assert_eq!(disk.content("e\u{301}t/e\u{301}.md").as_deref(), Some("two"));
    assert!(disk.folder.write(&path("/\u{e9}t/new.md"), "new", None).is_ok());
    assert_eq!(disk.content("e\u{301}t/new.md").as_deref(), Some("new"));

    // Both forms at once: neither is touched.
    disk.put("\u{e9}t/x.md", "other");
    let found = disk.list();
    assert_eq!(found.files.get(&path("/\u{e9}t")), Some(&Side::Blocked));
    assert!(found.skipped[0].1.contains("NFC"));
}

#[test]
fn write_and_delete_need_the_content_that_was_seen() {
    let disk = Disk::new();
    disk.put("a.md", "edited");
    let seen = hash("seen");
    assert!(matches!(disk.folder.write(&path("/a.md"), "new", None), Err(NotDone::Lost)));
    for target in ["/a.md", "/gone.md"].map(path) {
        assert!(matches!(disk.folder.write(&target, "new", Some(seen)), Err(NotDone::Lost)));
        assert!(matches!(disk.folder.delete(&target, seen), Err(NotDone::Lost)));
    }
    assert_eq!(disk.content("a.md").as_deref(), Some("edited"));
    assert_eq!(disk.names(), ["a.md"]);
}

/// `take` does what follows the rename of a file that was edited after the check.
#[test]
fn edit_of_the_last_moment_is_put_back_or_kept_beside_the_new_content() {
    let disk = Disk::new();
    let take = |content: &str| {
        disk.put(".keepsake/swap/taken", content);
        let taken = disk.folder.opened.as_ref().unwrap();
        let taken = taken.entry(".keepsake/swap/taken").unwrap();
        let is_dropped = disk.folder.drop_if_known(&taken, &path("/a.md"), hash("seen"));
        assert!(!is_dropped.unwrap());
    };
    take("an edit");
    assert_eq!(disk.names(), ["a.md"]);
    take("another");
    let names = disk.names();
    assert!(names.len() == 2 && names[0].starts_with("a.conflict-"), "{names:?}");
    let contents = [names[0].as_str(), "a.md"].map(|name| disk.content(name).unwrap());
    assert_eq!(contents, ["another", "an edit"]);
}

#[test]
fn replaced_file_keeps_its_mode_and_directories_follow_their_files() {
    let disk = Disk::new();
    disk.put("d/e/a.md", "one");
    let place = disk.root.path().join("d/e/a.md");
    std::fs::set_permissions(&place, std::fs::Permissions::from_mode(0o640)).unwrap();
    let target = path("/d/e/a.md");
    assert!(disk.folder.write(&target, "two", Some(hash("one"))).is_ok());
    assert_eq!(place.metadata().unwrap().permissions().mode() & 0o777, 0o640);
    assert!(matches!(disk.folder.rename(&target, &path("/f/a.md")), Ok(())));
    assert_eq!(disk.names(), ["f"]);
    assert!(matches!(disk.folder.delete(&path("/f/a.md"), hash("two")), Ok(())));
    assert!(disk.names().is_empty());
}

#[test]
fn nothing_is_written_through_a_link_or_in_place_of_a_full_directory() {
    let disk = Disk::new();
    let outside = tempfile::tempdir().unwrap();
    symlink(outside.path(), disk.root.path().join("link")).unwrap();
    std::fs::create_dir(disk.root.path().join("empty")).unwrap();
    disk.put("full/x", "x");
    for (place, is_done) in [("/link/a.md", false), ("/full", false), ("/empty", true), ("/empty/y", false)] {
        let written = disk.folder.write(&path(place), "new", None);
        assert!(
            if is_done { written.is_ok() } else { matches!(written, Err(NotDone::Refused(_))) },
            "{place}"
        );
    }
    assert_eq!(outside.path().read_dir().unwrap().count(), 0);
    assert_eq!(disk.content("full/x").as_deref(), Some("x"));
}

#[test]
fn files_of_a_killed_run_are_kept_if_the_store_does_not_have_them() {
    let disk = Disk::new();
    let swap = disk.root.path().join(".keepsake/swap");
    let name = format!("{}-{}", hash("new"), hash("old"));
    std::fs::write(swap.join(&name), "old").unwrap();
    disk.folder.recover().unwrap();
    assert!(disk.names().is_empty());
    std::fs::write(swap.join(&name), "an edit").unwrap();
    disk.folder.recover().unwrap();
    let names = disk.names();
    assert!(names.len() == 1 && names[0].starts_with("recovered.conflict-"), "{names:?}");
    assert_eq!(disk.content(&names[0]).as_deref(), Some("an edit"));
    assert_eq!(swap.read_dir().unwrap().count(), 0);
}

#[test]
fn unchanged_file_is_known_by_its_hint_and_a_changed_one_by_its_content() {
    let mut disk = Disk::new();
    disk.put("a.md", "one");
    let target = path("/a.md");
    let hint = Hint::of(&disk.root.path().join("a.md").symlink_metadata().unwrap());
    let known = KnownMemory {
        memory_id: "mem_00000000000000000000000001".parse().unwrap(),
        hash: hash("from the state"),
        version_id: None,
    };
    disk.state.record(&target, known, Some(hint));
    assert_eq!(disk.list().files[&target], Side::Present(known.hash));
    disk.put("a.md", "two");
    std::fs::set_permissions(disk.root.path().join("a.md"), std::fs::Permissions::from_mode(0o600)).unwrap();
    let found = disk.list();
    assert_eq!(found.files[&target], Side::Present(hash("two")));
    assert!(found.hints.is_empty(), "a file of this second has no hint");
}
