use keepsake_testkit::{EmbeddingsFault, EmbeddingsServer};

use super::*;
use crate::support::meaning;

#[tokio::test(flavor = "multi_thread")]
async fn memory_is_written_read_moved_listed_and_deleted() {
    let person = Person::new().await;
    for (path, content, told) in [
        ("notes.md", "one\n", "created /memories/notes.md (4 B)\n"),
        ("/memories/notes.md", "two\n", "replaced /memories/notes.md (4 B)\n"),
        ("notes.md", "two\n", "unchanged: /memories/notes.md (4 B)\n"),
    ] {
        assert_eq!(person.put(path, content).await, told);
    }
    assert_eq!(person.ok("memory cat notes.md").await, "two\n");
    person.ok("memory mv notes.md work/plan.md").await;
    person.put("a.md", "text\n").await;
    let listed = person.ok("memory ls").await;
    let lines: Vec<_> = listed.lines().map(str::trim_start).collect();
    assert!(lines.len() == 3 && lines[0].starts_with("SIZE"), "{listed}");
    assert!(lines[1].starts_with("5 B") && lines[1].ends_with("/memories/a.md"), "{listed}");
    assert!(lines[2].ends_with("/memories/work/"), "{listed}");
    person.ends("memory ls nothing", 3, "").await;
    let log = person.ok("memory log work/plan.md").await;
    says(&log, &["  renamed  ", "  /memories/work/plan.md  /memories/notes.md\n"]);
    for of_memory in ["log", "pin", "edit"] {
        person
            .ends(&format!("memory {of_memory} work"), 3, "`keepsake memory ls /memories/work` lists it")
            .await;
    }
    assert_eq!(person.ok("memory mv work done").await, "moved /memories/work to /memories/done\n");
    person.ends("memory put done/plan.md --create-only", 4, "/memories/done/plan.md was not saved").await;
    for elsewhere in ["memory cat /b.md", "memory cat /memoriesx"] {
        person.ends(elsewhere, 2, "an absolute path starts with /memories/: write /memories/").await;
    }
    person.ends("memory rm done/plan.md", 2, "--yes").await;
    person.ends("memory rm done --yes", 2, "").await;
    let deleted = person.ok("memory rm done done/plan.md --recursive --yes").await;
    let told = "deleted /memories/done/plan.md; undo: keepsake memory restore /memories/done/plan.md --store memstore_";
    assert!(deleted.starts_with(told), "{deleted}");
    assert_eq!(person.ok("memory cat done/plan.md --at-seq 5").await, "two\n");
    let diff = person.ok("memory diff done/plan.md").await;
    assert!(diff.ends_with("-two\n"), "{diff}");
    let listed = person.ok("memory ls --deleted").await;
    assert!(listed.contains("  API key tests  ") && listed.ends_with("/memories/done/plan.md\n"), "{listed}");
    let log = person.ok("memory log done/plan.md -o jsonl").await;
    assert!(log.starts_with('{') && log.lines().count() == 5, "{log}");
    person.ends("memory restore a.md", 4, "/memories/a.md exists").await;
    person.ends("memory restore nothing.md", 3, "there is no such memory").await;
    person.ok("memory restore done/plan.md").await;
    assert_eq!(person.ok("memory cat done/plan.md").await, "two\n");
    person.ends("memory cat /memories", 3, "`keepsake memory ls /memories` lists it").await;
    assert_eq!(person.ok("memory ls --deleted done -o jsonl").await, "");
    let unchanged = "unchanged: /memories/a.md has this path already\n";
    assert_eq!(person.ok("memory mv a.md a.md").await, unchanged);
    person.ends("memory put ../x", 1, "/memories/../x was not saved: ").await;

    person.line_with("memory put offer.md --expires-in 30d", &[], "10 %\n").await.ok();
    let listed = person.ok("memory ls").await;
    assert!(listed.contains("in 4 weeks"), "{listed}");
    let set = person.ok("memory expire offer.md --at 2999-12-31").await;
    assert!(set.ends_with(", at 2999-12-31T00:00:00.000000Z\n"), "{set}");
    assert_eq!(person.ok("memory expire offer.md --never").await, "/memories/offer.md never expires\n");
    for wrong in ["tomorrow", "9", "d", "9\u{e9}", "-1d", "0d", "1.5d", "99999999999999999999s"] {
        person.ends(&format!("memory expire offer.md --in={wrong}"), 2, "a period is a whole number").await;
    }
    person.ends("memory expire offer.md", 2, "--never").await;
    person.ends("memory expire offer.md --at soon", 1, "`--at` must be").await;
    person.ends("audit --action of.tomorrow", 1, "`--action` must be").await;
    for (option, is_pinned) in [("", true), ("--off", false)] {
        let memory = person.json(&format!("memory pin offer.md {option} -o json")).await;
        assert_eq!(memory["pinned"], is_pinned);
        let set = person.ok("memory expire offer.md --in 30d").await;
        let told = "is pinned; without the pin, it expires in 4 weeks, at ";
        assert_eq!(set.contains(told), is_pinned, "{set}");
    }
    person.put("memories/cafe\u{301}.md", "x").await;
    assert_eq!(person.ok("memory cat /memories/memories/caf\u{e9}.md/").await, "x");
    let tree = person.ok("memory ls -R").await;
    let shown = [
        "/memories\n├── a.md  5 B, ",
        "\n├── done/\n│   └── plan.md  4 B, ",
        "\n└── offer.md  5 B, ",
        ", expires in 4 weeks\n",
    ];
    says(&tree, &shown);
    assert!(person.ok("memory ls -R done").await.starts_with("/memories/done\n└── plan.md  4 B, "));
    assert!(person.ok("memory ls -R a.md").await.ends_with("  /memories/a.md\n"), "it is no tree");
    assert_eq!(person.ok("memory mv a.md done/").await, "moved /memories/a.md to /memories/done/a.md\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn past_of_a_store_is_shown_exported_and_compared() {
    let person = Person::new().await;
    person.put("a.md", "one\n").await;
    person.put("b/c.md", "two\n").await;
    person.put("a.md", "one\nmore\n").await;
    person.ok("memory mv b/c.md d.md").await;
    assert_eq!(person.ok("memory cat a.md --at-seq 2").await, "one\n");
    let paths = async |line: &str| {
        let listed = person.json(&format!("memory ls -o json {line}")).await;
        strings(listed["data"].as_array().unwrap(), "path")
    };
    assert_eq!(paths("--at-seq 1").await, ["/a.md"]);
    assert_eq!(paths("--at-seq 3").await, ["/a.md", "/b/"]);
    assert_eq!(paths("b -r --at-seq 3").await, ["/b/c.md"]);
    for past in ["2020-01-01", "52w"] {
        assert_eq!(paths(&format!("--at {past}")).await, [""; 0]);
    }
    person.ends("memory cat a.md --at 2020-01-01", 3, "there was no such memory then").await;
    person.ends("memory ls --at 2999-01-01", 1, "`--at` must not be in the future").await;
    person.ends("memory ls --at-seq 9", 1, "`--at-seq` must be at most 4").await;
    person.ok("store create other").await;
    person.line_with("memory put a.md --store other", &[], "one\n").await.ok();
    for (more, rows) in [
        ("--from-seq 2", ["changed 1 0 /memories/a.md -", "renamed 0 0 /memories/d.md /memories/b/c.md"]),
        ("--other other", ["changed 0 1 /memories/a.md -", "removed 0 1 /memories/d.md -"]),
    ] {
        let compared = person.ok(&format!("store diff {more}")).await;
        let lines: Vec<_> = compared.lines().map(|line| words(line).join(" ")).collect();
        assert_eq!(lines[1..3], rows);
    }
    let folder = person.path("then");
    person.ends(&format!("export {folder} --versions --at-seq 2"), 2, "--versions").await;
    person.ok(&format!("export {folder} --at-seq 2")).await;
    assert_eq!(std::fs::read_to_string(format!("{folder}/memories/a.md")).unwrap(), "one\n");
    assert_eq!(std::fs::read_to_string(format!("{folder}/memories/b/c.md")).unwrap(), "two\n");
    assert!(!std::path::Path::new(&format!("{folder}/memories/d.md")).exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn reads_by_people_and_copies_postpone_no_expiry() {
    let person = Person::new().await;
    person.put("a.md", "text").await;
    for line in [
        "memory cat a.md".to_owned(),
        "memory search text".to_owned(),
        format!("export {}", person.path("copy")),
        format!("sync {}", person.path("folder")),
    ] {
        person.ok(&line).await;
        let listed = person.json("memory ls -o json").await;
        assert_eq!(listed["data"][0]["last_accessed_at"], Value::Null, "{line}: {listed}");
    }
    let readers = person.json("memory readers a.md -o json").await;
    let readers = readers["data"].as_array().unwrap();
    let mut surfaces = strings(readers, "surface");
    surfaces.sort_unstable();
    assert_eq!(surfaces, ["backup", "person"]);
    let version = readers[0]["memory_version_id"].as_str().unwrap();
    let table = person.line(&format!("memory readers {version}")).await;
    assert!(table.stdout.lines().count() == 3 && table.stdout.contains("/memories/a.md"), "{}", table.stdout);
    assert!(table.stderr.contains("for less than a minute, through "), "{}", table.stderr);
    person.ends("memory readers b.md", 3, "").await;
    person.ok("store update notes --records-reads false").await;
    person.ok("memory rm a.md --yes").await;
    let table = person.line("memory readers a.md").await;
    assert!(table.stdout.contains("/memories/a.md"), "{}", table.stdout);
    assert!(table.stderr.contains("records no reads"), "{}", table.stderr);
}

#[tokio::test(flavor = "multi_thread")]
async fn history_is_shown_compared_and_restored() {
    let person = Person::new().await;
    person.put("fact.md", "The office is in Oslo.\n").await;
    person.put("fact.md", "The office is in Rome.\n").await;
    let log = person.json("memory log fact.md -o json").await;
    let [second, first] = [0, 1].map(|place: usize| log["data"][place]["id"].as_str().unwrap());
    assert_eq!([0, 1].map(|place: usize| log["data"][place]["seq"].as_u64()), [Some(2), Some(1)]);
    assert!(person.ok("memory log").await.contains("  SEQ  "));
    let short = format!("{}…", &first[..first.len() - 1]);
    for line in ["memory diff fact.md".to_owned(), format!("memory diff fact.md {short}")] {
        let diff = person.ok(&line).await;
        assert!(diff.contains("-The office is in Oslo.\n+The office is in Rome.\n"), "{diff}");
    }
    person.ends("memory log fact.md -n 1", 0, "there are more: -n shows more than 1").await;
    assert_eq!(person.line("memory log -n 0").await.stderr, "there are more: -n shows more than 0\n");
    person.ends("memory diff fact.md memver_0", 2, "2 ids begin with `memver_0`: memver_").await;
    person.ends("memory redact memver_ZZ --yes", 3, "no id of a version begins with `memver_ZZ`").await;
    person.ends("memory redact fact.md --yes", 2, "a version is given by its id").await;
    let restored = person.ok(&format!("memory restore {first}")).await;
    assert_eq!(restored, format!("restored /memories/fact.md from {first}\n"));
    person.ends(&format!("memory redact {second}"), 2, "").await;
    let asked = person.run_in_terminal(&format!("memory redact {second}"), &[], 200, "n\n").await.stdout;
    says(&asked, &[&format!("{second}, of /memories/fact.md, permanently? [y/N]")]);
    person.ok(&format!("memory redact {second} --yes")).await;
    person.ends(&format!("memory diff fact.md {second}"), 4, "was redacted").await;
    assert_eq!(person.ok(&format!("memory cat {short}")).await, "The office is in Oslo.\n");
    person.ok("memory rm fact.md -y").await;
    assert_eq!(person.ok("memory log -o jsonl").await.lines().count(), 4);
    person.ok(&format!("memory restore {first}")).await;
    assert_eq!(person.ok("memory cat fact.md").await, "The office is in Oslo.\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn authors_have_names_that_the_credential_may_look_up() {
    let person = Person::new().await;
    person.put("a.md", "text").await;
    let session = person.session("read_write").await;
    let undo = format!("undo --session {} --yes", &session["id"].as_str().unwrap()[..30]);
    let hint = "have the key as their author: `--key` finds them";
    person.ends(&undo, 0, hint).await;
    let agent = Store::of(&person.client().with_key(text(&session["token"])), &person.tenant);
    let edited = agent.client.all(&agent.memories()).await;
    agent.update(&edited[0], &json!({"content": "worse"})).await;
    agent.update(&edited[0], &json!({"path": "/moved.md"})).await;
    agent.create("/b.md", "text").await;
    let reader = [("KEEPSAKE_API_KEY", person.reader.as_str())];
    for (line, more, key, agent) in [
        ("memory log", &[][..], "  API key tests  ", "  session agent · Ticket ZD-48502  "),
        ("memory log", &reader, "  an API key  ", "  session agent · Ticket ZD-48502  "),
        ("memory log --ids", &[], "  apikey_", "  sesn_"),
        ("audit", &[], "  API key tests  ", "  agent · Ticket ZD-48502\n"),
        ("audit --ids", &[], "  apikey_", "  sesn_"),
    ] {
        let table = person.line_with(line, more, "").await.ok();
        assert!(table.contains(key) && table.contains(agent), "{line}: {table}");
    }
    let json = person.json("memory log -o json").await;
    assert_eq!(json["data"][0]["created_by"]["session_id"], session["id"]);
    assert_eq!(person.ok(&undo).await, "restored 1, deleted 1\n");
    assert!(!person.line(&undo).await.stderr.contains(hint), "its changes are taken back");
    assert_eq!(person.ok("memory ls -o jsonl").await.lines().count(), 1);
    assert_eq!(person.ok("memory cat a.md").await, "text");
}

#[tokio::test(flavor = "multi_thread")]
async fn changes_are_taken_back_and_a_store_is_restored_and_forked() {
    let person = Person::new().await;
    person.put("a.md", "one\n").await;
    person.put("b.md", "two\n").await;
    person.put("a.md", "three\n").await;
    person.ok("memory rm b.md --yes").await;
    person.ends("undo --until-seq 2", 2, "nothing says what to take back").await;
    person.ends("undo --after-seq 2", 2, "--yes").await;
    let plan = person.line("undo --key tests --after-seq 2 --dry-run").await;
    plan.ends(0, "would be: restored 1, recreated 1");
    says(&plan.stdout, &["restored", "recreated", "/memories/b.md"]);
    assert_eq!(person.ok("undo --after-seq 2 --under c --yes").await, "there is nothing to take back\n");
    let undone = person.line("undo --since 1h --after-seq 2 --yes").await;
    undone.ends(0, "undo: keepsake undo --key apikey_");
    assert_eq!(undone.stdout, "restored 1, recreated 1\n");
    assert_eq!(person.ok("memory cat a.md").await, "one\n");
    assert_eq!(person.ok("memory cat b.md").await, "two\n");
    let forked = person.json("store fork notes copy --at-seq 3 -o json").await;
    assert_eq!(forked["forked_from"]["status"], "done", "{forked}");
    assert_eq!(person.ok("memory cat a.md --store copy").await, "three\n");
    person.ends("store restore notes", 2, "<--at <TIME>|--at-seq <N>>").await;
    assert_eq!(person.ok("store restore notes --at-seq 1 --yes").await, "deleted 1\n");
    person.ends("memory cat b.md", 3, "").await;
    // One command takes back all deletions of another one, and nothing else.
    for path in ["d/e.md", "d/f.md", "d/g.md"] {
        person.put(path, "text").await;
    }
    let deleted = person.ok("memory rm -r d --yes").await;
    person.put("d/g.md", "by somebody else").await;
    person.put("h.md", "later").await;
    let undo = deleted.lines().nth(3).and_then(|line| line.strip_prefix("undo: keepsake ")).unwrap();
    let undone = person.ok(&format!("{undo} --yes")).await;
    let is_whole = undone.contains("  path_taken  ") && undone.ends_with("\nrecreated 2, skipped 1\n");
    assert!(is_whole, "{undone}");
    assert_eq!(person.texts().await.len(), 5);
}

#[tokio::test(flavor = "multi_thread")]
async fn store_is_tested_and_an_import_refused_by_its_tests() {
    let person = Person::new().await;
    assert_eq!(person.put("policy/refunds.md", "The refund limit is 200 EUR.\n").await.lines().count(), 1);
    person.ends("test", 3, "/.keepsake/tests.yaml").await;
    person.put(".keepsake/tests.yaml", "gate: false\n").await;
    person.ends("test", 0, "there are no tests in the file").await;
    let search = "- search: refund\n  finds: /policy/refunds.md\n  within: 1\n";
    person.put(".keepsake/tests.yaml", &format!("gate: true\ntests:\n{search}- max_files: 2\n")).await;
    let search = "passed  line 3: search refund finds /policy/refunds.md within 1\n";
    assert_eq!(person.ok("test").await, format!("{search}passed  line 6: at most 2 memories\n"));
    person.put("refund.md", "refund").await;
    person.ends("test -o junit", 1, "1 of 2 tests did not hold").await;
    let broken = person.line("test").await.stdout;
    says(&broken, &["broken  line 3", "it is hit 2", "1. /refund.md"]);
    std::fs::create_dir(person.path("more")).unwrap();
    std::fs::write(person.path("more/b.md"), "x").unwrap();
    let import = format!("import {}", person.path("more"));
    person.ends(&import, 4, "2 of 2 tests in /.keepsake/tests.yaml would not hold afterwards. Line 3").await;
    let refused = "this would be refused: nothing was changed: 1 of 2 tests in /.keepsake/tests.yaml";
    person.ends("undo --under policy --dry-run", 1, refused).await;
    person
        .ends("undo --under policy --yes", 4, "the changes were not taken back: nothing was changed: 1 of")
        .await;
    let report: Value = serde_json::from_str(&person.line("test -o json").await.stdout).unwrap();
    assert_eq!(report["data"][1]["passed"], true);
}

#[tokio::test(flavor = "multi_thread")]
async fn search_explains_words_and_meaning() {
    let embeddings = EmbeddingsServer::start(meaning::CONCEPTS).await;
    let person = Person::with(Pair::Sqlite, &meaning::config(&embeddings)).await;
    person.put("style.md", "She prefers terse replies.\n").await;
    person.put("ship.md", "We ship on Tuesdays.\n").await;
    person.put("trip.md", "Bring an umbrella\nand boots.\n").await;
    meaning::is_complete(&person.server.client(&person.tenant), person.tenant.store_id).await;
    // Nothing for a server or an endpoint on this machine goes through a proxy.
    let check = format!("config check --connect --config {}", person.server.config_file().display());
    let proxied = [("HTTP_PROXY", "http://127.0.0.1:9"), ("NO_PROXY", "")];
    let checked = keepsake_with(&words(&check), &proxied).await.stdout;
    person.line_with("memory ls", &proxied, "").await.ok();
    let step = checked.lines().find(|line| line.starts_with("search.embeddings.url  "));
    assert_eq!(step.map(words), Some(vec!["search.embeddings.url", "embed", "ok", "-"]), "{checked}");
    let found = person.line("memory search keep it short --explain").await;
    assert_eq!(found.stderr, "");
    let first = found.stdout.lines().next().unwrap();
    assert!(first.starts_with("/memories/style.md:1  0."), "{first}");
    says(first, &[" = words 0.00 + meaning 0."]);
    let found = person.json("memory search ship on tuesdays --explain -o json").await;
    assert_eq!(found["meaning"], json!({"used": true, "pending": 0, "reason": null}));
    let hit = &found["data"][0];
    let [score, words, meaning] = ["/score", "/explanation/lexical", "/explanation/meaning"]
        .map(|part| hit.pointer(part).unwrap().as_f64().unwrap());
    assert!(words > 0.0 && meaning > 0.0 && (score - words - meaning).abs() < 1e-9, "{hit}");
    assert_eq!(person.json("memory search ship -o json").await["data"][0].get("explanation"), None);
    says(&person.ok("memory search umbrella").await, &["\n    Bring an umbrella and boots.\n"]);
    let uncomputed = "the meaning of the query could not be computed";
    let late = "the meaning of the query was not computed in time";
    for (query, fault, reason) in [
        ("\"terse replies\"", EmbeddingsFault::None, "the query has a quoted phrase"),
        ("path:style", EmbeddingsFault::None, "the query is empty or has only filters"),
        ("umbrellas and replies", EmbeddingsFault::Silent, late),
        ("umbrellas and replies", EmbeddingsFault::Unavailable, uncomputed),
        ("umbrellas and replies", EmbeddingsFault::RefusesKeys, uncomputed),
        ("umbrellas and replies", EmbeddingsFault::TooFewVectors, uncomputed),
        ("umbrellas and replies", EmbeddingsFault::NoNumbers, uncomputed),
        ("umbrellas and replies", EmbeddingsFault::EndsBy("replies"), uncomputed),
    ] {
        embeddings.fail(fault);
        let found = person.line(&format!("memory search {query}")).await;
        assert_eq!(found.stderr, format!("only words were searched, because {reason}\n"));
        assert!(found.stdout.starts_with("/memories/"), "{}", found.stdout);
    }
    let usage = person.ok("store usage").await;
    let by_meaning = usage.lines().find(|line| line.starts_with("searched by meaning"));
    assert!(by_meaning.is_some_and(|line| line.ends_with(" 3")), "{usage}");
}
