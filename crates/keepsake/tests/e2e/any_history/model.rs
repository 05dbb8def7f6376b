//! A simple model of a store: a list of memories and a list of versions, changed by
//! one call after the other.

use keepsake_core::path::is_visible;
use keepsake_core::tool::{ToolPath, format_size, insert, str_replace};

use crate::prelude::*;

#[derive(Debug, Clone, Default)]
pub(crate) struct Memory {
    pub(crate) path: String,
    pub(crate) content: String,
    pub(crate) is_live: bool,
    pub(crate) is_pinned: bool,
    /// The version whose blob holds the content.
    blob: usize,
}

#[derive(Debug, Clone)]
pub(crate) struct Version {
    pub(crate) memory: usize,
    pub(crate) operation: &'static str,
    pub(crate) path: Option<String>,
    pub(crate) content: Option<(String, usize)>,
    pub(crate) by: usize,
    pub(crate) is_redacted: bool,
    pub(crate) is_erased: bool,
}

impl Version {
    pub(crate) fn text(&self) -> Option<&String> {
        self.content.as_ref().map(|(content, _)| content)
    }
}

#[derive(Debug, Clone, Default)]
pub(crate) struct Model {
    pub(crate) memories: Vec<Memory>,
    pub(crate) versions: Vec<Version>,
    /// Batches that were sent, refused ones included.
    pub(crate) batches: usize,
    /// The client whose call is being applied.
    by: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    CreateOnly,
    NotExists,
    Upsert,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Precondition {
    Sha256(String),
    NotExists,
}

#[derive(Debug, Clone)]
pub(crate) struct Edit {
    pub(crate) content: Option<String>,
    pub(crate) path: Option<String>,
    pub(crate) pinned: Option<bool>,
}

/// A call; memories and versions are named by their places in the model. An erasure is
/// waited for. In a batch, another operation follows that makes the memory `beside`.
#[derive(Debug, Clone)]
pub(crate) enum Call {
    Create { path: String, content: String, mode: Mode },
    Update { memory: usize, edit: Edit, precondition: Option<Precondition> },
    Delete { memory: usize, expected: Option<String> },
    Redact(usize),
    Restore { version: usize, precondition: Option<Precondition> },
    Tool(Tool),
    Erase { prefix: String },
    Batched { call: Box<Call>, is_atomic: bool, beside: String },
}

/// A call of the memory tool, or of an agent tool; paths are those of the store.
#[derive(Debug, Clone)]
pub(crate) enum Tool {
    Create(String, String),
    Replace(String, String, String),
    Insert(String, i64, String),
    Delete(String),
    Rename(String, String),
    Append(String, String),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Answer {
    // The memory as it is now.
    Memory(usize),
    Deleted(usize),
    // The version, and other versions with the same content.
    Redacted(usize, Option<Vec<usize>>),
    Tool { is_error: bool },
    Erased { memories: usize, versions: usize },
    NotFound,
    // A content precondition does not hold: the memory, and what it holds.
    PreconditionFailed(usize, Option<String>),
    // This memory is in the way.
    PathConflict(usize),
    Conflict,
}

/// The position of a memory that conflicts with a path, relative to this path.
enum Obstacle {
    At,
    Below,
    Above,
}

/// The directory of a memory, without a slash at the end.
fn directory_of(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(directory, _)| directory)
}

impl Model {
    /// The text of an edit that is sent again, if the version before the edit was
    /// redacted: the edit cannot be applied to it again, so no lines are shown.
    pub(crate) fn text_without_lines(&self, call: &Call, version: usize) -> Option<String> {
        let Call::Tool(Tool::Replace(path, ..) | Tool::Insert(path, ..)) = call else {
            return None;
        };
        let memory = self.versions[version].memory;
        let mut earlier = self.versions[..version].iter();
        let before = earlier.rfind(|before| before.memory == memory)?;
        before.is_redacted.then(|| format!("The file /memories{path} has been edited."))
    }

    fn live_at(&self, path: &str) -> Option<usize> {
        self.memories.iter().position(|memory| memory.is_live && memory.path == path)
    }

    /// Live memories below a directory, in the order of their paths.
    fn live_below(&self, directory: &str) -> Vec<usize> {
        let prefix = format!("{}/", directory.trim_end_matches('/'));
        let memories = self.memories.iter().enumerate();
        let below = memories.filter(|(_, memory)| memory.is_live && memory.path.starts_with(&prefix));
        let below: BTreeMap<_, _> = below.map(|(number, memory)| (&memory.path, number)).collect();
        below.into_values().collect()
    }

    pub(crate) fn counts(&self) -> (usize, usize) {
        let live = self.memories.iter().filter(|memory| memory.is_live);
        live.fold((0, 0), |(count, bytes), memory| (count + 1, bytes + memory.content.len()))
    }

    /// The directory of a memory that a call deletes: a batch may empty and refill it. The
    /// root, which is empty here, for other calls.
    pub(crate) fn directory_left_by(&self, call: &Call) -> &str {
        match call {
            Call::Delete { memory, .. } if self.memories[*memory].is_live => {
                directory_of(&self.memories[*memory].path)
            }
            _ => "",
        }
    }

    /// The directory where something changed last, if it has memories.
    pub(crate) fn directory_of_the_last_change(&self) -> Option<&str> {
        let directory = directory_of(self.versions.last()?.path.as_deref()?);
        (!self.live_below(directory).is_empty()).then_some(directory)
    }

    /// What is directly in a directory, by name: whether it is a directory, and its bytes.
    fn children(&self, directory: &str) -> BTreeMap<&str, (bool, u64)> {
        let mut children = BTreeMap::new();
        for memory in self.live_below(directory) {
            let memory = &self.memories[memory];
            let rest = &memory.path[directory.len() + 1..];
            let (name, is_directory) = rest.split_once('/').map_or((rest, false), |(name, _)| (name, true));
            children.entry(name).or_insert((is_directory, 0)).1 += memory.content.len() as u64;
        }
        children
    }

    pub(crate) fn view(&self, directory: &str) -> String {
        let bytes: u64 = self.children(directory).values().map(|child| child.1).sum();
        let mut lines = vec![format!("{}\t/memories{directory}", format_size(bytes))];
        lines.extend(self.lines_below(directory, 2));
        lines.join("\n")
    }

    fn lines_below(&self, directory: &str, levels: usize) -> Vec<String> {
        let mut lines = Vec::new();
        let visible = self.children(directory).into_iter().filter(|(name, _)| is_visible(name));
        for (name, (is_directory, bytes)) in visible {
            let path = format!("{directory}/{name}");
            let slash = if is_directory { "/" } else { "" };
            lines.push(format!("{}\t/memories{path}{slash}", format_size(bytes)));
            if is_directory && levels > 1 {
                lines.extend(self.lines_below(&path, levels - 1));
            }
        }
        lines
    }

    fn obstacle(&self, path: &str) -> Option<(Obstacle, usize)> {
        let at = self.live_at(path).map(|memory| (Obstacle::At, memory));
        let below = || self.live_below(path).first().map(|memory| (Obstacle::Below, *memory));
        let above = || {
            let mut slashes = path.match_indices('/').skip(1);
            slashes.find_map(|(end, _)| Some((Obstacle::Above, self.live_at(&path[..end])?)))
        };
        at.or_else(below).or_else(above)
    }

    fn write(&mut self, operation: &'static str, memory: usize, content: Option<(String, usize)>) {
        let (path, by) = (Some(self.memories[memory].path.clone()), self.by);
        let (is_redacted, is_erased) = (false, false);
        self.versions.push(Version { memory, operation, path, content, by, is_redacted, is_erased });
    }

    fn create(&mut self, path: &str, content: &str) -> usize {
        self.memories.push(Memory::default());
        self.modify(self.memories.len() - 1, path, content, self.versions.len());
        self.memories.len() - 1
    }

    /// Sets content (with the blob that holds it) and path in one version.
    fn modify(&mut self, memory: usize, path: &str, content: &str, blob: usize) {
        let was = &self.memories[memory];
        let operation = if was.is_live { "modified" } else { "created" };
        let (path, text) = (path.to_owned(), content.to_owned());
        self.memories[memory] = Memory { path, content: text, is_live: true, is_pinned: was.is_pinned, blob };
        self.write(operation, memory, Some((content.to_owned(), blob)));
    }

    fn delete(&mut self, memory: usize) {
        self.memories[memory].is_live = false;
        self.write("deleted", memory, None);
    }

    pub(crate) fn apply(&mut self, call: &Call, by: usize) -> Answer {
        self.by = by;
        match call {
            Call::Create { path, content, mode } => self.apply_create(path, content, *mode),
            Call::Update { memory, edit, precondition } => {
                self.apply_update(*memory, edit, precondition.as_ref())
            }
            Call::Delete { memory, expected } => self.apply_delete(*memory, expected.as_deref()),
            Call::Redact(version) => self.apply_redact(*version),
            Call::Restore { version, precondition } => self.apply_restore(*version, precondition.as_ref()),
            Call::Batched { call, is_atomic, beside } => {
                self.batches += 1;
                let answer = self.apply(call, by);
                if !is_atomic || matches!(answer, Answer::Memory(_) | Answer::Deleted(_)) {
                    self.create(beside, "");
                }
                answer
            }
            Call::Tool(tool) => Answer::Tool { is_error: self.apply_tool(tool).is_none() },
            Call::Erase { prefix } => self.apply_erase(prefix),
        }
    }

    /// Forgets all memories that ever had a path below the prefix, as far as it is known.
    fn apply_erase(&mut self, prefix: &str) -> Answer {
        let is_below = |it: &&Version| it.path.as_ref().is_some_and(|path| path.starts_with(prefix));
        let below = self.versions.iter().filter(is_below);
        let memories: BTreeSet<_> = below.map(|version| version.memory).collect();
        let mut versions = 0;
        for version in &mut self.versions {
            if memories.contains(&version.memory) {
                versions += 1;
                version.is_erased = true;
                (version.path, version.content) = (None, None);
            }
        }
        for &memory in &memories {
            self.memories[memory].is_live = false;
        }
        Answer::Erased { memories: memories.len(), versions }
    }

    fn apply_create(&mut self, path: &str, content: &str, mode: Mode) -> Answer {
        match (self.obstacle(path), mode) {
            (None, _) => Answer::Memory(self.create(path, content)),
            (Some((Obstacle::At, memory)), Mode::Upsert) => {
                if self.memories[memory].content != content {
                    self.modify(memory, path, content, self.versions.len());
                }
                Answer::Memory(memory)
            }
            (Some((Obstacle::At, memory)), Mode::NotExists) => {
                Answer::PreconditionFailed(memory, Some(self.memories[memory].content.clone()))
            }
            (Some((_, memory)), _) => Answer::PathConflict(memory),
        }
    }

    fn apply_update(&mut self, memory: usize, edit: &Edit, precondition: Option<&Precondition>) -> Answer {
        let was = self.memories[memory].clone();
        if !was.is_live {
            return Answer::NotFound;
        }
        let path = edit.path.clone().unwrap_or_else(|| was.path.clone());
        let content = edit.content.clone().unwrap_or_else(|| was.content.clone());
        let is_there = path == was.path && content == was.content;
        let asks = edit.path.is_some() || edit.content.is_some();
        let is_applied = is_there && asks && edit.pinned.is_none_or(|pinned| pinned == was.is_pinned);
        let not_exists = precondition == Some(&Precondition::NotExists);
        if let Some(Precondition::Sha256(expected)) = precondition
            && *expected != sha256(&was.content)
            && !is_applied
        {
            return Answer::PreconditionFailed(memory, Some(was.content));
        }
        if not_exists && path == was.path {
            return Answer::Memory(memory);
        }
        if path != was.path
            && let Some(answer) = self.answer_instead_of_a_move(memory, &path, not_exists)
        {
            return answer;
        }
        self.memories[memory].is_pinned = edit.pinned.unwrap_or(was.is_pinned);
        if !is_there {
            let blob = if content == was.content { was.blob } else { self.versions.len() };
            self.modify(memory, &path, &content, blob);
        }
        Answer::Memory(memory)
    }

    fn answer_instead_of_a_move(&self, memory: usize, path: &str, not_exists: bool) -> Option<Answer> {
        Some(match self.obstacle(path)? {
            (Obstacle::At | Obstacle::Below, _) if not_exists => Answer::Memory(memory),
            (_, memory) => Answer::PathConflict(memory),
        })
    }

    fn apply_delete(&mut self, memory: usize, expected: Option<&str>) -> Answer {
        let it = &self.memories[memory];
        if !it.is_live {
            return Answer::NotFound;
        }
        if expected.is_some_and(|expected| expected != sha256(&it.content)) {
            return Answer::PreconditionFailed(memory, Some(it.content.clone()));
        }
        self.delete(memory);
        Answer::Deleted(memory)
    }

    fn apply_redact(&mut self, version: usize) -> Answer {
        let it = self.versions[version].clone();
        if it.is_erased {
            return Answer::NotFound;
        }
        if it.is_redacted {
            return Answer::Redacted(version, None);
        }
        let memory = &self.memories[it.memory];
        if memory.is_live && it.content.as_ref().is_some_and(|(_, blob)| *blob == memory.blob) {
            return Answer::Conflict;
        }
        let redacted = &mut self.versions[version];
        redacted.is_redacted = true;
        (redacted.path, redacted.content) = (None, None);
        let newest_first = (0..self.versions.len()).rev();
        let is_same =
            |other: &usize| self.versions[*other].text().is_some_and(|text| Some(text) == it.text());
        let also_in = newest_first.filter(is_same);
        Answer::Redacted(version, Some(also_in.collect()))
    }

    fn apply_restore(&mut self, version: usize, precondition: Option<&Precondition>) -> Answer {
        let it = self.versions[version].clone();
        if it.is_erased {
            return Answer::NotFound;
        }
        let (Some(path), Some((content, blob))) = (it.path, it.content) else {
            return Answer::Conflict;
        };
        let was = self.memories[it.memory].clone();
        if was.is_live && was.path == path && was.content == content {
            return Answer::Memory(it.memory);
        }
        if let Some(Precondition::Sha256(expected)) = precondition
            && !(was.is_live && *expected == sha256(&was.content))
        {
            return Answer::PreconditionFailed(it.memory, was.is_live.then_some(was.content));
        }
        let not_exists = was.is_live && precondition == Some(&Precondition::NotExists);
        if (!was.is_live || was.path != path)
            && let Some(answer) = self.answer_instead_of_a_move(it.memory, &path, not_exists)
        {
            return answer;
        }
        self.modify(it.memory, &path, &content, blob);
        Answer::Memory(it.memory)
    }

    /// `None`: the tool answers with an error.
    fn apply_tool(&mut self, tool: &Tool) -> Option<()> {
        match tool {
            Tool::Create(path, content) => {
                if self.obstacle(path).is_some() {
                    return None;
                }
                self.create(path, content);
            }
            Tool::Replace(path, old, new) => {
                self.edit(path, |at, text| Some(str_replace(at, text, old, new).ok()?.content))?;
            }
            Tool::Insert(path, line, text) => {
                self.edit(path, |_, content| Some(insert(content, *line, text).ok()?.content))?;
            }
            Tool::Append(path, text) => {
                let text = format!("{}\n", text.trim_end_matches('\n'));
                let Some(memory) = self.live_at(path) else {
                    return self.apply_tool(&Tool::Create(path.clone(), text));
                };
                let before = &self.memories[memory].content;
                let between = if before.is_empty() || before.ends_with('\n') { "" } else { "\n" };
                let content = format!("{before}{between}{text}");
                self.modify(memory, path, &content, self.versions.len());
            }
            Tool::Delete(path) => self.at_or_below(path)?.into_iter().for_each(|memory| self.delete(memory)),
            Tool::Rename(from, to) => {
                let moved = self.at_or_below(from)?;
                if self.obstacle(to).is_some() || to.starts_with(&format!("{from}/")) {
                    return None;
                }
                for memory in moved {
                    let was = self.memories[memory].clone();
                    let path = format!("{to}{}", &was.path[from.len()..]);
                    self.modify(memory, &path, &was.content, was.blob);
                }
            }
        }
        Some(())
    }

    fn at_or_below(&self, path: &str) -> Option<Vec<usize>> {
        let found = self.live_at(path).map_or_else(|| self.live_below(path), |memory| vec![memory]);
        (!found.is_empty()).then_some(found)
    }

    fn edit(&mut self, path: &str, apply: impl FnOnce(&ToolPath, &str) -> Option<String>) -> Option<()> {
        let memory = self.live_at(path)?;
        let at = ToolPath::parse(&format!("/memories{path}")).ok()?;
        let content = apply(&at, &self.memories[memory].content)?;
        if content != self.memories[memory].content {
            self.modify(memory, path, &content, self.versions.len());
        }
        Some(())
    }
}
