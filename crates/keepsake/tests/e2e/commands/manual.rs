use std::fs;

use super::files;
use crate::prelude::*;

/// Set to write the manual pages instead of comparing them.
const UPDATE: &str = "UPDATE_MANUAL";

#[tokio::test]
async fn manual_pages_are_those_of_the_code() {
    let (folder, checked_in) = (TempDir::new().unwrap(), repository().join("docs/man"));
    keepsake(&["man", "--dir", &folder.path().to_string_lossy()]).await.ok();
    let made = files(&folder);
    if std::env::var_os(UPDATE).is_some() {
        fs::remove_dir_all(&checked_in).ok();
        fs::create_dir_all(&checked_in).unwrap();
        for (name, page) in &made {
            fs::write(checked_in.join(name), page).unwrap();
        }
    }
    let known = files(&checked_in);
    assert!(made.keys().eq(known.keys()), "{UPDATE}=1 writes the pages again");
    for (name, page) in made {
        assert!(page == known[&name], "{name} differs; {UPDATE}=1 writes the pages again");
    }
}
