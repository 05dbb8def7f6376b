//! What an import did with each file.

use crate::plan::Step;

/// What happened to a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// The memory is new.
    Created,
    /// The memory had other content.
    Replaced,
    /// The memory has this content already.
    Unchanged,
    /// The memory has other content and was kept.
    Skipped,
    /// The file was not imported.
    Refused {
        /// The kind of the reason.
        class: Class,
        /// The reason, which follows the path.
        reason: String,
    },
}

/// Why a file was refused, as far as the exit code depends on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
    /// It is no text that anybody would import.
    NotText,
    /// The memory store has something else at the path.
    Conflict,
    /// Any other reason.
    Rule,
}

impl Outcome {
    /// A file that was not imported.
    pub fn refused(class: Class, reason: impl Into<String>) -> Self {
        let reason = reason.into();
        Self::Refused { class, reason }
    }

    /// The outcome in one word.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Created => "created",
            Self::Replaced => "replaced",
            Self::Unchanged => "unchanged",
            Self::Skipped => "skipped",
            Self::Refused { .. } => "refused",
        }
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

/// The outcomes of all files.
#[derive(Debug, Default)]
pub struct Report(Vec<(String, Outcome)>);

/// The names of all outcomes.
pub const OUTCOMES: [&str; 5] = ["created", "replaced", "unchanged", "skipped", "refused"];

impl Report {
    /// Reports a file.
    pub fn add(&mut self, path: impl Into<String>, outcome: Outcome) {
        self.0.push((path.into(), outcome));
    }

    /// Reports the steps as if they were done.
    pub fn assume(&mut self, steps: &[Step]) {
        for step in steps {
            let outcome = match step.replaces {
                None => Outcome::Created,
                Some(_) => Outcome::Replaced,
            };
            self.add(step.item.path.as_str(), outcome);
        }
    }

    /// Only the refused files.
    #[must_use]
    pub fn only_refusals(mut self) -> Self {
        self.0.retain(|(_, outcome)| matches!(outcome, Outcome::Refused { .. }));
        self
    }

    /// The paths that were refused for this kind of reason.
    pub fn refusals(&self, of: Class) -> impl Iterator<Item = &str> {
        self.0.iter().filter_map(move |(path, outcome)| match outcome {
            Outcome::Refused { class, .. } if *class == of => Some(path.as_str()),
            _ => None,
        })
    }

    /// The paths of which the memory store has something else.
    pub fn conflicts(&self) -> impl Iterator<Item = &str> {
        self.refusals(Class::Conflict)
    }

    /// All files with their outcomes, by path.
    pub fn sorted(&mut self) -> &[(String, Outcome)] {
        self.0.sort_by(|(one, _), (other, _)| one.cmp(other));
        &self.0
    }

    /// The number of files of each of [`OUTCOMES`].
    pub fn counts(&self) -> [(&'static str, usize); 5] {
        OUTCOMES.map(|name| {
            let of_name = self.0.iter().filter(|(_, outcome)| outcome.name() == name);
            (name, of_name.count())
        })
    }
}
