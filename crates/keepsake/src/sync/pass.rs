//! Passes: lists both sides, plans, and carries the plan out.

use std::collections::{BTreeMap, BTreeSet};

use keepsake_config::{Failure, cli::Result};
use keepsake_core::{ContentHash, MemoryId, MemoryPath, VersionId};
use keepsake_engine::ChangePlace;
use tokio::time::Instant;

use super::Stop;
use super::folder::{Folder, Listing, time};
use super::gone::GoneFiles;
use super::lineage::Lineage;
use super::plan::{
    self, Action, Base, EmptiedSide, KnownMemory, LocalFiles, Plan, RemoteMemories, Settings, Side,
};
use super::report::Report;
use super::scope::Scope;
use super::state::State;
use super::store::{NotDone, Store, VersionState};

/// Maximum number of passes of one run: others may change what a pass has just seen.
const MAX_PASSES: u32 = 5;
/// Steps after which the state is saved, so that a killed run loses little work.
const STEPS_PER_SAVE: usize = 100;

// Why a file is held back: neither uploaded nor deleted.
const REMOVED: &str = "its memory was erased in the store, or its history has expired, and the file was changed or \
    moved since: it is not uploaded. Delete it; to upload it all the same, move it out of the folder, synchronise, \
    and move it back";
const REDACTED: &str = "the content that it was made from was redacted in the store: it is not uploaded. Delete \
    it; to upload it all the same, move it out of the folder, synchronise, and move it back under another name";
const UNCLEAR: &str = "the store's history does not have its content any more: it was erased, or a backup was \
    restored. The file is neither uploaded nor deleted. Delete it; to upload it, move it out of the folder, \
    synchronise, and move it back";

// Why the private folder keeps a file that is removed.
const HIDDEN: &str = "the credential may not read versions";
const LIKELY: &str =
    "the store's history does not have a content any more, and a backup may have been restored";

pub(super) struct Sync {
    pub(super) store: Store,
    pub(super) folder: Folder,
    pub(super) state: State,
    pub(super) report: Report,
    pub(super) allows_emptying: bool,
    /// With `--watch`: the files that are gone.
    pub(super) gone: Option<GoneFiles>,
    /// The versions that the current pass wrote.
    pub(super) written: BTreeSet<VersionId>,
}

struct PlanInput {
    scope: Scope,
    listing: Listing,
    paths: BTreeSet<MemoryPath>,
    versions: BTreeSet<VersionId>,
    /// The place among the store's changes at which it had these memories.
    place: Option<ChangePlace>,
    lineage: Lineage,
    /// The paths of the base whose versions were redacted.
    redacted: BTreeSet<MemoryPath>,
}

impl Sync {
    /// Makes passes until both sides are equal, and reports their steps. After an error,
    /// the state and the report have the steps that were done.
    pub(super) async fn run(&mut self) -> Result<(), Stop> {
        let mut passes = 0;
        let done = loop {
            passes += 1;
            match self.pass().await {
                Ok(true) => break Ok(()),
                Ok(false) if passes == MAX_PASSES => {
                    let text = "both sides kept changing: run the command again";
                    break Err(Failure::conflict(text).into());
                }
                Ok(false) => {}
                Err(stop) => break Err(stop),
            }
        };
        self.save()?;
        self.report.finish(self.state.count(), done.is_ok())?;
        done
    }

    /// Saves the state, unless nothing may be written or the folder is gone.
    pub(super) fn save(&mut self) -> Result<()> {
        if self.report.is_dry_run() {
            return Ok(());
        }
        self.state.check_exists()?;
        self.state.save()
    }

    /// One pass; `false` if something changed meanwhile and another pass is needed.
    async fn pass(&mut self) -> Result<bool, Stop> {
        self.state.check_exists()?;
        let scope = Scope::read(self.folder.root())?;
        let memories = self.store.list().await?;
        for (path, reason) in &memories.refused {
            self.report.refuse(path, reason);
        }
        let mut listing = self.folder.list(&self.state, &scope).await?;
        for (path, reason) in &listing.skipped {
            self.report.skip(path, reason);
        }
        let versions = memories.known.values().filter_map(|known| known.version_id).collect();
        let place = memories.place;
        let remote: RemoteMemories = memories
            .known
            .into_iter()
            .map(|(path, known)| match scope.excludes(&path) {
                None => (path, Side::Present(known)),
                Some(reason) => {
                    self.report.skip(path.as_str(), reason);
                    (path, Side::Blocked)
                }
            })
            .collect();
        let base = self.base_in(&scope);
        let lineage = self.state.lineage();
        let (plan, redacted) = self.plan(&base, &mut listing.files, &remote, lineage).await?;
        for (path, reason) in &plan.skipped {
            self.report.skip(path.as_str(), reason);
        }
        if self.report.is_dry_run() {
            for action in &plan.actions {
                self.report.step(action)?;
            }
            return Ok(true);
        }
        let paths = remote.into_keys().collect();
        let seen = PlanInput { scope, listing, paths, versions, place, lineage, redacted };
        self.written.clear();
        let lost = self.carry_out(&plan.actions, &seen).await?;
        self.note_place(&seen).await?;
        Ok(lost == 0 && !seen.listing.is_unsettled)
    }

    /// The base without paths that are not synchronised any more.
    fn base_in(&mut self, scope: &Scope) -> Base {
        let base = self.state.base().into_iter();
        let (kept, excluded): (Base, Base) = base.partition(|(path, _)| scope.excludes(path).is_none());
        for path in excluded.keys() {
            self.state.forget(path);
        }
        kept
    }

    /// Plans the pass. Files that must not be uploaded are blocked in `local`; the paths of
    /// the bases that were redacted are returned.
    async fn plan(
        &mut self,
        base: &Base,
        local: &mut LocalFiles,
        remote: &RemoteMemories,
        lineage: Lineage,
    ) -> Result<(Plan, BTreeSet<MemoryPath>), Stop> {
        let mut plan = self.plan_with(base, local, remote);
        let mut redacted = BTreeSet::new();
        let held = self.held(base, &plan, local, remote, lineage).await?;
        if !held.is_empty() {
            for (path, (origin, state)) in held {
                let reason = match state {
                    VersionState::Redacted => REDACTED,
                    VersionState::Removed | VersionState::Likely => REMOVED,
                    _ => UNCLEAR,
                };
                self.report.refuse(path.as_str(), reason);
                local.insert(path, Side::Blocked);
                local.insert(origin.clone(), Side::Blocked);
                self.state.note(&origin, state);
                if !state.is_missing() {
                    redacted.insert(origin);
                }
            }
            plan = self.plan_with(base, local, remote);
        }
        self.check_emptied(&plan, lineage).await?;
        Ok((plan, redacted))
    }

    fn plan_with(&mut self, base: &Base, local: &LocalFiles, remote: &RemoteMemories) -> Plan {
        let settings = Settings { time: &time(), ignores_case: self.folder.ignores_case };
        let mut plan = plan::plan(base, local, remote, settings);
        if let Some(gone) = &mut self.gone {
            let waiting = gone.must_wait(&plan.actions, Instant::now());
            if !waiting.is_empty() {
                let mut local = local.clone();
                local.extend(waiting.into_iter().map(|path| (path, Side::Blocked)));
                let emptied = plan.emptied;
                plan = plan::plan(base, &local, remote, settings);
                // Files that wait are gone, too.
                plan.emptied = plan.emptied.or(emptied);
            }
            plan.actions = gone.follow(plan.actions);
        }
        plan
    }

    /// The files that a plan would upload although the store removed, or may have removed,
    /// the content that they were made from: edited files, and moved ones. Each has the path of its base, and
    /// the state of the base's version.
    async fn held(
        &self,
        base: &Base,
        plan: &Plan,
        local: &LocalFiles,
        remote: &RemoteMemories,
        lineage: Lineage,
    ) -> Result<BTreeMap<MemoryPath, (MemoryPath, VersionState)>> {
        let is_upload = |action: &&Action| matches!(action, Action::KeepBoth { .. } | Action::Create { .. });
        let mut uploads = plan.actions.iter().filter(is_upload).map(Action::path).peekable();
        let mut held = BTreeMap::new();
        if uploads.peek().is_none() {
            return Ok(held);
        }
        let live: BTreeSet<MemoryId> =
            remote.values().filter_map(Side::present).map(|memory| memory.memory_id).collect();
        let moved: BTreeMap<_, _> = plan.actions.iter().filter_map(Action::move_of_file).collect();
        let is_missing = |path: &MemoryPath, known: &KnownMemory| {
            !local.contains_key(path) && !live.contains(&known.memory_id)
        };
        for path in uploads {
            let path = *moved.get(path).unwrap_or(&path);
            let hash = local.get(path).and_then(Side::present);
            // The file itself, or missing files of the same content.
            let origins: Vec<_> = match base.get_key_value(path) {
                Some(origin) => vec![origin],
                None => base
                    .iter()
                    .filter(|(path, known)| hash == Some(known.hash) && is_missing(path, known))
                    .collect(),
            };
            for (origin, known) in origins {
                let state = self.state_of(origin, known.version_id, lineage).await?;
                let is_held = match state {
                    VersionState::Redacted => true,
                    // Retention may have removed an old version of a live memory.
                    VersionState::Removed | VersionState::Likely | VersionState::Unclear => {
                        !live.contains(&known.memory_id)
                    }
                    VersionState::Kept | VersionState::Lost | VersionState::Hidden => false,
                };
                if is_held {
                    held.insert(path.clone(), (origin.clone(), state));
                }
            }
        }
        Ok(held)
    }

    /// Refuses a plan that carries the loss of most files over to the other side.
    /// Memories that were erased are no loss.
    async fn check_emptied(&mut self, plan: &Plan, lineage: Lineage) -> Result<(), Stop> {
        let Some(emptied) = plan.emptied.filter(|_| !self.allows_emptying) else {
            return Ok(());
        };
        let is_loss = |action: &&Action| action.carries_loss_of() == Some(emptied);
        let losses: Vec<_> = plan.actions.iter().filter(is_loss).collect();
        if !losses.is_empty() && self.are_erased(&losses, lineage).await? {
            return Ok(());
        }
        let losses = losses.len();
        let (lost, other) = match emptied {
            EmptiedSide::Folder => ("folder", "memory store"),
            EmptiedSide::Store => ("memory store", "folder"),
        };
        Err(Stop::Emptied(Failure::conflict(format!(
            "nothing was changed: most of what was in the {lost} is gone or empty, and {losses} files \
                 would be deleted or emptied in the {other}; --allow-emptying goes on"
        ))))
    }

    /// The state in the store of the version that was synchronised for a path.
    async fn state_of(
        &self,
        path: &MemoryPath,
        version_id: Option<VersionId>,
        lineage: Lineage,
    ) -> Result<VersionState> {
        lineage.state_of(&self.store, version_id, self.state.missing(path)).await
    }

    /// Whether all of the steps delete files whose memories were erased.
    async fn are_erased(&mut self, losses: &[&Action], lineage: Lineage) -> Result<bool> {
        for action in losses {
            let Action::DeleteLocal { path, memory } = action else {
                return Ok(false);
            };
            let state = self.state_of(path, memory.version_id, lineage).await?;
            // So that the step does not determine the state again.
            self.state.note(path, state);
            if !matches!(state, VersionState::Removed | VersionState::Redacted) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Notes a place among the store's changes that all synchronised versions are before,
    /// in the same history. Without such a place, a version that is missing later may have
    /// been lost.
    async fn note_place(&mut self, seen: &PlanInput) -> Result<()> {
        let Some(place) = seen.place.filter(|place| self.state.lineage().place != Some(*place)) else {
            return Ok(());
        };
        if !self.is_base_of_history(seen).await? {
            return Ok(());
        }
        let noted =
            if self.written.is_empty() { Some(place) } else { self.store.newest_place_since(place).await? };
        if let Some(noted) = noted {
            self.state.note_place(noted);
        }
        Ok(())
    }

    /// Whether all synchronised versions are of the history that the pass saw, but for those
    /// that are known to be missing.
    async fn is_base_of_history(&self, seen: &PlanInput) -> Result<bool> {
        let is_new = |id: &VersionId| seen.versions.contains(id) || self.written.contains(id);
        let is_known = |(path, known): &(&MemoryPath, &KnownMemory)| {
            let is_missing = self.state.missing(path).is_some() || seen.redacted.contains(*path);
            is_missing || known.version_id.is_some_and(|id| is_new(&id))
        };
        // Versions of files that were not carried over.
        let base = self.state.base();
        let older: Vec<_> = base.iter().filter(|entry| !is_known(entry)).collect();
        if older.is_empty() {
            return Ok(true);
        }
        if let Some(before) = seen.lineage.place
            && self.store.newest_place_since(before).await?.is_some()
        {
            return Ok(true);
        }
        for (_, known) in older {
            let Some(version_id) = known.version_id else {
                return Ok(false);
            };
            let recorded = self.store.recorded(version_id).await?;
            if !matches!(recorded, Some(VersionState::Kept | VersionState::Redacted)) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Carries the steps out; returns how many found something other than the plan saw.
    async fn carry_out(&mut self, actions: &[Action], seen: &PlanInput) -> Result<usize, Stop> {
        let mut lost = 0;
        for (number, action) in actions.iter().enumerate() {
            match self.step(action, seen).await {
                Ok(()) => self.report.step(action)?,
                Err(NotDone::Lost) => lost += 1,
                Err(NotDone::Refused(reason)) => self.report.refuse(action.path().as_str(), &reason),
                Err(NotDone::Failed(failure)) => return Err(failure.into()),
            }
            if (number + 1) % STEPS_PER_SAVE == 0 {
                self.state.save()?;
            }
        }
        self.state.save()?;
        Ok(lost)
    }

    async fn step(&mut self, action: &Action, seen: &PlanInput) -> Result<(), NotDone> {
        let PlanInput { scope, listing, paths, lineage, .. } = seen;
        match action {
            Action::MoveBase { from, to } => self.state.rename(from, to),
            Action::Forget { path } => self.state.forget(path),
            Action::Record { path, memory } => self.record(path, *memory, listing),
            Action::MoveLocal { from, to, .. } => {
                self.folder.rename(from, to)?;
                self.state.rename(from, to);
            }
            Action::MoveRemote { from, to, memory } => {
                let moved = self.store.rename(*memory, to).await?;
                self.state.rename(from, to);
                self.written.extend(moved.version_id);
                // The move made a new version.
                if self.state.known(to).is_some_and(|base| base.hash == moved.hash) {
                    self.state.record(to, moved, None);
                }
            }
            Action::DeleteLocal { path, memory } => {
                // A listing is not one moment: the memory may be at a path now that the
                // plan did not see.
                let now_at = self.store.path_of(memory.memory_id).await?;
                let is_seen = |path: &MemoryPath| scope.excludes(path).is_some() || paths.contains(path);
                if now_at.is_some_and(|path| !is_seen(&path)) {
                    return Err(NotDone::Lost);
                }
                self.release_base_of(path, *lineage).await?;
                self.folder.delete(path, memory.hash)?;
                self.state.forget(path);
            }
            Action::DeleteRemote { path, memory } => {
                if !self.folder.has_no_file(path) {
                    return Err(NotDone::Lost);
                }
                self.store.delete(*memory).await?;
                self.state.forget(path);
            }
            Action::KeepBoth { path, kept_as } => {
                // If a run is killed after the rename, a base that was not forgotten
                // would look like a deletion.
                self.state.forget(path);
                self.state.save()?;
                self.folder.rename(path, kept_as)?;
            }
            Action::Download { path, memory, replaces } => {
                self.download(path, *memory, *replaces, *lineage).await?;
            }
            Action::Create { path, hash } => self.upload(path, None, *hash, listing).await?,
            Action::Replace { path, memory, hash } => {
                self.upload(path, Some(*memory), *hash, listing).await?;
            }
        }
        Ok(())
    }

    async fn download(
        &mut self,
        path: &MemoryPath,
        memory: KnownMemory,
        replaces: Option<ContentHash>,
        lineage: Lineage,
    ) -> Result<(), NotDone> {
        if replaces.is_some() {
            self.release_base_of(path, lineage).await?;
        }
        let content = self.store.content(path, memory).await?;
        self.folder.write(path, &content, replaces)?;
        self.state.record(path, memory, None);
        Ok(())
    }

    /// Whether the content of this path that was synchronised last may leave the folder: the
    /// store has it, or removed it on purpose. If the store lost it, the folder may have the
    /// only copy: the path is forgotten, so that the next pass keeps the contents of both
    /// sides.
    ///
    /// With a credential that may not read versions, such as a session's token, the store
    /// is trusted, and the private folder keeps the files that are removed; it also keeps
    /// those whose versions may have been lost.
    async fn release_base_of(&mut self, path: &MemoryPath, lineage: Lineage) -> Result<(), NotDone> {
        let state = match self.state.known(path) {
            Some(known) => self.state_of(path, known.version_id, lineage).await?,
            None => VersionState::Lost,
        };
        self.state.note(path, state);
        match state {
            VersionState::Kept | VersionState::Redacted | VersionState::Removed => {
                self.folder.keep_removed(None);
            }
            VersionState::Hidden => self.folder.keep_removed(Some(HIDDEN)),
            VersionState::Likely => self.folder.keep_removed(Some(LIKELY)),
            VersionState::Unclear => return Err(NotDone::Refused(UNCLEAR.to_owned())),
            VersionState::Lost => {
                Report::keep(path);
                self.state.forget(path);
                return Err(NotDone::Lost);
            }
        }
        Ok(())
    }

    async fn upload(
        &mut self,
        path: &MemoryPath,
        memory: Option<KnownMemory>,
        hash: ContentHash,
        listing: &Listing,
    ) -> Result<(), NotDone> {
        let content = self.folder.read(path, hash)?;
        let written = match memory {
            Some(memory) => self.store.replace(memory, &content).await?,
            None => self.store.create(path, &content).await?,
        };
        self.written.extend(written.version_id);
        self.record(path, written, listing);
        Ok(())
    }

    fn record(&mut self, path: &MemoryPath, known: KnownMemory, listing: &Listing) {
        self.state.record(path, known, listing.hints.get(path).copied());
    }
}
