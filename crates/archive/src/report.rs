//! What an import did with each file.

use crate::plan::ImportStep;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    Created,
    /// The memory had other content, or another pin or expiry time.
    Replaced,
    /// The memory has this content already.
    Unchanged,
    /// The memory has other content and was kept.
    Skipped,
    Refused {
        class: Class,
        /// The reason, which follows the path.
        reason: String,
    },
}

/// Why a file was refused, as far as the exit code depends on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
    /// A hidden file, or a file that is not text: importers do not expect a memory of it.
    NotText,
    /// The memory store has something else at the path.
    Conflict,
    /// Any other reason.
    Rule,
}

impl Outcome {
    pub fn refused(class: Class, reason: impl Into<String>) -> Self {
        let reason = reason.into();
        Self::Refused { class, reason }
    }

    pub fn name(&self) -> &'static str {
        match self {
            Self::Created => "created",
            Self::Replaced => "replaced",
            Self::Unchanged => "unchanged",
            Self::Skipped => "skipped",
            Self::Refused { .. } => "refused",
        }
    }

    pub fn is_refused(&self, of: Class) -> bool {
        matches!(self, Self::Refused { class, .. } if *class == of)
    }

    /// Why the file was not written.
    pub fn reason(&self) -> Option<&str> {
        match self {
            Self::Refused { reason, .. } => Some(reason),
            Self::Skipped => Some("has other content"),
            Self::Created | Self::Replaced | Self::Unchanged => None,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReportEntry {
    /// The path in the destination.
    pub path: String,
    pub outcome: Outcome,
    /// What the written memory lacks of the source.
    pub lacks: Option<&'static str>,
}

impl ReportEntry {
    /// Why the file was not written, or what the memory lacks.
    pub fn reason(&self) -> Option<&str> {
        self.outcome.reason().or(self.lacks)
    }
}

#[derive(Debug, Default)]
pub struct Report(Vec<ReportEntry>);

pub const OUTCOMES: [&str; 5] = ["created", "replaced", "unchanged", "skipped", "refused"];

impl Report {
    pub fn add(&mut self, path: impl Into<String>, outcome: Outcome) {
        self.add_with(path, outcome, None);
    }

    /// Reports a file. `lacks` counts only if the memory has the content.
    pub fn add_with(&mut self, path: impl Into<String>, outcome: Outcome, lacks: Option<&'static str>) {
        let is_imported = matches!(outcome, Outcome::Created | Outcome::Replaced | Outcome::Unchanged);
        self.0.push(ReportEntry { path: path.into(), outcome, lacks: lacks.filter(|_| is_imported) });
    }

    pub fn add_step(&mut self, step: &ImportStep, outcome: Outcome) {
        self.add_with(step.item.path.as_str(), outcome, step.lacks);
    }

    /// Reports the steps as if they were done.
    pub fn assume(&mut self, steps: &[ImportStep]) {
        for step in steps {
            let outcome = match step.replaces {
                None => Outcome::Created,
                Some(_) => Outcome::Replaced,
            };
            self.add_step(step, outcome);
        }
    }

    #[must_use]
    pub fn only_refusals(mut self) -> Self {
        self.0.retain(|file| matches!(file.outcome, Outcome::Refused { .. }));
        self
    }

    pub fn refusals(&self, of: Class) -> impl Iterator<Item = &str> {
        let refused = self.0.iter().filter(move |file| file.outcome.is_refused(of));
        refused.map(|file| file.path.as_str())
    }

    pub fn conflicts(&self) -> impl Iterator<Item = &str> {
        self.refusals(Class::Conflict)
    }

    pub fn entries(&self) -> &[ReportEntry] {
        &self.0
    }

    /// All files by path.
    pub fn sorted(&mut self) -> &[ReportEntry] {
        self.0.sort_by(|one, other| one.path.cmp(&other.path));
        &self.0
    }

    /// The number of files of each of [`OUTCOMES`].
    pub fn counts(&self) -> [(&'static str, usize); 5] {
        OUTCOMES.map(|name| {
            let of_name = self.0.iter().filter(|file| file.outcome.name() == name);
            (name, of_name.count())
        })
    }

    /// The number of memories that were written without a part of the source.
    pub fn lacking(&self) -> usize {
        self.0.iter().filter(|file| file.lacks.is_some()).count()
    }
}
