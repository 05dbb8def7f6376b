//! The line ends of a text that a person edits. Browsers send every line end as CRLF.

use keepsake_core::tool::line_end;

/// The text of a form field, with `\n` at the end of each line.
pub(crate) fn typed(field: &str) -> String {
    field.replace("\r\n", "\n")
}

/// A typed text with the line ends of the text before the edit: the lines before and after the
/// change keep their line ends, and new lines get the most frequent line end.
pub(crate) fn kept(before: &str, typed: &str) -> String {
    let old = lines_of(before);
    let new: Vec<&str> = typed.split('\n').collect();
    let end = line_end(before).unwrap_or("\n");
    let is_same = |((old, _), new): &(&(&str, &str), &&str)| old == *new;
    let above = old.iter().zip(&new).take_while(is_same).count();
    let below = old[above..].iter().rev().zip(new[above..].iter().rev()).take_while(is_same).count();
    let mut text = String::with_capacity(typed.len() + new.len());
    for (position, line) in new.iter().enumerate() {
        text.push_str(line);
        let lines_left = new.len() - position;
        if lines_left == 1 {
            break;
        }
        let old_position = match position {
            position if position < above => Some(position),
            _ if lines_left <= below => old.len().checked_sub(lines_left),
            _ => None,
        };
        let old_end = old_position.and_then(|position| old.get(position)).map_or("", |(_, end)| *end);
        text.push_str(if old_end.is_empty() { end } else { old_end });
    }
    text
}

/// The lines of a text and their ends, divided as browsers do.
fn lines_of(text: &str) -> Vec<(&str, &str)> {
    let mut lines = Vec::new();
    let mut rest = text;
    while let Some(place) = rest.find(['\r', '\n']) {
        let end_bytes = if rest[place..].starts_with("\r\n") { 2 } else { 1 };
        let (line, behind) = rest.split_at(place + end_bytes);
        lines.push(line.split_at(place));
        rest = behind;
    }
    lines.push((rest, ""));
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_changed_lines_take_the_line_end_of_the_text() {
        for (before, field, after) in [
            ("", "", ""),
            ("a\r\nb\nc\rd\r\n", "a\r\nb\r\nc\r\nd\r\n", "a\r\nb\nc\rd\r\n"),
            ("a\nb\n", "a\r\nx\r\nb\r\n", "a\nx\nb\n"),
            ("a\r\nb\r\n", "a\r\nx\r\ny\r\nb", "a\r\nx\r\ny\r\nb"),
            ("a\nb\r\nc\r\n", "a\r\nB\r\nc\r\nd\r\n", "a\nB\r\nc\r\nd\r\n"),
            ("a\nb", "a\r\nb\r\nc", "a\nb\nc"),
            ("a\r\na\na", "a\r\na", "a\r\na"),
        ] {
            assert_eq!(kept(before, &typed(field)), after, "{before:?} {field:?}");
        }
    }
}
