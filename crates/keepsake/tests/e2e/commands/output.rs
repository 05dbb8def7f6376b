use super::*;

#[tokio::test(flavor = "multi_thread")]
async fn output_is_made_for_terminals_and_pipes() {
    let person = Person::new().await;
    person.put("a.md", "one\n").await;
    person.put("a.md", "two\n").await;
    let no_colour = [("NO_COLOR", "1")];
    let piped = person.ok("memory diff a.md").await;
    assert!(!piped.contains('\u{1b}'), "{piped:?}");
    let in_terminal = person.run_in_terminal("memory diff a.md", &[], 100, "").await.ok();
    assert!(in_terminal.contains('\u{1b}'), "{in_terminal:?}");
    assert_eq!(console::strip_ansi_codes(&in_terminal), piped);
    let plain = person.run_in_terminal("memory diff a.md", &no_colour, 100, "").await.ok();
    assert_eq!(plain, piped);
    person.put(&format!("{}.md", "long-name-".repeat(12)), "text").await;
    for (line, width) in ["memory ls", "memory log", "audit", "doctor", "key list"]
        .into_iter()
        .flat_map(|line| [60, 80, 120].map(|width| (line, width)))
    {
        let table = person.run_in_terminal(line, &no_colour, width, "").await.ok();
        let widest = table.lines().map(console::measure_text_width).max();
        assert!(table.lines().count() > 1 && widest <= Some(width.into()), "{table}");
    }
    let log = person.run_in_terminal("memory log", &no_colour, 60, "").await.ok();
    let versions = log.lines().filter(|line| line.starts_with("memver_") && line.contains("…  "));
    assert_eq!(versions.count(), 3, "ids are shortened, and not broken: {log}");
    assert!(log.contains("  TIME  "), "the author is left out, and not the time: {log}");
    let piped = person.ok("memory ls").await;
    assert_eq!(piped.lines().count(), 3, "{piped}");
    person.put("a.md", &"line\n".repeat(20_000)).await;
    let binary = crate::support::binary().display();
    let line = format!("'{binary}' memory cat a.md | head -1; echo ${{PIPESTATUS[0]}}");
    let mut bash = Command::new("bash");
    let output = bash.args(["-c", &line]).envs(person.variables()).output().await.unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "line\n141\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn names_hints_and_advice_are_whole_at_80_and_at_120_columns() {
    let person = Person::new().await;
    person.put("a.md", "older\n").await;
    person.put("a.md", "newer\n").await;
    person.put("folder/b.md", "text").await;
    let session = person.session("read_only").await;
    let (backup, large) = (person.path("backup.db"), person.path("large"));
    fs::create_dir(&large).unwrap();
    fs::write(format!("{large}/c.md"), "c".repeat(200_000)).unwrap();
    let config = person.server.config_file().display().to_string();
    let port = person.server.url().replace("http://", "");
    for (line, code, said) in [
        ("--help", 0, "Administration of a tenant, with an API key that has an admin scope:\n"),
        ("memory log --help", 0, "Examples:\n  keepsake memory log notes.md\n"),
        ("copy --help", 0, "  keepsake copy --from old --to new --follow\n"),
        ("memory log a.md", 0, "  API key tests  /memories/a.md\n"),
        ("memory diff a.md", 0, "  API key tests\n@@"),
        ("audit", 0, "  API key tests  "),
        ("key list", 0, "  tests  "),
        (&format!("session show {}", &text(&session["id"])[..30]), 0, "  Ticket ZD-48502\n"),
        ("store get memstore_0", 0, "  notes\n"),
        ("memory rm a.md --yes", 0, "; undo: keepsake memory restore /memories/a.md --store memstore_"),
        ("memory cat a.md", 3, "; `keepsake memory restore /memories/a.md` brings it back\n"),
        ("memory log a.md", 0, "  deleted  "),
        ("memory cat a.md --at-seq 1", 0, "older\n"),
        ("memory restore a.md", 0, "restored /memories/a.md from memver_"),
        ("memory put n.md nothing.md", 3, "nothing.md cannot be read: No such file"),
        ("test --file nothing.yaml", 3, "nothing.yaml cannot be read: No such file"),
        ("memory cat folder", 3, "is a directory: `keepsake memory ls /memories/folder` lists it\n"),
        (&format!("import {large}"), 1, "the operator raises the limit: `limits.bytes_per_memory`"),
        (&format!("backup {backup} --force --config {config}"), 0, "1 tenant, 1 memory store, "),
        (&format!("restore {backup} --config {config}"), 1, "another process is using the folder "),
        ("doctor", 0, "ok      key      tests (apikey_"),
        ("erase notes --under nobody --yes", 0, "0 versions of 0 B; the receipt is erasure_"),
        (&format!("serve --dev --no-model --listen {port} --data-dir {large}"), 1, "--listen names another"),
    ] {
        for width in [80, 120] {
            let run = person.run_in_terminal(line, &[("NO_COLOR", "1")], width, "").await;
            assert_eq!(run.code, Some(code), "{line}: {}", run.stdout);
            says(&run.stdout, &[said]);
            let widest = run.stdout.lines().map(console::measure_text_width).max();
            assert!(!line.ends_with("--help") || widest <= Some(width.into()), "{line}: {}", run.stdout);
            // The next width needs the state of before.
            if line.starts_with("memory rm") && width == 80 {
                person.ok("memory restore a.md").await;
            } else if line.starts_with("memory restore") && width == 80 {
                person.ok("memory rm a.md --yes").await;
            }
        }
    }
}
