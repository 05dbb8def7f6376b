//! Tokens that the server issues, and the keys that sign them.
//!
//! The keys are secrets in the index with the names `token-1`, `token-2` and so
//! on. When the latest key is old, a new one is created that signs from a time
//! slightly in the future; by then every replica has read it. An older key is
//! removed once all tokens that it signed have expired.

use std::sync::Arc;
use std::time::Duration;

use keepsake_core::schemas::TokenKeyType;
use keepsake_core::{Actor, ApiKeyId, Refused, StoreId, TenantId, Timestamp};
use keepsake_index::{AuditedAction, Auditor, Scope, ServerSecret};
use keepsake_tokens::{KeyRing, MAX_LIFE, OwnClaims, SigningKey, UnverifiedToken};
use parking_lot::RwLock;
use serde::Serialize;
use utoipa::ToSchema;

use crate::EngineError;
use crate::context::Context;

/// The purpose of the keys, and the prefix of their names.
const PURPOSE: &str = "token";
/// The age from which keys are read again at their next use.
const FRESH_FOR: Duration = Duration::from_mins(1);
/// Delay before a new key signs: longer than any replica's read interval.
const LEAD: Duration = Duration::from_mins(2);
/// Minimum time between two reads for a missing key.
const COOL_DOWN: Duration = Duration::from_secs(1);
/// Attempts to name a new key while other replicas create keys too.
const NAMING_TRIES: u32 = 4;
/// How long a key is kept once its successor signs: the lifetime of a token
/// plus possible clock differences.
const KEPT_FOR: Duration = Duration::from_secs(MAX_LIFE.as_secs() + 5 * 60);

#[derive(Debug, Clone)]
pub struct NewToken {
    pub tenant_id: TenantId,
    /// Changes are attributed to this actor.
    pub actor: Actor,
    pub scopes: Vec<Scope>,
    /// `None`: all stores of the tenant.
    pub store_ids: Option<Vec<StoreId>>,
    /// The API key that the token is issued to; the token ends when that key is revoked.
    pub issued_to: Option<ApiKeyId>,
    /// At most [`MAX_LIFE`].
    pub life: Duration,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rotation {
    /// Tokens that are already signed stay valid until they expire.
    Planned,
    /// A key may have leaked: all signed tokens become invalid, on this replica
    /// at once, on others within a minute.
    Compromised,
}

/// A key that signs tokens, without its secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = TokenKey)]
pub struct RotatedKey {
    /// The name of the key, sent in tokens as `kid`.
    #[serde(rename = "id")]
    pub name: String,
    #[schema(inline)]
    pub r#type: TokenKeyType,
    pub signs_from: Timestamp,
}

#[derive(Debug, Default)]
struct KeyRingCache {
    read: RwLock<Option<CachedKeyRing>>,
    /// Held while the keys are read.
    reading: tokio::sync::Mutex<()>,
}

#[derive(Debug, Clone)]
struct CachedKeyRing {
    ring: Arc<KeyRing>,
    at: Timestamp,
}

impl KeyRingCache {
    fn last_read(&self) -> Option<CachedKeyRing> {
        self.read.read().clone()
    }

    fn keep(&self, ring: &Arc<KeyRing>, at: Timestamp) {
        let ring = Arc::clone(ring);
        *self.read.write() = Some(CachedKeyRing { ring, at });
    }

    fn forget(&self) {
        *self.read.write() = None;
    }
}

impl CachedKeyRing {
    /// Whether the keys are recent enough and include the wanted one.
    fn serves(&self, wanted: Option<&UnverifiedToken<'_>>, now: Timestamp) -> bool {
        let age_allows = |period| now >= self.at && now < self.at.plus(period);
        let has_wanted = wanted.is_none_or(|token| self.ring.has(token));
        // Tokens with invented key ids cause at most one read per second.
        age_allows(if has_wanted { FRESH_FOR } else { COOL_DOWN })
    }
}

#[derive(Debug, Clone)]
pub struct Tokens {
    context: Arc<Context>,
    cached: Arc<KeyRingCache>,
    /// How long a key signs tokens before it is replaced.
    key_period: Duration,
}

impl Tokens {
    pub(crate) fn new(context: Arc<Context>, key_period: Duration) -> Self {
        Self { context, cached: Arc::default(), key_period }
    }

    /// The token is valid on every replica.
    #[tracing::instrument(name = "engine.issue_token", level = "debug", skip_all)]
    pub async fn issue(&self, new: NewToken) -> Result<String, EngineError> {
        let now = self.context.now();
        let claims = OwnClaims {
            tenant_id: new.tenant_id,
            actor: new.actor,
            scopes: new.scopes.iter().map(ToString::to_string).collect(),
            store_ids: new.store_ids,
            issued_to: new.issued_to,
            issued_at: now,
            expires_at: now.plus(new.life),
            token_id: self.context.ids.uuid(now),
        };
        Ok(self.keys(None).await?.issue(&claims, now)?)
    }

    /// Takes effect on every replica.
    #[tracing::instrument(name = "engine.rotate_token_key", level = "debug", skip_all)]
    pub async fn rotate_key(&self, why: Rotation, by: Auditor) -> Result<RotatedKey, EngineError> {
        let (tokens, audited) = (self.clone(), self.context.audited(by));
        self.context.run_to_end(async move { tokens.add_key(why, &audited).await }).await
    }

    async fn add_key(&self, why: Rotation, audited: &AuditedAction) -> Result<RotatedKey, EngineError> {
        let now = self.context.now();
        let (not_before, others_until) = match why {
            Rotation::Planned => (now.plus(LEAD), None),
            Rotation::Compromised => (now, Some(now)),
        };
        for _ in 0..NAMING_TRIES {
            let keys = self.context.index.secrets.list(PURPOSE).await?;
            let secret = self.context.secrets.make(PURPOSE, &name_after(&keys), not_before)?;
            let index = &self.context.index;
            if index.secrets.rotate(&secret, others_until, audited).await? {
                self.cached.forget();
                return Ok(RotatedKey { name: secret.kid, r#type: TokenKeyType, signs_from: not_before });
            }
            // Another replica has created a key with this name meanwhile.
        }
        Err(Refused::Contended.into())
    }

    /// Reads the keys again when they are old or lack the wanted key.
    pub(crate) async fn keys(
        &self,
        wanted: Option<&UnverifiedToken<'_>>,
    ) -> Result<Arc<KeyRing>, EngineError> {
        let now = self.context.now();
        let keys = &self.cached;
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
            // The cached keys stay valid while the index is unavailable.
            Err(error) => match keys.last_read() {
                Some(read) => {
                    tracing::warn!(error = %error, "engine.signing_keys cannot be read; the last ones stay");
                    Ok(read.ring)
                }
                None => Err(error),
            },
        }
    }

    /// Counts the keys without valid tokens, and removes them unless `is_dry`.
    pub(crate) async fn drop_outlived_keys(&self, is_dry: bool) -> Result<u64, EngineError> {
        let stored = self.context.index.secrets.list(PURPOSE).await?;
        let old = outlived(&stored, self.context.now());
        for kid in old.iter().filter(|_| !is_dry) {
            self.context.index.secrets.remove(kid).await?;
        }
        Ok(old.len() as u64)
    }

    async fn read_keys(&self, now: Timestamp) -> Result<Arc<KeyRing>, EngineError> {
        let mut stored = self.context.index.secrets.list(PURPOSE).await?;
        if let Some(not_before) = self.next_key_at(&stored, now) {
            self.context.secrets.add(PURPOSE, &name_after(&stored), not_before).await?;
            stored = self.context.index.secrets.list(PURPOSE).await?;
        }
        for old in outlived(&stored, now) {
            self.context.index.secrets.remove(&old).await?;
            stored.retain(|key| key.kid != old);
        }
        let mut keys = Vec::with_capacity(stored.len());
        for key in stored {
            let secret = self.context.secrets.open(&key).await?;
            keys.push(SigningKey::new(key.kid, &secret, key.not_before, key.retired_at)?);
        }
        Ok(Arc::new(KeyRing::new(keys)))
    }

    /// When a new key should start to sign; `None`: no key is needed.
    fn next_key_at(&self, stored: &[ServerSecret], now: Timestamp) -> Option<Timestamp> {
        let mut good = stored.iter().filter(|key| key.retired_at.is_none_or(|at| at > now));
        match good.next_back() {
            // No tokens exist yet, so the key can sign at once.
            None => Some(now),
            Some(latest) if latest.not_before.plus(self.key_period) <= now => Some(now.plus(LEAD)),
            Some(_) => None,
        }
    }
}

fn number_of(key: &ServerSecret) -> Option<u64> {
    key.kid.strip_prefix(PURPOSE)?.strip_prefix('-')?.parse().ok()
}

/// Replicas that create a key concurrently pick the same name.
fn name_after(stored: &[ServerSecret]) -> String {
    let last = stored.iter().filter_map(number_of).max().unwrap_or_default();
    format!("{PURPOSE}-{}", last + 1)
}

/// Keys without valid tokens; never the newest key.
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
