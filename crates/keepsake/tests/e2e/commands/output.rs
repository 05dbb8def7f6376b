use super::Person;

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
    let table = person.run_in_terminal("memory ls", &no_colour, 60, "").await.ok();
    assert!(table.lines().count() > 3, "{table}");
    for line in table.lines() {
        assert!(console::measure_text_width(line) <= 60, "{table}");
    }
    let log = person.run_in_terminal("memory log", &no_colour, 60, "").await.ok();
    let versions = log.lines().filter(|line| line.starts_with("memver_") && line.contains("…  "));
    assert_eq!(versions.count(), 3, "ids are shortened, and not broken: {log}");
    let piped = person.ok("memory ls").await;
    assert_eq!(piped.lines().count(), 3, "{piped}");

    person.put("a.md", &"line\n".repeat(20_000)).await;
    let binary = crate::support::binary().display();
    let line = format!("'{binary}' memory cat a.md | head -1; echo ${{PIPESTATUS[0]}}");
    let mut bash = tokio::process::Command::new("bash");
    let output = bash.args(["-c", &line]).envs(person.variables()).output().await.unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "line\n141\n");
}
