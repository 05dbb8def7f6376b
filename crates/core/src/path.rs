//! Paths of memories: inside a store, and as the memory tool writes them.
//!
//! A store holds files at absolute paths such as `/notes/today.md`
//! ([`MemoryPath`]). Directories ([`DirPath`]) are implied by the files below them.
//! The memory tool uses the same paths below `/memories` ([`ToolPath`]). The
//! constructors of these types check every rule, so later code never checks a path
//! again.

use std::borrow::Cow;
use std::fmt;

use serde::Serialize;
use unicode_normalization::{UnicodeNormalization, is_nfc};
use unicode_properties::{GeneralCategory, UnicodeGeneralCategory};

mod decode;
mod tool;

pub(crate) use tool::TOOL_ROOT;
pub use tool::{ToolPath, ToolPathError, ToolRoot, tool_display};

const MAX_PATH_BYTES: usize = 1024;
const MAX_SEGMENTS: usize = 20;
/// The first segment that is reserved for the sync marker of clients.
const RESERVED_SEGMENT: &str = ".anthropic-memory-store";
/// The first segment of the settings of a store.
const SETTINGS_SEGMENT: &str = ".keepsake";
/// The file of the store's tests.
pub const TESTS_PATH: &str = "/.keepsake/tests.yaml";
/// Maximum characters of a caller's text that a message repeats.
const MAX_ECHO_CHARS: usize = 200;

/// Why a text is not a memory path; the message follows the word "path".
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PathError {
    #[error("must start with `/`")]
    NotAbsolute,
    #[error("must name something below the root `/`")]
    IsRoot,
    #[error("must not have a `.` or `..` segment, neither plain nor encoded")]
    Traversal,
    #[error("must not contain a control character, neither plain nor encoded")]
    Control,
    /// Unicode category Cf.
    #[error("must not contain a format character (such as a zero-width space)")]
    Format,
    #[error("must not contain a line or paragraph separator (U+2028, U+2029)")]
    LineSeparator,
    #[error("must not have an empty segment (a repeated or trailing `/`)")]
    EmptySegment,
    #[error("is {bytes} bytes long, over the limit of {MAX_PATH_BYTES} bytes")]
    TooLong { bytes: usize },
    #[error("has {segments} segments, over the limit of {MAX_SEGMENTS} segments")]
    TooManySegments { segments: usize },
    #[error("must be in Unicode normalisation form C (NFC)")]
    NotNfc,
    #[error("must not be or be below `/.anthropic-memory-store`, which is reserved")]
    Reserved,
    #[error("is not below the directory that is moved")]
    NotBelow,
}

/// A memory's path inside its store, such as `/notes/today.md`.
///
/// Starts with `/` and never ends with one. Ordered by bytes, like listings.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
pub struct MemoryPath(String);

impl MemoryPath {
    /// Checks `text` against every rule of paths; never repairs it.
    ///
    /// A path starts with `/`, has 1 to 20 segments in at most 1,024 bytes, is NFC, and
    /// has no control or format character, no line separator, and no empty, `.` or `..`
    /// segment. The check for `.`, `..` and control characters also covers other
    /// software's reading of the path: `\` counts as `/`, and percent-encoding is
    /// decoded repeatedly. A `%` or `\` that is harmless in that reading is an ordinary
    /// character.
    pub fn parse(text: &str) -> Result<Self, PathError> {
        check(text)?;
        Ok(Self(text.to_owned()))
    }

    /// Normalises a caller's text to [`nfc`], then checks it as [`Self::parse`] does.
    ///
    /// Some systems and keyboards write `é` as two characters. Every interface accepts both
    /// forms, and both name the same path.
    pub fn parse_normalised(text: &str) -> Result<Self, PathError> {
        Self::parse(&nfc(text))
    }

    /// Wraps a path from the index, which was checked when it was written. A path from a
    /// client, a server or an archive must be parsed instead.
    pub const fn from_trusted(path: String) -> Self {
        Self(path)
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    pub fn parent(&self) -> DirPath {
        DirPath(through_last_slash(&self.0).to_owned())
    }

    pub fn name(&self) -> &str {
        &self.0[through_last_slash(&self.0).len()..]
    }

    /// Every directory above the memory, from the root down to its parent.
    pub fn ancestors(&self) -> impl Iterator<Item = DirPath> {
        self.0.match_indices('/').map(|(position, _)| DirPath(self.0[..=position].to_owned()))
    }

    /// Every path that must not be a file: for `/a/b/c`, `/a` and `/a/b`.
    pub fn ancestor_files(&self) -> impl Iterator<Item = &str> {
        self.0.match_indices('/').skip(1).map(|(position, _)| &self.0[..position])
    }

    /// Whether this is a setting of the store: agents and search do not see it, and only administrators of
    /// the store change it.
    pub fn is_setting(&self) -> bool {
        self.0.split('/').nth(1) == Some(SETTINGS_SEGMENT)
    }

    /// Whether the memory is in `directory`, at any depth.
    pub fn is_below(&self, directory: &DirPath) -> bool {
        self.0.starts_with(&directory.0)
    }

    /// The directory of the same name: `/a/b` becomes `/a/b/`.
    pub fn as_dir(&self) -> DirPath {
        DirPath(format!("{}/", self.0))
    }

    /// The path after a move of the directory `from` to `to`. The new path may break a rule:
    /// it may be too long, or have too many segments.
    pub fn rebased(&self, from: &DirPath, to: &DirPath) -> Result<Self, PathError> {
        let rest = self.0.strip_prefix(&from.0).ok_or(PathError::NotBelow)?;
        let moved = format!("{to}{rest}");
        check(&moved)?;
        Ok(Self(moved))
    }
}

impl fmt::Display for MemoryPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A directory's path inside its store, such as `/notes/`; the root is `/`.
///
/// Always ends with `/`, so that it is a prefix of every path below it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
pub struct DirPath(String);

impl DirPath {
    pub fn root() -> Self {
        Self("/".to_owned())
    }

    /// Wraps a path from the index, which was checked when it was written. A path from a
    /// client, a server or an archive must be parsed instead.
    pub const fn from_trusted(path: String) -> Self {
        Self(path)
    }

    pub fn is_root(&self) -> bool {
        self.0 == "/"
    }

    /// As [`MemoryPath::is_setting`], for all memories below.
    pub fn is_of_settings(&self) -> bool {
        self.0.split('/').nth(1) == Some(SETTINGS_SEGMENT)
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// `None` for the root.
    pub fn parent(&self) -> Option<Self> {
        (!self.is_root()).then(|| Self(through_last_slash(self.without_slash()).to_owned()))
    }

    /// The last segment without slashes; empty for the root.
    pub fn name(&self) -> &str {
        let path = self.without_slash();
        &path[through_last_slash(path).len()..]
    }

    /// The file of the same name: `/a/b/` becomes `/a/b`; `None` for the root.
    pub fn as_file(&self) -> Option<MemoryPath> {
        (!self.is_root()).then(|| MemoryPath(self.without_slash().to_owned()))
    }

    fn without_slash(&self) -> &str {
        self.0.strip_suffix('/').unwrap_or(&self.0)
    }
}

impl fmt::Display for DirPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Unicode's normalisation form C, the form of all paths.
pub fn nfc(text: &str) -> Cow<'_, str> {
    if text.is_ascii() || is_nfc(text) { Cow::Borrowed(text) } else { Cow::Owned(text.nfc().collect()) }
}

/// Whether a directory listing shows an entry of this name.
///
/// Listings leave out hidden entries (a leading `.`) and `node_modules`. Such
/// entries remain accessible by their path.
pub fn is_visible(name: &str) -> bool {
    !name.starts_with('.') && name != "node_modules"
}

/// Displays a caller's text in a message, truncated to a bounded length.
#[derive(Debug, Clone, Copy)]
pub struct Echo<'a>(pub &'a str);

impl fmt::Display for Echo<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&WholeUpTo(MAX_ECHO_CHARS, self.0), f)
    }
}

/// Displays a caller's text whole if it has at most this many characters; otherwise its
/// start and the number of its characters.
pub(crate) struct WholeUpTo<'a>(pub(crate) usize, pub(crate) &'a str);

impl fmt::Display for WholeUpTo<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(max_chars, text) = *self;
        if text.char_indices().nth(max_chars).is_none() {
            return f.write_str(text);
        }
        let cut = text.char_indices().nth(MAX_ECHO_CHARS).map_or(text.len(), |(cut, _)| cut);
        write!(f, "{}… ({} characters)", &text[..cut], text.chars().count())
    }
}

/// Joins items as `1, 3, 3`.
pub(crate) fn comma_separated(items: impl IntoIterator<Item = impl fmt::Display>) -> String {
    let items: Vec<_> = items.into_iter().map(|item| item.to_string()).collect();
    items.join(", ")
}

/// The part of `path` up to and including its last slash.
fn through_last_slash(path: &str) -> &str {
    path.rfind('/').map_or("", |position| &path[..=position])
}

/// Checks `path` against every rule, the security rules first.
fn check(path: &str) -> Result<(), PathError> {
    let Some(relative) = path.strip_prefix('/') else {
        return Err(PathError::NotAbsolute);
    };
    decode::check_as_others_read_it(path)?;
    if relative.is_empty() {
        return Err(PathError::IsRoot);
    }
    check_characters(path)?;
    if relative.split('/').any(str::is_empty) {
        return Err(PathError::EmptySegment);
    }
    if path.len() > MAX_PATH_BYTES {
        return Err(PathError::TooLong { bytes: path.len() });
    }
    let segments = relative.split('/').count();
    if segments > MAX_SEGMENTS {
        return Err(PathError::TooManySegments { segments });
    }
    if !path.is_ascii() && !is_nfc(path) {
        return Err(PathError::NotNfc);
    }
    if relative.split('/').next() == Some(RESERVED_SEGMENT) {
        return Err(PathError::Reserved);
    }
    Ok(())
}

/// Refuses forbidden characters; control characters were refused before.
fn check_characters(path: &str) -> Result<(), PathError> {
    for character in path.chars().filter(|character| !character.is_ascii()) {
        match character.general_category() {
            GeneralCategory::Format => return Err(PathError::Format),
            GeneralCategory::LineSeparator | GeneralCategory::ParagraphSeparator => {
                return Err(PathError::LineSeparator);
            }
            _ => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
