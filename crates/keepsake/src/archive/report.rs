//! Shows what an import did with each file.

use indicatif::HumanCount;
use keepsake_archive::report::{Class, Report, ReportEntry};
use keepsake_config::{Failure, FailureClass};
use serde_json::{Value, json};

use crate::output::{Printer, Text};

/// Prints each file as JSON; as a table, only the files not written as a whole, and counts.
pub(super) fn print(report: &mut Report, printer: &Printer, is_dry_run: bool) -> Result<(), Failure> {
    let shown = |file: &&ReportEntry| !printer.is_table() || file.reason().is_some();
    let items: Vec<Value> = report
        .sorted()
        .iter()
        .filter(shown)
        .map(|file| json!({"path": file.path, "result": file.outcome.name(), "reason": file.reason()}))
        .collect();
    let columns = [("RESULT", "/result", Text), ("PATH", "/path", Text), ("REASON", "/reason", Text)];
    if !printer.is_table() || !items.is_empty() {
        printer.items(&items, &columns, "")?;
    }
    if printer.is_table() {
        crate::output::print(&summary(report, is_dry_run))?;
    }
    Ok(())
}

fn summary(report: &Report, is_dry_run: bool) -> String {
    let counts = report.counts();
    let counts = counts.map(|(name, count)| format!("{} {name}", HumanCount(count as u64)));
    let prefix = if is_dry_run { "would be: " } else { "" };
    let lacking = match report.lacking() {
        0 => String::new(),
        lacking => format!(", {} without their expiry time", HumanCount(lacking as u64)),
    };
    format!("{prefix}{}{lacking}\n", counts.join(", "))
}

/// A failure if a text was refused.
pub(super) fn result(report: &Report) -> Result<(), Failure> {
    let (conflicts, rules) = (report.conflicts().count(), report.refusals(Class::Rule).count());
    if conflicts + rules == 0 {
        return Ok(());
    }
    let class = if rules == 0 { FailureClass::Conflict } else { FailureClass::Failed };
    let text = format!("{} files were refused", conflicts + rules);
    Err(Failure::of_class(class, text))
}
