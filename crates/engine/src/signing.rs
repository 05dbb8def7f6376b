//! Tokens that the server issues, and the keys that sign them.
//!
//! The keys are secrets of the index, called `token-1`, `token-2` and so on. A
//! new one is made when the latest is old, for a time a little ahead: until it
//! has come every replica has read it. A key before the latest goes once no
//! token that it signed can be alive.

use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use keepsake_core::{Actor, ApiKeyId, StoreId, TenantId, Timestamp};
use keepsake_index::{Audited, Scope, ServerSecret};
use keepsake_tokens::{KeyRing, MAX_LIFE, OwnClaims, SigningKey, Untrusted};

use crate::{Engine, EngineError};

/// What the keys are for, and what their names begin with.
const PURPOSE: &str = "token";
/// The age from which keys are read anew at their next use.
const FRESH_FOR: Duration = Duration::from_mins(1);
/// How long a new key waits: longer than any replica goes without reading keys.
const LEAD: Duration = Duration::from_mins(2);
/// The time between two readings for keys that are not there, at least.
const COOL_DOWN: Duration = Duration::from_secs(1);
/// Tries to name a new key while others name theirs.
const NAMING_TRIES: u32 = 4;
/// How long a key is kept once the next signs: a token's life, and what clocks
/// may differ by.
const KEPT_FOR: Duration = Duration::from_secs(MAX_LIFE.as_secs() + 5 * 60);

/// A token to be issued.
#[derive(Debug, Clone)]
pub struct NewToken {
    /// Whose it is.
    pub tenant_id: TenantId,
    /// Who its changes are attributed to.
    pub actor: Actor,
    /// What it may do.
    pub scopes: Vec<Scope>,
    /// The only stores it sees; `None`: all of the tenant's.
    pub store_ids: Option<Vec<StoreId>>,
    /// The API key that it is issued to: once that is revoked, it is refused.
    pub issued_to: Option<ApiKeyId>,
    /// How long it lives, at most [`MAX_LIFE`].
    pub life: Duration,
}

/// Why the signing key is changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rotation {
    /// It is time: what was signed stays good until it ends.
    Planned,
    /// A key may be in the wrong hands: nothing that was signed is believed any
    /// more, on this replica at once, on others within a minute.
    Compromised,
}

/// A key that was made because somebody asked for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RotatedKey {
    /// What it is called.
    pub name: String,
    /// From when on it signs.
    pub signs_from: Timestamp,
}

/// The keys as they were read last.
#[derive(Debug, Default)]
pub(crate) struct Keys {
    read: RwLock<Option<Read>>,
    /// Held by whoever reads them.
    reading: tokio::sync::Mutex<()>,
}

#[derive(Debug, Clone)]
struct Read {
    ring: Arc<KeyRing>,
    at: Timestamp,
}

impl Keys {
    fn last_read(&self) -> Option<Read> {
        self.read.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn keep(&self, ring: &Arc<KeyRing>, at: Timestamp) {
        let ring = Arc::clone(ring);
        *self.read.write().unwrap_or_else(PoisonError::into_inner) = Some(Read { ring, at });
    }

    fn forget(&self) {
        *self.read.write().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

impl Read {
    /// Whether the keys are young enough, and one that is wanted among them.
    fn serves(&self, wanted: Option<&Untrusted<'_>>, now: Timestamp) -> bool {
        let age_allows = |period| now >= self.at && now < self.at.plus(period);
        let has_wanted = wanted.is_none_or(|token| self.ring.has(token));
        // One that is made up costs a reading a second, whoever sends it.
        age_allows(if has_wanted { FRESH_FOR } else { COOL_DOWN })
    }
}

impl Engine {
    /// Issues a token, good on every replica.
    ///
    /// # Errors
    /// [`EngineError::Token`] when it would live for no time or for too long,
    /// [`EngineError::Secret`], [`EngineError::Index`].
    #[tracing::instrument(name = "engine.issue_token", level = "debug", skip_all)]
    pub async fn issue_token(&self, new: NewToken) -> Result<String, EngineError> {
        let now = self.now();
        let claims = OwnClaims {
            tenant_id: new.tenant_id,
            actor: new.actor,
            scopes: new.scopes.iter().map(ToString::to_string).collect(),
            store_ids: new.store_ids,
            issued_to: new.issued_to,
            issued_at: now,
            expires_at: now.plus(new.life),
            token_id: self.0.ids.uuid(now),
        };
        Ok(self.signing_keys(None).await?.issue(&claims, now)?)
    }

    /// Changes the key that signs tokens.
    pub(crate) async fn rotate_token_key(
        &self,
        why: Rotation,
        audited: &Audited,
    ) -> Result<RotatedKey, EngineError> {
        let now = self.now();
        let (not_before, others_until) = match why {
            Rotation::Planned => (now.plus(LEAD), None),
            Rotation::Compromised => (now, Some(now)),
        };
        for _ in 0..NAMING_TRIES {
            let keys = self.0.index.secrets.list(PURPOSE).await?;
            let secret = self.new_secret(PURPOSE, &name_after(&keys), not_before)?;
            let index = &self.0.index;
            if index.secrets.rotate(&secret, others_until, audited).await? {
                self.0.signing.forget();
                return Ok(RotatedKey {
                    name: secret.kid,
                    signs_from: not_before,
                });
            }
            // Another replica has made one of that name meanwhile.
        }
        Err(EngineError::Contended)
    }

    /// The keys, read anew where they are old or lack the one that is wanted.
    pub(crate) async fn signing_keys(
        &self,
        wanted: Option<&Untrusted<'_>>,
    ) -> Result<Arc<KeyRing>, EngineError> {
        let now = self.now();
        let keys = &self.0.signing;
        let good = || keys.last_read().filter(|read| read.serves(wanted, now));
        if let Some(read) = good() {
            return Ok(read.ring);
        }
        let _reading = keys.reading.lock().await;
        if let Some(read) = good() {
            return Ok(read.ring);
        }
        match self.read_keys(now).await {
            Ok(ring) => {
                keys.keep(&ring, now);
                Ok(ring)
            }
            // Keys do not turn bad while the index is away.
            Err(error) => match keys.last_read() {
                Some(read) => {
                    tracing::warn!(error = %error, "engine.signing_keys cannot be read; the last ones stay");
                    Ok(read.ring)
                }
                None => Err(error),
            },
        }
    }

    /// How many keys there are that nothing alive was signed with; unless
    /// `is_dry`, they go.
    ///
    /// # Errors
    /// [`EngineError::Index`].
    pub(crate) async fn drop_outlived_keys(&self, is_dry: bool) -> Result<u64, EngineError> {
        let stored = self.0.index.secrets.list(PURPOSE).await?;
        let old = outlived(&stored, self.now());
        for kid in old.iter().filter(|_| !is_dry) {
            self.0.index.secrets.remove(kid).await?;
        }
        Ok(old.len() as u64)
    }

    async fn read_keys(&self, now: Timestamp) -> Result<Arc<KeyRing>, EngineError> {
        let mut stored = self.0.index.secrets.list(PURPOSE).await?;
        if let Some(not_before) = self.next_key_at(&stored, now) {
            self.add_secret(PURPOSE, &name_after(&stored), not_before).await?;
            stored = self.0.index.secrets.list(PURPOSE).await?;
        }
        for old in outlived(&stored, now) {
            self.0.index.secrets.remove(&old).await?;
            stored.retain(|key| key.kid != old);
        }
        let mut keys = Vec::with_capacity(stored.len());
        for key in stored {
            let secret = self.open_secret(&key).await?;
            keys.push(SigningKey::new(key.kid, &secret, key.not_before, key.retired_at)?);
        }
        Ok(Arc::new(KeyRing::new(keys)))
    }

    /// From when on a new key is to sign, if one is needed.
    fn next_key_at(&self, stored: &[ServerSecret], now: Timestamp) -> Option<Timestamp> {
        let mut good = stored
            .iter()
            .filter(|key| key.retired_at.is_none_or(|at| at > now));
        match good.next_back() {
            // There is nobody yet whose token it could be too new for.
            None => Some(now),
            Some(latest) if latest.not_before.plus(self.0.token_key_period) <= now => Some(now.plus(LEAD)),
            Some(_) => None,
        }
    }
}

fn number_of(key: &ServerSecret) -> Option<u64> {
    key.kid.strip_prefix(PURPOSE)?.strip_prefix('-')?.parse().ok()
}

/// A name that no key had: replicas that make one at the same time agree on it.
fn name_after(stored: &[ServerSecret]) -> String {
    let last = stored.iter().filter_map(number_of).max().unwrap_or_default();
    format!("{PURPOSE}-{}", last + 1)
}

/// Keys that nothing alive was signed with; never the last one made.
fn outlived(stored: &[ServerSecret], now: Timestamp) -> Vec<String> {
    let last = stored.iter().filter_map(number_of).max();
    stored
        .iter()
        .enumerate()
        .filter(|(_, key)| number_of(key) != last)
        .filter(|(position, key)| {
            let successor = stored.get(position + 1);
            let is_outlived = successor.is_some_and(|next| next.not_before.plus(KEPT_FOR) <= now);
            let is_retired = key.retired_at.is_some_and(|at| at.plus(KEPT_FOR) <= now);
            is_outlived || is_retired
        })
        .map(|(_, key)| key.kid.clone())
        .collect()
}
