//! Recognises renames, so that a moved file stays one memory.

use std::collections::HashMap;

use keepsake_core::{ContentHash, MemoryId, MemoryPath};

use super::names::Names;
use super::{Action, Planner, Side};

impl Planner<'_> {
    /// Follows memories that were moved: their id has another path.
    pub(super) fn follow_remote_renames(&mut self) {
        let places: HashMap<MemoryId, MemoryPath> = self
            .remote
            .iter()
            .filter_map(|(path, side)| Some((side.present()?.memory_id, path.clone())))
            .collect();
        // One move may make room for another.
        loop {
            let moved: Vec<_> = self
                .base
                .iter()
                .filter_map(|(from, base)| Some((from.clone(), places.get(&base.memory_id)?.clone())))
                .filter(|(from, to)| from != to && !self.base.contains_key(to))
                .collect();
            let planned = self.plan.actions.len();
            for (from, to) in moved {
                self.follow_remote_rename(&from, &to);
            }
            if self.plan.actions.len() == planned {
                return;
            }
        }
    }

    fn follow_remote_rename(&mut self, from: &MemoryPath, to: &MemoryPath) {
        let Some(base) = self.base.get(from).copied() else {
            return;
        };
        // Two memories cannot move to one path, but two paths of the base may have one id.
        if self.base.contains_key(to) {
            return;
        }
        match (self.local.get(from).copied(), self.local.get(to).copied()) {
            (Some(Side::Present(hash)), None) if self.is_free_in_the_folder(from, to) => {
                self.local.remove(from);
                self.local.insert(to.clone(), Side::Present(hash));
                self.plan.actions.push(Action::MoveLocal { from: from.clone(), to: to.clone(), hash });
            }
            (None, Some(Side::Present(hash))) if hash == base.hash => {
                self.plan.actions.push(Action::MoveBase { from: from.clone(), to: to.clone() });
            }
            _ => return,
        }
        self.base.remove(from);
        self.base.insert(to.clone(), base);
    }

    /// Follows files that were moved: one known content is missing at its path, and
    /// one new file has it.
    pub(super) fn follow_local_renames(&mut self) {
        let mut missing: HashMap<ContentHash, Vec<&MemoryPath>> = HashMap::new();
        for (path, base) in &self.base {
            let remote = self.remote.get(path).and_then(Side::present);
            if !self.local.contains_key(path)
                && remote.is_some_and(|remote| remote.memory_id == base.memory_id)
            {
                missing.entry(base.hash).or_default().push(path);
            }
        }
        let mut new: HashMap<ContentHash, Vec<&MemoryPath>> = HashMap::new();
        for (path, side) in &self.local {
            let is_new = !self.base.contains_key(path) && !self.remote.contains_key(path);
            if let Side::Present(hash) = side
                && is_new
            {
                new.entry(*hash).or_default().push(path);
            }
        }
        let mut moved: Vec<_> = missing
            .iter()
            .filter_map(|(hash, from)| match (from.as_slice(), new.get(hash)?.as_slice()) {
                ([from], [to]) => Some(((*from).clone(), (*to).clone())),
                _ => None,
            })
            .collect();
        moved.sort();
        let blocked_local = Names::blocked(&self.local);
        let blocked_remote = Names::blocked(&self.remote);
        for (from, to) in moved {
            let is_blocked =
                [&from, &to].iter().any(|path| blocked_local.covers(path) || blocked_remote.covers(path));
            let is_free = Names::new(self.remote.keys()).in_the_way_of(&to).is_none();
            let memory = self.remote.get(&from).and_then(Side::present);
            let (Some(memory), true, false) = (memory, is_free, is_blocked) else {
                continue;
            };
            self.remote.remove(&from);
            self.remote.insert(to.clone(), Side::Present(memory));
            if let Some(base) = self.base.remove(&from) {
                self.base.insert(to.clone(), base);
            }
            self.plan.actions.push(Action::MoveRemote { from, to, memory });
        }
    }

    /// Whether a file may move from one path to another without meeting a third.
    fn is_free_in_the_folder(&self, from: &MemoryPath, to: &MemoryPath) -> bool {
        // A file cannot move below itself.
        if to.is_below(&from.as_dir()) || from.is_below(&to.as_dir()) {
            return false;
        }
        let mut names = Names::new(self.local.keys().filter(|path| *path != from));
        if self.settings.ignores_case {
            names = names.ignoring_case();
        }
        names.in_the_way_of(to).is_none() && !names.is_other_spelling(to)
    }
}
