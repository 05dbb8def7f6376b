//! Requests of several operations.

use std::collections::HashMap;
use std::fmt::Display;
use std::str::FromStr;
use std::sync::Arc;

use keepsake_core::{
    ContentHash, JsonObject, MemoryId, MemoryPath, Timestamp, duplicate_field, optional_object, schemas,
};
use keepsake_index::{ExpiresAt, ExpiryChange, Idempotency, PathGuard};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;
use utoipa::ToSchema;

use super::{Creation, Operation, SentFields, Update, together};
use crate::memories::requests::{OnExistingMemory, parse_content, parse_update};
use crate::memories::{CreatePrecondition, Precondition};
use crate::request_fields::parse_path;
use crate::{EngineError, Principal};

pub const MAX_OPERATIONS: usize = 500;

/// The body of a batch.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = Batch)]
pub struct MemoryBatch {
    /// Whether one refused operation refuses all; true by default.
    #[serde(default = "yes", rename = "atomic")]
    #[schema(default = true)]
    pub is_atomic: bool,
    /// The operations, at most one for each memory and path.
    // Each operation is parsed separately: unless the batch is atomic, a malformed operation does
    // not refuse the others.
    #[serde(deserialize_with = "operations")]
    #[schema(value_type = Vec<MemoryOperation>, min_items = 1, max_items = 500)]
    pub operations: Vec<MemoryOperation>,
    #[serde(skip)]
    pub idempotency: Option<Idempotency>,
    /// The tests of the store that were made already, for all batches of an import.
    #[serde(skip)]
    pub tested: Option<PathGuard>,
}

/// One operation of a batch.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, ToSchema)]
// The schema `Operation` is that of a version's operation.
#[schema(as = BatchOperation)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
pub enum MemoryOperation {
    /// Creates a memory; a taken path is refused.
    Create {
        /// The path of the memory.
        #[schema(value_type = MemoryPath)]
        path: String,
        /// The content; may be empty.
        #[schema(value_type = schemas::Content)]
        content: String,
        /// Whether the memory never expires.
        pinned: Option<bool>,
        /// When the memory expires, even if it is used; never by default.
        #[serde(default, deserialize_with = "optional_expiry")]
        #[schema(value_type = Option<schemas::ExpiresAt>)]
        expires_at: Option<ExpiresAt>,
        /// The condition for the creation.
        #[serde(default, deserialize_with = "optional_object")]
        precondition: Option<CreatePrecondition>,
    },
    /// Creates a memory, or replaces the content of the memory at the path.
    Upsert {
        /// The path of the memory.
        #[schema(value_type = MemoryPath)]
        path: String,
        /// The content; may be empty.
        #[schema(value_type = schemas::Content)]
        content: String,
        /// Whether the memory never expires; unchanged by default.
        pinned: Option<bool>,
        /// When the memory expires, even if it is used; unchanged by default.
        #[serde(default, deserialize_with = "optional_expiry")]
        #[schema(value_type = Option<schemas::ExpiresAt>)]
        expires_at: Option<ExpiresAt>,
        /// The condition for the change.
        #[serde(default, deserialize_with = "optional_object")]
        precondition: Option<Precondition>,
    },
    /// Changes a memory; omitted fields stay unchanged.
    Update {
        /// The memory.
        #[serde(deserialize_with = "memory_id")]
        memory_id: MemoryId,
        /// The new content.
        #[schema(value_type = Option<schemas::Content>)]
        content: Option<String>,
        /// The new path.
        #[schema(value_type = Option<MemoryPath>)]
        path: Option<String>,
        /// Whether the memory never expires.
        pinned: Option<bool>,
        /// When the memory expires, even if it is used.
        #[serde(default, deserialize_with = "optional_expiry")]
        #[schema(value_type = Option<schemas::ExpiresAt>)]
        expires_at: Option<ExpiresAt>,
        /// The condition for the change.
        #[serde(default, deserialize_with = "optional_object")]
        precondition: Option<Precondition>,
    },
    /// Deletes a memory.
    Delete {
        /// The memory.
        #[serde(deserialize_with = "memory_id")]
        memory_id: MemoryId,
        /// Delete the memory only if its content has this hash.
        #[serde(default, deserialize_with = "optional_hash")]
        expected_content_sha256: Option<ContentHash>,
    },
    /// An operation that cannot be parsed, and is refused.
    #[serde(skip)]
    Malformed {
        /// A phrase that follows `operations`.
        rule: String,
    },
}

const fn yes() -> bool {
    true
}

/// The texts of a batch are parsed here, so that an error names the field.
fn parsed<'de, D, T>(deserializer: D, field: &str) -> Result<Option<T>, D::Error>
where
    D: Deserializer<'de>,
    T: FromStr<Err: Display>,
{
    let text = Option::<String>::deserialize(deserializer)?;
    let parsed = text.map(|text| text.parse()).transpose();
    parsed.map_err(|rule| D::Error::custom(format!("`{field}` {rule}")))
}

fn memory_id<'de, D: Deserializer<'de>>(deserializer: D) -> Result<MemoryId, D::Error> {
    let text = String::deserialize(deserializer)?;
    text.parse().map_err(|rule| D::Error::custom(format!("`memory_id` {rule}")))
}

fn optional_expiry<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<ExpiresAt>, D::Error> {
    parsed(deserializer, "expires_at")
}

fn optional_hash<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<ContentHash>, D::Error> {
    parsed(deserializer, "expected_content_sha256")
}

fn operations<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<MemoryOperation>, D::Error> {
    let texts = Vec::<Box<RawValue>>::deserialize(deserializer)?;
    Ok(texts.into_iter().enumerate().map(operation_of).collect())
}

fn operation_of((index, text): (usize, Box<RawValue>)) -> MemoryOperation {
    let malformed = |why: &str| MemoryOperation::Malformed { rule: format!("{index} is malformed: {why}") };
    if let Some(field) = duplicate_field(text.get().as_bytes()) {
        return malformed(&format!("duplicate field `{field}`"));
    }
    match serde_json::from_str::<JsonObject<MemoryOperation>>(text.get()) {
        Ok(JsonObject(operation)) => operation,
        Err(error) => {
            // This position counts from the operation, not from the body.
            let position = format!(" at line {} column {}", error.line(), error.column());
            let why = error.to_string();
            malformed(why.strip_suffix(&position).unwrap_or(&why))
        }
    }
}

/// A checked operation, or the refusal that holds whatever the store contains.
pub(super) struct ParsedOperation {
    pub(super) operation: Result<Operation, Arc<EngineError>>,
    pub(super) sent: SentFields,
    /// The memory that the request names.
    pub(super) memory_id: Option<MemoryId>,
}

pub(super) fn parse(
    principal: &Principal,
    operations: Vec<MemoryOperation>,
    now: Timestamp,
) -> Result<Vec<ParsedOperation>, EngineError> {
    if !(1..=MAX_OPERATIONS).contains(&operations.len()) {
        return Err(EngineError::invalid("operations", format!("must be 1 to {MAX_OPERATIONS} operations")));
    }
    let parsed = operations.into_iter().map(|operation| {
        let memory_id = match &operation {
            MemoryOperation::Update { memory_id, .. } | MemoryOperation::Delete { memory_id, .. } => {
                Some(*memory_id)
            }
            MemoryOperation::Create { .. }
            | MemoryOperation::Upsert { .. }
            | MemoryOperation::Malformed { .. } => None,
        };
        let parsed = parse_one(principal, operation, now).map_err(Arc::new);
        ParsedOperation {
            sent: parsed.as_ref().map(sent_by).unwrap_or_default(),
            operation: parsed,
            memory_id,
        }
    });
    Ok(parsed.collect())
}

fn parse_one(
    principal: &Principal,
    operation: MemoryOperation,
    now: Timestamp,
) -> Result<Operation, EngineError> {
    let put = |path: String, content, is_pinned, expires_at, (on_taken, expected)| {
        Ok(Operation::Put(Creation {
            path: parse_path(&path)?,
            content: parse_content(principal, content)?,
            expiry: ExpiryChange { is_pinned, expires_at },
            on_taken,
            expected,
            now,
        }))
    };
    Ok(match operation {
        MemoryOperation::Create { path, content, pinned, expires_at, precondition } => {
            let on_taken = match precondition {
                Some(CreatePrecondition::NotExists {}) => OnExistingMemory::RefuseAsPrecondition,
                None => OnExistingMemory::Refuse,
            };
            return put(path, content, pinned, expires_at, (on_taken, None));
        }
        MemoryOperation::Upsert { path, content, pinned, expires_at, precondition } => {
            let on_taken = match precondition {
                Some(Precondition::NotExists) => (OnExistingMemory::RefuseAsPrecondition, None),
                Some(Precondition::ContentSha256(hash)) => (OnExistingMemory::Replace, Some(hash)),
                None => (OnExistingMemory::Replace, None),
            };
            return put(path, content, pinned, expires_at, on_taken);
        }
        MemoryOperation::Update { memory_id, content, path, pinned, expires_at, precondition } => {
            let (path, expiry) = (path.as_deref(), ExpiryChange { is_pinned: pinned, expires_at });
            let update = parse_update(principal, memory_id, content, path, expiry, precondition, now)?;
            Operation::Update(update)
        }
        MemoryOperation::Delete { memory_id, expected_content_sha256 } => {
            Operation::Update(Update::deletion(memory_id, expected_content_sha256))
        }
        MemoryOperation::Malformed { rule } => {
            return Err(EngineError::Invalid { field: "operations", rule });
        }
    })
}

fn sent_by(operation: &Operation) -> SentFields {
    match operation {
        Operation::Put(creation) => SentFields::by_creation(creation),
        Operation::Update(update) => SentFields::by_update(update),
    }
}

/// Refuses two operations that name one memory, one path, or a path and one below it.
pub(super) fn require_apart(operations: &[ParsedOperation]) -> Result<(), EngineError> {
    let (mut by_id, mut by_path) = (HashMap::new(), HashMap::new());
    for (position, operation) in operations.iter().enumerate() {
        let earlier = operation.memory_id.and_then(|id| by_id.insert(id, position));
        if let Some(earlier) = earlier {
            return Err(together(earlier, position, "are about the same memory"));
        }
        let path = operation.sent.path.as_ref();
        let earlier = path.and_then(|path| by_path.insert(path.as_str(), position));
        if let Some(earlier) = earlier {
            return Err(together(earlier, position, "are about the same path"));
        }
    }
    for (position, operation) in operations.iter().enumerate() {
        let mut above = operation.sent.path.iter().flat_map(MemoryPath::ancestor_files);
        if let Some(file) = above.find_map(|file| by_path.get(file)) {
            let (one, other) = ((*file).min(position), (*file).max(position));
            let why = "need one path as a memory and as a directory";
            return Err(together(one, other, why));
        }
    }
    Ok(())
}
