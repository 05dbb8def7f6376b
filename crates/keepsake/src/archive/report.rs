//! What an import did with each file.

use indicatif::HumanCount;
use keepsake_config::{Failure, FailureClass};
use serde_json::{Value, json};

use super::plan::Step;
use crate::output::{Column, Printer};

/// What happened to a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Outcome {
    Created,
    Replaced,
    /// The memory has this content already.
    Unchanged,
    /// The memory has other content and was kept.
    Skipped,
    Refused {
        class: Class,
        reason: String,
    },
}

/// Why a file was refused, as far as the exit code depends on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Class {
    /// It is no text that anybody would import.
    NotText,
    /// The memory store has something else at the path.
    Conflict,
    /// Any other reason.
    Rule,
}

impl Outcome {
    pub(super) fn refused(class: Class, reason: impl Into<String>) -> Self {
        let reason = reason.into();
        Self::Refused { class, reason }
    }

    fn name(&self) -> &'static str {
        match self {
            Self::Created => "created",
            Self::Replaced => "replaced",
            Self::Unchanged => "unchanged",
            Self::Skipped => "skipped",
            Self::Refused { .. } => "refused",
        }
    }

    fn reason(&self) -> Option<&str> {
        match self {
            Self::Refused { reason, .. } => Some(reason),
            Self::Skipped => Some("has other content"),
            Self::Created | Self::Replaced | Self::Unchanged => None,
        }
    }
}

/// The outcomes of all files.
#[derive(Debug, Default)]
pub(super) struct Report(Vec<(String, Outcome)>);

impl Report {
    pub(super) fn add(&mut self, path: impl Into<String>, outcome: Outcome) {
        self.0.push((path.into(), outcome));
    }

    /// Reports the steps as if they were done.
    pub(super) fn assume(&mut self, steps: &[Step]) {
        for step in steps {
            let outcome = match step.replaces {
                None => Outcome::Created,
                Some(_) => Outcome::Replaced,
            };
            self.add(step.item.path.as_str(), outcome);
        }
    }

    /// Only the refused files.
    pub(super) fn only_refusals(mut self) -> Self {
        self.0
            .retain(|(_, outcome)| matches!(outcome, Outcome::Refused { .. }));
        self
    }

    fn refusals(&self, of: Class) -> impl Iterator<Item = &str> {
        self.0.iter().filter_map(move |(path, outcome)| match outcome {
            Outcome::Refused { class, .. } if *class == of => Some(path.as_str()),
            _ => None,
        })
    }

    /// The paths of which the memory store has something else.
    pub(super) fn conflicts(&self) -> impl Iterator<Item = &str> {
        self.refusals(Class::Conflict)
    }

    /// Prints each file as JSON; as a table, only the files not written, and counts.
    ///
    /// # Errors
    /// [`Failure`] if stdout is closed.
    pub(super) fn print(mut self, printer: &Printer, is_dry_run: bool) -> Result<Self, Failure> {
        self.0.sort_by(|(one, _), (other, _)| one.cmp(other));
        let shown = |outcome: &Outcome| !printer.is_table() || outcome.reason().is_some();
        let items: Vec<Value> = self
            .0
            .iter()
            .filter(|(_, outcome)| shown(outcome))
            .map(
                |(path, outcome)| json!({"path": path, "result": outcome.name(), "reason": outcome.reason()}),
            )
            .collect();
        let columns = [
            Column::text("RESULT", "/result"),
            Column::text("PATH", "/path"),
            Column::text("REASON", "/reason"),
        ];
        if !printer.is_table() || !items.is_empty() {
            printer.items(&items, &columns, "")?;
        }
        if printer.is_table() {
            crate::output::print(&self.summary(is_dry_run))?;
        }
        Ok(self)
    }

    /// The number of files of each result.
    fn summary(&self, is_dry_run: bool) -> String {
        let names = ["created", "replaced", "unchanged", "skipped", "refused"];
        let counts = names.map(|name| {
            let count = self
                .0
                .iter()
                .filter(|(_, outcome)| outcome.name() == name)
                .count();
            format!("{} {name}", HumanCount(count as u64))
        });
        let prefix = if is_dry_run { "would be: " } else { "" };
        format!("{prefix}{}\n", counts.join(", "))
    }

    /// A failure if a text was refused.
    pub(super) fn result(&self) -> Result<(), Failure> {
        let (conflicts, rules) = (self.conflicts().count(), self.refusals(Class::Rule).count());
        if conflicts + rules == 0 {
            return Ok(());
        }
        let class = if rules == 0 {
            FailureClass::Conflict
        } else {
            FailureClass::Failed
        };
        let text = format!("{} files were refused", conflicts + rules);
        Err(Failure::of_class(class, text))
    }
}
