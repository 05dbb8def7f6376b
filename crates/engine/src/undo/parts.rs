//! Splits a large plan into commits. A memory takes a path only after the memories
//! there have left, or in the same commit. Deletions come first, so that a store at its limits has room for the
//! memories that come back. The memory that becomes the tests of the store comes last, with
//! the memories that wait for its path: the tests may be a gate, and a gate refuses later parts.

use std::collections::{BTreeMap, HashMap};

use keepsake_core::MemoryPath;

use super::plan::{PlannedStep, UndoAction};

/// The largest commit.
#[derive(Debug, Clone, Copy)]
pub(super) struct PartLimits {
    pub(super) steps: usize,
    pub(super) bytes: u64,
}

/// The steps of each commit, in the order of the commits.
#[derive(Debug, Default)]
pub(super) struct Parts {
    pub(super) parts: Vec<Vec<usize>>,
    /// Steps that depend on each other, and are too many for one commit.
    pub(super) entangled: Vec<usize>,
}

/// Splits the steps that are made. `steps` are by their places.
pub(super) fn split(steps: &[PlannedStep<'_>], limits: PartLimits) -> Parts {
    let mut order = Order::of(steps);
    let mut parts = Parts::default();
    let mut open = OpenPart::default();
    while let Some(place) = order.next() {
        open.add(&[place], steps, limits, &mut parts);
    }
    let mut groups = order.groups();
    groups.sort_by_key(|group| group.iter().any(|place| steps[*place].becomes_tests()));
    for group in groups {
        let bytes: u64 = group.iter().map(|place| steps[*place].bytes()).sum();
        if group.len() > limits.steps || bytes > limits.bytes {
            parts.entangled.extend(group);
        } else {
            open.add(&group, steps, limits, &mut parts);
        }
    }
    open.end(&mut parts);
    parts
}

#[derive(Default)]
struct OpenPart {
    steps: Vec<usize>,
    bytes: u64,
}

impl OpenPart {
    fn add(&mut self, group: &[usize], steps: &[PlannedStep<'_>], limits: PartLimits, parts: &mut Parts) {
        let bytes: u64 = group.iter().map(|place| steps[*place].bytes()).sum();
        let is_full = self.steps.len() + group.len() > limits.steps || self.bytes + bytes > limits.bytes;
        if is_full {
            self.end(parts);
        }
        self.steps.extend(group);
        self.bytes += bytes;
    }

    fn end(&mut self, parts: &mut Parts) {
        let steps = std::mem::take(&mut self.steps);
        self.bytes = 0;
        if !steps.is_empty() {
            parts.parts.push(steps);
        }
    }
}

/// The steps, each after the steps that it waits for.
struct Order {
    /// How many steps each step waits for, by its place.
    waits: HashMap<usize, usize>,
    waiting: HashMap<usize, Vec<usize>>,
    /// Deletions, which wait for nothing, the first last.
    deletions: Vec<usize>,
    /// The others that wait for nothing, the first last. Deletions come before them: the first one may let many
    /// memories come back.
    ready: Vec<usize>,
}

impl Order {
    fn of(steps: &[PlannedStep<'_>]) -> Self {
        let made = || steps.iter().enumerate().filter(|(_, step)| step.is_made());
        let left: BTreeMap<&str, usize> = made()
            .filter(|(_, step)| step.action == UndoAction::Deleted || step.memory.moves_to().is_some())
            .filter_map(|(place, step)| Some((step.memory.live.as_ref()?.path.as_str(), place)))
            .collect();
        let (mut waits, mut waiting) = (HashMap::new(), HashMap::<_, Vec<_>>::new());
        for (place, step) in made() {
            let first = step.memory.moves_to().map(|path| leaving(&left, path)).unwrap_or_default();
            let first: Vec<_> = first.into_iter().filter(|before| *before != place).collect();
            // Nothing releases the step that brings the tests, so it ends in a group with all steps after it.
            waits.insert(place, first.len() + usize::from(step.becomes_tests()));
            for before in first {
                waiting.entry(before).or_default().push(place);
            }
        }
        let mut ready: Vec<usize> =
            waits.iter().filter(|(_, count)| **count == 0).map(|(place, _)| *place).collect();
        ready.sort_unstable_by(|one, other| other.cmp(one));
        let is_deletion = |place: &usize| steps[*place].action == UndoAction::Deleted;
        let (deletions, ready) = ready.into_iter().partition(is_deletion);
        Self { waits, waiting, deletions, ready }
    }

    /// A step that waits for no other one.
    fn next(&mut self) -> Option<usize> {
        let place = self.deletions.pop().or_else(|| self.ready.pop())?;
        self.waits.remove(&place);
        for next in self.waiting.remove(&place).unwrap_or_default() {
            if let Some(count) = self.waits.get_mut(&next) {
                *count -= 1;
                if *count == 0 {
                    self.ready.push(next);
                }
            }
        }
        Some(place)
    }

    /// The steps that are left wait for each other in circles, for the tests, or for such steps: groups
    /// that have nothing to do with each other.
    fn groups(self) -> Vec<Vec<usize>> {
        let mut near: BTreeMap<usize, Vec<usize>> =
            self.waits.keys().map(|place| (*place, Vec::new())).collect();
        for (before, after) in &self.waiting {
            for next in after {
                near.entry(*before).or_default().push(*next);
                near.entry(*next).or_default().push(*before);
            }
        }
        let mut groups = Vec::new();
        while let Some((first, next)) = near.pop_first() {
            let (mut group, mut open) = (vec![first], next);
            while let Some(place) = open.pop() {
                if let Some(next) = near.remove(&place) {
                    group.push(place);
                    open.extend(next);
                }
            }
            group.sort_unstable();
            groups.push(group);
        }
        groups
    }
}

/// The steps that must leave before a memory takes the path.
fn leaving(left: &BTreeMap<&str, usize>, path: &MemoryPath) -> Vec<usize> {
    let at = std::iter::once(path.as_str()).chain(path.ancestor_files());
    let directory = path.as_dir();
    let below = left.range(directory.as_str()..).take_while(|(path, _)| path.starts_with(directory.as_str()));
    at.filter_map(|path| left.get(path).copied()).chain(below.map(|(_, place)| *place)).collect()
}
