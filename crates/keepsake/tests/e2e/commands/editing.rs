use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;

use super::*;

/// A person with a memory, and an editor that runs this.
async fn with_editor(script: &str) -> (Person, String) {
    let person = Person::new().await;
    person.put("a.md", "base\n").await;
    let editor = person.path("my editor");
    fs::write(&editor, format!("#!/bin/sh\n{script}\n")).unwrap();
    fs::set_permissions(&editor, Permissions::from_mode(0o700)).unwrap();
    (person, format!("'{editor}'"))
}

fn kept(failed: &Run) -> Vec<u8> {
    let file = failed.stderr.trim().rsplit("your text is in ").next().unwrap();
    let kept = fs::read(file).unwrap();
    fs::remove_file(file).unwrap();
    kept
}

#[tokio::test(flavor = "multi_thread")]
async fn text_of_an_editor_that_fails_is_kept() {
    let (person, editor) = with_editor("printf \"$1\" >> \"$3\"\neval \"$2\"").await;
    let edit = async |arguments: &str| {
        let editor = format!("{editor} {arguments}");
        person.line_with("memory edit a.md", &[("EDITOR", &editor)], "").await
    };
    for (arguments, text) in [
        ("mine 'exit 3'", &b"base\nmine"[..]),
        (r"'bad \377' :", b"base\nbad \xff"),
        (r"'nul \000' :", b"base\nnul \0"),
        ("mine 'kill -TERM $PPID; sleep 1'", b"base\nmine"),
    ] {
        let failed = edit(arguments).await;
        failed.ends(1, "your text is in ");
        assert_eq!(kept(&failed), text, "{arguments}");
    }
    let nothing_typed = edit("'' 'exit 3'").await;
    assert!(!nothing_typed.stderr.contains("your text"), "{}", nothing_typed.stderr);
    edit("more :").await.ok();
    assert_eq!(person.ok("memory cat a.md").await, "base\nmore");
}

#[tokio::test(flavor = "multi_thread")]
async fn conflict_keeps_the_text_or_asks_in_a_terminal() {
    // It appends a line after another client has replaced the memory.
    let theirs = r"printf 'theirs \033]0;title\007\n'";
    let put = format!("'{}' memory put a.md > /dev/null", binary().display());
    let (person, editor) = with_editor(&format!("{theirs} | {put}\necho mine >> \"$1\"")).await;
    let conflict = person.line_with("memory edit a.md", &[("EDITOR", &editor)], "").await;
    conflict.ends(4, "your text is in ");
    assert_eq!(kept(&conflict), b"base\nmine\n");
    assert_eq!(person.ok("memory cat a.md").await, "theirs \u{1b}]0;title\u{7}\n");
    person.put("a.md", "base\n").await;
    let solved = person.run_in_terminal("memory edit a.md", &[("EDITOR", &editor)], 80, "o\n").await;
    let shown = solved.ok();
    let theirs = r"+theirs \u001b]0;title\u0007";
    assert!(shown.contains(theirs) && shown.contains("+mine"), "{shown:?}");
    assert!(!shown.contains('\u{7}'), "{shown:?}");
    assert_eq!(person.ok("memory cat a.md").await, "base\nmine\n");
}
