//! The database of an operator's command.

use std::path::PathBuf;
use std::sync::Once;

use keepsake_config::{Failure, IndexUrl, Settings, SourceArgs};
use keepsake_engine::Engine;

use crate::backends::Backends;
use crate::data_dir;
use crate::output::notice;

/// Some commands open the database twice.
static DEV_FOLDER_NAMED: Once = Once::new();

/// The configured database or, if no argument and no variable names one, that of `serve --dev`.
pub(super) struct CommandDatabase {
    pub(super) settings: Settings,
    /// The data folder, if the database is in one.
    folder: Option<PathBuf>,
    is_of_dev: bool,
}

impl CommandDatabase {
    /// Reads the configuration, and says where the database of `serve --dev` is if it is that one.
    pub(super) fn find(sources: SourceArgs) -> Result<Self, Failure> {
        let mut sources = sources.into_sources();
        let is_named = sources.file.is_some()
            || sources.data_dir.is_some()
            || sources.variables.iter().any(|(name, _)| name == "KEEPSAKE_INDEX_URL");
        // Without a home, the error of the configuration says how to name a database.
        if !is_named && let Ok(folder) = data_dir::default_folder() {
            let told = format!("using the database of `keepsake serve --dev` in {}", folder.display());
            DEV_FOLDER_NAMED.call_once(|| notice(&told));
            sources.data_dir = Some(folder);
        }
        let folder = sources.data_dir.clone();
        let settings = sources.merge().settings()?;
        Ok(Self { settings, folder, is_of_dev: !is_named })
    }

    /// Refuses a SQLite file that does not exist.
    pub(super) fn require_file(&self) -> Result<(), Failure> {
        match &self.settings.index.url {
            IndexUrl::Sqlite { file, .. } if !file.exists() => Err(Failure::not_found(format!(
                "there is no database: {} does not exist; --config, --data-dir or KEEPSAKE_INDEX_URL names another one",
                file.display()
            ))),
            IndexUrl::Sqlite { .. } | IndexUrl::Postgres(_) => Ok(()),
        }
    }

    /// An engine for one command. It has no requests to wait for, so callers only close the index.
    ///
    /// A configured SQLite file is created if it is missing.
    pub(super) async fn open(&self) -> Result<(Engine, Backends), Failure> {
        if self.is_of_dev {
            self.require_file()?;
        }
        let backends = Box::pin(Backends::open_for_command(&self.settings, self.folder.as_deref())).await?;
        Ok((backends.engine(&self.settings), backends))
    }
}
