//! Paths in a session, whose stores are directories below `/memories`.

use super::*;

fn root() -> ToolRoot {
    ToolRoot::Mounts(vec!["notes".to_owned(), "team-2".to_owned()].into())
}

fn error_of(text: &str) -> String {
    ToolPath::parse_in(text, &root()).unwrap_err().to_string()
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
    let mount = ToolPath::parse_in("/memories/notes/", &root()).unwrap();
    assert_eq!((mount.mount(), mount.dir()), (Some(0), DirPath::root()));
    // The limits apply to the path inside the store.
    assert!(ToolPath::parse_in(&format!("/memories/notes{}", "/a".repeat(20)), &root()).is_ok());
    assert!(ToolPath::parse_in(&format!("/memories/notes{}", "/a".repeat(21)), &root()).is_err());
    assert!(ToolPath::parse("/mnt/memory/notes/a.md").is_err());
}
