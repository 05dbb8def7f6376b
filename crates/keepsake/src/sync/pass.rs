//! Passes: lists both sides, plans, and carries the plan out.

use std::collections::BTreeSet;

use keepsake_config::{Failure, FailureClass};
use keepsake_core::{ContentHash, MemoryPath, VersionId};
use tokio::time::Instant;

use super::Stop;
use super::folder::{Folder, Listing, time};
use super::gone::Gone;
use super::plan::{self, Action, Base, Emptied, Known, Local, Plan, Remote, Settings, Side};
use super::report::Report;
use super::scope::Scope;
use super::state::State;
use super::store::{Attempt, Store};

/// Passes of one run: others may change what a pass has just seen.
const MAX_PASSES: u32 = 5;
/// Steps after which the state is saved, so that a killed run loses little work.
const STEPS_PER_SAVE: usize = 100;

/// The synchronisation of one folder with one store.
pub(super) struct Sync {
    pub(super) store: Store,
    pub(super) folder: Folder,
    pub(super) state: State,
    pub(super) report: Report,
    pub(super) allows_emptying: bool,
    /// With `--watch`: the files that are gone.
    pub(super) gone: Option<Gone>,
}

/// The input of a plan.
struct Seen {
    scope: Scope,
    listing: Listing,
    /// The paths of memories.
    paths: BTreeSet<MemoryPath>,
    /// The newest version that was synchronised before the pass.
    newest: Option<VersionId>,
}

impl Sync {
    /// Makes passes until both sides are equal, and reports what they did.
    ///
    /// # Errors
    /// [`Stop`]; the state and the report have the steps that were done.
    pub(super) async fn run(&mut self) -> Result<(), Stop> {
        let mut passes = 0;
        let done = loop {
            passes += 1;
            match self.pass().await {
                Ok(true) => break Ok(()),
                Ok(false) if passes == MAX_PASSES => {
                    let text = "both sides kept changing: run the command again";
                    break Err(Failure::of_class(FailureClass::Conflict, text).into());
                }
                Ok(false) => {}
                Err(stop) => break Err(stop),
            }
        };
        self.save()?;
        self.report.finish(self.state.base().len(), done.is_ok())?;
        done
    }

    /// Saves the state, unless nothing may be written or the folder is gone.
    ///
    /// # Errors
    /// [`Failure`] that names the file.
    pub(super) fn save(&mut self) -> Result<(), Failure> {
        if self.report.is_dry_run() {
            return Ok(());
        }
        self.state.check_exists()?;
        self.state.save()
    }

    /// One pass; `false`: something changed meanwhile, another pass is needed.
    async fn pass(&mut self) -> Result<bool, Stop> {
        self.state.check_exists()?;
        let scope = Scope::read(self.folder.root())?;
        let memories = self.store.list().await?;
        for (path, reason) in &memories.refused {
            self.report.refuse(path, reason);
        }
        let listing = self.folder.list(&self.state, &scope).await?;
        for (path, reason) in &listing.skipped {
            self.report.skip(path, reason);
        }
        let remote: Remote = memories
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
        let plan = self.plan(&base, &listing.files, &remote)?;
        for (path, reason) in &plan.skipped {
            self.report.skip(path.as_str(), reason);
        }
        if self.report.is_dry_run() {
            for action in &plan.actions {
                self.report.step(action)?;
            }
            return Ok(true);
        }
        let seen =
            Seen { paths: remote.into_keys().collect(), newest: self.state.newest_version(), scope, listing };
        let lost = self.carry_out(&plan.actions, &seen).await?;
        Ok(lost == 0 && !seen.listing.is_unsettled)
    }

    /// The base without paths that are not synchronised any more.
    fn base_in(&mut self, scope: &Scope) -> Base {
        let base = self.state.base().clone();
        let (kept, excluded): (Base, Base) =
            base.into_iter().partition(|(path, _)| scope.excludes(path).is_none());
        for path in excluded.keys() {
            self.state.forget(path);
        }
        kept
    }

    fn plan(&mut self, base: &Base, local: &Local, remote: &Remote) -> Result<Plan, Stop> {
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
        let Some(emptied) = plan.emptied.filter(|_| !self.allows_emptying) else {
            return Ok(plan);
        };
        let is_loss = |action: &&Action| action.carries_loss_of() == Some(emptied);
        let losses = plan.actions.iter().filter(is_loss).count();
        let (lost, other) = match emptied {
            Emptied::Folder => ("folder", "memory store"),
            Emptied::Store => ("memory store", "folder"),
        };
        Err(Stop::Emptied(Failure::of_class(
            FailureClass::Conflict,
            format!(
                "nothing was changed: most of what was in the {lost} is gone or empty, and {losses} files \
                 would be deleted or emptied in the {other}; --allow-emptying goes on"
            ),
        )))
    }

    /// Carries the steps out; returns how many found something else than the plan saw.
    async fn carry_out(&mut self, actions: &[Action], seen: &Seen) -> Result<usize, Stop> {
        let mut lost = 0;
        for (number, action) in actions.iter().enumerate() {
            match self.step(action, seen).await? {
                Attempt::Done(()) => self.report.step(action)?,
                Attempt::Lost => lost += 1,
                Attempt::Refused(reason) => self.report.refuse(action.path().as_str(), &reason),
            }
            if (number + 1) % STEPS_PER_SAVE == 0 {
                self.state.save()?;
            }
        }
        self.state.save()?;
        Ok(lost)
    }

    async fn step(&mut self, action: &Action, seen: &Seen) -> Result<Attempt<()>, Failure> {
        let Seen { scope, listing, paths, newest } = seen;
        match action {
            Action::MoveBase { from, to } => {
                self.state.rename(from, to);
                Ok(Attempt::Done(()))
            }
            Action::Forget { path } => {
                self.state.forget(path);
                Ok(Attempt::Done(()))
            }
            Action::Record { path, memory } => {
                self.record(path, *memory, listing);
                Ok(Attempt::Done(()))
            }
            Action::MoveLocal { from, to, .. } => {
                let moved = self.folder.rename(from, to);
                if matches!(moved, Attempt::Done(())) {
                    self.state.rename(from, to);
                }
                Ok(moved)
            }
            Action::MoveRemote { from, to, memory } => {
                let moved = self.store.rename(*memory, to).await?;
                Ok(moved.map(|moved| {
                    self.state.rename(from, to);
                    // The move made a version.
                    if self.state.base().get(to).is_some_and(|base| base.hash == moved.hash) {
                        self.state.record(to, moved, None);
                    }
                }))
            }
            Action::DeleteLocal { path, memory } => {
                // A listing is not one moment: the memory may be at a path now that the
                // plan did not see.
                let now_at = match self.store.path_of(memory.memory_id).await? {
                    Attempt::Done(now_at) => now_at,
                    Attempt::Lost => return Ok(Attempt::Lost),
                    Attempt::Refused(reason) => return Ok(Attempt::Refused(reason)),
                };
                let is_seen = |path: &MemoryPath| scope.excludes(path).is_some() || paths.contains(path);
                if now_at.is_some_and(|path| !is_seen(&path))
                    || !self.store_knows_base_of(path, *newest).await?
                {
                    return Ok(Attempt::Lost);
                }
                let deleted = self.folder.delete(path, memory.hash);
                Ok(deleted.map(|()| self.state.forget(path)))
            }
            Action::DeleteRemote { path, memory } => {
                if !self.folder.has_no_file(path) {
                    return Ok(Attempt::Lost);
                }
                let deleted = self.store.delete(*memory).await?;
                Ok(deleted.map(|()| self.state.forget(path)))
            }
            Action::KeepBoth { path, kept_as } => {
                // Else a run that is killed after the rename would look like a deletion.
                self.state.forget(path);
                self.state.save()?;
                Ok(self.folder.rename(path, kept_as))
            }
            Action::Download { path, memory, replaces } => {
                self.download(path, *memory, *replaces, *newest).await
            }
            Action::Create { path, hash } => self.upload(path, None, *hash, listing).await,
            Action::Replace { path, memory, hash } => self.upload(path, Some(*memory), *hash, listing).await,
        }
    }

    async fn download(
        &mut self,
        path: &MemoryPath,
        memory: Known,
        replaces: Option<ContentHash>,
        newest: Option<VersionId>,
    ) -> Result<Attempt<()>, Failure> {
        if replaces.is_some() && !self.store_knows_base_of(path, newest).await? {
            return Ok(Attempt::Lost);
        }
        let content = match self.store.content(path, memory).await? {
            Attempt::Done(content) => content,
            Attempt::Lost => return Ok(Attempt::Lost),
            Attempt::Refused(reason) => return Ok(Attempt::Refused(reason)),
        };
        let written = self.folder.write(path, &content, replaces);
        Ok(written.map(|()| self.state.record(path, memory, None)))
    }

    /// Whether the store has had the version of this path that was synchronised last. If it
    /// has not, the folder may have the only copy: the path is forgotten, so that the next
    /// pass keeps the contents of both sides.
    ///
    /// If the store has the newest of all synchronised versions, its history is the same one,
    /// and an older version was removed on purpose: it was erased, or has expired.
    ///
    /// With a credential that may not read versions, such as a session's token, the store
    /// is trusted, and the private folder keeps the files that are removed.
    async fn store_knows_base_of(
        &mut self,
        path: &MemoryPath,
        newest: Option<VersionId>,
    ) -> Result<bool, Failure> {
        let base = self.state.base().get(path).and_then(|known| known.version_id);
        if let Some(version_id) = base {
            match self.store.has_version(version_id).await? {
                Some(true) => return Ok(true),
                Some(false) => {}
                None => {
                    self.folder.keep_removed();
                    return Ok(true);
                }
            }
            if let Some(newest) = newest.filter(|newest| *newest != version_id)
                && self.store.has_version(newest).await? == Some(true)
            {
                return Ok(true);
            }
        }
        Report::keep(path);
        self.state.forget(path);
        Ok(false)
    }

    async fn upload(
        &mut self,
        path: &MemoryPath,
        memory: Option<Known>,
        hash: ContentHash,
        listing: &Listing,
    ) -> Result<Attempt<()>, Failure> {
        let Attempt::Done(content) = self.folder.read(path, hash) else {
            return Ok(Attempt::Lost);
        };
        let written = match memory {
            Some(memory) => self.store.replace(memory, &content).await?,
            None => self.store.create(path, &content).await?,
        };
        Ok(written.map(|known| self.record(path, known, listing)))
    }

    fn record(&mut self, path: &MemoryPath, known: Known, listing: &Listing) {
        self.state.record(path, known, listing.hints.get(path).copied());
    }
}
