//! `[auth]`, `[[auth.issuers]]` and `[secrets]`.

use super::*;

const ISSUER: &str = "[[auth.issuers]]\nissuer = 'https://id.example.com'\naudience = 'keepsake'\n\
     jwks_url = 'https://id.example.com/jwks.json'\nactor = 'user'\n";
const URL: &str = "server.public_url = 'https://memory.example.com/'\n";
/// The base64 of 32 bytes with the secret in it.
const KEY: &str = "hunter2hunter2hunter2hunter2hunter2hunter2g=";

/// An issuer at whose page people sign in.
fn with_console(table: &str) -> String {
    with(&format!("{URL}{ISSUER}[auth.issuers.console]\n{table}"))
}

#[test]
fn error_of_an_issuer_names_its_position_and_key() {
    for (name, other, told) in [
        ("issuer", "", "issuer is not set: "),
        ("issuer", "issuer = 'keepsake'", "issuer (keepsake.toml, line 8) must not be keepsake"),
        ("actor", "actor = 'admin'", "actor (keepsake.toml, line 8) must be user or service_account"),
        ("jwks_url", "", "jwks_url is not set: set it, or auth.issuers[0].key_file"),
        ("jwks_url", "jwks_url = 'http://a.b/'", "jwks_url (keepsake.toml, line 8) must be an https:// URL"),
        ("jwks_url", "key_file = '/nowhere/key'", "key_file (keepsake.toml, line 8) cannot be read: No such"),
        ("none", "key_file = 'x'", "key_file (keepsake.toml, line 9) is set, and so is"),
        ("none", "tenants = ['a', 1]", "tenants (keepsake.toml, line 9) must be a list of texts"),
    ] {
        let lines = ISSUER.lines().filter(|line| !line.starts_with(&format!("{name} =")));
        let lines: Vec<_> = lines.chain([other]).collect();
        assert_problem(&with(&lines.join("\n")), &[], &format!("auth.issuers[0].{told}"));
    }
    let second = ISSUER.replace("id.example", "other.example");
    for (text, told) in [
        (format!("{ISSUER}jwks = 'x'"), "unknown key auth.issuers[0].jwks (keepsake.toml, line 9); "),
        (format!("{ISSUER}{ISSUER}"), "auth.issuers[1].issuer (keepsake.toml, line 10) is listed twice"),
        (format!("{ISSUER}tenants = ['a']\n{second}"), "auth.issuers[1].tenants is not set: there are"),
        ("[auth]\nissuers = ['x']\n".to_owned(), "auth.issuers (keepsake.toml, line 5) must be tables"),
    ] {
        assert_problem(&with(&text), &[], told);
    }
    let variable = [("KEEPSAKE_AUTH_ISSUERS", "x")];
    assert_problem(MINIMAL, &variable, "auth.issuers (KEEPSAKE_AUTH_ISSUERS) must be tables in a file");
}

#[test]
fn issuers_are_printed_with_their_origins() {
    let secret = File::new("hunter2\n");
    let path = secret.path().display().to_string();
    let second = ISSUER.replace("id.example", "other.example");
    let file = File::new(&with_console(&format!(
        "client_id = 'keepsake'\nclient_secret_file = '{path}'\nscopes = ['profile', 'memory:read']\n\
         {second}tenants = ['acme', 'globex']\n"
    )));
    let printed = file.sources(&[]).merge().to_toml();
    let own = file.path().display().to_string();
    for (expected, line) in [
        ("\n[[auth.issuers]]\nissuer = \"https://id.example.com\"", 6),
        ("\n[auth.issuers.console]\nclient_id = \"keepsake\"", 11),
        (&format!("\nclient_secret_file = \"{path}\""), 12),
        ("\nscopes = [\"profile\", \"memory:read\"]", 13),
        ("\ntenants = [\"acme\", \"globex\"]", 19),
    ] {
        let expected = format!("{expected} # {own}, line {line}\n");
        assert!(printed.contains(&expected), "{expected} is not in\n{printed}");
    }
    let parsed: toml::Table = toml::from_str(&printed).unwrap();
    assert_eq!(parsed["auth"]["issuers"].as_array().unwrap().len(), 2);

    let pasted = ISSUER.replace("https://id.example.com/jwks", "https://a:hunter2@id.example.com/jwks");
    let file = File::new(&with(&pasted));
    assert!(!file.sources(&[]).merge().to_toml().contains(SECRET));
    assert!(!file.settings(&[]).unwrap_err().to_string().contains(SECRET));
}

#[test]
fn people_sign_in_at_issuers_that_have_a_console() {
    let issuers_of = |text: &str| settings(text, &[]).unwrap().engine.issuers;
    let names = |text: &str| {
        let issuers = issuers_of(text).for_sign_in();
        issuers.into_iter().map(|issuer| issuer.name).collect::<Vec<_>>()
    };
    assert!(names(&with(ISSUER)).is_empty());
    assert_eq!(names(&with_console("client_id = 'keepsake'\n")), ["id.example.com"]);
    let inline = with(&format!("{URL}{ISSUER}console = {{ client_id = 'keepsake', name = 'Example' }}\n"));
    assert_eq!(names(&inline), ["Example"]);
    let shown = format!("{:?}", issuers_of(&with_console("client_id = 'a'\nclient_secret = 'hunter2'\n")));
    let redirect = "redirect_uri: \"https://memory.example.com/console/sign-in/callback\"";
    assert!(shown.contains(redirect) && !shown.contains(SECRET), "{shown}");

    for (table, told) in [
        ("", "client_id is not set: "),
        (
            "client_id = 'a'\nclient_secret = 'hunter2'\nclient_secret_file = '/x'\n",
            "client_secret_file (keepsake.toml, line 13) is set, and so is",
        ),
        ("client_id = 'a'\nscopes = 'openid'\n", "scopes (keepsake.toml, line 12) must be a list of texts"),
    ] {
        assert_problem(&with_console(table), &[], &format!("auth.issuers[0].console.{told}"));
    }
    let console = with_console("client_id = 'a'\n");
    let all_tenants = "tenants = ['*']\nactor";
    let of_another = ISSUER.replace("'keepsake'", "'other'\nconsole = { client_id = 'a' }");
    for (text, told) in [
        (console.replace(URL, ""), "server.public_url is not set: set it to where browsers reach the server"),
        (with_console("client_id = 'a'\nclient = 'hunter2'\n"), "client (keepsake.toml, line 12); auth"),
        (console.replace("issuer = 'https:", "issuer = 'http:"), "issuer (keepsake.toml, line 6) must be an"),
        (format!("{console}{of_another}").replace("actor", all_tenants), "line 16) is that of another table"),
    ] {
        assert_problem(&text, &[], told);
    }
}

#[test]
fn master_key_comes_from_a_variable_or_a_file_and_is_never_shown() {
    let is_locked = |text: &str, variables: &[(&str, &str)]| {
        let settings = settings(&with(text), variables).unwrap();
        settings.engine.vault.is_locked()
    };
    // Of 30 bytes.
    let (good, bad) = (File::new(&format!("{KEY}\n")), File::new(&KEY[..40]));
    let [good_path, bad_path] = [&good, &bad].map(|file| file.path().display().to_string());
    let previous = [("KEEPSAKE_SECRETS_PREVIOUS_MASTER_KEY_FILE", good_path.as_str())];
    assert!(!is_locked("", &[]));
    assert!(is_locked("", &[("KEEPSAKE_SECRETS_MASTER_KEY", KEY)]));
    assert!(is_locked(&format!("secrets.master_key_file = '{good_path}'"), &[]));
    assert!(is_locked(&format!("secrets.master_key = '{KEY}'"), &previous));

    for (text, told) in [
        ("master_key = 'hunter2'", "master_key (keepsake.toml, line 4) must be the base64 of 32 bytes"),
        ("master_key_file = 'BAD'", "master_key_file (keepsake.toml, line 4) holds no key: it"),
        ("master_key_file = '/nowhere'", "master_key_file (keepsake.toml, line 4) cannot be read: No such"),
        (
            "master_key = 'KEY'\nsecrets.master_key_file = 'BAD'",
            "master_key_file (keepsake.toml, line 5) is set",
        ),
        ("previous_master_key = 'KEY'", "previous_master_key (keepsake.toml, line 4) is allowed only"),
    ] {
        let text = text.replace("KEY", KEY).replace("BAD", &bad_path);
        assert_problem(&with(&format!("secrets.{text}")), &[], &format!("secrets.{told}"));
    }
}
