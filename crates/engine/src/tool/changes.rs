//! Changes by the memory tool and by the agent tools.

use std::sync::Arc;

use keepsake_core::sensitive::Listed;
use keepsake_core::tool::agent::{AgentCall, AgentResult, FilePrecondition, MadeVersion};
use keepsake_core::tool::{Command, Edit, ToolError, ToolPath};
use keepsake_core::{ContentError, ContentHash, MemoryPath, Refused, StoreId};
use keepsake_index::{Change as Committed, Guard, Head};
use keepsake_telemetry::Conflict;
use serde::Serialize;

use super::replay::Replay;
use super::{Stop, ToolCall, of_read, settle};
use crate::access::AccessTimes;
use crate::content::Contents;
use crate::context::Context;
use crate::write::{
    Change, Decision, NewContent, Obstacle, Origin, Outcome, PathRead, PathTarget, Proposal, Proposed, Reads,
    Write, Writer,
};
use crate::{EngineError, IdempotentCalls, Mounts, Principal};

/// A call that changes files. Two calls with the same JSON are the same call.
pub(super) trait ToolChange: Serialize + Send + Sync {
    /// The result for the model.
    type Answer: Send;

    /// The file or directory; the source of a rename.
    fn path(&self) -> &ToolPath;

    fn destination(&self) -> &ToolPath {
        self.path()
    }

    /// The objects to read for the decision. An error means that nothing needs to be read
    /// to refuse the call.
    fn reads(&self) -> Result<Reads<'_>, ToolError>;

    /// A pure function.
    fn decide(&self, read: &PathRead) -> Result<Decision, ToolError>;

    /// The error when something is at the path; `None`: the object at the path came after
    /// the read.
    fn path_taken(&self) -> Option<ToolError>;

    /// `None`: the call brings no content.
    fn edit(&self, before: Option<&str>) -> Result<Option<Edit>, ToolError>;

    /// The answer to a change that was made, now or by an earlier call.
    fn answer(
        &self,
        edit: Option<&Edit>,
        made: Option<MadeVersion>,
        max_chars: u64,
    ) -> Result<Self::Answer, Stop>;
}

#[derive(Debug, Clone)]
pub(crate) struct ToolChanges {
    context: Arc<Context>,
    contents: Arc<Contents>,
    writer: Arc<Writer>,
    access: AccessTimes,
    calls: IdempotentCalls,
}

impl ToolChanges {
    pub(crate) const fn new(
        context: Arc<Context>,
        contents: Arc<Contents>,
        writer: Arc<Writer>,
        access: AccessTimes,
        calls: IdempotentCalls,
    ) -> Self {
        Self { context, contents, writer, access, calls }
    }

    /// Runs to its end even when this future is dropped.
    pub(super) async fn make<T: ToolChange + 'static>(
        &self,
        principal: &Arc<Principal>,
        mounts: &Mounts,
        store_id: StoreId,
        tool: &str,
        call: ToolCall,
        change: T,
    ) -> Result<Result<T::Answer, ToolError>, EngineError> {
        let session_id = mounts.session_id().or(principal.session_id());
        let idempotency = call.idempotency.or_else(|| {
            let id = call.tool_use_id.as_deref()?;
            Some(self.calls.of_tool_call(principal, session_id, store_id, tool, id, &change))
        });
        let (changes, owner) = (self.clone(), Arc::clone(principal));
        self.context
            .run_to_end(async move {
                let write = changes.writer.write(&owner, store_id, idempotency);
                settle(changes.make_once(&write, change).await)
            })
            .await
    }

    async fn make_once<T: ToolChange>(&self, write: &Write<'_>, call: T) -> Result<T::Answer, Stop> {
        let change = FileChange(call);
        let (seq, is_kept) = match write.run(&change).await {
            Ok(Outcome::Written(written, _)) => {
                let made = written.changes.first().map(made_by);
                let max_chars = write.principal.limits.max_view_chars;
                return change.0.answer(written.edit.as_ref(), made, max_chars);
            }
            Ok(Outcome::Same(head, edit)) => {
                // No version shows that the memory is in use.
                self.access.note_read(write.principal, write.store_id, head.memory_id);
                let content = Some((head.content.sha256, head.content.size_bytes));
                let made = MadeVersion { memory_id: head.memory_id, content, is_new: false };
                return change.0.answer(Some(&*edit), Some(made), write.principal.limits.max_view_chars);
            }
            Ok(Outcome::Unchanged(..) | Outcome::Nothing(_)) => {
                return Err(EngineError::Internal("a tool changed nothing").into());
            }
            Ok(Outcome::Replayed(seq)) => write.earlier_version().await?.unwrap_or((seq, false)),
            // A call that fails now may have succeeded earlier.
            Err(Stop::Tool(error)) => match write.earlier_version().await? {
                Some(earlier) => earlier,
                None => return Err(error.into()),
            },
            Err(error) => return Err(error),
        };
        let replay = Replay {
            context: &self.context,
            contents: &self.contents,
            tenant_id: write.principal.tenant_id,
            store_id: write.store_id,
            max_chars: write.principal.limits.max_view_chars,
        };
        replay.answer(&change.0, seq, is_kept).await
    }
}

fn made_by(change: &Committed) -> MadeVersion {
    MadeVersion {
        memory_id: change.memory_id,
        content: change.after.as_ref().map(|after| (after.content.sha256, after.content.size_bytes)),
        is_new: change.before.is_none(),
    }
}

struct FileChange<T>(T);

impl<T: ToolChange> Change for FileChange<T> {
    type Read = PathRead;
    type Error = Stop;

    /// Named as in the store, so that changes by the API use the same lock. A rename
    /// locks its source.
    fn path(&self) -> Option<&str> {
        Some(self.0.path().memory().map_or("/", MemoryPath::as_str))
    }

    async fn read(&self, write: &Write<'_>) -> Result<PathRead, Stop> {
        let reads = self.0.reads()?;
        let path = self.0.path();
        write.path(path.memory(), reads).await.map_err(of_read(path))
    }

    fn decide(&self, read: &PathRead) -> Result<Decision, Stop> {
        Ok(self.0.decide(read)?)
    }

    async fn refused(&self, write: &Write<'_>, _: &PathRead, refusal: Refused) -> Result<Decision, Stop> {
        let path = || self.0.path().display().to_owned();
        Err(match refusal {
            Refused::PathTaken { .. } | Refused::PathIsDirectory { .. } => match self.0.path_taken() {
                Some(error) => error,
                None => return Ok(Decision::ReadAgain),
            },
            Refused::Archived => ToolError::Archived,
            Refused::ParentIsFile { path, .. } => {
                below_file(self.0.destination(), &MemoryPath::from_trusted(path))
            }
            Refused::OverLimit(over) => ToolError::OverLimit(over),
            Refused::Content(ContentError::Nul) => ToolError::Nul { path: path() },
            Refused::Content(ContentError::TooLarge { size_bytes, limit_bytes }) => {
                ToolError::FileTooLarge { path: path(), size_bytes: Some(size_bytes), limit_bytes }
            }
            Refused::Sensitive { findings, .. } => {
                ToolError::Sensitive { path: path(), found: Listed(&findings).to_string() }
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

impl ToolChange for Command {
    type Answer = String;

    fn path(&self) -> &ToolPath {
        self.path()
    }

    fn destination(&self) -> &ToolPath {
        match self {
            Self::Rename { new_path, .. } => new_path,
            _ => self.path(),
        }
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

    fn decide(&self, read: &PathRead) -> Result<Decision, ToolError> {
        match self {
            Self::Delete { path } => delete(path, None, read),
            Self::Rename { old_path, new_path } => rename(old_path, new_path, read),
            Self::View { .. } | Self::Create { .. } | Self::StrReplace { .. } | Self::Insert { .. } => {
                store_edit(self.path(), self.edit(read.text())?, read)
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

    fn edit(&self, before: Option<&str>) -> Result<Option<Edit>, ToolError> {
        self.edit(before)
    }

    fn answer(&self, edit: Option<&Edit>, _: Option<MadeVersion>, max_chars: u64) -> Result<String, Stop> {
        let message = self.message(edit, max_chars);
        message.ok_or_else(|| EngineError::Internal("a view was taken for a change").into())
    }
}

impl ToolChange for AgentCall {
    type Answer = AgentResult;

    fn path(&self) -> &ToolPath {
        self.path()
    }

    fn reads(&self) -> Result<Reads<'_>, ToolError> {
        match self {
            Self::List { .. } | Self::Search { .. } | Self::Read { .. } => Ok(Reads::Nothing),
            Self::Edit { .. } | Self::Append { .. } => Ok(Reads::Content),
            Self::Delete { path, .. } if path.is_root() => Err(ToolError::CannotDeleteRoot),
            Self::Delete { expected: None, .. } => Ok(Reads::Tree),
            Self::Write { .. } | Self::Delete { .. } => Ok(Reads::Head),
        }
    }

    fn decide(&self, read: &PathRead) -> Result<Decision, ToolError> {
        let path = self.path();
        if let Self::Delete { expected, .. } = self {
            return delete(path, *expected, read);
        }
        let head = match &read.target {
            PathTarget::Missing => None,
            PathTarget::File(head, _) => Some(head),
            PathTarget::Directory { .. } => {
                return Err(ToolError::IsDirectory { path: path.display().to_owned() });
            }
        };
        match (self.precondition(), head) {
            (Some(FilePrecondition::NotExists), Some(head)) => {
                return Err(ToolError::Exists {
                    path: path.display().to_owned(),
                    current: Some(head.content.sha256),
                });
            }
            (Some(FilePrecondition::ContentSha256(_)), None) => return Err(self.missing()),
            (Some(FilePrecondition::ContentSha256(expected)), Some(head))
                if expected != head.content.sha256 && !is_applied(self, head) =>
            {
                return Err(content_differs(path, head));
            }
            _ => {}
        }
        store_edit(path, self.edit(read.text())?, read)
    }

    fn path_taken(&self) -> Option<ToolError> {
        None
    }

    fn edit(&self, before: Option<&str>) -> Result<Option<Edit>, ToolError> {
        self.edit(before)
    }

    fn answer(
        &self,
        edit: Option<&Edit>,
        made: Option<MadeVersion>,
        max_chars: u64,
    ) -> Result<AgentResult, Stop> {
        let result = self.result(edit, made, max_chars)?;
        result.ok_or_else(|| EngineError::Internal("a read was taken for a change").into())
    }
}

/// Whether the file has the content of a write already, as after an earlier try.
fn is_applied(call: &AgentCall, head: &Head) -> bool {
    match call {
        AgentCall::Write { content, .. } => head.content.sha256 == ContentHash::of(content.as_bytes()),
        _ => false,
    }
}

/// Stores the new content of the file at a path, which may be new.
fn store_edit(path: &ToolPath, edit: Option<Edit>, read: &PathRead) -> Result<Decision, ToolError> {
    let (Some(edit), Some(memory_path)) = (edit, path.memory()) else {
        return Err(already_exists(path));
    };
    let from = match &read.target {
        PathTarget::File(head, _) => Origin::Live(head.clone()),
        PathTarget::Missing | PathTarget::Directory { .. } => Origin::New,
    };
    let stored = Proposed::store(from, memory_path.clone(), NewContent::Edited(edit));
    Ok(Decision::change(read.store, stored))
}

/// Deletes a file, optionally only with the expected content, or a directory.
fn delete(path: &ToolPath, expected: Option<ContentHash>, read: &PathRead) -> Result<Decision, ToolError> {
    match &read.target {
        PathTarget::Missing => Err(not_found(path)),
        PathTarget::File(head, _) if expected.is_some_and(|expected| expected != head.content.sha256) => {
            Err(content_differs(path, head))
        }
        PathTarget::File(head, _) => Ok(Decision::change(read.store, Proposed::delete(head.clone()))),
        PathTarget::Directory { .. } if expected.is_some() => {
            Err(ToolError::DirectoryHasNoHash { path: path.display().to_owned() })
        }
        PathTarget::Directory { files, heads } => {
            let changes = heads.iter().cloned().map(Proposed::delete);
            Ok(change_directory(path, *files, changes.collect(), read))
        }
    }
}

fn rename(old_path: &ToolPath, new_path: &ToolPath, read: &PathRead) -> Result<Decision, ToolError> {
    match (&read.obstacle, new_path.memory()) {
        (Some(Obstacle::Destination), _) | (_, None) => Err(destination_exists(new_path)),
        (Some(Obstacle::File(file)), _) => Err(below_file(new_path, file)),
        (None, Some(to)) => match &read.target {
            PathTarget::Missing => Err(not_found(old_path)),
            PathTarget::File(head, _) => {
                Ok(Decision::change(read.store, Proposed::rename(head.clone(), to.clone())))
            }
            PathTarget::Directory { .. } if to.is_below(&old_path.dir()) => {
                let (from, to) = (old_path.display().to_owned(), new_path.display().to_owned());
                Err(ToolError::IntoItself { from, to })
            }
            PathTarget::Directory { files, heads } => {
                let moves = heads.iter().cloned();
                let moves = moves.map(|before| rebase(before, old_path, new_path));
                let moves = moves.collect::<Result<_, _>>()?;
                Ok(change_directory(old_path, *files, moves, read))
            }
        },
    }
}

fn change_directory(path: &ToolPath, files: u64, changes: Vec<Proposed>, read: &PathRead) -> Decision {
    if changes.len() as u64 != files {
        return Decision::ReadAgain; // it moved between the two reads
    }
    Decision::Commit(Proposal {
        store: read.store,
        changes,
        guard: Some(Guard { directory: path.dir(), files }),
        kept: Vec::new(),
        results: None,
    })
}

/// Moves one file together with its directory.
fn rebase(before: Head, old_path: &ToolPath, new_path: &ToolPath) -> Result<Proposed, ToolError> {
    let to: MemoryPath = before.path.rebased(&old_path.dir(), &new_path.dir()).map_err(|rule| {
        ToolError::PathBelowBreaksRule { path: Some(old_path.display_of(&before.path)), rule }
    })?;
    Ok(Proposed::rename(before, to))
}

fn already_exists(path: &ToolPath) -> ToolError {
    ToolError::AlreadyExists { path: path.display().to_owned() }
}

fn destination_exists(path: &ToolPath) -> ToolError {
    ToolError::DestinationExists { path: path.display().to_owned() }
}

fn not_found(path: &ToolPath) -> ToolError {
    ToolError::NotFound { path: path.display().to_owned() }
}

fn content_differs(path: &ToolPath, head: &Head) -> ToolError {
    ToolError::ContentDiffers { path: path.display().to_owned(), current: Some(head.content.sha256) }
}

fn below_file(path: &ToolPath, file: &MemoryPath) -> ToolError {
    ToolError::ParentIsFile { path: path.display().to_owned(), file: path.display_of(file) }
}
