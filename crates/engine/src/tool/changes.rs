//! Changes by the memory tool and by the agent tools.

use std::sync::Arc;

use keepsake_core::sensitive::FindingList;
use keepsake_core::tool::agent::WrittenVersion;
use keepsake_core::tool::{Edit, ToolError, ToolPath};
use keepsake_core::{Content, ContentError, ContentHash, MemoryPath, Refused, StoreId};
use keepsake_index::{CommitChange, Guard, Head, NewContent, Origin, ProposedChange, Target};
use keepsake_telemetry::Conflict;

use super::{Stop, ToolAnswer, ToolCall, ToolCommand, of_read, replay};
use crate::error::Rejection;
use crate::shared::Shared;
use crate::write::{Change, Decision, Obstacle, PathRead, Proposal, Write, WriteResult};
use crate::{EngineError, IdempotentCalls, Mounts, Principal};

/// Makes a change, to its end even when this future is dropped.
pub(super) async fn change<C: ToolCommand>(
    shared: &Arc<Shared>,
    principal: &Arc<Principal>,
    mounts: &Mounts,
    store_id: StoreId,
    call: ToolCall,
    command: C,
) -> Result<Result<ToolAnswer, Stop>, EngineError> {
    let session_id = mounts.session_id().or(principal.session_id());
    let idempotency = call.idempotency.or_else(|| {
        let (id, calls) = (call.tool_use_id.as_deref()?, IdempotentCalls::new(shared));
        Some(calls.of_tool_call(principal, session_id, store_id, &call.name, id, &command))
    });
    let (shared, owner) = (Arc::clone(shared), Arc::clone(principal));
    let context = Arc::clone(&shared.context);
    context
        .run_to_end(async move {
            let write = shared.writer.write(&owner, store_id, idempotency);
            Ok(change_once(&shared, &write, &command).await)
        })
        .await
}

async fn change_once<C: ToolCommand>(
    shared: &Shared,
    write: &Write<'_>,
    command: &C,
) -> Result<ToolAnswer, Stop> {
    let (seq, is_kept) = match write.run(command).await {
        Ok((WriteResult::Written(written), _)) => {
            let made = written.changes.first().map(made_by);
            return command.answer(write.principal, written.edit.as_ref(), made);
        }
        Ok((WriteResult::Same(head, edit), _)) => {
            // No version shows that the memory is in use.
            shared.access.note_uses(write.principal, [(write.store_id, head.memory_id)]);
            let content = Some((head.content.sha256, head.content.size_bytes));
            let made = WrittenVersion { memory_id: head.memory_id, content, is_new: false };
            return command.answer(write.principal, Some(&*edit), Some(made));
        }
        Ok((WriteResult::Unchanged { .. } | WriteResult::Nothing, _)) => {
            return Err(EngineError::Internal("a tool changed nothing").into());
        }
        Ok((WriteResult::Replayed(seq), _)) => write.earlier_version().await?.unwrap_or((seq, false)),
        // A call that fails now may have succeeded earlier.
        Err(Stop::Tool(error)) => {
            let Some(earlier) = write.earlier_version().await? else {
                write.note_rejection(rejection_of(&error));
                return Err(error.into());
            };
            earlier
        }
        Err(Stop::Engine(error)) => {
            write.note_rejection(error.rejection());
            return Err(Stop::Engine(error));
        }
    };
    replay::answer(write, command, seq, is_kept).await
}

/// How a call with this error is counted, like the same change by the API.
fn rejection_of(error: &ToolError) -> Option<Rejection> {
    match error {
        ToolError::Exists { .. }
        | ToolError::ContentDiffers { .. }
        | ToolError::AlreadyExists { .. }
        | ToolError::DestinationExists { .. }
        | ToolError::ParentIsFile { .. }
        | ToolError::Conflict { .. } => Some(Rejection::Conflict),
        ToolError::Archived
        | ToolError::OverLimit(_)
        | ToolError::FileTooLarge { .. }
        | ToolError::Nul { .. }
        | ToolError::Sensitive { .. }
        | ToolError::Setting { .. }
        | ToolError::Tests { .. } => Some(Rejection::Refusal),
        _ => None,
    }
}

fn made_by(change: &CommitChange) -> WrittenVersion {
    WrittenVersion {
        memory_id: change.memory_id,
        content: change.after().map(|(_, content)| (content.sha256, content.size_bytes)),
        is_new: change.wanted.head().is_none(),
    }
}

impl<C: ToolCommand> Change for C {
    type Read = PathRead;
    type Error = Stop;

    /// Named as in the store, so that changes by the API use the same lock. A rename
    /// locks its source.
    fn locked_path(&self) -> Option<&str> {
        Some(self.path().memory().map_or("/", MemoryPath::as_str))
    }

    async fn read(&self, write: &Write<'_>) -> Result<PathRead, Stop> {
        let reads = self.reads()?;
        let path = self.path();
        write.path(path.memory(), reads).await.map_err(of_read(path))
    }

    fn decide(&self, read: &PathRead) -> Result<Decision, Stop> {
        Ok(self.propose(read)?)
    }

    async fn refused(&self, write: &Write<'_>, _: &PathRead, refusal: Refused) -> Result<Decision, Stop> {
        let path = || self.path().display().to_owned();
        Err(match refusal {
            Refused::PathTaken { .. } | Refused::PathIsDirectory { .. } => match self.path_taken() {
                Some(error) => error,
                None => return Ok(Decision::ReadAgain),
            },
            Refused::Archived => ToolError::Archived,
            Refused::Setting { .. } => ToolError::Setting { path: path() },
            Refused::Tests(error) => ToolError::Tests { path: path(), error },
            Refused::ParentIsFile { path, .. } => {
                below_file(self.destination(), &MemoryPath::from_trusted(path))
            }
            Refused::OverLimit(over) => ToolError::OverLimit(over),
            Refused::Content(rule) => breaks_rule(self.path(), rule),
            Refused::Sensitive { findings, .. } => {
                ToolError::Sensitive { path: path(), found: FindingList(&findings).to_string() }
            }
            Refused::Contended => {
                write.context().metrics.conflicted(Conflict::Contended);
                ToolError::Conflict { path: path() }
            }
            // Of no file: an error for the caller.
            _ => return Err(refusal.into()),
        }
        .into())
    }
}

/// Stores the new content of the file at a path, which may be new.
pub(super) fn store_edit(
    path: &ToolPath,
    edit: Option<Edit>,
    read: &PathRead,
) -> Result<Decision, ToolError> {
    let (Some(edit), Some(memory_path)) = (edit, path.memory()) else {
        return Err(already_exists(path));
    };
    let content = Content::new(edit.content.clone(), read.limit_bytes);
    let content = content.map_err(|rule| breaks_rule(path, rule))?;
    let from = match &read.target {
        Target::Memory(head) => Origin::Live(head.clone()),
        Target::Missing | Target::Directory(_) => Origin::New,
    };
    let stored = ProposedChange::store(from, memory_path.clone(), NewContent::New(content));
    Ok(Decision::Commit(Proposal { edit: Some(edit), ..Proposal::of(read.store, stored) }))
}

/// Deletes a file, optionally only with the expected content, or a directory.
pub(super) fn delete(
    path: &ToolPath,
    expected: Option<ContentHash>,
    read: &PathRead,
) -> Result<Decision, ToolError> {
    match &read.target {
        Target::Missing => Err(not_found(path)),
        Target::Memory(head) if expected.is_some_and(|expected| expected != head.content.sha256) => {
            Err(content_differs(path, head))
        }
        Target::Memory(head) => Ok(Decision::change(read.store, ProposedChange::delete(head.clone()))),
        Target::Directory(_) if expected.is_some() => {
            Err(ToolError::DirectoryHasNoHash { path: path.display().to_owned() })
        }
        Target::Directory(directory) => {
            let changes = read.heads.iter().cloned().map(ProposedChange::delete);
            Ok(change_directory(path, directory.files, changes.collect(), read))
        }
    }
}

pub(super) fn rename(
    old_path: &ToolPath,
    new_path: &ToolPath,
    read: &PathRead,
) -> Result<Decision, ToolError> {
    match (&read.obstacle, new_path.memory()) {
        (Some(Obstacle::Destination), _) | (_, None) => Err(destination_exists(new_path)),
        (Some(Obstacle::File(file)), _) => Err(below_file(new_path, file)),
        (None, Some(to)) => match &read.target {
            Target::Missing => Err(not_found(old_path)),
            Target::Memory(head) => {
                Ok(Decision::change(read.store, ProposedChange::rename(head.clone(), to.clone())))
            }
            Target::Directory(_) if to.is_below(&old_path.dir()) => {
                let (from, to) = (old_path.display().to_owned(), new_path.display().to_owned());
                Err(ToolError::IntoItself { from, to })
            }
            Target::Directory(directory) => {
                let moves = read.heads.iter().cloned();
                let moves = moves.map(|before| rebase(before, old_path, new_path));
                let moves = moves.collect::<Result<_, _>>()?;
                Ok(change_directory(old_path, directory.files, moves, read))
            }
        },
    }
}

fn change_directory(path: &ToolPath, files: u64, changes: Vec<ProposedChange>, read: &PathRead) -> Decision {
    if changes.len() as u64 != files {
        return Decision::ReadAgain; // it moved between the two reads
    }
    Decision::Commit(Proposal {
        store: read.store,
        changes,
        guard: Some(Guard { directory: path.dir(), files }),
        ..Proposal::default()
    })
}

/// Moves one file together with its directory.
fn rebase(before: Head, old_path: &ToolPath, new_path: &ToolPath) -> Result<ProposedChange, ToolError> {
    let to: MemoryPath = before.path.rebased(&old_path.dir(), &new_path.dir()).map_err(|rule| {
        ToolError::PathBelowBreaksRule { path: Some(old_path.display_of(&before.path)), rule }
    })?;
    Ok(ProposedChange::rename(before, to))
}

pub(super) fn already_exists(path: &ToolPath) -> ToolError {
    ToolError::AlreadyExists { path: path.display().to_owned() }
}

pub(super) fn destination_exists(path: &ToolPath) -> ToolError {
    ToolError::DestinationExists { path: path.display().to_owned() }
}

fn not_found(path: &ToolPath) -> ToolError {
    ToolError::NotFound { path: path.display().to_owned() }
}

pub(super) fn content_differs(path: &ToolPath, head: &Head) -> ToolError {
    ToolError::ContentDiffers { path: path.display().to_owned(), current: Some(head.content.sha256) }
}

fn breaks_rule(path: &ToolPath, rule: ContentError) -> ToolError {
    let path = path.display().to_owned();
    match rule {
        ContentError::Nul => ToolError::Nul { path },
        ContentError::TooLarge { size_bytes, limit_bytes } => {
            ToolError::FileTooLarge { path, size_bytes: Some(size_bytes), limit_bytes }
        }
    }
}

fn below_file(path: &ToolPath, file: &MemoryPath) -> ToolError {
    ToolError::ParentIsFile { path: path.display().to_owned(), file: path.display_of(file) }
}
