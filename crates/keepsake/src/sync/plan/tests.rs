mod model;

use std::collections::{BTreeMap, BTreeSet};

use keepsake_core::{ContentHash, MemoryPath};
use keepsake_testkit::Seed;
use proptest::prelude::*;
use proptest::sample::{Index, select};
use proptest::test_runner::Config;

use super::{Action, EmptiedSide, LocalFiles, Settings, Side};
use model::Model;

pub(in crate::sync) fn path(text: &str) -> MemoryPath {
    MemoryPath::parse(text).unwrap()
}

pub(in crate::sync) fn hash(text: &str) -> ContentHash {
    ContentHash::of(text.as_bytes())
}

/// Both sides with these contents, synchronised.
fn synchronised(files: &[(&str, &str)]) -> Model {
    let mut model = Model::default();
    for (name, content) in files {
        model.put(&path(name), hash(content));
        model.folder.insert(path(name), hash(content));
    }
    model.base.clone_from(&model.store);
    model
}

/// Carries a whole plan out, after which the sides are equal.
fn synchronise(model: &mut Model) {
    let plan = model.plan(false);
    model.carry_out(&plan, usize::MAX);
    assert!(model.is_equal(), "{model:?}");
}

/// Carries out the plan for these sides, of which words are `path=content`. A memory is that of the
/// base at its path, or at the path after `@`, if the base has one. Answers the kinds of the actions,
/// and the memories that both sides have then, in the same form.
fn carried_out(base: &str, folder: &str, store: &str) -> (String, String) {
    fn words(text: &str) -> impl Iterator<Item = (&str, &str, &str)> {
        text.split_whitespace().map(|word| {
            let (name, content) = word.split_once('=').unwrap();
            let (content, of) = content.split_once('@').unwrap_or((content, name));
            (name, content, of)
        })
    }
    let mut model = synchronised(&words(base).map(|(name, content, _)| (name, content)).collect::<Vec<_>>());
    let known = model.base.clone();
    model.folder = words(folder).map(|(name, content, _)| (path(name), hash(content))).collect();
    model.store.clear();
    for (name, content, of) in words(store) {
        model.put(&path(name), hash(content));
        if let Some(memory) = MemoryPath::parse(of).ok().and_then(|of| known.get(&of)) {
            model.store.get_mut(&path(name)).unwrap().memory_id = memory.memory_id;
        }
    }
    let plan = model.plan(false);
    let kind = |action: &Action| format!("{action:?}").split(' ').next().unwrap().to_owned();
    let kinds: BTreeSet<_> = plan.actions.iter().map(kind).collect();
    model.carry_out(&plan, usize::MAX);
    assert!(model.is_equal(), "{model:?}");
    let memories = model.store.iter().map(|(name, memory)| {
        let (_, content, _) =
            words(folder).chain(words(store)).find(|word| hash(word.1) == memory.hash).unwrap();
        let of = known.iter().find(|(of, old)| old.memory_id == memory.memory_id && *of != name);
        format!("{name}={content}{}", of.map_or_else(String::new, |(of, _)| format!("@{of}")))
    });
    (kinds.into_iter().collect::<Vec<_>>().join(" "), memories.collect::<Vec<_>>().join(" "))
}

#[test]
fn change_wins_over_deletion_and_renames_are_followed() {
    for (base, folder, store, kinds, left) in [
        ("/a=1 /b=1", "/a=2", "/b=3", "Create Download", "/a=2 /b=3"),
        // The memory was created again.
        ("/a=1 /z=1", "/z=1", "/a=1@new /z=1", "Download", "/a=1 /z=1"),
        // A chain: c takes the place of b.
        (
            "/a=1 /b=2 /c=3",
            "/d/a=1 /b=2 /c=3",
            "/a=1 /b=3@/c /e=2@/b",
            "MoveLocal MoveRemote",
            "/b=3@/c /d/a=1@/a /e=2@/b",
        ),
        // An edit follows the rename of the other side.
        ("/a=1", "/a=2", "/b=1@/a", "MoveLocal Replace", "/b=2@/a"),
        // An ambiguous rename is a deletion and a creation.
        ("/a=1 /b=1", "/c=1", "/a=1 /b=1", "Create DeleteRemote", "/c=1"),
        // A file in the place of a directory moves away.
        ("", "/a=1", "/a/b.md=2", "Create Download KeepBoth", "/a.conflict-T1=1 /a/b.md=2"),
        ("", "/a/b.md=1", "/a=2", "Create Download KeepBoth", "/a=2 /a.conflict-T1/b.md=1"),
    ] {
        let expected = (kinds.to_owned(), left.to_owned());
        assert_eq!(carried_out(base, folder, store), expected, "{base} / {folder} / {store}");
    }
}

#[test]
fn emptied_side_is_detected() {
    let all: Vec<_> = (0..12).map(|number| format!("/{number}")).collect();
    let files: Vec<_> = all.iter().map(|name| (name.as_str(), name.as_str())).collect();
    for (gone, is_emptied) in [(6, false), (7, true), (12, true)] {
        let [mut in_folder, mut in_store, mut empty_files, mut empty_memories] =
            [(); 4].map(|()| synchronised(&files));
        for name in &all[..gone] {
            in_folder.folder.remove(&path(name));
            in_store.store.remove(&path(name));
            empty_files.folder.insert(path(name), hash(""));
            empty_memories.put(&path(name), hash(""));
        }
        let found =
            [in_folder, in_store, empty_files, empty_memories].map(|mut side| side.plan(false).emptied);
        let expected = [EmptiedSide::Folder, EmptiedSide::Store, EmptiedSide::Folder, EmptiedSide::Store];
        assert_eq!(found, expected.map(|side| is_emptied.then_some(side)), "{gone}");
    }
    let mut small = synchronised(&[("/a", "1"), ("/b", "2")]);
    small.folder.remove(&path("/a"));
    assert_eq!(small.plan(false).emptied, None);
    // A renamed directory is not a loss.
    let mut moved = synchronised(&files);
    moved.folder = all.iter().map(|name| (path(&format!("/d{name}")), hash(name))).collect();
    assert_eq!(moved.plan(false).emptied, None);
}

#[test]
fn blocked_paths_stay_as_they_are() {
    let model = synchronised(&[("/a", "1"), ("/d/b", "2")]);
    let local: LocalFiles = [(path("/a"), Side::Blocked), (path("/d"), Side::Blocked)].into();
    let mut changed = model.store.clone();
    changed.remove(&path("/a"));
    let remote = changed.into_iter().map(|(path, known)| (path, Side::Present(known))).collect();
    let settings = Settings { time: "T", ignores_case: false };
    let plan = super::plan(&model.base, &local, &remote, settings);
    assert_eq!((plan.actions, plan.emptied), (Vec::new(), None));
}

#[test]
fn names_differing_only_by_case_are_skipped_in_a_case_insensitive_folder() {
    let mut model = synchronised(&[("/Notes/a.md", "1")]);
    for (name, content) in [("/notes/b.md", "2"), ("/Notes/A.md", "3"), ("/Notes/c.md", "4")] {
        model.put(&path(name), hash(content));
    }
    let plan = model.plan(true);
    let skipped: Vec<_> = plan.skipped.iter().map(|(path, _)| path.as_str()).collect();
    assert_eq!(skipped, ["/Notes/A.md", "/notes/b.md"]);
    assert!(matches!(plan.actions.as_slice(), [Action::Download { .. }]));
    // A rename that changes only the case is followed.
    let mut model = synchronised(&[("/a.md", "1")]);
    let known = model.store.remove(&path("/a.md")).unwrap();
    model.store.insert(path("/A.md"), known);
    assert!(matches!(model.plan(true).actions.as_slice(), [Action::MoveLocal { .. }]));
}

#[derive(Debug, Clone)]
enum Edit {
    Write(&'static str, u8),
    Delete(Index),
    Rename(Index, &'static str),
}

const PATHS: [&str; 9] = ["/a", "/b", "/a/x", "/a/y", "/b/x", "/c", "/A", "/d/e/f", "/d"];

fn any_edit() -> impl Strategy<Value = Edit> {
    prop_oneof![
        3 => (select(PATHS.as_slice()), 0..6_u8).prop_map(|(path, content)| Edit::Write(path, content)),
        1 => any::<Index>().prop_map(Edit::Delete),
        2 => (any::<Index>(), select(PATHS.as_slice())).prop_map(|(from, to)| Edit::Rename(from, to)),
    ]
}

/// Whether a side with these paths can have this one, too.
fn fits<'a>(mut paths: impl Iterator<Item = &'a MemoryPath>, new: &MemoryPath) -> bool {
    paths.all(|path| !path.is_below(&new.as_dir()) && !new.is_below(&path.as_dir()))
}

impl Edit {
    fn in_folder(&self, model: &mut Model) {
        // As `mv` does, a rename replaces a file.
        if let Some((to, content)) = self.make(&mut model.folder, true) {
            model.folder.insert(to, ContentHash::of(&[content]));
        }
    }

    fn in_store(&self, model: &mut Model) {
        if let Some((to, content)) = self.make(&mut model.store, false) {
            model.put(&to, ContentHash::of(&[content + 3]));
        }
    }

    /// Makes the edit in a side, if the side can have the path. Answers the path and the content to write.
    fn make<V>(&self, side: &mut BTreeMap<MemoryPath, V>, replaces: bool) -> Option<(MemoryPath, u8)> {
        let paths: Vec<_> = side.keys().cloned().collect();
        match self {
            Self::Write(to, content) => {
                let to = path(to);
                return fits(paths.iter(), &to).then_some((to, *content));
            }
            Self::Delete(_) | Self::Rename(..) if paths.is_empty() => {}
            Self::Delete(which) => drop(side.remove(which.get(&paths))),
            Self::Rename(which, to) => {
                let (from, to) = (which.get(&paths).clone(), path(to));
                let content = side.remove(&from).unwrap();
                let is_free = fits(side.keys(), &to) && (replaces || !side.contains_key(&to));
                side.insert(if is_free { to } else { from }, content);
            }
        }
        None
    }
}

fn contents(model: &Model) -> BTreeSet<[u8; 32]> {
    let store = model.store.values().map(|known| known.hash);
    model.folder.values().copied().chain(store).map(|hash| *hash.as_bytes()).collect()
}

#[test]
fn both_sides_become_equal_and_no_edit_is_lost() {
    let edits = || prop::collection::vec(any_edit(), 0..6);
    // The last number: steps after which the run is killed.
    let rounds = prop::collection::vec((edits(), edits(), 0..12_usize), 1..5);
    // A failure prints the seed that repeats it.
    let seed = Seed::new();
    let done = seed.runner(Config::with_cases(4_000)).run(&rounds, |rounds| {
        let mut model = Model::default();
        for (folder, store, steps) in rounds {
            let known = contents(&model);
            for edit in &folder {
                edit.in_folder(&mut model);
            }
            for edit in &store {
                edit.in_store(&mut model);
            }
            // Contents of the folder that the store never had.
            let edited: BTreeSet<_> = model
                .folder
                .values()
                .map(|hash| *hash.as_bytes())
                .filter(|hash| !model.history.contains(hash))
                .collect();
            let new: BTreeSet<_> = contents(&model).difference(&known).copied().collect();
            let plan = model.plan(false);
            model.carry_out(&plan, steps);
            synchronise(&mut model);
            prop_assert!(edited.iter().all(|hash| model.history.contains(hash)));
            // What is new on either side stays current.
            prop_assert!(steps < plan.actions.len() || contents(&model).is_superset(&new));
            prop_assert_eq!(model.plan(false).actions, vec![]);
        }
        Ok(())
    });
    if let Err(error) = done {
        panic!("{error}");
    }
}
