//! A packed archive that is verified without unpacking it to a disk.
//!
//! The archive is read once to keep its lists and the hash of each content. After it is
//! verified, [`read_files`] reads the contents again.

use std::collections::HashMap;
use std::io::{self, Cursor, Read};

use keepsake_core::ContentHash;

use crate::Damage;
use crate::format::HashingReader;
use crate::packed::{UnpackLimit, is_list, read_files};
use crate::verified::Files;

/// Memory of a content's name and hash, besides the name itself.
const NAME_BYTES: u64 = 256;

/// The lists and the hashes of a packed archive.
#[derive(Debug, Default)]
pub struct ArchiveScan {
    lists: HashMap<String, Vec<u8>>,
    contents: HashMap<String, (ContentHash, u64)>,
}

impl ArchiveScan {
    /// Reads an archive. Calls `allow` with the bytes of memory that each file needs; an
    /// error of `allow` ends the reading.
    pub fn read(
        packed: impl Read,
        limit: UnpackLimit,
        mut allow: impl FnMut(u64) -> Result<(), String>,
    ) -> Result<Self, Damage> {
        let mut scanned = Self::default();
        read_files::<Damage>(packed, limit, |name, size, content| {
            let unreadable = |error: io::Error| Damage(format!("{name}: {error}"));
            let is_list = is_list(name);
            let needed_bytes = if is_list { size } else { NAME_BYTES + name.len() as u64 };
            allow(needed_bytes).map_err(|reason| Damage(format!("{name}: {reason}")))?;
            if is_list {
                let mut bytes = Vec::new();
                content.read_to_end(&mut bytes).map_err(unreadable)?;
                scanned.lists.insert(name.to_owned(), bytes);
                return Ok(());
            }
            let mut hashing = HashingReader::new(content);
            let bytes = io::copy(&mut hashing, &mut io::sink()).map_err(unreadable)?;
            let hash = hashing.finish().parse();
            let hash = hash.map_err(|error| Damage(format!("{name}: {error}")))?;
            scanned.contents.insert(name.to_owned(), (hash, bytes));
            Ok(())
        })?;
        Ok(scanned)
    }
}

impl Files for ArchiveScan {
    fn open(&self, name: &str) -> Result<Box<dyn Read + '_>, String> {
        let list = self.lists.get(name).ok_or_else(|| "is missing".to_owned())?;
        Ok(Box::new(Cursor::new(list)))
    }

    fn content(&self, name: &str) -> Result<(ContentHash, u64), String> {
        let found = self.contents.get(name).copied();
        found.ok_or_else(|| "is missing".to_owned())
    }

    fn contents(&self) -> Result<Vec<String>, String> {
        Ok(self.contents.keys().cloned().collect())
    }
}

#[cfg(test)]
mod tests {
    use keepsake_core::MemoryPath;

    use super::*;
    use crate::format::{
        BLOBS, Counts, Entry, FORMAT, FORMAT_VERSION, INDEX, MANIFEST, Manifest, write_lines,
    };
    use crate::packed::Writer;
    use crate::placement::Placement;
    use crate::verified::{Prefix, verify};

    const LIMIT: UnpackLimit = UnpackLimit { bytes: 2 << 20, ratio: 1 };
    const MAX_KEPT_BYTES: u64 = 64 << 10;

    /// Names and contents.
    type FileList = Vec<(String, Vec<u8>)>;

    /// The files of an archive with these memories.
    fn files_of(memories: &[(&str, &str)]) -> FileList {
        let mut placement = Placement::default();
        let (mut entries, mut contents) = (Vec::new(), Vec::new());
        for (path, content) in memories {
            let hash = ContentHash::of(content.as_bytes());
            let name = placement.file_of(&MemoryPath::parse(path).unwrap(), hash);
            entries.push(Entry {
                path: (*path).to_owned(),
                id: "mem_1".to_owned(),
                version_id: "memver_1".to_owned(),
                content_sha256: hash.to_string(),
                size_bytes: content.len() as u64,
                created_at: String::new(),
                updated_at: String::new(),
                expires_at: None,
                pinned: true,
                file: name.starts_with(BLOBS).then(|| name.clone()),
            });
            contents.push((name, content.as_bytes().to_vec()));
        }
        let mut index = HashingReader::new(Vec::new());
        write_lines(&mut index, entries.iter()).unwrap();
        let (index, index_sha256) = index.into_parts();
        let manifest = Manifest {
            format: FORMAT.to_owned(),
            version: FORMAT_VERSION,
            exported_at: String::new(),
            store: serde_json::Map::default(),
            counts: Counts {
                memories: entries.len() as u64,
                content_bytes: entries.iter().map(|entry| entry.size_bytes).sum(),
                versions: 0,
            },
            index_sha256,
            versions_sha256: None,
            left_out: Vec::new(),
        };
        let mut files =
            vec![(MANIFEST.to_owned(), manifest.to_text().into_bytes()), (INDEX.to_owned(), index)];
        files.extend(contents);
        files
    }

    fn packed(files: &[(String, Vec<u8>)]) -> Vec<u8> {
        let mut writer = Writer::new(Vec::new()).unwrap();
        for (name, content) in files {
            if !is_list(name) {
                writer.add(name, 0, content.len() as u64, &content[..]).unwrap();
                continue;
            }
            writer.begin(name, content.len() as u64).unwrap();
            for part in content.chunks(100) {
                writer.write(part).unwrap();
            }
            writer.end().unwrap();
        }
        writer.finish().unwrap()
    }

    /// The paths of the memories, or the fault.
    fn found(packed: &[u8]) -> Result<Vec<String>, String> {
        let mut left_bytes = MAX_KEPT_BYTES;
        let allow = |bytes| {
            left_bytes = u64::checked_sub(left_bytes, bytes).ok_or("needs too much memory")?;
            Ok(())
        };
        let scanned = ArchiveScan::read(packed, LIMIT, allow).map_err(|damage| damage.0)?;
        let verified = verify(&scanned, &Prefix::new("/"), |_| {}).map_err(|damage| damage.0)?;
        let paths = verified.items.iter().map(|item| item.path.as_str().to_owned());
        Ok(paths.collect())
    }

    #[test]
    fn archive_is_verified_without_a_disk() {
        let good = files_of(&[("/A.md", "one"), ("/a.md", "two"), ("/é", "")]);
        assert_eq!(found(&packed(&good)).unwrap(), ["/A.md", "/a.md", "/é"]);
        let in_another_order: Vec<_> = good.iter().rev().cloned().collect();
        assert_eq!(found(&packed(&in_another_order)).unwrap().len(), 3);
        let with_file = |file: (String, Vec<u8>)| [good.clone(), vec![file]].concat();
        let with = |name: &str| with_file((name.to_owned(), Vec::new()));
        let by_system = |what: &str| format!("{what}: the operating system made it; remove it");
        let (unlisted, foreign) = ("is not in index.jsonl", "is not a file of an archive");
        for (damaged, fault) in [
            (good[..4].to_vec(), "is missing"),
            (with("memories/c.md"), "memories/c.md is not in index.jsonl"),
            (with_file(good[2].clone()), "memories/A.md is in it twice"),
            (with("notes.md"), "notes.md is not a file of an archive"),
            (with("memories/.DS_Store"), &by_system(unlisted)),
            (with("memories/@eaDir/c.md@SynoEAStream"), &by_system(unlisted)),
            (with("._index.jsonl"), &by_system(foreign)),
        ] {
            let error = found(&packed(&damaged)).unwrap_err();
            assert!(error.contains(fault), "{error}");
        }
    }

    #[test]
    fn truncated_invalid_or_huge_archive_is_refused() {
        let whole = packed(&files_of(&[("/a.md", &"text ".repeat(1_000))]));
        for length in 0..whole.len() {
            assert!(found(&whole[..length]).is_err(), "{length} of {} bytes", whole.len());
        }
        assert!(found(b"no archive").is_err());
        let bomb = files_of(&[("/a.md", &"0".repeat(4 << 20))]);
        assert!(found(&packed(&bomb)).unwrap_err().contains("to more than 2097152 bytes"));
        let mut long = files_of(&[]);
        long[1].1 = vec![b'\n'; 128 << 10];
        assert_eq!(found(&packed(&long)).unwrap_err(), "index.jsonl: needs too much memory");
    }

    #[test]
    fn archive_that_continues_after_its_end_or_has_a_large_window_is_refused() {
        let whole = packed(&files_of(&[("/a.md", "one")]));
        let zeros = |count| zstd::encode_all(&vec![0; count][..], 0).unwrap();
        let followed_by = |end: &[u8]| found(&[&whole[..], end].concat());
        assert_eq!(followed_by(&zeros(10 << 10)).unwrap(), ["/a.md"], "padding");
        let empty_frames = zeros(0).repeat((2 << 20) / zeros(0).len());
        let mut skipped_frame = vec![0x50, 0x2a, 0x4d, 0x18, 0, 0, 0x20, 0];
        skipped_frame.resize(2 << 20, 0);
        for (end, fault) in [
            (&zeros((1 << 20) + 1)[..], "it continues after its end"),
            (&empty_frames, "it is much larger than what it unpacks to"),
            (&skipped_frame, "it is much larger than what it unpacks to"),
        ] {
            let error = followed_by(end).unwrap_err();
            assert!(error.contains(fault), "{error}");
        }
        let tar = zstd::decode_all(&whole[..]).unwrap();
        let with_window = |log| {
            let mut encoder = zstd::Encoder::new(Vec::new(), 0).unwrap();
            encoder.window_log(log).unwrap();
            io::Write::write_all(&mut encoder, &tar).unwrap();
            encoder.finish().unwrap()
        };
        assert_eq!(found(&with_window(23)).unwrap(), ["/a.md"]);
        let error = found(&with_window(24)).unwrap_err();
        assert!(error.contains("memory"), "{error}");
    }
}
