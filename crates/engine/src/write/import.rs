//! The import of a history: versions with the times and authors of another store.
//!
//! Nobody else changes a store while its history is imported; the index refuses a part
//! that does not follow the imported versions. So the heads need not be read again, and
//! all versions of a part are committed in one transaction.

use std::collections::{HashMap, HashSet};

use keepsake_core::{Actor, Content, MemoryId, MemoryPath, Refused, Timestamp};
use keepsake_index::{
    AuditedAction, ChangeError, Commit, CommitChange, CommitOutcome, ExpiryChange, FoundMemories,
    HistoryPart, ImportOutcome, IndexError, NewContent, Origin, ProposedChange, SearchRow,
};

use super::commit::{MAX_COMMITS, MAX_GRANTS};
use super::{Proposal, Write, growth_of, search_rows};
use crate::EngineError;

#[derive(Debug, Clone)]
pub(crate) struct PastVersion {
    pub(crate) memory_id: MemoryId,
    /// `None`: the version deleted the memory.
    pub(crate) state: Option<(MemoryPath, Content)>,
    pub(crate) at: Timestamp,
    pub(crate) by: Option<Actor>,
}

/// The next versions of a history, oldest first.
#[derive(Debug, Clone)]
pub(crate) struct PastPart {
    /// The number of versions that were imported before.
    pub(crate) position: i64,
    pub(crate) versions: Vec<PastVersion>,
    /// Versions to redact, by their places in the history, which begin at 1.
    pub(crate) redactions: Vec<(i64, AuditedAction)>,
}

#[derive(Debug)]
pub(crate) enum ImportRefusal {
    /// The store has other versions, or this many imported ones.
    OtherPosition(Option<i64>),
    /// The version at this index deletes a memory that does not exist.
    DeletesNothing(usize),
    /// The version at this index is refused, because of its content or path.
    Refused(usize, Refused),
    /// The redaction at this index is of no version, or of a live memory's content.
    RedactionRefused(usize),
}

/// The memories of a history, as of one version.
type Memories = HashMap<MemoryId, Origin>;

fn memories_of(found: FoundMemories) -> Memories {
    let memories = found.memories.into_iter();
    memories.map(|(memory_id, found)| (memory_id, Origin::from(found.target))).collect()
}

impl Write<'_> {
    /// Writes the whole part, or nothing.
    pub(crate) async fn import(&self, part: &PastPart) -> Result<Result<(), ImportRefusal>, EngineError> {
        let ids: HashSet<_> = part.versions.iter().map(|version| version.memory_id).collect();
        let ids: Vec<_> = ids.into_iter().collect();
        let found = self.memories(&ids, &[]).await?;
        let changes = part.versions.iter().map(PastVersion::proposed).collect();
        let mut proposal = Proposal { changes, ..Proposal::default() };
        match self.check(&mut proposal).await? {
            Ok(()) => {}
            Err(Refused::Contents(mut refused)) => {
                let (place, refusal) = refused.swap_remove(0);
                return Ok(Err(ImportRefusal::Refused(place, refusal)));
            }
            Err(refusal) => return Ok(Err(ImportRefusal::Refused(0, refusal))),
        }
        let (computations, tenant_id) = (&self.context().computations, self.principal.tenant_id);
        let rows = search_rows(computations, tenant_id, last_contents(part, &proposal.changes)).await?;
        let (mut tries, mut grants) = (0, 0);
        while tries < MAX_COMMITS && grants < MAX_GRANTS {
            let mut memories = memories_of(found.clone());
            let mut changes = Vec::with_capacity(part.versions.len());
            for (place, version) in part.versions.iter().enumerate() {
                let seq = part.position + 1 + i64::try_from(place).unwrap_or(i64::MAX);
                match self.prepare_past(&mut memories, version, seq, rows[place].clone()) {
                    Some(change) => changes.push(change),
                    None => return Ok(Err(ImportRefusal::DeletesNothing(place))),
                }
            }
            let blobs = self.put_blobs(&changes).await?;
            let growth = growth_of(&changes);
            let commits = self.commits_of(part, &proposal, changes);
            let starts = starts_of(&commits);
            let written = self.write_part(part, commits).await;
            let may_be_written = match &written {
                Ok(outcome) => *outcome == ImportOutcome::Imported,
                Err(ChangeError::Index(error)) => !matches!(error, IndexError::DiskFull(_)),
                Err(_) => false,
            };
            if !may_be_written {
                self.remove_blobs(&blobs).await;
            }
            let refused = match self.context().counted(written)? {
                ImportOutcome::Imported => {
                    self.note_commit(part.versions.len(), growth);
                    return Ok(Ok(()));
                }
                ImportOutcome::OtherPosition { imported } => ImportRefusal::OtherPosition(imported),
                ImportOutcome::RedactionRefused(place) => ImportRefusal::RedactionRefused(place),
                ImportOutcome::NotCommitted(_, CommitOutcome::NeedsGrant { size_bytes }) => {
                    match self.request_grant(size_bytes).await? {
                        None => {
                            grants += 1;
                            continue;
                        }
                        Some(refusal) => ImportRefusal::Refused(0, refusal),
                    }
                }
                ImportOutcome::NotCommitted(commit, CommitOutcome::Refused(refusal)) => {
                    ImportRefusal::Refused(starts[commit], refusal)
                }
                ImportOutcome::NotCommitted(..) => {
                    tries += 1;
                    continue;
                }
            };
            return Ok(Err(refused));
        }
        Err(Refused::Contended.into())
    }

    async fn write_part(&self, part: &PastPart, commits: Vec<Commit>) -> Result<ImportOutcome, ChangeError> {
        let history = HistoryPart {
            store_id: self.store_id,
            position: part.position,
            commits,
            redactions: part.redactions.clone(),
            audited: self.context().audited_by(self.principal),
        };
        let imports = &self.context().index.imports;
        imports.write(self.principal.tenant_id, &history).await
    }

    /// `None`: the version deletes a memory that does not exist. `memories` is the state
    /// before the version.
    fn prepare_past(
        &self,
        memories: &mut Memories,
        version: &PastVersion,
        seq: i64,
        row: Option<SearchRow>,
    ) -> Option<CommitChange> {
        let memory_id = version.memory_id;
        let from = memories.remove(&memory_id).unwrap_or(Origin::New);
        let kept = from.head().map(|head| head.content.sha256);
        if kept.is_none() && version.state.is_none() {
            return None;
        }
        let mut wanted = ProposedChange { from, ..version.proposed() };
        if version.state.as_ref().is_some_and(|(_, content)| kept == Some(content.hash())) {
            wanted.content = NewContent::Kept;
        }
        let mut change = self.prepare(wanted, row);
        // A new memory has the same id in every part of the history.
        change.memory_id = memory_id;
        let deleted = Origin::Deleted(memory_id, change.version_id);
        memories.insert(memory_id, change.head(seq).map_or(deleted, Origin::Live));
        Some(change)
    }

    /// The commits of prepared versions. Creations at the same time by the same author go
    /// into one commit, like the batch that made them.
    fn commits_of(&self, part: &PastPart, proposal: &Proposal, changes: Vec<CommitChange>) -> Vec<Commit> {
        let mut commits: Vec<Commit> = Vec::new();
        let mut created = CreatedPaths::default();
        for (version, change) in part.versions.iter().zip(changes) {
            let is_apart = created.add(&change);
            let last = commits.last_mut();
            let same = last.filter(|last| is_apart && last.now == version.at && last.actor == version.by);
            if let Some(same) = same {
                same.changes.push(change);
                continue;
            }
            created = CreatedPaths::default();
            created.add(&change);
            commits.push(Commit {
                now: version.at,
                actor: version.by.clone(),
                changes: vec![change],
                ..self.commit_of(proposal)
            });
        }
        commits
    }
}

/// The paths at which one commit creates memories, and all paths above these, at which no memory can be.
#[derive(Default)]
struct CreatedPaths {
    paths: HashSet<String>,
    parents: HashSet<String>,
    /// Whether the commit has a change that is no creation.
    has_others: bool,
}

impl CreatedPaths {
    /// Returns whether all changes are creations at paths that do not exclude each other.
    fn add(&mut self, change: &CommitChange) -> bool {
        let Some(path) = change.wanted.path.as_ref().filter(|_| change.expected_version().is_none()) else {
            self.has_others = true;
            return false;
        };
        let mut above = path.ancestor_files();
        let is_taken = self.paths.contains(path.as_str()) || self.parents.contains(path.as_str());
        let is_apart = !is_taken && !above.any(|file| self.paths.contains(file));
        self.parents.extend(path.ancestor_files().map(str::to_owned));
        self.paths.insert(path.as_str().to_owned());
        is_apart && !self.has_others
    }
}

impl PastVersion {
    /// The version for the checks of new content.
    fn proposed(&self) -> ProposedChange {
        let (path, content) = self.state.clone().unzip();
        let content = content.map_or(NewContent::Kept, NewContent::New);
        ProposedChange { from: Origin::New, path, content, expiry: ExpiryChange::default(), undoes: None }
    }
}

/// The contents that get search terms: the last content of each memory that still exists.
fn last_contents(part: &PastPart, changes: &[ProposedChange]) -> Vec<NewContent> {
    let mut seen = HashSet::new();
    let mut last = vec![NewContent::Kept; changes.len()];
    for (place, version) in part.versions.iter().enumerate().rev() {
        if seen.insert(version.memory_id) {
            last[place] = changes[place].content.clone();
        }
    }
    last
}

/// The index of each commit's first version.
fn starts_of(commits: &[Commit]) -> Vec<usize> {
    let mut next = 0;
    let starts = commits.iter().map(|commit| {
        let start = next;
        next += commit.changes.len();
        start
    });
    starts.collect()
}
