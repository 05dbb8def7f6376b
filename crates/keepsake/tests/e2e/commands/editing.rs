use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;

use super::Person;

impl Person {
    /// A person and an editor that appends a line, after another client has replaced the memory.
    async fn in_a_race() -> (Self, String) {
        let person = Self::new().await;
        person.put("a.md", "base\n").await;
        let editor = person.path("editor");
        let theirs = r"printf 'theirs \033]0;title\007\n'";
        let put = format!("'{}' memory put a.md > /dev/null", crate::support::binary().display());
        fs::write(&editor, format!("#!/bin/sh\n{theirs} | {put}\necho mine >> \"$1\"\n")).unwrap();
        fs::set_permissions(&editor, Permissions::from_mode(0o700)).unwrap();
        (person, editor)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn conflict_without_a_terminal_keeps_the_text() {
    let (person, editor) = Person::in_a_race().await;
    let conflict = person.line_with("memory edit a.md", &[("EDITOR", &editor)], "").await;
    conflict.ends(4, "your text is in ");
    let kept = conflict.stderr.trim().rsplit("your text is in ").next().unwrap();
    assert_eq!(fs::read_to_string(kept).unwrap(), "base\nmine\n");
    fs::remove_file(kept).unwrap();
    assert_eq!(person.ok("memory cat a.md").await, "theirs \u{1b}]0;title\u{7}\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn conflict_in_a_terminal_shows_both_and_asks() {
    let (person, editor) = Person::in_a_race().await;
    let solved = person.run_in_terminal("memory edit a.md", &[("EDITOR", &editor)], 80, "o\n").await;
    let shown = solved.ok();
    let theirs = r"+theirs \u001b]0;title\u0007";
    assert!(shown.contains(theirs) && shown.contains("+mine"), "{shown:?}");
    assert!(!shown.contains('\u{7}'), "{shown:?}");
    assert_eq!(person.ok("memory cat a.md").await, "base\nmine\n");
}
