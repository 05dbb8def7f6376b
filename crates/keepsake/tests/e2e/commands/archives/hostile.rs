use keepsake_core::ContentHash;
use tar::{Builder, EntryType, Header};

use super::*;

type Packed = Builder<zstd::Encoder<'static, Vec<u8>>>;

fn packed() -> Packed {
    Builder::new(zstd::Encoder::new(Vec::new(), 0).unwrap())
}

fn finish(tar: Packed) -> Vec<u8> {
    tar.into_inner().unwrap().finish().unwrap()
}

/// An archive of entries with any name, which the builder would refuse, a kind, a declared size
/// and content.
fn archive_of(entries: &[(&str, EntryType, u64, &[u8])]) -> Vec<u8> {
    let mut tar = packed();
    for (name, kind, size, content) in entries {
        let mut header = Header::new_gnu();
        header.set_entry_type(*kind);
        header.set_mode(0o644);
        header.set_size(*size);
        let field = &mut header.as_gnu_mut().unwrap().name;
        field[..name.len()].copy_from_slice(name.as_bytes());
        if kind.is_symlink() || kind.is_hard_link() {
            header.set_link_name("/etc/passwd").unwrap();
        }
        header.set_cksum();
        tar.append(&header, *content).unwrap();
    }
    finish(tar)
}

fn entry(name: &str, kind: EntryType) -> Vec<u8> {
    archive_of(&[(name, kind, 0, b"")])
}

type Damage<'a> = (&'a str, &'a dyn Fn(&Path));

async fn archive(person: &Person) -> String {
    person.put("a.md", "one\n").await;
    person.put("b/c.md", "two\n").await;
    person.put("a.md", "three\n").await;
    let target = person.path("archive");
    person.ok(&format!("export {target} --versions")).await;
    target
}

/// Writes an index again, with the hash and the counts that fit.
fn rewrite(archive: &Path, change: impl Fn(&mut Vec<Value>)) {
    let mut entries = lines(&archive.join("index.jsonl"));
    change(&mut entries);
    let lines: Vec<_> = entries.iter().map(Value::to_string).collect();
    let text = lines.join("\n") + "\n";
    fs::write(archive.join("index.jsonl"), &text).unwrap();
    let file = archive.join("keepsake.json");
    let mut manifest: Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    manifest["index_sha256"] = ContentHash::of(text.as_bytes()).to_string().into();
    fs::write(file, manifest.to_string()).unwrap();
}

fn replace(archive: &Path, name: &str, from: &str, to: &str) {
    let text = fs::read_to_string(archive.join(name)).unwrap();
    fs::write(archive.join(name), text.replace(from, to)).unwrap();
}

fn blob(archive: &Path) -> PathBuf {
    let name = files(archive.join("blobs")).into_keys().next().unwrap();
    archive.join("blobs").join(name)
}

#[tokio::test(flavor = "multi_thread")]
async fn damaged_archive_is_refused_and_the_file_is_named() {
    let person = Person::new().await;
    let original = archive(&person).await;
    person.ok("store create copy").await;
    let damages: [Damage<'_>; 12] = [
        ("memories/b/c.md has the SHA-256", &|at| fs::write(at.join("memories/b/c.md"), "twx\n").unwrap()),
        ("index.jsonl has the SHA-256", &|at| {
            replace(at, "index.jsonl", "\"pinned\":false", "\"pinned\":true");
        }),
        ("index.jsonl: line 2 is cut off", &|at| {
            let text = fs::read_to_string(at.join("index.jsonl")).unwrap();
            fs::write(at.join("index.jsonl"), text.trim_end()).unwrap();
        }),
        ("memories/b/c.md is a symbolic link", &|at| {
            fs::rename(at.join("memories/b"), at.with_extension("outside")).unwrap();
            symlink(at.with_extension("outside"), at.join("memories/b")).unwrap();
        }),
        ("versions.jsonl", &|at| fs::write(at.join("versions.jsonl"), "{}\n").unwrap()),
        ("has the SHA-256", &|at| fs::write(blob(at), "x").unwrap()),
        ("is missing", &|at| fs::remove_file(blob(at)).unwrap()),
        ("keepsake.json names the format", &|at| {
            replace(at, "keepsake.json", "\"version\": 1", "\"version\": 2");
        }),
        ("keepsake.json counts 2 memories, but there are 1", &|at| rewrite(at, |all| drop(all.pop()))),
        ("is not in the order of paths", &|at| rewrite(at, |all| all.push(all[1].clone()))),
        ("the path must not have a `.` or `..` segment", &|at| {
            rewrite(at, |all| all[0]["path"] = "/../outside".into());
        }),
        ("file is not blobs/", &|at| rewrite(at, |all| all[0]["file"] = "../../etc/passwd".into())),
    ];
    for (number, (reason, damage)) in damages.into_iter().enumerate() {
        let archive = person.path(&format!("damaged-{number}"));
        let copied = Command::new("cp").args(["-r", &original, &archive]).status().await;
        assert!(copied.unwrap().success());
        damage(Path::new(&archive));
        person.ends(&format!("import {archive} {COPY}"), 1, reason).await;
    }
    assert!(person.contents(COPY).await.is_empty());
}

fn hostile_files() -> Vec<(Vec<u8>, &'static str)> {
    let file = EntryType::Regular;
    let mut cut_off = entry("memories/a", file);
    cut_off.truncate(cut_off.len() - 8);
    let long = vec![b'n'; 1 << 20];
    // 1 MiB is compressed once; its copies unpack to more than 1 GiB.
    let mut bomb = archive_of(&[("index.jsonl", file, 3 << 30, b"")]);
    bomb.extend(zstd::encode_all(&long[..], 0).unwrap().repeat(1_025));
    let long_name = [("x", EntryType::GNULongName, 1 << 20, &long[..]), ("x", file, 0, b"")];
    let twice: [(_, _, _, &[u8]); 2] = [("memories/a", file, 1, b"a"), ("memories/a", file, 1, b"b")];
    vec![
        (archive_of(&twice), "memories/a is in it twice"),
        (archive_of(&[("memories/a", file, 1 << 40, b"a")]), "memories/a is larger than 67108864 bytes"),
        (archive_of(&[("index.jsonl", file, 1 << 40, b"a")]), "index.jsonl: it is cut off"),
        (archive_of(&long_name), "the header of an entry is too long"),
        (cut_off, "is damaged"),
        (bomb, "it unpacks to more than 1000 times its size"),
        (archive_of(&[]), "keepsake.json is missing"),
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
        import(&entry(name, EntryType::Regular), &format!("{name} is not a file of an archive")).await;
    }
    for kind in [EntryType::Symlink, EntryType::Link, EntryType::Block, EntryType::Fifo] {
        import(&entry("memories/a", kind), "memories/a is neither a file nor a directory").await;
    }
    for (bytes, reason) in hostile_files() {
        import(&bytes, reason).await;
    }
    assert!(person.contents("").await.is_empty());
}
