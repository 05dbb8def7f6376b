//! The labelled texts, read from `corpus/` and filled in.

use std::ops::Range;
use std::path::PathBuf;
use std::{env, fs};

use crate::template::fill_in;

/// A text and its expected secrets.
pub(crate) struct Document {
    pub(crate) name: String,
    pub(crate) text: String,
    pub(crate) secrets: Vec<Secret>,
}

/// A secret in a document.
pub(crate) struct Secret {
    pub(crate) kind: String,
    pub(crate) range: Range<usize>,
}

/// Around a secret: `⟦kind:secret⟧`.
const OPEN: char = '⟦';
const CLOSE: char = '⟧';
/// Starts a document in a file of several.
const HEADING: &str = "=== ";

/// The documents with secrets in them, labelled.
pub(crate) fn documents() -> Vec<Document> {
    let mut documents = Vec::new();
    for (file, text) in files("secrets") {
        for part in text.split(&format!("\n{HEADING}")).skip(1) {
            let (heading, body) = part.split_once('\n').expect("a heading has a text below it");
            let name = format!("{file}: {heading}");
            documents.push(labelled(&name, &fill_in(body, &name)));
        }
    }
    documents
}

/// The texts without secrets: one a line, where `⏎` is a line break.
pub(crate) fn negatives() -> Vec<Document> {
    let mut documents = Vec::new();
    for (file, text) in files("others") {
        let lines = text.lines().enumerate();
        for (position, line) in lines.filter(|(_, line)| !line.is_empty() && !line.starts_with(HEADING)) {
            let name = format!("{file}:{}", position + 1);
            documents.push(labelled(&name, &fill_in(&line.replace('⏎', "\n"), &name)));
        }
    }
    documents
}

fn files(folder: &str) -> Vec<(String, String)> {
    // Read at run time, because the binary may have been built in another copy.
    let package = env::var_os("CARGO_MANIFEST_DIR").expect("cargo runs the tests");
    let folder = PathBuf::from(package).join("tests/sensitive/corpus").join(folder);
    let entries = fs::read_dir(&folder).expect("the corpus is there");
    let mut paths: Vec<PathBuf> =
        entries.map(|entry| entry.expect("the corpus can be listed").path()).collect();
    paths.sort();
    let read = |path: PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        (name, format!("\n{}", fs::read_to_string(&path).expect("the corpus can be read")))
    };
    paths.into_iter().map(read).collect()
}

/// Takes the labels out of a text and notes where they were.
fn labelled(name: &str, text: &str) -> Document {
    let mut document = Document { name: name.to_owned(), text: String::new(), secrets: Vec::new() };
    let mut rest = text;
    while let Some((before, label)) = rest.split_once(OPEN) {
        document.text.push_str(before);
        let (label, after) = label.split_once(CLOSE).expect("a label ends");
        let (kind, secret) = label.split_once(':').expect("a label names its kind");
        let start = document.text.len();
        document.text.push_str(secret);
        document.secrets.push(Secret { kind: kind.to_owned(), range: start..document.text.len() });
        rest = after;
    }
    document.text.push_str(rest);
    document
}
