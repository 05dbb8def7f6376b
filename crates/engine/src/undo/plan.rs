//! The plan of an undo: what becomes of each memory. Pure.
//!
//! A memory that cannot get back its path is skipped and stays where it is, which may keep
//! other memories from their paths. Of two memories that had the same path, the last one gets it.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use keepsake_core::path::TESTS_PATH;
use keepsake_core::{MemoryId, MemoryPath, VersionId};
use keepsake_index::{PastState, UndoRead, UndoneMemory, Version};
use serde::{Deserialize, Serialize};

keepsake_core::named_enum! {
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
    #[serde(rename_all = "snake_case")]
    pub enum UndoAction {
        /// Its content is as before, and its path.
        Restored = "restored",
        /// It did not exist before.
        Deleted = "deleted",
        /// It was deleted, and exists again.
        Recreated = "recreated",
        /// Only its path is as before.
        Renamed = "renamed",
        Skipped = "skipped",
    }
}

keepsake_core::named_enum! {
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
    #[serde(rename_all = "snake_case")]
    pub enum UndoSkipReason {
        /// Another change followed.
        ChangedLater = "changed_later",
        /// The content was redacted, or removed with old versions.
        ContentGone = "content_gone",
        /// Another memory is at its path, at a parent of it, or below it.
        PathTaken = "path_taken",
        /// The store's policy does not accept the content.
        SensitiveData = "sensitive_data",
        /// The content is over the tenant's limit for a memory.
        TooLarge = "too_large",
    }
}

keepsake_core::shown_by_name! {
    UndoAction as "MemoryUndoAction" => "What becomes of a memory.";
    UndoSkipReason as "MemoryUndoSkipReason" => "Why a memory is skipped.";
}

/// What becomes of one memory, without paths and contents.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct UndoStep {
    pub(super) memory_id: MemoryId,
    pub(super) action: UndoAction,
    pub(super) reason: Option<UndoSkipReason>,
    /// The memory's last version.
    pub(super) from: VersionId,
    pub(super) from_seq: i64,
    /// The oldest version that is taken back.
    pub(super) undoes: VersionId,
    /// The version whose state comes back.
    pub(super) to_seq: Option<i64>,
}

/// A step with the memory as it was read.
#[derive(Debug, Clone, Copy)]
pub(super) struct PlannedStep<'a> {
    pub(super) memory: &'a UndoneMemory,
    pub(super) action: UndoAction,
    pub(super) reason: Option<UndoSkipReason>,
}

/// Memories that are skipped for what the read does not show.
pub(super) type Refusals = BTreeMap<MemoryId, UndoSkipReason>;

impl<'a> PlannedStep<'a> {
    fn skipped(memory: &'a UndoneMemory, reason: UndoSkipReason) -> Self {
        Self { memory, action: UndoAction::Skipped, reason: Some(reason) }
    }

    /// The same memory, if it cannot get back its path.
    pub(super) fn without_room(&self) -> Self {
        Self::skipped(self.memory, UndoSkipReason::PathTaken)
    }

    /// The version whose state comes back.
    pub(super) fn version(&self) -> Option<&'a Version> {
        match &self.memory.then {
            PastState::Version(version) => Some(version),
            PastState::Nothing | PastState::Gone | PastState::ChangedLater => None,
        }
    }

    /// Whether a content comes back.
    pub(super) const fn brings_content(&self) -> bool {
        matches!(self.action, UndoAction::Restored | UndoAction::Recreated)
    }

    pub(super) const fn is_made(&self) -> bool {
        !matches!(self.action, UndoAction::Skipped)
    }

    /// Bytes of the content that comes back.
    pub(super) fn bytes(&self) -> u64 {
        let content = self.version().and_then(|version| version.content);
        content.filter(|_| self.brings_content()).map_or(0, |content| content.size_bytes)
    }

    /// A setting of the store that the step changes.
    pub(super) fn setting(&self) -> Option<&'a MemoryPath> {
        let before = self.memory.live.as_ref().map(|head| &head.path);
        before.into_iter().chain(self.path()).find(|path| self.is_made() && path.is_setting())
    }

    /// Whether the memory is the tests of the store after the step.
    pub(super) fn becomes_tests(&self) -> bool {
        let version = self.version().filter(|_| self.is_made());
        version.and_then(|version| version.path.as_ref()).is_some_and(|path| path.as_str() == TESTS_PATH)
    }

    /// The path after the step, or else the memory's last path.
    fn path(&self) -> Option<&'a MemoryPath> {
        let then = self.version().filter(|_| self.is_made()).and_then(|version| version.path.as_ref());
        then.or_else(|| self.memory.live.as_ref().map(|head| &head.path))
    }

    /// The path that the memory moves to.
    fn takes(&self) -> Option<&'a MemoryPath> {
        self.memory.moves_to().filter(|_| self.is_made())
    }

    /// The path that the memory leaves.
    fn leaves(&self) -> Option<&'a str> {
        let is_leaving = self.takes().is_some() || self.action == UndoAction::Deleted;
        self.memory.live.as_ref().filter(|_| is_leaving).map(|head| head.path.as_str())
    }

    pub(super) fn step(&self) -> UndoStep {
        UndoStep {
            memory_id: self.memory.memory_id,
            action: self.action,
            reason: self.reason,
            from: self.memory.from,
            from_seq: self.memory.from_seq,
            undoes: self.memory.undoes,
            to_seq: self.version().map(|version| version.seq),
        }
    }
}

/// What becomes of each memory, in the order of the paths. Leaves out memories that are already
/// as they were.
pub(super) fn plan<'a>(
    read: &'a UndoRead,
    refusals: &Refusals,
    bytes_per_memory: u64,
) -> Vec<PlannedStep<'a>> {
    let wanted = read.memories.iter().filter_map(|memory| wanted(memory, refusals, bytes_per_memory));
    let mut steps: Vec<_> = wanted.collect();
    for place in PathMoves::of(read, &steps).without_room() {
        steps[place] = steps[place].without_room();
    }
    steps.sort_by(|one, other| {
        (one.path(), one.memory.memory_id).cmp(&(other.path(), other.memory.memory_id))
    });
    steps
}

/// The step of a memory, if its path is free.
fn wanted<'a>(
    memory: &'a UndoneMemory,
    refusals: &Refusals,
    bytes_per_memory: u64,
) -> Option<PlannedStep<'a>> {
    let version = match (&memory.then, &memory.live) {
        (PastState::ChangedLater, _) => {
            return Some(PlannedStep::skipped(memory, UndoSkipReason::ChangedLater));
        }
        (PastState::Gone, _) => return Some(PlannedStep::skipped(memory, UndoSkipReason::ContentGone)),
        (PastState::Nothing, None) => return None,
        (PastState::Nothing, Some(_)) => {
            return Some(PlannedStep { memory, action: UndoAction::Deleted, reason: None });
        }
        (PastState::Version(version), _) => version,
    };
    let content = version.content?;
    let action = match &memory.live {
        None => UndoAction::Recreated,
        Some(head) if head.content.sha256 != content.sha256 => UndoAction::Restored,
        Some(head) if version.path.as_ref() == Some(&head.path) => return None,
        Some(_) => UndoAction::Renamed,
    };
    if let Some(reason) = refusals.get(&memory.memory_id) {
        return Some(PlannedStep::skipped(memory, *reason));
    }
    if action != UndoAction::Renamed && content.size_bytes > bytes_per_memory {
        return Some(PlannedStep::skipped(memory, UndoSkipReason::TooLarge));
    }
    Some(PlannedStep { memory, action, reason: None })
}

/// The paths that memories leave and take, by the places of their steps.
struct PathMoves<'a> {
    read: &'a UndoRead,
    steps: Vec<PlannedStep<'a>>,
    /// The memories that leave their paths.
    leaving: HashSet<MemoryId>,
    /// These paths.
    left: BTreeSet<&'a str>,
    /// The steps to each path that no memory is known to hold.
    wanted: BTreeMap<&'a str, Vec<usize>>,
    /// The steps that have their paths, as far as it is decided.
    taken: BTreeMap<&'a str, usize>,
    without_room: BTreeSet<usize>,
}

impl<'a> PathMoves<'a> {
    fn of(read: &'a UndoRead, steps: &[PlannedStep<'a>]) -> Self {
        let leaving = steps.iter().filter(|step| step.leaves().is_some());
        let mut wanted = BTreeMap::<_, Vec<_>>::new();
        for (place, step) in steps.iter().enumerate() {
            if let Some(path) = step.takes() {
                wanted.entry(path.as_str()).or_default().push(place);
            }
        }
        Self {
            read,
            leaving: leaving.map(|step| step.memory.memory_id).collect(),
            left: steps.iter().filter_map(PlannedStep::leaves).collect(),
            wanted,
            taken: BTreeMap::new(),
            without_room: BTreeSet::new(),
            steps: steps.to_vec(),
        }
    }

    /// The steps whose memories cannot get their paths.
    fn without_room(mut self) -> BTreeSet<usize> {
        let mut movers: Vec<_> =
            (0..self.steps.len()).filter(|place| self.steps[*place].takes().is_some()).collect();
        self.settle(self.wanted.keys().copied().collect());
        movers.sort_by_key(|place| {
            let memory = self.steps[*place].memory;
            (-memory.began, memory.memory_id)
        });
        for place in movers {
            let Some(path) = self.steps[place].takes().filter(|_| !self.without_room.contains(&place)) else {
                continue;
            };
            if self.is_taken(path) {
                let affected = self.skip(place);
                self.settle(affected);
            } else {
                self.taken.insert(path.as_str(), place);
            }
        }
        self.without_room
    }

    /// Skips the steps to each of the paths that a memory which stays holds, and then the steps to the
    /// paths that the skipped memories hold.
    ///
    /// Each path is skipped once with all its steps: many memories may have had one path.
    fn settle(&mut self, mut paths: Vec<&'a str>) {
        while let Some(path) = paths.pop() {
            let first = self.wanted.get(path).and_then(|places| places.first());
            let takes = first.and_then(|place| self.steps[*place].takes());
            if takes.is_some_and(|path| self.is_held(path)) {
                for place in self.wanted.remove(path).unwrap_or_default() {
                    paths.extend(self.skip(place));
                }
            }
        }
    }

    /// The memory of the step stays where it is. Returns the paths that this may concern.
    fn skip(&mut self, place: usize) -> Vec<&'a str> {
        let step = self.steps[place];
        if !self.without_room.insert(place) {
            return Vec::new();
        }
        self.leaving.remove(&step.memory.memory_id);
        if let Some(path) = step.takes()
            && self.taken.get(path.as_str()) == Some(&place)
        {
            self.taken.remove(path.as_str());
        }
        let Some(path) = step.leaves() else {
            return Vec::new();
        };
        self.left.remove(path);
        let at = std::iter::once(path).chain(parents(path));
        let above = at.filter(|path| self.wanted.contains_key(path));
        let below = below(&self.wanted, path).map(|(path, _)| path);
        above.chain(below).collect()
    }

    /// Whether a memory that stays is at the path, at a parent of it, or below it.
    fn is_held(&self, path: &MemoryPath) -> bool {
        let stays = |at: &str| {
            let at = MemoryPath::from_trusted(at.to_owned());
            self.read.occupied.get(&at).is_some_and(|memory_id| !self.leaving.contains(memory_id))
        };
        if stays(path.as_str()) || path.ancestor_files().any(stays) {
            return true;
        }
        let directory = path.as_dir();
        let files = self.read.directories.get(&directory).copied().unwrap_or_default();
        let leaving = self.left.range(directory.as_str()..);
        let leaving = leaving.take_while(|path| path.starts_with(directory.as_str())).count();
        files > leaving as u64
    }

    /// Whether a step that is decided takes the path, a parent of it, or a path below it.
    fn is_taken(&self, path: &MemoryPath) -> bool {
        self.taken.contains_key(path.as_str())
            || path.ancestor_files().any(|file| self.taken.contains_key(file))
            || below(&self.taken, path.as_str()).next().is_some()
    }
}

fn parents(path: &str) -> impl Iterator<Item = &str> {
    path.match_indices('/').map(|(end, _)| &path[..end]).filter(|parent| !parent.is_empty())
}

/// The entries of the paths below a path.
fn below<'m, 'p, V>(map: &'m BTreeMap<&'p str, V>, path: &str) -> impl Iterator<Item = (&'p str, &'m V)> {
    let directory = format!("{path}/");
    let from =
        map.range::<str, _>((std::ops::Bound::Included(directory.as_str()), std::ops::Bound::Unbounded));
    from.map(|(path, value)| (*path, value)).take_while(move |(path, _)| path.starts_with(&directory))
}
