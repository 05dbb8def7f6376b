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
    for (paths, rule) in [
        (&["", "a/b", "../a"][..], PathError::NotAbsolute),
        (&["/"], PathError::IsRoot),
        (&["//", "/a/", "/a//b"], PathError::EmptySegment),
        (&["/a\u{200b}", "/a\u{ad}", "/\u{feff}a", "/\u{202e}a", "/\u{e0041}"], PathError::Format),
        (&["/a\u{2028}", "/a\u{2029}b"], PathError::LineSeparator),
        // In any segment.
        (&["/e\u{301}", "/e\u{301}/b", "/a/e\u{301}/b", "/é/e\u{301}/é", "/\u{212b}"], PathError::NotNfc),
        (&["/.anthropic-memory-store", "/.anthropic-memory-store/a/b"], PathError::Reserved),
    ] {
        for path in paths {
            assert_eq!(refusal(path), rule, "{path:?}");
        }
    }
}

#[test]
fn hostile_length_takes_linear_time() {
    for rest in [
        format!("%{}2e", "25".repeat(2_000_000)),
        "%".repeat(1_000_000) + &"25".repeat(1_000_000),
        "\u{301}\u{323}".repeat(500_000),
    ] {
        assert!(ToolPath::parse(&format!("/memories/{rest}")).is_err());
    }
}

#[test]
fn directory_paths_have_parents_names_and_files() {
    let directory = DirPath::from_trusted("/a/b/".into());
    assert_eq!((directory.name(), directory.as_file()), ("b", Some(path("/a/b"))));
    assert_eq!(directory.parent(), Some(DirPath::from_trusted("/a/".into())));
    let root = DirPath::root();
    assert_eq!((root.as_str(), root.name(), root.parent(), root.as_file()), ("/", "", None, None));
    for outside in ["/a/b", "/a/bc", "/b/a/b/c"] {
        assert!(!path(outside).is_below(&directory), "{outside}");
    }
    // A path that moves is checked as a new one is.
    let moved = |rest: &str| path(&format!("/a/{rest}")).rebased(&path("/a").as_dir(), &root);
    assert_eq!(moved("b/c"), Ok(path("/b/c")));
    assert_eq!(moved(".anthropic-memory-store"), Err(PathError::Reserved));
}

#[test]
fn long_path_is_cut_with_its_number_of_characters() {
    let long = format!("/memories/{}", "é".repeat(5000));
    let message = ToolPath::parse(&long).unwrap_err().to_string();
    let shown: String = long.chars().take(200).collect();
    let rule = "is 10001 bytes long, over the limit of 1024 bytes";
    assert_eq!(message, format!("Error: Path {shown}… (5010 characters) {rule}"));
    for sent in [format!("{long}/.."), long.replace("/memories", "/memory")] {
        assert!(ToolPath::parse(&sent).unwrap_err().to_string().chars().count() < 300);
    }
}

/// Undoes percent-encoding once, as a naive decoder does.
fn decoded_once(bytes: &[u8]) -> Vec<u8> {
    let (mut decoded, mut rest) = (Vec::new(), bytes);
    while let [first, after @ ..] = rest {
        let digits = after.get(..2).filter(|_| *first == b'%');
        let value = digits.and_then(|digits| hex::decode(digits).ok());
        decoded.push(value.as_ref().map_or(*first, |value| value[0]));
        rest = if value.is_some() { &after[2..] } else { after };
    }
    decoded
}

/// Texts made mostly of the ingredients of traversal.
fn nearly_hostile() -> impl Strategy<Value = String> {
    let pieces = "/ . .. \\ % %25 2 e 2e %2e %2f %5C %32 %65 %c0 %ae %u002e u 00 a é";
    let piece = proptest::sample::select(pieces.split(' ').collect::<Vec<_>>());
    proptest::collection::vec(piece, 0..16).prop_map(|pieces| pieces.concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4096))]

    #[test]
    fn accepted_path_has_no_dot_segment_after_repeated_decoding(rest in nearly_hostile()) {
        if let Ok(accepted) = MemoryPath::parse(&format!("/{rest}")) {
            let mut bytes = accepted.as_str().as_bytes().to_vec();
            loop {
                let mut segments = bytes.split(|&byte| byte == b'/' || byte == b'\\');
                prop_assert!(segments.all(|segment| segment != b"." && segment != b".."), "{accepted}");
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
        prop_assert_eq!(path.ancestors().next(), Some(DirPath::root()));
        for directory in path.ancestors() {
            prop_assert!(path.is_below(&directory));
            prop_assert_eq!(path.rebased(&directory, &directory), Ok(path.clone()));
        }
        let ancestors = path.ancestors().filter_map(|directory| directory.as_file());
        let files: Vec<String> = ancestors.map(|file| file.to_string()).collect();
        prop_assert_eq!(files, path.ancestor_files().collect::<Vec<_>>());
    }
}
