//! The pure domain model of Keepsake: memories and the rules for them.
//!
//! Ids, memory paths, content and its hash, cursors, limits, the text semantics of
//! the memory tool, and the sensitive-data scanner. Nothing here does I/O, waits,
//! or reads a clock: the engine passes in time and randomness, so a test of a
//! function needs only its arguments.

pub mod actor;
pub mod api_key;
pub mod blob_key;
mod breaker;
mod causes;
pub mod content;
#[cfg(test)]
mod cpu_time;
pub mod cursor;
mod hosts;
pub mod id;
mod json_object;
pub mod json_text;
mod json_tokens;
pub mod limits;
mod meaning;
mod mended_json;
mod named;
pub mod path;
pub mod policy;
mod precondition;
mod purpose;
mod refused;
pub mod schemas;
mod search_mode;
pub mod sensitive;
pub mod slug;
mod surface;
pub mod test_file;
pub mod time;
pub mod tool;
pub mod words;

pub use actor::Actor;
pub use blob_key::{BlobKey, ObjectVersions};
pub use breaker::{Breaker, BreakerChange, PendingCall};
pub use causes::causes;
pub use content::{Content, ContentError, ContentHash};
pub use hosts::is_this_machine;
pub use id::{
    ApiKeyId, AuditEntryId, ErasureId, EventId, Id, IdKind, MemoryId, MemoryUndoId, ResourceId, SessionId,
    StoreId, TenantId, VersionId,
};
pub use json_object::{JsonObject, null_as_default, null_or_value, objects, optional_object};
pub use json_text::{JsonText, duplicate_field};
pub use json_tokens::{JsonToken, json_tokens};
pub use limits::Limits;
pub use meaning::MeaningReason;
pub use mended_json::{BYTE_ORDER_MARK, MendedJson, NOT_UNICODE};
pub use path::{DirPath, Echo, MemoryPath, PathError, nfc};
pub use policy::SensitiveDataPolicy;
pub use precondition::{CreatePrecondition, Precondition};
pub use purpose::Purpose;
pub use refused::{ObjectKind, OverLimit, Quota, Refused};
pub use search_mode::SearchMode;
pub use surface::Surface;
pub use test_file::{TestFile, TestFileError};
pub use time::Timestamp;
