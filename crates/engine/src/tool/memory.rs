//! The memory tool's commands on a store, or on a session's stores.

use std::sync::Arc;

use keepsake_core::StoreId;
use keepsake_core::tool::{
    Command, DirectoryEntry, ToolError, ToolPath, max_entries_shown, view_directory, view_file,
};
use keepsake_index::{Directory, Scope};

use super::{MEMORY_TOOL, Stop, ToolAnswer, ToolCall, ToolServices, of_read, settle};
use crate::content::Found;
use crate::memories::conceal_outcome;
use crate::{EngineError, Mounted, Mounts, Principal};

#[derive(Debug)]
pub struct MemoryTool(pub(super) ToolServices);

impl MemoryTool {
    /// A change runs to its end even when this future is dropped. After a failure of the
    /// index the change may have been committed; a call with a `tool_use_id` can be
    /// repeated.
    #[tracing::instrument(name = "engine.call_tool", level = "debug", skip_all)]
    pub async fn call(
        &self,
        principal: &Arc<Principal>,
        mounts: impl Into<Mounts>,
        call: ToolCall,
    ) -> Result<ToolAnswer, EngineError> {
        let mounts = principal.seen(mounts.into())?;
        let command = match Command::parse(&call.input, mounts.root()) {
            Ok(command) => command,
            Err(error) => return self.0.refuse(principal, &mounts, error).await,
        };
        let Some(Mounted { store_id, is_read_only }) = mounts.store_of(command.path()) else {
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
            self.0.changes.make(principal, &mounts, store_id, MEMORY_TOOL, call, command).await?
        } else {
            principal.require(Scope::MemoryRead)?;
            settle(self.view(principal, store_id, &command).await)?
        };
        Ok(conceal_outcome(principal, outcome).into())
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

    /// Lists the mounted stores by name, with the entries directly in each. A store that
    /// was deleted meanwhile is omitted.
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
            let root =
                self.0.context.index.memories.root(principal.tenant_id, mounted.store_id, left).await?;
            let (Some(slug), Some(root)) = (slug, root) else {
                continue;
            };
            size_bytes += root.size_bytes;
            total += 1 + root.total_entries;
            entries.push(DirectoryEntry {
                path: slug.to_owned().into(),
                is_directory: true,
                size_bytes: root.size_bytes,
            });
            entries.extend(root.entries.iter().map(|entry| DirectoryEntry {
                path: format!("{slug}/{}", entry.path.trim_matches('/')).into(),
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
        let Command::View { path, view_range, offset } = command else {
            return Err(EngineError::Internal("a change was taken for a view").into());
        };
        let (tenant_id, max_chars) = (principal.tenant_id, principal.limits.max_view_chars);
        // A listing could only show this many entries if all names had one
        // character. Real names are longer, so fewer entries usually suffice.
        let most_entries = max_entries_shown(path, max_chars).max(1);
        let likely_entries = (most_entries / 8 * 5).max(1);
        let read = async |entries| {
            let found = self.0.contents.at_path(tenant_id, store_id, path.memory(), entries).await;
            found.map(|(_, found)| found).map_err(of_read(path))
        };
        let mut found = read(likely_entries).await?;
        if let Found::Directory(directory) = &found
            && !fills(path, directory, max_chars)
        {
            found = read(most_entries).await?;
        }
        match found {
            Found::Missing => Err(ToolError::NotFoundView { path: path.display().to_owned() }.into()),
            Found::Memory(head, text) => {
                let shown = view_file(path, &text, *view_range, *offset, max_chars)?;
                self.0.access.note_read(principal, store_id, head.memory_id);
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
    let relative = directory.entries.iter().map(|entry| DirectoryEntry {
        path: entry.path.get(above..).unwrap_or_default().trim_end_matches('/').into(),
        is_directory: entry.is_directory,
        size_bytes: entry.size_bytes,
    });
    let entries: Vec<_> = relative.collect();
    view_directory(path, directory.size_bytes, &entries, directory.total_entries, max_chars)
}
