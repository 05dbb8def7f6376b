//! Texts that no server may ever write.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

static MADE_IN_TESTS: Mutex<BTreeMap<String, &'static str>> = Mutex::new(BTreeMap::new());

/// Notes a secret, and what it is.
pub(crate) fn remember(secret: &str, what: &'static str) {
    let mut secrets = MADE_IN_TESTS.lock().unwrap_or_else(PoisonError::into_inner);
    secrets.insert(secret.to_owned(), what);
}

/// Fails when a known secret is in `text`, which `origin` wrote.
pub(crate) fn assert_none_in(text: &str, origin: &str) {
    for (secret, what) in known() {
        let leak = text.lines().find(|line| line.contains(&secret));
        let shown = leak.map(|line| line.replace(&secret, "<the secret>"));
        assert_eq!(shown, None, "{origin} wrote {what}");
    }
}

/// What is looked for: everything noted, and what the environment holds.
pub(crate) fn known() -> BTreeMap<String, &'static str> {
    let mut secrets = MADE_IN_TESTS
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .clone();
    if let Ok(secret) = std::env::var("KEEPSAKE_TEST_S3_SECRET_ACCESS_KEY") {
        secrets.insert(secret, "the object store's secret key");
    }
    let url = std::env::var("KEEPSAKE_TEST_POSTGRES_URL").unwrap_or_default();
    if let Some(password) = password_of(&url) {
        secrets.insert(password.to_owned(), "the database's password");
    }
    // A password of two letters would be found everywhere.
    secrets.retain(|secret, _| secret.len() >= 8);
    secrets
}

fn password_of(url: &str) -> Option<&str> {
    let (credentials, _) = url.split_once("://")?.1.split_once('@')?;
    Some(credentials.split_once(':')?.1)
}
