use super::*;

/// Set to write the manual pages instead of comparing them.
const UPDATE: &str = "UPDATE_MANUAL";

#[tokio::test]
async fn manual_pages_are_those_of_the_code() {
    let (folder, checked_in) = (TempDir::new().unwrap(), repository().join("docs/man"));
    keepsake(&["man", "--dir", &folder.path().to_string_lossy()]).await.ok();
    let made = files(&folder);
    if std::env::var_os(UPDATE).is_some() {
        fs::remove_dir_all(&checked_in).ok();
        fs::create_dir_all(&checked_in).unwrap();
        for (name, page) in &made {
            fs::write(checked_in.join(name), page).unwrap();
        }
    }
    let known = files(&checked_in);
    assert!(made.keys().eq(known.keys()), "{UPDATE}=1 writes the pages again");
    for (name, page) in made {
        assert!(page == known[&name], "{name} differs; {UPDATE}=1 writes the pages again");
        let page = String::from_utf8(page).unwrap().to_lowercase();
        assert!(!page.contains("workspace"), "{name}: the commands call it a tenant");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn shell_gets_the_stores_and_paths_of_the_server() {
    let person = Person::new().await;
    person.put("plans/may.md", "May").await;
    person.put("a.md", "a").await;
    person.store().create("/b$(id).md", "b").await;
    for (shell, words, expected) in [
        ("fish", &["memory", "cat", ""][..], &["a.md", "b$(id).md", "plans/"][..]),
        ("fish", &["memory", "cat", "/memories/plans/m"], &["/memories/plans/may.md"]),
        ("fish", &["memory", "ls", "--store", "no"], &["notes"]),
        ("fish", &["memory", "ls", "--store", "x", ""], &[]),
        ("fish", &["undo", "--under", "pl"], &["plans/"]),
        ("fish", &["store", "get", "n"], &["notes"]),
        // It does not quote what it inserts.
        ("bash", &["memory", "cat", ""], &["a.md", "plans/"]),
    ] {
        let place = ("_CLAP_COMPLETE_INDEX", words.len().to_string());
        let variables = [person.variables(), vec![("_KEEPSAKE_COMPLETE", shell.to_owned()), place]].concat();
        let asked = [&["--", "keepsake"], words].concat();
        let answer = keepsake_with(&asked, &borrowed(&variables)).await.ok();
        let values = answer.lines().map(|line| line.split('\t').next().unwrap());
        let values: Vec<_> = values.filter(|value| !value.starts_with('-')).collect();
        assert_eq!(values, expected, "{words:?}");
    }
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let script = keepsake(&["completions", shell]).await.ok();
        assert!(script.contains("_KEEPSAKE_COMPLETE"), "{script}");
    }
}
