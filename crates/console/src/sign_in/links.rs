//! Links that sign in once, for `serve --dev`.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use keepsake_core::{ContentHash, Timestamp};
use parking_lot::Mutex;

const LINK_LIFE: Duration = Duration::from_mins(10);

struct Link {
    credential: String,
    expires_at: Timestamp,
}

/// The unused links of this process; cheap to clone.
#[derive(Clone, Default)]
pub struct OneTimeLinks(Arc<Mutex<HashMap<ContentHash, Link>>>);

impl fmt::Debug for OneTimeLinks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OneTimeLinks(***)")
    }
}

impl OneTimeLinks {
    /// Returns the path of a link that signs in with a credential, once, within ten minutes.
    /// `random` must come from a cryptographically secure source.
    pub fn add(&self, credential: &str, random: [u8; 32], now: Timestamp) -> String {
        let token = URL_SAFE_NO_PAD.encode(random);
        let link = Link { credential: credential.to_owned(), expires_at: now.plus(LINK_LIFE) };
        let mut links = self.0.lock();
        links.retain(|_, link| link.expires_at > now);
        links.insert(ContentHash::of(token.as_bytes()), link);
        format!("/console/sign-in/once?token={token}")
    }

    /// Uses up a link. `None`: the link was used, has expired, or never existed.
    pub(crate) fn take(&self, token: &str, now: Timestamp) -> Option<String> {
        let mut links = self.0.lock();
        let link = links.remove(&ContentHash::of(token.as_bytes()))?;
        (link.expires_at > now).then_some(link.credential)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn link_works_once_until_it_expires() {
        let now = Timestamp::from_micros(1_000_000);
        let links = OneTimeLinks::default();
        let token_of_new = || {
            let path = links.add("key", [7; 32], now);
            path.strip_prefix("/console/sign-in/once?token=").unwrap().to_owned()
        };
        let token = token_of_new();
        assert_eq!(links.take("other", now), None);
        assert_eq!(links.take(&token, now).as_deref(), Some("key"));
        assert_eq!(links.take(&token, now), None);
        assert_eq!(links.take(&token_of_new(), now.plus(LINK_LIFE)), None);
    }
}
