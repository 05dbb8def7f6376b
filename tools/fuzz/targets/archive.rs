//! Archives: an import finds each memory of an archive, and refuses a damaged one.
//! Other bytes cause no panic.
//!
//! Each line of a text is a memory: its path, a tab, its content.

#![no_main]

use std::collections::BTreeMap;

use keepsake_archive::format::{
    BLOBS, Counts, Entry, FORMAT, FORMAT_VERSION, HashingReader, INDEX, MANIFEST, Manifest, write_lines,
};
use keepsake_archive::packed::{UnpackLimit, Writer};
use keepsake_archive::placement::Placement;
use keepsake_archive::scanned::ArchiveScan;
use keepsake_archive::verified::{Prefix, verify};
use keepsake_core::{ContentHash, MemoryPath};
use libfuzzer_sys::fuzz_target;

const LIMIT: UnpackLimit = UnpackLimit { bytes: 8 << 20, ratio: 1 };

/// The paths and hashes of the memories, or why the archive is refused.
fn found(packed: &[u8]) -> Result<BTreeMap<String, ContentHash>, String> {
    let mut kept_bytes = 0;
    let allow = |bytes| {
        kept_bytes += bytes;
        (kept_bytes <= LIMIT.bytes).then_some(()).ok_or_else(String::new)
    };
    let scanned = ArchiveScan::read(packed, LIMIT, allow).map_err(|damage| damage.0)?;
    let found = verify(&scanned, &Prefix::new("/"), |_| {}).map_err(|damage| damage.0)?;
    let hash_of = |item: &keepsake_archive::plan::SourceMemory| (item.path.as_str().to_owned(), item.sha256);
    Ok(found.items.iter().map(hash_of).collect())
}

/// An archive of these memories.
fn packed(memories: &BTreeMap<MemoryPath, &str>) -> Vec<u8> {
    let (mut placement, mut entries, mut files) = (Placement::default(), Vec::new(), BTreeMap::new());
    for (path, content) in memories {
        let hash = ContentHash::of(content.as_bytes());
        let name = placement.file_of(path, hash);
        entries.push(Entry {
            path: path.as_str().to_owned(),
            id: path.as_str().to_owned(),
            version_id: String::new(),
            content_sha256: hash.to_string(),
            size_bytes: content.len() as u64,
            created_at: String::new(),
            updated_at: String::new(),
            expires_at: None,
            pinned: false,
            file: name.starts_with(BLOBS).then(|| name.clone()),
        });
        files.insert(name, *content);
    }
    let mut index = HashingReader::new(Vec::new());
    write_lines(&mut index, entries.iter()).unwrap();
    let (index, index_sha256) = index.into_parts();
    let manifest = Manifest {
        format: FORMAT.to_owned(),
        version: FORMAT_VERSION,
        exported_at: String::new(),
        store: serde_json::Map::new(),
        counts: Counts {
            memories: entries.len() as u64,
            content_bytes: entries.iter().map(|entry| entry.size_bytes).sum(),
            versions: 0,
        },
        index_sha256,
        versions_sha256: None,
        left_out: Vec::new(),
    };
    let manifest = manifest.to_text();
    let mut writer = Writer::new(Vec::new()).unwrap();
    let lists = [(MANIFEST, manifest.as_bytes()), (INDEX, &index)];
    let contents = files.iter().map(|(name, content)| (name.as_str(), content.as_bytes()));
    for (name, content) in lists.into_iter().chain(contents) {
        writer.add(name, 0, content.len() as u64, content).unwrap();
    }
    writer.finish().unwrap()
}

fuzz_target!(|data: &[u8]| {
    // The bytes as a packed archive, and as one before its compression.
    let _ = found(data);
    let _ = found(&zstd::encode_all(data, 1).unwrap());
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    let memories = text.lines().filter_map(|line| {
        let (path, content) = line.split_once('\t')?;
        Some((MemoryPath::parse(path).ok()?, content))
    });
    let memories: BTreeMap<_, _> = memories.collect();
    let mut archive = packed(&memories);
    let expected = memories.iter().map(|(path, content)| {
        let path = path.as_str().to_owned();
        (path, ContentHash::of(content.as_bytes()))
    });
    let expected: BTreeMap<_, _> = expected.collect();
    assert_eq!(found(&archive).as_ref(), Ok(&expected));
    // One changed bit is noticed, or it is one that nothing depends on.
    let bit = data.iter().fold(0_usize, |sum, byte| sum.wrapping_mul(31).wrapping_add(usize::from(*byte)))
        % (8 * archive.len());
    archive[bit / 8] ^= 1 << (bit % 8);
    if let Ok(found) = found(&archive) {
        assert_eq!(found, expected);
    }
    archive.truncate(bit / 8);
    assert!(found(&archive).is_err());
});
