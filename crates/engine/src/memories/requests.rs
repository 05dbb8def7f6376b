//! Requests to read and change memories, and the checks of their fields.

use keepsake_core::{Content, ContentHash, DirPath, MemoryPath, StoreId, Timestamp};
use keepsake_index::{Depth, ExpiresAt, ExpiryChange, Idempotency, Scope};

use super::View;
use super::decisions::Update;
use crate::{EngineError, PageRequest, Principal};

/// The year 9999. Later times cannot be shown in every offset.
const LATEST: Timestamp = Timestamp::from_micros(253_370_764_800_000_000);

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewMemory {
    pub path: String,
    pub content: String,
    /// `None`: not pinned, or as the replaced memory.
    pub pinned: Option<bool>,
    /// `None`: no expiry time, or that of the replaced memory.
    pub expires_at: Option<ExpiresAt>,
    pub on_taken: OnTaken,
    pub view: View,
    pub idempotency: Option<Idempotency>,
}

/// The reaction to an existing memory at the path of a new memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnTaken {
    /// Fail with a conflict that names the existing memory.
    Refuse,
    /// Fail with a failed precondition.
    RefuseAsPrecondition,
    /// Replace the content of the existing memory.
    Replace,
}

/// `None` leaves a field unchanged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemoryEdit {
    pub content: Option<String>,
    pub path: Option<String>,
    pub pinned: Option<bool>,
    pub expires_at: Option<ExpiresAt>,
    pub precondition: Option<Precondition>,
    pub view: View,
    pub idempotency: Option<Idempotency>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Restoration {
    pub precondition: Option<Precondition>,
    pub view: View,
    pub idempotency: Option<Idempotency>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Precondition {
    /// The memory's content has this hash.
    ContentSha256(ContentHash),
    /// No memory exists at the new path.
    NotExists,
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

/// A directory path that begins and ends with `/`.
pub(crate) fn parse_prefix(prefix: &str) -> Result<DirPath, EngineError> {
    let invalid = |rule: String| EngineError::Invalid { field: "path_prefix", rule };
    if prefix == "/" {
        return Ok(DirPath::root());
    }
    let Some(path) = prefix.strip_suffix('/') else {
        return Err(invalid("must end with `/`".to_owned()));
    };
    let path = MemoryPath::parse_normalised(path).map_err(|rule| invalid(rule.to_string()))?;
    Ok(path.as_dir())
}

impl MemoryQuery {
    /// The path of the only memory to list.
    pub(super) fn path(&self) -> Result<Option<MemoryPath>, EngineError> {
        let has_others = self.path_prefix.is_some() || self.depth.is_some() || self.page.page.is_some();
        match &self.path {
            Some(_) if has_others => Err(EngineError::Invalid {
                field: "path",
                rule: "cannot be combined with `path_prefix`, `depth` or `page`".to_owned(),
            }),
            path => path.as_deref().map(parse_path).transpose(),
        }
    }

    pub(super) fn below(&self) -> Result<DirPath, EngineError> {
        self.path_prefix.as_deref().map_or(Ok(DirPath::root()), parse_prefix)
    }

    pub(super) fn depth(&self) -> Result<Depth, EngineError> {
        match self.depth {
            None | Some(0) => Ok(Depth::All),
            Some(1) => Ok(Depth::Children),
            Some(depth) => {
                Err(EngineError::Invalid { field: "depth", rule: format!("must be 0 or 1, but is {depth}") })
            }
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
        return Err(EngineError::Invalid {
            field: "precondition",
            rule: "of type `not_exists` is about a new path: send `path` with it".to_owned(),
        });
    }
    let content = content.map(|content| parse_content(principal, content));
    Ok(Update {
        path: path.map(parse_path).transpose()?,
        content: content.transpose()?,
        expiry,
        precondition,
        is_deletion: false,
        now,
    })
}

/// Checks an expiry time that a request sets at `now`.
pub(super) fn check_expiry(change: &ExpiryChange, now: Timestamp) -> Result<(), EngineError> {
    let invalid = |rule: &str| EngineError::Invalid { field: "expires_at", rule: rule.to_owned() };
    match (change.expires_at, change.is_pinned) {
        (Some(ExpiresAt::Time(at)), _) if at <= now => Err(invalid("must be in the future")),
        (Some(ExpiresAt::Time(at)), _) if at >= LATEST => Err(invalid("must be before the year 9999")),
        (Some(ExpiresAt::Time(_)), Some(true)) => {
            Err(invalid("cannot be set with `pinned`: a pinned memory never expires"))
        }
        _ => Ok(()),
    }
}

pub(super) fn parse_path(path: &str) -> Result<MemoryPath, EngineError> {
    MemoryPath::parse_normalised(path)
        .map_err(|rule| EngineError::Invalid { field: "path", rule: rule.to_string() })
}

pub(super) fn parse_content(principal: &Principal, text: String) -> Result<Content, EngineError> {
    Content::new(text, principal.limits.bytes_per_memory)
        .map_err(|rule| EngineError::Invalid { field: "content", rule: rule.to_string() })
}
