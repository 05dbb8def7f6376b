//! Texts that no server may ever write.

use std::collections::BTreeMap;

use aho_corasick::AhoCorasick;
use keepsake_testkit::run;
pub(crate) use keepsake_testkit::run::remember;

/// Fails when a known secret is in `text`, which `origin` wrote.
pub(crate) fn assert_none_in(text: &str, origin: &str) {
    let known = known();
    let secrets: Vec<&String> = known.keys().collect();
    // There may be thousands, and megabytes of text.
    let Some(found) = AhoCorasick::new(&secrets).unwrap().find(text) else {
        return;
    };
    let secret = secrets[found.pattern()].as_str();
    let leak = text.lines().find(|line| line.contains(secret));
    let shown = leak.map(|line| line.replace(secret, "<the secret>"));
    panic!("{origin} wrote {}: {shown:?}", known[secret]);
}

/// What is looked for: everything noted, and what the environment holds.
pub(crate) fn known() -> BTreeMap<String, &'static str> {
    let mut secrets = run::remembered();
    if let Ok(secret) = std::env::var("KEEPSAKE_TEST_S3_SECRET_ACCESS_KEY") {
        secrets.insert(secret, "the object store's secret key");
    }
    let url = std::env::var("KEEPSAKE_TEST_POSTGRES_URL").unwrap_or_default();
    if let Some(password) = password_of(&url) {
        secrets.insert(password.to_owned(), "the database's password");
    }
    secrets.retain(|secret, _| secret.len() >= run::MIN_SECRET_CHARS);
    secrets
}

fn password_of(url: &str) -> Option<&str> {
    let (credentials, _) = url.split_once("://")?.1.split_once('@')?;
    Some(credentials.split_once(':')?.1)
}
