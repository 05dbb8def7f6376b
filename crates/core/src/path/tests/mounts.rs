//! Paths in a session, whose stores are directories below `/memories`.

use super::*;

fn root() -> ToolRoot {
    ToolRoot::Mounts(vec!["notes".to_owned(), "team-2".to_owned()].into())
}

fn parsed(text: &str) -> ToolPath {
    ToolPath::parse_in(text, &root()).unwrap()
}

fn error_of(text: &str) -> String {
    ToolPath::parse_in(text, &root()).unwrap_err().to_string()
}

#[test]
fn path_resolves_to_its_mount() {
    let file = parsed("/memories/team-2/a/b.md");
    assert_eq!(file.mount(), Some(1));
    assert_eq!(file.memory(), Some(&path("/a/b.md")));
    assert_eq!(file.display_of(&path("/c.md")), "/memories/team-2/c.md");
    assert!(!file.is_root() && !file.is_mounts());
    let mount = parsed("/memories/notes/");
    assert!(mount.is_root() && !mount.is_mounts());
    assert_eq!((mount.mount(), mount.dir()), (Some(0), DirPath::root()));
    for text in ["/memories", "/memories/", "/mnt/memory"] {
        let place = parsed(text);
        assert!(place.is_mounts() && place.is_root() && place.mount().is_none(), "{text}");
    }
    let mounted = parsed("/mnt/memory/team-2/a/b.md/");
    assert_eq!(mounted.display(), "/mnt/memory/team-2/a/b.md");
    assert_eq!((mounted.mount(), mounted.memory()), (file.mount(), file.memory()));
    assert_eq!(mounted.display_of(&path("/c.md")), "/mnt/memory/team-2/c.md");
}

#[test]
fn path_outside_all_mounts_error_lists_the_mounts() {
    for text in ["/memories/other/a.md", "/memories/note", "/memories/Notes/a", "/memories//notes/a"] {
        assert_eq!(
            error_of(text),
            format!(
                "Error: Path {text} is in no memory store of this session. \
                 Its memory stores are: /memories/notes, /memories/team-2"
            )
        );
    }
    let none = ToolPath::parse_in("/memories/a", &ToolRoot::Mounts([].into())).unwrap_err();
    assert!(none.to_string().ends_with("None is attached."), "{none}");
}

#[test]
fn path_rules_apply_in_mounts() {
    for rest in HOSTILE {
        for place in ["/memories/", "/memories/notes/", "/mnt/memory/"] {
            let text = format!("{place}{rest}");
            let shown = text.strip_suffix('/').unwrap_or(&text);
            assert_eq!(error_of(&text), format!("Error: Path {shown} would escape /memories directory"));
        }
    }
    assert!(error_of("/memories/notes/.anthropic-memory-store/x").contains("reserved"));
    assert!(error_of("/memories/notes//a").contains("empty"));
    assert!(error_of("/memoriesX/notes/a").starts_with("Error: Path must start with /memories"));
    // The limits apply to the path inside the store.
    assert!(ToolPath::parse_in(&format!("/memories/notes{}", "/a".repeat(20)), &root()).is_ok());
    assert!(ToolPath::parse_in(&format!("/memories/notes{}", "/a".repeat(21)), &root()).is_err());
    assert!(ToolPath::parse("/mnt/memory/notes/a.md").is_err());
}
