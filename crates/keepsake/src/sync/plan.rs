//! Decides what a pass does: a three-way comparison by path, without I/O.
//!
//! The base is what both sides had at the last synchronisation. A side that differs
//! from the base was edited; where only one side was, the edit is carried over.
//! Where both were, the store's content stays at the path, and the folder's is kept
//! beside it. An edit wins over a deletion and over the absence of a base.

mod names;
mod renames;

use std::collections::{BTreeMap, BTreeSet};

use keepsake_core::{ContentHash, MemoryId, MemoryPath, VersionId};

use names::Names;
pub(super) use names::{MAX_NAME_BYTES, conflict_path};

/// A memory with its content's hash.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct KnownMemory {
    pub(super) memory_id: MemoryId,
    pub(super) hash: ContentHash,
    /// The version with this content; `None` if an older keepsake wrote the state.
    pub(super) version_id: Option<VersionId>,
}

impl KnownMemory {
    /// Whether both are the same memory with the same content.
    fn is_as(&self, other: &Self) -> bool {
        self.memory_id == other.memory_id && self.hash == other.hash
    }
}

/// What is at a path of one side.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Side<T> {
    Present(T),
    /// Something that is not synchronised: it stays, and so does everything below it.
    Blocked,
}

impl<T: Copy> Side<T> {
    pub(super) fn present(&self) -> Option<T> {
        match self {
            Self::Present(value) => Some(*value),
            Self::Blocked => None,
        }
    }
}

/// What both sides had at the last synchronisation.
pub(super) type Base = BTreeMap<MemoryPath, KnownMemory>;
pub(super) type LocalFiles = BTreeMap<MemoryPath, Side<ContentHash>>;
pub(super) type RemoteMemories = BTreeMap<MemoryPath, Side<KnownMemory>>;

/// One step; every step states what it expects to find.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Action {
    /// The base of a path moves, because both sides moved.
    MoveBase { from: MemoryPath, to: MemoryPath },
    /// Moves a file, because its memory was moved.
    MoveLocal { from: MemoryPath, to: MemoryPath, hash: ContentHash },
    /// Moves a memory, because its file was moved.
    MoveRemote { from: MemoryPath, to: MemoryPath, memory: KnownMemory },
    /// Neither side has the path any more.
    Forget { path: MemoryPath },
    /// Deletes a file, because its memory was deleted.
    DeleteLocal { path: MemoryPath, memory: KnownMemory },
    /// Deletes a memory, because its file was deleted.
    DeleteRemote { path: MemoryPath, memory: KnownMemory },
    /// Moves a file that both sides edited out of the way.
    KeepBoth { path: MemoryPath, kept_as: MemoryPath },
    /// Writes a memory's content to a file.
    Download {
        path: MemoryPath,
        memory: KnownMemory,
        /// The file's current content; `None` if there is no file.
        replaces: Option<ContentHash>,
    },
    /// Creates a memory.
    Create { path: MemoryPath, hash: ContentHash },
    /// Replaces a memory's content.
    Replace { path: MemoryPath, memory: KnownMemory, hash: ContentHash },
    /// Both sides are equal, but the base does not say so yet.
    Record { path: MemoryPath, memory: KnownMemory },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EmptiedSide {
    Folder,
    Store,
}

/// The steps of a pass, in an order in which each can be carried out.
#[derive(Debug, Default)]
pub(super) struct Plan {
    pub(super) actions: Vec<Action>,
    /// Paths that cannot be synchronised, with the reason.
    pub(super) skipped: Vec<(MemoryPath, &'static str)>,
    /// The side that lost its files, if the plan would empty the other side.
    pub(super) emptied: Option<EmptiedSide>,
}

/// What a plan depends on besides the three sides.
#[derive(Debug, Clone, Copy)]
pub(super) struct Settings<'a> {
    /// The time in the name of a kept file.
    pub(super) time: &'a str,
    /// Whether the folder's file system takes `a` and `A` for one name.
    pub(super) ignores_case: bool,
}

/// A base with fewer paths than this is emptied only when every file is gone.
const MIN_PATHS_FOR_HALF: usize = 10;

pub(super) fn plan(base: &Base, local: &LocalFiles, remote: &RemoteMemories, settings: Settings<'_>) -> Plan {
    let mut planner = Planner {
        base: base.clone(),
        local: local.clone(),
        remote: remote.clone(),
        settings,
        plan: Plan::default(),
    };
    planner.follow_remote_renames();
    planner.follow_local_renames();
    planner.compare();
    planner.plan
}

struct Planner<'a> {
    // The three sides as they are after the planned renames.
    base: Base,
    local: LocalFiles,
    remote: RemoteMemories,
    settings: Settings<'a>,
    plan: Plan,
}

/// The steps of the comparison by kind, which decides their order.
#[derive(Default)]
struct Steps {
    forget: Vec<Action>,
    delete: Vec<Action>,
    keep: Vec<Action>,
    download: Vec<Action>,
    upload: Vec<Action>,
    record: Vec<Action>,
}

impl Planner<'_> {
    fn compare(&mut self) {
        let mut steps = Steps::default();
        let paths: BTreeSet<_> =
            self.base.keys().chain(self.local.keys()).chain(self.remote.keys()).cloned().collect();
        let blocked_local = Names::blocked(&self.local);
        let blocked_remote = Names::blocked(&self.remote);
        let is_blocked = |path: &MemoryPath| blocked_local.covers(path) || blocked_remote.covers(path);
        let (mut gone_local, mut gone_remote) = (0, 0);
        for path in paths {
            if is_blocked(&path) {
                continue;
            }
            let (base, local, remote) = (
                self.base.get(&path).copied(),
                self.local.get(&path).and_then(Side::present),
                self.remote.get(&path).and_then(Side::present),
            );
            gone_local += usize::from(is_lost(base, local));
            gone_remote += usize::from(is_lost(base, remote.map(|memory| memory.hash)));
            compare_path(path, base, local, remote, &mut steps);
        }
        self.plan.emptied = self.emptied(&steps, gone_local, gone_remote);
        self.clear_the_way(&mut steps);
        let Steps { forget, delete, keep, download, upload, record } = steps;
        for steps in [forget, delete, keep, download, upload, record] {
            self.plan.actions.extend(steps);
        }
    }

    /// Whether one side lost its files, so that the plan would delete or empty the other's.
    fn emptied(&self, steps: &Steps, gone_local: usize, gone_remote: usize) -> Option<EmptiedSide> {
        let known = self.base.len();
        let is_most = |gone: usize| known >= MIN_PATHS_FOR_HALF && gone * 2 > known;
        let remains = |path: &MemoryPath, hash: Option<ContentHash>| {
            hash.is_some() && !is_lost(self.base.get(path).copied(), hash)
        };
        let has_file = self.local.iter().any(|(path, side)| remains(path, side.present()));
        let mut memories = self.remote.iter();
        let has_memory = memories.any(|(path, side)| remains(path, side.present().map(|memory| memory.hash)));
        let losses = steps.delete.iter().chain(&steps.upload).chain(&steps.download);
        let emptied: Vec<_> = losses.filter_map(Action::carries_loss_of).collect();
        if emptied.contains(&EmptiedSide::Folder) && (is_most(gone_local) || !has_file) {
            Some(EmptiedSide::Folder)
        } else if emptied.contains(&EmptiedSide::Store) && (is_most(gone_remote) || !has_memory) {
            Some(EmptiedSide::Store)
        } else {
            None
        }
    }

    /// Resolves files that are at the place of a directory, and the reverse.
    ///
    /// The store's memories stay where they are; files of the folder move away.
    fn clear_the_way(&mut self, steps: &mut Steps) {
        let deleted: BTreeSet<_> = steps.delete.iter().map(Action::path).cloned().collect();
        let kept = |path: &MemoryPath| !deleted.contains(path);
        let store = Names::new(self.remote.keys().filter(|path| kept(path)));
        let mut taken: BTreeSet<_> = self.local.keys().chain(self.remote.keys()).cloned().collect();
        let mut moved = BTreeSet::new();
        for step in &mut steps.upload {
            let Action::Create { path, .. } = step else {
                continue;
            };
            if let Some(place) = store.in_the_way_of(path) {
                let kept_as = conflict_path(path, &place, self.settings.time, &taken);
                moved.insert(path.clone());
                let path = std::mem::replace(path, kept_as.clone());
                taken.insert(kept_as.clone());
                steps.keep.push(Action::KeepBoth { path, kept_as });
            }
        }
        let mut kept_both = Vec::new();
        for step in &mut steps.keep {
            let Action::KeepBoth { path, kept_as } = step else {
                continue;
            };
            moved.insert(path.clone());
            // A file that both sides edited gets its new path here; the other steps
            // already have one.
            if path == kept_as {
                *kept_as = conflict_path(path, path, self.settings.time, &taken);
                taken.insert(kept_as.clone());
                if let Some(hash) = self.local.get(path).and_then(Side::present) {
                    kept_both.push(Action::Create { path: kept_as.clone(), hash });
                }
            }
        }
        steps.upload.extend(kept_both);

        let stays = |path: &&MemoryPath| kept(path) && !moved.contains(*path);
        let mut folder = Names::new(self.local.keys().filter(stays));
        if self.settings.ignores_case {
            folder = folder.ignoring_case();
        }
        let skipped = &mut self.plan.skipped;
        steps.download.retain(|step| {
            let path = step.path();
            let is_new = matches!(step, Action::Download { replaces: None, .. });
            let reason = if !is_new {
                None
            } else if folder.in_the_way_of(path).is_some() {
                Some("something that is not synchronised is in its place in the folder")
            } else if folder.is_other_spelling(path) {
                Some("the folder's file system takes its name for that of another file")
            } else {
                None
            };
            folder.add(path);
            skipped.extend(reason.map(|reason| (path.clone(), reason)));
            reason.is_none()
        });
    }
}

/// Whether a side lost the content of a path: it is gone, or empty.
fn is_lost(base: Option<KnownMemory>, now: Option<ContentHash>) -> bool {
    base.is_some_and(|base| now.is_none_or(|now| empties(base.hash, now)))
}

/// Whether a change leaves nothing of a content.
fn empties(before: ContentHash, now: ContentHash) -> bool {
    now != before && now == ContentHash::of(b"")
}

/// Compares one path; a file that both sides edited is kept as itself for now.
fn compare_path(
    path: MemoryPath,
    base: Option<KnownMemory>,
    local: Option<ContentHash>,
    remote: Option<KnownMemory>,
    steps: &mut Steps,
) {
    match (base, local, remote) {
        (None, None, None) => {}
        (Some(_), None, None) => steps.forget.push(Action::Forget { path }),
        (base, Some(local), Some(remote)) if local == remote.hash => {
            if base != Some(remote) {
                steps.record.push(Action::Record { path, memory: remote });
            }
        }
        (Some(base), Some(hash), Some(memory)) if memory.hash == base.hash => {
            steps.upload.push(Action::Replace { path, memory, hash });
        }
        (Some(base), Some(local), Some(memory)) if local == base.hash => {
            let replaces = Some(local);
            steps.download.push(Action::Download { path, memory, replaces });
        }
        (_, Some(_), Some(memory)) => {
            steps.keep.push(Action::KeepBoth { kept_as: path.clone(), path: path.clone() });
            steps.download.push(Action::Download { path, memory, replaces: None });
        }
        (Some(base), Some(local), None) if local == base.hash => {
            steps.delete.push(Action::DeleteLocal { path, memory: base });
        }
        (_, Some(hash), None) => steps.upload.push(Action::Create { path, hash }),
        // A memory that was created again has another id.
        (Some(base), None, Some(remote)) if remote.is_as(&base) => {
            steps.delete.push(Action::DeleteRemote { path, memory: remote });
        }
        (_, None, Some(memory)) => steps.download.push(Action::Download { path, memory, replaces: None }),
    }
}

impl Action {
    /// The side whose loss of a content the step carries over to the other one: it deletes or
    /// empties a file or a memory.
    pub(super) fn carries_loss_of(&self) -> Option<EmptiedSide> {
        match self {
            Self::DeleteRemote { .. } => Some(EmptiedSide::Folder),
            Self::DeleteLocal { .. } => Some(EmptiedSide::Store),
            Self::Replace { memory, hash, .. } if empties(memory.hash, *hash) => Some(EmptiedSide::Folder),
            Self::Download { memory, replaces: Some(file), .. } if empties(*file, memory.hash) => {
                Some(EmptiedSide::Store)
            }
            _ => None,
        }
    }

    /// The new and the old path of a file, or of a base, that the step moves.
    pub(super) fn move_of_file(&self) -> Option<(&MemoryPath, &MemoryPath)> {
        match self {
            Self::MoveBase { from, to } | Self::MoveLocal { from, to, .. } => Some((to, from)),
            _ => None,
        }
    }

    pub(super) fn path(&self) -> &MemoryPath {
        match self {
            Self::MoveBase { from: path, .. }
            | Self::MoveLocal { from: path, .. }
            | Self::MoveRemote { from: path, .. }
            | Self::Forget { path }
            | Self::DeleteLocal { path, .. }
            | Self::DeleteRemote { path, .. }
            | Self::KeepBoth { path, .. }
            | Self::Download { path, .. }
            | Self::Create { path, .. }
            | Self::Replace { path, .. }
            | Self::Record { path, .. } => path,
        }
    }
}

#[cfg(test)]
pub(super) mod tests;
