//! Passes: each looks at both stores, plans, and carries the plan out.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use futures::stream::{StreamExt, TryStreamExt, iter};
use keepsake_archive::plan::{DestinationMemory, OnConflict};
use keepsake_archive::report::{Class, Outcome};
use keepsake_archive::verified::{Prefix, SourceListing};
use keepsake_client::ClientError;
use keepsake_config::{Failure, FailureClass, cli::Result};
use keepsake_core::MemoryPath;
use keepsake_engine::{Clock, SystemClock};
use serde_json::{Value, json};

use super::history;
use super::listing::{Listed, StoreListing};
use super::not_held::{self, Limits};
use super::plan::{self, Base, CopiedMemory, Move, Plan, Rules, TargetMemories, copied_of};
use super::receipt::Receipt;
use super::server::{Server, StorePair};
use crate::archive::source::{Source, placed};
use crate::archive::upload;
use crate::failures::{class_of, failure_of};
use crate::output::{Printer, counted};
use crate::people::agent_path;
use crate::store_api::ReadMemory;

/// Passes of a round: others may change what a pass has just seen, and calls may fail.
const MAX_PASSES: u32 = 10;
/// The wait after a pass that left something to the next one; it doubles.
const FIRST_WAIT: Duration = Duration::from_millis(200);
const MAX_WAIT: Duration = Duration::from_secs(10);
/// Deletions and moves that are sent at the same time.
const MAX_IN_FLIGHT: usize = 8;
/// Written memories that are read one by one; after more, all are listed again.
const MAX_SINGLE_READS: usize = 100;

#[derive(Debug, Clone, Copy)]
pub(super) struct Options {
    pub(super) on_conflict: OnConflict,
    pub(super) deletes: bool,
    pub(super) copies_history: bool,
}

pub(super) struct StoreCopy {
    pub(super) source: StoreListing,
    /// `None`: the store is created before the first write.
    target: Option<StoreListing>,
    pub(super) to: Arc<Server>,
    options: Options,
    limits: Limits,
    base: Base,
    /// Writes whose outcome is not known: if the target has one of these contents, it was copied.
    unsure: Base,
    /// What the target refused in this round, with the hash and the reason.
    refused: HashMap<MemoryPath, (String, String)>,
    pub(super) receipt: Receipt,
    printer: Printer,
}

impl StoreCopy {
    pub(super) fn new(
        from: &Server,
        to: Arc<Server>,
        pair: StorePair,
        options: Options,
        printer: Printer,
    ) -> Self {
        Self {
            source: StoreListing::new(from, pair.from.id.clone()),
            target: pair.to.as_ref().map(|store| StoreListing::new(&to, store.id.clone())),
            receipt: Receipt::new(pair),
            to,
            options,
            limits: Limits::default(),
            base: Base::new(),
            unsure: Base::new(),
            refused: HashMap::new(),
            printer,
        }
    }

    /// Plans the first pass, and notes what the target cannot hold. Nothing is written. The inner failure is
    /// the reason why the pass must not begin.
    pub(super) async fn survey(&mut self) -> Result<Result<()>> {
        if let Some(target) = self.target.as_ref().filter(|target| target.is_keepsake) {
            self.limits = Limits::read(target).await?;
        }
        let plan = self.plan(false).await?;
        self.receipt.not_held = not_held::of_plan(&plan, &self.limits);
        if self.source.is_keepsake && !self.to.is_keepsake {
            self.receipt.not_held.extend(not_held::expiry(self.source.refresh().await?));
        }
        self.receipt.not_held.extend(not_held::of_store(&self.receipt.pair.from));
        // A history has the settings, too.
        if !self.options.copies_history {
            if self.source.refresh().await?.values().any(|memory| is_setting(&memory.path)) {
                self.receipt.not_held.push(not_held::settings());
            }
            self.receipt.not_held.extend(not_held::history(&self.source).await?);
        }
        self.receipt.tell_not_held();
        let begins = self.check_first(&plan);
        self.receipt.survey(plan);
        Ok(begins)
    }

    /// Refuses what must not begin at all.
    fn check_first(&self, plan: &Plan) -> Result<()> {
        let (name, conflicts) = (&self.receipt.pair.to_name, plan.report.conflicts().count());
        if self.options.on_conflict == OnConflict::Fail && conflicts > 0 {
            let first = plan.report.conflicts().next().map(agent_path).unwrap_or_default();
            let paths = counted(conflicts as u64, "path");
            return Err(Failure::conflict(format!(
                "nothing was written: {name} has something else at {paths}, the first is {first}; \
                 --on-conflict skip or replace copies the rest"
            )));
        }
        if plan.present.is_empty() && !plan.deletions.is_empty() {
            return Err(self.would_empty());
        }
        Ok(())
    }

    fn would_empty(&self) -> Failure {
        let name = &self.receipt.pair.to_name;
        Failure::conflict(format!(
            "nothing was deleted: the source has no memory, and --delete would empty {name}"
        ))
    }

    /// Creates the store if it is missing, and copies the history if that is asked for.
    pub(super) async fn prepare(&mut self) -> Result<()> {
        let target = if let Some(target) = self.target.take() {
            target
        } else {
            let made = self.to.create_store(&self.receipt.pair.from, &self.receipt.pair.to_name).await?;
            self.receipt.to_id = Some(made.id.clone());
            let made = StoreListing::new(&self.to, made.id);
            if made.is_keepsake {
                self.limits = Limits::read(&made).await?;
            }
            made
        };
        if self.options.copies_history {
            let imported = history::copy(&self.source, &target.store).await?;
            self.receipt.add_history(&imported);
        }
        self.target = Some(target);
        Ok(())
    }

    /// Makes passes until nothing is left to do.
    pub(super) async fn round(&mut self) -> Result<()> {
        self.refused.clear();
        let (mut wait, mut has_moves) = (FIRST_WAIT, false);
        for _ in 0..MAX_PASSES {
            // A move that was not made is a deletion and a creation in the next pass.
            let plan = self.plan(!has_moves).await?;
            has_moves = !plan.moves.is_empty();
            if self.carry_out(plan).await? {
                return Ok(());
            }
            if !has_moves {
                tokio::time::sleep(wait).await;
                wait = (wait * 2).min(MAX_WAIT);
            }
        }
        Err(Failure::conflict(format!(
            "{}: after {MAX_PASSES} passes something is left to do; the same command continues",
            self.receipt.pair.from.name
        )))
    }

    async fn plan(&mut self, moves: bool) -> Result<Plan> {
        let is_keepsake = self.to.is_keepsake;
        let listed = self.source.refresh().await?;
        let listed = listed.values().filter(|memory| !is_setting(&memory.path));
        let mut found = placed(listed, &Prefix::new("/"))?;
        let target = match &mut self.target {
            Some(target) => target_memories(target.refresh().await?),
            None => TargetMemories::new(),
        };
        for (path, copied) in std::mem::take(&mut self.unsure) {
            if target.get(&path).is_some_and(|memory| memory.sha256 == copied.sha256) {
                self.base.insert(path, copied);
            }
        }
        leave_out(&mut found, &self.limits, &self.refused);
        if !is_keepsake {
            for item in &mut found.items {
                (item.is_pinned, item.expires_at) = (false, None);
            }
        }
        let Options { on_conflict, deletes, .. } = self.options;
        let plan = plan::plan(
            found,
            target,
            &self.base,
            Rules { on_conflict, deletes, moves, now: SystemClock.now() },
        );
        Ok(plan)
    }

    /// Carries a plan out. Returns `false` if something is left to the next pass.
    async fn carry_out(&mut self, plan: Plan) -> Result<bool> {
        let Some(target) = &self.target else {
            return Err(Failure::new("the memory store of the target is missing"));
        };
        let Plan { moves, mut deletions, steps, equal, kept, lost, present, report, .. } = plan;
        if !moves.is_empty() {
            for moved in moves {
                self.unsure.insert(moved.to.clone(), moved.copied.clone());
                if move_memory(target, &moved).await? {
                    self.base.remove(&moved.from);
                    self.receipt.count("moved");
                }
            }
            return Ok(false);
        }
        let mut is_missed = false;
        if deletions.keys().any(|path| !self.base.contains_key(path)) {
            if present.is_empty() {
                return Err(self.would_empty());
            }
            // A listing is not one moment: a memory that was moved during it may be in none of its pages.
            if !self.source.is_keepsake {
                self.source.forget();
            }
            let listed = self.source.refresh().await?.values().filter(|memory| !is_setting(&memory.path));
            let again: HashSet<_> =
                listed.filter_map(|memory| MemoryPath::parse(&memory.path).ok()).collect();
            is_missed = again.iter().any(|path| !present.contains(path));
            deletions.retain(|path, _| self.base.contains_key(path) || !again.contains(path));
        }
        self.receipt.note(kept, report);
        self.base.extend(equal);
        let deleting = deletions
            .iter()
            .map(|(path, memory)| delete(&self.source, target, path, memory, self.base.get(path)));
        let deleted: Vec<bool> = iter(deleting).buffered(MAX_IN_FLIGHT).try_collect().await?;
        let mut is_done = !is_missed && deleted.iter().all(|is_deleted| *is_deleted);
        for (path, _) in deletions.keys().zip(deleted).filter(|(_, is_deleted)| *is_deleted) {
            self.base.remove(path);
            self.receipt.count("deleted");
        }
        for path in &lost {
            self.base.remove(path);
        }
        let source = Source::Store(self.source.store.clone());
        // Those that are not done if the pass is broken off.
        let planned = steps.iter().map(|step| &step.item);
        self.unsure.extend(
            planned.filter_map(|item| Some((item.path.clone(), copied_of(item, item.sha256.to_string())?))),
        );
        let (base, unsure) = (&mut self.base, &mut self.unsure);
        let (refused, receipt) = (&mut self.refused, &mut self.receipt);
        let written = upload::write(&target.store, target.is_keepsake, &source, &steps, |written| {
            let item = &written.step.item;
            let copied = written.sha256.and_then(|sha256| copied_of(item, sha256.to_string()));
            match written.outcome {
                None => {
                    unsure.extend(copied.map(|copied| (item.path.clone(), copied)));
                    is_done = false;
                }
                Some(outcome) => {
                    unsure.remove(&item.path);
                    match outcome {
                        Outcome::Refused { class: Class::Conflict, .. } => is_done = false,
                        Outcome::Refused { reason, .. } => {
                            refused.insert(item.path.clone(), (item.sha256.to_string(), reason.clone()));
                            receipt.refuse(&item.path, reason);
                        }
                        done => {
                            base.extend(copied.map(|copied| (item.path.clone(), copied)));
                            receipt.count(done.name());
                        }
                    }
                }
            }
        });
        written.await?;
        if steps.len() + deletions.len() > MAX_SINGLE_READS
            && let Some(target) = &mut self.target
        {
            target.forget();
        }
        Ok(is_done)
    }

    /// Prints the changes of the target since the last call.
    pub(super) fn tell_step(&mut self) -> Result<()> {
        match self.receipt.step() {
            Some((step, sentence)) => self.printer.step(&step, || sentence),
            None => Ok(()),
        }
    }

    /// Lists the target again, and compares each memory with the content that was read from the source.
    pub(super) async fn verify(&mut self) -> Result<()> {
        let Some(target) = &mut self.target else {
            return Ok(());
        };
        target.forget();
        let there = target_memories(target.refresh().await?);
        let mut verified = 0;
        for (path, copied) in &self.base {
            match there.get(path) {
                Some(memory) if memory.sha256 == copied.sha256 => verified += 1,
                Some(_) => self.receipt.differs(path, "has other content than was copied"),
                None => self.receipt.differs(path, "was copied, and is missing"),
            }
        }
        self.receipt.verified = Some(verified);
        Ok(())
    }
}

/// Moves what cannot be copied from the items to the report.
fn leave_out(found: &mut SourceListing, limits: &Limits, refused: &HashMap<MemoryPath, (String, String)>) {
    let mut paths = HashSet::new();
    let report = &mut found.report;
    found.items.retain(|item| {
        let again = refused.get(&item.path).filter(|(sha256, _)| *sha256 == item.sha256.to_string());
        let reason = if !paths.insert(item.path.clone()) {
            Some("another memory has the same path in NFC".to_owned())
        } else if let Some((_, reason)) = again {
            Some(reason.clone())
        } else {
            limits.refuse(item.size_bytes)
        };
        if let Some(reason) = &reason {
            report.add(item.path.as_str(), Outcome::refused(Class::Rule, reason));
        }
        reason.is_none()
    });
}

/// The memories of a target at valid paths. Nothing that is copied can be at another path.
fn target_memories(listed: &Listed) -> TargetMemories {
    let memories = listed.values();
    memories
        .filter(|memory| !is_setting(&memory.path))
        .filter_map(|memory| Some((MemoryPath::parse(&memory.path).ok()?, memory.as_destination())))
        .collect()
}

/// Whether the memory is a setting of its store: passes neither copy nor delete these.
fn is_setting(path: &str) -> bool {
    MemoryPath::parse(path).is_ok_and(|path| path.is_setting())
}

/// Moves a memory that still has the content that was copied. Returns `false` if the next pass
/// has to look.
async fn move_memory(target: &StoreListing, moved: &Move) -> Result<bool> {
    let fields = json!({"path": moved.to.as_str()});
    match target.store.update::<Value>(&moved.memory_id, &moved.copied.sha256, fields).await {
        Ok(_) => Ok(true),
        Err(error) if is_left_to_the_next_pass(&error) => Ok(false),
        Err(error) => Err(failure_of("a memory was not moved")(error)),
    }
}

/// Deletes a memory that still has the content that was compared, after the source has said
/// that the copied memory is not at the path any more. Returns `false` if the next pass has to look.
async fn delete(
    source: &StoreListing,
    target: &StoreListing,
    path: &MemoryPath,
    memory: &DestinationMemory,
    copied: Option<&CopiedMemory>,
) -> Result<bool> {
    if let Some(copied) = copied {
        // A listing is not one moment: the memory may have been moved during it.
        match source.store.read(&copied.source_id, "basic").await? {
            ReadMemory::Deleted => {}
            ReadMemory::Memory(read) if read.path != path.as_str() => {}
            ReadMemory::Memory(_) | ReadMemory::Unusable(_) => return Ok(false),
        }
    }
    match target.store.delete(&memory.id, &memory.sha256).await {
        Ok(_) => Ok(true),
        Err(error) if class_of(&error) == FailureClass::NotFound => Ok(true),
        Err(error) if is_left_to_the_next_pass(&error) => Ok(false),
        Err(error) => Err(failure_of("a memory was not deleted")(error)),
    }
}

/// Whether the memory, and not the server, is the cause; or whether the change may have been applied.
fn is_left_to_the_next_pass(error: &ClientError) -> bool {
    let is_about_the_memory = matches!(error.status().map(|status| status.as_u16()), Some(400 | 404 | 409));
    is_about_the_memory || error.is_outcome_unknown()
}
