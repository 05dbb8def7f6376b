//! Quotes untrusted text for the prompt of a model.

use std::fmt::{self, Write as _};

use unicode_properties::{GeneralCategory, UnicodeGeneralCategory as _};

/// Displays a text as one line in double quotes, escaped as in JSON.
///
/// The text cannot end its quotes or its line. Characters that are invisible or
/// reorder the visible text (format characters, such as bidirectional overrides)
/// are escaped like control characters.
#[derive(Debug, Clone, Copy)]
pub struct QuotedText<'a>(pub &'a str);

impl fmt::Display for QuotedText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_char('"')?;
        for character in self.0.chars() {
            match character {
                '"' => f.write_str("\\\"")?,
                '\\' => f.write_str("\\\\")?,
                '\n' => f.write_str("\\n")?,
                '\r' => f.write_str("\\r")?,
                '\t' => f.write_str("\\t")?,
                _ if is_invisible(character) => {
                    let mut units = [0; 2];
                    for unit in character.encode_utf16(&mut units) {
                        write!(f, "\\u{unit:04x}")?;
                    }
                }
                _ => f.write_char(character)?,
            }
        }
        f.write_char('"')
    }
}

fn is_invisible(character: char) -> bool {
    let is_special = || {
        matches!(
            character.general_category(),
            GeneralCategory::Format | GeneralCategory::LineSeparator | GeneralCategory::ParagraphSeparator
        )
    };
    character.is_control() || (!character.is_ascii() && is_special())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn quoted_text_is_one_line_of_json_with_nothing_lost(text in "\\PC{0,20}[\\x00-\\x7f\u{200b}-\u{202f}]{0,20}") {
            let quoted = QuotedText(&text).to_string();
            prop_assert!(!quoted.chars().any(is_invisible));
            let read: String = serde_json::from_str(&quoted).unwrap();
            prop_assert_eq!(read, text);
        }
    }
}
