use serde_json::Value;

use super::{Person, words};

#[tokio::test(flavor = "multi_thread")]
async fn memory_is_written_read_moved_and_deleted() {
    let person = Person::new().await;
    for (path, content, told) in [
        ("notes.md", "one\n", "created /memories/notes.md (4 B)\n"),
        ("/memories/notes.md", "two\n", "replaced /memories/notes.md (4 B)\n"),
        ("notes.md", "two\n", "unchanged: /memories/notes.md (4 B)\n"),
    ] {
        assert_eq!(person.put(path, content).await, told);
    }
    assert_eq!(person.ok("memory cat notes.md").await, "two\n");

    let moved = person.ok("memory mv notes.md work/plan.md").await;
    assert_eq!(moved, "moved /memories/notes.md to /memories/work/plan.md\n");
    let moved = person.ok("memory mv work done").await;
    assert_eq!(moved, "moved /memories/work to /memories/done\n");

    person.ends("memory rm done/plan.md", 2, "--yes").await;
    person.ends("memory rm done --yes", 2, "").await;
    let deleted = person.ok("memory rm done --recursive --yes").await;
    assert_eq!(deleted, "deleted /memories/done/plan.md\n");
    person.ends("memory cat done/plan.md", 3, "").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn listing_shows_one_directory_or_the_tree() {
    let person = Person::new().await;
    for path in ["a.md", "p/b.md", "p/q/c.md"] {
        person.put(path, "text\n").await;
    }
    let listed = person.ok("memory ls").await;
    let lines: Vec<_> = listed.lines().map(str::trim_start).collect();
    let [head, file, directory] = lines[..] else {
        panic!("{listed}");
    };
    assert!(head.starts_with("SIZE"), "{listed}");
    assert!(file.starts_with("5 B"), "{listed}");
    assert!(file.ends_with("/memories/a.md"), "{listed}");
    assert!(directory.ends_with("/memories/p/"), "{listed}");

    let tree = person.ok("memory ls -R").await;
    let names = tree.lines().map(|line| line.split("  5 B").next().unwrap());
    let expected = "/memories\n├── a.md\n└── p/\n    ├── b.md\n    └── q/\n        └── c.md";
    assert_eq!(names.collect::<Vec<_>>().join("\n"), expected);

    let lines = person.ok("memory ls -R p -o jsonl").await;
    let lines = lines.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let paths: Vec<_> = lines.map(|memory| memory["path"].clone()).collect();
    assert_eq!(paths, ["/p/b.md", "/p/q/c.md"]);

    let one = person.json("memory ls p/b.md -o json").await;
    assert_eq!(one["data"][0]["path"], "/p/b.md");
    person.ends("memory ls nothing", 3, "").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn history_is_shown_compared_and_restored() {
    let person = Person::new().await;
    person.put("fact.md", "The office is in Oslo.\n").await;
    person.put("fact.md", "The office is in Rome.\n").await;

    let log = person.json("memory log fact.md -o json").await;
    let [newer, older] = [0_usize, 1].map(|place| &log["data"][place]);
    assert_eq!(newer["operation"], "modified");
    assert_eq!(older["operation"], "created");
    let [second, first] = [newer, older].map(|version| version["id"].as_str().unwrap());

    let table = person.ok("memory log fact.md").await;
    assert!(table.contains("modified") && table.contains("apikey_"), "{table}");
    let diff = person.ok("memory diff fact.md").await;
    let changed = "-The office is in Oslo.\n+The office is in Rome.\n";
    assert!(diff.contains(changed), "{diff}");
    let restored = person.ok(&format!("memory restore {first}")).await;
    assert_eq!(restored, format!("restored /memories/fact.md from {first}\n"));
    assert_eq!(person.ok("memory cat fact.md").await, "The office is in Oslo.\n");

    person.ends(&format!("memory redact {second}"), 2, "").await;
    let redacted = person.ok(&format!("memory redact {second} --yes")).await;
    assert_eq!(redacted, format!("redacted {second}\n"));
    let refused = person.line(&format!("memory diff fact.md {second}")).await;
    assert!(refused.stderr.contains("was redacted"), "{}", refused.stderr);

    person.ok("memory rm fact.md -y").await;
    let whole = person.ok("memory log -o jsonl").await;
    assert_eq!(whole.lines().count(), 4, "{whole}");
    person.ok(&format!("memory restore {first}")).await;
    assert_eq!(person.ok("memory cat fact.md").await, "The office is in Oslo.\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn search_shows_the_place_and_the_passage() {
    let person = Person::new().await;
    let content = "# Deploying\n\nWe deploy on Tuesdays.\n";
    person.put("deploy.md", content).await;
    let found = person.ok("memory search tuesdays").await;
    assert!(found.starts_with("/memories/deploy.md:"), "{found}");
    assert!(found.contains("We deploy on Tuesdays."), "{found}");
    assert!(!found.contains('⟦'), "{found}");
    person.ok("store create second").await;
    let second = [("KEEPSAKE_STORE", "second")];
    let put = ["memory", "put", "plan.md"];
    person.run_with(&put, &second, "Not on Tuesdays.\n").await.ok();
    let everywhere = "memory search tuesdays --all-stores";
    let found = person.ok(everywhere).await;
    assert!(found.contains("second  /memories/plan.md:1\n"), "{found}");
    assert!(found.contains("  /memories/deploy.md:"), "{found}");
    let hits = person.json(&format!("{everywhere} -o json")).await;
    assert_eq!(hits["data"].as_array().unwrap().len(), 2);
    assert_eq!(person.ok("memory search absent").await, "");
    let pinned = person.ok("memory pin deploy.md").await;
    assert_eq!(pinned, "pinned /memories/deploy.md\n");
    let unpinned = person.json("memory pin deploy.md --off -o json").await;
    assert_eq!(unpinned["pinned"], false);
}

#[tokio::test(flavor = "multi_thread")]
async fn expiry_time_of_a_memory_is_set_and_removed() {
    let person = Person::new().await;
    let put = ["memory", "put", "offer.md", "--expires-in", "30d", "-o", "json"];
    let made = person.run_with(&put, &[], "10 %\n").await.json();
    assert!(made["expires_at"].is_string(), "{made}");
    let listed = person.ok("memory ls").await;
    assert!(listed.contains("in 4 weeks"), "{listed}");
    let set = person.ok("memory expire offer.md --at 2999-12-31").await;
    assert!(set.starts_with("/memories/offer.md expires in "), "{set}");
    assert!(set.ends_with(", at 2999-12-31T00:00:00.000000Z\n"), "{set}");
    person.put("offer.md", "20 %\n").await;
    let shown = person.json("memory ls offer.md -o json").await;
    assert_eq!(shown["data"][0]["expires_at"], "2999-12-31T00:00:00.000000Z");
    let removed = person.ok("memory expire offer.md --never").await;
    assert_eq!(removed, "/memories/offer.md never expires\n");
    for (wrong, code, told) in [
        ("--at 2020-01-01", 1, "`expires_at` must be in the future"),
        ("--at tomorrow", 1, "`expires_at` must be a time"),
        ("--in tomorrow", 2, "a period is a whole number"),
        ("", 2, "--never"),
        ("--never --in 1d", 2, "cannot be used with"),
    ] {
        person.ends(&format!("memory expire offer.md {wrong}"), code, told).await;
    }
}

/// What `each.rs` does not show of every command.
#[tokio::test(flavor = "multi_thread")]
async fn each_class_of_failure_has_its_exit_code() {
    let person = Person::new().await;
    person.put("a.md", "a").await;
    let key = ("KEEPSAKE_API_KEY", person.tenant.key.as_str());
    let reader = ("KEEPSAKE_API_KEY", person.reader.as_str());
    let malformed = ("KEEPSAKE_URL", "localhost");
    let no_store = ("KEEPSAKE_STORE", "no such store");
    for (line, variable, code, told) in [
        ("memory cat /a.md", key, 2, "an absolute path starts with /memories/"),
        ("memory cat", key, 2, "<PATH>"),
        ("memory cat a.md", malformed, 2, "url localhost"),
        ("memory cat b.md", key, 3, "/memories/b.md: there is no such memory"),
        ("memory ls", no_store, 3, "no memory store has the id or the name"),
        ("memory put a.md --create-only", key, 4, "/memories/a.md was not saved"),
        ("memory put a.md", reader, 5, "/memories/a.md was not saved"),
    ] {
        let run = person.run_with(&words(line), &[variable], "text").await;
        run.ends(code, told);
    }
    assert_eq!(person.ok("memory cat a.md").await, "a");
}
