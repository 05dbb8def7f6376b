use super::Person;

const ESCAPE: char = '\u{1b}';

#[tokio::test(flavor = "multi_thread")]
async fn colour_is_only_for_terminals() {
    let person = Person::new().await;
    person.put("a.md", "one\n").await;
    person.put("a.md", "two\n").await;
    for arguments in [&["memory", "ls"][..], &["memory", "diff", "a.md"]] {
        let mut piped = String::new();
        let (mut in_terminal, mut plain) = (String::new(), String::new());
        // The table says how long ago a memory was changed, which may change meanwhile.
        while piped.is_empty() || person.run(arguments).await.ok() != piped {
            piped = person.run(arguments).await.ok();
            in_terminal = person.run_in_terminal(arguments, &[], 100, "").await.ok();
            let run = person.run_in_terminal(arguments, &[("NO_COLOR", "1")], 100, "");
            plain = run.await.ok();
        }
        assert!(!piped.contains(ESCAPE), "{piped:?}");
        assert!(in_terminal.contains(ESCAPE), "{in_terminal:?}");
        assert_eq!(console::strip_ansi_codes(&in_terminal), piped);
        assert_eq!(plain, piped);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn table_fits_the_terminal() {
    let person = Person::new().await;
    person
        .put(&format!("{}.md", "long-name-".repeat(12)), "text")
        .await;
    let table = person
        .run_in_terminal(&["memory", "ls"], &[("NO_COLOR", "1")], 60, "")
        .await
        .ok();
    assert!(table.lines().count() > 2, "{table}");
    for line in table.lines() {
        assert!(console::measure_text_width(line) <= 60, "{table}");
    }
    let piped = person.run(&["memory", "ls"]).await.ok();
    assert_eq!(piped.lines().count(), 2, "{piped}");
}

#[tokio::test(flavor = "multi_thread")]
async fn hostile_names_and_content_do_not_reach_the_terminal() {
    let person = Person::new().await;
    person.put("a.md", "safe\n").await;
    person.put("a.md", "\u{1b}]0;title\u{7}\u{1b}[2J\n").await;
    let diff = person
        .run_in_terminal(&["memory", "diff", "a.md"], &[("NO_COLOR", "1")], 80, "")
        .await
        .ok();
    assert!(!diff.contains(ESCAPE) && !diff.contains('\u{7}'), "{diff:?}");
    let found = person
        .run_in_terminal(&["memory", "search", "title"], &[("NO_COLOR", "1")], 80, "")
        .await
        .ok();
    assert!(!found.contains(ESCAPE) && found.contains("a.md"), "{found:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn closed_pipe_ends_a_command_quietly() {
    let person = Person::new().await;
    person.put("a.md", &"line\n".repeat(20_000)).await;
    let binary = crate::support::binary();
    let line = format!(
        "{} memory cat a.md | head -1; echo ${{PIPESTATUS[0]}}",
        binary.display()
    );
    let output = tokio::process::Command::new("bash")
        .args(["-c", &line])
        .envs(person.variables())
        .output()
        .await
        .unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(stderr, "");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "line\n141\n");
}
