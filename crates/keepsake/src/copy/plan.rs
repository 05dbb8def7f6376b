//! The plan of a pass: a pure comparison of both stores with the memories that were copied before.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use keepsake_archive::plan::{
    ContentOrigin, Destination, DestinationMemory, ImportStep, OnConflict, SourceMemory, decide,
};
use keepsake_archive::report::{Class, Outcome, Report};
use keepsake_archive::verified::SourceListing;
use keepsake_core::{MemoryPath, Timestamp};

pub(super) type TargetMemories = BTreeMap<MemoryPath, DestinationMemory>;

/// What this run copied or found equal, by path.
pub(super) type Base = BTreeMap<MemoryPath, CopiedMemory>;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct CopiedMemory {
    pub(super) source_id: String,
    /// The hash of the content as it was read.
    pub(super) sha256: String,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Rules {
    pub(super) on_conflict: OnConflict,
    /// Whether memories are deleted that only the target has.
    pub(super) deletes: bool,
    /// Whether a memory that was moved in the source is moved in the target.
    pub(super) moves: bool,
    pub(super) now: Timestamp,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Move {
    pub(super) memory_id: String,
    pub(super) copied: CopiedMemory,
    pub(super) from: MemoryPath,
    pub(super) to: MemoryPath,
}

#[derive(Debug, Default)]
pub(super) struct Plan {
    /// If there are any, nothing else is planned: the next pass sees the result.
    pub(super) moves: Vec<Move>,
    /// Memories of the target that are deleted.
    pub(super) deletions: TargetMemories,
    pub(super) steps: Vec<ImportStep>,
    /// Memories that are equal on both sides.
    pub(super) equal: Base,
    /// Memories that only the target has, and keeps.
    pub(super) kept: usize,
    /// What was copied, and is on neither side any more.
    pub(super) lost: Vec<MemoryPath>,
    pub(super) target_count: usize,
    pub(super) present: BTreeSet<MemoryPath>,
    pub(super) report: Report,
}

/// Compares the stores. `found` also reports the memories of the source that cannot be copied.
pub(super) fn plan(found: SourceListing, mut target: TargetMemories, base: &Base, rules: Rules) -> Plan {
    let SourceListing { items, report, .. } = found;
    let refused = report.refusals(Class::Rule).filter_map(|path| MemoryPath::parse(path).ok());
    let present: BTreeSet<_> = items.iter().map(|item| item.path.clone()).chain(refused).collect();
    let mut plan = Plan { present, report, target_count: target.len(), ..Plan::default() };
    if rules.moves {
        plan.moves = moves(&items, &plan.present, &target, base);
        if !plan.moves.is_empty() {
            return plan;
        }
    }
    let is_lost = |path: &&MemoryPath| !plan.present.contains(*path) && !target.contains_key(*path);
    plan.lost = base.keys().filter(is_lost).cloned().collect();
    let gone: Vec<_> = target.keys().filter(|path| !plan.present.contains(*path)).cloned().collect();
    for path in gone {
        let Some(memory) = target.get(&path) else { continue };
        let copied = base.get(&path);
        let is_as_copied = copied.is_some_and(|copied| copied.sha256 == memory.sha256);
        if is_as_copied || rules.deletes {
            plan.deletions.extend(target.remove_entry(&path));
        } else {
            plan.kept += 1;
            if copied.is_some() {
                let reason = "was deleted in the source, and changed in the target: it is kept";
                plan.report.add(path.as_str(), Outcome::refused(Class::Conflict, reason));
            }
        }
    }
    let mut destination = Destination::default();
    for (path, memory) in &target {
        destination.add(path, memory.clone());
    }
    // A memory that is unchanged in the target since it was copied is replaced, whatever the rule for conflicts.
    let (mut ours, mut others) = (Vec::new(), Vec::new());
    for item in items {
        let there = target.get(&item.path);
        let is_equal = there.is_some_and(|there| there.sha256 == item.sha256.to_string());
        if is_equal && let Some(copied) = copied_of(&item, item.sha256.to_string()) {
            plan.equal.insert(item.path.clone(), copied);
        }
        let is_as_copied = base
            .get(&item.path)
            .is_some_and(|copied| there.is_some_and(|there| there.sha256 == copied.sha256));
        if is_as_copied && !is_equal { ours.push(item) } else { others.push(item) }
    }
    plan.steps = decide(ours, &destination, OnConflict::Replace, rules.now, &mut plan.report);
    plan.steps.extend(decide(others, &destination, rules.on_conflict, rules.now, &mut plan.report));
    plan
}

/// The record of an item that was copied with this hash; `None`: the item is a file.
pub(super) fn copied_of(item: &SourceMemory, sha256: String) -> Option<CopiedMemory> {
    match &item.origin {
        ContentOrigin::Memory(id) => Some(CopiedMemory { source_id: id.clone(), sha256 }),
        ContentOrigin::File(_) => None,
    }
}

/// The memories that the source moved to a path that the target does not have.
fn moves(
    items: &[SourceMemory],
    present: &BTreeSet<MemoryPath>,
    target: &TargetMemories,
    base: &Base,
) -> Vec<Move> {
    let places: HashMap<&str, &MemoryPath> = items
        .iter()
        .filter_map(|item| match &item.origin {
            ContentOrigin::Memory(id) => Some((id.as_str(), &item.path)),
            ContentOrigin::File(_) => None,
        })
        .collect();
    let moved = base.iter().filter(|(path, _)| !present.contains(*path)).filter_map(|(path, copied)| {
        let memory = target.get(path).filter(|memory| memory.sha256 == copied.sha256)?;
        let to = *places.get(copied.source_id.as_str()).filter(|to| !target.contains_key(**to))?;
        let (from, to) = (path.clone(), to.clone());
        Some(Move { memory_id: memory.id.clone(), copied: copied.clone(), from, to })
    });
    moved.collect()
}

#[cfg(test)]
mod tests {
    use keepsake_core::ContentHash;

    use super::*;

    /// Memories as `path=content`; the id of a memory of the source is `mem_` and its content's first letter.
    fn memories(text: &str) -> Vec<(MemoryPath, String)> {
        let memories = text.split_whitespace().map(|memory| memory.split_once('=').unwrap());
        memories.map(|(path, content)| (MemoryPath::parse(path).unwrap(), content.to_owned())).collect()
    }

    fn hash(content: &str) -> ContentHash {
        ContentHash::of(content.as_bytes())
    }

    /// The plan in words: what happens to which path, sorted.
    fn planned(source: &str, target: &str, base: &str, on_conflict: OnConflict, deletes: bool) -> String {
        let id = |content: &str| format!("mem_{}", &content[..1]);
        let items = memories(source).into_iter().map(|(path, content)| SourceMemory {
            path,
            sha256: hash(&content),
            size_bytes: 1,
            is_pinned: false,
            expires_at: None,
            origin: ContentOrigin::Memory(id(&content)),
        });
        let found = SourceListing { items: items.collect(), ..SourceListing::default() };
        let target = memories(target).into_iter().map(|(path, content)| {
            let sha256 = hash(&content).to_string();
            let there = DestinationMemory { id: content, sha256, is_pinned: false, expires_at: None };
            (path, there)
        });
        let base = memories(base).into_iter().map(|(path, content)| {
            let copied = CopiedMemory { source_id: id(&content), sha256: hash(&content).to_string() };
            (path, copied)
        });
        let now = Timestamp::from_micros(0);
        let rules = Rules { on_conflict, deletes, moves: true, now };
        let mut plan = plan(found, target.collect(), &base.collect(), rules);
        let mut words = Vec::new();
        words.extend(plan.moves.iter().map(|moved| format!("{}>{}", moved.from.as_str(), moved.to.as_str())));
        words.extend(plan.deletions.keys().map(|path| format!("-{}", path.as_str())));
        words.extend(plan.steps.iter().map(|step| {
            let sign = if step.replaces.is_some() { '!' } else { '+' };
            format!("{sign}{}", step.item.path.as_str())
        }));
        let rest = plan.report.sorted().iter().filter(|entry| entry.outcome != Outcome::Unchanged);
        words.extend(rest.map(|entry| format!("{}:{}", entry.path, entry.outcome.name())));
        words.join(" ")
    }

    #[test]
    fn changes_of_the_source_are_told_from_those_of_the_target() {
        for (source, target, base, on_conflict, deletes, expected) in [
            ("/a=1 /b=2", "/b=2 /c=3", "", OnConflict::Fail, false, "+/a"),
            ("/a=1 /b=2", "/b=2 /c=3", "", OnConflict::Fail, true, "-/c +/a"),
            ("/a=1", "/a=x", "", OnConflict::Fail, false, "/a:refused"),
            ("/a=1", "/a=x", "", OnConflict::Skip, false, "/a:skipped"),
            ("/a=1", "/a=x", "", OnConflict::Replace, false, "!/a"),
            // The target has what was copied: the source changed, moved or deleted it.
            ("/a=12", "/a=1", "/a=1", OnConflict::Fail, false, "!/a"),
            ("/b=1", "/a=1", "/a=1", OnConflict::Fail, false, "/a>/b"),
            ("/b=12", "/a=1", "/a=1", OnConflict::Fail, false, "/a>/b"),
            ("", "/a=1", "/a=1", OnConflict::Fail, false, "-/a"),
            ("/b=1", "/a=1 /b=x", "/a=1", OnConflict::Replace, false, "-/a !/b"),
            // Two memories that changed places.
            ("/a=2 /b=1", "/a=1 /b=2", "/a=1 /b=2", OnConflict::Fail, false, "!/a !/b"),
            // A file became a directory.
            ("/a/b=2", "/a=1", "/a=1", OnConflict::Fail, false, "-/a +/a/b"),
            ("/a/b=2", "/a=x", "", OnConflict::Replace, false, "/a/b:refused"),
            // Somebody changed the copy.
            ("/a=12", "/a=x", "/a=1", OnConflict::Fail, false, "/a:refused"),
            ("", "/a=x", "/a=1", OnConflict::Replace, false, "/a:refused"),
            ("", "/a=x", "/a=1", OnConflict::Fail, true, "-/a"),
        ] {
            let found = planned(source, target, base, on_conflict, deletes);
            assert_eq!(found, expected, "{source} / {target} / {base}");
        }
    }
}
