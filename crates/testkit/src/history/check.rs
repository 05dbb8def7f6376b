//! The rules, applied in one walk over the versions and a few over the calls.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::timeline::{State, Timeline};
use super::{Call, Change, Edit, History, Operation, Outcome, Rule, Target, Version, Violation, edits, tags};

/// A memory as the versions so far have left it.
#[derive(Debug, Clone)]
struct Memory {
    path: Option<String>,
    content: Option<String>,
    is_live: bool,
}

struct Checker<'a> {
    history: &'a History,
    calls: HashMap<u64, &'a Call>,
    /// Calls that were acknowledged with the id of a version.
    named: HashMap<&'a str, Vec<&'a Call>>,
    /// Contents by version id, from the versions and from acknowledged calls.
    contents: HashMap<&'a str, &'a str>,
    positions: HashMap<&'a str, usize>,
    /// Versions by the number of the call that made them.
    landed: HashMap<u64, Vec<usize>>,
    memories: BTreeMap<&'a str, Memory>,
    live_paths: HashMap<String, &'a str>,
    timeline: Timeline,
    /// Versions whose call is chosen once the others have bounds, with their
    /// predecessors.
    open: Vec<(usize, Option<Memory>)>,
    violations: Vec<Violation>,
}

/// See [`History::check`].
pub(super) fn check(history: &History) -> Vec<Violation> {
    let mut checker = Checker::new(history);
    for position in 0..history.versions.len() {
        checker.walk(position);
    }
    checker.explain_open_versions();
    checker.check_calls();
    checker.check_redactions();
    checker.check_heads();
    let Checker { mut timeline, mut violations, .. } = checker;
    timeline.add_reads(&history.reads, &mut violations);
    timeline.check_order(|version| describe(&history.versions[version]), &mut violations);
    violations
}

impl<'a> Checker<'a> {
    fn new(history: &'a History) -> Self {
        let mut contents: HashMap<&str, &str> = HashMap::new();
        let mut named: HashMap<&str, Vec<&Call>> = HashMap::new();
        for call in &history.calls {
            let Outcome::Done { version_id: Some(version_id) } = &call.outcome else { continue };
            named.entry(version_id).or_default().push(call);
            if let Change::Create { content, .. } | Change::Update { content, .. } = &call.change {
                contents.insert(version_id, content);
            }
        }
        let versions = history.versions.iter();
        contents.extend(versions.clone().filter_map(|it| Some((&*it.id, it.content.as_deref()?))));
        Self {
            history,
            calls: history.calls.iter().map(|call| (call.number, call)).collect(),
            named,
            contents,
            positions: versions.enumerate().map(|(at, version)| (&*version.id, at)).collect(),
            landed: HashMap::new(),
            memories: BTreeMap::new(),
            live_paths: HashMap::new(),
            timeline: Timeline::new(history.versions.len()),
            open: Vec::new(),
            violations: Vec::new(),
        }
    }

    fn report(&mut self, rule: Rule, detail: String) {
        self.violations.push(Violation { rule, detail });
    }

    /// Takes the next version: finds its call, and notes the state after it.
    fn walk(&mut self, position: usize) {
        let version = &self.history.versions[position];
        let before = self.memories.get(&*version.memory_id).cloned();
        let after = self.state_after(version, before.as_ref());
        match self.call_of(version, before.as_ref(), &after) {
            Some(call) => self.assign(position, call, before.as_ref()),
            None => self.open.push((position, before.clone())),
        }
        self.note_paths(position, before.as_ref(), &after);
        self.memories.insert(&version.memory_id, after);
    }

    fn state_after(&self, version: &Version, before: Option<&Memory>) -> Memory {
        let is_live = version.operation != Operation::Deleted;
        let made_by = self.named.get(&*version.id).and_then(|calls| calls.first());
        let path_of_call = made_by.and_then(|call| match &call.change {
            Change::Create { path, .. } | Change::Rename { to: path, .. } => Some(path.clone()),
            Change::Update { .. } => before?.path.clone(),
            _ => None,
        });
        let known = self.contents.get(&*version.id).map(|content| (*content).to_owned());
        Memory { path: version.path.clone().or(path_of_call), content: known.filter(|_| is_live), is_live }
    }

    /// The call that made a version, where the answer or a tag says so.
    fn call_of(&self, version: &Version, before: Option<&Memory>, after: &Memory) -> Option<&'a Call> {
        let new = new_tags(before, after);
        let named = self.named.get(&*version.id).map_or(&[][..], Vec::as_slice);
        let is_restore = |call: &Call| matches!(call.change, Change::Restore { .. });
        let named_writer = named.iter().find(|call| !is_restore(call) && new.contains(&call.number));
        let by_tag = || {
            let [number] = *new.iter().copied().collect::<Vec<_>>() else { return None };
            self.calls.get(&number).filter(|_| !self.landed.contains_key(&number))
        };
        // A restore that finds everything as it was names a version of another call.
        let restores = named.iter().filter(|call| is_restore(call));
        let restore = || restores.min_by_key(|call| call.at.began);
        named_writer.or_else(by_tag).or_else(restore).copied()
    }

    /// Notes that a call made a version, and checks what it made of it.
    fn assign(&mut self, position: usize, call: &'a Call, before: Option<&Memory>) {
        let version = &self.history.versions[position];
        self.landed.entry(call.number).or_default().push(position);
        let acknowledged = matches!(call.outcome, Outcome::Done { .. }).then_some(call.at.ended);
        let reason = || format!("{call:?}");
        self.timeline.bound(position, call.at.began, acknowledged, reason);
        let after = self.state_after(version, before);
        if let Err(why) = self.follows(call, version, before, &after) {
            let detail = format!("{} by call {call:?}: {why}; before it: {before:?}", describe(version));
            self.report(Rule::FollowsFromPredecessor, detail);
        }
    }

    /// Whether a version is what its call had to make of the predecessor.
    fn follows(
        &self,
        call: &Call,
        version: &Version,
        before: Option<&Memory>,
        after: &Memory,
    ) -> Result<(), &'static str> {
        let was = before.filter(|before| before.is_live);
        let expects = |operation| {
            if version.operation == operation { Ok(()) } else { Err("wrong operation") }
        };
        match &call.change {
            Change::Create { path, content } => {
                expects(Operation::Created)?;
                same(after.path.as_ref(), Some(path), "wrong path")?;
                same(after.content.as_ref(), Some(content), "wrong content")
            }
            Change::Update { memory_id, expected, content } => {
                expects(Operation::Modified)?;
                same(Some(memory_id), Some(&version.memory_id), "another memory")?;
                let was = was.ok_or("the memory did not exist")?;
                same(expected.as_ref(), was.content.as_ref(), "the precondition did not hold")?;
                same(after.path.as_ref(), was.path.as_ref(), "the path changed")?;
                same(after.content.as_ref(), Some(content), "wrong content")
            }
            Change::Edit { path, edit } => {
                same(after.path.as_ref(), Some(path), "another path")?;
                follows_edit(edit, was, after)
            }
            Change::Rename { target, to } => {
                expects(Operation::Modified)?;
                let was = was.ok_or("the memory did not exist")?;
                is_target(target, version, was)?;
                same(after.path.as_ref(), Some(to), "wrong path")?;
                same(after.content.as_ref(), was.content.as_ref(), "the content changed")
            }
            Change::Delete { target, expected } => {
                expects(Operation::Deleted)?;
                let was = was.ok_or("the memory did not exist")?;
                is_target(target, version, was)?;
                same(expected.as_ref(), was.content.as_ref(), "the precondition did not hold")
            }
            Change::Restore { version_id } => {
                let source = self.positions.get(&**version_id).map(|&at| &self.history.versions[at]);
                let source = source.ok_or("the restored version does not exist")?;
                same(Some(&source.memory_id), Some(&version.memory_id), "another memory")?;
                same(source.path.as_ref(), after.path.as_ref(), "another path than the restored version")?;
                let content = self.contents.get(&**version_id).map(|content| (*content).to_owned());
                same(content.as_ref(), after.content.as_ref(), "other content than the restored version")
            }
            Change::Redact { .. } => Err("a redaction makes no version"),
        }
    }

    /// Notes what paths and the memory show from a version on.
    fn note_paths(&mut self, position: usize, before: Option<&Memory>, after: &Memory) {
        let version = &self.history.versions[position];
        let state = if after.is_live { State::live(after.content.as_deref()) } else { State::Absent };
        self.timeline.record(Target::Memory(version.memory_id.clone()), position, state.clone());
        let was_at = before.filter(|before| before.is_live).and_then(|before| before.path.clone());
        if let Some(path) = was_at {
            self.live_paths.remove(&path);
            if after.path.as_ref() != Some(&path) || !after.is_live {
                self.timeline.record(Target::Path(path), position, State::Absent);
            }
        }
        let Some(path) = after.path.clone().filter(|_| after.is_live) else { return };
        if let Some(other) = self.live_paths.insert(path.clone(), &version.memory_id) {
            let detail = format!("{} while {other} is there", describe(version));
            self.report(Rule::PathIsUnique, detail);
        }
        self.timeline.record(Target::Path(path), position, state);
    }

    /// Chooses calls for deletions and for the versions of unanswered restores:
    /// among the calls that fit, the call that had to land first.
    fn explain_open_versions(&mut self) {
        for (position, before) in std::mem::take(&mut self.open) {
            let version = &self.history.versions[position];
            let after = self.state_after(version, before.as_ref());
            let window = self.timeline.window(position);
            let fits = |call: &&Call| {
                let is_deadline_met = match call.outcome {
                    Outcome::Done { .. } => call.at.ended >= window.began,
                    Outcome::Unknown => true,
                    Outcome::Refused => false,
                };
                let is_unnamed = !matches!(call.outcome, Outcome::Done { version_id: Some(_) });
                is_deadline_met
                    && is_unnamed
                    && call.at.began <= window.ended
                    && !self.landed.contains_key(&call.number)
                    && matches!(call.change, Change::Delete { .. } | Change::Restore { .. })
                    && self.follows(call, version, before.as_ref(), &after).is_ok()
            };
            let is_unknown = |call: &&Call| call.outcome == Outcome::Unknown;
            let chosen =
                self.history.calls.iter().filter(fits).min_by_key(|call| (is_unknown(call), call.at.ended));
            if let Some(call) = chosen {
                self.assign(position, call, before.as_ref());
                continue;
            }
            // A tag of a call that landed before: it landed again.
            let again = new_tags(before.as_ref(), &after).into_iter().next_back();
            if let Some(call) = again.and_then(|number| self.calls.get(&number).copied()) {
                self.assign(position, call, before.as_ref());
                continue;
            }
            let similar = self.calls_on(version, before.as_ref());
            let detail = format!("{}; it can be at {window:?}; calls on it: {similar:?}", describe(version));
            self.report(Rule::VersionHasACall, detail);
        }
    }

    /// Deletions and restores of the same memory or path, whatever their outcome.
    fn calls_on(&self, version: &Version, before: Option<&Memory>) -> Vec<&'a Call> {
        let path = before.and_then(|before| before.path.as_ref());
        let is_similar = |call: &&Call| match &call.change {
            Change::Delete { target: Target::Path(at), .. } => Some(at) == path,
            Change::Delete { target: Target::Memory(id), .. } => *id == version.memory_id,
            Change::Restore { version_id } => {
                let source = self.positions.get(&**version_id).map(|&at| &self.history.versions[at]);
                source.is_some_and(|source| source.memory_id == version.memory_id)
            }
            _ => false,
        };
        self.history.calls.iter().filter(is_similar).collect()
    }

    fn check_calls(&mut self) {
        for call in &self.history.calls {
            let landed = self.landed.get(&call.number).map_or(&[][..], Vec::as_slice);
            let rule = match (&call.outcome, landed) {
                (_, [_, _, ..]) => Rule::LandsOnce,
                (Outcome::Refused, [_]) => Rule::RefusedDoesNotLand,
                (Outcome::Done { version_id }, [])
                    if !self.is_without_version(call, version_id.as_deref()) =>
                {
                    Rule::AcknowledgedIsKept
                }
                _ => continue,
            };
            let versions: Vec<_> = landed.iter().map(|&at| describe(&self.history.versions[at])).collect();
            self.violations.push(Violation { rule, detail: format!("{call:?} made {versions:?}") });
        }
    }

    /// Whether an acknowledged call had no version to make: a redaction, or a
    /// restore of content and path that the memory had.
    fn is_without_version(&self, call: &Call, named: Option<&str>) -> bool {
        match &call.change {
            Change::Redact { .. } => true,
            Change::Restore { version_id } => {
                named.is_some_and(|named| self.contents.get(named) == self.contents.get(&**version_id))
            }
            _ => false,
        }
    }

    fn check_redactions(&mut self) {
        let mut requested = BTreeSet::new();
        for call in &self.history.calls {
            let Change::Redact { version_id } = &call.change else { continue };
            if call.outcome != Outcome::Refused {
                requested.insert(&**version_id);
            }
            let version = self.positions.get(&**version_id).map(|&at| &self.history.versions[at]);
            let is_redacted = version.is_some_and(|version| version.is_redacted && version.content.is_none());
            if matches!(call.outcome, Outcome::Done { .. }) && !is_redacted {
                self.report(Rule::RedactedAsAsked, format!("{call:?} left {version:?}"));
            }
        }
        for version in &self.history.versions {
            if version.is_redacted && !requested.contains(&*version.id) {
                self.report(Rule::RedactedAsAsked, format!("no client redacted {}", describe(version)));
            }
        }
    }

    fn check_heads(&mut self) {
        let mut listed: BTreeMap<_, _> =
            self.history.heads.iter().map(|head| (&*head.memory_id, head)).collect();
        for (memory_id, memory) in std::mem::take(&mut self.memories) {
            let head = listed.remove(memory_id);
            let is_same = match head {
                Some(head) => {
                    memory.is_live
                        && same(memory.path.as_ref(), Some(&head.path), "").is_ok()
                        && same(memory.content.as_ref(), Some(&head.content), "").is_ok()
                }
                None => !memory.is_live,
            };
            if !is_same {
                let detail = format!("{memory_id} is {memory:?} by its versions, and is listed as {head:?}");
                self.report(Rule::HeadsMatchVersions, detail);
            }
        }
        for head in listed.values() {
            self.report(Rule::HeadsMatchVersions, format!("no version has {head:?}"));
        }
    }
}

fn follows_edit(edit: &Edit, was: Option<&Memory>, after: &Memory) -> Result<(), &'static str> {
    let is_creation = was.is_none() && matches!(edit, Edit::Append { .. });
    let before = match was {
        Some(was) => match &was.content {
            Some(content) => Some(&**content),
            None => return Ok(()),
        },
        None if is_creation => None,
        None => return Err("the memory did not exist"),
    };
    match edits::apply(edit, before) {
        Some(expected) => same(after.content.as_ref(), Some(&expected), "wrong content"),
        None => Err("the edit does not fit the predecessor"),
    }
}

fn is_target(target: &Target, version: &Version, was: &Memory) -> Result<(), &'static str> {
    match target {
        Target::Path(path) => same(was.path.as_ref(), Some(path), "another path"),
        Target::Memory(memory_id) => same(Some(memory_id), Some(&version.memory_id), "another memory"),
    }
}

/// Whether both are the same, as far as both are known.
fn same(a: Option<&String>, b: Option<&String>, why: &'static str) -> Result<(), &'static str> {
    match (a, b) {
        (Some(a), Some(b)) if a != b => Err(why),
        _ => Ok(()),
    }
}

/// The numbers of the calls whose tags a version added.
fn new_tags(before: Option<&Memory>, after: &Memory) -> BTreeSet<u64> {
    let all = |memory: &Memory| -> BTreeSet<u64> {
        let texts = [memory.path.as_deref(), memory.content.as_deref()];
        texts.into_iter().flatten().flat_map(tags).collect()
    };
    let old = before.filter(|before| before.is_live).map(all).unwrap_or_default();
    all(after).difference(&old).copied().collect()
}

fn describe(version: &Version) -> String {
    let Version { id, memory_id, operation, path, content, is_redacted } = version;
    format!(
        "version {id} ({operation:?}, redacted: {is_redacted}) of {memory_id} at {path:?} with {content:?}"
    )
}
