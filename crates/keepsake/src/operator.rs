//! The operator's commands: the configuration, the schema, tenants, keys, jobs.

mod blobs;
mod connect;
mod jobs;
mod keys;
mod output;
mod target;
mod tenants;
mod token_keys;
mod verify;

use std::io::Write;

use keepsake_config::{Failure, SourceArgs};
use keepsake_engine::Engine;
use serde_json::json;

use crate::backends::{self, Backends};
use crate::cli::{CheckArgs, CreateStoreArgs, OpenapiArgs};
use crate::{data_dir, logs};

pub(crate) use blobs::run as move_blobs;
pub(crate) use jobs::run as run_job;
pub(crate) use keys::run as run_key;
pub(crate) use tenants::run as run_tenant;
pub(crate) use token_keys::run as run_token_key;
pub(crate) use verify::run as verify;

/// Prints the merged configuration and its problems; with `--connect`, also tests
/// both stores.
///
/// # Errors
/// [`Failure`] with every problem.
pub(crate) async fn check_config(args: CheckArgs) -> Result<(), Failure> {
    let merged = args.sources.into_sources().merge();
    print(&merged.to_toml())?;
    let settings = merged.settings()?;
    if args.connect {
        connect::check(&settings).await?;
    }
    Ok(())
}

/// Prints the OpenAPI document of the HTTP API or of the operator API.
///
/// # Errors
/// [`Failure`] if stdout is closed.
pub(crate) fn print_openapi(args: &OpenapiArgs) -> Result<(), Failure> {
    print(if args.admin {
        keepsake_server::operator_openapi()
    } else {
        keepsake_server::openapi()
    })
}

/// Migrates the database to the schema of this binary.
///
/// # Errors
/// [`Failure`] of the configuration or the database.
pub(crate) async fn migrate(args: SourceArgs) -> Result<(), Failure> {
    let folder = args.data_dir.clone();
    let url = args.into_sources().merge().migration()?;
    if let Some(folder) = &folder {
        data_dir::prepare(folder)?;
    }
    backends::migrate(&url).await?;
    print(&format!("the schema of {url} is up to date\n"))
}

/// Creates a memory store.
///
/// # Errors
/// [`Failure`] of the tenant or the database.
pub(crate) async fn create_store(args: CreateStoreArgs) -> Result<(), Failure> {
    let (engine, backends) = open(args.sources).await?;
    let made = engine.operator().create_store(args.tenant, &args.name).await;
    backends.index.close().await;
    let store = made.map_err(Failure::of("the memory store was not created"))?;
    if args.json {
        return print_json(&json!({
            "id": store.store_id,
            "workspace_id": args.tenant,
            "name": store.name,
            "created_at": store.created_at.to_rfc3339(),
        }));
    }
    print(&format!("created the memory store {}\n", store.store_id))
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
    let backends = Backends::open(&settings).await?;
    Ok((backends.engine(&settings), backends))
}

/// Prints to stdout; a closed pipe is an error instead of a panic.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    let mut stdout = std::io::stdout().lock();
    let written = stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush());
    written.map_err(Failure::of("stdout cannot be written"))
}

fn print_json(value: &serde_json::Value) -> Result<(), Failure> {
    print(&format!("{value}\n"))
}
