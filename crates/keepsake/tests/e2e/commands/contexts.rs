use std::os::unix::fs::PermissionsExt;

use super::{Person, words};
use crate::support::command::{Run, keepsake_reading};

impl Person {
    /// Runs a line that finds the server only through contexts.
    async fn in_context(&self, line: &str, more: &[(&str, &str)], input: &str) -> Run {
        let home = self.home.path().to_string_lossy();
        let variables = [&[("XDG_CONFIG_HOME", home.as_ref())], more].concat();
        keepsake_reading(&words(line), &variables, input).await
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn login_remembers_the_server_for_later_commands() {
    let person = Person::new().await;
    let url = person.server.url();
    let run = async |line: &str| person.in_context(line, &[], "").await;
    run("memory ls").await.ends(2, "keepsake login");

    let login = format!("login {url}");
    person.in_context(&login, &[], "ks_live_unknown\n").await.ends(5, "");
    let key = format!("{}\n", person.tenant.key);
    let login = format!("{login} --name work --store notes");
    let said = person.in_context(&login, &[], &key).await.ok();
    assert_eq!(said, format!("logged in to {url}; the current context is work\n"));
    let file = person.home.path().join("keepsake/contexts.toml");
    assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    for (mode, warns) in [(0o640, true), (0o604, true), (0o600, false)] {
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(mode)).unwrap();
        let told = run("memory ls").await.stderr;
        assert_eq!(told.contains("chmod 600"), warns, "{mode:o} {told}");
    }

    person.in_context("memory put a.md", &[], "text").await.ok();
    let listed = run("memory ls").await.ok();
    assert!(listed.contains("/memories/a.md"), "{listed}");
    let contexts = run("context list").await.ok();
    for shown in ["yes", "work", "notes"] {
        assert!(contexts.contains(shown), "{contexts}");
    }
    assert!(!contexts.contains("ks_live"), "{contexts}");
    let key = &person.tenant.key;
    assert_eq!(
        run("context env").await.ok(),
        format!(
            "export KEEPSAKE_URL='{url}'\nexport KEEPSAKE_API_KEY='{key}'\nexport KEEPSAKE_STORE='notes'\n"
        )
    );
    run("context use home").await.ends(3, "");
    run("context use work --store other").await.ok();
    run("memory ls").await.ends(3, "");
    let store = [("KEEPSAKE_STORE", "notes")];
    person.in_context("memory ls", &store, "").await.ok();
    run("context remove work").await.ok();
    run("memory ls").await.ends(2, "");
}

#[tokio::test(flavor = "multi_thread")]
async fn key_of_a_context_is_not_sent_to_another_server() {
    let person = Person::new().await;
    let key = format!("{}\n", person.tenant.key);
    let login = format!("login {}", person.server.url());
    person.in_context(&login, &[], &key).await.ok();
    let other = [("KEEPSAKE_URL", "http://127.0.0.1:9")];
    let refused = person.in_context("memory ls", &other, "").await;
    refused.ends(2, "no API key is known for http://127.0.0.1:9");
}
