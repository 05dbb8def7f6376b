//! The four agent tools that change memories.

use keepsake_core::tool::agent::{
    AgentCall, AgentEdit, AgentResult, Deletion, EditedFile, FilePrecondition, Replacement, WriteOutcome,
    WrittenFile, append, apply_edits, redactions, written,
};
use keepsake_core::tool::{ToolError, ToolPath};
use keepsake_core::{ContentHash, SensitiveDataPolicy, StoreId};
use keepsake_index::{Change, Head, Idempotency, Lookup, StoreState, Target};

use super::super::changes::{Call, Try};
use super::super::{Found, Stop};
use super::{is_directory, missing};
use crate::claims::Patience;
use crate::protocol::{CAS_ATTEMPTS, Committed, Proposed, WriteRefusal};
use crate::{Engine, EngineError, Principal};

/// The file before a change.
struct Before<'a> {
    head: Head,
    /// `None`: not read, because the scanner found nothing in the new content.
    text: Option<&'a str>,
}

impl Engine {
    pub(super) async fn change_for_agent(
        &self,
        principal: &Principal,
        store_id: StoreId,
        agent_call: AgentCall,
        idempotency: Option<Idempotency>,
    ) -> Result<AgentResult, Stop> {
        let call = Call {
            engine: self,
            principal,
            store_id,
            idempotency,
        };
        let outcome = call.run_for_agent(&agent_call).await;
        // A call that fails now may have succeeded earlier.
        if let (Err(Stop::Tool(_)), Some(key)) = (&outcome, &idempotency) {
            let first = self.replayed(principal, Some(key)).await?;
            if let Some(seq) = first.and_then(|first| first.seq) {
                return self.replay_for_agent(principal, store_id, &agent_call, seq).await;
            }
        }
        outcome
    }
}

impl Call<'_> {
    async fn run_for_agent(&self, call: &AgentCall) -> Result<AgentResult, Stop> {
        let _turn = self.turn(call.path()).await;
        for _ in 0..CAS_ATTEMPTS {
            let tried = match call {
                AgentCall::Write {
                    path,
                    content,
                    precondition,
                } => self.write(path, content, *precondition).await?,
                AgentCall::Edit {
                    path,
                    edits,
                    expected,
                } => self.edit_for_agent(path, edits, *expected).await?,
                AgentCall::Append {
                    path,
                    content,
                    precondition,
                } => self.append(path, content, *precondition).await?,
                AgentCall::Delete { path, expected } => self.delete(path, *expected, deleted).await?,
                AgentCall::List { .. } | AgentCall::Search { .. } | AgentCall::Read { .. } => {
                    return Err(EngineError::Internal("a read was taken for a change").into());
                }
            };
            match tried {
                Try::Done(result) => return Ok(result),
                Try::Again => {}
                Try::Replayed(seq) => {
                    let (principal, store_id) = (self.principal, self.store_id);
                    return self.engine.replay_for_agent(principal, store_id, call, seq).await;
                }
            }
        }
        Err(self.lost_again_and_again(call.path()).into())
    }

    async fn write(
        &self,
        path: &ToolPath,
        content: &str,
        precondition: Option<FilePrecondition>,
    ) -> Result<Try<AgentResult>, Stop> {
        let (store, head) = self.head_unclaimed(path).await?;
        let is_applied = head
            .as_ref()
            .is_some_and(|head| head.sha256 == ContentHash::of(content.as_bytes()));
        let holds = hold(path, head.as_ref(), precondition);
        if let Err(error) = holds
            && !(is_applied && matches!(precondition, Some(FilePrecondition::ContentSha256(_))))
        {
            return Err(error.into());
        }
        // The previous content is needed only if the new content has a secret.
        let is_clean = self.engine.0.scanner.scan(content).is_empty();
        let text = match &head {
            Some(head) if !is_clean => {
                let (tenant_id, epoch) = (self.principal.tenant_id, store.purge_epoch);
                let text = self.engine.content_of(tenant_id, self.store_id, epoch, head);
                match text.await? {
                    Some(text) => Some(text),
                    None => return Ok(Try::Again), // it was changed since
                }
            }
            _ => None,
        };
        let before = head.map(|head| Before {
            head,
            text: text.as_deref(),
        });
        self.keep(path, store, before, written(content.to_owned()), replaced)
            .await
    }

    async fn append(
        &self,
        path: &ToolPath,
        content: &str,
        precondition: Option<FilePrecondition>,
    ) -> Result<Try<AgentResult>, Stop> {
        let (store, found) = self.find_unclaimed(path).await?;
        let (head, text) = match found {
            Found::Directory(_) => return Err(is_directory(path).into()),
            Found::Missing => (None, None),
            Found::Memory(head, text) => (Some(head), Some(text)),
        };
        hold(path, head.as_ref(), precondition)?;
        let edit = append(text.as_deref().unwrap_or_default(), content);
        let before = head.map(|head| Before {
            head,
            text: text.as_deref(),
        });
        self.keep(path, store, before, edit, appended).await
    }

    async fn edit_for_agent(
        &self,
        path: &ToolPath,
        edits: &[Replacement],
        expected: Option<ContentHash>,
    ) -> Result<Try<AgentResult>, Stop> {
        let (store, found) = self.find_unclaimed(path).await?;
        let (head, text) = match found {
            Found::Directory(_) => return Err(is_directory(path).into()),
            Found::Missing => return Err(missing(path).into()),
            Found::Memory(head, text) => (head, text),
        };
        hold(path, Some(&head), expected.map(FilePrecondition::ContentSha256))?;
        let edit = apply_edits(path, &text, edits)?;
        let before = Before {
            head,
            text: Some(&text),
        };
        let max_chars = self.principal.limits.max_view_chars;
        let count = edits.len();
        self.keep(path, store, Some(before), edit, |path, edit, change| {
            let after = change.after.as_ref();
            AgentResult::Edit(EditedFile {
                path: path.display().to_owned(),
                edits: count,
                memory_id: change.memory_id.to_string(),
                content_sha256: after.map(|after| after.sha256.to_string()),
                content_size_bytes: after.map(|after| after.size_bytes),
                snippets: edit.snippets(max_chars),
                redactions: redactions(&edit.findings),
            })
        })
        .await
    }

    /// Commits the new content of a file.
    async fn keep(
        &self,
        path: &ToolPath,
        store: StoreState,
        before: Option<Before<'_>>,
        edit: AgentEdit,
        result: impl FnOnce(&ToolPath, &AgentEdit, &Change) -> AgentResult,
    ) -> Result<Try<AgentResult>, Stop> {
        let Some(memory_path) = path.memory() else {
            return Err(is_directory(path).into());
        };
        if store.is_archived {
            return Err(ToolError::Archived.into());
        }
        let text_before = before.as_ref().and_then(|before| before.text);
        let (edit, policy) = self.judge_edit(path, text_before, edit).await?;
        let content = self.content(path, edit.content.clone())?;
        let memory_id = before.as_ref().map(|before| before.head.memory_id);
        let change = match before {
            Some(Before { head, .. }) => Proposed::edit(head, content),
            None => Proposed::Create {
                path: memory_path.clone(),
                content,
            },
        };
        let outcome = self.commit(vec![change], None, policy).await?;
        if let (Committed::Refused(WriteRefusal::Stale), Some(memory_id)) = (&outcome, memory_id) {
            // Another replica committed first.
            self.engine
                .claim(self.principal, self.store_id, memory_id)
                .await?;
        }
        let mut made = None;
        let tried = self.conclude(path, outcome, |changes| {
            made = changes.first().map(|change| result(path, &edit, change));
        })?;
        Ok(match tried {
            Try::Done(()) => Try::Done(made.ok_or(EngineError::Internal("a commit changed no memory"))?),
            Try::Again => Try::Again,
            Try::Replayed(seq) => Try::Replayed(seq),
        })
    }

    async fn judge_edit(
        &self,
        path: &ToolPath,
        before: Option<&str>,
        edit: AgentEdit,
    ) -> Result<(AgentEdit, Option<SensitiveDataPolicy>), Stop> {
        let in_lines_sent = |findings| edit.in_lines_sent(findings);
        let (redacted, policy) = self
            .judge_text(path, before, &edit.content, in_lines_sent)
            .await?;
        let edit = match redacted {
            Some(redacted) => edit.redacted(redacted),
            None => edit,
        };
        Ok((edit, policy))
    }

    /// Reads the head at a path once no other replica claims its next edit;
    /// `None`: nothing exists there.
    async fn head_unclaimed(&self, path: &ToolPath) -> Result<(StoreState, Option<Head>), Stop> {
        let mut patience = Patience::new();
        loop {
            let Lookup { store, target } = self.look_up(path).await?;
            match target {
                Target::Memory(head) if self.engine.yields_to_claim(&head, &mut patience).await => {}
                Target::Memory(head) => return Ok((store, Some(head))),
                Target::Missing => return Ok((store, None)),
                Target::Directory(_) => return Err(is_directory(path).into()),
            }
        }
    }
}

/// Checks a precondition against the head at a path.
fn hold(
    path: &ToolPath,
    head: Option<&Head>,
    precondition: Option<FilePrecondition>,
) -> Result<(), ToolError> {
    let named = || path.display().to_owned();
    match (precondition, head) {
        (Some(FilePrecondition::NotExists), Some(head)) => Err(ToolError::Exists {
            path: named(),
            current: Some(head.sha256),
        }),
        (Some(FilePrecondition::ContentSha256(_)), None) => Err(missing(path)),
        (Some(FilePrecondition::ContentSha256(expected)), Some(head)) if expected != head.sha256 => {
            Err(ToolError::ContentDiffers {
                path: named(),
                current: Some(head.sha256),
            })
        }
        _ => Ok(()),
    }
}

pub(super) fn deleted(path: &ToolPath) -> AgentResult {
    AgentResult::Delete(Deletion {
        path: path.display().to_owned(),
        deleted: true,
    })
}

/// The result for a file that was written as a whole.
fn replaced(path: &ToolPath, edit: &AgentEdit, change: &Change) -> AgentResult {
    let outcome = match change.before {
        Some(_) => WriteOutcome::Replaced,
        None => WriteOutcome::Created,
    };
    wrote(path, outcome, edit, change)
}

/// The result for a file that was appended to.
fn appended(path: &ToolPath, edit: &AgentEdit, change: &Change) -> AgentResult {
    let outcome = match change.before {
        Some(_) => WriteOutcome::Appended,
        None => WriteOutcome::Created,
    };
    wrote(path, outcome, edit, change)
}

fn wrote(path: &ToolPath, outcome: WriteOutcome, edit: &AgentEdit, change: &Change) -> AgentResult {
    let after = change.after.as_ref();
    AgentResult::Write(WrittenFile {
        path: path.display().to_owned(),
        outcome,
        memory_id: change.memory_id.to_string(),
        content_sha256: after.map(|after| after.sha256.to_string()),
        content_size_bytes: after.map(|after| after.size_bytes),
        redactions: redactions(&edit.findings),
    })
}
