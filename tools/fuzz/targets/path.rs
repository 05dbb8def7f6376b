//! Paths: an accepted path keeps every rule, however it is decoded afterwards.

#![no_main]

use keepsake_core::path::{MemoryPath, ToolPath, ToolPathError, tool_display};
use libfuzzer_sys::fuzz_target;

/// What percent-encoding and backslashes could stand for, undone naively until
/// nothing changes.
fn as_others_read_it(path: &str) -> String {
    const MEANINGS: [(&str, &str); 4] = [("%25", "%"), ("%2e", "."), ("%2f", "/"), ("%5c", "/")];
    let mut read = path.to_ascii_lowercase().replace('\\', "/");
    loop {
        let mut next = read.clone();
        for (encoded, meaning) in MEANINGS {
            next = next.replace(encoded, meaning);
        }
        if next == read {
            return read;
        }
        read = next;
    }
}

fn assert_good(path: &MemoryPath) {
    let text = path.as_str();
    assert!(text.len() <= 1024);
    let segments: Vec<_> = text.split('/').skip(1).collect();
    assert!((1..=20).contains(&segments.len()));
    assert!(text.starts_with('/') && segments.iter().all(|segment| !segment.is_empty()));
    assert!(
        !text
            .chars()
            .any(|c| c.is_control() || matches!(c, '\u{2028}' | '\u{2029}' | '\u{200b}' | '\u{feff}'))
    );
    assert_ne!(segments[0], ".anthropic-memory-store");
    let read = as_others_read_it(text);
    assert!(!read.split('/').any(|segment| segment == "." || segment == ".."), "{text:?}");
}

fn assert_parts_fit(path: &MemoryPath) {
    let parent = path.parent();
    assert_eq!(format!("{parent}{}", path.name()), path.as_str());
    assert!(path.is_below(&parent));
    assert_eq!(path.rebased(&parent, &parent).as_ref(), Ok(path));
    assert_eq!(path.as_dir().as_file().as_ref(), Some(path));
    assert_eq!(path.as_dir().parent().as_ref(), Some(&parent));
    let ancestors: Vec<_> = path.ancestors().collect();
    assert!(ancestors[0].is_root());
    assert_eq!(ancestors.last(), Some(&parent));
    assert!(ancestors.iter().all(|ancestor| path.is_below(ancestor)));
    for (file, ancestor) in path.ancestor_files().zip(&ancestors[1..]) {
        assert_eq!(ancestor.as_file().map(|file| file.to_string()).as_deref(), Some(file));
    }
}

fuzz_target!(|text: &str| {
    if let Ok(path) = MemoryPath::parse(text) {
        assert_eq!(path.as_str(), text);
        assert_good(&path);
        assert_parts_fit(&path);
        let shown = ToolPath::parse(&tool_display(None, &path)).unwrap();
        assert_eq!(shown.memory(), Some(&path));
    }
    match ToolPath::parse(text) {
        Ok(path) => {
            assert!(path.display() == "/memories" || path.display().starts_with("/memories/"));
            assert_eq!(ToolPath::parse(path.display()).as_ref(), Ok(&path));
            path.memory().into_iter().for_each(assert_good);
            assert_eq!(path.dir().is_root(), path.is_root());
        }
        // A refusal with Keepsake's wording repeats only a part of a long path.
        Err(refusal @ ToolPathError::BreaksRule { .. }) => assert!(refusal.to_string().len() < 1200),
        Err(refusal) => assert!(refusal.to_string().starts_with("Error: Path ")),
    }
});
