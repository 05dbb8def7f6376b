//! API keys: what was looked up of them, and how often that may be done.
//!
//! A key that is known here is looked up each three seconds it is used. One
//! that is not may be made up: such look-ups are few at once and, where they
//! find nothing, few a second; what they have not found is remembered apart, so
//! that made-up keys push out no others.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use keepsake_core::api_key::ApiKeySecret;
use keepsake_core::{Actor, Timestamp};
use keepsake_index::{Credential, TenantStatus};
use keepsake_telemetry::Cache as Looked;
use moka::future::Cache;
use moka::ops::compute::{CompResult, Op};
use tokio::sync::Semaphore;

use super::{BELIEVED_FOR, Principal, REMEMBERED, is_believed};
use crate::{Engine, EngineError};

/// Look-ups of keys that are not known here, at once.
const LOOK_UPS_AT_ONCE: usize = 8;
/// How long one waits for its turn before it is told to come again.
const TURN_TIMEOUT: Duration = Duration::from_millis(500);
/// Look-ups in a second that may find nothing before no more are begun in it.
const MISSES_PER_SECOND: u32 = 200;
/// Why a key is refused that nobody was given.
const UNKNOWN: &str = "the API key is unknown";
const BUSY: EngineError =
    EngineError::AuthenticationBusy("too many unknown API keys are tried at the moment: try again");

/// What is remembered of a key's hash.
#[derive(Debug, Clone)]
struct Remembered {
    looked_up_at: Timestamp,
    expires_at: Option<Timestamp>,
    principal: Result<Arc<Principal>, &'static str>,
}

/// What was looked up a moment ago.
#[derive(Debug)]
pub(crate) struct Keys {
    known: Cache<[u8; 32], Remembered>,
    /// When a key was not found.
    unknown: Cache<[u8; 32], Timestamp>,
    turns: Semaphore,
    misses: Misses,
}

impl Keys {
    pub(crate) fn new() -> Self {
        Self {
            known: Cache::new(REMEMBERED),
            unknown: Cache::builder()
                .max_capacity(REMEMBERED)
                // The engine's clock decides; this gives the memory back.
                .time_to_live(2 * BELIEVED_FOR)
                .build(),
            turns: Semaphore::new(LOOK_UPS_AT_ONCE),
            misses: Misses::default(),
        }
    }
}

/// Look-ups that found nothing, in the second that began last.
#[derive(Debug, Default)]
struct Misses(Mutex<(Timestamp, u32)>);

impl Misses {
    fn are_few(&self, now: Timestamp) -> bool {
        self.count(now, 0) < MISSES_PER_SECOND
    }

    /// Counts some more; answers how many there are.
    fn count(&self, now: Timestamp, more: u32) -> u32 {
        let mut window = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (since, count) = &mut *window;
        if now < *since || now >= since.plus(Duration::from_secs(1)) {
            (*since, *count) = (now, 0);
        }
        *count += more;
        *count
    }
}

impl Engine {
    /// Finds out who presents an API key.
    ///
    /// A mistyped key fails its checksum and costs no look-up; a look-up costs
    /// one query and is believed for some seconds.
    ///
    /// # Errors
    /// [`EngineError::Unauthenticated`], [`EngineError::AuthenticationBusy`],
    /// [`EngineError::Index`].
    #[tracing::instrument(name = "engine.authenticate_key", level = "debug", skip_all)]
    pub async fn authenticate_key(&self, presented: &str) -> Result<Arc<Principal>, EngineError> {
        self.require_touch().await?;
        let secret = ApiKeySecret::parse(presented)
            .map_err(|_| EngineError::Unauthenticated("the API key is malformed"))?;
        let now = self.now();
        let known = self.known_key(secret.sha256(), now).await?;
        if known.expires_at.is_some_and(|expires_at| expires_at <= now) {
            return Err(EngineError::Unauthenticated("the API key has expired"));
        }
        let principal = known.principal.map_err(EngineError::Unauthenticated)?;
        if let Actor::ApiKey(api_key_id) = &principal.actor {
            self.0.key_use.record(principal.tenant_id, *api_key_id, now);
        }
        Ok(principal)
    }

    async fn known_key(&self, secret_sha256: [u8; 32], now: Timestamp) -> Result<Remembered, EngineError> {
        let keys = &self.0.keys;
        let is_fresh = |known: &Remembered| is_believed(known.looked_up_at, now);
        let known = keys.known.get(&secret_sha256).await.filter(is_fresh);
        self.0.metrics.cache_looked_up(Looked::ApiKey, known.is_some());
        if let Some(known) = known {
            return Ok(known);
        }
        // Requests that miss at the same time come here one after the other, and
        // find what the first has looked up.
        let computed = keys
            .known
            .entry(secret_sha256)
            .and_try_compute_with(async |entry| {
                let remembered = entry.map(moka::Entry::into_value);
                if remembered.as_ref().is_some_and(is_fresh) {
                    return Ok(Op::Nop);
                }
                let found = match remembered {
                    Some(_) => self.look_up(&secret_sha256, now).await?,
                    None => self.look_up_unknown(&secret_sha256, now).await?,
                };
                let Some(credential) = found else {
                    return Ok(Op::Remove);
                };
                Ok::<_, EngineError>(Op::Put(Remembered {
                    looked_up_at: now,
                    expires_at: credential.expires_at,
                    principal: self.principal_of_key(credential),
                }))
            })
            .await?;
        match computed {
            CompResult::Inserted(entry) | CompResult::ReplacedWith(entry) | CompResult::Unchanged(entry) => {
                Ok(entry.into_value())
            }
            CompResult::Removed(_) | CompResult::StillNone(_) => Err(EngineError::Unauthenticated(UNKNOWN)),
        }
    }

    /// Looks up a key that may be made up, when it is its turn.
    async fn look_up_unknown(
        &self,
        secret_sha256: &[u8; 32],
        now: Timestamp,
    ) -> Result<Option<Credential>, EngineError> {
        let keys = &self.0.keys;
        let missed_at = keys.unknown.get(secret_sha256).await;
        if missed_at.is_some_and(|missed_at| is_believed(missed_at, now)) {
            return Ok(None);
        }
        if !keys.misses.are_few(now) {
            return Err(BUSY);
        }
        let turn = tokio::time::timeout(TURN_TIMEOUT, keys.turns.acquire()).await;
        let _turn = turn.map_err(|_| BUSY)?.map_err(|_| BUSY)?;
        if !keys.misses.are_few(now) {
            return Err(BUSY);
        }
        let found = self.look_up(secret_sha256, now).await?;
        if found.is_none() {
            keys.misses.count(now, 1);
        }
        Ok(found)
    }

    /// Asks the index, and remembers when it knew nothing: that is believed from
    /// here on, and not from when it was last asked for.
    async fn look_up(
        &self,
        secret_sha256: &[u8; 32],
        now: Timestamp,
    ) -> Result<Option<Credential>, EngineError> {
        let found = self.0.index.credentials.authenticate(secret_sha256).await?;
        if found.is_none() {
            self.0.keys.unknown.insert(*secret_sha256, now).await;
        }
        Ok(found)
    }

    fn principal_of_key(&self, credential: Credential) -> Result<Arc<Principal>, &'static str> {
        if credential.is_revoked {
            return Err("the API key has been revoked");
        }
        match credential.tenant_status {
            TenantStatus::Active => {}
            TenantStatus::Suspended => return Err(super::SUSPENDED),
            TenantStatus::Deleting => return Err(UNKNOWN),
        }
        Ok(Arc::new(Principal {
            tenant_id: credential.tenant_id,
            actor: Actor::ApiKey(credential.api_key_id),
            limits: self.0.limits.with(&credential.limits),
            scopes: credential.scopes,
            store_ids: credential.store_ids,
            expires_at: credential.expires_at,
            session: None,
        }))
    }
}
