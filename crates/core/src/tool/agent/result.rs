//! Results of the agent tools: as text for models, as JSON for programs.

use std::fmt::Write;

use serde::Serialize;

use super::super::edit::Snippet;
use super::super::view::format_size;
use crate::content::ContentHash;
use crate::id::MemoryId;
use crate::sensitive::{Finding, redaction_note};

#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(untagged)]
pub enum AgentResult {
    List {
        path: String,
        /// In byte order of the paths.
        entries: Vec<ListingEntry>,
        next_page: Option<String>,
    },
    Search {
        /// The best first.
        hits: Vec<Hit>,
        next_page: Option<String>,
    },
    Read(PartOfFile),
    /// Of `memory_write` and `memory_append`.
    Write {
        path: String,
        outcome: WriteOutcome,
        memory_id: String,
        /// `None` if the content was removed since, or the caller may not read it.
        content_sha256: Option<String>,
        /// `None` as for the hash.
        content_size_bytes: Option<u64>,
        #[serde(flatten)]
        redactions: Redactions,
    },
    Edit {
        path: String,
        /// The number of edits.
        edits: usize,
        memory_id: String,
        /// `None` if the content was removed since.
        content_sha256: Option<String>,
        /// `None` as for the hash.
        content_size_bytes: Option<u64>,
        /// The changed lines with their surrounding lines.
        snippets: Vec<Snippet>,
        #[serde(flatten)]
        redactions: Redactions,
    },
    Delete {
        path: String,
        /// Always `true`.
        deleted: bool,
    },
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum ListingEntry {
    File {
        path: String,
        content_size_bytes: u64,
        /// The time of the last change, in RFC 3339.
        updated_at: String,
        /// Cut to 120 characters.
        first_line: String,
    },
    /// A directory with files somewhere below it.
    Directory {
        /// Ends in `/`.
        path: String,
        /// Whether everything below it is read-only.
        read_only: bool,
    },
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Hit {
    pub path: String,
    /// Higher is better; comparable within one search.
    pub score: f64,
    /// The first line of the snippet, counted from 1.
    pub line: usize,
    /// A passage with the matches marked.
    pub snippet: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PartOfFile {
    pub path: String,
    pub content: String,
    /// The first character of `content`, counted from 0.
    pub offset: u64,
    /// The offset of the next character, if the file has more.
    pub next_offset: Option<u64>,
    /// Characters of the whole file.
    pub total_chars: u64,
    /// Bytes of the whole file.
    pub content_size_bytes: u64,
    /// SHA-256 of the whole file.
    pub content_sha256: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum WriteOutcome {
    Created,
    Replaced,
    Appended,
}

/// The version that a change of a file made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WrittenVersion {
    pub memory_id: MemoryId,
    /// Hash and size of its content; `None`: removed since.
    pub content: Option<(ContentHash, u64)>,
    /// Whether it is the memory's first version.
    pub is_new: bool,
}

/// The secrets that were replaced by markers.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Redactions {
    /// The first replaced secrets, with their lines as in `Edit::findings`.
    #[serde(rename = "redactions")]
    pub listed: Vec<Finding>,
    /// The number of replaced secrets that are not listed. Their markers are in the content too.
    #[serde(rename = "redactions_left_out")]
    pub left_out: usize,
}

impl Redactions {
    /// The list takes at most a sixteenth of `max_chars`, or has one entry; `left_out` counts
    /// the other findings.
    pub fn of(findings: &[Finding], max_chars: u64) -> Self {
        let fitting = fitting_entries(findings, max_chars / 16).min(findings.len());
        Self { listed: findings[..fitting].to_vec(), left_out: findings.len() - fitting }
    }
}

impl AgentResult {
    /// The result for a caller that may write but not read. It leaves out hash and size
    /// of an appended file, which depend on the earlier content.
    #[must_use]
    pub fn concealed(mut self) -> Self {
        if let Self::Write { outcome: WriteOutcome::Appended, content_sha256, content_size_bytes, .. } =
            &mut self
        {
            (*content_sha256, *content_size_bytes) = (None, None);
        }
        self
    }

    pub fn to_text(&self) -> String {
        match self {
            Self::List { path, entries, next_page } => {
                if entries.is_empty() {
                    return format!("{path} is empty.");
                }
                let mut text = format!(
                    "Files below {path} (size, time of the last change, path, first line); a path that ends in / is a \
                     directory:"
                );
                text.extend(entries.iter().map(ListingEntry::to_text));
                push_next_page(&mut text, next_page.as_deref());
                text
            }
            Self::Search { hits, next_page } => {
                if hits.is_empty() {
                    return "No memory matches. Try other words, fewer of them, or memory_list.".to_owned();
                }
                let mut text =
                    "Matching memories, best first (path, line, score, and a passage with the matches in ⟦ ⟧):"
                        .to_owned();
                text.extend(hits.iter().map(Hit::to_text));
                push_next_page(&mut text, next_page.as_deref());
                text
            }
            Self::Read(part) => part.to_text(),
            Self::Write { path, outcome, content_sha256, content_size_bytes, redactions, .. } => {
                let mut text = match outcome {
                    WriteOutcome::Created => format!("File {path} has been created"),
                    WriteOutcome::Replaced => format!("The content of {path} has been replaced"),
                    WriteOutcome::Appended => format!("The text has been added at the end of {path}"),
                };
                push_state(&mut text, *content_size_bytes, content_sha256.as_deref());
                push_redactions(&mut text, redactions);
                text
            }
            Self::Edit { path, edits, content_sha256, content_size_bytes, snippets, redactions, .. } => {
                let noun = if *edits == 1 { "edit" } else { "edits" };
                let mut text = format!("The file {path} has been edited, {edits} {noun}");
                push_state(&mut text, *content_size_bytes, content_sha256.as_deref());
                push_snippets(&mut text, snippets);
                push_redactions(&mut text, redactions);
                text
            }
            Self::Delete { path, .. } => format!("Successfully deleted {path}"),
        }
    }
}

impl ListingEntry {
    pub fn to_text(&self) -> String {
        match self {
            Self::File { path, content_size_bytes, updated_at, first_line } => {
                let size = format_size(*content_size_bytes);
                format!("\n{size}\t{updated_at}\t{path}\t{first_line}")
            }
            Self::Directory { path, read_only: true } => format!("\n{path}\t(read-only)"),
            Self::Directory { path, .. } => format!("\n{path}"),
        }
    }
}

impl Hit {
    pub fn to_text(&self) -> String {
        let Self { path, score, line, snippet } = self;
        // A weak hit by meaning, or the only passage of a store: "0.00" would read as no match.
        let score = if *score < 0.005 { "under 0.01".to_owned() } else { format!("{score:.2}") };
        format!("\n\n{path}, line {line}, score {score}\n{snippet}")
    }
}

/// The number of entries that fit on a page as JSON, which is longer than as text; at least
/// one. An eighth of `max_chars` is left for the result's other fields.
pub fn fitting_entries<T: Serialize>(entries: &[T], max_chars: u64) -> usize {
    let (mut chars, max_chars) = (0, max_chars - max_chars / 8);
    let fits = |entry: &&T| {
        let json = serde_json::to_string(entry).unwrap_or_default();
        chars += json.chars().count() as u64 + 1;
        chars <= max_chars
    };
    entries.iter().take_while(fits).count().max(1)
}

fn push_next_page(text: &mut String, page: Option<&str>) {
    if let Some(page) = page {
        // Writing to a string cannot fail, here and below.
        let _ = write!(text, "\n\n[There are more entries. Continue with page `{page}`.]");
    }
}

impl PartOfFile {
    fn to_text(&self) -> String {
        let Self { path, content, offset, total_chars, content_size_bytes, content_sha256, .. } = self;
        let mut text = format!("{path}: {content_size_bytes} bytes, content_sha256 {content_sha256}");
        let end = self.next_offset.unwrap_or(*total_chars);
        let _ = match self.next_offset {
            None if *offset == 0 => write!(text, ", the whole content follows:"),
            None => write!(text, ", characters {offset} to {end} of {total_chars}, the last, follow:"),
            Some(next) => write!(
                text,
                ", characters {offset} to {end} of {total_chars} follow; continue with offset {next}:"
            ),
        };
        text.extend(["\n", content]);
        text
    }
}

fn push_snippets(text: &mut String, snippets: &[Snippet]) {
    if !snippets.is_empty() {
        text.push_str("\nHere are the changed lines with the lines around them (with line numbers):");
    }
    for (position, snippet) in snippets.iter().enumerate() {
        text.push_str(if position == 0 { "\n" } else { "\n\n" });
        snippet.push_to(text);
    }
    if snippets.iter().any(|snippet| snippet.is_cut) {
        text.push_str("\n[More text was changed than is shown. Read the file with memory_read.]");
    }
}

fn push_state(text: &mut String, size_bytes: Option<u64>, sha256: Option<&str>) {
    let _ = match size_bytes.zip(sha256) {
        Some((size_bytes, sha256)) => write!(text, " ({size_bytes} bytes, content_sha256 {sha256})."),
        None => write!(text, "; its size and content_sha256 cannot be shown."),
    };
}

fn push_redactions(text: &mut String, Redactions { listed, left_out }: &Redactions) {
    text.push_str(&redaction_note(listed.iter().map(Finding::kind_and_line), *left_out));
}
