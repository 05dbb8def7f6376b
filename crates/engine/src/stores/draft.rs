//! Requests to create and change a store, and the rules for their fields.

use keepsake_core::{
    SearchMode, SensitiveDataPolicy, StoreId, Timestamp, null_as_default, null_or_value, optional_object,
    schemas,
};
use keepsake_index::{Store, StoreChange, check_pairs};
use serde::Deserialize;
use serde_json::{Map, Value};
use utoipa::ToSchema;

use crate::EngineError;
use crate::context::Context;
use crate::request_fields::{check_name, check_text, invalid};

const DESCRIPTION_CHARS: usize = 1024;
const METADATA_KEY_CHARS: usize = 64;
const METADATA_VALUE_CHARS: usize = 512;

/// A hundred years.
pub(crate) const MAX_UNUSED_SECS: u64 = 100 * 365 * 86_400;

/// The body of a create request.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = CreateMemoryStore)]
pub struct StoreDraft {
    /// 1 to 255 characters without control characters.
    #[schema(value_type = schemas::StoreName)]
    pub name: String,
    /// The purpose of the store.
    #[serde(default, deserialize_with = "null_as_default")]
    #[schema(value_type = Option<schemas::Description>)]
    pub description: String,
    /// At most 16 of your own key-value pairs.
    #[serde(default, deserialize_with = "null_as_default")]
    #[schema(value_type = Option<schemas::Metadata>)]
    pub metadata: Map<String, Value>,
    /// Seconds after which an unused memory expires; 0: the store has no expiry
    /// period.
    #[schema(value_type = Option<schemas::Seconds>)]
    pub expires_unused_after: Option<u64>,
    /// How sensitive data in written content is handled.
    #[serde(rename = "sensitive_data_policy")]
    #[schema(value_type = Option<SensitiveDataPolicy>)]
    pub policy: Option<String>,
    /// Whether the server records who was shown which version; `true` if unset.
    pub records_reads: Option<bool>,
    /// How searches find its memories; by default as in `fork_of`, else as the tenant's setting says.
    #[schema(value_type = Option<SearchMode>)]
    pub search_mode: Option<String>,
    /// The store whose memories are copied into the new one.
    #[serde(default, deserialize_with = "optional_object")]
    pub fork_of: Option<StoreFork>,
}

/// A memory store, and the point of its history that is copied.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = ForkedMemoryStore)]
pub struct StoreFork {
    pub memory_store_id: StoreId,
    /// The store after the change with this sequence number; by default, as it is now.
    pub at_seq: Option<u64>,
}

/// The body of an update; omitted fields stay unchanged.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = UpdateMemoryStore)]
pub struct StoreEdit {
    /// 1 to 255 characters without control characters.
    #[schema(value_type = Option<schemas::StoreName>)]
    pub name: Option<String>,
    /// The purpose of the store.
    #[schema(value_type = Option<schemas::Description>)]
    pub description: Option<String>,
    /// Pairs to set; null removes a pair, and omitted pairs stay unchanged.
    #[serde(default, deserialize_with = "null_as_default")]
    #[schema(value_type = Option<schemas::MetadataPatch>)]
    pub metadata: Map<String, Value>,
    /// Seconds after which an unused memory expires; 0: the store has no expiry
    /// period.
    #[schema(value_type = Option<schemas::Seconds>)]
    pub expires_unused_after: Option<u64>,
    /// How sensitive data in written content is handled.
    #[serde(rename = "sensitive_data_policy")]
    #[schema(value_type = Option<SensitiveDataPolicy>)]
    pub policy: Option<String>,
    /// Whether the server records who was shown which version.
    pub records_reads: Option<bool>,
    /// How searches find its memories; null: as the tenant's setting says.
    #[serde(default, deserialize_with = "null_or_value")]
    #[schema(value_type = Option<SearchMode>)]
    pub search_mode: Option<Option<String>>,
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

/// Null removes a pair.
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

fn parse_search_mode(name: &str) -> Result<SearchMode, EngineError> {
    match SearchMode::parse(name) {
        Some(mode) => Ok(mode),
        None => invalid("search_mode", "must be `lexical` or `hybrid`"),
    }
}

/// 0 means never.
fn parse_period(secs: u64) -> Result<Option<u64>, EngineError> {
    if secs > MAX_UNUSED_SECS {
        let rule = format!("must be at most {MAX_UNUSED_SECS} seconds, but is {secs}");
        return invalid("expires_unused_after", rule);
    }
    Ok((secs > 0).then_some(secs))
}

impl StoreDraft {
    pub(super) fn store(self, context: &Context) -> Result<Store, EngineError> {
        self.check()?;
        let policy = self.policy.as_deref().map(parse_policy).transpose()?;
        let now = context.now();
        Ok(Store {
            description: self.description,
            metadata: self.metadata,
            policy: policy.unwrap_or_default(),
            expires_unused_after: parse_period(self.expires_unused_after.unwrap_or_default())?,
            records_reads: self.records_reads.unwrap_or(true),
            search_mode: self.search_mode.as_deref().map(parse_search_mode).transpose()?,
            ..Store::new(StoreId::from_uuid(context.ids.uuid(now)), self.name, now)
        })
    }

    fn check(&self) -> Result<(), EngineError> {
        check_name("name", &self.name)?;
        check_text("description", Some(&self.description), DESCRIPTION_CHARS)?;
        check_metadata("metadata", &self.metadata)
    }
}

impl StoreEdit {
    pub(super) fn check(self, now: Timestamp) -> Result<StoreChange, EngineError> {
        self.name.as_deref().map_or(Ok(()), |name| check_name("name", name))?;
        check_text("description", self.description.as_deref(), DESCRIPTION_CHARS)?;
        let search_mode = |mode: Option<String>| mode.as_deref().map(parse_search_mode).transpose();
        Ok(StoreChange {
            name: self.name,
            description: self.description,
            metadata: metadata_patch(self.metadata)?,
            policy: self.policy.as_deref().map(parse_policy).transpose()?,
            expires_unused_after: self.expires_unused_after.map(parse_period).transpose()?,
            records_reads: self.records_reads,
            search_mode: self.search_mode.map(search_mode).transpose()?,
            now,
        })
    }
}
