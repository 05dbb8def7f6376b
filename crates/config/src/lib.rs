//! The configuration: defaults, then a TOML file, then variables, then flags.
//!
//! [`Sources`] names the places, [`Sources::merge`] reads them, and [`MergedConfig`]
//! has the [`Settings`] or everything that is wrong. The `read` functions in
//! `sections` name the keys, their defaults and checks; there is no other list of
//! keys. No message quotes a value, which may be a secret.
//!
//! The crate has its own reader, because libraries that merge sources report only
//! the first problem, or not the line of a value in a file.

mod checks;
pub mod cli;
mod file;
mod reader;
mod sections;
#[cfg(test)]
mod tests;

use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};

pub use cli::{Failure, FailureClass, SourceArgs};
use keepsake_blobs::BlobUrl;
use reader::Reader;
pub use sections::{
    BlobSettings, IndexSettings, IndexUrl, LogFormat, LogSettings, Meaning, OperatorSettings, Role,
    SearchSettings, ServerSettings, Settings,
};
use sections::{encode_path, index_url, read_model_path};

/// The index's file in a data folder.
const INDEX_FILE: &str = "index.db";

/// Where values come from; later fields override earlier ones.
#[derive(Debug, Default)]
pub struct Sources {
    pub file: Option<PathBuf>,
    pub variables: Vec<(OsString, OsString)>,
    /// A folder for the index, which then also has the content: `--data-dir`.
    pub data_dir: Option<PathBuf>,
    pub listen: Option<String>,
    pub log_filter: Option<String>,
    pub default_log_filter: Option<&'static str>,
    pub role: Option<Role>,
}

impl Sources {
    pub fn merge(self) -> MergedConfig {
        let mut reader = Reader::default();
        if let Some(path) = &self.file {
            file::read(path, &mut reader);
        }
        reader.set_variables(self.variables);
        if let Some(folder) = &self.data_dir {
            match index_url_in(folder) {
                Ok(url) => {
                    reader.set_flag("index.url", "--data-dir", url);
                    reader.set_flag("blobs.url", "--data-dir", BlobUrl::Index.to_string());
                }
                Err(rule) => {
                    reader.source_problem(format!("the folder {} (--data-dir) {rule}", folder.display()));
                }
            }
        }
        if let Some(listen) = self.listen {
            reader.set_flag("server.listen", "--listen", listen);
        }
        if let Some(filter) = self.log_filter {
            reader.set_flag("log.filter", "--log", filter);
        } else if let Some(filter) = self.default_log_filter.filter(|_| !reader.is_set("log.filter")) {
            reader.set_flag("log.filter", "--dev", filter.to_owned());
        }
        if let Some(role) = self.role {
            reader.set_flag("role", "--role", role.name().to_owned());
        }
        let settings = Settings::read(&mut reader);
        reader.refuse_unknown();
        MergedConfig { reader, settings }
    }
}

fn index_url_in(folder: &Path) -> Result<String, String> {
    let folder = std::path::absolute(folder).map_err(|error| format!("cannot be used: {error}"))?;
    Ok(format!("sqlite://{}", encode_path(&folder.join(INDEX_FILE))?))
}

/// The merged values with their origins, and all problems.
///
/// Has no `Debug`: it holds secrets as plain text.
pub struct MergedConfig {
    reader: Reader,
    settings: Settings,
}

impl MergedConfig {
    pub fn settings(&self) -> Result<Settings, ConfigError> {
        complete(&self.reader, Some(self.settings.clone()))
    }

    /// The database to migrate; the other keys may be missing or wrong.
    pub fn migration(&self) -> Result<IndexUrl, ConfigError> {
        let mut reader = self.reader.unread();
        let key = if reader.is_set("index.migrate_url") { "index.migrate_url" } else { "index.url" };
        reader.require(
            key,
            "set it, or index.migrate_url, to the database to migrate, in the file of --config or as \
             KEEPSAKE_INDEX_URL; or name a data folder with --data-dir",
        );
        let url = reader.url(key, None, index_url);
        complete(&reader, url)
    }

    /// The folder of the embedded model; the other keys may be missing or wrong. `None` if
    /// neither it nor an index is configured.
    pub fn model_path(&self) -> Result<Option<PathBuf>, ConfigError> {
        let mut reader = self.reader.unread();
        if !reader.is_set("search.model_path") && !reader.is_set("index.url") {
            return complete(&reader, Some(None));
        }
        // A wrong URL does not matter if the folder is set.
        let url =
            if reader.is_set("search.model_path") { None } else { reader.url("index.url", None, index_url) };
        let folder = read_model_path(&mut reader, url.as_ref());
        complete(&reader, Some(Some(folder)))
    }

    /// TOML of every key that has a value, with its origin as a comment.
    ///
    /// Secrets are hidden. A bad value is shown only if no value of its key is
    /// a secret.
    pub fn to_toml(&self) -> String {
        self.reader.to_toml()
    }

    /// The keys that have a value, each with its value as TOML and its origin. Hides the
    /// same values as [`MergedConfig::to_toml`].
    pub fn values(&self) -> impl Iterator<Item = (&str, &str, &str)> {
        self.reader.values()
    }
}

fn complete<T>(reader: &Reader, value: Option<T>) -> Result<T, ConfigError> {
    let problems = reader.problems();
    match value {
        Some(value) if problems.is_empty() => Ok(value),
        _ => Err(ConfigError(problems)),
    }
}

/// Everything that is wrong with a configuration: one sentence for each problem, none of which
/// quotes a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigError(Vec<String>);

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.as_slice() {
            [problem] => f.write_str(problem),
            problems => {
                write!(f, "the configuration has {} problems:", problems.len())?;
                problems.iter().try_for_each(|problem| write!(f, "\n  {problem}"))
            }
        }
    }
}
