//! What an edit makes of a content, written without the product's code.

use super::Edit;

/// The content after the edit; `None`: the edit is refused.
pub(super) fn apply(edit: &Edit, content: Option<&str>) -> Option<String> {
    match edit {
        Edit::Append { text } => Some(format!("{}{text}\n", content.map_or(String::new(), with_newline))),
        Edit::Insert { after, text } => insert(content?, *after, text),
        Edit::Replace { old, new } => replace(content?, old, new),
    }
}

fn insert(content: &str, after: usize, text: &str) -> Option<String> {
    let content = with_newline(content);
    let mut lines: Vec<_> = content.split_inclusive('\n').collect();
    let line = format!("{text}\n");
    if after > lines.len() {
        return None;
    }
    lines.insert(after, &line);
    Some(lines.concat())
}

fn replace(content: &str, old: &str, new: &str) -> Option<String> {
    (content.matches(old).count() == 1).then(|| content.replacen(old, new, 1))
}

fn with_newline(content: &str) -> String {
    if content.is_empty() || content.ends_with('\n') { content.to_owned() } else { format!("{content}\n") }
}
