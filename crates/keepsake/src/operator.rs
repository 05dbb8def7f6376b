//! The operator's commands: the configuration, the schema, tenants, keys, jobs.

mod blobs;
mod check;
mod jobs;
mod keys;
mod target;
mod tenants;
mod token_keys;
mod verify;

use keepsake_config::{Failure, SourceArgs};
use keepsake_engine::{Engine, StoreDraft};
use keepsake_index::{Auditor, Migrated};
use keepsake_telemetry::Metrics;
use serde_json::json;

use crate::backends::{self, Backends};
use crate::cli::{CreateStoreArgs, OpenapiArgs};
use crate::failures::class_of_engine;
use crate::output::{Printer, counted, print};
use crate::{data_dir, logs};

pub(crate) use blobs::run as move_blobs;
pub(crate) use check::run as check_config;
pub(crate) use jobs::run as run_job;
pub(crate) use keys::run as run_key;
pub(crate) use tenants::run as run_tenant;
pub(crate) use token_keys::run as run_token_key;
pub(crate) use verify::run as verify;

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
        Migrated { is_new: true, .. } => format!("created the schema in {url}\n"),
        Migrated { applied: 0, .. } => format!("the schema in {url} is up to date\n"),
        Migrated { applied, .. } => {
            format!("applied {} to {url}\n", counted(applied as u64, "migration"))
        }
    })
}

/// Creates a memory store in the database.
pub(crate) async fn create_store(args: CreateStoreArgs) -> Result<(), Failure> {
    let Some(tenant_id) = args.operator.tenant else {
        return Err(Failure::usage("--tenant is missing"));
    };
    args.connection.server.refuse_beside("--tenant")?;
    let (engine, backends) = open(args.operator.sources).await?;
    let draft = StoreDraft { name: args.name.clone(), ..StoreDraft::default() };
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
        "workspace_id": tenant_id,
        "name": store.name,
        "created_at": store.created_at.to_rfc3339(),
    });
    Printer::new(args.connection.output.output)
        .done(&object, || format!("created the memory store {}\n", store.store_id))
}

/// An engine for one command. It has no requests to wait for, so callers only
/// close the index.
async fn open(sources: SourceArgs) -> Result<(Engine, Backends), Failure> {
    let folder = sources.data_dir.clone();
    let settings = sources.into_sources().merge().settings()?;
    logs::start(&settings.log, None);
    if let Some(folder) = &folder {
        data_dir::prepare(folder)?;
    }
    let backends = Backends::open(&settings, Metrics::default()).await?;
    Ok((backends.engine(&settings), backends))
}
