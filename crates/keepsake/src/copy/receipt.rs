//! The receipt of a copy: its changes, and the memories that are not equal at its end.

use std::collections::BTreeMap;

use indicatif::HumanCount;
use keepsake_archive::report::{Outcome, Report};
use keepsake_config::{Failure, cli::Result};
use keepsake_core::MemoryPath;
use serde_json::{Value, json};

use super::not_held::NotHeld;
use super::plan::Plan;
use super::server::StorePair;
use crate::archive::RESULTS;
use crate::output::{Printer, notice, printable};

/// Maximum number of printed lines about contents that the target cannot hold; the receipt in JSON has all.
const MAX_TOLD: usize = 50;
/// Maximum number of memories that the receipt of a store names.
const MAX_ITEMS: usize = 10_000;
/// Changes that are counted, in the order in which they are printed.
const COUNTS: [&str; 4] = ["created", "replaced", "moved", "deleted"];

#[derive(Debug, Default)]
pub(super) struct Receipt {
    pub(super) pair: StorePair,
    pub(super) to_id: Option<String>,
    counts: BTreeMap<&'static str, u64>,
    /// The counts that were printed.
    told: BTreeMap<&'static str, u64>,
    /// Equal on both sides before the first write.
    unchanged: usize,
    has_history: bool,
    /// Memories that only the target has, and keeps.
    only_in_target: usize,
    /// Memories that are as they were copied; `None`: they were not compared.
    pub(super) verified: Option<usize>,
    pub(super) not_held: Vec<NotHeld>,
    /// What is not equal, by path: the result and the reason. Of a dry run, the whole plan.
    noted: BTreeMap<String, (&'static str, Option<String>)>,
    has_conflicts: bool,
}

impl Receipt {
    pub(super) fn new(pair: StorePair) -> Self {
        let to_id = pair.to.as_ref().map(|store| store.id.clone());
        Self { pair, to_id, ..Self::default() }
    }

    pub(super) fn count(&mut self, what: &'static str) {
        *self.counts.entry(what).or_default() += 1;
    }

    /// Notes the plan of the first pass.
    pub(super) fn survey(&mut self, plan: Plan) {
        let Plan { deletions, steps, equal, kept, mut report, .. } = plan;
        self.unchanged = equal.len();
        self.only_in_target = kept;
        report.assume(&steps);
        self.noted.clear();
        for entry in report.sorted().iter().filter(|entry| entry.outcome != Outcome::Unchanged) {
            let reason = entry.reason().map(str::to_owned);
            self.noted.insert(entry.path.clone(), (entry.outcome.name(), reason));
        }
        for path in deletions.keys() {
            self.noted.insert(path.as_str().to_owned(), ("deleted", None));
        }
    }

    /// Replaces the notes by those of a pass: the memories that it did not copy, with the reasons.
    pub(super) fn note(&mut self, kept: usize, mut report: Report) {
        self.only_in_target = kept;
        self.has_conflicts = report.conflicts().next().is_some();
        self.noted.clear();
        for entry in report.sorted() {
            if let Some(reason) = entry.reason() {
                self.noted.insert(entry.path.clone(), (entry.outcome.name(), Some(reason.to_owned())));
            }
        }
    }

    pub(super) fn refuse(&mut self, path: &MemoryPath, reason: String) {
        self.noted.insert(path.as_str().to_owned(), ("refused", Some(reason)));
    }

    /// Notes a copied memory whose content in the target is another one, unless it has a note already.
    pub(super) fn differs(&mut self, path: &MemoryPath, reason: &str) {
        let noted = self.noted.entry(path.as_str().to_owned());
        noted.or_insert_with(|| ("differs", Some(reason.to_owned())));
    }

    /// Counts the memories that were created with their history.
    pub(super) fn add_history(&mut self, imported: &Report) {
        self.has_history = true;
        let created = imported.entries().iter().filter(|entry| entry.outcome == Outcome::Created);
        *self.counts.entry("created").or_default() += created.count() as u64;
    }

    pub(super) fn tell_not_held(&self) {
        let name = printable(&self.pair.to_name);
        for thing in self.not_held.iter().take(MAX_TOLD) {
            let path = thing.path.as_deref().map(|path| format!("{} ", printable(path))).unwrap_or_default();
            notice(&format!("{name} cannot hold: {path}{}", printable(&thing.reason)));
        }
        let rest = self.not_held.len().saturating_sub(MAX_TOLD);
        if rest > 0 {
            notice(&format!("{name} cannot hold {} more", HumanCount(rest as u64)));
        }
    }

    fn done(&self, what: &'static str) -> u64 {
        self.counts.get(what).copied().unwrap_or_default()
    }

    /// The changes of the target since the last call, as an object and as a sentence; `None`: there were none.
    pub(super) fn step(&mut self) -> Option<(Value, String)> {
        let told = std::mem::replace(&mut self.told, self.counts.clone());
        let since = COUNTS.map(|name| (name, self.done(name) - told.get(name).copied().unwrap_or_default()));
        let since: Vec<_> = since.into_iter().filter(|(_, count)| *count > 0).collect();
        if since.is_empty() {
            return None;
        }
        let mut step = json!({"type": "memory_copy_step", "memory_store_id": self.pair.from.id});
        for (name, count) in &since {
            step[*name] = (*count).into();
        }
        let parts: Vec<_> =
            since.iter().map(|(name, count)| format!("{} {name}", HumanCount(*count))).collect();
        Some((step, format!("{}: {}\n", printable(&self.pair.from.name), parts.join(", "))))
    }

    fn number_of(&self, result: &str) -> usize {
        self.noted.values().filter(|(noted, _)| *noted == result).count()
    }

    fn items(&self) -> impl Iterator<Item = Value> {
        self.noted
            .iter()
            .take(MAX_ITEMS)
            .map(|(path, (result, reason))| json!({"path": path, "result": result, "reason": reason}))
    }

    /// The number of memories that [`Self::items`] leaves out.
    fn not_shown(&self) -> usize {
        self.noted.len().saturating_sub(MAX_ITEMS)
    }

    /// The number of memories by result; of a dry run, the numbers that the copy would have.
    fn counted(&self, is_dry_run: bool) -> Vec<(&'static str, u64)> {
        let done = COUNTS.map(|name| {
            let noted = self.number_of(name) as u64;
            (name, if is_dry_run { noted } else { self.done(name) })
        });
        let rest = ["skipped", "refused", "differs"].map(|name| (name, self.number_of(name) as u64));
        done.into_iter().chain([("unchanged", self.unchanged as u64)]).chain(rest).collect()
    }

    fn to_json(&self, is_dry_run: bool) -> Value {
        let counts =
            self.counted(is_dry_run).into_iter().map(|(name, count)| (name.to_owned(), count.into()));
        json!({
            "from": {"memory_store_id": self.pair.from.id, "name": self.pair.from.name},
            "to": {"memory_store_id": self.to_id, "name": self.pair.to_name, "created": self.pair.to.is_none()},
            "counts": Value::Object(counts.collect()),
            "only_in_target": self.only_in_target,
            "has_history": self.has_history,
            "verified": self.verified,
            "not_held": self.not_held.iter().map(NotHeld::to_json).collect::<Vec<_>>(),
            "data": self.items().collect::<Vec<_>>(),
            "not_shown": self.not_shown(),
        })
    }

    fn sentence(&self, is_dry_run: bool) -> String {
        let counts = self.counted(is_dry_run).into_iter().filter(|(_, count)| *count > 0);
        let mut parts: Vec<_> = counts.map(|(name, count)| format!("{} {name}", HumanCount(count))).collect();
        if parts.is_empty() {
            parts.push("nothing to do".to_owned());
        }
        if self.only_in_target > 0 {
            parts.push(format!("{} only in the target", HumanCount(self.only_in_target as u64)));
        }
        let verified = self.verified.map(|count| format!("; {} verified", HumanCount(count as u64)));
        let verified = verified.unwrap_or_default();
        let (would, made) = match (is_dry_run, self.pair.to.is_none()) {
            (true, true) => ("would be: ", ", which would be created"),
            (true, false) => ("would be: ", ""),
            (false, true) if self.to_id.is_some() => ("", ", which was created"),
            (false, _) => ("", ""),
        };
        let (from, to) = (printable(&self.pair.from.name), printable(&self.pair.to_name));
        format!("{from} to {to}{made}: {would}{}{verified}\n", parts.join(", "))
    }
}

/// Prints the receipts. Fails if the copy failed, if a memory was refused, or if a copied memory differs from its
/// source.
pub(super) fn end<'a>(
    receipts: impl Iterator<Item = &'a Receipt>,
    printer: &Printer,
    is_dry_run: bool,
    done: Result<()>,
) -> Result<()> {
    let receipts: Vec<_> = receipts.collect();
    print(&receipts, printer, is_dry_run, done.is_ok())?;
    done?;
    let wrong: usize =
        receipts.iter().map(|receipt| receipt.number_of("refused") + receipt.number_of("differs")).sum();
    if wrong == 0 {
        return Ok(());
    }
    if receipts.iter().any(|receipt| receipt.has_conflicts) {
        return Err(Failure::conflict(format!(
            "{wrong} memories were not copied: the target has something else"
        )));
    }
    Err(Failure::new(format!("{wrong} memories are not equal")))
}

/// Prints one JSON object or, for people, a table of the noted memories and a sentence for each pair of stores.
fn print(receipts: &[&Receipt], printer: &Printer, is_dry_run: bool, is_complete: bool) -> Result<()> {
    if printer.is_table() {
        for receipt in receipts {
            let items: Vec<_> = receipt.items().collect();
            if !items.is_empty() {
                printer.items(&items, &RESULTS, "")?;
            }
            if receipt.not_shown() > 0 {
                crate::output::print(&format!("and {} more\n", HumanCount(receipt.not_shown() as u64)))?;
            }
            crate::output::print(&receipt.sentence(is_dry_run))?;
        }
        return Ok(());
    }
    let stores: Vec<_> = receipts.iter().map(|receipt| receipt.to_json(is_dry_run)).collect();
    let receipt =
        json!({"type": "memory_copy", "dry_run": is_dry_run, "complete": is_complete, "stores": stores});
    printer.done(&receipt, String::new)
}
