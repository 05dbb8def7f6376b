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
use keepsake_config::{Failure, SourceArgs, cli::Result};
use keepsake_engine::StoreDraft;
use keepsake_index::{Auditor, MigrationReport};
use serde_json::json;

use crate::backends;
use crate::data_dir;
use crate::failures::of_engine;
use crate::output::{Printer, counted, named, print};
use target::{CommandDatabase, OperatorApi};

#[derive(Debug, Args)]
pub(crate) struct MigrateArgs {
    #[command(flatten)]
    sources: SourceArgs,
    /// Distributes the tables over the nodes of Citus; the URL is that of the coordinator
    #[arg(long)]
    distributed: bool,
}

/// Migrates the database to the schema of this binary, and says what changed.
pub(crate) async fn migrate(args: MigrateArgs) -> Result<()> {
    let MigrateArgs { sources, distributed } = args;
    let folder = sources.data_dir.clone();
    let url = sources.into_sources().merge().migration()?;
    if let Some(folder) = &folder {
        data_dir::prepare(folder)?;
    }
    print(&match backends::migrate(&url, distributed).await? {
        MigrationReport { is_new: true, .. } => format!("created the schema in {url}\n"),
        MigrationReport { applied: 0, .. } => format!("the schema in {url} is up to date\n"),
        MigrationReport { applied, .. } => {
            format!("applied {} to {url}\n", counted(applied as u64, "migration"))
        }
    })
}

/// Creates a memory store in the database, for a tenant that is given by its id or a name.
pub(crate) async fn create_store(
    sources: SourceArgs,
    tenant: &str,
    name: String,
    printer: &Printer,
) -> Result<()> {
    let (engine, backends) = CommandDatabase::find(sources)?.open().await?;
    let database = OperatorApi::Database { engine: engine.clone(), backends: Box::new(backends) };
    let made = async {
        let tenant_id =
            database.find_tenant(tenant).await?.parse().map_err(Failure::of("the tenant's id"))?;
        let operator = engine.tenants.operator(tenant_id, Auditor::OperatorCli).await.map_err(of_engine)?;
        let draft = StoreDraft { name, ..StoreDraft::default() };
        let store = engine.stores.create(&operator, draft, None).await.map_err(of_engine)?;
        Ok::<_, Failure>((tenant_id, store))
    };
    let made = made.await;
    database.close().await;
    let (tenant_id, store) = made.map_err(|failure| failure.within("the memory store was not created"))?;
    let object = json!({
        "id": store.store_id,
        "tenant_id": tenant_id,
        "name": store.name,
        "created_at": store.created_at.to_rfc3339(),
    });
    printer.done(&object, || format!("created the memory store {}\n", named(&object)))
}
