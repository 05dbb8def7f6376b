//! The five commands that change memories.

use keepsake_core::sensitive::{Finding, Listed, Redacted};
use keepsake_core::tool::{
    Command, Edit, ToolError, ToolPath, created_message, deleted_message, insert, renamed_message,
    str_replace,
};
use keepsake_core::{Content, ContentError, ContentHash, MemoryPath, SensitiveDataPolicy, StoreId};
use keepsake_index::{Change, Guard, Head, Idempotency, Lookup, Target};
use keepsake_telemetry::Conflict;

use super::{Found, Stop};
use crate::claims::Patience;
use crate::edits::Turn;
use crate::protocol::{CAS_ATTEMPTS, Committed, Proposal, Proposed, WriteRefusal};
use crate::sensitive::Verdict;
use crate::{Engine, EngineError, Principal};

/// The result of one attempt.
pub(super) enum Try<T> {
    Done(T),
    /// Something changed since the read: read again.
    Again,
    /// The same call succeeded earlier.
    Replayed(i64),
}

/// The context of one change.
pub(super) struct Call<'a> {
    pub(super) engine: &'a Engine,
    pub(super) principal: &'a Principal,
    pub(super) store_id: StoreId,
    pub(super) idempotency: Option<Idempotency>,
}

impl Engine {
    pub(super) async fn change(
        &self,
        principal: &Principal,
        store_id: StoreId,
        command: Command,
        idempotency: Option<Idempotency>,
    ) -> Result<String, Stop> {
        let call = Call {
            engine: self,
            principal,
            store_id,
            idempotency,
        };
        let outcome = call.run(&command).await;
        // A call that fails now may have succeeded earlier.
        if let (Err(Stop::Tool(_)), Some(key)) = (&outcome, &idempotency) {
            let first = self.replayed(principal, Some(key)).await?;
            if let Some(seq) = first.and_then(|first| first.seq) {
                return Ok(self.replay(principal, store_id, &command, seq).await?);
            }
        }
        outcome
    }
}

impl Call<'_> {
    async fn run(&self, command: &Command) -> Result<String, Stop> {
        // A rename queues for its source path.
        let _turn = self.turn(command.path()).await;
        for _ in 0..CAS_ATTEMPTS {
            let tried = match command {
                Command::View { .. } => {
                    return Err(EngineError::Internal("a view was taken for a change").into());
                }
                Command::Create { path, file_text } => self.create(path, file_text).await?,
                Command::StrReplace {
                    path,
                    old_str,
                    new_str,
                } => {
                    let missing = ToolError::NotFoundEdit {
                        path: path.display().to_owned(),
                    };
                    self.edit(path, missing, |text| str_replace(path, text, old_str, new_str))
                        .await?
                }
                Command::Insert {
                    path,
                    insert_line,
                    insert_text,
                } => {
                    let missing = ToolError::NotFound {
                        path: path.display().to_owned(),
                    };
                    self.edit(path, missing, |text| {
                        insert(path, text, *insert_line, insert_text)
                    })
                    .await?
                }
                Command::Delete { path } => self.delete(path, None, deleted_message).await?,
                Command::Rename { old_path, new_path } => self.rename(old_path, new_path).await?,
            };
            match tried {
                Try::Done(message) => return Ok(message),
                Try::Again => {}
                Try::Replayed(seq) => {
                    return Ok(self
                        .engine
                        .replay(self.principal, self.store_id, command, seq)
                        .await?);
                }
            }
        }
        Err(self.lost_again_and_again(command.path()).into())
    }

    /// Queues for a path. The path is named as in the store, so that changes by
    /// the API use the same queue.
    pub(super) async fn turn(&self, path: &ToolPath) -> Turn {
        let in_store = path.memory().map_or("/", MemoryPath::as_str).to_owned();
        let place = (self.principal.tenant_id, self.store_id, in_store);
        self.engine.0.edits.turn(place).await
    }

    pub(super) fn lost_again_and_again(&self, path: &ToolPath) -> ToolError {
        self.engine.0.metrics.conflicted(Conflict::Contended);
        ToolError::Conflict {
            path: path.display().to_owned(),
        }
    }

    async fn create(&self, path: &ToolPath, file_text: &str) -> Result<Try<String>, Stop> {
        let Some(memory_path) = path.memory() else {
            return Err(ToolError::AlreadyExists {
                path: path.display().to_owned(),
            }
            .into());
        };
        let edit = Edit::with_message(file_text.to_owned(), created_message(path));
        let (edit, policy) = self.judge(path, None, edit).await?;
        let content = self.content(path, edit.content)?;
        // No read first: the commit checks whether the path is free.
        let change = Proposed::Create {
            path: memory_path.clone(),
            content,
        };
        match self.commit(vec![change], None, policy).await? {
            Committed::Refused(WriteRefusal::PathTaken { .. }) => Err(ToolError::AlreadyExists {
                path: path.display().to_owned(),
            }
            .into()),
            outcome => self.conclude(path, outcome, |_| edit.message),
        }
    }

    async fn edit(
        &self,
        path: &ToolPath,
        missing: ToolError,
        apply: impl Fn(&str) -> Result<Edit, ToolError>,
    ) -> Result<Try<String>, Stop> {
        let (store, found) = self.find_unclaimed(path).await?;
        let Found::Memory(head, text) = found else {
            return Err(missing.into());
        };
        let edit = apply(&text)?;
        if store.is_archived {
            return Err(ToolError::Archived.into());
        }
        let (edit, policy) = self.judge(path, Some(&text), edit).await?;
        let content = self.content(path, edit.content)?;
        let memory_id = head.memory_id;
        let change = Proposed::edit(head, content);
        let outcome = self.commit(vec![change], None, policy).await?;
        if outcome == Committed::Refused(WriteRefusal::Stale) {
            // Another replica committed first.
            self.engine
                .claim(self.principal, self.store_id, memory_id)
                .await?;
        }
        self.conclude(path, outcome, |_| edit.message)
    }

    /// Reads a memory once no other replica claims its next edit.
    pub(super) async fn find_unclaimed(
        &self,
        path: &ToolPath,
    ) -> Result<(keepsake_index::StoreState, Found), EngineError> {
        let mut patience = Patience::new();
        loop {
            let (store, found) = self
                .engine
                .find(self.principal, self.store_id, path.memory(), 0)
                .await?;
            match &found {
                Found::Memory(head, _) if self.engine.yields_to_claim(head, &mut patience).await => {}
                _ => return Ok((store, found)),
            }
        }
    }

    /// Deletes a file, optionally only with the expected content, or a
    /// directory.
    pub(super) async fn delete<T>(
        &self,
        path: &ToolPath,
        expected: Option<ContentHash>,
        done: impl FnOnce(&ToolPath) -> T,
    ) -> Result<Try<T>, Stop> {
        if path.is_root() {
            return Err(ToolError::CannotDeleteRoot.into());
        }
        let lookup = self.look_up(path).await?;
        let (changes, guard) = match lookup.target {
            Target::Missing => {
                return Err(ToolError::NotFound {
                    path: path.display().to_owned(),
                }
                .into());
            }
            Target::Memory(head) if expected.is_some_and(|expected| expected != head.sha256) => {
                return Err(ToolError::ContentDiffers {
                    path: path.display().to_owned(),
                    current: Some(head.sha256),
                }
                .into());
            }
            Target::Memory(head) => (vec![Proposed::Delete { before: head }], None),
            Target::Directory(_) if expected.is_some() => {
                return Err(ToolError::DirectoryHasNoHash {
                    path: path.display().to_owned(),
                }
                .into());
            }
            Target::Directory(directory) => {
                let heads = self.heads_below(path).await?;
                let guard = Guard {
                    directory: path.dir(),
                    files: directory.files,
                };
                if heads.len() as u64 != directory.files {
                    return Ok(Try::Again); // it moved between the two reads
                }
                (
                    heads
                        .into_iter()
                        .map(|before| Proposed::Delete { before })
                        .collect(),
                    Some(guard),
                )
            }
        };
        let outcome = self.commit(changes, guard, None).await?;
        self.conclude(path, outcome, |_| done(path))
    }

    async fn rename(&self, old_path: &ToolPath, new_path: &ToolPath) -> Result<Try<String>, Stop> {
        if old_path.is_root() {
            return Err(ToolError::CannotRenameRoot.into());
        }
        let destination_exists = || ToolError::DestinationExists {
            path: new_path.display().to_owned(),
        };
        let Some(to) = new_path.memory() else {
            return Err(destination_exists().into());
        };
        if self.look_up(new_path).await?.target != Target::Missing {
            return Err(destination_exists().into());
        }
        let lookup = self.look_up(old_path).await?;
        let (changes, guard) = match lookup.target {
            Target::Missing => {
                self.refuse_below_a_file(new_path, to).await?;
                return Err(ToolError::NotFound {
                    path: old_path.display().to_owned(),
                }
                .into());
            }
            Target::Memory(before) => (vec![Proposed::rename(before, to.clone())], None),
            Target::Directory(directory) => {
                if to.is_below(&old_path.dir()) {
                    let (from, to) = (old_path.display().to_owned(), new_path.display().to_owned());
                    return Err(ToolError::IntoItself { from, to }.into());
                }
                let heads = self.heads_below(old_path).await?;
                if heads.len() as u64 != directory.files {
                    return Ok(Try::Again); // it moved between the two reads
                }
                let guard = Guard {
                    directory: old_path.dir(),
                    files: directory.files,
                };
                let moves = heads.into_iter().map(|before| rebase(before, old_path, new_path));
                (moves.collect::<Result<_, _>>()?, Some(guard))
            }
        };
        match self.commit(changes, guard, None).await? {
            Committed::Refused(WriteRefusal::PathTaken { .. }) => Err(destination_exists().into()),
            outcome => self.conclude(new_path, outcome, |_| renamed_message(old_path, new_path)),
        }
    }

    /// Refuses a destination below a file. The commit checks this too, but a
    /// call that fails earlier must report the destination before the source.
    async fn refuse_below_a_file(&self, path: &ToolPath, memory_path: &MemoryPath) -> Result<(), Stop> {
        for ancestor in memory_path.ancestor_files() {
            let file = MemoryPath::from_trusted(ancestor.to_owned());
            if let Target::Memory(_) = self.look_up_memory(Some(&file)).await?.target {
                return Err(ToolError::ParentIsFile {
                    path: path.display().to_owned(),
                    file: path.display_of(&file),
                }
                .into());
            }
        }
        Ok(())
    }

    pub(super) async fn look_up(&self, path: &ToolPath) -> Result<Lookup, EngineError> {
        self.look_up_memory(path.memory()).await
    }

    async fn look_up_memory(&self, path: Option<&MemoryPath>) -> Result<Lookup, EngineError> {
        let lookup = self
            .engine
            .0
            .index
            .memories
            .head(self.principal.tenant_id, self.store_id, path, 0)
            .await?;
        lookup.ok_or(EngineError::StoreNotFound)
    }

    async fn heads_below(&self, path: &ToolPath) -> Result<Vec<Head>, EngineError> {
        Ok(self
            .engine
            .0
            .index
            .memories
            .heads_below(self.principal.tenant_id, self.store_id, &path.dir())
            .await?)
    }

    /// Validates new content against the tenant's limits.
    pub(super) fn content(&self, path: &ToolPath, text: String) -> Result<Content, ToolError> {
        Content::new(text, self.principal.limits.bytes_per_memory).map_err(|error| {
            let path = path.display().to_owned();
            match error {
                ContentError::Nul => ToolError::Nul { path },
                ContentError::TooLarge {
                    size_bytes,
                    limit_bytes,
                } => ToolError::FileTooLarge {
                    path,
                    size_bytes: Some(size_bytes),
                    limit_bytes,
                },
            }
        })
    }

    /// Applies the store's policy to the lines that an edit adds. Returns the
    /// edit to store, and the policy for the commit.
    async fn judge(
        &self,
        path: &ToolPath,
        before: Option<&str>,
        edit: Edit,
    ) -> Result<(Edit, Option<SensitiveDataPolicy>), Stop> {
        let (redacted, policy) = self
            .judge_text(path, before, &edit.content, std::convert::identity)
            .await?;
        let edit = match redacted {
            Some(redacted) => edit.redacted(redacted),
            None => edit,
        };
        Ok((edit, policy))
    }

    /// Applies the store's policy to new content. Returns the redacted text, if
    /// any, and the policy for the commit.
    ///
    /// `in_lines_sent` converts the findings' line numbers to lines of the
    /// request.
    pub(super) async fn judge_text(
        &self,
        path: &ToolPath,
        before: Option<&str>,
        text: &str,
        in_lines_sent: impl FnOnce(Vec<Finding>) -> Vec<Finding>,
    ) -> Result<(Option<Redacted>, Option<SensitiveDataPolicy>), Stop> {
        let verdict = self
            .engine
            .judge(self.principal, self.store_id, before, text)
            .await?;
        match verdict {
            Verdict::Keep(policy) => Ok((None, policy)),
            Verdict::Redact(redacted) => Ok((Some(redacted), Some(SensitiveDataPolicy::Redact))),
            Verdict::Refuse(findings) => Err(ToolError::Sensitive {
                path: path.display().to_owned(),
                found: Listed(&in_lines_sent(findings)).to_string(),
            }
            .into()),
        }
    }

    pub(super) async fn commit(
        &self,
        changes: Vec<Proposed>,
        guard: Option<Guard>,
        policy: Option<SensitiveDataPolicy>,
    ) -> Result<Committed, EngineError> {
        let (store_id, idempotency) = (self.store_id, self.idempotency);
        let proposal = Proposal {
            store_id,
            changes,
            guard,
            purge_epoch: None,
            policy,
            idempotency,
        };
        self.engine.commit(self.principal, proposal).await
    }

    /// Converts the result of a commit to an answer for the model.
    pub(super) fn conclude<T>(
        &self,
        path: &ToolPath,
        outcome: Committed,
        done: impl FnOnce(&[Change]) -> T,
    ) -> Result<Try<T>, Stop> {
        let limits = &self.principal.limits;
        let refusal = match outcome {
            Committed::Done { made, .. } => return Ok(Try::Done(done(&made))),
            Committed::Replayed { seq } => return Ok(Try::Replayed(seq)),
            Committed::Refused(refusal) => refusal,
        };
        Err(match refusal {
            // An edit or a delete takes no new path, so the state changed: read
            // again.
            WriteRefusal::Stale | WriteRefusal::PathTaken { .. } => return Ok(Try::Again),
            WriteRefusal::Archived => ToolError::Archived,
            WriteRefusal::ParentIsFile { file, .. } => ToolError::ParentIsFile {
                path: path.display().to_owned(),
                file: path.display_of(&file),
            },
            WriteRefusal::TooManyMemories { count } => ToolError::TooManyMemories {
                count,
                limit: limits.memories_per_store,
            },
            WriteRefusal::StoreFull { size_bytes } => ToolError::StoreFull {
                size_bytes: Some(size_bytes),
                limit_bytes: limits.bytes_per_store,
            },
            WriteRefusal::TenantFull { size_bytes } => ToolError::TenantFull {
                size_bytes: Some(size_bytes),
                limit_bytes: limits.bytes_per_tenant,
            },
        }
        .into())
    }
}

/// Moves one file together with its directory.
fn rebase(before: Head, old_path: &ToolPath, new_path: &ToolPath) -> Result<Proposed, ToolError> {
    let to: MemoryPath = before
        .path
        .rebased(&old_path.dir(), &new_path.dir())
        .map_err(|rule| ToolError::PathBelowBreaksRule {
            path: Some(old_path.display_of(&before.path)),
            rule,
        })?;
    Ok(Proposed::rename(before, to))
}
