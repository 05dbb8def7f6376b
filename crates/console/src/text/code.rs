//! Code within Markdown, with its parts marked for their colours.
//!
//! Agents write the code, so its cost is bounded. The library's expressions do not backtrack; long lines,
//! long blocks and all code beyond a total stay plain.

use std::collections::HashMap;

use synoptic::{Highlighter, TokOpt, from_extension};

use super::markup::push_escaped;

/// Longer blocks stay plain.
const MAX_BLOCK_BYTES: usize = 8 << 10;
/// Code of one text whose parts are marked; the blocks beyond it stay plain.
const MAX_BYTES: usize = 16 << 10;
/// Lines of one text whose parts are marked: each costs something, however short it is.
const MAX_LINES: usize = 500;
/// Longer lines stay plain.
const MAX_LINE_BYTES: usize = 400;

/// The library's names of languages, each with the names that blocks of code have for it.
const LANGUAGES: [(&str, &[&str]); 20] = [
    ("c", &["c", "h"]),
    ("cpp", &["cpp", "c++", "cc", "hpp"]),
    ("cs", &["cs", "csharp", "c#"]),
    ("css", &["css"]),
    ("diff", &["diff", "patch"]),
    ("go", &["go", "golang"]),
    ("html", &["html"]),
    ("java", &["java"]),
    ("js", &["js", "javascript", "jsx", "mjs"]),
    ("json", &["json", "jsonc", "json5"]),
    ("kt", &["kt", "kotlin"]),
    ("php", &["php"]),
    ("py", &["py", "python"]),
    ("rb", &["rb", "ruby"]),
    ("rs", &["rs", "rust"]),
    ("sh", &["sh", "bash", "shell", "zsh"]),
    ("sql", &["sql"]),
    ("toml", &["toml"]),
    ("ts", &["ts", "typescript", "tsx"]),
    ("yaml", &["yaml", "yml"]),
];

/// The classes of the parts.
pub(super) const CLASSES: [&str; 7] =
    ["code-word", "code-text", "code-number", "code-name", "code-comment", "code-added", "code-removed"];

/// A language that the library knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Language(&'static str);

impl Language {
    /// `info` is what follows the fence of a block. `None`: the language is not known.
    pub(super) fn of(info: &str) -> Option<Self> {
        let name = info.split([' ', '\t', ',', '{']).next()?.to_ascii_lowercase();
        let found = LANGUAGES.iter().find(|(_, names)| names.contains(&name.as_str()));
        found.map(|(language, _)| Self(language))
    }
}

/// Marks the code of one text.
#[derive(Default)]
pub(super) struct Marker {
    highlighters: HashMap<Language, Highlighter>,
    /// Length and lines of the code that was marked.
    bytes: usize,
    lines: usize,
}

impl Marker {
    pub(super) const fn is_used(&self) -> bool {
        self.bytes > 0
    }

    /// The code as HTML.
    pub(super) fn html(&mut self, language: Language, code: &str) -> String {
        let mut html = String::with_capacity(code.len() * 2);
        let lines = code.lines().count();
        let is_long = self.bytes + code.len() > MAX_BYTES || self.lines + lines > MAX_LINES;
        if code.len() > MAX_BLOCK_BYTES || is_long {
            push_escaped(&mut html, code);
            return html;
        }
        self.bytes += code.len();
        self.lines += lines;
        // A tab counts as one character, so that the parts have as many characters as the line.
        let new = || from_extension(language.0, 1).unwrap_or_else(|| Highlighter::new(1));
        let highlighter = self.highlighters.entry(language).or_insert_with(new);
        for line in code.split_inclusive('\n') {
            push_line(&mut html, highlighter, line);
        }
        html
    }
}

/// Appends all of a line, whatever the library finds in it. A quote that is not closed in its line has no
/// effect on the next one.
fn push_line(html: &mut String, highlighter: &mut Highlighter, line: &str) {
    let text = line.trim_end_matches('\n');
    let mut rest = line;
    if text.len() <= MAX_LINE_BYTES {
        highlighter.run(&[text.to_owned()]);
        for part in highlighter.line(0, text) {
            let length = part.text().chars().count();
            let end = rest.char_indices().nth(length).map_or(rest.len(), |(end, _)| end);
            let (shown, after) = rest.split_at(end);
            rest = after;
            let class = match &part {
                TokOpt::Some(_, kind) => class_of(kind),
                TokOpt::None(_) => None,
            };
            if let Some(class) = class {
                html.push_str("<span class=\"");
                html.push_str(class);
                html.push_str("\">");
                push_escaped(html, shown);
                html.push_str("</span>");
            } else {
                push_escaped(html, shown);
            }
        }
    }
    push_escaped(html, rest);
}

/// The class of a kind of parts, by the library's name; few kinds have a colour.
fn class_of(kind: &str) -> Option<&'static str> {
    Some(match kind {
        "keyword" | "tag" => "code-word",
        "string" | "character" => "code-text",
        "digit" | "boolean" => "code-number",
        "function" | "struct" | "macro" | "namespace" | "attribute" | "key" | "table" => "code-name",
        "comment" => "code-comment",
        "insertion" => "code-added",
        "deletion" => "code-removed",
        _ => return None,
    })
}
