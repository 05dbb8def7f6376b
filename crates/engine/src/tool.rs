//! The memory tool's commands on a store.
//!
//! An error that the model can correct is an answer with `is_error`; an error
//! for the caller is an [`EngineError`].

mod agent;
mod changes;
mod replay;

use std::sync::Arc;

use keepsake_core::StoreId;
use keepsake_core::tool::agent::{AgentResult, AgentTool};
use keepsake_core::tool::{
    Command, DirectoryEntry, ToolError, ToolPath, max_entries_shown, view_directory, view_file,
};
use keepsake_index::{Directory, Entry, Idempotency, Scope};
use serde_json::{Map, Value};

use crate::content::Found;
use crate::{Engine, EngineError, Mounted, Mounts, Principal};

/// The memory tool's name in a block.
pub const MEMORY_TOOL: &str = "memory";

/// A call of the memory tool.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolCall {
    /// The `tool_use` block's id, if there was a block. Together with the input
    /// it makes a changing call idempotent.
    pub tool_use_id: Option<String>,
    /// The block's `input`.
    pub input: Map<String, Value>,
    /// The identity of the call from its request; overrides the block's id.
    pub idempotency: Option<Idempotency>,
}

/// The answer for the model.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolAnswer {
    /// The result's `content`.
    pub content: String,
    /// Whether the call failed.
    pub is_error: bool,
    /// The same result for programs, if the tool has structured results.
    pub result: Option<AgentResult>,
}

impl From<Result<String, ToolError>> for ToolAnswer {
    fn from(outcome: Result<String, ToolError>) -> Self {
        match outcome {
            Ok(content) => Self {
                content,
                is_error: false,
                result: None,
            },
            Err(error) => error.into(),
        }
    }
}

impl From<Result<AgentResult, ToolError>> for ToolAnswer {
    fn from(outcome: Result<AgentResult, ToolError>) -> Self {
        match outcome {
            Ok(result) => Self {
                content: result.to_text(),
                is_error: false,
                result: Some(result),
            },
            Err(error) => error.into(),
        }
    }
}

impl From<ToolError> for ToolAnswer {
    fn from(error: ToolError) -> Self {
        Self {
            content: error.to_string(),
            is_error: true,
            result: None,
        }
    }
}

/// Why a command has no result: an error for the model or for the caller.
#[derive(Debug)]
enum Stop {
    Tool(ToolError),
    Engine(EngineError),
}

impl From<ToolError> for Stop {
    fn from(error: ToolError) -> Self {
        Self::Tool(error)
    }
}

impl<E: Into<EngineError>> From<E> for Stop {
    fn from(error: E) -> Self {
        Self::Engine(error.into())
    }
}

impl Engine {
    /// Carries out one call of a tool by its name: the memory tool, or one of
    /// the agent tools. A call in a session is recorded as an event.
    ///
    /// A change runs to its end even when this future is dropped.
    ///
    /// # Errors
    /// As [`Self::call_tool`].
    pub async fn call_tool_named(
        &self,
        principal: &Arc<Principal>,
        mounts: impl Into<Mounts>,
        name: &str,
        call: ToolCall,
    ) -> Result<ToolAnswer, EngineError> {
        let mounts = mounts.into();
        let event = self.event_of_call(principal, &mounts, name, &call.input);
        let is_in_session = mounts.session_id().is_some();
        let answer = match self.call_one_of_tools(principal, mounts, name, call).await {
            // The deletion of the store has not yet reached every replica's
            // cache.
            Err(EngineError::StoreNotFound) if is_in_session => ToolError::StoreGone.into(),
            answer => answer?,
        };
        if let Some(event) = event {
            self.note_event(event);
        }
        Ok(answer)
    }

    async fn call_one_of_tools(
        &self,
        principal: &Arc<Principal>,
        mounts: Mounts,
        name: &str,
        call: ToolCall,
    ) -> Result<ToolAnswer, EngineError> {
        if let Some(tool) = AgentTool::parse(name) {
            return self.call_agent_tool(principal, mounts, tool, call).await;
        }
        if name == MEMORY_TOOL {
            return self.call_tool(principal, mounts, call).await;
        }
        let mounts = mounts.seen_by(principal)?;
        if let Some(store_id) = mounts.single() {
            self.require_there(principal, store_id).await?;
        }
        Ok(ToolError::UnknownTool.into())
    }

    /// Carries out one call of the memory tool.
    ///
    /// A change runs to its end even when this future is dropped.
    ///
    /// # Errors
    /// [`EngineError::PermissionDenied`], [`EngineError::StoreNotFound`], and
    /// failures of index and blob store. After a failure of the index the
    /// change may have been committed: a call with a `tool_use_id` can be
    /// repeated.
    #[tracing::instrument(name = "engine.call_tool", level = "debug", skip_all)]
    pub async fn call_tool(
        &self,
        principal: &Arc<Principal>,
        mounts: impl Into<Mounts>,
        call: ToolCall,
    ) -> Result<ToolAnswer, EngineError> {
        let mounts = mounts.into().seen_by(principal)?;
        let command = match Command::parse(&call.input, mounts.root()) {
            Ok(command) => command,
            Err(error) => {
                if let Some(store_id) = mounts.single() {
                    // A missing store is an error for the caller and is
                    // reported first.
                    self.require_there(principal, store_id).await?;
                }
                return Ok(error.into());
            }
        };
        let Some(Mounted {
            store_id,
            is_read_only,
        }) = mounts.store_of(command.path())
        else {
            let shown = self.call_on_mounts(principal, &mounts, &command).await;
            return Ok(settle(shown)?.into());
        };
        if let Some(refusal) = refusal_of_mount(&command, is_read_only) {
            return Ok(refusal.into());
        }
        let outcome = if command.is_change() {
            principal.require(Scope::MemoryWrite)?;
            if command.shows_content() {
                principal.require(Scope::MemoryRead)?;
            }
            self.change(principal, &mounts, store_id, MEMORY_TOOL, call, command)
                .await?
        } else {
            principal.require(Scope::MemoryRead)?;
            settle(self.view(principal, store_id, &command).await)?
        };
        Ok(principal.shown_outcome(outcome).into())
    }

    /// Checks that a store exists; a missing store is an error for the caller.
    pub(crate) async fn require_there(
        &self,
        principal: &Principal,
        store_id: StoreId,
    ) -> Result<(), EngineError> {
        principal.require(Scope::MemoryRead)?;
        self.find_store(principal.tenant_id, store_id).await?;
        Ok(())
    }

    /// Carries out a call on `/memories` of a session, the root of the mounts.
    async fn call_on_mounts(
        &self,
        principal: &Principal,
        mounts: &Mounts,
        command: &Command,
    ) -> Result<String, Stop> {
        let path = command.path().display().to_owned();
        Err(match command {
            Command::View { path, .. } => {
                principal.require(Scope::MemoryRead)?;
                return self.view_mounts(principal, mounts, path).await;
            }
            Command::Create { .. } => ToolError::AlreadyExists { path },
            Command::StrReplace { .. } => ToolError::NotFoundEdit { path },
            Command::Insert { .. } => ToolError::NotFound { path },
            Command::Delete { .. } => ToolError::CannotDeleteRoot,
            Command::Rename { .. } => ToolError::CannotRenameRoot,
        }
        .into())
    }

    /// Lists the mounted stores by name, with the entries directly in each.
    ///
    /// A store that was deleted meanwhile is omitted.
    async fn view_mounts(
        &self,
        principal: &Principal,
        mounts: &Mounts,
        path: &ToolPath,
    ) -> Result<String, Stop> {
        let max_chars = principal.limits.max_view_chars;
        let most_entries = max_entries_shown(path, max_chars);
        let mut by_name: Vec<_> = mounts.iter().collect();
        by_name.sort_by_key(|(slug, _)| *slug);
        let (mut size_bytes, mut total) = (0, 0);
        let mut entries = Vec::new();
        for (slug, mounted) in by_name {
            let left = most_entries.saturating_sub(entries.len() as u64);
            let root = self
                .0
                .index
                .memories
                .root(principal.tenant_id, mounted.store_id, left)
                .await?;
            let (Some(slug), Some(root)) = (slug, root) else {
                continue;
            };
            size_bytes += root.size_bytes;
            total += 1 + root.total_entries;
            entries.push(DirectoryEntry {
                path: slug.to_owned(),
                is_directory: true,
                size_bytes: root.size_bytes,
            });
            entries.extend(root.entries.iter().map(|entry| DirectoryEntry {
                path: format!("{slug}/{}", entry.path.trim_matches('/')),
                is_directory: entry.is_directory,
                size_bytes: entry.size_bytes,
            }));
        }
        Ok(view_directory(path, size_bytes, &entries, total, max_chars))
    }

    async fn view(
        &self,
        principal: &Principal,
        store_id: StoreId,
        command: &Command,
    ) -> Result<String, Stop> {
        let Command::View { path, view_range } = command else {
            return Err(EngineError::Internal("a change was taken for a view").into());
        };
        let (tenant_id, max_chars) = (principal.tenant_id, principal.limits.max_view_chars);
        // A listing could only show this many entries if all names had one
        // character. Real names are longer, so fewer entries usually suffice.
        let most_entries = max_entries_shown(path, max_chars).max(1);
        let likely_entries = (most_entries / 8 * 5).max(1);
        let mut found = self
            .0
            .contents
            .at_path(tenant_id, store_id, path.memory(), likely_entries)
            .await?
            .1;
        if let Found::Directory(directory) = &found
            && !fills(path, directory, max_chars)
        {
            found = self
                .0
                .contents
                .at_path(tenant_id, store_id, path.memory(), most_entries)
                .await?
                .1;
        }
        match found {
            Found::Missing => Err(ToolError::NotFoundView {
                path: path.display().to_owned(),
            }
            .into()),
            Found::Memory(head, text) => {
                let shown = view_file(path, &text, *view_range, max_chars)?;
                self.note_read(principal, store_id, head.memory_id);
                Ok(shown)
            }
            Found::Directory(directory) => Ok(show_directory(path, &directory, max_chars)),
        }
    }
}

/// Refuses commands that the mount of their path does not allow.
fn refusal_of_mount(command: &Command, is_read_only: bool) -> Option<ToolError> {
    let path = command.path();
    let named = || path.display().to_owned();
    let is_mount = |path: &ToolPath| path.mount().is_some() && path.memory().is_none();
    match command {
        Command::Delete { .. } if is_mount(path) => {
            return Some(ToolError::CannotDeleteMount { path: named() });
        }
        Command::Rename { old_path, new_path } => {
            if new_path.is_mounts() {
                return Some(ToolError::CannotRenameRoot);
            }
            if let Some(mount) = [old_path, new_path].into_iter().find(|path| is_mount(path)) {
                let path = mount.display().to_owned();
                return Some(ToolError::CannotRenameMount { path });
            }
            if old_path.mount() != new_path.mount() {
                let (from, to) = (named(), new_path.display().to_owned());
                return Some(ToolError::AcrossStores { from, to });
            }
        }
        _ => {}
    }
    (is_read_only && command.is_change()).then(|| ToolError::ReadOnly { path: named() })
}

fn settle<T>(outcome: Result<T, Stop>) -> Result<Result<T, ToolError>, EngineError> {
    match outcome {
        Ok(result) => Ok(Ok(result)),
        Err(Stop::Tool(error)) => Ok(Err(error)),
        Err(Stop::Engine(error)) => Err(error),
    }
}

/// Whether the entries are complete, or more than a listing can show.
fn fills(path: &ToolPath, directory: &Directory, max_chars: u64) -> bool {
    if directory.entries.len() as u64 >= directory.total_entries {
        return true;
    }
    // The shortest line of an entry: a newline, `0B`, a tab, and its path.
    let above_chars = path.display().chars().count() + 1;
    let above_bytes = path.dir().as_str().len();
    let least_chars = directory.entries.iter().map(|entry| {
        let below = entry.path.get(above_bytes..).unwrap_or_default();
        (4 + above_chars + below.chars().count()) as u64
    });
    least_chars.sum::<u64>() > max_chars
}

fn show_directory(path: &ToolPath, directory: &Directory, max_chars: u64) -> String {
    let above = path.dir().as_str().len();
    let relative = |entry: &Entry| DirectoryEntry {
        path: entry
            .path
            .get(above..)
            .unwrap_or_default()
            .trim_end_matches('/')
            .to_owned(),
        is_directory: entry.is_directory,
        size_bytes: entry.size_bytes,
    };
    let entries: Vec<_> = directory.entries.iter().map(relative).collect();
    view_directory(
        path,
        directory.size_bytes,
        &entries,
        directory.total_entries,
        max_chars,
    )
}
