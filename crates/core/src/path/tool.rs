//! Paths as the memory tool writes them, in one store or in a session's stores.

use std::fmt;
use std::sync::Arc;

use serde::{Serialize, Serializer};

use super::{DirPath, Echo, MAX_PATH_BYTES, MemoryPath, PathError, WholeUpTo, comma_separated, decode, nfc};

/// The memory tool's name for the root.
pub(crate) const TOOL_ROOT: &str = "/memories";
/// The mount point of a session's stores for an agent with a file system; an alias
/// of [`TOOL_ROOT`].
const MOUNT_ROOT: &str = "/mnt/memory";

/// The contents of `/memories`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ToolRoot {
    Store,
    /// A directory for each store of a session, by its slug.
    Mounts(Arc<[String]>),
}

/// A path as the memory tool writes it: `/memories`, or a path below it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ToolPath {
    display: String,
    place: ToolPathTarget,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum ToolPathTarget {
    /// The directory of a session's mounts.
    Mounts,
    /// A path in a store; the first `root_bytes` of the display name are the store's
    /// root.
    InStore { root_bytes: usize, mount: Option<usize>, memory: Option<MemoryPath> },
}

/// Why the memory tool refuses a path; the model reads this text.
///
/// The first two texts belong to the memory tool's protocol, and models are trained
/// on them, so they repeat the whole path, unless it is too long for any file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ToolPathError {
    #[error("Error: Path must start with /memories, got: {}", WholeUpTo(MAX_PATH_BYTES, .path))]
    OutsideMemories { path: String },
    #[error("Error: Path {} would escape /memories directory", WholeUpTo(MAX_PATH_BYTES, .path))]
    Escapes { path: String },
    #[error("Error: Path {} is in no memory store of this session. {}", Echo(.path), mounted(.slugs))]
    NoSuchMount { path: String, slugs: Arc<[String]> },
    #[error("Error: Path {} {rule}", Echo(.path))]
    BreaksRule {
        path: String,
        /// Never [`PathError::Traversal`].
        rule: PathError,
    },
}

impl ToolPath {
    /// Checks a path that a model sent, for a single store.
    pub fn parse(text: &str) -> Result<Self, ToolPathError> {
        Self::parse_in(text, &ToolRoot::Store)
    }

    /// Checks a path that a model sent.
    ///
    /// Normalises to NFC and drops one trailing slash; repairs nothing else. Parsing
    /// its [`display`](Self::display) gives an equal path.
    ///
    /// The rules are checked in this order: the path is literally `/memories` or below
    /// `/memories/`; it cannot leave that directory; it is in a mount; it follows the other
    /// rules of [`MemoryPath::parse`].
    pub fn parse_in(text: &str, root: &ToolRoot) -> Result<Self, ToolPathError> {
        let normal = nfc(text);
        let display = match normal.strip_suffix('/') {
            Some(shorter) if !shorter.is_empty() => shorter,
            _ => &normal,
        };
        let Some((root_bytes, below)) = below_root(&normal, root) else {
            return Err(ToolPathError::OutsideMemories { path: display.to_owned() });
        };
        let display_to = |place| Self { display: display.to_owned(), place };
        match root {
            ToolRoot::Store => {
                let memory = parse_below(below, &normal, display)?;
                Ok(display_to(ToolPathTarget::InStore { root_bytes, mount: None, memory }))
            }
            ToolRoot::Mounts(_) if below.is_empty() || below == "/" => Ok(display_to(ToolPathTarget::Mounts)),
            ToolRoot::Mounts(slugs) => {
                // A traversal is reported as such even if the first segment is not a
                // mount.
                decode::check_as_others_read_it(below).map_err(|rule| refuse(rule, &normal, display))?;
                let relative = below.trim_start_matches('/');
                let slug = relative.split('/').next().unwrap_or_default();
                let mount = slugs.iter().position(|mounted| mounted == slug);
                let in_mount = below.strip_prefix('/').and_then(|below| below.strip_prefix(slug));
                let (Some(mount), Some(in_mount)) = (mount, in_mount) else {
                    return Err(ToolPathError::NoSuchMount {
                        path: display.to_owned(),
                        slugs: Arc::clone(slugs),
                    });
                };
                let memory = parse_below(in_mount, &normal, display)?;
                Ok(display_to(ToolPathTarget::InStore {
                    root_bytes: root_bytes + 1 + slug.len(),
                    mount: Some(mount),
                    memory,
                }))
            }
        }
    }

    /// The path as results repeat it: NFC, without a trailing slash.
    pub fn display(&self) -> &str {
        &self.display
    }

    /// Whether this is `/memories` of a session, the directory of its mounts.
    pub const fn is_mounts(&self) -> bool {
        matches!(self.place, ToolPathTarget::Mounts)
    }

    /// The position, among the session's mounts, of the mount that contains the path.
    pub const fn mount(&self) -> Option<usize> {
        match self.place {
            ToolPathTarget::InStore { mount, .. } => mount,
            ToolPathTarget::Mounts => None,
        }
    }

    /// Whether this is `/memories` itself, or the root of a mount.
    pub const fn is_root(&self) -> bool {
        self.memory().is_none()
    }

    /// The path inside the store; `None` for the root.
    pub const fn memory(&self) -> Option<&MemoryPath> {
        match &self.place {
            ToolPathTarget::InStore { memory, .. } => memory.as_ref(),
            ToolPathTarget::Mounts => None,
        }
    }

    /// The path inside the store, as a directory.
    pub fn dir(&self) -> DirPath {
        self.memory().map_or_else(DirPath::root, MemoryPath::as_dir)
    }

    /// The display name of a memory in the same store.
    pub fn display_of(&self, memory: &MemoryPath) -> String {
        let root = match self.place {
            ToolPathTarget::InStore { root_bytes, .. } => &self.display[..root_bytes],
            ToolPathTarget::Mounts => TOOL_ROOT,
        };
        format!("{root}{memory}")
    }
}

impl fmt::Display for ToolPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.display)
    }
}

/// As the path in its store, whatever name the caller used for it; null for the root.
impl Serialize for ToolPath {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.memory().map(MemoryPath::as_str).serialize(serializer)
    }
}

/// The display name of a memory, in a single store or in a mount.
pub fn tool_display(slug: Option<&str>, memory: &MemoryPath) -> String {
    match slug {
        None => format!("{TOOL_ROOT}{memory}"),
        Some(slug) => format!("{TOOL_ROOT}/{slug}{memory}"),
    }
}

/// The length of the root's name, and the part of the path after it.
fn below_root<'a>(text: &'a str, root: &ToolRoot) -> Option<(usize, &'a str)> {
    let names: &[&str] = match root {
        ToolRoot::Store => &[TOOL_ROOT],
        ToolRoot::Mounts(_) => &[TOOL_ROOT, MOUNT_ROOT],
    };
    names.iter().find_map(|name| {
        let below = text.strip_prefix(name)?;
        (below.is_empty() || below.starts_with('/')).then_some((name.len(), below))
    })
}

/// Checks the part after the store's root; `None` is the root itself.
fn parse_below(below: &str, normal: &str, display: &str) -> Result<Option<MemoryPath>, ToolPathError> {
    if below.is_empty() || below == "/" {
        return Ok(None);
    }
    MemoryPath::parse(below.strip_suffix('/').unwrap_or(below))
        .map(Some)
        .map_err(|rule| refuse(rule, normal, display))
}

fn refuse(rule: PathError, normal: &str, display: &str) -> ToolPathError {
    match rule {
        PathError::Traversal => ToolPathError::Escapes { path: display.to_owned() },
        // `/memories//` without its last slash would look like a valid path.
        PathError::IsRoot => {
            ToolPathError::BreaksRule { path: normal.to_owned(), rule: PathError::EmptySegment }
        }
        rule => ToolPathError::BreaksRule { path: display.to_owned(), rule },
    }
}

fn mounted(slugs: &[String]) -> String {
    if slugs.is_empty() {
        return "None is attached.".to_owned();
    }
    let mounts = slugs.iter().map(|slug| format!("{TOOL_ROOT}/{slug}"));
    format!("Its memory stores are: {}", comma_separated(mounts))
}
