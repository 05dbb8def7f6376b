//! Which paths are synchronised at all, on both sides.

use std::path::Path;

use ignore::gitignore::{Gitignore, GitignoreBuilder};
use keepsake_config::{Failure, cli::Result};
use keepsake_core::{MemoryPath, nfc};

use super::plan::MAX_NAME_BYTES;
use crate::open_folder::{if_there, read_named};

/// The file in the folder with the patterns of ignored paths.
pub(super) const IGNORE_FILE: &str = ".keepsakeignore";

const MAX_RULES_BYTES: u64 = 1 << 20;
const HIDDEN: &str = "hidden";
const IGNORED: &str = "listed in .keepsakeignore";

#[derive(Debug)]
pub(super) struct Scope {
    ignored: Gitignore,
}

impl Scope {
    pub(super) fn read(root: &Path) -> Result<Self> {
        let file = root.join(IGNORE_FILE);
        let failed = |error: &dyn std::fmt::Display| Failure::usage(format!("{}: {error}", file.display()));
        let bytes = match if_there(read_named(&file, MAX_RULES_BYTES)).map_err(|error| failed(&error))? {
            Some(Some(bytes)) => bytes,
            Some(None) => return Err(failed(&format_args!("it has more than {MAX_RULES_BYTES} bytes"))),
            None => Vec::new(),
        };
        let text = String::from_utf8(bytes).map_err(|_| failed(&"it is not UTF-8 text"))?;
        // Relative to no folder: paths of memories are matched, too.
        let mut builder = GitignoreBuilder::new("");
        for (number, line) in text.lines().enumerate() {
            builder
                .add_line(None, &nfc(line))
                .map_err(|error| failed(&format_args!("line {}: {error}", number + 1)))?;
        }
        let ignored = builder.build().map_err(|error| failed(&error))?;
        Ok(Self { ignored })
    }

    /// Why an entry of a synchronised directory is not synchronised.
    pub(super) fn excludes_entry(&self, path: &str, is_directory: bool) -> Option<&'static str> {
        let relative = path.trim_start_matches('/');
        let name = relative.rsplit('/').next().unwrap_or_default();
        if name.starts_with('.') {
            Some(HIDDEN)
        } else if self.ignored.matched(relative, is_directory).is_ignore() {
            Some(IGNORED)
        } else if name.len() > MAX_NAME_BYTES {
            Some("the name has more than 255 bytes")
        } else {
            None
        }
    }

    pub(super) fn excludes(&self, path: &MemoryPath) -> Option<&'static str> {
        path.ancestor_files()
            .find_map(|above| self.excludes_entry(above, true))
            .or_else(|| self.excludes_entry(path.as_str(), false))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scope(rules: &str) -> Result<Scope> {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join(IGNORE_FILE), rules).unwrap();
        Scope::read(folder.path())
    }

    #[test]
    fn rules_have_the_syntax_of_gitignore_and_a_malformed_one_is_refused_with_its_line() {
        let rules = "# drafts\n*.tmp\n/build/\n!keep.tmp\nprivate/*\n!private/shared.md\ncafe\u{301}/\n";
        let read = scope(rules).unwrap();
        let excluded =
            "/a.tmp /café/a.md /d/a.tmp /build/a.md /private/a.md /.hidden /.git/config ".to_owned();
        let excluded = excluded + "/" + &"a".repeat(256);
        let others = "/a.md /keep.tmp /d/build/a.md /build /private/shared.md";
        for (paths, is_excluded) in [(excluded.as_str(), true), (others, false)] {
            for path in paths.split(' ') {
                let found = read.excludes(&MemoryPath::parse(path).unwrap());
                assert_eq!(found.is_some(), is_excluded, "{path}: {found:?}");
            }
        }
        let refused = scope("*.md\na{b\n").unwrap_err();
        assert!(refused.to_string().contains("line 2"), "{refused}");
        assert_eq!(refused.exit_code(), 2);
    }
}
