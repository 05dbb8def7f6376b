//! Archives that are damaged or made to do harm.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use keepsake_core::ContentHash;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tar::{Builder, EntryType, Header};

use super::{COPY, files};
use crate::commands::Person;

type Packed = Builder<zstd::Encoder<'static, Vec<u8>>>;

/// Starts an archive in one file.
fn packed() -> Packed {
    Builder::new(zstd::Encoder::new(Vec::new(), 0).unwrap())
}

fn finish(tar: Packed) -> Vec<u8> {
    tar.into_inner().unwrap().finish().unwrap()
}

/// Appends an entry with any name, which the builder would refuse.
fn append(tar: &mut Packed, name: &str, kind: EntryType, size: u64, content: &[u8]) {
    let mut header = Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(0o644);
    header.set_size(size);
    let field = &mut header.as_gnu_mut().unwrap().name;
    field[..name.len()].copy_from_slice(name.as_bytes());
    if kind.is_symlink() || kind.is_hard_link() {
        header.set_link_name("/etc/passwd").unwrap();
    }
    header.set_cksum();
    tar.append(&header, content).unwrap();
}

fn sha256(bytes: &[u8]) -> String {
    let hash: [u8; 32] = Sha256::digest(bytes).into();
    ContentHash::from(hash).to_string()
}

/// The name of a damage, a part of the error, and what does the damage.
type Damage<'a> = (&'a str, &'a str, &'a dyn Fn(&Path));

/// A small archive in a folder.
async fn archive(person: &Person) -> String {
    person.create("/a.md", "one\n").await;
    person.create("/b/c.md", "two\n").await;
    person.put("a.md", "three\n").await;
    let target = person.path("archive");
    person.ok(&format!("export {target} --versions")).await;
    target
}

/// Writes an index again, with the hash and the counts that fit.
fn rewrite_index(archive: &Path, change: impl Fn(&mut Vec<Value>)) {
    let mut entries = super::lines(&archive.join("index.jsonl"));
    change(&mut entries);
    let lines: Vec<_> = entries.iter().map(Value::to_string).collect();
    let text = lines.join("\n") + "\n";
    fs::write(archive.join("index.jsonl"), &text).unwrap();
    let file = archive.join("keepsake.json");
    let mut manifest: Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    manifest["index_sha256"] = sha256(text.as_bytes()).into();
    fs::write(file, manifest.to_string()).unwrap();
}

fn replace(file: &Path, from: &str, to: &str) {
    let text = fs::read_to_string(file).unwrap();
    fs::write(file, text.replace(from, to)).unwrap();
}

fn blob(archive: &Path) -> std::path::PathBuf {
    let name = files(&archive.join("blobs")).into_keys().next().unwrap();
    archive.join("blobs").join(name)
}

#[tokio::test(flavor = "multi_thread")]
async fn damaged_archive_is_refused_and_the_file_is_named() {
    let person = Person::new().await;
    let original = archive(&person).await;
    person.copy().await;
    let cases: [Damage<'_>; 16] = [
        ("content", "memories/b/c.md has the SHA-256", &|at| {
            fs::write(at.join("memories/b/c.md"), "twx\n").unwrap();
        }),
        ("missing-content", "memories/b/c.md is missing", &|at| {
            fs::remove_file(at.join("memories/b/c.md")).unwrap();
        }),
        ("added-content", "memories/d.md is not in index.jsonl", &|at| {
            fs::write(at.join("memories/d.md"), "new\n").unwrap();
        }),
        ("index", "index.jsonl has the SHA-256", &|at| {
            replace(&at.join("index.jsonl"), "\"pinned\":false", "\"pinned\":true");
        }),
        ("cut-index", "index.jsonl: line 2 is cut off", &|at| {
            let text = fs::read_to_string(at.join("index.jsonl")).unwrap();
            fs::write(at.join("index.jsonl"), text.trim_end()).unwrap();
        }),
        ("missing-index", "index.jsonl is missing", &|at| {
            fs::remove_file(at.join("index.jsonl")).unwrap();
        }),
        ("versions", "versions.jsonl", &|at| {
            fs::write(at.join("versions.jsonl"), "{}\n").unwrap();
        }),
        ("blob", "has the SHA-256", &|at| fs::write(blob(at), "x").unwrap()),
        ("missing-blob", "is missing", &|at| {
            fs::remove_file(blob(at)).unwrap();
        }),
        ("manifest", "keepsake.json", &|at| {
            fs::write(at.join("keepsake.json"), "{").unwrap();
        }),
        ("format", "keepsake.json names the format", &|at| {
            replace(&at.join("keepsake.json"), "\"version\": 1", "\"version\": 2");
        }),
        ("entry", "keepsake.json counts 2 memories, but there are 1", &|at| {
            rewrite_index(at, |entries| drop(entries.pop()));
        }),
        ("order", "is not in the order of paths", &|at| {
            rewrite_index(at, |entries| entries.reverse());
        }),
        ("twice", "is not in the order of paths", &|at| {
            rewrite_index(at, |entries| entries.push(entries[1].clone()));
        }),
        ("traversal", "the path must not have a `.` or `..` segment", &|at| {
            rewrite_index(at, |entries| entries[0]["path"] = "/../outside".into());
        }),
        ("other-file", "file is not blobs/", &|at| {
            rewrite_index(at, |entries| entries[0]["file"] = "../../etc/passwd".into());
        }),
    ];
    for (name, reason, damage) in cases {
        let damaged = person.home.path().join(name);
        for (file, content) in files(Path::new(&original)) {
            let to = damaged.join(file);
            fs::create_dir_all(to.parent().unwrap()).unwrap();
            fs::write(to, content).unwrap();
        }
        damage(&damaged);
        let import = format!("import {} {COPY}", damaged.display());
        person.ends(&import, 1, reason).await;
        assert!(person.contents(COPY).await.is_empty(), "{name}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn symbolic_link_in_an_archive_is_not_followed() {
    let person = Person::new().await;
    let original = archive(&person).await;
    let archive = Path::new(&original);
    let outside = person.home.path().join("outside");
    fs::rename(archive.join("memories/b"), &outside).unwrap();
    symlink(&outside, archive.join("memories/b")).unwrap();
    let import = format!("import {original}");
    person.ends(&import, 1, "memories/b/c.md is a symbolic link").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn export_writes_through_no_symbolic_link() {
    let person = Person::new().await;
    person.create("/b/c.md", "two\n").await;
    let outside = person.home.path().join("outside");
    fs::create_dir(&outside).unwrap();
    let partial = person.home.path().join("archive.partial");
    fs::create_dir_all(partial.join("memories")).unwrap();
    let marker = json!({"memory_store_id": person.tenant.store_id.to_string()});
    fs::write(partial.join("export.json"), marker.to_string()).unwrap();
    symlink(&outside, partial.join("memories/b")).unwrap();
    let run = person.run(&["export", &person.path("archive")]).await;
    run.ends(1, "is a symbolic link");
    assert!(files(&outside).is_empty());

    // The last part of a path is replaced, not followed.
    fs::remove_file(partial.join("memories/b")).unwrap();
    fs::create_dir(partial.join("memories/b")).unwrap();
    fs::write(outside.join("victim"), "victim").unwrap();
    symlink(outside.join("victim"), partial.join("memories/b/c.md")).unwrap();
    person.run(&["export", &person.path("archive")]).await.ok();
    assert_eq!(fs::read(outside.join("victim")).unwrap(), b"victim");
    let written = person.home.path().join("archive/memories/b/c.md");
    assert!(!written.is_symlink());
    assert_eq!(fs::read(written).unwrap(), b"two\n");
}

/// An archive of one entry without content.
fn entry(name: &str, kind: EntryType) -> Vec<u8> {
    archive_of(&[(name, kind, 0, b"")])
}

/// An archive of entries with a name, a kind, a declared size and content.
fn archive_of(entries: &[(&str, EntryType, u64, &[u8])]) -> Vec<u8> {
    let mut tar = packed();
    for (name, kind, size, content) in entries {
        append(&mut tar, name, *kind, *size, content);
    }
    finish(tar)
}

/// Files that are no archives, with a part of the error.
fn hostile_files() -> Vec<(Vec<u8>, &'static str)> {
    let file = EntryType::Regular;
    let mut cut_off = entry("memories/a", file);
    cut_off.truncate(cut_off.len() - 8);
    let bomb = {
        let mut tar = packed();
        let size: u64 = 3 << 30;
        let mut header = Header::new_gnu();
        header.set_size(size);
        header.set_mode(0o644);
        let spaces = std::io::Read::take(std::io::repeat(b' '), size);
        tar.append_data(&mut header, "index.jsonl", spaces).unwrap();
        finish(tar)
    };
    let long = vec![b'n'; 1 << 20];
    let long_name = [("x", EntryType::GNULongName, 1 << 20, &long[..]), ("x", file, 0, b"")];
    let twice: [(_, _, _, &[u8]); 2] = [("memories/a", file, 1, b"a"), ("memories/a", file, 1, b"b")];
    vec![
        (archive_of(&twice), "memories/a is in it twice"),
        (archive_of(&[("memories/a", file, 1 << 40, b"a")]), "memories/a is larger than 67108864 bytes"),
        (archive_of(&[("index.jsonl", file, 1 << 40, b"a")]), "index.jsonl: it is cut off"),
        (archive_of(&long_name), "the header of an entry is too long"),
        (cut_off, "is damaged"),
        (bomb, "it unpacks to more than 1000 times its size"),
        (finish(packed()), "keepsake.json is missing"),
        (b"text".to_vec(), "is damaged"),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn hostile_archive_in_one_file_is_refused() {
    let person = Person::new().await;
    let import = async |bytes: &[u8], reason: &str| {
        let path = person.path("hostile.tar.zst");
        fs::write(&path, bytes).unwrap();
        person.ends(&format!("import {path}"), 1, reason).await;
    };
    for name in ["../outside", "/etc/passwd", "memories/../../x", "run.sh", "blobs/../x"] {
        let reason = format!("{name} is not a file of an archive");
        import(&entry(name, EntryType::Regular), &reason).await;
    }
    for kind in [EntryType::Symlink, EntryType::Link, EntryType::Block, EntryType::Fifo] {
        let reason = "memories/a is neither a file nor a directory";
        import(&entry("memories/a", kind), reason).await;
    }
    for (bytes, reason) in hostile_files() {
        import(&bytes, reason).await;
    }
    assert!(person.contents("").await.is_empty());
}
