//! `[auth]`, `[[auth.issuers]]` and `[secrets]`.

use super::*;

const ISSUER: &str = "[[auth.issuers]]\nissuer = 'https://id.example.com'\naudience = 'keepsake'\n\
     jwks_url = 'https://id.example.com/jwks.json'\nactor = 'user'\n";
/// The base64 of 32 bytes with the secret in it.
const KEY: &str = "hunter2hunter2hunter2hunter2hunter2hunter2g=";

fn with(text: &str) -> String {
    format!("{MINIMAL}{text}")
}

/// The one problem of a configuration with this text in it.
fn problem(text: &str) -> String {
    let mut found = problems(&with(text), &[]);
    assert_eq!(found.len(), 1, "{found:?}");
    found.remove(0)
}

#[test]
fn issuers_are_read_from_tables_of_the_file() {
    assert!(settings(MINIMAL, &[]).unwrap().auth.issuers.is_empty());
    let second = ISSUER.replace("id.example", "other.example");
    let text = with(&format!("{ISSUER}tenants = ['acme']\n{second}"));
    assert_eq!(
        problems(&text, &[]),
        [
            "auth.issuers[1].tenants is not set: there are several issuers: set it to the tenants that this one may name, \
          or to [\"*\"] for all"
        ]
    );
    let settings = settings(&format!("{text}tenants = ['*']\n"), &[]).unwrap();
    let shown = format!("{:?}", settings.auth.issuers);
    assert!(shown.contains("https://id.example.com") && shown.contains("https://other.example.com"));
    assert_eq!(settings.auth.token_key_period, Duration::from_hours(30 * 24));
    assert!(!settings.vault.is_locked());
}

#[test]
fn issuer_error_names_its_position() {
    let line = |name: &str, value: &str| {
        let lines = ISSUER.lines().filter(|line| !line.starts_with(&format!("{name} =")));
        format!("{}\n{value}\n", lines.collect::<Vec<_>>().join("\n"))
    };
    for (text, told) in [
        (line("issuer", ""), "auth.issuers[0].issuer is not set: "),
        (line("audience", ""), "auth.issuers[0].audience is not set: "),
        (line("actor", ""), "auth.issuers[0].actor is not set: "),
        (
            line("actor", "actor = 'admin'"),
            "auth.issuers[0].actor (keepsake.toml, line 8) must be user or service_account",
        ),
        (line("issuer", "issuer = 3"), "auth.issuers[0].issuer (keepsake.toml, line 8) must be text"),
        (
            line("issuer", "issuer = 'keepsake'"),
            "auth.issuers[0].issuer (keepsake.toml, line 8) must not be keepsake",
        ),
        (line("jwks_url", ""), "auth.issuers[0].jwks_url is not set: set it, or auth.issuers[0].key_file"),
        (
            line("jwks_url", "jwks_url = 'http://id.example.com/'"),
            "auth.issuers[0].jwks_url (keepsake.toml, line 8) must be an https:// URL",
        ),
        (
            line("jwks_url", "key_file = '/nowhere/key.pem'"),
            "auth.issuers[0].key_file (keepsake.toml, line 8) cannot be read: No such file",
        ),
        (line("x", "key_file = 'x'"), "auth.issuers[0].key_file (keepsake.toml, line 9) is set, and so is"),
        (
            line("x", "allow_http = 'perhaps'"),
            "auth.issuers[0].allow_http (keepsake.toml, line 9) must be true or false",
        ),
        (
            line("x", "tenants = []"),
            "auth.issuers[0].tenants (keepsake.toml, line 9) must be a list of texts",
        ),
        (
            line("x", "tenants = ['a', 1]"),
            "auth.issuers[0].tenants (keepsake.toml, line 9) must be a list of texts",
        ),
        (
            line("x", "tenants = 'a'"),
            "auth.issuers[0].tenants (keepsake.toml, line 9) must be a list of texts",
        ),
        (
            line("x", "tenant_claim = ''"),
            "auth.issuers[0].tenant_claim (keepsake.toml, line 9) must not be empty",
        ),
        (
            line("x", "jwks = 'x'"),
            "unknown key auth.issuers[0].jwks (keepsake.toml, line 9); auth.issuers[0] has issuer, audience, jwks_url",
        ),
        (format!("{ISSUER}{ISSUER}"), "auth.issuers[1].issuer (keepsake.toml, line 10) is listed twice"),
        ("[auth]\nissuers = 'x'\n".to_owned(), "auth.issuers (keepsake.toml, line 5) must be tables"),
        ("[auth]\nissuers = ['x']\n".to_owned(), "auth.issuers (keepsake.toml, line 5) must be tables"),
        ("[auth.issuers]\nissuer = 'x'\n".to_owned(), "auth.issuers (keepsake.toml, line 4) must be tables"),
        (
            "[auth]\ntoken_key_days = 0\n".to_owned(),
            "auth.token_key_days (keepsake.toml, line 5) must be a whole number",
        ),
    ] {
        let found = problem(&text);
        assert!(found.starts_with(told), "{found}\nis not\n{told}");
    }
    let found = problems(MINIMAL, &[("KEEPSAKE_AUTH_ISSUERS", "x")]);
    assert_eq!(found, ["auth.issuers (KEEPSAKE_AUTH_ISSUERS) must be tables in a file: [[auth.issuers]]"]);
}

#[test]
fn issuers_are_printed_with_their_origins() {
    let file = File::new(&with(&format!("{ISSUER}tenants = ['acme', 'globex']\n{ISSUER}")));
    let printed = file.sources(&[]).merge().to_toml();
    let path = file.path().display().to_string();
    let expected = format!(
        "\n[[auth.issuers]]\nissuer = \"https://id.example.com\" # {path}, line 5\n\
         audience = \"keepsake\" # {path}, line 6\n\
         jwks_url = \"https://id.example.com/jwks.json\" # {path}, line 7\n\
         tenants = [\"acme\", \"globex\"] # {path}, line 9\nactor = \"user\" # {path}, line 8\n\
         \n[[auth.issuers]]\nissuer = "
    );
    assert!(printed.contains(&expected), "{printed}");
    let parsed: toml::Table = toml::from_str(&printed).unwrap();
    assert_eq!(parsed["auth"]["issuers"].as_array().unwrap().len(), 2);
    let pasted = ISSUER.replace("https://id.example.com/jwks", "https://a:hunter2@id.example.com/jwks");
    let file = File::new(&with(&pasted));
    assert!(!file.sources(&[]).merge().to_toml().contains(SECRET));
    assert!(!file.settings(&[]).unwrap_err().to_string().contains(SECRET));
}

#[test]
fn people_sign_in_at_issuers_that_have_a_console() {
    let url = "server.public_url = 'https://memory.example.com/'\n";
    let console = |table: &str| with(&format!("{url}{ISSUER}[auth.issuers.console]\n{table}"));
    let names = |text: &str| {
        let issuers = settings(text, &[]).unwrap().auth.issuers.for_sign_in();
        issuers.into_iter().map(|issuer| issuer.name).collect::<Vec<_>>()
    };
    assert!(names(&with(ISSUER)).is_empty());
    assert_eq!(names(&console("client_id = 'keepsake'\n")), ["id.example.com"]);
    let inline = format!("{url}{ISSUER}console = {{ client_id = 'keepsake', name = 'Example' }}\n");
    assert_eq!(names(&with(&inline)), ["Example"]);

    let secret = File::new("hunter2\n");
    let path = secret.path().display().to_string();
    let file = File::new(&console(&format!(
        "client_id = 'keepsake'\nclient_secret_file = '{path}'\nscopes = ['profile', 'memory:read']\n"
    )));
    let (settings, printed) = (file.settings(&[]).unwrap(), file.sources(&[]).merge().to_toml());
    let shown = format!("{:?}", settings.auth.issuers);
    assert!(
        shown.contains("redirect_uri: \"https://memory.example.com/console/sign-in/callback\""),
        "{shown}"
    );
    assert!(!shown.contains(SECRET), "{shown}");
    let own = file.path().display().to_string();
    let expected = format!(
        "\n[auth.issuers.console]\nclient_id = \"keepsake\" # {own}, line 11\n\
         client_secret_file = \"{path}\" # {own}, line 12\nscopes = [\"profile\", \"memory:read\"] # {own}, line 13\n"
    );
    assert!(printed.contains(&expected), "{printed}");
    assert!(toml::from_str::<toml::Table>(&printed).is_ok(), "{printed}");
}

#[test]
fn error_of_an_issuers_console_names_its_key() {
    let url = "server.public_url = 'https://memory.example.com'\n";
    let console = |table: &str| format!("{url}{ISSUER}[auth.issuers.console]\n{table}");
    for (text, found) in [
        (
            format!("{ISSUER}[auth.issuers.console]\nclient_id = 'keepsake'\n"),
            "server.public_url is not set: set it to where browsers reach the server: auth.issuers[0].console sends them",
        ),
        (console(""), "auth.issuers[0].console.client_id is not set: "),
        (
            console("client_id = ''\n"),
            "auth.issuers[0].console.client_id (keepsake.toml, line 11) must not be empty",
        ),
        (
            console("client_id = 'a'\nclient_secret = 'hunter2'\nclient_secret_file = '/x'\n"),
            "auth.issuers[0].console.client_secret_file (keepsake.toml, line 13) is set, and so is",
        ),
        (
            console("client_id = 'a'\nclient_secret_file = '/nowhere/secret'\n"),
            "auth.issuers[0].console.client_secret_file (keepsake.toml, line 12) cannot be read: No such file",
        ),
        (
            console("client_id = 'a'\nscopes = 'openid'\n"),
            "auth.issuers[0].console.scopes (keepsake.toml, line 12) must be a list of texts",
        ),
        (
            console("client_id = 'a'\nclient = 'hunter2'\n"),
            "unknown key auth.issuers[0].console.client (keepsake.toml, line 12); auth.issuers[0].console has client_id",
        ),
        (
            console("client_id = 'a'\n").replace("issuer = 'https:", "issuer = 'http:"),
            "auth.issuers[0].issuer (keepsake.toml, line 6) must be an https:// URL: an attacker who replaces",
        ),
        (
            format!(
                "{}\n{}",
                console("client_id = 'a'\n").replace("actor", "tenants = ['*']\nactor"),
                ISSUER.replace("'keepsake'", "'other'\ntenants = ['*']\nconsole = { client_id = 'a' }"),
            ),
            "auth.issuers[1].console.client_id (keepsake.toml, line 18) is that of another table of this issuer",
        ),
    ] {
        let problem = problem(&text);
        assert!(problem.starts_with(found), "{problem}\nis not\n{found}");
        assert!(!problem.contains(SECRET), "{problem}");
    }
}

#[test]
fn master_key_comes_from_a_variable_or_a_file() {
    let is_locked = |text: &str, variables: &[(&str, &str)]| {
        let settings = settings(&with(text), variables).unwrap();
        settings.vault.is_locked()
    };
    assert!(is_locked("", &[("KEEPSAKE_SECRETS_MASTER_KEY", KEY)]));
    let file = File::new(&format!("{KEY}\n"));
    let path = file.path().display().to_string();
    assert!(is_locked(&format!("secrets.master_key_file = '{path}'"), &[]));
    assert!(is_locked(
        &format!("secrets.master_key = '{KEY}'"),
        &[("KEEPSAKE_SECRETS_PREVIOUS_MASTER_KEY_FILE", &path)]
    ));
}

#[test]
fn master_key_error_hides_the_key() {
    let rule = "must be the base64 of 32 bytes";
    let bad = File::new("hunter2");
    let path = bad.path().display().to_string();
    for (text, told) in [
        (
            "secrets.master_key = 'hunter2'".to_owned(),
            format!("secrets.master_key (keepsake.toml, line 4) {rule}"),
        ),
        (
            format!("secrets.master_key_file = '{path}'"),
            format!("secrets.master_key_file (keepsake.toml, line 4) holds no key: it {rule}"),
        ),
        (
            "secrets.master_key_file = '/nowhere/key'".to_owned(),
            "secrets.master_key_file (keepsake.toml, line 4) cannot be read: No such file".to_owned(),
        ),
        (
            format!("secrets.master_key = '{KEY}'\nsecrets.master_key_file = '{path}'"),
            "secrets.master_key_file (keepsake.toml, line 5) is set, and so is secrets.master_key".to_owned(),
        ),
        (
            format!("secrets.previous_master_key = '{KEY}'"),
            "secrets.previous_master_key (keepsake.toml, line 4) is allowed only together with".to_owned(),
        ),
    ] {
        let found = problem(&text);
        assert!(found.starts_with(&told), "{found}");
        assert!(!found.contains(SECRET), "{found}");
    }
    let file = File::new(&with(&format!("secrets.master_key = '{KEY}'")));
    let printed = file.sources(&[]).merge().to_toml();
    assert!(printed.contains("\n[secrets]\nmaster_key = \"***\" # "), "{printed}");
    assert!(!format!("{:?}", file.settings(&[]).unwrap()).contains(SECRET));
}
