use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;

use keepsake_testkit::HoldingProxy;

use super::*;

#[tokio::test(flavor = "multi_thread")]
async fn login_remembers_the_server_for_later_commands() {
    let person = Person::new().await;
    let (url, key, home) = (person.server.url(), &person.tenant.key, person.path(""));
    let run_with = async |line: &str, more: &[(&str, &str)], input: &str| {
        let variables = [&[("XDG_CONFIG_HOME", home.as_str())], more].concat();
        keepsake_reading(&words(line), &variables, input).await
    };
    let run = async |line: &str| run_with(line, &[], "").await;
    run("memory ls").await.ends(2, "keepsake login");
    run("login 127.0.0.1:1").await.ends(2, "it must start with http://");

    let login = format!("login {url} --name work --store notes");
    run_with(&login, &[], "ks_live_unknown\n").await.ends(5, "");
    let said = run_with(&login, &[], &format!("{key}\n")).await.ok();
    assert_eq!(said, format!("logged in to {url}; the current context is work\n"));
    let file = person.path("keepsake/contexts.toml");
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    for (mode, warns) in [(0o640, true), (0o604, true), (0o600, false)] {
        fs::set_permissions(&file, Permissions::from_mode(mode)).unwrap();
        let told = run("memory ls").await.stderr;
        assert_eq!(told.contains("chmod 600"), warns, "{mode:o} {told}");
    }

    run("--context work memory ls").await.ok();
    let contexts = run("context list").await.ok();
    assert!(contexts.contains("work") && !contexts.contains("ks_live"), "{contexts}");
    let store_id = person.tenant.store_id.to_string();
    let exports = [("URL", url.as_str()), ("API_KEY", key.as_str()), ("STORE", store_id.as_str())];
    let exports = exports.map(|(name, value)| format!("export KEEPSAKE_{name}='{value}'\n"));
    assert_eq!(run("context env").await.ok(), exports.concat());
    // The key is not sent to another server.
    let elsewhere = run_with("memory ls", &[("KEEPSAKE_URL", "http://127.0.0.1:9")], "").await;
    elsewhere.ends(2, "no API key is known for http://127.0.0.1:9");
    // A damaged file stops only the commands that need it, and no message shows a key.
    let whole = fs::read(&file).unwrap();
    for (line, column) in [(format!("api_key = {key}"), 11), (format!("contexts = \"{key}\""), 12)] {
        fs::write(&file, format!("current = \"work\"\n{line}\n")).unwrap();
        let damaged = run("memory ls").await;
        damaged.ends(1, &format!("line 2, column {column}: "));
        assert!(!damaged.stderr.contains("ks_live"), "{}", damaged.stderr);
    }
    person.ends("memory cat no.md", 3, "contexts.toml cannot be read: ").await;
    fs::write(&file, whole).unwrap();
    let variable = [("KEEPSAKE_STORE", "notes")];
    for missing in ["other", "memstore_00000000000000000000000001"] {
        let told = "the context was not changed: ";
        run(&format!("context use work --store {missing}")).await.ends(3, told);
    }
    run_with(&format!("context use work --store {store_id}"), &variable, "")
        .await
        .ends(0, "`unset KEEPSAKE_STORE` ends that");
    says(&run("context list").await.ok(), &[&store_id]);
    run_with("memory ls", &[("KEEPSAKE_STORE", "other")], "").await.ends(3, "");
    run("context remove work").await.ok();
    run("--context work memory ls").await.ends(3, "there is no context `work`");
    // Another server on the same host does not replace the key of the first.
    let other = HoldingProxy::start(&url, "held", 0).await;
    for (url, name) in [(&*url, "127.0.0.1"), (other.url(), other.url().trim_start_matches("http://"))] {
        let said = run_with(&format!("login {url}"), &[], key).await.ok();
        assert_eq!(said, format!("logged in to {url}; the current context is {name}\n"));
    }
}
