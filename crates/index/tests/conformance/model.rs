//! Random histories, compared with a model in memory after every step.

use std::collections::{BTreeMap, BTreeSet};

use keepsake_core::path::is_visible;
use keepsake_core::{DirPath, MemoryPath};
use keepsake_index::{Change, CommitOutcome, Depth, Directory, Entry, MemoryItem, Refusal, Target};
use keepsake_testkit::Seed;
use proptest::prelude::*;
use proptest::test_runner::Config;
use tokio::runtime::Handle;

use crate::place::{
    Place, created, deleted, edited, listing, new_tenant, path, path_of, renamed, shown_path,
};
use crate::subject::Subject;

/// The number of histories.
const CASES: u32 = 20;
/// The maximum number of steps of a history.
const STEPS: usize = 24;

#[derive(Debug, Clone)]
enum Step {
    Create(String, u64),
    Edit(prop::sample::Index, u64),
    Rename(prop::sample::Index, String),
    Delete(prop::sample::Index),
    RenameBelow(String, String),
    DeleteBelow(String),
}

fn any_path() -> impl Strategy<Value = String> {
    let segment = prop::sample::select(vec!["a", "b", "a-b", "a0", "B", "é", ".h", "node_modules"]);
    prop::collection::vec(segment, 1..=3).prop_map(|segments| format!("/{}", segments.join("/")))
}

fn any_step() -> impl Strategy<Value = Step> {
    let index = any::<prop::sample::Index>;
    prop_oneof![
        6 => (any_path(), 0_u64..20).prop_map(|(at, size_bytes)| Step::Create(at, size_bytes)),
        2 => (index(), 0_u64..20).prop_map(|(which, size_bytes)| Step::Edit(which, size_bytes)),
        3 => (index(), any_path()).prop_map(|(which, to)| Step::Rename(which, to)),
        2 => index().prop_map(Step::Delete),
        2 => (any_path(), any_path()).prop_map(|(from, to)| Step::RenameBelow(from, to)),
        1 => any_path().prop_map(Step::DeleteBelow),
    ]
}

/// The removed path and the added path with its size, if any.
type Move = (Option<MemoryPath>, Option<(MemoryPath, u64)>);

/// The files of a store and their sizes.
#[derive(Debug, Default)]
struct Model(BTreeMap<MemoryPath, u64>);

impl Model {
    /// Every possible refusal of the new paths: its kind and the conflicting path.
    fn conflicts(&self, new_paths: &[MemoryPath]) -> BTreeSet<(&'static str, String)> {
        let mut conflicts = BTreeSet::new();
        for at in new_paths {
            if self.0.contains_key(at) {
                conflicts.insert(("taken", at.as_str().to_owned()));
            }
            if self.0.keys().any(|file| file.is_below(&at.as_dir())) {
                conflicts.insert(("directory", at.as_dir().as_str().to_owned()));
            }
            let files_above = at
                .ancestor_files()
                .filter(|above| self.0.contains_key(&path(above)));
            conflicts.extend(files_above.map(|above| ("parent is file", above.to_owned())));
        }
        conflicts
    }

    fn below<'a>(&'a self, directory: &'a DirPath) -> impl Iterator<Item = (&'a MemoryPath, u64)> {
        self.0
            .iter()
            .filter(|(at, _)| at.is_below(directory))
            .map(|(at, size_bytes)| (at, *size_bytes))
    }

    fn directories(&self) -> BTreeSet<DirPath> {
        self.0
            .keys()
            .flat_map(MemoryPath::ancestors)
            .chain([DirPath::root()])
            .collect()
    }

    /// What a listing shows directly in a directory, by name.
    fn children(&self, directory: &DirPath) -> Vec<Entry> {
        let files = self
            .below(directory)
            .filter(|(at, _)| at.parent() == *directory && is_visible(at.name()));
        let files = files.map(|(at, size_bytes)| {
            (
                at.name().to_owned(),
                Entry {
                    path: at.as_str().to_owned(),
                    is_directory: false,
                    size_bytes,
                },
            )
        });
        let directories = self.directories();
        let below = directories
            .iter()
            .filter(|child| child.parent().as_ref() == Some(directory) && is_visible(child.name()))
            .map(|child| {
                let size_bytes = self.below(child).map(|(_, size_bytes)| size_bytes).sum();
                let entry = Entry {
                    path: child.as_str().to_owned(),
                    is_directory: true,
                    size_bytes,
                };
                (child.name().to_owned(), entry)
            });
        files
            .chain(below)
            .collect::<BTreeMap<_, _>>()
            .into_values()
            .collect()
    }

    /// The paths of all files and directories but the root.
    fn paths(&self) -> BTreeSet<MemoryPath> {
        let directories = self.directories();
        let directories = directories.iter().filter_map(DirPath::as_file);
        self.0.keys().cloned().chain(directories).collect()
    }

    fn listing(&self, directory: &DirPath, max_entries: usize) -> Directory {
        let mut entries = Vec::new();
        for child in self.children(directory) {
            let below = child
                .is_directory
                .then(|| DirPath::from_trusted(child.path.clone()));
            entries.push(child);
            entries.extend(below.iter().flat_map(|below| self.children(below)));
        }
        let total_entries = entries.len() as u64;
        entries.truncate(max_entries);
        Directory {
            files: self.below(directory).count() as u64,
            size_bytes: self.below(directory).map(|(_, size_bytes)| size_bytes).sum(),
            total_entries,
            entries,
        }
    }

    /// The items of a whole listing: paths, and the sizes of memories.
    fn items(&self, directory: &DirPath, depth: Depth) -> BTreeMap<String, Option<u64>> {
        let below = self.0.iter().filter_map(|(at, size_bytes)| {
            let shown = shown_path(at.as_str(), directory.as_str(), depth)?;
            let size_bytes = (shown == at.as_str()).then_some(*size_bytes);
            Some((shown, size_bytes))
        });
        below.collect()
    }

    /// The path that an index into the files means; `None`: there is no file.
    fn pick(&self, which: prop::sample::Index) -> Option<MemoryPath> {
        (!self.0.is_empty()).then(|| self.0.keys().nth(which.index(self.0.len())).unwrap().clone())
    }

    /// What a step changes: paths and sizes that go, paths and sizes that come.
    fn moves(&self, step: &Step) -> Vec<Move> {
        let one = |from: Option<MemoryPath>, to: Option<(MemoryPath, u64)>| vec![(from, to)];
        match step {
            Step::Create(at, size_bytes) => one(None, Some((path(at), *size_bytes))),
            Step::Edit(which, size_bytes) => self
                .pick(*which)
                .map_or_else(Vec::new, |at| one(Some(at.clone()), Some((at, *size_bytes)))),
            Step::Rename(which, to) => self.pick(*which).map_or_else(Vec::new, |at| {
                let size_bytes = self.0[&at];
                one(Some(at), Some((path(to), size_bytes)))
            }),
            Step::Delete(which) => self.pick(*which).map_or_else(Vec::new, |at| one(Some(at), None)),
            Step::RenameBelow(from, to) => {
                let (from, to) = (path(from).as_dir(), path(to).as_dir());
                let moved = |(at, size_bytes): (&MemoryPath, u64)| {
                    let to = at.rebased(&from, &to).ok()?;
                    Some((Some(at.clone()), Some((to, size_bytes))))
                };
                // A path that would get too deep moves nothing.
                self.below(&from)
                    .map(moved)
                    .collect::<Option<_>>()
                    .unwrap_or_default()
            }
            Step::DeleteBelow(directory) => self
                .below(&path(directory).as_dir())
                .map(|(at, _)| (Some(at.clone()), None))
                .collect(),
        }
    }
}

/// The change of the index that a move of the model stands for.
async fn change_of(
    place: &Place,
    from: Option<&MemoryPath>,
    to: Option<&(MemoryPath, u64)>,
    is_edit: bool,
) -> Change {
    let before = match from {
        Some(at) => Some(place.memory(at.as_str()).await),
        None => None,
    };
    match (before, to) {
        (None, Some((at, size_bytes))) => created(at.as_str(), *size_bytes),
        (Some(before), Some((_, size_bytes))) if is_edit => edited(&before, *size_bytes),
        (Some(before), Some((at, _))) => renamed(&before, at.as_str()),
        (Some(before), None) => deleted(&before),
        (None, None) => unreachable!("a move has one end at least"),
    }
}

/// Takes a step in both worlds and holds the outcome of one against the other.
async fn take(place: &Place, model: &mut Model, step: &Step) {
    let moves = model.moves(step);
    let is_edit = matches!(step, Step::Edit(..));
    let mut changes = Vec::new();
    for (from, to) in &moves {
        changes.push(change_of(place, from.as_ref(), to.as_ref(), is_edit).await);
    }
    let stays = |from: &Option<MemoryPath>, to: &MemoryPath| from.as_ref() == Some(to);
    let new_paths: Vec<_> = moves
        .iter()
        .filter_map(|(from, to)| to.as_ref().map(|to| &to.0).filter(|to| !stays(from, to)).cloned())
        .collect();
    let conflicts = model.conflicts(&new_paths);
    let refused = match place.try_changes(changes).await {
        CommitOutcome::Committed { .. } => None,
        CommitOutcome::Refused(Refusal::PathTaken { path, .. }) => Some(("taken", path)),
        CommitOutcome::Refused(Refusal::PathIsDirectory { path }) => Some(("directory", path)),
        CommitOutcome::Refused(Refusal::ParentIsFile { path, .. }) => Some(("parent is file", path)),
        other => panic!("{step:?} came to {other:?}"),
    };
    if let Some(refused) = refused {
        assert!(
            conflicts.contains(&refused),
            "{step:?}: {refused:?} is none of {conflicts:?}"
        );
        return;
    }
    assert_eq!(conflicts, BTreeSet::new(), "{step:?} was not refused");
    for (from, _) in &moves {
        from.as_ref().map(|from| model.0.remove(from));
    }
    model.0.extend(moves.into_iter().filter_map(|(_, to)| to));
}

async fn assert_same(place: &Place, model: &Model) {
    place.assert_recount().await;
    for directory in model.directories() {
        let at = directory
            .as_file()
            .map_or_else(|| "/".to_owned(), |at| at.as_str().to_owned());
        assert_eq!(
            place.directory(&at, 1000).await,
            model.listing(&directory, 1000),
            "listing of {at}"
        );
        for depth in [Depth::All, Depth::Children] {
            let page = place.page(&listing(directory.as_str(), depth, None, 1000)).await;
            let items = page.items.iter().map(|item| match item {
                MemoryItem::Memory { memory, .. } => (path_of(item), Some(memory.head.size_bytes)),
                MemoryItem::Prefix(_) => (path_of(item), None),
            });
            assert!(items.eq(model.items(&directory, depth)), "{page:?} of {at}");
        }
    }
    let whole = model.listing(&DirPath::root(), 1000).entries.len();
    for max_entries in [1, 2, whole / 2, whole.saturating_sub(1)] {
        let max_entries = max_entries.max(1);
        let listing = place.directory("/", max_entries as u64).await;
        assert_eq!(
            listing,
            model.listing(&DirPath::root(), max_entries),
            "{max_entries} entries"
        );
    }
    let heads = place.heads_below("/").await;
    let files = heads.iter().map(|head| (&head.path, head.size_bytes));
    assert!(
        files.eq(model.0.iter().map(|(at, size_bytes)| (at, *size_bytes))),
        "{heads:?}"
    );
    for head in heads {
        let at = head.path.as_str().to_owned();
        assert_eq!(place.memory(&at).await, head);
        assert_eq!(place.target(&format!("{at}/below"), 0).await, Target::Missing);
    }
}

pub(crate) async fn any_history_equals_its_model(subject: &Subject) {
    let config = Config {
        cases: CASES,
        failure_persistence: None,
        ..Config::default()
    };
    let histories = prop::collection::vec(any_step(), 1..=STEPS);
    let (seed, runtime) = (Seed::new(), Handle::current());
    let tenant_id = new_tenant(subject).await;
    tokio::task::block_in_place(|| {
        seed.runner(config)
            .run(&histories, |history| {
                runtime.block_on(async {
                    let place = Place::of_tenant(subject, tenant_id).await;
                    let mut model = Model::default();
                    let mut used = BTreeSet::new();
                    for step in &history {
                        take(&place, &mut model, step).await;
                        assert_same(&place, &model).await;
                        let present = model.paths();
                        used.extend(present.iter().cloned());
                        for gone in used.difference(&present) {
                            assert_eq!(place.target(gone.as_str(), 0).await, Target::Missing);
                        }
                    }
                });
                Ok(())
            })
            .unwrap();
    });
}
