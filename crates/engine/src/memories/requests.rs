//! Requests to read and change memories, and the checks of their fields.

use keepsake_core::{Content, DirPath, MemoryId, MemoryPath, StoreId, Timestamp, optional_object, schemas};
use keepsake_index::{Depth, ExpiresAt, ExpiresAtError, ExpiryChange, Idempotency, Scope};
use serde::Deserialize;
use utoipa::ToSchema;

use super::decisions::Update;
use super::{CreatePrecondition, Precondition, View};
use crate::request_fields::{parse_path, parse_prefix};
use crate::{EngineError, PageRequest, Principal};

/// The year 9999. Later times cannot be shown in every offset.
const LATEST: Timestamp = Timestamp::from_micros(253_370_764_800_000_000);

/// The body of a create request.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = CreateMemory)]
pub struct NewMemory {
    /// The path of the memory.
    #[schema(value_type = MemoryPath)]
    pub path: String,
    /// The content; may be empty.
    #[schema(value_type = schemas::Content)]
    pub content: String,
    /// Whether the memory never expires.
    // Omitted: not pinned, or as the replaced memory.
    pub pinned: Option<bool>,
    /// When the memory expires, even if it is used; never by default.
    // Omitted: no expiry time, or that of the replaced memory.
    #[schema(value_type = Option<schemas::ExpiresAt>)]
    pub expires_at: Option<String>,
    /// The condition for the creation.
    #[serde(default, deserialize_with = "optional_object")]
    pub precondition: Option<CreatePrecondition>,
    /// Without a precondition: whether to replace the content of an existing memory.
    #[serde(skip)]
    pub replaces: bool,
    #[serde(skip)]
    pub view: View,
    #[serde(skip)]
    pub idempotency: Option<Idempotency>,
}

impl NewMemory {
    pub(super) const fn on_taken(&self) -> OnExistingMemory {
        match self.precondition {
            Some(CreatePrecondition::NotExists {}) => OnExistingMemory::RefuseAsPrecondition,
            None if self.replaces => OnExistingMemory::Replace,
            None => OnExistingMemory::Refuse,
        }
    }
}

/// The reaction to an existing memory at the path of a new memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OnExistingMemory {
    /// Fail with a conflict that names the existing memory.
    Refuse,
    /// Fail with a failed precondition.
    RefuseAsPrecondition,
    /// Replace the content of the existing memory.
    Replace,
}

/// The body of an update; omitted fields stay unchanged.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = UpdateMemory)]
pub struct MemoryEdit {
    /// The new content.
    #[schema(value_type = Option<schemas::Content>)]
    pub content: Option<String>,
    /// The new path.
    #[schema(value_type = Option<MemoryPath>)]
    pub path: Option<String>,
    /// Whether the memory never expires. A change of only this field creates
    /// no version.
    pub pinned: Option<bool>,
    /// When the memory expires, even if it is used. A change of only this field
    /// creates no version.
    #[schema(value_type = Option<schemas::ExpiresAt>)]
    pub expires_at: Option<String>,
    /// The condition for the change.
    #[serde(default, deserialize_with = "optional_object")]
    pub precondition: Option<Precondition>,
    #[serde(skip)]
    pub view: View,
    #[serde(skip)]
    pub idempotency: Option<Idempotency>,
}

/// The body of a restore request.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = RestoreMemoryVersion)]
pub struct Restoration {
    /// The condition for the change.
    #[serde(default, deserialize_with = "optional_object")]
    pub precondition: Option<Precondition>,
    #[serde(skip)]
    pub view: View,
    #[serde(skip)]
    pub idempotency: Option<Idempotency>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MemoryQuery {
    /// Excludes the other filters.
    pub path: Option<String>,
    /// Begins and ends with `/`; the whole store if unset.
    pub path_prefix: Option<String>,
    /// 0: all memories below the prefix; 1: direct children only.
    pub depth: Option<u64>,
    pub page: PageRequest,
}

impl MemoryQuery {
    /// The path of the only memory to list.
    pub(crate) fn path(&self) -> Result<Option<MemoryPath>, EngineError> {
        let has_others = self.path_prefix.is_some() || self.depth.is_some() || self.page.page.is_some();
        match &self.path {
            Some(_) if has_others => {
                Err(EngineError::invalid("path", "cannot be combined with `path_prefix`, `depth` or `page`"))
            }
            path => path.as_deref().map(parse_path).transpose(),
        }
    }

    pub(crate) fn below(&self) -> Result<DirPath, EngineError> {
        self.path_prefix.as_deref().map_or(Ok(DirPath::root()), parse_prefix)
    }

    pub(crate) fn depth(&self) -> Result<Depth, EngineError> {
        match self.depth {
            None | Some(0) => Ok(Depth::All),
            Some(1) => Ok(Depth::Children),
            Some(depth) => Err(EngineError::invalid("depth", format!("must be 0 or 1, but is {depth}"))),
        }
    }
}

/// Checks the scopes to write, and to read what the answer contains.
pub(super) fn require_write(principal: &Principal, store_id: StoreId, view: View) -> Result<(), EngineError> {
    principal.require_writable(store_id)?;
    match view {
        View::Basic => Ok(()),
        View::Full => principal.require(Scope::MemoryRead),
    }
}

pub(super) fn parse_update(
    principal: &Principal,
    memory_id: MemoryId,
    content: Option<String>,
    path: Option<&str>,
    expiry: ExpiryChange,
    precondition: Option<Precondition>,
    now: Timestamp,
) -> Result<Update, EngineError> {
    if content.is_none() && path.is_none() && expiry == ExpiryChange::default() {
        // An empty update only shows the memory.
        principal.require(Scope::MemoryRead)?;
    }
    if precondition == Some(Precondition::NotExists) && path.is_none() {
        return Err(EngineError::invalid(
            "precondition",
            "of type `not_exists` is about a new path: send `path` with it",
        ));
    }
    let content = content.map(|content| parse_content(principal, content));
    Ok(Update {
        memory_id,
        path: path.map(parse_path).transpose()?,
        content: content.transpose()?,
        expiry,
        precondition,
        is_deletion: false,
        now,
    })
}

/// The pin and the expiry time that a request sets.
pub(super) fn parse_expiry(
    is_pinned: Option<bool>,
    expires_at: Option<&str>,
) -> Result<ExpiryChange, EngineError> {
    let expires_at = expires_at.map(str::parse).transpose();
    let expires_at =
        expires_at.map_err(|rule: ExpiresAtError| EngineError::invalid("expires_at", rule.to_string()));
    Ok(ExpiryChange { is_pinned, expires_at: expires_at? })
}

/// Checks the pin and the expiry time that a request sets at `now` for the memory at a path.
pub(super) fn check_expiry(
    change: &ExpiryChange,
    path: &MemoryPath,
    now: Timestamp,
) -> Result<(), EngineError> {
    let invalid = |rule: &str| EngineError::invalid("expires_at", rule);
    if path.is_setting() && change.is_pinned == Some(false) {
        let rule = format!("must not be false for `{path}`: a setting of the memory store is always pinned");
        return Err(EngineError::Invalid { field: "pinned", rule });
    }
    match (change.expires_at, change.is_pinned) {
        (Some(ExpiresAt::Time(_)), _) if path.is_setting() => {
            Err(invalid("cannot be set for a setting of the memory store, which never expires"))
        }
        (Some(ExpiresAt::Time(at)), _) if at <= now => Err(invalid("must be in the future")),
        (Some(ExpiresAt::Time(at)), _) if at >= LATEST => Err(invalid("must be before the year 9999")),
        (Some(ExpiresAt::Time(_)), Some(true)) => {
            Err(invalid("cannot be set with `pinned`: a pinned memory never expires"))
        }
        _ => Ok(()),
    }
}

pub(super) fn parse_content(principal: &Principal, text: String) -> Result<Content, EngineError> {
    Content::new(text, principal.limits.bytes_per_memory)
        .map_err(|rule| EngineError::invalid("content", rule.to_string()))
}
