//! The operator's commands: the configuration, the schema, tenants and keys.

use std::io::Write;
use std::time::Duration;

use keepsake_core::Timestamp;
use keepsake_engine::{Clock, Engine, NewKey, NewTenant, SystemClock};
use keepsake_index::Scope;
use serde_json::json;

use crate::backends::{self, Backends};
use crate::cli::{CreateKeyArgs, CreateStoreArgs, CreateTenantArgs, SourceArgs, to_overrides};
use crate::failure::Failure;
use crate::{data_dir, logs};

const DAY: Duration = Duration::from_hours(24);
/// What a key may do that was given no scope: what an agent needs.
const DEFAULT_SCOPES: [Scope; 2] = [Scope::MemoryRead, Scope::MemoryWrite];

/// Prints the merged configuration, then says what is wrong with it.
///
/// # Errors
/// [`Failure`] with every problem.
pub(crate) fn check_config(args: SourceArgs) -> Result<(), Failure> {
    let merged = args.into_sources().merge();
    print(&merged.to_toml())?;
    merged.settings()?;
    Ok(())
}

/// Prints the OpenAPI document of the HTTP API.
///
/// # Errors
/// [`Failure`] when there is nobody to print it to.
pub(crate) fn print_openapi() -> Result<(), Failure> {
    print(keepsake_server::openapi())
}

/// Brings the schema to what this binary needs.
///
/// # Errors
/// [`Failure`] when the configuration or the database does not allow it.
pub(crate) async fn migrate(args: SourceArgs) -> Result<(), Failure> {
    let folder = args.data_dir.clone();
    let url = args.into_sources().merge().migration()?;
    if let Some(folder) = &folder {
        data_dir::prepare(folder)?;
    }
    backends::migrate(&url).await?;
    print(&format!("the schema of {url} is up to date\n"))
}

/// Makes a tenant.
///
/// # Errors
/// [`Failure`] when the name, the external id or the database does not allow it.
pub(crate) async fn create_tenant(args: CreateTenantArgs) -> Result<(), Failure> {
    let limits = to_overrides(&args.limits).map_err(Failure::new)?;
    let (engine, backends) = open(args.sources).await?;
    let new = NewTenant {
        name: args.name,
        external_id: args.external_id,
        limits,
    };
    let made = engine.operator().create_tenant(new).await;
    backends.index.close().await;
    let tenant = made.map_err(Failure::of("the tenant was not made"))?;
    if args.json {
        return print_json(&json!({
            "id": tenant.tenant_id,
            "name": tenant.name,
            "external_id": tenant.external_id,
            "limits": tenant.limits,
            "created_at": tenant.created_at.to_rfc3339(),
        }));
    }
    print(&format!("made the tenant {}\n", tenant.tenant_id))
}

/// Makes an API key and prints its secret, once.
///
/// # Errors
/// [`Failure`] when there is no such tenant, or the database does not allow it.
pub(crate) async fn create_key(args: CreateKeyArgs) -> Result<(), Failure> {
    let (engine, backends) = open(args.sources).await?;
    let new = NewKey {
        tenant_id: args.tenant,
        name: args.name,
        scopes: if args.scopes.is_empty() {
            DEFAULT_SCOPES.to_vec()
        } else {
            args.scopes
        },
        store_ids: if args.stores.is_empty() {
            None
        } else {
            Some(args.stores)
        },
        expires_at: args
            .expires_in_days
            .map(|days| SystemClock.now().plus(DAY * days)),
    };
    let made = engine.operator().create_key(new).await;
    backends.index.close().await;
    let (key, secret) = made.map_err(Failure::of("the API key was not made"))?;
    if args.json {
        return print_json(&json!({
            "id": key.api_key_id,
            "workspace_id": key.tenant_id,
            "name": key.name,
            "scopes": key.scopes,
            "memory_store_ids": key.store_ids,
            "created_at": key.created_at.to_rfc3339(),
            "expires_at": key.expires_at.map(Timestamp::to_rfc3339),
            "api_key": secret.expose(),
        }));
    }
    print(&format!(
        "made the API key {} for {}; this is its secret, which is not shown again:\n\n{}\n",
        key.api_key_id,
        key.tenant_id,
        secret.expose()
    ))
}

/// Makes a memory store.
///
/// # Errors
/// [`Failure`] when the tenant or the database does not allow it.
pub(crate) async fn create_store(args: CreateStoreArgs) -> Result<(), Failure> {
    let (engine, backends) = open(args.sources).await?;
    let made = engine.operator().create_store(args.tenant, &args.name).await;
    backends.index.close().await;
    let store = made.map_err(Failure::of("the memory store was not made"))?;
    if args.json {
        return print_json(&json!({
            "id": store.store_id,
            "workspace_id": args.tenant,
            "name": store.name,
            "created_at": store.created_at.to_rfc3339(),
        }));
    }
    print(&format!("made the memory store {}\n", store.store_id))
}

/// An engine for one command; it serves nobody, so only its index is closed.
async fn open(sources: SourceArgs) -> Result<(Engine, Backends), Failure> {
    let folder = sources.data_dir.clone();
    let settings = sources.into_sources().merge().settings()?;
    logs::start(&settings.log);
    if let Some(folder) = &folder {
        data_dir::prepare(folder)?;
    }
    let backends = Backends::open(&settings).await?;
    Ok((backends.engine(&settings), backends))
}

/// Prints to stdout; a reader that went away is an error, not a panic.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    let mut stdout = std::io::stdout().lock();
    let written = stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush());
    written.map_err(Failure::of("stdout cannot be written"))
}

fn print_json(value: &serde_json::Value) -> Result<(), Failure> {
    print(&format!("{value}\n"))
}
