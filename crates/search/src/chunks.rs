//! Contents in chunks, whose meanings are compared with that of a query.

use std::ops::Range;

use keepsake_core::MemoryPath;

use crate::analyse::MAX_TEXT_BYTES;

/// The form of a chunk's text. It is part of the id of the vectors, so that a new form is embedded again.
pub const CHUNK_FORM: u32 = 2;

pub const MAX_CHUNK_BYTES: usize = 600;
/// Minimum bytes of a part of a line that is too long for a chunk, except the last.
const MIN_PART_BYTES: usize = MAX_CHUNK_BYTES / 2;
/// Maximum bytes of the words of a file's name; the last words count.
const MAX_NAME_BYTES: usize = 200;

/// Maximum number of chunks of a content, because two neighbouring chunks have more
/// than half of [`MAX_CHUNK_BYTES`] together. Prose has about a quarter as many.
pub const MAX_CHUNKS: usize = 1 + 2 * MAX_TEXT_BYTES.div_ceil(MIN_PART_BYTES);

/// A part of a content: whole lines, or a part of a long line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chunk {
    /// The bytes of the content.
    pub offset: usize,
    pub len: usize,
    /// The line where the chunk starts, counted from 1.
    pub line: usize,
    /// The text to embed: the part of the content between the words of the file's name.
    ///
    /// A name says what the memory is about. Before and after the part, it counts more than once before it. The
    /// names of directories are left out: many memories have them in common.
    pub text: String,
}

/// The chunks of a memory's content, in order, without overlaps. Only whitespace is in
/// no chunk. Ignores the text after [`MAX_TEXT_BYTES`].
///
/// A line that is too long is cut at a space, or between two characters if no space is
/// near.
pub fn chunks(path: &MemoryPath, content: &str) -> Vec<Chunk> {
    let content = &content[..content.floor_char_boundary(MAX_TEXT_BYTES)];
    let mut splitter = Splitter { content, name: name_words(path), line: 1, chunks: Vec::new() };
    let (mut start, mut at) = (0, 0);
    for line in content.split_inclusive('\n') {
        let end = at + line.len();
        if end - start > MAX_CHUNK_BYTES {
            splitter.push(start..at);
            start = at;
        }
        while end - start > MAX_CHUNK_BYTES {
            let cut = start + part_of_line(&content[start..end]);
            splitter.push(start..cut);
            start = cut;
        }
        at = end;
    }
    splitter.push(start..at);
    splitter.chunks
}

struct Splitter<'a> {
    content: &'a str,
    name: String,
    line: usize,
    chunks: Vec<Chunk>,
}

impl Splitter<'_> {
    fn push(&mut self, range: Range<usize>) {
        let part = &self.content[range.clone()];
        let line = self.line;
        self.line += part.matches('\n').count();
        if !part.trim().is_empty() {
            let text = format!("{0}\n{1}\n{0}", self.name, part.trim());
            self.chunks.push(Chunk { offset: range.start, len: range.len(), line, text });
        }
    }
}

/// The bytes of the first part of a line that is too long for a chunk.
fn part_of_line(line: &str) -> usize {
    let longest = line.floor_char_boundary(MAX_CHUNK_BYTES);
    let spaces = line[..longest].char_indices().rev().filter(|(_, letter)| letter.is_whitespace());
    let mut cuts = spaces.map(|(at, space)| at + space.len_utf8());
    cuts.next().filter(|cut| *cut >= MIN_PART_BYTES).unwrap_or(longest)
}

/// The words of a file's name, such as `retry count` of `/notes/retry_count.md`: the kind of a file
/// says nothing of its meaning.
fn name_words(path: &MemoryPath) -> String {
    let mut words = Vec::new();
    let mut bytes = 0;
    let name = path.as_str().rsplit('/').next().unwrap_or_default();
    let named = match name.rsplit_once('.') {
        Some((named, _)) if !named.is_empty() => named,
        _ => name,
    };
    for word in named.rsplit(|letter: char| !letter.is_alphanumeric()) {
        bytes += word.len() + 1;
        if bytes > MAX_NAME_BYTES {
            break;
        }
        if !word.is_empty() {
            words.push(word);
        }
    }
    words.reverse();
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn of(content: &str) -> Vec<Chunk> {
        chunks(&MemoryPath::parse("/work/retry-count.md").unwrap(), content)
    }

    #[test]
    fn chunk_is_whole_lines_between_the_words_of_the_name() {
        let line = format!("{}\n", "word ".repeat(50));
        let content = format!("\n{line}{line}{line}");
        let found = of(&content);
        let places: Vec<_> = found.iter().map(|chunk| (chunk.offset, chunk.len, chunk.line)).collect();
        assert_eq!(places, [(0, 503, 1), (503, 251, 4)]);
        assert_eq!(found[1].text, format!("retry count\n{}\nretry count", line.trim()));
        assert_eq!(of(" \n\n"), []);
    }

    #[test]
    fn long_line_is_cut_at_a_space_that_is_near() {
        for (content, lengths) in [
            (format!("{} {}", "a".repeat(500), "b".repeat(500)), vec![501, 500]),
            (format!("{} {}", "a".repeat(200), "b".repeat(800)), vec![600, 401]),
            ("猫".repeat(300), vec![600, 300]),
            (format!("a{}", "é".repeat(400)), vec![599, 202]),
        ] {
            let found: Vec<_> = of(&content).iter().map(|chunk| chunk.len).collect();
            assert_eq!(found, lengths);
        }
    }

    fn content() -> impl Strategy<Value = String> {
        let part = prop_oneof![
            6 => "[a-z猫é ]{0,80}\n{0,3}",
            1 => (1_usize..700).prop_map(|count| "x".repeat(count)),
            1 => (1_usize..300).prop_map(|count| "猫 ".repeat(count)),
            1 => (1_usize..700).prop_map(|count| "\n".repeat(count)),
        ];
        prop::collection::vec(part, 0..30).prop_map(|parts| parts.concat())
    }

    proptest! {
        #[test]
        fn chunks_have_all_words_within_their_limits(content in content()) {
            let found = of(&content);
            let mut end = 0;
            for chunk in &found {
                prop_assert_eq!(content[end..chunk.offset].trim(), "");
                end = chunk.offset + chunk.len;
                prop_assert!(chunk.len <= MAX_CHUNK_BYTES);
                prop_assert_eq!(chunk.line, 1 + content[..chunk.offset].matches('\n').count());
                prop_assert!(chunk.text.contains(content[chunk.offset..end].trim()));
                // A chunk that ends inside a line is followed by a part of the same line.
                let is_whole = content[..end].ends_with('\n') || end == content.len();
                prop_assert!(is_whole || chunk.len >= MIN_PART_BYTES);
            }
            prop_assert_eq!(content[end..].trim(), "");
            prop_assert!(found.len() <= 1 + 2 * content.len().div_ceil(MIN_PART_BYTES));
        }
    }
}
