use super::Person;

#[tokio::test(flavor = "multi_thread")]
async fn colour_is_only_for_terminals() {
    let person = Person::new().await;
    person.put("a.md", "one\n").await;
    person.put("a.md", "two\n").await;
    for line in ["memory ls", "memory diff a.md"] {
        let mut piped = String::new();
        let (mut in_terminal, mut plain) = (String::new(), String::new());
        // The table says how long ago a memory was changed, which may change meanwhile.
        while piped.is_empty() || person.ok(line).await != piped {
            piped = person.ok(line).await;
            in_terminal = person.run_in_terminal(line, &[], 100, "").await.ok();
            let run = person.run_in_terminal(line, &[("NO_COLOR", "1")], 100, "");
            plain = run.await.ok();
        }
        assert!(!piped.contains('\u{1b}'), "{piped:?}");
        assert!(in_terminal.contains('\u{1b}'), "{in_terminal:?}");
        assert_eq!(console::strip_ansi_codes(&in_terminal), piped);
        assert_eq!(plain, piped);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn table_fits_the_terminal() {
    let person = Person::new().await;
    let name = "long-name-".repeat(12);
    person.put(&format!("{name}.md"), "text").await;
    let table = person.run_in_terminal("memory ls", &[("NO_COLOR", "1")], 60, "");
    let table = table.await.ok();
    assert!(table.lines().count() > 2, "{table}");
    for line in table.lines() {
        assert!(console::measure_text_width(line) <= 60, "{table}");
    }
    let piped = person.ok("memory ls").await;
    assert_eq!(piped.lines().count(), 2, "{piped}");
}

#[tokio::test(flavor = "multi_thread")]
async fn closed_pipe_ends_a_command_quietly() {
    let person = Person::new().await;
    person.put("a.md", &"line\n".repeat(20_000)).await;
    let binary = crate::support::binary();
    let line = format!("{} memory cat a.md | head -1; echo ${{PIPESTATUS[0]}}", binary.display());
    let mut bash = tokio::process::Command::new("bash");
    let output = bash.args(["-c", &line]).envs(person.variables()).output();
    let output = output.await.unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "line\n141\n");
}
