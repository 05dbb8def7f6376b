//! Memory stores.

use std::sync::Arc;

use keepsake_core::{SensitiveDataPolicy, StoreId, TenantId, Timestamp};
use keepsake_index::{
    Idempotency, NewStore, Scope, Store, StoreChange, StoreCreation, StoreListing, StoreUpdate,
};
use keepsake_telemetry::Quota;
use serde_json::{Map, Value};

use crate::cursor::Query;
use crate::{Engine, EngineError, Page, PageRequest, Principal};

/// Maximum number of characters of a store's name.
const NAME_CHARS: usize = 255;
/// Maximum number of characters of a description.
const DESCRIPTION_CHARS: usize = 1024;
/// Maximum number of metadata pairs.
pub(crate) const METADATA_PAIRS: usize = 16;
/// Maximum number of characters of a metadata key.
const METADATA_KEY_CHARS: usize = 64;
/// Maximum number of characters of a metadata value.
const METADATA_VALUE_CHARS: usize = 512;

/// Maximum number of seconds of an expiry period: a hundred years.
pub(crate) const MAX_UNUSED_SECS: u64 = 100 * 365 * 86_400;

/// A store as the client requests it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StoreDraft {
    /// 1 to 255 characters, none of them a control character.
    pub name: String,
    /// At most 1,024 characters.
    pub description: String,
    /// At most 16 pairs of strings.
    pub metadata: Map<String, Value>,
    /// `off`, `redact` or `reject`; `off` if unset.
    pub policy: Option<String>,
    /// Seconds after which an unread memory expires; never if unset or 0.
    pub expires_unused_after: Option<u64>,
}

/// The changes of a store; `None` leaves a field unchanged.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StoreEdit {
    /// 1 to 255 characters, none of them a control character.
    pub name: Option<String>,
    /// At most 1,024 characters.
    pub description: Option<String>,
    /// Pairs to set; null removes a pair.
    pub metadata: Map<String, Value>,
    /// `off`, `redact` or `reject`.
    pub policy: Option<String>,
    /// Seconds after which an unread memory expires; 0: never.
    pub expires_unused_after: Option<u64>,
}

/// Filters of a store listing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StoreQuery {
    /// Created at or after this time.
    pub created_from: Option<Timestamp>,
    /// Created at or before this time.
    pub created_to: Option<Timestamp>,
    /// Whether archived stores are included.
    pub include_archived: bool,
    /// The page to return.
    pub page: PageRequest,
}

pub(crate) fn invalid<T>(field: &'static str, rule: impl Into<String>) -> Result<T, EngineError> {
    Err(EngineError::Invalid {
        field,
        rule: rule.into(),
    })
}

fn check_name(name: &str) -> Result<(), EngineError> {
    let chars = name.chars().count();
    if chars == 0 || chars > NAME_CHARS {
        return invalid(
            "name",
            format!("must be 1 to {NAME_CHARS} characters, but is {chars}"),
        );
    }
    if name.chars().any(char::is_control) {
        return invalid("name", "must not contain control characters");
    }
    Ok(())
}

fn check_description(description: &str) -> Result<(), EngineError> {
    let chars = description.chars().count();
    if chars > DESCRIPTION_CHARS {
        let rule = format!("must be at most {DESCRIPTION_CHARS} characters, but is {chars}");
        return invalid("description", rule);
    }
    if description.contains('\0') {
        return invalid("description", "must not contain NUL");
    }
    Ok(())
}

pub(crate) fn check_pairs(field: &'static str, count: usize) -> Result<(), EngineError> {
    if count > METADATA_PAIRS {
        return invalid(
            field,
            format!("must have at most {METADATA_PAIRS} pairs, but has {count}"),
        );
    }
    Ok(())
}

fn check_pair(field: &'static str, key: &str, value: &str) -> Result<(), EngineError> {
    if !(1..=METADATA_KEY_CHARS).contains(&key.chars().count()) || key.contains('\0') {
        let rule = format!("must have keys of 1 to {METADATA_KEY_CHARS} characters without NUL");
        return invalid(field, rule);
    }
    if value.chars().count() > METADATA_VALUE_CHARS || value.contains('\0') {
        let rule = format!("must have values of at most {METADATA_VALUE_CHARS} characters without NUL");
        return invalid(field, rule);
    }
    Ok(())
}

/// Validates the metadata of a store.
pub(crate) fn check_metadata(field: &'static str, metadata: &Map<String, Value>) -> Result<(), EngineError> {
    check_pairs(field, metadata.len())?;
    for (key, value) in metadata {
        let Some(value) = value.as_str() else {
            return invalid(field, "must have strings as values");
        };
        check_pair(field, key, value)?;
    }
    Ok(())
}

/// Parses metadata pairs to set; null removes a pair.
pub(crate) fn metadata_patch(
    metadata: Map<String, Value>,
) -> Result<Vec<(String, Option<String>)>, EngineError> {
    let mut patch = Vec::with_capacity(metadata.len());
    for (key, value) in metadata {
        match value {
            Value::Null => patch.push((key, None)),
            Value::String(value) => {
                check_pair("metadata", &key, &value)?;
                patch.push((key, Some(value)));
            }
            _ => return invalid("metadata", "must have strings or null as values"),
        }
    }
    Ok(patch)
}

fn parse_policy(name: &str) -> Result<SensitiveDataPolicy, EngineError> {
    match SensitiveDataPolicy::parse(name) {
        Some(policy) => Ok(policy),
        None => invalid("sensitive_data_policy", "must be `off`, `redact` or `reject`"),
    }
}

/// Converts an expiry period for the index; 0 means never.
fn parse_period(secs: u64) -> Result<Option<u64>, EngineError> {
    if secs > MAX_UNUSED_SECS {
        let rule = format!("must be at most {MAX_UNUSED_SECS} seconds, but is {secs}");
        return invalid("expires_unused_after", rule);
    }
    Ok((secs > 0).then_some(secs))
}

impl StoreDraft {
    fn check(&self) -> Result<(), EngineError> {
        check_name(&self.name)?;
        check_description(&self.description)?;
        check_metadata("metadata", &self.metadata)
    }
}

impl StoreEdit {
    fn check(self, now: Timestamp) -> Result<StoreChange, EngineError> {
        self.name.as_deref().map_or(Ok(()), check_name)?;
        self.description.as_deref().map_or(Ok(()), check_description)?;
        Ok(StoreChange {
            name: self.name,
            description: self.description,
            metadata: metadata_patch(self.metadata)?,
            metadata_pairs_limit: METADATA_PAIRS,
            policy: self.policy.as_deref().map(parse_policy).transpose()?,
            expires_unused_after: self.expires_unused_after.map(parse_period).transpose()?,
            now,
        })
    }
}

impl Engine {
    /// Creates a store.
    ///
    /// # Errors
    /// [`EngineError::PermissionDenied`] (also when the credential is bound to
    /// a list of stores), [`EngineError::Invalid`],
    /// [`EngineError::TooManyStores`], [`EngineError::KeyReused`],
    /// [`EngineError::Index`].
    #[tracing::instrument(name = "engine.create_store", level = "debug", skip_all)]
    pub async fn create_store(
        &self,
        principal: &Principal,
        draft: StoreDraft,
        idempotency: Option<Idempotency>,
    ) -> Result<Store, EngineError> {
        principal.require(Scope::StoresAdmin)?;
        if principal.is_bound_to_stores() {
            return Err(EngineError::PermissionDenied(Scope::StoresAdmin));
        }
        let (engine, tenant_id) = (self.clone(), principal.tenant_id);
        let limit = principal.limits.stores_per_tenant;
        let audited = self.audited_by(principal);
        self.run_to_end(async move {
            let store = engine.new_store(draft)?;
            let made = engine
                .0
                .index
                .stores
                .create(tenant_id, &store, limit, idempotency.as_ref(), &audited)
                .await?;
            let made = engine.made_store(tenant_id, &store, limit, made).await;
            // The tenant was deleted after the credential was checked.
            made.map_err(|error| match error {
                EngineError::TenantNotFound => EngineError::Unauthenticated("the API key is unknown"),
                other => other,
            })
        })
        .await
    }

    pub(crate) fn new_store(&self, draft: StoreDraft) -> Result<NewStore, EngineError> {
        draft.check()?;
        let policy = draft.policy.as_deref().map(parse_policy).transpose()?;
        let now = self.now();
        Ok(NewStore {
            store_id: StoreId::from_uuid(self.0.ids.uuid(now)),
            name: draft.name,
            description: draft.description,
            metadata: draft.metadata,
            policy: policy.unwrap_or_default(),
            expires_unused_after: parse_period(draft.expires_unused_after.unwrap_or_default())?,
            created_at: now,
        })
    }

    /// The store that this call created, or an earlier identical call.
    pub(crate) async fn made_store(
        &self,
        tenant_id: TenantId,
        store: &NewStore,
        limit: u64,
        made: StoreCreation,
    ) -> Result<Store, EngineError> {
        let store_id = match made {
            StoreCreation::Created => store.store_id,
            StoreCreation::Replayed { store_id } => store_id,
            StoreCreation::KeyReused => return Err(EngineError::KeyReused),
            StoreCreation::TooMany { count } => {
                self.0.metrics.quota_refused(Quota::StoresPerTenant);
                return Err(EngineError::TooManyStores { count, limit });
            }
            StoreCreation::OverQuota(refusal) => return Err(self.over_quota(refusal)),
            StoreCreation::NoTenant => return Err(EngineError::TenantNotFound),
        };
        self.find_store(tenant_id, store_id).await
    }

    /// Finds a store.
    ///
    /// # Errors
    /// [`EngineError::PermissionDenied`], [`EngineError::StoreNotFound`],
    /// [`EngineError::Index`].
    #[tracing::instrument(name = "engine.store", level = "debug", skip_all)]
    pub async fn store(&self, principal: &Principal, store_id: StoreId) -> Result<Store, EngineError> {
        principal.require(Scope::MemoryRead)?;
        principal.require_store(store_id)?;
        principal.require_no_session()?;
        self.find_store(principal.tenant_id, store_id).await
    }

    pub(crate) async fn find_store(
        &self,
        tenant_id: TenantId,
        store_id: StoreId,
    ) -> Result<Store, EngineError> {
        let found = self.0.index.stores.find(tenant_id, store_id).await?;
        found.ok_or(EngineError::StoreNotFound)
    }

    /// Lists the stores that the credential may see, newest first.
    ///
    /// # Errors
    /// [`EngineError::PermissionDenied`], [`EngineError::Invalid`],
    /// [`EngineError::Index`].
    #[tracing::instrument(name = "engine.stores", level = "debug", skip_all)]
    pub async fn stores(
        &self,
        principal: &Principal,
        query: &StoreQuery,
    ) -> Result<Page<Store>, EngineError> {
        principal.require(Scope::MemoryRead)?;
        principal.require_no_session()?;
        let limit = query.page.limit(false)?;
        let time = |time: Option<Timestamp>| time.map_or(String::new(), |time| time.as_micros().to_string());
        let identity = Query::of(&[
            b"stores",
            principal.tenant_id.uuid().as_bytes(),
            time(query.created_from).as_bytes(),
            time(query.created_to).as_bytes(),
            &[u8::from(query.include_archived)],
        ]);
        let after = match &query.page.page {
            Some(page) => Some(position_of(&self.unseal(identity, page).await?)?),
            None => None,
        };
        let listing = StoreListing {
            created_from: query.created_from,
            created_to: query.created_to,
            include_archived: query.include_archived,
            only: principal.store_ids().map(<[StoreId]>::to_vec),
            after,
            // One more item shows whether there is another page.
            limit: limit + 1,
        };
        let mut items = self.0.index.stores.list(principal.tenant_id, &listing).await?;
        let has_more = items.len() > limit as usize;
        items.truncate(limit as usize);
        let next = match items.last() {
            Some(last) if has_more => Some(self.seal(identity, &position(last)).await?),
            _ => None,
        };
        Ok(Page { items, next })
    }

    /// Changes a store's name, description, metadata and settings.
    ///
    /// The sensitive-data policy, the expiry period and the metadata also need
    /// the scope `stores:admin`; erasures select stores by metadata. The answer
    /// shows the store, so a credential without that scope needs `memory:read`.
    ///
    /// # Errors
    /// [`EngineError::PermissionDenied`], [`EngineError::Invalid`],
    /// [`EngineError::StoreArchived`], [`EngineError::StoreNotFound`],
    /// [`EngineError::KeyReused`], [`EngineError::Index`].
    #[tracing::instrument(name = "engine.update_store", level = "debug", skip_all)]
    pub async fn update_store(
        &self,
        principal: &Arc<Principal>,
        store_id: StoreId,
        edit: StoreEdit,
        idempotency: Option<Idempotency>,
    ) -> Result<Store, EngineError> {
        principal.require(Scope::MemoryWrite)?;
        if edit.policy.is_some() || edit.expires_unused_after.is_some() || !edit.metadata.is_empty() {
            principal.require(Scope::StoresAdmin)?;
        }
        if principal.require(Scope::StoresAdmin).is_err() {
            principal.require(Scope::MemoryRead)?;
        }
        principal.require_store(store_id)?;
        principal.require_no_session()?;
        let audited = self.audited_by(principal);
        let change = edit.check(audited.at)?;
        let (engine, tenant_id) = (self.clone(), principal.tenant_id);
        self.run_to_end(async move {
            let index = &engine.0.index;
            match index
                .stores
                .update(tenant_id, store_id, &change, idempotency.as_ref(), &audited)
                .await?
            {
                StoreUpdate::Done(store) | StoreUpdate::Replayed(store) => Ok(store),
                StoreUpdate::KeyReused => Err(EngineError::KeyReused),
                StoreUpdate::TooManyPairs { count } => {
                    check_pairs("metadata", count)?;
                    Err(EngineError::Internal("too many pairs were too few"))
                }
                StoreUpdate::OverQuota(refusal) => Err(engine.over_quota(refusal)),
                StoreUpdate::Archived => Err(EngineError::StoreArchived),
                StoreUpdate::NoStore => Err(EngineError::StoreNotFound),
            }
        })
        .await
    }

    /// Archives a store: it accepts no new content. This cannot be undone.
    ///
    /// Idempotent.
    ///
    /// # Errors
    /// [`EngineError::PermissionDenied`], [`EngineError::StoreNotFound`],
    /// [`EngineError::Index`].
    #[tracing::instrument(name = "engine.archive_store", level = "debug", skip_all)]
    pub async fn archive_store(
        &self,
        principal: &Arc<Principal>,
        store_id: StoreId,
    ) -> Result<Store, EngineError> {
        principal.require(Scope::StoresAdmin)?;
        principal.require_store(store_id)?;
        let (engine, tenant_id) = (self.clone(), principal.tenant_id);
        let audited = self.audited_by(principal);
        self.run_to_end(async move {
            let archived = engine
                .0
                .index
                .stores
                .archive(tenant_id, store_id, &audited)
                .await?;
            archived.ok_or(EngineError::StoreNotFound)
        })
        .await
    }
}

/// The position of a store in a listing, as a cursor contains it.
fn position(store: &Store) -> Vec<u8> {
    let created_at = store.created_at.as_micros().to_be_bytes();
    [created_at.as_slice(), store.store_id.uuid().as_bytes()].concat()
}

fn position_of(position: &[u8]) -> Result<(Timestamp, StoreId), EngineError> {
    let parts = position.split_at_checked(8).and_then(|(created_at, id)| {
        let created_at = i64::from_be_bytes(created_at.try_into().ok()?);
        let store_id = uuid::Uuid::from_slice(id).ok()?;
        Some((Timestamp::from_micros(created_at), StoreId::from_uuid(store_id)))
    });
    parts.ok_or(EngineError::Internal("a cursor of no store"))
}
