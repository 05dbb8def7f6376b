//! The operator's commands: the configuration, the schema, the model, tenants, keys, jobs.

pub(crate) mod backup;
pub(crate) mod blobs;
pub(crate) mod check;
pub(crate) mod jobs;
pub(crate) mod model;
pub(crate) mod target;
pub(crate) mod tenants;
pub(crate) mod token_keys;
pub(crate) mod verify;

use clap::Args;
use keepsake_config::{Failure, SourceArgs};
use keepsake_core::TenantId;
use keepsake_engine::{Engine, StoreDraft};
use keepsake_index::{Auditor, MigrationReport};
use serde_json::json;

use crate::backends::{self, Backends};
use crate::data_dir;
use crate::failures::class_of_engine;
use crate::output::{Printer, counted, print};

#[derive(Debug, Args)]
pub(crate) struct OpenapiArgs {
    /// The document of the operator API
    #[arg(long)]
    admin: bool,
}

pub(crate) fn print_openapi(args: &OpenapiArgs) -> Result<(), Failure> {
    print(if args.admin { keepsake_server::operator_openapi() } else { keepsake_server::openapi() })
}

/// Migrates the database to the schema of this binary, and says what changed.
pub(crate) async fn migrate(args: SourceArgs) -> Result<(), Failure> {
    let folder = args.data_dir.clone();
    let url = args.into_sources().merge().migration()?;
    if let Some(folder) = &folder {
        data_dir::prepare(folder)?;
    }
    print(&match backends::migrate(&url).await? {
        MigrationReport { is_new: true, .. } => format!("created the schema in {url}\n"),
        MigrationReport { applied: 0, .. } => format!("the schema in {url} is up to date\n"),
        MigrationReport { applied, .. } => {
            format!("applied {} to {url}\n", counted(applied as u64, "migration"))
        }
    })
}

/// Creates a memory store in the database.
pub(crate) async fn create_store(
    sources: SourceArgs,
    tenant_id: TenantId,
    name: String,
    printer: &Printer,
) -> Result<(), Failure> {
    let (engine, backends) = open(sources).await?;
    let draft = StoreDraft { name, ..StoreDraft::default() };
    let made = match engine.tenants.operator(tenant_id, Auditor::OperatorCli).await {
        Ok(operator) => engine.stores.create(&operator, draft, None).await,
        Err(error) => Err(error),
    };
    backends.index.close().await;
    let store = made.map_err(|error| {
        Failure::of_class(class_of_engine(&error), error.to_string())
            .within("the memory store was not created")
    })?;
    let object = json!({
        "id": store.store_id,
        "tenant_id": tenant_id,
        "name": store.name,
        "created_at": store.created_at.to_rfc3339(),
    });
    printer.done(&object, || format!("created the memory store {}\n", store.store_id))
}

/// An engine for one command. It has no requests to wait for, so callers only
/// close the index.
async fn open(sources: SourceArgs) -> Result<(Engine, Backends), Failure> {
    let folder = sources.data_dir.clone();
    let settings = sources.into_sources().merge().settings()?;
    let backends = Backends::open_for_command(&settings, folder.as_deref()).await?;
    Ok((backends.engine(&settings), backends))
}
