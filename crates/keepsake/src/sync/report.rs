//! Prints what a run does: a line per step, then a summary.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use keepsake_config::cli::Result;
use keepsake_core::MemoryPath;
use serde_json::{Value, json};

use super::plan::Action;
use crate::output::{Printer, notice, printable};

pub(super) struct Report {
    printer: Printer,
    folder: String,
    store_id: String,
    is_dry_run: bool,
    steps: Vec<Value>,
    counts: BTreeMap<&'static str, usize>,
    /// Paths of the current run that are not synchronised, with the reason.
    skipped: BTreeMap<String, String>,
    /// Paths and reasons that were already printed.
    shown: BTreeSet<(String, String)>,
    has_finished: bool,
    conflicts: usize,
    has_refused: bool,
}

impl Report {
    pub(super) fn new(printer: Printer, folder: &Path, store_id: &str, is_dry_run: bool) -> Self {
        Self {
            printer,
            folder: folder.to_string_lossy().into_owned(),
            store_id: store_id.to_owned(),
            is_dry_run,
            steps: Vec::new(),
            counts: BTreeMap::new(),
            skipped: BTreeMap::new(),
            shown: BTreeSet::new(),
            has_finished: false,
            conflicts: 0,
            has_refused: false,
        }
    }

    pub(super) fn is_dry_run(&self) -> bool {
        self.is_dry_run
    }

    /// Files that both sides changed, in all runs.
    pub(super) fn conflicts(&self) -> usize {
        self.conflicts
    }

    /// Whether a path was refused in any run.
    pub(super) fn has_refused(&self) -> bool {
        self.has_refused
    }

    pub(super) fn step(&mut self, action: &Action) -> Result<()> {
        let Some((action_name, done, planned, rest)) = words_of(action) else { return Ok(()) };
        *self.counts.entry(action_name).or_default() += 1;
        self.conflicts += usize::from(matches!(action, Action::KeepBoth { .. }));
        let to = match action {
            Action::MoveLocal { to, .. } | Action::MoveRemote { to, .. } => Some(to.as_str()),
            Action::KeepBoth { kept_as, .. } => Some(kept_as.as_str()),
            _ => None,
        };
        let path = action.path().as_str();
        let step = json!({"type": "sync_step", "action": action_name, "path": path, "to": to});
        self.printer.step(&step, || {
            let words = if self.is_dry_run { format!("would {planned}") } else { done.to_owned() };
            format!("{words} {}{rest}\n", name(path))
        })?;
        self.steps.push(step);
        Ok(())
    }

    /// Reports a path that is not synchronised, once.
    pub(super) fn skip(&mut self, path: &str, reason: &str) {
        self.skipped.insert(path.to_owned(), reason.to_owned());
        if self.shown.insert((path.to_owned(), reason.to_owned())) {
            notice(&format!("skipped {}: {}", name(path), printable(reason)));
        }
    }

    /// Reports a file that stays because the store does not have the version that was
    /// synchronised.
    pub(super) fn keep(path: &MemoryPath) {
        notice(&format!(
            "{} is kept: the memory store's history does not have its content (any more)",
            name(path.as_str())
        ));
    }

    /// Reports a path that the store or the file system refuses.
    pub(super) fn refuse(&mut self, path: &str, reason: &str) {
        self.has_refused = true;
        self.skip(path, reason);
    }

    /// Prints the summary of a run, and starts the next one. A run that failed and a
    /// later run print nothing if they did nothing.
    pub(super) fn finish(&mut self, known: usize, is_complete: bool) -> Result<()> {
        let (steps, counts) = (std::mem::take(&mut self.steps), std::mem::take(&mut self.counts));
        let skipped = std::mem::take(&mut self.skipped);
        if !steps.is_empty() || (is_complete && !self.has_finished) {
            let result = json!({
                "type": "sync_result",
                "folder": self.folder,
                "memory_store_id": self.store_id,
                "dry_run": self.is_dry_run,
                "synchronised": known,
                "counts": counts,
                "steps": steps,
                "skipped": skipped.iter()
                    .map(|(path, reason)| json!({"path": path, "reason": reason}))
                    .collect::<Vec<_>>(),
            });
            self.printer.done(&result, || {
                let dry = if self.is_dry_run { "dry run: " } else { "" };
                format!("{dry}{}", summary(&counts, known, skipped.len()))
            })?;
        }
        self.has_finished |= is_complete;
        Ok(())
    }
}

/// The value of `action` in JSON; the verb of a step that was done; the verb after "would", for a dry run; and
/// the text after the path.
fn words_of(action: &Action) -> Option<(&'static str, &'static str, &'static str, String)> {
    let moved_to = |to: &MemoryPath| format!(" to {}", name(to.as_str()));
    Some(match action {
        Action::MoveBase { .. } | Action::Forget { .. } | Action::Record { .. } => return None,
        Action::Download { .. } => ("download", "downloaded", "download", String::new()),
        Action::Create { .. } | Action::Replace { .. } => ("upload", "uploaded", "upload", String::new()),
        Action::DeleteLocal { .. } => ("delete_in_folder", "deleted", "delete", " in the folder".to_owned()),
        Action::DeleteRemote { .. } => ("delete_in_store", "deleted", "delete", " in the store".to_owned()),
        Action::MoveLocal { to, .. } => ("move_in_folder", "moved", "move", moved_to(to) + " in the folder"),
        Action::MoveRemote { to, .. } => ("move_in_store", "moved", "move", moved_to(to) + " in the store"),
        Action::KeepBoth { kept_as, .. } => {
            let rest = format!(", whose content in the folder is kept as {}", name(kept_as.as_str()));
            ("conflict", "conflict:", "find the conflict", rest)
        }
    })
}

/// The path as a file's name relative to the folder.
fn name(path: &str) -> String {
    printable(path.trim_start_matches('/'))
}

fn summary(counts: &BTreeMap<&'static str, usize>, known: usize, skipped: usize) -> String {
    let count = |names: &[&str]| names.iter().filter_map(|name| counts.get(name)).sum::<usize>();
    let numbers = [
        (count(&["download"]), "downloaded"),
        (count(&["upload"]), "uploaded"),
        (count(&["move_in_folder", "move_in_store"]), "moved"),
        (count(&["delete_in_folder", "delete_in_store"]), "deleted"),
        (count(&["conflict"]), "in conflict"),
        (skipped, "skipped"),
    ];
    let numbers = numbers.into_iter().filter(|(number, _)| *number > 0);
    let mut parts: Vec<_> = numbers.map(|(number, what)| format!("{number} {what}")).collect();
    if counts.is_empty() {
        parts.insert(0, "nothing to do".to_owned());
    }
    format!("{}; {known} synchronised\n", parts.join(", "))
}
