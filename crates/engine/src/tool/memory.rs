//! The memory tool's commands on a store, or on a session's stores.

use keepsake_core::StoreId;
use keepsake_core::tool::agent::WrittenVersion;
use keepsake_core::tool::{
    Command, DirectoryEntry, Edit, ToolError, ToolInput, ToolPath, max_entries_shown, view_directory,
    view_file,
};
use keepsake_index::{Directory, Scope, Target};

use super::changes::{already_exists, delete, destination_exists, rename, store_edit};
use super::{Stop, ToolAnswer, ToolCommand, Tools, of_read};
use crate::shared::Shared;
use crate::write::{Decision, PathRead, Reads};
use crate::{EngineError, Mounts, Principal};

impl ToolCommand for Command {
    fn destination(&self) -> &ToolPath {
        match self {
            Self::Rename { new_path, .. } => new_path,
            _ => self.path(),
        }
    }

    fn refusal_of_mount(&self) -> Option<ToolError> {
        let named = || self.path().display().to_owned();
        let is_mount = |path: &ToolPath| path.mount().is_some() && path.memory().is_none();
        match self {
            Self::Delete { path } if is_mount(path) => Some(ToolError::CannotDeleteMount { path: named() }),
            Self::Rename { old_path, new_path } => {
                if is_mount(old_path) {
                    return Some(ToolError::CannotRenameMount { path: named() });
                }
                if new_path.is_mounts() || is_mount(new_path) {
                    return Some(destination_exists(new_path));
                }
                (old_path.mount() != new_path.mount()).then(|| {
                    let (from, to) = (named(), new_path.display().to_owned());
                    ToolError::AcrossStores { from, to }
                })
            }
            _ => None,
        }
    }

    fn not_found(&self) -> ToolError {
        ToolError::NotFoundView { path: self.path().display().to_owned() }
    }

    async fn on_mounts(
        self,
        tools: &Tools,
        principal: &Principal,
        mounts: &Mounts,
    ) -> Result<ToolAnswer, Stop> {
        let path = self.path().display().to_owned();
        Err(match &self {
            Self::View { path, .. } => {
                principal.require(Scope::MemoryRead)?;
                return Ok(view_mounts(&tools.shared, principal, mounts, path).await?.into());
            }
            Self::Create { .. } => ToolError::AlreadyExists { path },
            Self::StrReplace { .. } => ToolError::NotFoundEdit { path },
            Self::Insert { .. } => ToolError::NotFound { path },
            Self::Delete { .. } => ToolError::CannotDeleteRoot,
            Self::Rename { .. } => ToolError::CannotRenameRoot,
        }
        .into())
    }

    async fn show(
        self,
        tools: &Tools,
        principal: &Principal,
        _: &Mounts,
        store_id: StoreId,
    ) -> Result<ToolAnswer, Stop> {
        Ok(view(&tools.shared, principal, store_id, &self).await?.into())
    }

    fn reads(&self) -> Result<Reads<'_>, ToolError> {
        match self {
            Self::Create { path, .. } if path.is_root() => Err(already_exists(path)),
            Self::View { .. } | Self::Create { .. } => Ok(Reads::Nothing),
            Self::StrReplace { .. } | Self::Insert { .. } => Ok(Reads::Content),
            Self::Delete { path } if path.is_root() => Err(ToolError::CannotDeleteRoot),
            Self::Delete { .. } => Ok(Reads::Tree),
            Self::Rename { old_path, .. } if old_path.is_root() => Err(ToolError::CannotRenameRoot),
            Self::Rename { new_path, .. } => match new_path.memory() {
                Some(to) => Ok(Reads::Move(to)),
                None => Err(destination_exists(new_path)),
            },
        }
    }

    fn propose(&self, read: &PathRead) -> Result<Decision, ToolError> {
        match self {
            Self::Delete { path } => delete(path, None, read),
            Self::Rename { old_path, new_path } => rename(old_path, new_path, read),
            Self::View { .. } | Self::Create { .. } | Self::StrReplace { .. } | Self::Insert { .. } => {
                store_edit(self.path(), self.edit(read.text.as_deref())?, read)
            }
        }
    }

    fn path_taken(&self) -> Option<ToolError> {
        match self {
            Self::Create { path, .. } => Some(already_exists(path)),
            Self::Rename { new_path, .. } => Some(destination_exists(new_path)),
            _ => None,
        }
    }

    fn answer(
        &self,
        principal: &Principal,
        edit: Option<&Edit>,
        _: Option<WrittenVersion>,
    ) -> Result<ToolAnswer, Stop> {
        let message = self.message(edit, principal.limits.max_view_chars);
        let message = message.ok_or(EngineError::Internal("a view was taken for a change"))?;
        Ok(message.into())
    }
}

/// Lists the mounted stores by name, with the entries directly in each. A store that
/// was deleted meanwhile is omitted.
async fn view_mounts(
    shared: &Shared,
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
        let memories = &shared.context.index.memories;
        let root = memories.root(principal.tenant_id, mounted.store_id, left).await?;
        let (Some(slug), Some(root)) = (slug, root) else {
            continue;
        };
        size_bytes += root.size_bytes;
        total += 1 + root.total_entries;
        entries.push(DirectoryEntry {
            path: format!("/{slug}/"),
            is_directory: true,
            size_bytes: root.size_bytes,
        });
        let below = root.entries.into_iter();
        let below = below.map(|entry| DirectoryEntry { path: format!("/{slug}{}", entry.path), ..entry });
        entries.extend(below);
    }
    Ok(view_directory(path, size_bytes, &entries, total, max_chars))
}

/// Shows a file with line numbers, or lists a directory.
async fn view(
    shared: &Shared,
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
        let found = shared.contents.at_path(tenant_id, store_id, path.memory(), entries).await;
        found.map(|(found, text)| (found.target, text)).map_err(of_read(path))
    };
    let mut found = read(likely_entries).await?;
    if let (Target::Directory(directory), _) = &found
        && !fills(path, directory, max_chars)
    {
        found = read(most_entries).await?;
    }
    match found {
        (Target::Memory(head), Some(text)) => {
            let shown = view_file(path, &text, *view_range, *offset, max_chars)?;
            shared.access.note_read(principal, store_id, &head);
            Ok(shown)
        }
        (Target::Directory(Directory { size_bytes, total_entries, entries, .. }), _) => {
            Ok(view_directory(path, size_bytes, &entries, total_entries, max_chars))
        }
        (Target::Missing | Target::Memory(_), _) => Err(command.not_found().into()),
    }
}

/// Whether the entries are complete, or more than a listing can show.
fn fills(path: &ToolPath, directory: &Directory, max_chars: u64) -> bool {
    if directory.entries.len() as u64 >= directory.total_entries {
        return true;
    }
    // The shortest line of an entry: a newline, `0B`, a tab, and its path.
    let above_chars = path.display().chars().count() + 1;
    let above = path.dir();
    let least_chars = directory.entries.iter().map(|entry| {
        let slash_chars = usize::from(entry.is_directory);
        (4 + above_chars + entry.path_below(&above).chars().count() + slash_chars) as u64
    });
    least_chars.sum::<u64>() > max_chars
}
