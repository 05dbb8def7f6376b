//! A packed archive as an export writes it.

use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::path::Path;

use keepsake_archive::Damage;
use keepsake_archive::format::{BLOBS, MAX_CONTENT_BYTES, MEMORIES};
use keepsake_archive::packed::{EXTENSION, UnpackLimit, read_files};
use keepsake_archive::verified::Files;
use keepsake_config::Failure;
use keepsake_core::ContentHash;

use super::folder::Folder;

/// Maximum size of the unpacked files; a large archive may take more.
pub(super) const LIMIT: UnpackLimit = UnpackLimit { bytes: 1 << 30, ratio: 1_000 };

/// Whether an archive of this name is one file.
pub(super) fn is_packed(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.to_string_lossy().ends_with(EXTENSION))
}

/// The use of an archive's contents while the archive is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Contents {
    /// They are written to the folder.
    Kept,
    Hashed,
}

/// An archive that was read once from one file. Its lists are in a folder.
#[derive(Debug)]
pub(super) struct UnpackedArchive {
    pub(super) folder: Folder,
    contents: HashMap<String, (ContentHash, u64)>,
}

/// Why an archive is not unpacked.
pub(super) enum UnpackFailure {
    Damaged(Damage),
    Failed(Failure),
}

impl From<Damage> for UnpackFailure {
    fn from(damage: Damage) -> Self {
        Self::Damaged(damage)
    }
}

impl UnpackFailure {
    pub(super) fn failure(self, of_damage: impl FnOnce(Damage) -> Failure) -> Failure {
        match self {
            Self::Damaged(damage) => of_damage(damage),
            Self::Failed(failure) => failure,
        }
    }
}

impl UnpackedArchive {
    /// Reads an archive, and calls `progress` after each memory.
    pub(super) fn read(
        packed: impl Read,
        folder: Folder,
        kept: Contents,
        mut progress: impl FnMut(),
    ) -> Result<Self, UnpackFailure> {
        let mut unpacked = Self { folder, contents: HashMap::new() };
        let failed = || Failure::of("the archive cannot be unpacked");
        read_files(packed, LIMIT, |name, size, content| {
            let damaged = |error: io::Error| Damage(format!("{name}: {error}"));
            let folder = &unpacked.folder;
            let create = || folder.create(name).map_err(|error| not_created(name, error));
            if !is_content(name) {
                let mut file = create()?;
                io::copy(content, &mut file).map_err(damaged)?;
                return Ok(());
            }
            let mut bytes = Vec::new();
            content.take(MAX_CONTENT_BYTES).read_to_end(&mut bytes).map_err(damaged)?;
            unpacked.contents.insert(name.to_owned(), (ContentHash::of(&bytes), size));
            if name.starts_with(MEMORIES) {
                progress();
            }
            match kept {
                Contents::Kept => {
                    create()?.write_all(&bytes).map_err(failed()).map_err(UnpackFailure::Failed)
                }
                Contents::Hashed => Ok(()),
            }
        })?;
        Ok(unpacked)
    }
}

/// Why a file of an archive is not created. The folder was empty, and each name occurs once:
/// what exists is a file whose name differs in case, for example.
fn not_created(name: &str, error: io::Error) -> UnpackFailure {
    if error.kind() == io::ErrorKind::AlreadyExists {
        let text = format!("{name} and another file in it have the same name on this file system");
        return UnpackFailure::Damaged(Damage(text));
    }
    UnpackFailure::Failed(Failure::of("the archive cannot be unpacked")(error))
}

/// Whether a file of an archive is a content, rather than a list.
pub(super) fn is_content(name: &str) -> bool {
    name.split_once('/').is_some_and(|(directory, _)| [MEMORIES, BLOBS].contains(&directory))
}

impl Files for UnpackedArchive {
    fn open(&self, name: &str) -> Result<Box<dyn Read + '_>, String> {
        Ok(Box::new(self.folder.open_file(name)?))
    }

    fn content(&self, name: &str) -> Result<(ContentHash, u64), String> {
        self.contents.get(name).copied().ok_or_else(|| "is missing".to_owned())
    }

    fn contents(&self) -> Result<Vec<String>, String> {
        Ok(self.contents.keys().cloned().collect())
    }
}
