//! Cached look-ups of API keys, and limits on look-ups of unknown keys.
//!
//! A known key is looked up at most every three seconds while it is used. An unknown key
//! may be invented, so look-ups of unknown keys are limited in concurrency and in
//! failures per second. Keys that were not found have their own cache, so that invented
//! keys evict no valid ones.

use std::sync::Arc;
use std::time::Duration;

use keepsake_core::api_key::ApiKeySecret;
use keepsake_core::{Actor, Surface, Timestamp};
use keepsake_index::{Auditor, Credential, TenantStatus};
use keepsake_telemetry::Cache as Looked;
use moka::future::Cache;
use parking_lot::Mutex;
use tokio::sync::Semaphore;

use crate::look_ups::{LOOK_UP_LIFETIME, LookUps, MAX_CACHED_LOOK_UPS, is_recent};
use crate::shared::Shared;
use crate::{EngineError, Principal};

/// Maximum concurrent look-ups of unknown keys.
const LOOK_UPS_AT_ONCE: usize = 8;
/// Longest wait for a look-up permit before the request is refused as busy.
const TURN_TIMEOUT: Duration = Duration::from_millis(500);
/// Failed look-ups per second after which new look-ups are refused.
const MISSES_PER_SECOND: u32 = 200;
const UNKNOWN: &str = "the API key is unknown";
const MALFORMED: &str = "the API key is malformed: it belongs to another service, or is not complete";
const BUSY: EngineError =
    EngineError::AuthenticationBusy("too many unknown API keys are tried at the moment: try again");

/// The cached look-up of a key; the cache entry's key is the API key's hash.
#[derive(Debug, Clone)]
struct CachedKey {
    expires_at: Option<Timestamp>,
    principal: Result<Arc<Principal>, KeyRefusal>,
}

/// Why a key that is known does not work.
#[derive(Debug, Clone, Copy)]
enum KeyRefusal {
    Revoked,
    TenantSuspended,
    TenantDeleting,
}

impl From<KeyRefusal> for EngineError {
    fn from(refusal: KeyRefusal) -> Self {
        match refusal {
            KeyRefusal::Revoked => Self::Unauthenticated("the API key has been revoked"),
            KeyRefusal::TenantSuspended => Self::TenantSuspended,
            KeyRefusal::TenantDeleting => Self::Unauthenticated(UNKNOWN),
        }
    }
}

#[derive(Debug)]
pub(super) struct KeyAuth {
    shared: Arc<Shared>,
    known: LookUps<[u8; 32], CachedKey>,
    /// Hashes that were not found, and when.
    unknown: Cache<[u8; 32], Timestamp>,
    turns: Semaphore,
    misses: Misses,
}

impl KeyAuth {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        Self {
            shared,
            known: LookUps::new(),
            unknown: Cache::builder()
                .max_capacity(MAX_CACHED_LOOK_UPS)
                // The engine's clock decides about validity; this only frees
                // the memory.
                .time_to_live(2 * LOOK_UP_LIFETIME)
                .build(),
            turns: Semaphore::new(LOOK_UPS_AT_ONCE),
            misses: Misses::default(),
        }
    }

    /// A mistyped key fails its checksum and needs no look-up. A look-up is one query and
    /// is cached for a few seconds.
    #[tracing::instrument(name = "engine.authenticate_key", level = "debug", skip_all)]
    pub(super) async fn authenticate(&self, presented: &str) -> Result<Arc<Principal>, EngineError> {
        self.shared.replica.require_heartbeat().await?;
        let secret = ApiKeySecret::parse(presented).map_err(|_| EngineError::Unauthenticated(MALFORMED))?;
        let now = self.shared.context.now();
        let known = self.known_key(secret.sha256(), now).await?;
        if known.expires_at.is_some_and(|expires_at| expires_at <= now) {
            return Err(EngineError::Unauthenticated("the API key has expired"));
        }
        let principal = known.principal?;
        if let Some(Actor::ApiKey(api_key_id)) = principal.actor() {
            self.shared.key_uses.note((principal.tenant_id, *api_key_id), now, &());
        }
        Ok(principal)
    }

    async fn known_key(&self, secret_sha256: [u8; 32], now: Timestamp) -> Result<CachedKey, EngineError> {
        let known = self.known.known(&secret_sha256, now).await;
        self.shared.context.metrics.cache_looked_up(Looked::ApiKey, known.is_some());
        if let Some(known) = known {
            return Ok(known);
        }
        let look_up = async |was_known| {
            let credential = if was_known {
                self.look_up(&secret_sha256, now).await?
            } else {
                self.look_up_unknown(&secret_sha256, now).await?
            };
            Ok(credential.map(|credential| CachedKey {
                expires_at: credential.expires_at,
                principal: self.principal_of_key(credential),
            }))
        };
        let found = self.known.find(&secret_sha256, now, look_up).await?;
        found.ok_or(EngineError::Unauthenticated(UNKNOWN))
    }

    async fn look_up_unknown(
        &self,
        secret_sha256: &[u8; 32],
        now: Timestamp,
    ) -> Result<Option<Credential>, EngineError> {
        let missed_at = self.unknown.get(secret_sha256).await;
        if missed_at.is_some_and(|missed_at| is_recent(missed_at, now)) {
            return Ok(None);
        }
        if !self.misses.are_few(now) {
            return Err(BUSY);
        }
        let turn = tokio::time::timeout(TURN_TIMEOUT, self.turns.acquire()).await;
        let _turn = turn.map_err(|_| BUSY)?.map_err(|_| BUSY)?;
        if !self.misses.are_few(now) {
            return Err(BUSY);
        }
        let found = self.look_up(secret_sha256, now).await?;
        if found.is_none() {
            self.misses.count(now, 1);
        }
        Ok(found)
    }

    /// A cached miss is valid from this look-up on.
    async fn look_up(
        &self,
        secret_sha256: &[u8; 32],
        now: Timestamp,
    ) -> Result<Option<Credential>, EngineError> {
        let found = self.shared.context.index.credentials.authenticate(secret_sha256).await?;
        if found.is_none() {
            self.unknown.insert(*secret_sha256, now).await;
        }
        Ok(found)
    }

    fn principal_of_key(&self, credential: Credential) -> Result<Arc<Principal>, KeyRefusal> {
        if credential.is_revoked {
            return Err(KeyRefusal::Revoked);
        }
        match credential.tenant_status {
            TenantStatus::Active => {}
            TenantStatus::Suspended => return Err(KeyRefusal::TenantSuspended),
            TenantStatus::Deleting => return Err(KeyRefusal::TenantDeleting),
        }
        Ok(Arc::new(Principal {
            tenant_id: credential.tenant_id,
            by: Auditor::Credential(Actor::ApiKey(credential.api_key_id)),
            limits: self.shared.context.limits.with(&credential.limits),
            scopes: credential.scopes,
            store_ids: credential.store_ids,
            expires_at: credential.expires_at,
            session: None,
            surface: Surface::Api,
            called_in: None,
            tenant_name: credential.tenant_name.into(),
            key_name: Some(credential.key_name.into()),
        }))
    }
}

#[derive(Debug, Default)]
struct Misses(Mutex<(Timestamp, u32)>);

impl Misses {
    fn are_few(&self, now: Timestamp) -> bool {
        self.count(now, 0) < MISSES_PER_SECOND
    }

    fn count(&self, now: Timestamp, more: u32) -> u32 {
        let mut window = self.0.lock();
        let (since, count) = &mut *window;
        if now < *since || now >= since.plus(Duration::from_secs(1)) {
            (*since, *count) = (now, 0);
        }
        *count += more;
        *count
    }
}
