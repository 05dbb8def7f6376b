//! The domain of Keepsake, pure: what a memory is and what may be done to it.
//!
//! Ids, memory paths, content and its hash, cursors, limits, the text semantics
//! of the memory tool, and the sensitive-data scanner. Nothing here does I/O,
//! waits, or reads a clock: time and randomness are handed in by the engine, so
//! every function can be tested by its arguments alone.

pub mod actor;
pub mod api_key;
pub mod blob_key;
pub mod content;
pub mod cursor;
pub mod id;
pub mod json_text;
pub mod limits;
pub mod path;
pub mod policy;
pub mod sensitive;
pub mod slug;
pub mod time;
pub mod tool;

pub use actor::Actor;
pub use blob_key::BlobKey;
pub use content::{Content, ContentError, ContentHash};
pub use id::{
    ApiKeyId, AuditEntryId, ErasureId, EventId, Id, IdKind, MemoryId, ResourceId, SessionId, StoreId,
    TenantId, VersionId,
};
pub use json_text::JsonText;
pub use limits::Limits;
pub use path::{DirPath, MemoryPath, PathError};
pub use policy::SensitiveDataPolicy;
pub use time::Timestamp;
