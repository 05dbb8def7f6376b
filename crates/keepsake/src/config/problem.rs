//! What is wrong with a configuration, and where.

use std::fmt;

use super::keys::Key;

/// One thing that is wrong, as a sentence that never quotes a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Problem(String);

impl Problem {
    pub(crate) fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// A key that nobody knows; names those that are known beside it.
    pub(crate) fn unknown_key(name: &str, origin: &str, keys: &[Key]) -> Self {
        let section = name.split_once('.').map_or("", |(section, _)| section);
        let siblings: Vec<_> = keys
            .iter()
            .map(Key::parts)
            .filter(|(of, _)| *of == section)
            .map(|(_, key)| key)
            .collect();
        if section.is_empty() || siblings.is_empty() {
            let mut known: Vec<_> = keys
                .iter()
                .map(|key| key.name.split('.').next().unwrap_or_default())
                .collect();
            known.dedup();
            return Self(format!(
                "unknown key {name} ({origin}); there are {}",
                known.join(", ")
            ));
        }
        Self(format!(
            "unknown key {name} ({origin}); {section} has {}",
            siblings.join(", ")
        ))
    }

    /// A variable of Keepsake's that stands for no key.
    pub(crate) fn unknown_variable(name: &str, keys: &[Key]) -> Self {
        let section = name.splitn(3, '_').take(2).collect::<Vec<_>>().join("_") + "_";
        let siblings: Vec<_> = keys
            .iter()
            .map(Key::variable)
            .filter(|variable| variable.starts_with(&section))
            .collect();
        if siblings.is_empty() {
            let mut sections: Vec<_> = keys
                .iter()
                .map(|key| key.parts().0.to_ascii_uppercase())
                .filter(|name| !name.is_empty())
                .collect();
            sections.dedup();
            let sections = sections.join("_*, KEEPSAKE_");
            return Self(format!(
                "unknown variable {name}; there are KEEPSAKE_ROLE, KEEPSAKE_{sections}_*"
            ));
        }
        Self(format!(
            "unknown variable {name}; there are {}",
            siblings.join(", ")
        ))
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Everything that is wrong with a configuration; never empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ConfigError(pub(super) Vec<Problem>);

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.as_slice() {
            [problem] => write!(f, "{problem}"),
            problems => {
                write!(f, "the configuration has {} problems:", problems.len())?;
                problems.iter().try_for_each(|problem| write!(f, "\n  {problem}"))
            }
        }
    }
}
