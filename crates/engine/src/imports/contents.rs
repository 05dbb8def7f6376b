//! The contents of a verified archive, read once more and sent in batches.

use std::collections::HashMap;
use std::io::Read;
use std::sync::Arc;

use bytes::Bytes;
use keepsake_archive::Damage;
use keepsake_archive::packed::{UnpackLimit, read_files};
use keepsake_archive::plan::{ContentOrigin, ImportStep, is_full_batch};
use keepsake_core::{MemoryId, MemoryPath, TestFile};
use keepsake_search::TermRow;
use tokio::sync::mpsc;

use crate::search::ChangedMemory;

/// Maximum size of an unpacked archive as a multiple of its packed size, within these bounds.
const UNPACKED_RATIO: u64 = 50;
const MIN_UNPACKED_BYTES: u64 = 16 << 20;
const MAX_UNPACKED_BYTES: u64 = 256 << 20;

/// Bytes of a planned change in memory, besides its path and its content.
const CHANGE_BYTES: usize = 512;

/// Contents of the archive on their way to the store.
#[derive(Default)]
pub(super) struct Batch {
    pub(super) writes: Vec<(ImportStep, String)>,
    /// Path and reason of contents that cannot be imported.
    pub(super) refused: Vec<(String, String)>,
    bytes: u64,
}

pub(super) fn unpack_limit(file: &Bytes) -> UnpackLimit {
    let packed_bytes = file.len() as u64;
    UnpackLimit {
        bytes: (UNPACKED_RATIO * packed_bytes).clamp(MIN_UNPACKED_BYTES, MAX_UNPACKED_BYTES),
        ratio: 1,
    }
}

/// Reads the contents of a verified archive once more, and sends them in batches.
pub(super) fn read_batches(
    file: &Bytes,
    steps: Vec<ImportStep>,
    max_bytes: u64,
    sender: &mpsc::Sender<Batch>,
) -> Result<(), Damage> {
    let mut wanted: HashMap<String, Vec<ImportStep>> = HashMap::new();
    for step in steps {
        if let ContentOrigin::File(name) = &step.item.origin {
            wanted.entry(name.clone()).or_default().push(step);
        }
    }
    let mut batch = Batch::default();
    let send = |batch: Batch| {
        // The receiver was dropped if the import was stopped.
        sender.blocking_send(batch).map_err(|_| Damage("stopped".to_owned()))
    };
    read_files::<Damage>(&file[..], unpack_limit(file), |name, size, content| {
        let Some(steps) = wanted.remove(name) else {
            return Ok(());
        };
        match read_text(size, max_bytes, content) {
            Ok(text) => {
                for step in steps {
                    batch.bytes += size;
                    batch.writes.push((step, text.clone()));
                    if is_full_batch(batch.writes.len(), batch.bytes) {
                        send(std::mem::take(&mut batch))?;
                    }
                }
            }
            Err(reason) => {
                let paths = steps.iter().map(|step| step.item.path.as_str().to_owned());
                batch.refused.extend(paths.map(|path| (path, reason.clone())));
            }
        }
        Ok(())
    })?;
    send(batch)
}

/// The memories that an import will write, by the name of the file with their content. A memory that is there
/// has its id.
pub(super) struct PlannedMemories(HashMap<String, Vec<(MemoryPath, Option<MemoryId>)>>);

impl PlannedMemories {
    pub(super) fn of(steps: &[ImportStep]) -> Self {
        let mut planned: HashMap<_, Vec<_>> = HashMap::new();
        for step in steps {
            if let ContentOrigin::File(name) = &step.item.origin {
                let memory_id = step.replaces.as_ref().and_then(|existing| existing.id.parse().ok());
                planned.entry(name.clone()).or_default().push((step.item.path.clone(), memory_id));
            }
        }
        Self(planned)
    }

    /// Reads what the import changes, as the tests of the store need it. `allow` is asked before bytes are kept;
    /// `None`: it refused.
    pub(super) fn read(
        mut self,
        file: &Bytes,
        max_bytes: u64,
        tests: &TestFile,
        allow: impl Fn(u64) -> bool,
    ) -> Result<Option<Vec<ChangedMemory>>, Damage> {
        let (mut changes, mut is_allowed) = (Vec::new(), true);
        read_files::<Damage>(&file[..], unpack_limit(file), |name, size, content| {
            let Some(memories) = self.0.remove(name).filter(|_| is_allowed) else {
                return Ok(());
            };
            // A content that no memory can have is not imported.
            let Ok(text) = read_text(size, max_bytes, content) else {
                return Ok(());
            };
            let terms: Arc<[u8]> = TermRow::of(&text).into_bytes().into();
            for (path, memory_id) in memories {
                let text = tests.reads(&path).then(|| Arc::from(text.as_str()));
                let kept_bytes = CHANGE_BYTES
                    + path.as_str().len()
                    + text.as_ref().map_or(0, |text: &Arc<str>| text.len());
                is_allowed &= allow((terms.len() + kept_bytes) as u64);
                changes.push(ChangedMemory {
                    memory_id,
                    before: memory_id.map(|_| path.clone()),
                    after: Some(path),
                    terms: Some(Arc::clone(&terms)),
                    text,
                });
            }
            Ok(())
        })?;
        Ok(is_allowed.then_some(changes))
    }
}

/// Reads the text of a file, or returns why a memory cannot have it.
fn read_text(size: u64, max_bytes: u64, content: &mut dyn Read) -> Result<String, String> {
    if size > max_bytes {
        return Err(format!("has {size} bytes, but a memory may have {max_bytes}"));
    }
    let mut text = String::new();
    match content.read_to_string(&mut text) {
        Ok(_) if !text.contains('\0') => Ok(text),
        _ => Err("is not text".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn archive_may_unpack_to_a_multiple_of_its_size_within_bounds() {
        for (packed_mib, unpacked_mib) in [(0_usize, 16_u64), (1, 50), (5, 250), (6, 256), (16, 256)] {
            let file = Bytes::from(vec![0_u8; packed_mib << 20]);
            assert_eq!(unpack_limit(&file).bytes, unpacked_mib << 20, "{packed_mib} MiB");
        }
    }
}
