//! The configuration: defaults, a TOML file, variables, then flags.
//!
//! [`Sources`] says where to look, [`Merged`] holds what was found with the
//! origin of every value, [`Settings`] is what a server runs with. Whatever is
//! wrong is reported at once, each problem with its key and where it came
//! from. No value is ever quoted, so that no message shows a secret.

mod issuers;
mod keys;
mod layers;
mod print;
mod problem;
mod reader;
mod rules;
mod secrets;
mod settings;
mod telemetry;
#[cfg(test)]
mod tests;
mod url;

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use config::Config;

use keys::Key;
use layers::Layer;
pub(crate) use problem::{ConfigError, Problem};
pub(crate) use reader::MAX_NUMBER;
use reader::Reader;
pub(crate) use settings::{IndexSettings, LogFormat, LogSettings, OperatorSettings, Role, Settings};
pub(crate) use url::IndexUrl;

/// The index's file below a data folder.
const INDEX_FILE: &str = "index.db";
/// The blobs' folder below a data folder.
const BLOBS_FOLDER: &str = "blobs";

/// Where to look for values; later fields win over earlier ones.
#[derive(Debug, Default)]
pub(crate) struct Sources {
    /// A TOML file.
    pub(crate) file: Option<PathBuf>,
    /// The variables of the environment.
    pub(crate) variables: Vec<(OsString, OsString)>,
    /// A folder for the index and the blobs: `--data-dir`.
    pub(crate) data_dir: Option<PathBuf>,
    /// `--listen`
    pub(crate) listen: Option<String>,
    /// `--role`
    pub(crate) role: Option<Role>,
}

/// What the sources say together, every value with its origin.
///
/// Has no `Debug`: it holds secrets as plain text.
pub(crate) struct Merged {
    keys: Vec<Key>,
    config: Config,
    /// What was wrong with the sources themselves.
    problems: Vec<Problem>,
}

impl Sources {
    /// Reads every source and merges them.
    pub(crate) fn merge(self) -> Merged {
        let mut keys = keys::all();
        let mut problems = Vec::new();
        let mut builder = Config::builder().add_source(Layer::defaults(&keys));
        if let Some(file) = &self.file {
            builder = builder.add_source(Layer::of_file(file, &keys, &mut problems));
        }
        let builder = builder
            .add_source(Layer::of_variables(self.variables, &keys, &mut problems))
            .add_source(flags(
                self.data_dir.as_deref(),
                self.listen,
                self.role,
                &mut problems,
            ));
        let config = builder.build().unwrap_or_else(|error| {
            problems.push(Problem::new(error.to_string()));
            Config::default()
        });
        let issuers = reader::count(&config, issuers::ISSUERS).unwrap_or_default();
        keys.extend((0..issuers).flat_map(keys::of_issuer));
        Merged {
            keys,
            config,
            problems,
        }
    }
}

fn flags(
    data_dir: Option<&Path>,
    listen: Option<String>,
    role: Option<Role>,
    problems: &mut Vec<Problem>,
) -> Layer {
    let mut layer = Layer::default();
    if let Some(folder) = data_dir {
        match urls_below(folder) {
            Ok((index_url, blobs_url)) => {
                layer.set("index.url", "--data-dir", index_url);
                layer.set("blobs.url", "--data-dir", blobs_url);
            }
            Err(why) => {
                let text = format!("the folder {} (--data-dir) {why}", folder.display());
                problems.push(Problem::new(text));
            }
        }
    }
    if let Some(listen) = listen {
        layer.set("server.listen", "--listen", listen);
    }
    if let Some(role) = role {
        layer.set("role", "--role", role.name());
    }
    layer
}

/// The URLs of the index and the blobs of a data folder.
fn urls_below(folder: &Path) -> Result<(String, String), String> {
    let folder = std::path::absolute(folder).map_err(|error| format!("cannot be used: {error}"))?;
    let index_url = IndexUrl::of_file(&folder.join(INDEX_FILE))?;
    let blobs_url = format!("file://{}", url::encode_path(&folder.join(BLOBS_FOLDER))?);
    Ok((index_url, blobs_url))
}

impl Merged {
    /// What a server or an operator's command runs with.
    ///
    /// # Errors
    /// Everything that is wrong.
    pub(crate) fn settings(&self) -> Result<Settings, ConfigError> {
        let mut reader = Reader::new(&self.config, self.problems.clone());
        reader.require(
            "index.url",
            "set it to sqlite:///path/to/index.db or postgres://user:password@host/database",
        );
        reader.require(
            "blobs.url",
            "set it to file:///path/to/folder or s3://bucket/prefix",
        );
        let settings = settings::read(&mut reader);
        settings::check_together(&mut reader, settings.as_ref());
        finish(reader, settings)
    }

    /// The database to migrate; the rest of the configuration may be missing.
    ///
    /// # Errors
    /// Everything that is wrong with the sources and the URL.
    pub(crate) fn migration(&self) -> Result<IndexUrl, ConfigError> {
        let mut reader = Reader::new(&self.config, self.problems.clone());
        let key = if reader.is_set("index.migrate_url") {
            "index.migrate_url"
        } else {
            "index.url"
        };
        reader.require(key, "set it, or index.migrate_url, to the database to migrate");
        let url = reader.get(key, settings::index_url);
        finish(reader, url)
    }
}

fn finish<T>(reader: Reader<'_>, value: Option<T>) -> Result<T, ConfigError> {
    match (value, reader.into_problems()) {
        (Some(value), problems) if problems.is_empty() => Ok(value),
        (_, problems) if problems.is_empty() => Err(ConfigError(vec![Problem::new(
            "the configuration is not complete",
        )])),
        (_, problems) => Err(ConfigError(problems)),
    }
}
