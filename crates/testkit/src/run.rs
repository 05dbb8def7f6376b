//! What a whole test run keeps: the secrets that it used, and every log.
//!
//! `tests/run` names a folder in `FOLDER_VARIABLE`, and when all tests have
//! ended looks for each secret in each log: one may turn up in the log of a
//! server that another test started. Without the folder nothing is kept.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::Mutex;

use crate::locked;

const FOLDER_VARIABLE: &str = "KEEPSAKE_TEST_RUN_DIR";
/// Secrets, one a line after its kind and a tab.
const SECRETS_FILE: &str = "secrets";
/// A shorter text would be found everywhere.
pub const MIN_SECRET_CHARS: usize = 8;

static REMEMBERED: Mutex<BTreeMap<String, &'static str>> = Mutex::new(BTreeMap::new());

/// Notes a secret, and what it is: no server may ever log it.
///
/// Each line of a longer text is a secret.
pub fn remember(secret: &str, kind: &'static str) {
    let mut remembered = locked(&REMEMBERED);
    for line in secret.lines().filter(|line| line.len() >= MIN_SECRET_CHARS) {
        if remembered.insert(line.to_owned(), kind).is_some() {
            continue;
        }
        let Some(folder) = folder() else { continue };
        let noted = append(&folder.join(SECRETS_FILE), &format!("{kind}\t{line}\n"));
        noted.expect("a secret cannot be noted in the run's folder");
    }
}

pub fn remembered() -> BTreeMap<String, &'static str> {
    locked(&REMEMBERED).clone()
}

/// A file in the run's folder for one server's log.
pub(crate) fn new_log() -> Option<File> {
    let folder = folder()?.join("logs");
    let log = folder.join(format!("{}.log", uuid::Uuid::new_v4().simple()));
    let made = std::fs::create_dir_all(&folder).and_then(|()| File::create(log));
    Some(made.expect("a log cannot be kept in the run's folder"))
}

pub(crate) fn folder() -> Option<PathBuf> {
    std::env::var_os(FOLDER_VARIABLE).filter(|folder| !folder.is_empty()).map(PathBuf::from)
}

/// One write, so that processes at the same time do not mix their lines.
fn append(file: &std::path::Path, line: &str) -> io::Result<()> {
    let mut file = OpenOptions::new().create(true).append(true).open(file)?;
    file.write_all(line.as_bytes())
}
