//! Memory stores.

use keepsake_core::{StoreId, TenantId};
use keepsake_index::{NewStore, Scope, Store, StoreCreation};
use serde_json::{Map, Value};

use crate::{Engine, EngineError, Principal};

/// Characters of a store's name, at most.
const NAME_CHARS: usize = 255;
/// Characters of a description, at most.
const DESCRIPTION_CHARS: usize = 1024;
/// Pairs of metadata, at most.
const METADATA_PAIRS: usize = 16;
/// Characters of a metadata key, at most.
const METADATA_KEY_CHARS: usize = 64;
/// Characters of a metadata value, at most.
const METADATA_VALUE_CHARS: usize = 512;

/// A store as its maker describes it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StoreDraft {
    /// 1 to 255 characters, none of them a control character.
    pub name: String,
    /// At most 1,024 characters.
    pub description: String,
    /// At most 16 pairs of strings.
    pub metadata: Map<String, Value>,
}

impl StoreDraft {
    fn check(&self) -> Result<(), EngineError> {
        let invalid = |field, rule: String| Err(EngineError::Invalid { field, rule });
        let name_chars = self.name.chars().count();
        if name_chars == 0 || name_chars > NAME_CHARS {
            return invalid(
                "name",
                format!("must be 1 to {NAME_CHARS} characters, but is {name_chars}"),
            );
        }
        if self.name.chars().any(char::is_control) {
            return invalid("name", "must not contain control characters".to_owned());
        }
        let description_chars = self.description.chars().count();
        if description_chars > DESCRIPTION_CHARS {
            let rule = format!("must be at most {DESCRIPTION_CHARS} characters, but is {description_chars}");
            return invalid("description", rule);
        }
        if self.description.contains('\0') {
            return invalid("description", "must not contain NUL".to_owned());
        }
        if self.metadata.len() > METADATA_PAIRS {
            let rule = format!(
                "must have at most {METADATA_PAIRS} pairs, but has {}",
                self.metadata.len()
            );
            return invalid("metadata", rule);
        }
        for (key, value) in &self.metadata {
            if !(1..=METADATA_KEY_CHARS).contains(&key.chars().count()) || key.contains('\0') {
                let rule = format!("must have keys of 1 to {METADATA_KEY_CHARS} characters without NUL");
                return invalid("metadata", rule);
            }
            let fits = |text: &str| text.chars().count() <= METADATA_VALUE_CHARS && !text.contains('\0');
            if !value.as_str().is_some_and(fits) {
                let rule =
                    format!("must have strings of at most {METADATA_VALUE_CHARS} characters as values");
                return invalid("metadata", rule);
            }
        }
        Ok(())
    }
}

impl Engine {
    /// Makes a store.
    ///
    /// # Errors
    /// [`EngineError::PermissionDenied`] (also where the credential is bound
    /// to a list of stores), [`EngineError::Invalid`],
    /// [`EngineError::TooManyStores`], [`EngineError::Index`].
    pub async fn create_store(&self, principal: &Principal, draft: StoreDraft) -> Result<Store, EngineError> {
        principal.require(Scope::StoresAdmin)?;
        if principal.is_bound_to_stores() {
            return Err(EngineError::PermissionDenied(Scope::StoresAdmin));
        }
        let (engine, tenant_id) = (self.clone(), principal.tenant_id);
        let limit = principal.limits.stores_per_tenant;
        self.run_to_end(async move { engine.make_store(tenant_id, draft, limit).await })
            .await
    }

    pub(crate) async fn make_store(
        &self,
        tenant_id: TenantId,
        draft: StoreDraft,
        limit: u64,
    ) -> Result<Store, EngineError> {
        draft.check()?;
        let now = self.now();
        let store = NewStore {
            store_id: StoreId::from_uuid(self.0.ids.uuid(now)),
            name: draft.name,
            description: draft.description,
            metadata: draft.metadata,
            created_at: now,
        };
        match self.0.index.create_store(tenant_id, &store, limit).await? {
            StoreCreation::Created => {}
            StoreCreation::TooMany { count } => return Err(EngineError::TooManyStores { count, limit }),
            StoreCreation::NoTenant => return Err(EngineError::TenantNotFound),
        }
        self.0
            .index
            .store(tenant_id, store.store_id)
            .await?
            .ok_or(EngineError::StoreNotFound)
    }

    /// Finds a store.
    ///
    /// # Errors
    /// [`EngineError::PermissionDenied`], [`EngineError::StoreNotFound`],
    /// [`EngineError::Index`].
    pub async fn store(&self, principal: &Principal, store_id: StoreId) -> Result<Store, EngineError> {
        principal.require(Scope::MemoryRead)?;
        principal.require_store(store_id)?;
        self.0
            .index
            .store(principal.tenant_id, store_id)
            .await?
            .ok_or(EngineError::StoreNotFound)
    }
}
