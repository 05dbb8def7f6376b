//! The agent tools, offered to models in addition to the memory tool.
//!
//! Seven small tools over the same paths (`/memories/…`). Each does one thing and
//! returns a result that programs can read as well. A call is an [`AgentCall`] and
//! a result an [`AgentResult`]: [`AgentResult::to_text`] renders it for a
//! `tool_result` block, and `serde` renders it as JSON. [`definitions`] describes
//! the names and inputs of the tools to models.

mod content;
mod result;
mod schema;

use serde::Serialize;
use serde_json::{Map, Value};

pub use super::edit::Snippet;
use super::edit::{Edit, append};
use super::error::ToolError;
use super::fields::{Fields, STRING};
use super::input::ToolInput;
use crate::content::ContentHash;
use crate::path::{ToolPath, ToolRoot};
use crate::precondition::Precondition;

pub use content::{Replacement, apply_edits, read};
pub use result::{
    AgentResult, Hit, ListingEntry, PartOfFile, Redactions, WriteOutcome, WrittenVersion, fitting_entries,
};
pub use schema::{ToolDefinition, definitions, memory_definition};

const MAX_EDITS: usize = 100;
const MAX_LISTED: u64 = 100;
/// Maximum number of hits on a page of a search.
const MAX_HITS: u64 = 50;

const PRECONDITION: &str = "an object with `type`";
const EDITS: &str = "an array of 1 to 100 objects, each with `old_str` and `new_str`";

crate::named_enum! {
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
    pub enum AgentTool {
        List = "memory_list",
        Search = "memory_search",
        /// Reads a memory verbatim.
        Read = "memory_read",
        Write = "memory_write",
        /// Replaces texts in a memory, all or none.
        Edit = "memory_edit",
        Append = "memory_append",
        /// Deletes a memory or a directory.
        Delete = "memory_delete",
    }
}

impl AgentTool {
    /// Whether a successful call changes the store.
    pub const fn is_change(self) -> bool {
        match self {
            Self::List | Self::Search | Self::Read => false,
            Self::Write | Self::Edit | Self::Append | Self::Delete => true,
        }
    }

    /// Whether the result shows paths or content that the call does not name, which
    /// needs the right to read.
    pub const fn shows_content(self) -> bool {
        match self {
            Self::List | Self::Search | Self::Read | Self::Edit => true,
            Self::Write | Self::Append | Self::Delete => false,
        }
    }
}

/// The names of all tools, the memory tool first.
pub(super) fn quoted_names() -> impl Iterator<Item = String> {
    let agent_tools = AgentTool::ALL.into_iter().map(AgentTool::name);
    std::iter::once("memory").chain(agent_tools).map(|name| format!("`{name}`"))
}

/// A call of an agent tool, with every field present and of the right type.
///
/// Two calls with the same meaning are equal as JSON.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub enum AgentCall {
    List {
        /// The directory; the root if the call has none.
        path: ToolPath,
        /// Whether deeper memories are listed by their directory only.
        is_shallow: bool,
        limit: Option<u64>,
        /// The cursor of the requested page.
        page: Option<String>,
    },
    Search {
        /// The directory; the root if the call has none.
        path: ToolPath,
        query: String,
        limit: Option<u64>,
        page: Option<String>,
    },
    Read {
        path: ToolPath,
        /// The first character, counted from 0.
        offset: u64,
        /// Maximum number of characters.
        limit: Option<u64>,
    },
    /// Creates a memory or replaces its content.
    Write { path: ToolPath, content: String, precondition: Option<Precondition> },
    /// Applies replacements in order.
    Edit {
        path: ToolPath,
        edits: Vec<Replacement>,
        /// The required hash of the current content.
        expected: Option<ContentHash>,
    },
    /// Appends whole lines.
    Append {
        /// The file; created if it is missing.
        path: ToolPath,
        content: String,
        precondition: Option<Precondition>,
    },
    /// Deletes a file, or a directory with everything in it.
    Delete {
        path: ToolPath,
        /// The required hash of the current content.
        expected: Option<ContentHash>,
    },
}

impl AgentCall {
    /// Parses the input of a call with paths below `root`.
    ///
    /// `null` is the same as absent. Unlike the memory tool, an unknown field is refused: it
    /// may be a precondition with a wrong name.
    pub fn parse(tool: AgentTool, input: &Map<String, Value>, root: &ToolRoot) -> Result<Self, ToolError> {
        let fields = Fields::new(input, root);
        let call = match tool {
            AgentTool::List => Self::List {
                path: fields.optional_path("path_prefix")?,
                is_shallow: fields.bounded("depth", 0, 1)?.unwrap_or(0) == 1,
                limit: fields.bounded("limit", 1, MAX_LISTED)?,
                page: fields.optional_text("page")?.map(str::to_owned),
            },
            AgentTool::Search => Self::Search {
                path: fields.optional_path("path_prefix")?,
                query: fields.text("query", STRING)?.to_owned(),
                limit: fields.bounded("limit", 1, MAX_HITS)?,
                page: fields.optional_text("page")?.map(str::to_owned),
            },
            AgentTool::Read => Self::Read {
                path: fields.path("path")?,
                offset: fields.bounded("offset", 0, u64::MAX)?.unwrap_or(0),
                limit: fields.bounded("limit", 1, u64::MAX)?,
            },
            AgentTool::Write => Self::Write {
                path: fields.path("path")?,
                content: fields.text("content", STRING)?.to_owned(),
                precondition: precondition(&fields)?,
            },
            AgentTool::Edit => Self::Edit {
                path: fields.path("path")?,
                edits: edits(&fields)?,
                expected: expected_before_edit(&fields)?,
            },
            AgentTool::Append => Self::Append {
                path: fields.path("path")?,
                content: fields.text("content", STRING)?.to_owned(),
                precondition: precondition(&fields)?,
            },
            AgentTool::Delete => Self::Delete {
                path: fields.path("path")?,
                expected: fields.optional_hash("expected_content_sha256")?,
            },
        };
        fields.refuse_unknown(tool.name())?;
        Ok(call)
    }

    pub const fn tool(&self) -> AgentTool {
        match self {
            Self::List { .. } => AgentTool::List,
            Self::Search { .. } => AgentTool::Search,
            Self::Read { .. } => AgentTool::Read,
            Self::Write { .. } => AgentTool::Write,
            Self::Edit { .. } => AgentTool::Edit,
            Self::Append { .. } => AgentTool::Append,
            Self::Delete { .. } => AgentTool::Delete,
        }
    }

    /// The precondition of a change of a file's content.
    pub fn precondition(&self) -> Option<Precondition> {
        match self {
            Self::Write { precondition, .. } | Self::Append { precondition, .. } => *precondition,
            Self::Edit { expected, .. } => expected.map(Precondition::ContentSha256),
            Self::List { .. } | Self::Search { .. } | Self::Read { .. } | Self::Delete { .. } => None,
        }
    }

    /// The result of a change that was made; `None` for calls that only read.
    ///
    /// `edit` is `None` if it can no longer be determined. `made` is `None` if the version was
    /// erased since; then every change except a deletion fails with
    /// [`ToolError::NotFoundEdit`].
    pub fn result(
        &self,
        edit: Option<&Edit>,
        made: Option<WrittenVersion>,
        max_chars: u64,
    ) -> Result<Option<AgentResult>, ToolError> {
        let path = self.path().display().to_owned();
        let (outcome, edits) = match self {
            Self::List { .. } | Self::Search { .. } | Self::Read { .. } => return Ok(None),
            Self::Delete { .. } => return Ok(Some(AgentResult::Delete { path, deleted: true })),
            Self::Write { .. } => (WriteOutcome::Replaced, 0),
            Self::Append { .. } => (WriteOutcome::Appended, 0),
            Self::Edit { edits, .. } => (WriteOutcome::Replaced, edits.len()),
        };
        let made = made.ok_or_else(|| self.missing())?;
        let memory_id = made.memory_id.to_string();
        let content_sha256 = made.content.map(|(sha256, _)| sha256.to_string());
        let content_size_bytes = made.content.map(|(_, size_bytes)| size_bytes);
        let redactions = edit.map(|edit| Redactions::of(&edit.findings, max_chars)).unwrap_or_default();
        Ok(Some(if matches!(self, Self::Edit { .. }) {
            AgentResult::Edit {
                path,
                edits,
                memory_id,
                content_sha256,
                content_size_bytes,
                snippets: edit.map(|edit| edit.snippets(max_chars)).unwrap_or_default(),
                redactions,
            }
        } else {
            AgentResult::Write {
                path,
                outcome: if made.is_new { WriteOutcome::Created } else { outcome },
                memory_id,
                content_sha256,
                content_size_bytes,
                redactions,
            }
        }))
    }

    pub fn missing(&self) -> ToolError {
        ToolError::NotFoundEdit { path: self.path().display().to_owned() }
    }
}

impl ToolInput for AgentCall {
    fn path(&self) -> &ToolPath {
        match self {
            Self::List { path, .. }
            | Self::Search { path, .. }
            | Self::Read { path, .. }
            | Self::Write { path, .. }
            | Self::Edit { path, .. }
            | Self::Append { path, .. }
            | Self::Delete { path, .. } => path,
        }
    }

    fn is_change(&self) -> bool {
        self.tool().is_change()
    }

    fn shows_content(&self) -> bool {
        self.tool().shows_content()
    }

    fn edit(&self, before: Option<&str>) -> Result<Option<Edit>, ToolError> {
        match self {
            Self::Write { content, .. } => Ok(Some(Edit::whole(content.clone()))),
            Self::Append { content, .. } => Ok(Some(append(before.unwrap_or_default(), content))),
            Self::Edit { path, edits, .. } => match before {
                Some(before) => apply_edits(path, before, edits).map(Some),
                None => Err(self.missing()),
            },
            Self::List { .. } | Self::Search { .. } | Self::Read { .. } | Self::Delete { .. } => Ok(None),
        }
    }
}

fn precondition(fields: &Fields<'_>) -> Result<Option<Precondition>, ToolError> {
    let Some(precondition) = fields.optional_object("precondition", PRECONDITION)? else {
        return Ok(None);
    };
    let inner = Fields::new(precondition, fields.root);
    let kind = inner.text("type", "`not_exists` or `content_sha256`")?;
    let hash = inner.optional_hash("content_sha256")?;
    inner.refuse_unknown("`precondition`")?;
    match kind {
        "not_exists" if hash.is_some() => {
            let rule = "does not go with `not_exists`".to_owned();
            Err(ToolError::OutOfBounds { field: "content_sha256", rule })
        }
        "not_exists" => Ok(Some(Precondition::NotExists)),
        "content_sha256" => {
            let missing = ToolError::MissingField { field: "content_sha256", expected: STRING };
            hash.map(Precondition::ContentSha256).map(Some).ok_or(missing)
        }
        _ => Err(ToolError::OutOfBounds {
            field: "precondition.type",
            rule: "must be `not_exists` or `content_sha256`".to_owned(),
        }),
    }
}

fn expected_before_edit(fields: &Fields<'_>) -> Result<Option<ContentHash>, ToolError> {
    match precondition(fields)? {
        None => Ok(None),
        Some(Precondition::ContentSha256(expected)) => Ok(Some(expected)),
        Some(Precondition::NotExists) => Err(ToolError::OutOfBounds {
            field: "precondition.type",
            rule: "must be `content_sha256`: only a file that exists can be edited".to_owned(),
        }),
    }
}

fn edits(fields: &Fields<'_>) -> Result<Vec<Replacement>, ToolError> {
    let edits = fields.array("edits", EDITS)?;
    if !(1..=MAX_EDITS).contains(&edits.len()) {
        return Err(ToolError::OutOfBounds {
            field: "edits",
            rule: format!("must be {EDITS}, but has {}", edits.len()),
        });
    }
    let read = |(position, edit): (usize, &Value)| {
        let Some(edit) = edit.as_object() else {
            return Err(ToolError::OutOfBounds {
                field: "edits",
                rule: format!("must be {EDITS}, but item {} is not an object", position + 1),
            });
        };
        let edit = Fields::new(edit, fields.root);
        let replacement = || {
            let replacement = Replacement {
                old_str: edit.text("old_str", STRING)?.to_owned(),
                new_str: edit.optional_text("new_str")?.unwrap_or_default().to_owned(),
            };
            edit.refuse_unknown("an edit")?;
            Ok(replacement)
        };
        replacement().map_err(|error: ToolError| error.in_edit(position + 1, edits.len()))
    };
    edits.iter().enumerate().map(read).collect()
}
