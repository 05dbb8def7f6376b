//! The labelled texts of `corpus/`, filled in.

use std::ops::Range;
use std::path::PathBuf;
use std::{env, fs};

use super::template::fill_in;

/// A text with the kinds and places of its secrets.
pub(super) struct Document {
    pub(super) name: String,
    pub(super) text: String,
    pub(super) secrets: Vec<(String, Range<usize>)>,
}

/// Starts a document in a file of several.
const HEADING: &str = "=== ";

/// The documents with labelled secrets.
pub(super) fn documents() -> Vec<Document> {
    let mut documents = Vec::new();
    for (file, text) in files("secrets") {
        for part in text.split(&format!("\n{HEADING}")).skip(1) {
            let (heading, body) = part.split_once('\n').unwrap();
            documents.push(Document::of(format!("{file}: {heading}"), body));
        }
    }
    documents
}

/// The texts without secrets: one a line, where `⏎` is a line break.
pub(super) fn others() -> Vec<Document> {
    let mut documents = Vec::new();
    for (file, text) in files("others") {
        let lines = text.lines().enumerate();
        for (position, line) in lines.filter(|(_, line)| !line.is_empty() && !line.starts_with(HEADING)) {
            documents.push(Document::of(format!("{file}:{}", position + 1), &line.replace('⏎', "\n")));
        }
    }
    documents
}

fn files(folder: &str) -> Vec<(String, String)> {
    // Read at run time, because the binary may have been built in another copy.
    let package = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").unwrap());
    let entries = fs::read_dir(package.join("src/sensitive/tests/corpus").join(folder)).unwrap();
    let read = |path: PathBuf| {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        (name, format!("\n{}", fs::read_to_string(&path).unwrap()))
    };
    entries.map(|entry| read(entry.unwrap().path())).collect()
}

impl Document {
    /// Fills a text in, takes the labels `⟦kind:secret⟧` out and notes where they were.
    fn of(name: String, text: &str) -> Self {
        let filled = fill_in(text, &name);
        let mut document = Self { name, text: String::new(), secrets: Vec::new() };
        let mut rest = filled.as_str();
        while let Some((before, label)) = rest.split_once('⟦') {
            document.text.push_str(before);
            let (label, after) = label.split_once('⟧').unwrap();
            let (kind, secret) = label.split_once(':').unwrap();
            let start = document.text.len();
            document.text.push_str(secret);
            document.secrets.push((kind.to_owned(), start..document.text.len()));
            rest = after;
        }
        document.text.push_str(rest);
        document
    }
}
