//! Words of a command line that a person copies into a shell.

use std::borrow::Cow;

/// A text as one word of a shell's command.
pub(crate) fn shell_quoted(text: &str) -> String {
    // In single quotes, a shell takes everything but the quote as it is.
    format!("'{}'", text.replace('\'', r"'\''"))
}

/// A printable text as one word of a shell.
pub(crate) fn shell_word(text: &str) -> Cow<'_, str> {
    let is_plain = |c: char| c.is_alphanumeric() || "/._-:".contains(c);
    if !text.is_empty() && text.chars().all(is_plain) { text.into() } else { shell_quoted(text).into() }
}
