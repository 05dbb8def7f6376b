//! Texts of servers and agents, without the characters that control a terminal.

use std::borrow::Cow;
use std::fmt::Write as _;

/// A text for a terminal: lines and tabs stay, other characters that control a terminal
/// become JSON's escapes. JSON remains the same JSON, since these characters occur only
/// in strings.
pub(super) fn escaped(text: &str) -> Cow<'_, str> {
    escape(text, |char| controls(char) && !matches!(char, '\n' | '\t'))
}

/// A name, a path or a reason as a part of one line. It is the same in a pipe, where a
/// line break in a name could forge a line.
pub(crate) fn printable(text: &str) -> String {
    escape(text, controls).into_owned()
}

/// Whether a terminal takes a character as a command, or shows other characters in
/// another order because of it.
fn controls(char: char) -> bool {
    char.is_control()
        || matches!(
            char,
            '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
        )
}

fn escape(text: &str, is_escaped: impl Fn(char) -> bool) -> Cow<'_, str> {
    if !text.contains(&is_escaped) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + 16);
    for char in text.chars() {
        if is_escaped(char) {
            let _ = write!(shown, "\\u{:04x}", u32::from(char));
        } else {
            shown.push(char);
        }
    }
    Cow::Owned(shown)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn characters_that_control_a_terminal_are_escaped() {
        for (text, shown) in [
            ("plain é 日本 🎉\n\ttext", "plain é 日本 🎉\n\ttext"),
            ("\u{1b}[2J\u{1b}]0;title\u{7}", "\\u001b[2J\\u001b]0;title\\u0007"),
            ("a\rb\u{8}\u{7f}\u{0}", "a\\u000db\\u0008\\u007f\\u0000"),
            // The control characters of one byte in other encodings.
            ("\u{9b}31m\u{90}", "\\u009b31m\\u0090"),
            ("\u{202a}\u{202e}\u{2066}\u{2069}", "\\u202a\\u202e\\u2066\\u2069"),
            ("\u{200e}\u{200f}\u{61c}", "\\u200e\\u200f\\u061c"),
            ("\u{200d}\u{2029}\u{2065}\u{202f}", "\u{200d}\u{2029}\u{2065}\u{202f}"),
        ] {
            assert_eq!(escaped(text), shown);
            assert_eq!(escaped(shown), shown, "escaping again changes nothing");
        }
        assert_eq!(printable("a\nb\tc\u{202e}"), "a\\u000ab\\u0009c\\u202e");
        // Escaped JSON is the same JSON.
        let value = json!({"\u{202e}": ["\u{9b}x\u{7f}\n\u{1b}", 1]});
        for text in [value.to_string(), format!("{value:#}")] {
            let shown = escaped(&text);
            assert!(!shown.contains(|char| controls(char) && char != '\n'), "{shown:?}");
            assert_eq!(serde_json::from_str::<Value>(&shown).unwrap(), value);
        }
    }
}
