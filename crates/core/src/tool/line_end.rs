//! The line ends of a file, which new lines take.

use std::borrow::Cow;

use memchr::memmem;

use super::edit::count_newlines;

/// The line end that most lines have, `\r\n` or `\n`; `None`: there is only one line.
pub fn line_end(text: &str) -> Option<&'static str> {
    let ends = count_newlines(text);
    let crlf = memmem::find_iter(text.as_bytes(), b"\r\n").count();
    (ends > 0).then_some(if crlf > ends / 2 { "\r\n" } else { "\n" })
}

/// The text with this end at each of its lines.
pub fn with_line_end<'a>(text: &'a str, end: &str) -> Cow<'a, str> {
    let text: Cow<'a, str> =
        if text.contains("\r\n") { text.replace("\r\n", "\n").into() } else { text.into() };
    if end == "\r\n" && text.contains('\n') { text.replace('\n', end).into() } else { text }
}
