use super::*;
use proptest::prelude::*;

mod corpus;
mod mounts;
use corpus::{CONTROLS, HOSTILE, LEGAL};

fn path(text: &str) -> MemoryPath {
    MemoryPath::parse(text).unwrap()
}

fn refusal(text: &str) -> PathError {
    MemoryPath::parse(text).unwrap_err()
}

#[test]
fn traversal_is_refused_on_every_surface() {
    for rest in HOSTILE {
        assert_eq!(refusal(&format!("/{rest}")), PathError::Traversal, "{rest:?}");
        let sent = format!("/memories/{rest}");
        let shown = sent.strip_suffix('/').unwrap_or(&sent);
        assert_eq!(
            ToolPath::parse(&sent).unwrap_err().to_string(),
            format!("Error: Path {shown} would escape /memories directory"),
        );
    }
}

#[test]
fn control_characters_are_refused_however_encoded() {
    for rest in CONTROLS {
        assert_eq!(refusal(&format!("/{rest}")), PathError::Control, "{rest:?}");
        let message = ToolPath::parse(&format!("/memories/{rest}")).unwrap_err().to_string();
        assert!(message.ends_with("must not contain a control character, neither plain nor encoded"));
    }
}

#[test]
fn odd_but_harmless_paths_are_valid() {
    for rest in LEGAL {
        let text = format!("/{rest}");
        assert_eq!(MemoryPath::parse(&text).as_ref().map(MemoryPath::as_str), Ok(text.as_str()));
        let sent = format!("/memories/{rest}");
        let parsed = ToolPath::parse(&sent).unwrap();
        assert_eq!(parsed.display(), sent);
        assert_eq!(parsed.memory().map(MemoryPath::as_str), Some(text.as_str()));
    }
}

#[test]
fn each_broken_rule_has_its_error() {
    assert_eq!(refusal(""), PathError::NotAbsolute);
    assert_eq!(refusal("a/b"), PathError::NotAbsolute);
    assert_eq!(refusal("../a"), PathError::NotAbsolute);
    assert_eq!(refusal("/"), PathError::IsRoot);
    assert_eq!(refusal("//"), PathError::EmptySegment);
    assert_eq!(refusal("/a/"), PathError::EmptySegment);
    assert_eq!(refusal("/a//b"), PathError::EmptySegment);
    assert_eq!(refusal("/a\u{200b}"), PathError::Format);
    assert_eq!(refusal("/a\u{ad}"), PathError::Format);
    assert_eq!(refusal("/\u{feff}a"), PathError::Format);
    assert_eq!(refusal("/\u{202e}a"), PathError::Format);
    assert_eq!(refusal("/\u{e0041}"), PathError::Format);
    assert_eq!(refusal("/a\u{2028}"), PathError::LineSeparator);
    assert_eq!(refusal("/a\u{2029}b"), PathError::LineSeparator);
    // In any segment.
    for path in ["/e\u{301}", "/e\u{301}/b", "/a/e\u{301}/b", "/é/e\u{301}/é"] {
        assert_eq!(refusal(path), PathError::NotNfc, "{path}");
    }
    assert_eq!(refusal("/\u{212b}"), PathError::NotNfc);
    assert_eq!(refusal("/.anthropic-memory-store"), PathError::Reserved);
    assert_eq!(refusal("/.anthropic-memory-store/a/b"), PathError::Reserved);
}

#[test]
fn limits_are_inclusive() {
    let longest = format!("/{}", "é".repeat(511) + "x");
    assert_eq!(longest.len(), 1024);
    assert!(MemoryPath::parse(&longest).is_ok());
    assert_eq!(refusal(&format!("{longest}x")), PathError::TooLong { bytes: 1025 });
    assert!(MemoryPath::parse(&"/a".repeat(20)).is_ok());
    assert_eq!(refusal(&"/a".repeat(21)), PathError::TooManySegments { segments: 21 });
    // The tool's prefix does not count towards the limits.
    assert!(ToolPath::parse(&format!("/memories{longest}/")).is_ok());
    assert!(ToolPath::parse(&format!("/memories{}", "/a".repeat(20))).is_ok());
}

#[test]
fn rule_text_follows_the_word_path() {
    assert_eq!(
        refusal(&format!("/{}", "x".repeat(1024))).to_string(),
        "is 1025 bytes long, over the limit of 1024 bytes"
    );
    assert_eq!(refusal(&"/a".repeat(21)).to_string(), "has 21 segments, over the limit of 20 segments");
}

#[test]
fn hostile_length_takes_linear_time() {
    let nested = format!("/memories/%{}2e", "25".repeat(2_000_000));
    assert!(matches!(
        ToolPath::parse(&nested).unwrap_err(),
        ToolPathError::Escapes { .. } | ToolPathError::BreaksRule { .. }
    ));
    let undone = format!("/memories/{}", "%".repeat(1_000_000) + &"25".repeat(1_000_000));
    assert!(ToolPath::parse(&undone).is_err());
    let combining = format!("/memories/{}", "\u{301}\u{323}".repeat(500_000));
    assert!(ToolPath::parse(&combining).is_err());
}

#[test]
fn memory_path_has_parent_name_and_ancestors() {
    let file = path("/a/b/c.md");
    assert_eq!(file.to_string(), "/a/b/c.md");
    assert_eq!(file.name(), "c.md");
    assert_eq!(file.parent().as_str(), "/a/b/");
    assert_eq!(file.as_dir().as_str(), "/a/b/c.md/");
    let ancestors: Vec<String> = file.ancestors().map(|directory| directory.to_string()).collect();
    assert_eq!(ancestors, ["/", "/a/", "/a/b/"]);
    assert_eq!(file.ancestor_files().collect::<Vec<_>>(), ["/a", "/a/b"]);
    let top = path("/x");
    assert_eq!((top.name(), top.parent()), ("x", DirPath::root()));
    assert_eq!(top.ancestors().collect::<Vec<_>>(), [DirPath::root()]);
    assert_eq!(top.ancestor_files().count(), 0);
    assert_eq!(tool_display(None, &file), "/memories/a/b/c.md");
}

#[test]
fn only_entries_of_a_directory_are_below_it() {
    let directory = path("/a/b").as_dir();
    assert!(path("/a/b/c").is_below(&directory));
    assert!(path("/a/b/c/d").is_below(&directory));
    assert!(path("/a/b").is_below(&DirPath::root()));
    assert!(!path("/a/b").is_below(&directory));
    assert!(!path("/a/bc").is_below(&directory));
    assert!(!path("/b/a/b/c").is_below(&directory));
}

#[test]
fn dir_path_has_parent_name_and_file() {
    let directory = DirPath::from_trusted("/a/b/".into());
    assert_eq!(directory.name(), "b");
    assert_eq!(directory.parent(), Some(DirPath::from_trusted("/a/".into())));
    assert_eq!(directory.as_file(), Some(path("/a/b")));
    assert_eq!(DirPath::from_trusted("/a/".into()).parent(), Some(DirPath::root()));
    let root = DirPath::root();
    assert!(root.is_root() && !directory.is_root());
    assert_eq!((root.as_str(), root.name(), root.parent(), root.as_file()), ("/", "", None, None));
}

#[test]
fn rebased_path_is_checked() {
    let (a, b) = (path("/a").as_dir(), path("/x/y").as_dir());
    assert_eq!(path("/a/b/c").rebased(&a, &b), Ok(path("/x/y/b/c")));
    assert_eq!(path("/a/b/c").rebased(&a, &DirPath::root()), Ok(path("/b/c")));
    assert_eq!(path("/a/b").rebased(&DirPath::root(), &b), Ok(path("/x/y/a/b")));
    assert_eq!(path("/c/b").rebased(&a, &b), Err(PathError::NotBelow));
    assert_eq!(
        path(&format!("/a{}", "/s".repeat(19))).rebased(&a, &b),
        Err(PathError::TooManySegments { segments: 21 })
    );
    assert_eq!(
        path(&format!("/a/{}", "s".repeat(1021))).rebased(&a, &b),
        Err(PathError::TooLong { bytes: 1026 })
    );
    assert_eq!(path("/a/.anthropic-memory-store").rebased(&a, &DirPath::root()), Err(PathError::Reserved));
}

#[test]
fn order_is_by_bytes() {
    let mut paths = [path("/a/b"), path("/é"), path("/a-b"), path("/B")];
    paths.sort();
    assert_eq!(paths.map(|path| path.to_string()), ["/B", "/a-b", "/a/b", "/é"]);
}

#[test]
fn hidden_names_and_node_modules_are_not_visible() {
    assert!(is_visible("a") && is_visible("node_modules2") && is_visible("a.b"));
    assert!(!is_visible(".git") && !is_visible("node_modules") && !is_visible("..."));
}

#[test]
fn tool_root_maps_to_the_root_of_the_store() {
    for sent in ["/memories", "/memories/"] {
        let root = ToolPath::parse(sent).unwrap();
        assert_eq!((root.display(), root.is_root(), root.memory()), ("/memories", true, None));
        assert_eq!(root.dir(), DirPath::root());
    }
}

#[test]
fn one_trailing_slash_is_dropped() {
    let parsed = ToolPath::parse("/memories/a/b/").unwrap();
    assert_eq!((parsed.display(), parsed.is_root()), ("/memories/a/b", false));
    assert_eq!(parsed.memory(), Some(&path("/a/b")));
    assert_eq!(parsed.dir().as_str(), "/a/b/");
    assert_eq!(parsed.to_string(), "/memories/a/b");
    for sent in ["/memories//", "/memories///", "/memories/a//", "/memories//a", "/memories/a//b"] {
        let message = ToolPath::parse(sent).unwrap_err().to_string();
        assert!(message.contains("must not have an empty segment"), "{sent}: {message}");
    }
    assert_eq!(
        ToolPath::parse("/memories//").unwrap_err().to_string(),
        "Error: Path /memories// must not have an empty segment (a repeated or trailing `/`)"
    );
}

#[test]
fn tool_normalises_to_nfc() {
    let parsed = ToolPath::parse("/memories/cafe\u{301}/").unwrap();
    assert_eq!(parsed.display(), "/memories/café");
    assert_eq!(parsed, ToolPath::parse("/memories/café").unwrap());
    assert_eq!(
        ToolPath::parse("/memories/e\u{301}/..").unwrap_err().to_string(),
        "Error: Path /memories/é/.. would escape /memories directory"
    );
}

#[test]
fn path_outside_memories_is_refused_first() {
    for sent in ["/memoriesX", "/etc/passwd", "memories/a", "", "/", "..", "/memories\\a", "/memories%2fa"] {
        assert_eq!(
            ToolPath::parse(sent).unwrap_err().to_string(),
            format!("Error: Path must start with /memories, got: {sent}")
        );
    }
    for sent in ["/memories\\..\\x", "/MEMORIES", "/memories/..", "/../memories", " /memories", "/memories\0"]
    {
        let literal = sent.starts_with("/memories/");
        let refused = ToolPath::parse(sent).unwrap_err();
        assert_eq!(matches!(refused, ToolPathError::OutsideMemories { .. }), !literal, "{sent}");
    }
}

#[test]
fn long_path_is_cut_except_in_exact_protocol_messages() {
    let long = format!("/memories/{}", "é".repeat(5000));
    let message = ToolPath::parse(&long).unwrap_err().to_string();
    let shown: String = long.chars().take(200).collect();
    let rule = "is 10001 bytes long, over the limit of 1024 bytes";
    assert_eq!(message, format!("Error: Path {shown}… {rule}"));
    let escaping = format!("{long}/..");
    assert!(ToolPath::parse(&escaping).unwrap_err().to_string().contains(&escaping));
}

/// Undoes percent-encoding once, as a naive decoder does.
fn decoded_once(bytes: &[u8]) -> Vec<u8> {
    let mut decoded = Vec::new();
    let mut position = 0;
    while position < bytes.len() {
        let digits =
            bytes.get(position + 1..position + 3).and_then(|digits| std::str::from_utf8(digits).ok());
        let value = digits
            .filter(|digits| digits.bytes().all(|digit| digit.is_ascii_hexdigit()))
            .and_then(|digits| u8::from_str_radix(digits, 16).ok());
        match value {
            Some(value) if bytes[position] == b'%' => {
                decoded.push(value);
                position += 3;
            }
            _ => {
                decoded.push(bytes[position]);
                position += 1;
            }
        }
    }
    decoded
}

fn has_dot_segment(bytes: &[u8]) -> bool {
    bytes.split(|&byte| byte == b'/' || byte == b'\\').any(|segment| segment == b"." || segment == b"..")
}

/// Texts made mostly of the ingredients of traversal.
fn nearly_hostile() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        Just("/"),
        Just("."),
        Just(".."),
        Just("\\"),
        Just("%"),
        Just("%25"),
        Just("2"),
        Just("e"),
        Just("2e"),
        Just("%2e"),
        Just("%2f"),
        Just("%5C"),
        Just("%32"),
        Just("%65"),
        Just("%c0"),
        Just("%ae"),
        Just("%u002e"),
        Just("u"),
        Just("00"),
        Just("a"),
        Just("é"),
    ];
    proptest::collection::vec(piece, 0..16).prop_map(|pieces| pieces.concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4096))]

    #[test]
    fn accepted_path_has_no_dot_segment_after_repeated_decoding(rest in nearly_hostile()) {
        if let Ok(accepted) = MemoryPath::parse(&format!("/{rest}")) {
            let mut bytes = accepted.as_str().as_bytes().to_vec();
            loop {
                prop_assert!(!has_dot_segment(&bytes), "{accepted}");
                let next = decoded_once(&bytes);
                if next == bytes {
                    break;
                }
                bytes = next;
            }
        }
    }

    #[test]
    fn tool_path_parses_to_itself(rest in prop_oneof![nearly_hostile(), "\\PC{0,20}", "[a-zé/]{0,20}"]) {
        for sent in [format!("/memories/{rest}"), format!("/memories{rest}/"), rest] {
            if let Ok(parsed) = ToolPath::parse(&sent) {
                prop_assert_eq!(ToolPath::parse(parsed.display()), Ok(parsed.clone()));
                let root = "/memories".to_owned();
                prop_assert_eq!(parsed.memory().map_or(root, |memory| tool_display(None, memory)), parsed.display());
            }
        }
    }

    #[test]
    fn memory_path_rebuilds_from_its_parts(text in "(/[a-c.é%]{1,3}){1,6}") {
        let Ok(path) = MemoryPath::parse(&text) else { return Ok(()) };
        prop_assert_eq!(format!("{}{}", path.parent(), path.name()), text);
        prop_assert_eq!(path.as_dir().as_file(), Some(path.clone()));
        prop_assert_eq!(path.ancestors().last(), Some(path.parent()));
        for directory in path.ancestors() {
            prop_assert!(path.is_below(&directory));
            prop_assert_eq!(path.rebased(&directory, &directory), Ok(path.clone()));
        }
        let ancestors = path.ancestors().filter_map(|directory| directory.as_file());
        let files: Vec<String> = ancestors.map(|file| file.to_string()).collect();
        prop_assert_eq!(files, path.ancestor_files().collect::<Vec<_>>());
    }

    #[test]
    fn every_rule_is_a_phrase_for_any_text(text in "\\PC{0,40}") {
        if let Err(rule) = MemoryPath::parse(&text) {
            let phrase = rule.to_string();
            let begins = ["must ", "is ", "has "].iter().any(|verb| phrase.starts_with(verb));
            prop_assert!(begins && !phrase.ends_with('.'));
        }
    }
}
