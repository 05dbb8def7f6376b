//! A log of clients' calls on one store, and a checker of it.
//!
//! Clients log each call with its outcome. Afterwards [`History::check`] compares
//! the log with the store's versions in commit order, and returns everything that
//! cannot be explained. It knows nothing of HTTP, databases or the product's code.

mod check;
mod edits;
#[cfg(test)]
mod tests;
mod timeline;

use std::fmt;
use std::time::Duration;

/// The calls of all clients on one store, and the store as it is afterwards.
#[derive(Debug, Clone, Default)]
pub struct History {
    /// Calls that change something, in any order.
    pub calls: Vec<Call>,
    /// What reads returned, in any order.
    pub reads: Vec<Read>,
    /// Every version of the store in commit order.
    pub versions: Vec<Version>,
    /// The live memories as a listing with content shows them.
    pub heads: Vec<FinalHead>,
}

/// When a call was under way, on one clock for all clients: from its first attempt until the
/// last one was answered or given up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Interval {
    pub began: Duration,
    pub ended: Duration,
}

/// A call that changes something; retries of one call are one call.
#[derive(Debug, Clone)]
pub struct Call {
    /// Unique in the history. Texts and new paths that the call writes contain
    /// [`tag`] of it.
    pub number: u64,
    pub at: Interval,
    pub change: Change,
    pub outcome: Outcome,
}

/// The change that a call asks for. Paths are those of the API; `expected` is the content that
/// the memory must have, `None`: any.
#[derive(Debug, Clone)]
pub enum Change {
    /// A new memory; the path must be free.
    Create { path: String, content: String },
    /// Other content.
    Update { memory_id: String, expected: Option<String>, content: String },
    /// An edit of the memory at a path.
    Edit { path: String, edit: Edit },
    /// Another path.
    Rename { target: Target, to: String },
    /// No memory any more.
    Delete { target: Target, expected: Option<String> },
    /// The content and path of a version.
    Restore { version_id: String },
    /// A history without the content and path of a version.
    Redact { version_id: String },
}

/// An edit of lines; texts are without a newline.
#[derive(Debug, Clone)]
pub enum Edit {
    /// `text` becomes a line after line number `after`; 0 is the top.
    Insert { after: usize, text: String },
    /// The one occurrence of `old` becomes `new`.
    Replace { old: String, new: String },
    /// `text` becomes the last line; a missing memory is created.
    Append { text: String },
}

/// A memory, as a request names it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Target {
    Path(String),
    Memory(String),
}

/// How a call ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// It was acknowledged; the version, where the answer names one.
    Done { version_id: Option<String> },
    /// It was refused: nothing was changed.
    Refused,
    /// There was no answer: it may or may not have taken effect.
    Unknown,
}

/// What a read returned.
#[derive(Debug, Clone)]
pub struct Read {
    pub at: Interval,
    pub target: Target,
    pub saw: ObservedMemory,
}

/// The state of a memory as an answer shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ObservedMemory {
    Content(String),
    /// Content with this SHA-256, in lowercase hex.
    Sha256(String),
    /// No memory.
    Absent,
}

/// A version as the store has it afterwards.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Version {
    pub id: String,
    pub memory_id: String,
    pub operation: Operation,
    /// The memory's path after it; `None`: redacted.
    pub path: Option<String>,
    /// `None`: it has none, or is redacted.
    pub content: Option<String>,
    pub is_redacted: bool,
}

/// What a version did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// A memory is new, or came back.
    Created,
    /// Content or path changed.
    Modified,
    Deleted,
}

/// A live memory as a listing shows it afterwards.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FinalHead {
    pub memory_id: String,
    pub path: String,
    pub content: String,
}

/// Something that must not happen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    pub rule: Rule,
    /// Calls, versions and times, for the person who looks into it.
    pub detail: String,
}

/// A rule of the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Rule {
    /// An acknowledged change is in the history.
    AcknowledgedIsKept,
    /// A change lands once at most.
    LandsOnce,
    /// A refused change does not land.
    RefusedDoesNotLand,
    /// Each version is explained by a call.
    VersionHasACall,
    /// Each version follows from its predecessor by the call that made it.
    FollowsFromPredecessor,
    /// One path belongs to one live memory.
    PathIsUnique,
    /// The commit order agrees with real time.
    RealTimeOrder,
    /// A read returns a state that was current while it was under way.
    ReadIsCurrent,
    /// Exactly the versions that clients redacted are redacted.
    RedactedAsAsked,
    /// The live memories are those of the last versions.
    HeadsMatchVersions,
}

impl History {
    /// Everything in the history that breaks a rule.
    pub fn check(&self) -> Vec<Violation> {
        check::check(self)
    }
}

/// The text that marks what call `number` writes.
pub fn tag(number: u64) -> String {
    format!("[#{number}]")
}

/// The numbers of the calls whose tags are in a text.
fn tags(text: &str) -> impl Iterator<Item = u64> {
    text.split("[#").skip(1).filter_map(|rest| rest.split_once(']')?.0.parse().ok())
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.rule, self.detail)
    }
}
