//! Errors about names and beginnings of ids that several objects have.

/// Candidates that an error names.
const MAX_CANDIDATES: usize = 10;

/// Says that a beginning is that of several ids.
pub(crate) fn candidates(beginning: &str, several: &[&String]) -> String {
    format!("{} ids begin with `{beginning}`: {}", several.len(), listed(several))
}

/// Says that several objects have a name.
pub(crate) fn several_named(nouns: &str, name: &str, several: &[&String]) -> String {
    format!("{} {nouns} have the name `{name}`; give an id: {}", several.len(), listed(several))
}

fn listed(several: &[&String]) -> String {
    let named = several.iter().take(MAX_CANDIDATES).map(|id| id.as_str()).collect::<Vec<_>>().join(", ");
    let more = if several.len() > MAX_CANDIDATES { ", …" } else { "" };
    format!("{named}{more}")
}
