//! Both sides in memory: carries a plan out and keeps the store's history.

use std::collections::{BTreeMap, BTreeSet};

use keepsake_core::{ContentHash, MemoryId, MemoryPath};
use uuid::Uuid;

use super::super::{Action, Base, KnownMemory, LocalFiles, Plan, RemoteMemories, Settings, Side, plan};

#[derive(Debug, Default, Clone)]
pub(super) struct Model {
    pub(super) base: Base,
    pub(super) folder: BTreeMap<MemoryPath, ContentHash>,
    pub(super) store: BTreeMap<MemoryPath, KnownMemory>,
    pub(super) history: BTreeSet<[u8; 32]>,
    next_id: u128,
    plans: usize,
}

impl Model {
    pub(super) fn plan(&mut self, ignores_case: bool) -> Plan {
        self.plans += 1;
        let local: LocalFiles =
            self.folder.iter().map(|(path, hash)| (path.clone(), Side::Present(*hash))).collect();
        let remote: RemoteMemories =
            self.store.iter().map(|(path, known)| (path.clone(), Side::Present(*known))).collect();
        let time = format!("T{}", self.plans);
        let settings = Settings { time: &time, ignores_case };
        plan(&self.base, &local, &remote, settings)
    }

    /// Carries a plan out as far as `steps`.
    pub(super) fn carry_out(&mut self, plan: &Plan, steps: usize) {
        for action in plan.actions.iter().take(steps) {
            self.step(action);
            self.check(action);
        }
    }

    pub(super) fn put(&mut self, path: &MemoryPath, hash: ContentHash) {
        let memory_id = if let Some(known) = self.store.get(path) {
            known.memory_id
        } else {
            self.next_id += 1;
            MemoryId::from_uuid(Uuid::from_u128(self.next_id))
        };
        self.history.insert(*hash.as_bytes());
        let known = KnownMemory { memory_id, hash, version_id: None };
        self.store.insert(path.clone(), known);
    }

    fn step(&mut self, action: &Action) {
        match action.clone() {
            Action::MoveBase { from, to } => self.move_base(&from, to),
            Action::MoveLocal { from, to, hash } => {
                assert_eq!(self.folder.remove(&from), Some(hash));
                assert_eq!(self.folder.insert(to.clone(), hash), None);
                self.move_base(&from, to);
            }
            Action::MoveRemote { from, to, memory } => {
                assert_eq!(self.store.remove(&from), Some(memory));
                assert_eq!(self.store.insert(to.clone(), memory), None);
                self.move_base(&from, to);
            }
            Action::Forget { path } => {
                self.base.remove(&path);
            }
            Action::DeleteLocal { path, memory } => {
                assert!(!self.store.contains_key(&path));
                assert_eq!(self.folder.remove(&path), Some(memory.hash));
                self.base.remove(&path);
            }
            Action::DeleteRemote { path, memory } => {
                assert!(!self.folder.contains_key(&path));
                assert_eq!(self.store.remove(&path), Some(memory));
                self.base.remove(&path);
            }
            Action::KeepBoth { path, kept_as } => {
                let hash = self.folder.remove(&path).unwrap();
                assert_eq!(self.folder.insert(kept_as, hash), None);
                self.base.remove(&path);
            }
            Action::Download { path, memory, replaces } => {
                assert_eq!(self.store.get(&path), Some(&memory));
                assert_eq!(self.folder.insert(path.clone(), memory.hash), replaces);
                self.base.insert(path, memory);
            }
            Action::Create { path, hash } => {
                assert_eq!(self.folder.get(&path), Some(&hash));
                assert!(!self.store.contains_key(&path));
                self.put(&path, hash);
                self.base.insert(path.clone(), self.store[&path]);
            }
            Action::Replace { path, memory, hash } => {
                assert_eq!(self.folder.get(&path), Some(&hash));
                assert_eq!(self.store.get(&path), Some(&memory));
                self.put(&path, hash);
                self.base.insert(path.clone(), self.store[&path]);
            }
            Action::Record { path, memory } => {
                assert_eq!(self.folder.get(&path), Some(&memory.hash));
                assert_eq!(self.store.get(&path), Some(&memory));
                self.base.insert(path, memory);
            }
        }
    }

    fn move_base(&mut self, from: &MemoryPath, to: MemoryPath) {
        let known = self.base.remove(from).unwrap();
        self.base.insert(to, known);
    }

    /// Neither side may have a file where the other names need a directory.
    fn check(&self, action: &Action) {
        for side in [self.folder.keys().collect::<Vec<_>>(), self.store.keys().collect()] {
            let paths: BTreeSet<_> = side.iter().map(|path| path.as_str()).collect();
            for path in side {
                assert!(
                    path.ancestor_files().all(|above| !paths.contains(above)),
                    "{path} is below a file after {action:?}"
                );
            }
        }
    }

    pub(super) fn is_equal(&self) -> bool {
        let store: BTreeMap<_, _> =
            self.store.iter().map(|(path, known)| (path.clone(), known.hash)).collect();
        store == self.folder && self.base == self.store
    }
}
