use std::os::unix::fs::PermissionsExt;

use super::Person;
use crate::support::command::{Run, keepsake_reading};

impl Person {
    /// Runs a command that finds the server only through contexts.
    async fn run_in_context(&self, arguments: &[&str], more: &[(&str, &str)], input: &str) -> Run {
        let home = self.home.path().to_string_lossy();
        let variables = [&[("XDG_CONFIG_HOME", home.as_ref())], more].concat();
        keepsake_reading(arguments, &variables, input).await
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn login_remembers_the_server_for_later_commands() {
    let person = Person::new().await;
    let url = person.server.url();
    let before = person.run_in_context(&["memory", "ls"], &[], "").await;
    assert_eq!(before.code, Some(2));
    assert!(before.stderr.contains("keepsake login"), "{}", before.stderr);

    let refused = person
        .run_in_context(&["login", &url], &[], "ks_live_unknown\n")
        .await;
    assert_eq!(refused.code, Some(5), "{}", refused.stderr);
    let key = format!("{}\n", person.tenant.key);
    let login = ["login", &url, "--name", "work", "--store", "notes"];
    let said = person.run_in_context(&login, &[], &key).await.ok();
    assert_eq!(said, format!("logged in to {url}; the current context is work\n"));
    let file = person.home.path().join("keepsake/contexts.toml");
    assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    for (mode, warns) in [(0o640, true), (0o604, true), (0o600, false)] {
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(mode)).unwrap();
        let run = person.run_in_context(&["memory", "ls"], &[], "").await;
        assert_eq!(run.stderr.contains("chmod 600"), warns, "{mode:o} {}", run.stderr);
    }

    person
        .run_in_context(&["memory", "put", "a.md"], &[], "text")
        .await
        .ok();
    let listed = person.run_in_context(&["memory", "ls"], &[], "").await.ok();
    assert!(listed.contains("/memories/a.md"), "{listed}");

    let contexts = person.run_in_context(&["context", "list"], &[], "").await.ok();
    assert!(
        contexts.contains("yes") && contexts.contains("work") && contexts.contains("notes"),
        "{contexts}"
    );
    assert!(!contexts.contains("ks_live"), "{contexts}");
    let variables = person.run_in_context(&["context", "env"], &[], "").await.ok();
    let key = &person.tenant.key;
    assert_eq!(
        variables,
        format!(
            "export KEEPSAKE_URL='{url}'\nexport KEEPSAKE_API_KEY='{key}'\nexport KEEPSAKE_STORE='notes'\n"
        )
    );
    assert_eq!(
        person
            .run_in_context(&["context", "use", "home"], &[], "")
            .await
            .code,
        Some(3)
    );
    person
        .run_in_context(&["context", "use", "work", "--store", "other"], &[], "")
        .await
        .ok();
    assert_eq!(
        person.run_in_context(&["memory", "ls"], &[], "").await.code,
        Some(3)
    );
    let store = [("KEEPSAKE_STORE", "notes")];
    person.run_in_context(&["memory", "ls"], &store, "").await.ok();
    person
        .run_in_context(&["context", "remove", "work"], &[], "")
        .await
        .ok();
    assert_eq!(
        person.run_in_context(&["memory", "ls"], &[], "").await.code,
        Some(2)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn key_of_a_context_is_not_sent_to_another_server() {
    let person = Person::new().await;
    let key = format!("{}\n", person.tenant.key);
    person
        .run_in_context(&["login", &person.server.url()], &[], &key)
        .await
        .ok();
    let other = [("KEEPSAKE_URL", "http://127.0.0.1:9")];
    let refused = person.run_in_context(&["memory", "ls"], &other, "").await;
    assert_eq!(refused.code, Some(2));
    assert!(
        refused
            .stderr
            .contains("no API key is known for http://127.0.0.1:9"),
        "{}",
        refused.stderr
    );
}
