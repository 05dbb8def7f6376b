//! Shows the progress of an export or import, and what an import did with each file.

use std::collections::HashMap;

use indicatif::{HumanCount, ProgressBar};
use keepsake_archive::report::{Class, Report, ReportEntry};
use keepsake_config::{Failure, FailureClass, cli::Result};
use serde_json::{Value, json};

use super::RESULTS;
use crate::output::{Printer, counted, notice, printable, progress_bar};
use crate::people::agent_path;

/// More files with the same result and reason are one row of the table.
const MAX_ALIKE: usize = 3;
/// Shorter steps print no lines.
const MIN_LINES_TOTAL: u64 = 1_000;
/// Lines that are printed where stderr is not a terminal.
const LINES: u64 = 10;

/// The progress of one step: a bar on a terminal, a few lines elsewhere.
pub(super) struct Progress {
    bar: ProgressBar,
    /// The verb of the message, such as `exported`.
    done: &'static str,
    position: u64,
}

impl Progress {
    pub(super) fn new(done: &'static str, total: u64) -> Self {
        let template = "{msg} {bar:30} {human_pos} of {human_len}, {eta} left";
        let bar = progress_bar(ProgressBar::new(total), template).with_message(done);
        Self { bar, done, position: 0 }
    }

    pub(super) fn add(&mut self, parts: u64) {
        let total = self.bar.length().unwrap_or_default();
        let tenth = |position: u64| (position * LINES).checked_div(total).unwrap_or_default();
        let before = tenth(self.position);
        self.position += parts;
        self.bar.set_position(self.position);
        if self.bar.is_hidden() && total >= MIN_LINES_TOTAL && tenth(self.position) > before {
            notice(&format!("{} {} of {}", self.done, HumanCount(self.position), HumanCount(total)));
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

/// Prints each file as JSON, with the path of the API; as a table, only the files not written as a whole, with the path
/// as agents see it, and counts.
pub(super) fn print(report: &mut Report, printer: &Printer, is_dry_run: bool) -> Result<()> {
    let files = report.sorted().iter();
    let items: Vec<Value> = if printer.is_table() {
        let rows_of = |group: &Vec<&ReportEntry>| match group.as_slice() {
            [first, others @ ..] if others.len() >= MAX_ALIKE => {
                let others = HumanCount(others.len() as u64);
                vec![item(&format!("{} and {others} others", agent_path(&first.path)), first)]
            }
            few => few.iter().map(|file| item(&agent_path(&file.path), file)).collect(),
        };
        alike(files.filter(|file| file.reason().is_some())).iter().flat_map(rows_of).collect()
    } else {
        files.map(|file| item(&file.path, file)).collect()
    };
    if !printer.is_table() || !items.is_empty() {
        printer.items(&items, &RESULTS, "")?;
    }
    if printer.is_table() {
        crate::output::print(&summary(report, is_dry_run))?;
    }
    Ok(())
}

fn item(path: &str, file: &ReportEntry) -> Value {
    json!({"path": path, "result": file.outcome.name(), "reason": file.reason()})
}

/// Tells which texts the import leaves out, before it writes the others.
pub(super) fn tell_refused(report: &Report) {
    let refused = report.entries().iter().filter(|file| file.outcome.is_refused(Class::Rule));
    for alike in alike(refused) {
        let (first, count) = (alike[0], counted(alike.len() as u64, "file"));
        let (path, reason) = (agent_path(&first.path), printable(first.reason().unwrap_or_default()));
        notice(&format!("{count} will not be imported, the first is {path}: {reason}"));
    }
}

/// Files with the same result and, but for numbers, the same reason.
fn alike<'a>(files: impl Iterator<Item = &'a ReportEntry>) -> Vec<Vec<&'a ReportEntry>> {
    let mut groups: Vec<Vec<&ReportEntry>> = Vec::new();
    let mut places: HashMap<(&str, String), usize> = HashMap::new();
    for file in files {
        let reason = file.reason().unwrap_or_default();
        let reason = reason.chars().filter(|char| !char.is_ascii_digit()).collect();
        let place = *places.entry((file.outcome.name(), reason)).or_insert(groups.len());
        match groups.get_mut(place) {
            Some(group) => group.push(file),
            None => groups.push(vec![file]),
        }
    }
    groups
}

fn summary(report: &Report, is_dry_run: bool) -> String {
    let counts = report.counts();
    let counts = counts.map(|(name, count)| format!("{} {name}", HumanCount(count as u64)));
    let prefix = if is_dry_run { "would be: " } else { "" };
    let incomplete = match report.lacking() {
        0 => String::new(),
        count => format!(", {} without their expiry time", HumanCount(count as u64)),
    };
    format!("{prefix}{}{incomplete}\n", counts.join(", "))
}

/// A failure if a text was refused.
pub(super) fn result(report: &Report) -> Result<()> {
    let (conflicts, rules) = (report.conflicts().count(), report.refusals(Class::Rule).count());
    if conflicts + rules == 0 {
        return Ok(());
    }
    let class = if rules == 0 { FailureClass::Conflict } else { FailureClass::Failed };
    let text = format!("{} refused", counted((conflicts + rules) as u64, "file"));
    Err(Failure::of_class(class, text))
}
