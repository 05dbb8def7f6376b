//! Imports of plain folders and of other stores.

use std::fs;
use std::os::unix::fs::symlink;

use serde_json::Value;

use crate::commands::Person;

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

    let run = person
        .run(&["import", &vault.to_string_lossy(), "-o", "json"])
        .await;
    assert_eq!(run.code, Some(1), "{}", run.stderr);
    let results: Value = serde_json::from_str(&run.stdout).unwrap();
    let found: Vec<_> = results["data"]
        .as_array()
        .unwrap()
        .iter()
        .map(|file| {
            let text = |field: &str| file[field].as_str().unwrap_or("-").to_owned();
            (text("path"), text("result"), text("reason"))
        })
        .collect();
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
    assert_eq!(
        person.run(&["memory", "cat", "café.md"]).await.ok(),
        "decomposed\n"
    );

    fs::remove_file(vault.join("large.md")).unwrap();
    let again = person.run(&["import", &vault.to_string_lossy()]).await.ok();
    assert!(
        again.ends_with("0 created, 0 replaced, 2 unchanged, 0 skipped, 6 refused\n"),
        "{again}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn store_of_another_server_is_imported() {
    let (person, other) = (Person::new().await, Person::new().await);
    other.create("/a.md", "one\n").await;
    other.create("/b/c.md", "two\n").await;
    other.run(&["memory", "pin", "a.md"]).await.ok();
    let from = [
        "import",
        "--from-url",
        &other.server.url(),
        "--from-store",
        "notes",
        "--prefix",
        "theirs",
    ];
    let key = [("KEEPSAKE_FROM_API_KEY", other.reader.as_str())];
    let imported = person.run_with(&from, &key, "").await.ok();
    assert_eq!(
        imported,
        "2 created, 0 replaced, 0 unchanged, 0 skipped, 0 refused\n"
    );
    assert_eq!(
        person.run(&["memory", "cat", "theirs/b/c.md"]).await.ok(),
        "two\n"
    );
    let listed = person
        .run(&["memory", "ls", "theirs/a.md", "-o", "json"])
        .await
        .json();
    assert_eq!(listed["data"][0]["pinned"], true);
    let again = person.run_with(&from, &key, "").await.ok();
    assert_eq!(
        again,
        "0 created, 0 replaced, 2 unchanged, 0 skipped, 0 refused\n"
    );
    let wrong = [("KEEPSAKE_FROM_API_KEY", "ks_live_wrong")];
    assert_eq!(person.run_with(&from, &wrong, "").await.code, Some(5));
}

#[tokio::test(flavor = "multi_thread")]
async fn missing_source_and_wrong_prefix_are_refused() {
    let person = Person::new().await;
    let file = person.path("a.txt");
    fs::write(&file, "text").unwrap();
    for (arguments, code, reason) in [
        (&["import", "no such folder"][..], 3, "cannot be read"),
        (&["import", &file], 2, "is neither a folder nor a .tar.zst"),
        (
            &["import", &file, "--prefix", "/x"],
            2,
            "an absolute path starts with /memories/",
        ),
    ] {
        let run = person.run(arguments).await;
        assert_eq!(run.code, Some(code), "{}", run.stderr);
        assert!(run.stderr.contains(reason), "{}", run.stderr);
    }
}
