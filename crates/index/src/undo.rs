//! What an undo reads: the selected changes of a store, the memories that have them, and the
//! states that come back.

use std::collections::{BTreeMap, HashMap, HashSet};

use keepsake_core::actor::ActorKind;
use keepsake_core::{DirPath, MemoryId, MemoryPath, StoreId, TenantId, Timestamp, VersionId};
use serde_json::json;

use crate::IndexError;
use crate::database::{Database, FromRow, Ids, Role, Row, Tx};
use crate::model::{Head, Operation, StoreState, Version, VersionListing};
use crate::versions::{STATE, StateRow, VERSION_COLUMNS, page_of};

/// Maximum number of versions of a selection or, if it takes whole memories, of memories.
pub const MAX_SELECTED: usize = 10_000;
/// Maximum number of versions that are read for whole memories, or to find those below a directory.
pub const MAX_READ_VERSIONS: usize = 50_000;

/// Maximum number of versions in a page of the selection, and of ids or paths in one look-up.
const PAGE: u16 = 1000;

/// The memories with the ids `$3`, deleted ones included.
pub(crate) const HEADS: &str = "SELECT m.memory_id, m.path, m.version_id, m.head_seq, m.blob_id, m.size_bytes, m.sha256, \
    m.claimed_by, m.claimed_until, m.deleted_at \
    FROM_IDS($3) EACH[memory m: m.tenant_id = $1 AND m.store_id = $2 AND m.memory_id = ids.id]";

/// The versions with the sequence numbers `$3`.
pub(crate) const AT: &str = "SELECT VERSION_COLUMNS \
    FROM_NUMBERS($3) EACH[version v: v.tenant_id = $1 AND v.store_id = $2 AND v.seq = numbers.number]";

/// The live memories at the paths `$3`.
pub(crate) const OCCUPIED: &str = "SELECT m.path, m.memory_id FROM_TEXTS($3) \
    EACH[memory m: m.tenant_id = $1 AND m.store_id = $2 AND m.path = texts.text AND m.deleted_at IS NULL]";

/// The directories `$3`, with their numbers of files.
pub(crate) const DIRECTORIES: &str = "SELECT d.path, d.files FROM_TEXTS($3) \
    EACH[directory d: d.tenant_id = $1 AND d.store_id = $2 AND d.path = texts.text]";

/// The changes that an undo takes back.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct UndoSelection {
    pub actor: Option<(ActorKind, String)>,
    /// Created at or after this time.
    pub created_from: Option<Timestamp>,
    /// Created at or before this time.
    pub created_to: Option<Timestamp>,
    /// Only versions after this sequence number.
    pub after_seq: i64,
    /// Only versions up to this sequence number. A memory with a later one was changed later, also
    /// if `overwrites` is set.
    pub until_seq: Option<i64>,
    /// Only changes of memories that were below the directory before or after the change.
    pub below: Option<DirPath>,
    /// Whether each change of a memory is selected if one of them is.
    pub takes_whole_memories: bool,
    /// Whether changes that follow the selected ones are taken back, too.
    pub overwrites: bool,
}

/// A change of one memory that was planned before.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlannedUndo {
    pub memory_id: MemoryId,
    /// The memory's last version at that time.
    pub from: VersionId,
    /// The oldest version that is taken back.
    pub undoes: VersionId,
    /// The sequence number of the version whose state comes back; `None`: the memory did not exist.
    pub to: Option<i64>,
}

#[derive(Debug, Clone)]
pub enum UndoSource {
    Selection(UndoSelection),
    /// A part of a plan that was made before.
    Plan(Vec<PlannedUndo>),
}

/// What an undo reads of a store, in one snapshot.
#[derive(Debug, Clone)]
pub struct UndoRead {
    pub store: StoreState,
    /// The sequence number of the store's last version.
    pub seq: i64,
    pub memories: Vec<UndoneMemory>,
    /// The live memories at the paths that come back, and at the parents of these.
    pub occupied: HashMap<MemoryPath, MemoryId>,
    /// Those of these paths that are directories, with their numbers of files.
    pub directories: HashMap<DirPath, u64>,
}

/// A memory with selected changes.
#[derive(Debug, Clone)]
pub struct UndoneMemory {
    pub memory_id: MemoryId,
    /// The memory's last version.
    pub from: VersionId,
    pub from_seq: i64,
    /// `None`: the memory is deleted.
    pub live: Option<Head>,
    /// The oldest version that is taken back.
    pub undoes: VersionId,
    /// The sequence number of that version.
    pub began: i64,
    pub then: PastState,
}

/// The state of a memory before the changes that an undo takes back.
#[derive(Debug, Clone)]
pub enum PastState {
    /// The memory did not exist.
    Nothing,
    Version(Box<Version>),
    /// The content was redacted, or removed with old versions.
    Gone,
    /// Other changes followed the selected ones, and the memory is not in its earlier state.
    ChangedLater,
}

/// Why a selection is not read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UndoReadError {
    NoStore,
    /// It has more than [`MAX_SELECTED`], or more than [`MAX_READ_VERSIONS`] would be read.
    TooMany,
}

#[derive(Debug, Clone)]
pub struct Undos(pub(crate) Database);

/// Reads a memory as if its last version had created it, and only that version were taken back.
impl FromRow for UndoneMemory {
    fn from_row(row: &Row) -> Result<Self, IndexError> {
        let is_deleted = row.get::<Option<Timestamp>>("deleted_at")?.is_some();
        let (from, from_seq) = (row.get("version_id")?, row.get("head_seq")?);
        Ok(Self {
            memory_id: row.get("memory_id")?,
            from,
            from_seq,
            live: if is_deleted { None } else { Some(row.read()?) },
            undoes: from,
            began: from_seq,
            then: PastState::Nothing,
        })
    }
}

/// A memory whose earlier state is not read yet.
struct MemoryToUndo {
    memory: UndoneMemory,
    /// The sequence number of the version whose state comes back; `None`: the memory did not exist.
    to: Option<i64>,
    /// Whether other changes followed the undone ones.
    is_changed_later: bool,
}

/// The live memories at paths, and the numbers of files in directories.
type Holders = (HashMap<MemoryPath, MemoryId>, HashMap<DirPath, u64>);

/// A selected version.
struct Selected {
    seq: i64,
    version_id: VersionId,
    prev_seq: Option<i64>,
    /// Whether it is known to be a change below the directory of the selection.
    is_touched: bool,
}

/// Leaves out the versions before the first and after the last that is known to be selected.
fn trim(versions: &mut Vec<Selected>) {
    let known = |version: &Selected| version.is_touched;
    let last = versions.iter().rposition(known).map_or(0, |last| last + 1);
    versions.truncate(last);
    let first = versions.iter().position(known).unwrap_or_default();
    versions.drain(..first);
}

impl Undos {
    /// Reads what an undo needs, in one snapshot.
    pub async fn read(
        &self,
        tenant_id: TenantId,
        store_id: StoreId,
        source: &UndoSource,
    ) -> Result<Result<UndoRead, UndoReadError>, IndexError> {
        let mut tx = self.0.read("undo", Role::Tenant(tenant_id)).await?;
        let mut reader = Reader { tx: &mut tx, store: (tenant_id, store_id) };
        let read = reader.read(source).await?;
        tx.commit().await?;
        Ok(read)
    }

    /// The versions with these sequence numbers that still exist.
    pub async fn versions(
        &self,
        tenant_id: TenantId,
        store_id: StoreId,
        seqs: &[i64],
    ) -> Result<HashMap<i64, Version>, IndexError> {
        let mut tx = self.0.read("undo_versions", Role::Tenant(tenant_id)).await?;
        let mut reader = Reader { tx: &mut tx, store: (tenant_id, store_id) };
        let versions = reader.versions(seqs).await?;
        tx.commit().await?;
        Ok(versions)
    }
}

struct Reader<'t> {
    tx: &'t mut Tx,
    store: (TenantId, StoreId),
}

impl Reader<'_> {
    async fn read(&mut self, source: &UndoSource) -> Result<Result<UndoRead, UndoReadError>, IndexError> {
        let Some(state) = self.tx.query(STATE).bind(self.store).optional::<StateRow>().await? else {
            return Ok(Err(UndoReadError::NoStore));
        };
        let found = match source {
            UndoSource::Selection(selection) => match self.selected(selection, state.seq).await? {
                Some(selected) => self.selected_memories(selected, selection).await?,
                None => return Ok(Err(UndoReadError::TooMany)),
            },
            UndoSource::Plan(planned) => self.planned(planned).await?,
        };
        let seqs: Vec<_> = found.iter().filter_map(|undone| undone.to).collect();
        let mut versions = self.versions(&seqs).await?;
        let memories = found.into_iter().map(|MemoryToUndo { memory, to, is_changed_later }| {
            let then = to.map_or(PastState::Nothing, |seq| {
                versions.remove(&seq).map_or(PastState::Gone, PastState::of)
            });
            let is_kept = is_changed_later && !then.is_current(memory.live.as_ref());
            UndoneMemory { then: if is_kept { PastState::ChangedLater } else { then }, ..memory }
        });
        let memories: Vec<_> = memories.collect();
        let (occupied, directories) = self.places(&memories).await?;
        Ok(Ok(UndoRead { store: state.store, seq: state.seq, memories, occupied, directories }))
    }

    /// The selected versions by memory, newest first; `None`: there are too many.
    async fn selected(
        &mut self,
        selection: &UndoSelection,
        newest: i64,
    ) -> Result<Option<BTreeMap<MemoryId, Vec<Selected>>>, IndexError> {
        let mut found = BTreeMap::<MemoryId, Vec<Selected>>::new();
        let newest = selection.until_seq.map_or(newest, |until| until.min(newest));
        let reads_others = selection.takes_whole_memories || selection.below.is_some();
        let max_read = if reads_others { MAX_READ_VERSIONS } else { MAX_SELECTED };
        let (mut before, mut read) = (newest.saturating_add(1), 0);
        loop {
            let listing = VersionListing {
                actor: selection.actor.clone(),
                created_from: selection.created_from,
                created_to: selection.created_to,
                before: Some(before),
                limit: PAGE.into(),
                ..VersionListing::default()
            };
            let page = page_of(self.tx, self.store, &listing).await?;
            let page = page.map(|(_, versions)| versions).unwrap_or_default();
            let is_last = page.len() < usize::from(PAGE)
                || page.last().is_some_and(|last| last.seq <= selection.after_seq);
            before = page.last().map_or(before, |last| last.seq);
            let page: Vec<_> = page.into_iter().filter(|version| version.seq > selection.after_seq).collect();
            read += page.len();
            if read > max_read {
                return Ok(None);
            }
            let below = match &selection.below {
                Some(below) => Some(self.below(&page, below).await?),
                None => None,
            };
            for version in page {
                let is_touched = below.as_ref().is_none_or(|below| below.contains(&version.seq));
                // A redacted version has no path: those before and after it decide.
                let may_be_below = is_touched || version.path.is_none();
                if !may_be_below && !selection.takes_whole_memories {
                    continue;
                }
                let Version { memory_id, seq, version_id, prev_seq, .. } = version;
                found.entry(memory_id).or_default().push(Selected { seq, version_id, prev_seq, is_touched });
            }
            if is_last {
                found.retain(|_, versions| versions.iter().any(|version| version.is_touched));
                let count: usize = if selection.takes_whole_memories {
                    found.len()
                } else {
                    found.values_mut().for_each(trim);
                    found.values().map(Vec::len).sum()
                };
                return Ok((count <= MAX_SELECTED).then_some(found));
            }
        }
    }

    /// Those of the versions that have a path below the directory before or after the change.
    async fn below(&mut self, page: &[Version], below: &DirPath) -> Result<HashSet<i64>, IndexError> {
        let is_below = |path: &Option<MemoryPath>| path.as_ref().is_some_and(|path| path.is_below(below));
        let (inside, outside): (Vec<_>, Vec<_>) = page.iter().partition(|version| is_below(&version.path));
        let mut found: HashSet<_> = inside.iter().map(|version| version.seq).collect();
        let moved = outside.iter().filter(|version| match version.operation {
            Operation::Created => false,
            Operation::Modified => true,
            // A deletion has the path from before, unless it is redacted.
            Operation::Deleted => version.path.is_none(),
        });
        let before: HashMap<_, _> =
            moved.filter_map(|version| Some((version.prev_seq?, version.seq))).collect();
        let seqs: Vec<_> = before.keys().copied().collect();
        for (seq, version) in self.versions(&seqs).await? {
            if is_below(&version.path) {
                found.extend(before.get(&seq));
            }
        }
        Ok(found)
    }

    /// Where the selected memories go back to. Leaves out memories without any history.
    async fn selected_memories(
        &mut self,
        selected: BTreeMap<MemoryId, Vec<Selected>>,
        selection: &UndoSelection,
    ) -> Result<Vec<MemoryToUndo>, IndexError> {
        let ids: Vec<_> = selected.keys().copied().collect();
        let mut memories = Vec::with_capacity(ids.len());
        for memory in self.heads(&ids).await? {
            let Some([newest, older @ ..]) = selected.get(&memory.memory_id).map(Vec::as_slice) else {
                continue;
            };
            let is_after = selection.until_seq.is_some_and(|until| memory.from_seq > until);
            let is_changed_later = is_after || (!selection.overwrites && newest.version_id != memory.from);
            // The selected changes without another one between them.
            let mut first = newest;
            for version in older {
                if first.prev_seq != Some(version.seq) {
                    break;
                }
                first = version;
            }
            let memory = UndoneMemory { undoes: first.version_id, began: first.seq, ..memory };
            memories.push(MemoryToUndo { memory, to: first.prev_seq, is_changed_later });
        }
        Ok(memories)
    }

    async fn planned(&mut self, planned: &[PlannedUndo]) -> Result<Vec<MemoryToUndo>, IndexError> {
        let by_memory: HashMap<_, _> = planned.iter().map(|planned| (planned.memory_id, planned)).collect();
        let ids: Vec<_> = by_memory.keys().copied().collect();
        let heads = self.heads(&ids).await?.into_iter();
        let memories = heads.filter_map(|memory| {
            let planned = by_memory.get(&memory.memory_id)?;
            let is_changed_later = memory.from != planned.from;
            let memory = UndoneMemory { undoes: planned.undoes, ..memory };
            Some(MemoryToUndo { memory, to: planned.to, is_changed_later })
        });
        Ok(memories.collect())
    }

    async fn heads(&mut self, ids: &[MemoryId]) -> Result<Vec<UndoneMemory>, IndexError> {
        let mut heads = Vec::with_capacity(ids.len());
        for ids in ids.chunks(PAGE.into()) {
            let query = self.tx.query_with_lists(HEADS).bind((self.store, Ids(Some(ids))));
            heads.extend(query.all::<UndoneMemory>().await?);
        }
        Ok(heads)
    }

    async fn versions(&mut self, seqs: &[i64]) -> Result<HashMap<i64, Version>, IndexError> {
        let text = AT.replace("VERSION_COLUMNS", VERSION_COLUMNS);
        let mut versions = HashMap::with_capacity(seqs.len());
        for seqs in seqs.chunks(PAGE.into()) {
            let query = self.tx.query_with_lists(&text).bind(self.store).bind(json!(seqs).to_string());
            let found: Vec<Version> = query.all().await?;
            versions.extend(found.into_iter().map(|version| (version.seq, version)));
        }
        Ok(versions)
    }

    /// What is at the paths that come back.
    async fn places(&mut self, memories: &[UndoneMemory]) -> Result<Holders, IndexError> {
        let (mut paths, mut directories) = (HashSet::new(), HashSet::new());
        for memory in memories {
            let Some(path) = memory.moves_to() else {
                continue;
            };
            // The parents of a known parent are known, too.
            let mut parents: Vec<_> = path.ancestor_files().collect();
            parents.sort_unstable_by_key(|parent| std::cmp::Reverse(parent.len()));
            let unknown = parents.into_iter().take_while(|parent| !paths.contains(*parent));
            let unknown: Vec<_> = unknown.map(str::to_owned).collect();
            paths.extend(unknown);
            paths.insert(path.as_str().to_owned());
            directories.insert(path.as_dir().as_str().to_owned());
        }
        let (paths, directories) = (Vec::from_iter(paths), Vec::from_iter(directories));
        let (mut occupied, mut with_files) = (HashMap::new(), HashMap::new());
        for paths in paths.chunks(PAGE.into()) {
            let query = self.tx.query_with_lists(OCCUPIED).bind(self.store).bind(json!(paths).to_string());
            occupied.extend(query.all::<(MemoryPath, MemoryId)>().await?);
        }
        for paths in directories.chunks(PAGE.into()) {
            let query = self.tx.query_with_lists(DIRECTORIES).bind(self.store).bind(json!(paths).to_string());
            with_files.extend(query.all::<(DirPath, u64)>().await?);
        }
        Ok((occupied, with_files))
    }
}

impl PastState {
    fn of(version: Version) -> Self {
        if version.operation == Operation::Deleted {
            return Self::Nothing;
        }
        if version.path.is_none() || version.content.is_none() {
            return Self::Gone;
        }
        Self::Version(Box::new(version))
    }

    /// Whether the memory has this state now. `live` is the memory's head; `None`: it is deleted.
    fn is_current(&self, live: Option<&Head>) -> bool {
        match (self, live) {
            (Self::Nothing, None) => true,
            (Self::Version(version), Some(head)) => {
                version.path.as_ref() == Some(&head.path)
                    && version.content.is_some_and(|content| content.sha256 == head.content.sha256)
            }
            (Self::Nothing | Self::Version(_) | Self::Gone | Self::ChangedLater, _) => false,
        }
    }
}

impl UndoneMemory {
    /// The path that comes back, unless the memory has it.
    pub fn moves_to(&self) -> Option<&MemoryPath> {
        let PastState::Version(version) = &self.then else {
            return None;
        };
        let path = version.path.as_ref()?;
        self.live.as_ref().is_none_or(|head| head.path != *path).then_some(path)
    }
}
