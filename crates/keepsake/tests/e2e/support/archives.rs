use std::collections::BTreeMap;
use std::io::Read;

use super::*;

pub(crate) type Files = BTreeMap<String, Vec<u8>>;

/// The files of a packed archive, in their order, with the moment of the export removed.
pub(crate) fn unpacked(archive: &[u8]) -> (Vec<String>, Files) {
    let plain = zstd::decode_all(archive).unwrap();
    let (mut names, mut files) = (Vec::new(), Files::new());
    for entry in tar::Archive::new(&plain[..]).entries().unwrap() {
        let mut entry = entry.unwrap();
        let name = entry.path().unwrap().to_string_lossy().into_owned();
        let mut content = Vec::new();
        entry.read_to_end(&mut content).unwrap();
        if name == "keepsake.json" {
            let mut manifest: Value = serde_json::from_slice(&content).unwrap();
            assert!(manifest["exported_at"].is_string());
            manifest["exported_at"] = "".into();
            content = manifest.to_string().into_bytes();
        }
        names.push(format!("{name} {}", entry.header().mtime().unwrap()));
        files.insert(name, content);
    }
    (names, files)
}

pub(crate) fn packed(files: &Files) -> Vec<u8> {
    let mut tar = tar::Builder::new(zstd::Encoder::new(Vec::new(), 0).unwrap());
    for (name, content) in files {
        let mut header = tar::Header::new_gnu();
        header.set_size(content.len() as u64);
        header.set_mode(0o644);
        tar.append_data(&mut header, name, &content[..]).unwrap();
    }
    tar.into_inner().unwrap().finish().unwrap()
}
