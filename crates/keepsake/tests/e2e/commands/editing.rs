use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use super::Person;

impl Person {
    /// An editor that runs this shell script on the file `$1`.
    fn editor(&self, script: &str) -> PathBuf {
        let path = self.home.path().join("editor");
        std::fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o700)).unwrap();
        path
    }

    /// An editor that appends a line, after another client has replaced the memory.
    fn editor_in_a_race(&self) -> PathBuf {
        let binary = crate::support::binary();
        let theirs = r"printf 'theirs \033]0;title\007\n'";
        let other = format!("{theirs} | {} memory put a.md > /dev/null", binary.display());
        self.editor(&format!("{other}\necho mine >> \"$1\""))
    }
}

fn text(path: &std::path::Path) -> String {
    path.to_string_lossy().into_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn edit_saves_what_the_editor_saved() {
    let person = Person::new().await;
    let editor = text(&person.editor("echo more >> \"$1\""));
    for (variable, editor, told) in [
        ("EDITOR", editor.as_str(), "created /memories/new.md (5 B)\n"),
        ("VISUAL", &editor, "replaced /memories/new.md (10 B)\n"),
        ("EDITOR", "true", "/memories/new.md was not changed\n"),
    ] {
        let variables = [(variable, editor)];
        let edit = person.run_with(&["memory", "edit", "new.md"], &variables, "");
        assert_eq!(edit.await.ok(), told);
    }
    let failing = [("EDITOR", "false")];
    let failed = person.run_with(&["memory", "edit", "new.md"], &failing, "");
    failed.await.ends(1, "");
}

#[tokio::test(flavor = "multi_thread")]
async fn conflict_without_a_terminal_keeps_the_text() {
    let person = Person::new().await;
    person.put("a.md", "base\n").await;
    let editor = text(&person.editor_in_a_race());
    let conflict = person.run_with(&["memory", "edit", "a.md"], &[("EDITOR", &editor)], "").await;
    assert_eq!(conflict.code, Some(4), "{}", conflict.stderr);
    let kept = conflict.stderr.trim().rsplit("your text is in ").next().unwrap();
    assert_eq!(std::fs::read_to_string(kept).unwrap(), "base\nmine\n");
    std::fs::remove_file(kept).unwrap();
    let theirs = person.ok("memory cat a.md").await;
    assert_eq!(theirs, "theirs \u{1b}]0;title\u{7}\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn conflict_in_a_terminal_shows_both_and_asks() {
    let person = Person::new().await;
    person.put("a.md", "base\n").await;
    let editor = text(&person.editor_in_a_race());
    let variables = [("EDITOR", editor.as_str())];
    let solved = person.run_in_terminal("memory edit a.md", &variables, 80, "o\n").await;
    let shown = solved.stdout;
    assert_eq!(solved.code, Some(0), "{shown}");
    let theirs = r"+theirs \u001b]0;title\u0007";
    assert!(shown.contains(theirs) && shown.contains("+mine"), "{shown:?}");
    assert!(!shown.contains('\u{7}'), "{shown:?}");
    assert_eq!(person.ok("memory cat a.md").await, "base\nmine\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn deletion_is_confirmed_in_a_terminal() {
    let person = Person::new().await;
    person.put("a.md", "base\n").await;
    let kept = person.run_in_terminal("memory rm a.md", &[], 80, "n\n").await;
    assert_eq!(kept.code, Some(1), "{}", kept.stdout);
    let question = "Delete /memories/a.md? [y/N]";
    assert!(kept.stdout.contains(question), "{}", kept.stdout);
    person.run_in_terminal("memory rm a.md", &[], 80, "y\n").await.ok();
    person.ends("memory cat a.md", 3, "").await;
}
