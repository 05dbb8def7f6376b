//! Contexts: the servers that the commands know, with their API keys.
//!
//! They are kept in `contexts.toml`, which only its owner can read:
//!
//! ```toml
//! current = "dev"
//!
//! [contexts.dev]
//! url = "http://127.0.0.1:8080"
//! api_key = "ks_live_…"
//! store = "memstore_…"
//! ```

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use keepsake_config::{Failure, cli::Result};
use serde::{Deserialize, Serialize};

use crate::data_dir::{folder_of_user, make_private_folder, write_private_file};
use crate::open_folder::if_there;
use crate::output::notice;

/// The context of the first data folder of `serve --dev`.
const DEV: &str = "dev";

#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Contexts {
    /// The context that commands use unless another is named.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) current: Option<String>,
    #[serde(default)]
    pub(crate) contexts: BTreeMap<String, Context>,
}

#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Context {
    pub(crate) url: String,
    pub(crate) api_key: String,
    /// An id or a name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) store: Option<String>,
    /// The data folder of the `serve --dev` that made the context.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) data_dir: Option<String>,
}

// Without the key, which must not appear in a log.
impl std::fmt::Debug for Context {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Context").field("url", &self.url).field("store", &self.store).finish_non_exhaustive()
    }
}

impl Contexts {
    /// The contexts of this user, and their file.
    pub(crate) fn of_user() -> Result<(Self, PathBuf)> {
        let path = default_file()?;
        Ok((Self::read(&path)?, path))
    }

    /// Reads the file; without a file there are no contexts.
    pub(crate) fn read(path: &Path) -> Result<Self> {
        let failed = |place: &str, why: &dyn std::fmt::Display| {
            let path = path.display();
            Failure::new(format!(
                "{path} cannot be read: {place}{why}; correct it, or remove it and `keepsake login URL` again"
            ))
        };
        warn_of_readers(path);
        let text = if_there(std::fs::read_to_string(path)).map_err(|error| failed("", &error))?;
        let Some(text) = text else { return Ok(Self::default()) };
        toml::from_str(&text).map_err(|error| {
            // The error's message is left out: it may quote a value, and so a key.
            let before = error.span().and_then(|span| text.get(..span.start)).unwrap_or_default();
            let (line, column) = before
                .rsplit_once('\n')
                .map_or((1, before), |(lines, start)| (lines.matches('\n').count() + 2, start));
            let place = format!("line {line}, column {}: ", column.chars().count() + 1);
            failed(&place, &"this is not valid TOML, or a field is missing, unknown or not a text")
        })
    }

    /// Replaces the file atomically.
    pub(crate) fn write(&self, path: &Path) -> Result<()> {
        let failed = || format!("{} cannot be written", path.display());
        let text = toml::to_string(self).map_err(Failure::of(failed()))?;
        if let Some(folder) = path.parent() {
            make_private_folder(folder)?;
        }
        write_private_file(path, &text).map_err(Failure::of(failed()))
    }

    /// Adds or replaces a context. The first one becomes the current one.
    pub(crate) fn insert(&mut self, name: &str, context: Context) {
        self.contexts.insert(name.to_owned(), context);
        self.current.get_or_insert_with(|| name.to_owned());
    }

    /// Adds or replaces the context of a data folder, and answers its name. The store that a person
    /// chose for it stays, and so do contexts of other folders and servers, unless their folder is gone.
    pub(crate) fn insert_dev(&mut self, mut context: Context) -> String {
        let is_own = |known: &Context| match &known.data_dir {
            Some(folder) => context.data_dir.as_ref() == Some(folder),
            // An earlier version did not note the folder.
            None => known.api_key == context.api_key,
        };
        let own = self.contexts.iter().find(|(_, known)| is_own(known)).map(|(name, _)| name.clone());
        let name = own.unwrap_or_else(|| self.free_dev_name(context.data_dir.as_deref().unwrap_or_default()));
        let known = self.contexts.get(&name).filter(|known| known.api_key == context.api_key);
        if let Some(store) = known.and_then(|known| known.store.clone()) {
            context.store = Some(store);
        }
        self.insert(&name, context);
        name
    }

    /// Returns the first name of `dev`, `dev-FOLDER`, `dev-FOLDER-2`, … that no context has. A name
    /// is also free if the data folder of its context no longer exists.
    fn free_dev_name(&self, folder: &str) -> String {
        let is_gone = |folder: &String| !Path::new(folder).exists();
        let is_free = |name: &String| {
            self.contexts.get(name).is_none_or(|known| known.data_dir.as_ref().is_some_and(is_gone))
        };
        let folder = Path::new(folder).file_name().unwrap_or_default().to_string_lossy();
        let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "._-".contains(letter);
        // A folder without such a letter adds nothing: `dev-2` follows `dev`.
        let plain = folder.split(|letter: char| !is_plain(letter)).filter(|part| !part.is_empty());
        let named = [DEV].into_iter().chain(plain).collect::<Vec<_>>().join("-");
        let numbered = (2..).map(|number| format!("{named}-{number}"));
        let mut candidates = [DEV.to_owned(), named.clone()].into_iter().chain(numbered);
        candidates.find(is_free).unwrap_or_default()
    }

    /// The context of this name, or the current one.
    pub(crate) fn find(&self, name: Option<&str>) -> Result<Option<(&str, &Context)>> {
        let Some(name) = name.or(self.current.as_deref()) else {
            return Ok(None);
        };
        match self.contexts.get_key_value(name) {
            Some((name, context)) => Ok(Some((name, context))),
            None => Err(Failure::not_found(format!(
                "there is no context `{name}`; `keepsake context list` shows all"
            ))),
        }
    }
}

/// Whether a `serve --dev` of this user has made a context with this URL: then the reader is the
/// operator.
pub(crate) fn is_dev(url: &str) -> bool {
    let has_url = |context: &Context| context.url.trim_end_matches('/') == url.trim_end_matches('/');
    Contexts::of_user().is_ok_and(|(known, _)| {
        known.contexts.values().any(|context| context.data_dir.is_some() && has_url(context))
    })
}

/// Warns if others on this machine may read the API keys.
fn warn_of_readers(path: &Path) {
    let mode = std::fs::metadata(path).map(|file| file.permissions().mode());
    if mode.is_ok_and(|mode| mode & 0o077 != 0) {
        let path = path.display();
        notice(&format!(
            "other users of this machine may read the API keys in {path}: `chmod 600 {path}` stops that"
        ));
    }
}

pub(crate) fn default_file() -> Result<PathBuf> {
    file_of_user(|name| std::env::var_os(name))
}

fn file_of_user(variable: impl Fn(&str) -> Option<OsString>) -> Result<PathBuf> {
    folder_of_user(variable, "XDG_CONFIG_HOME", ".config")
        .map(|folder| folder.join("contexts.toml"))
        .ok_or_else(|| Failure::new("contexts.toml has no place: neither HOME nor XDG_CONFIG_HOME is set"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_data_folder_has_its_own_context() {
        let base = tempfile::tempdir().unwrap();
        let [one, two] = ["a/data", "b/data"].map(|name| base.path().join(name));
        let mut contexts = Contexts::default();
        let mut start = |folder: &Path, api_key: &str| {
            std::fs::create_dir_all(folder).unwrap();
            let data_dir = Some(folder.display().to_string());
            let context =
                Context { url: "http://a".to_owned(), api_key: api_key.to_owned(), store: None, data_dir };
            contexts.insert_dev(context)
        };
        for (folder, key, name) in [
            (&one, "k1", "dev"),
            (&two, "ks_live_2", "dev-data"),
            (&one, "k3", "dev"),
            (&base.path().join("c/data"), "k4", "dev-data-2"),
            (&base.path().join("a é b"), "k5", "dev-a-b"),
            (&base.path().join("日 本"), "k6", "dev-2"),
        ] {
            assert_eq!(start(folder, key), name);
        }
        std::fs::remove_dir_all(&one).unwrap();
        assert_eq!(start(&base.path().join("d"), "k7"), "dev");
        let other = contexts.contexts["dev-data"].clone();
        assert!(other.api_key == "ks_live_2" && !format!("{other:?}").contains("ks_live"));
        // Of an earlier version.
        contexts.contexts.get_mut("dev").unwrap().data_dir = None;
        let unknown = Context { data_dir: Some("/e".to_owned()), ..other.clone() };
        assert_eq!(contexts.insert_dev(unknown), "dev-e");
        let known = Context { api_key: "k7".to_owned(), data_dir: Some("/f".to_owned()), ..other };
        assert_eq!(contexts.insert_dev(known.clone()), "dev");
        contexts.contexts.get_mut("dev").unwrap().store = Some("notes".to_owned());
        contexts.insert_dev(known);
        assert_eq!(contexts.contexts["dev"].store.as_deref(), Some("notes"));
    }

    #[test]
    fn place_of_the_file_follows_the_environment() {
        let place = |home: Option<&str>, config: Option<&str>| {
            file_of_user(|name| match name {
                "HOME" => home.map(OsString::from),
                "XDG_CONFIG_HOME" => config.map(OsString::from),
                _ => None,
            })
        };
        for (config, file) in [
            (None, "/h/.config/keepsake/contexts.toml"),
            (Some("/c"), "/c/keepsake/contexts.toml"),
            // As the XDG specification says, a relative path is ignored.
            (Some("c"), "/h/.config/keepsake/contexts.toml"),
        ] {
            assert_eq!(place(Some("/h"), config).unwrap(), PathBuf::from(file));
        }
        assert!(place(None, None).is_err());
    }
}
