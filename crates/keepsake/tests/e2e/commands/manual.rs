use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use tempfile::TempDir;

use crate::support::command::keepsake;
use crate::support::repository;

/// Set to write the manual pages instead of comparing them.
const UPDATE: &str = "UPDATE_MANUAL";

/// The pages in a folder, by their names.
fn pages(folder: &Path) -> BTreeMap<String, String> {
    let files = fs::read_dir(folder).unwrap().map(Result::unwrap);
    let page = |file: fs::DirEntry| {
        (file.file_name().into_string().unwrap(), fs::read_to_string(file.path()).unwrap())
    };
    files.map(page).collect()
}

#[tokio::test]
async fn manual_pages_are_those_of_the_code() {
    let (folder, checked_in) = (TempDir::new().unwrap(), repository().join("docs/man"));
    let folder_name = folder.path().to_string_lossy();
    keepsake(&["man", "--dir", &folder_name]).await.ok();
    let made = pages(folder.path());
    if std::env::var_os(UPDATE).is_some() {
        fs::remove_dir_all(&checked_in).ok();
        fs::create_dir_all(&checked_in).unwrap();
        for (name, text) in &made {
            fs::write(checked_in.join(name), text).unwrap();
        }
    }
    let known = pages(&checked_in);
    assert!(made.keys().eq(known.keys()), "{UPDATE}=1 writes the pages again");
    for (name, text) in made {
        assert!(text == known[&name], "{name} differs; {UPDATE}=1 writes the pages again");
    }
}
