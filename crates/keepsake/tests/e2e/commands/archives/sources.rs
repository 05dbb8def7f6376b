//! Imports of plain folders and of other stores.

use std::fs;
use std::os::unix::fs::symlink;

use serde_json::Value;

use super::counts;
use crate::commands::{Person, words};

#[tokio::test(flavor = "multi_thread")]
async fn plain_folder_is_imported_without_its_invalid_files() {
    let person = Person::new().await;
    let vault = person.home.path().join("vault");
    fs::create_dir_all(vault.join("deep/er")).unwrap();
    fs::create_dir_all(vault.join(".git/objects")).unwrap();
    fs::write(vault.join("deep/er/note.md"), "# Note\n").unwrap();
    fs::write(vault.join(".git/objects/a"), "hidden").unwrap();
    fs::write(vault.join(".hidden"), "hidden").unwrap();
    fs::write(vault.join("image.png"), [0x89, 0x50, 0xff, 0]).unwrap();
    fs::write(vault.join("nul.txt"), "a\0b").unwrap();
    fs::write(vault.join("cafe\u{301}.md"), "decomposed\n").unwrap();
    fs::write(vault.join("large.md"), "x".repeat(200_000)).unwrap();
    let outside = person.home.path().join("outside.md");
    fs::write(&outside, "outside\n").unwrap();
    symlink(&outside, vault.join("link.md")).unwrap();
    symlink(person.home.path(), vault.join("link")).unwrap();

    let import = format!("import {}", vault.display());
    let run = person.line(&format!("{import} -o json")).await;
    assert_eq!(run.code, Some(1), "{}", run.stderr);
    let results: Value = serde_json::from_str(&run.stdout).unwrap();
    let found = results["data"].as_array().unwrap().iter().map(|file| {
        let text = |field: &str| file[field].as_str().unwrap_or("-").to_owned();
        (text("path"), text("result"), text("reason"))
    });
    let found: Vec<_> = found.collect();
    let expected = [
        ("/.git", "refused", "is hidden"),
        ("/.hidden", "refused", "is hidden"),
        ("/café.md", "created", "-"),
        ("/deep/er/note.md", "created", "-"),
        ("/image.png", "refused", "is not text"),
        ("/large.md", "refused", "limit"),
        ("/link", "refused", "is a symbolic link"),
        ("/link.md", "refused", "is a symbolic link"),
        ("/nul.txt", "refused", "is not text"),
    ];
    assert_eq!(found.len(), expected.len(), "{found:?}");
    for (found, expected) in found.iter().zip(expected) {
        assert_eq!((found.0.as_str(), found.1.as_str()), (expected.0, expected.1));
        assert!(found.2.contains(expected.2), "{found:?}");
    }
    assert_eq!(person.ok("memory cat café.md").await, "decomposed\n");

    fs::remove_file(vault.join("large.md")).unwrap();
    let again = person.ok(&import).await;
    assert!(again.ends_with(&counts([0, 0, 2, 0, 6])), "{again}");
}

#[tokio::test(flavor = "multi_thread")]
async fn store_of_another_server_is_imported() {
    let (person, other) = (Person::new().await, Person::new().await);
    other.create("/a.md", "one\n").await;
    other.create("/b/c.md", "two\n").await;
    other.ok("memory pin a.md").await;
    let url = other.server.url();
    let from = format!("import --from-url {url} --from-store notes --prefix theirs");
    let run = async |more: &str, key: &str| {
        let line = format!("{from} {more}");
        let key = [("KEEPSAKE_FROM_API_KEY", key)];
        person.run_with(&words(&line), &key, "").await
    };
    let imported = run("", &other.reader).await.ok();
    assert_eq!(imported, counts([2, 0, 0, 0, 0]));
    assert_eq!(person.ok("memory cat theirs/b/c.md").await, "two\n");
    let is_pinned = async |path: &str| {
        let listed = person.json(&format!("memory ls {path} -o json")).await;
        listed["data"][0]["pinned"] == true
    };
    assert!(is_pinned("theirs/a.md").await);
    let again = run("", &other.reader).await.ok();
    assert_eq!(again, counts([0, 0, 2, 0, 0]));
    // A memory that is replaced gets the pin, too.
    other.put("b/c.md", "three\n").await;
    other.ok("memory pin b/c.md").await;
    let replaced = run("--on-conflict replace", &other.reader).await.ok();
    assert_eq!(replaced, counts([0, 1, 1, 0, 0]));
    assert!(is_pinned("theirs/b/c.md").await);
    run("", "ks_live_wrong").await.ends(5, "");
}

#[tokio::test(flavor = "multi_thread")]
async fn missing_source_and_wrong_prefix_are_refused() {
    let person = Person::new().await;
    let file = person.path("a.txt");
    fs::write(&file, "text").unwrap();
    let (neither, outside) = (format!("import {file}"), format!("import {file} --prefix /x"));
    for (line, code, reason) in [
        ("import nothing", 3, "cannot be read"),
        (&neither, 2, "is neither a folder nor a .tar.zst"),
        (&outside, 2, "an absolute path starts with /memories/"),
    ] {
        person.ends(line, code, reason).await;
    }
}
