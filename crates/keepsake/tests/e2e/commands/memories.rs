use serde_json::Value;

use super::Person;

#[tokio::test(flavor = "multi_thread")]
async fn memory_is_written_read_moved_and_deleted() {
    let person = Person::new().await;
    assert_eq!(
        person.put("notes.md", "one\n").await,
        "created /memories/notes.md (4 B)\n"
    );
    assert_eq!(
        person.put("/memories/notes.md", "two\n").await,
        "replaced /memories/notes.md (4 B)\n"
    );
    assert_eq!(
        person.put("notes.md", "two\n").await,
        "unchanged: /memories/notes.md (4 B)\n"
    );
    assert_eq!(person.run(&["memory", "cat", "notes.md"]).await.ok(), "two\n");

    let moved = person
        .run(&["memory", "mv", "notes.md", "work/plan.md"])
        .await
        .ok();
    assert_eq!(moved, "moved /memories/notes.md to /memories/work/plan.md\n");
    let moved = person.run(&["memory", "mv", "work", "done"]).await.ok();
    assert_eq!(moved, "moved /memories/work to /memories/done\n");

    let refused = person.run(&["memory", "rm", "done/plan.md"]).await;
    assert_eq!(refused.code, Some(2), "{}", refused.stderr);
    assert!(refused.stderr.contains("--yes"), "{}", refused.stderr);
    let refused = person.run(&["memory", "rm", "done", "--yes"]).await;
    assert_eq!(refused.code, Some(2), "{}", refused.stderr);
    let deleted = person
        .run(&["memory", "rm", "done", "--recursive", "--yes"])
        .await
        .ok();
    assert_eq!(deleted, "deleted /memories/done/plan.md\n");
    assert_eq!(person.run(&["memory", "cat", "done/plan.md"]).await.code, Some(3));
}

#[tokio::test(flavor = "multi_thread")]
async fn listing_shows_one_directory_or_the_tree() {
    let person = Person::new().await;
    for path in ["a.md", "p/b.md", "p/q/c.md"] {
        person.put(path, "text\n").await;
    }
    let listed = person.run(&["memory", "ls"]).await.ok();
    let lines: Vec<_> = listed.lines().collect();
    assert_eq!(lines.len(), 3, "{listed}");
    assert!(
        lines[0].starts_with("SIZE") || lines[0].trim_start().starts_with("SIZE"),
        "{listed}"
    );
    assert!(
        lines[1].trim_start().starts_with("5 B") && lines[1].ends_with("/memories/a.md"),
        "{listed}"
    );
    assert!(lines[2].ends_with("/memories/p/"), "{listed}");

    let tree = person.run(&["memory", "ls", "-R"]).await.ok();
    let names: Vec<_> = tree
        .lines()
        .map(|line| line.split("  5 B").next().unwrap())
        .collect();
    let expected = [
        "/memories",
        "├── a.md",
        "└── p/",
        "    ├── b.md",
        "    └── q/",
        "        └── c.md",
    ];
    assert_eq!(names, expected);

    let lines = person.run(&["memory", "ls", "-R", "p", "-o", "jsonl"]).await.ok();
    let paths: Vec<_> = lines
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap()["path"].clone())
        .collect();
    assert_eq!(paths, ["/p/b.md", "/p/q/c.md"]);

    let one = person.run(&["memory", "ls", "p/b.md", "-o", "json"]).await.json();
    assert_eq!(one["data"][0]["path"], "/p/b.md");
    assert_eq!(person.run(&["memory", "ls", "nothing"]).await.code, Some(3));
}

#[tokio::test(flavor = "multi_thread")]
async fn history_is_shown_compared_and_restored() {
    let person = Person::new().await;
    person.put("fact.md", "The office is in Oslo.\n").await;
    person.put("fact.md", "The office is in Rome.\n").await;

    let log = person
        .run(&["memory", "log", "fact.md", "-o", "json"])
        .await
        .json();
    let versions = log["data"].as_array().unwrap();
    let operations: Vec<_> = versions
        .iter()
        .map(|version| version["operation"].clone())
        .collect();
    assert_eq!(operations, ["modified", "created"]);
    let first = versions[1]["id"].as_str().unwrap();

    let table = person.run(&["memory", "log", "fact.md"]).await.ok();
    assert!(table.contains("modified") && table.contains("apikey_"), "{table}");
    let diff = person.run(&["memory", "diff", "fact.md"]).await.ok();
    assert!(
        diff.contains("-The office is in Oslo.\n+The office is in Rome.\n"),
        "{diff}"
    );
    let restored = person.run(&["memory", "restore", first]).await.ok();
    assert_eq!(restored, format!("restored /memories/fact.md from {first}\n"));
    assert_eq!(
        person.run(&["memory", "cat", "fact.md"]).await.ok(),
        "The office is in Oslo.\n"
    );

    let second = versions[0]["id"].as_str().unwrap();
    assert_eq!(person.run(&["memory", "redact", second]).await.code, Some(2));
    let redacted = person.run(&["memory", "redact", second, "--yes"]).await.ok();
    assert_eq!(redacted, format!("redacted {second}\n"));
    let refused = person.run(&["memory", "diff", "fact.md", second]).await;
    assert!(refused.stderr.contains("was redacted"), "{}", refused.stderr);

    person.run(&["memory", "rm", "fact.md", "-y"]).await.ok();
    let whole = person.run(&["memory", "log", "-o", "jsonl"]).await.ok();
    assert_eq!(whole.lines().count(), 4, "{whole}");
    person.run(&["memory", "restore", first]).await.ok();
    assert_eq!(
        person.run(&["memory", "cat", "fact.md"]).await.ok(),
        "The office is in Oslo.\n"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn search_shows_the_place_and_the_passage() {
    let person = Person::new().await;
    person
        .put("deploy.md", "# Deploying\n\nWe deploy on Tuesdays.\n")
        .await;
    let found = person.run(&["memory", "search", "tuesdays"]).await.ok();
    assert!(found.starts_with("/memories/deploy.md:"), "{found}");
    assert!(
        found.contains("We deploy on Tuesdays.") && !found.contains('⟦'),
        "{found}"
    );
    person.run(&["store", "create", "second"]).await.ok();
    let second = [("KEEPSAKE_STORE", "second")];
    let put = ["memory", "put", "plan.md"];
    person.run_with(&put, &second, "Not on Tuesdays.\n").await.ok();
    let everywhere = ["memory", "search", "tuesdays", "--all-stores"];
    let found = person.run(&everywhere).await.ok();
    assert!(found.contains("second  /memories/plan.md:1\n"), "{found}");
    assert!(found.contains("  /memories/deploy.md:"), "{found}");
    let hits = person
        .run(&[&everywhere[..], &["-o", "json"]].concat())
        .await
        .json();
    assert_eq!(hits["data"].as_array().unwrap().len(), 2);
    let none = person.run(&["memory", "search", "absent"]).await;
    assert_eq!((none.code, none.stdout.as_str()), (Some(0), ""));
    let pinned = person.run(&["memory", "pin", "deploy.md"]).await.ok();
    assert_eq!(pinned, "pinned /memories/deploy.md\n");
    let unpinned = person
        .run(&["memory", "pin", "deploy.md", "--off", "-o", "json"])
        .await
        .json();
    assert_eq!(unpinned["pinned"], false);
}

/// Arguments, variables, the exit code and a part of the message.
type Case<'a> = (&'a [&'a str], &'a [(&'a str, &'a str)], i32, &'a str);

#[tokio::test(flavor = "multi_thread")]
async fn expiry_time_of_a_memory_is_set_and_removed() {
    let person = Person::new().await;
    let put = ["memory", "put", "offer.md", "--expires-in", "30d", "-o", "json"];
    let made = person.run_with(&put, &[], "10 %\n").await.json();
    assert!(made["expires_at"].is_string(), "{made}");
    let listed = person.run(&["memory", "ls"]).await.ok();
    assert!(listed.contains("in 4 weeks"), "{listed}");
    let at = ["memory", "expire", "offer.md", "--at", "2999-12-31"];
    let set = person.run(&at).await.ok();
    assert!(set.starts_with("/memories/offer.md expires in "), "{set}");
    assert!(set.ends_with(", at 2999-12-31T00:00:00.000000Z\n"), "{set}");
    person.put("offer.md", "20 %\n").await;
    let shown = person
        .run(&["memory", "ls", "offer.md", "-o", "json"])
        .await
        .json();
    assert_eq!(shown["data"][0]["expires_at"], "2999-12-31T00:00:00.000000Z");
    let removed = person
        .run(&["memory", "expire", "offer.md", "--never"])
        .await
        .ok();
    assert_eq!(removed, "/memories/offer.md never expires\n");
    for (wrong, code, told) in [
        (
            &["--at", "2020-01-01"] as &[_],
            1,
            "`expires_at` must be in the future",
        ),
        (&["--at", "tomorrow"], 1, "`expires_at` must be a time"),
        (&["--in", "tomorrow"], 2, "a period is a whole number"),
        (&[], 2, "--never"),
        (&["--never", "--in", "1d"], 2, "cannot be used with"),
    ] {
        let refused = person
            .run(&[&["memory", "expire", "offer.md"], wrong].concat())
            .await;
        assert_eq!(refused.code, Some(code), "{}", refused.stderr);
        assert!(refused.stderr.contains(told), "{}", refused.stderr);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn each_class_of_failure_has_its_exit_code() {
    let person = Person::new().await;
    person.put("a.md", "a").await;
    let reader = [("KEEPSAKE_API_KEY", person.reader.as_str())];
    let unknown = [("KEEPSAKE_API_KEY", "ks_live_unknown")];
    let nowhere = [("KEEPSAKE_URL", "http://127.0.0.1:9")];
    let malformed = [("KEEPSAKE_URL", "localhost")];
    let no_store = [("KEEPSAKE_STORE", "no such store")];
    let cases: [Case; 10] = [
        (&["memory", "cat", "a.md"], &[], 0, ""),
        (
            &["memory", "cat", "/a.md"],
            &[],
            2,
            "an absolute path starts with /memories/",
        ),
        (&["memory", "cat"], &[], 2, "<PATH>"),
        (&["memory", "cat", "a.md"], &malformed, 2, "url localhost"),
        (
            &["memory", "cat", "b.md"],
            &[],
            3,
            "/memories/b.md: there is no such memory",
        ),
        (
            &["memory", "ls"],
            &no_store,
            3,
            "no memory store has the id or the name",
        ),
        (
            &["memory", "put", "a.md", "--create-only"],
            &[],
            4,
            "/memories/a.md was not saved",
        ),
        (
            &["memory", "put", "a.md"],
            &reader,
            5,
            "/memories/a.md was not saved",
        ),
        (&["memory", "ls"], &unknown, 5, "the API key"),
        (
            &["memory", "ls"],
            &nowhere,
            6,
            "http://127.0.0.1:9 cannot be reached: tcp connect error: Connection refused",
        ),
    ];
    for (arguments, variables, code, message) in cases {
        let run = person.run_with(arguments, variables, "text").await;
        assert_eq!(run.code, Some(code), "{arguments:?}: {}", run.stderr);
        assert!(run.stderr.contains(message), "{arguments:?}: {}", run.stderr);
    }
    assert_eq!(person.run(&["memory", "cat", "a.md"]).await.ok(), "a");
}
