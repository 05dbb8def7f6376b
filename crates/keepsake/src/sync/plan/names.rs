//! Names that exclude each other: files and directories, spellings, kept files.

use std::collections::{BTreeMap, BTreeSet};

use keepsake_core::MemoryPath;

use super::Side;

/// The longest name of a file, in bytes, on common file systems.
pub(in crate::sync) const MAX_NAME_BYTES: usize = 255;

/// The files of one side, with the directories above them.
pub(super) struct Names {
    files: BTreeSet<String>,
    /// Prefixes in one spelling, if the file system ignores case.
    spellings: Option<BTreeMap<String, String>>,
}

impl Names {
    pub(super) fn new<'a>(paths: impl Iterator<Item = &'a MemoryPath>) -> Self {
        Self { files: paths.map(|path| path.as_str().to_owned()).collect(), spellings: None }
    }

    pub(super) fn blocked<T>(side: &BTreeMap<MemoryPath, Side<T>>) -> Self {
        let blocked = side.iter().filter(|(_, side)| matches!(side, Side::Blocked));
        Self::new(blocked.map(|(path, _)| path))
    }

    /// The same names on a file system that takes `a` and `A` for one.
    pub(super) fn ignoring_case(mut self) -> Self {
        let mut spellings = BTreeMap::new();
        for file in &self.files {
            spell(&mut spellings, file);
        }
        self.spellings = Some(spellings);
        self
    }

    pub(super) fn add(&mut self, path: &MemoryPath) {
        self.files.insert(path.as_str().to_owned());
        if let Some(spellings) = &mut self.spellings {
            spell(spellings, path.as_str());
        }
    }

    /// Whether the path or a directory above it is one of the names.
    pub(super) fn covers(&self, path: &MemoryPath) -> bool {
        self.files.contains(path.as_str()) || path.ancestor_files().any(|above| self.files.contains(above))
    }

    /// The place at which a file and a directory meet, if `path` were added.
    pub(super) fn in_the_way_of(&self, path: &MemoryPath) -> Option<MemoryPath> {
        let mut above = path.ancestors().filter_map(|directory| directory.as_file());
        if let Some(above) = above.find(|above| self.files.contains(above.as_str())) {
            return Some(above);
        }
        let below = format!("{}/", path.as_str());
        let first = self.files.range(below.clone()..).next();
        first.is_some_and(|file| file.starts_with(&below)).then(|| path.clone())
    }

    /// Whether the path differs only by case from another file or directory.
    pub(super) fn is_other_spelling(&self, path: &MemoryPath) -> bool {
        let Some(spellings) = &self.spellings else {
            return false;
        };
        prefixes(path.as_str())
            .any(|prefix| spellings.get(&prefix.to_lowercase()).is_some_and(|spelling| spelling != prefix))
    }
}

/// The path and every directory above it.
fn prefixes(path: &str) -> impl Iterator<Item = &str> {
    let above = path.match_indices('/').skip(1).map(|(end, _)| &path[..end]);
    above.chain([path])
}

fn spell(spellings: &mut BTreeMap<String, String>, path: &str) {
    for prefix in prefixes(path) {
        spellings.entry(prefix.to_lowercase()).or_insert_with(|| prefix.to_owned());
    }
}

/// The path of the conflict copy of the file at `path`: `place`, which is that path or a
/// directory above it, gets a free name such as `notes.conflict-20260102T030405Z.md`.
pub(in crate::sync) fn conflict_path(
    path: &MemoryPath,
    place: &MemoryPath,
    time: &str,
    taken: &BTreeSet<MemoryPath>,
) -> MemoryPath {
    let rest = &path.as_str()[place.as_str().len()..];
    let (stem, extension) = match place.name().rsplit_once('.') {
        Some((stem, extension)) if !stem.is_empty() && rest.is_empty() => (stem, format!(".{extension}")),
        _ => (place.name(), String::new()),
    };
    // A long extension is part of the name.
    let (stem, extension) =
        if extension.len() > 16 { (place.name(), String::new()) } else { (stem, extension) };
    let parent = place.parent();
    let mut number = 1;
    loop {
        let again = if number == 1 { String::new() } else { format!("-{number}") };
        let suffix = format!(".conflict-{time}{again}{extension}");
        // Below a long directory there may be no room for a longer name.
        for (directory, rest) in [(parent.as_str(), rest), ("/", "")] {
            for length in (0..=stem.len()).rev().filter(|length| stem.is_char_boundary(*length)) {
                let name = format!("{}{suffix}", &stem[..length]);
                let candidate = MemoryPath::parse(&format!("{directory}{name}{rest}"));
                let Ok(candidate) = candidate else { continue };
                if name.len() > MAX_NAME_BYTES {
                    continue;
                }
                if !is_taken(&candidate, taken) {
                    return candidate;
                }
                break;
            }
        }
        number += 1;
    }
}

fn is_taken(path: &MemoryPath, taken: &BTreeSet<MemoryPath>) -> bool {
    let below = path.as_dir();
    let mut above = path.ancestors().filter_map(|directory| directory.as_file());
    taken.contains(path)
        || above.any(|above| taken.contains(&above))
        || taken
            .range(path..)
            .take_while(|next| next.as_str().starts_with(path.as_str()))
            .any(|next| next.is_below(&below))
}

#[cfg(test)]
mod tests {
    use super::super::tests::path;
    use super::*;

    fn kept(text: &str, place: &str, taken: &[&str]) -> String {
        let taken = taken.iter().map(|text| path(text)).collect();
        conflict_path(&path(text), &path(place), "T", &taken).as_str().to_owned()
    }

    #[test]
    fn kept_file_has_a_free_name_that_a_file_system_takes() {
        assert_eq!(kept("/a/n.md", "/a/n.md", &[]), "/a/n.conflict-T.md");
        assert_eq!(kept("/n", "/n", &[]), "/n.conflict-T");
        assert_eq!(kept("/n.md", "/n.md", &["/n.conflict-T.md"]), "/n.conflict-T-2.md");
        assert_eq!(kept("/d.x/y/n.md", "/d.x", &[]), "/d.x.conflict-T/y/n.md");
        assert_eq!(kept("/n", "/n", &["/n.conflict-T/x"]), "/n.conflict-T-2");
        let long = format!("/{}.md", "é".repeat(126));
        let kept_as = kept(&long, &long, &[]);
        assert!(kept_as.len() - 1 <= MAX_NAME_BYTES && kept_as.ends_with(".conflict-T.md"), "{kept_as}");
        let deep = format!("/0123456789012345{}/n.md", format!("/{}", "d".repeat(199)).repeat(5));
        assert_eq!(kept(&deep, &deep, &[]), "/n.conflict-T.md");
    }
}
