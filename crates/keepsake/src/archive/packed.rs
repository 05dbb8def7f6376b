//! Archives in one file.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use keepsake_archive::Damage;
use keepsake_archive::format::MAX_CONTENT_BYTES;
use keepsake_archive::packed::{EXTENSION, UnpackLimit, Writer, read_files};
use keepsake_config::Failure;

use super::folder::Folder;
use super::temporary::TemporaryFolder;
use crate::open_folder::Access;

/// Maximum size of the temporary folder; a large archive may take more.
const LIMIT: UnpackLimit = UnpackLimit { bytes: 1 << 30, ratio: 1_000 };

/// Whether an archive of this name is one file.
pub(super) fn is_packed(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.to_string_lossy().ends_with(EXTENSION))
}

/// A file of an archive; `modified_at` is in seconds.
pub(super) struct Packed<'a> {
    pub(super) name: &'a str,
    pub(super) modified_at: u64,
}

/// Packs files of a folder into an archive, which gets its name when it is complete.
pub(super) fn pack<'a>(
    folder: &Folder,
    files: impl Iterator<Item = Packed<'a>>,
    target: &Path,
) -> Result<(), Failure> {
    let failed = || Failure::of(format!("{} cannot be written", target.display()));
    let file = folder.create_unnamed().map_err(failed())?;
    let mut writer = Writer::new(BufWriter::new(file)).map_err(failed())?;
    for Packed { name, modified_at } in files {
        let content = folder
            .open_file(name)
            .map_err(|reason| failed()(io::Error::other(format!("{name} {reason}"))))?;
        let size_bytes = content.metadata().map_err(failed())?.len();
        let added = writer.add(name, modified_at, size_bytes, content);
        added.map_err(failed())?;
    }
    let mut written = writer.finish().map_err(failed())?;
    written.flush().map_err(failed())?;
    folder.move_to(written.get_ref(), target).map_err(failed())
}

/// Why an archive is not unpacked.
enum Stopped {
    Damaged(Damage),
    Failed(Failure),
}

impl From<Damage> for Stopped {
    fn from(damage: Damage) -> Self {
        Self::Damaged(damage)
    }
}

pub(super) fn unpack(archive: &Path) -> Result<TemporaryFolder, Failure> {
    let file =
        File::open(archive).map_err(Failure::of(format_args!("{} cannot be read", archive.display())))?;
    let unpacked = TemporaryFolder::new()?;
    let mut folder = Folder::open(&unpacked.path(), Access::OwnerOnly)?;
    let read = read_files(file, LIMIT, |name, size, content| {
        let damaged = |error: io::Error| Damage(format!("{name}: {error}"));
        let failed = || Failure::of("the archive cannot be unpacked");
        if size > MAX_CONTENT_BYTES {
            let created = folder.create_unnamed().map_err(failed());
            let mut file = created.map_err(Stopped::Failed)?;
            io::copy(content, &mut file).map_err(damaged)?;
            let named = folder.name(&file, name);
            return named.map_err(failed()).map_err(Stopped::Failed);
        }
        let mut bytes = Vec::new();
        content.read_to_end(&mut bytes).map_err(damaged)?;
        folder.write(name, &bytes).map_err(Stopped::Failed)
    });
    match read {
        Ok(()) => Ok(unpacked),
        Err(Stopped::Failed(failure)) => Err(failure),
        Err(Stopped::Damaged(damage)) => {
            Err(Failure::new(format!("{} is damaged: {damage}", archive.display())))
        }
    }
}
