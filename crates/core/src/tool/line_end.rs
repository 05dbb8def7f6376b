//! The line ends of a file, which new lines take.

use std::borrow::Cow;

use memchr::memmem;

use super::edit::count_newlines;

/// The line end that most lines have, `\r\n` or `\n`; `None`: there is only one line.
pub fn line_end(text: &str) -> Option<&'static str> {
    let (ends, crlf) = ends_of(text);
    (ends > 0).then_some(if crlf > ends / 2 { "\r\n" } else { "\n" })
}

/// Converts the line ends of a text to `end`.
pub fn with_line_end<'a>(text: &'a str, end: &str) -> Cow<'a, str> {
    let text: Cow<'a, str> =
        if text.contains("\r\n") { text.replace("\r\n", "\n").into() } else { text.into() };
    if end == "\r\n" && text.contains('\n') { text.replace('\n', end).into() } else { text }
}

/// Advice for an `old_str` that occurs only with other line ends; otherwise empty.
pub(super) fn hint_of_other_ends(content: &str, old_str: &str) -> &'static str {
    if !with_line_end(content, "\n").contains(&*with_line_end(old_str, "\n")) {
        return "";
    }
    let (ends, crlf) = ends_of(content);
    if crlf == ends {
        " The lines of the file end with \\r\\n: write the line ends of old_str in this way."
    } else if crlf == 0 {
        " The lines of the file end with \\n alone: write the line ends of old_str in this way."
    } else {
        " Some lines of the file end with \\r\\n and some with \\n: write each line end of old_str as the file \
         has it."
    }
}

/// The number of all line ends, and the number of `\r\n` line ends.
fn ends_of(text: &str) -> (usize, usize) {
    (count_newlines(text), memmem::find_iter(text.as_bytes(), b"\r\n").count())
}
