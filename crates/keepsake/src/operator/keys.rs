//! `keepsake key …`

use std::time::Duration;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, Subcommand};
use keepsake_client::Method;
use keepsake_config::Failure;
use keepsake_core::{ApiKeyId, StoreId, TenantId, Timestamp};
use keepsake_engine::{Clock, SystemClock};
use keepsake_index::Scope;
use serde_json::json;

use super::target::{Request, call, id_of, list};
use crate::cli::{PageArgs, TargetArgs};
use crate::output::{Column, Text, Time, confirm};

const DAY: Duration = Duration::from_hours(24);
/// The default scopes of a key, which an agent needs.
const DEFAULT_SCOPES: [Scope; 2] = [Scope::MemoryRead, Scope::MemoryWrite];
const COLUMNS: [Column; 7] = [
    ("ID", "/id", Text),
    ("NAME", "/name", Text),
    ("SCOPES", "/scopes", Text),
    ("STORES", "/memory_store_ids", Text),
    ("CREATED", "/created_at", Time),
    ("EXPIRES", "/expires_at", Time),
    ("REVOKED", "/revoked_at", Time),
];

#[derive(Debug, Subcommand)]
pub(crate) enum KeyCommand {
    /// Lists a tenant's API keys, newest first
    List(ListKeysArgs),
    /// Creates an API key and prints its secret, once
    Create(CreateKeyArgs),
    /// Revokes an API key permanently
    Revoke(RevokeKeyArgs),
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  keepsake key list --tenant wrkspc_… --config keepsake.toml")]
pub(crate) struct ListKeysArgs {
    #[command(flatten)]
    target: TargetArgs,
    #[command(flatten)]
    page: PageArgs,
    /// The tenant that the keys belong to: wrkspc_…
    #[arg(long, value_name = "ID")]
    tenant: TenantId,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  keepsake key create --tenant wrkspc_… --name fleet
  keepsake key create --tenant wrkspc_… --name reader --scope memory:read --store memstore_… --expires-in-days 30")]
pub(crate) struct CreateKeyArgs {
    #[command(flatten)]
    target: TargetArgs,
    /// The tenant that the key belongs to: wrkspc_…
    #[arg(long, value_name = "ID")]
    tenant: TenantId,
    /// A display name
    #[arg(long)]
    name: String,
    /// A scope of the key; may be repeated [default: memory:read and memory:write]
    #[arg(long = "scope", value_name = "SCOPE", value_parser = scopes())]
    scopes: Vec<Scope>,
    /// Limits the key to this store, memstore_…; may be repeated
    #[arg(long = "store", value_name = "ID")]
    stores: Vec<StoreId>,
    /// The number of days until the key expires
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=36_500))]
    expires_in_days: Option<u32>,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  keepsake key revoke --tenant wrkspc_… apikey_… --config keepsake.toml")]
pub(crate) struct RevokeKeyArgs {
    #[command(flatten)]
    target: TargetArgs,
    /// The tenant that the key belongs to: wrkspc_…
    #[arg(long, value_name = "ID")]
    tenant: TenantId,
    /// The key: apikey_…
    #[arg(value_name = "KEY")]
    key: ApiKeyId,
    /// Does not ask for confirmation
    #[arg(short, long)]
    yes: bool,
}

/// A parser whose help lists the scopes.
fn scopes() -> impl TypedValueParser<Value = Scope> {
    PossibleValuesParser::new(Scope::ALL.map(Scope::name)).try_map(|name| name.parse::<Scope>())
}

pub(crate) async fn run(command: KeyCommand) -> Result<(), Failure> {
    match command {
        KeyCommand::List(args) => {
            let tenant = args.tenant.to_string();
            let (path, shown) = (["tenants", &tenant, "api_keys"], (&COLUMNS[..], "there is no API key"));
            let failed = "the API keys cannot be listed";
            list(args.target, failed, &path, &[], args.page, shown).await
        }
        KeyCommand::Create(args) => create(args).await,
        KeyCommand::Revoke(args) => revoke(args).await,
    }
}

/// Creates an API key and prints its secret, once.
async fn create(args: CreateKeyArgs) -> Result<(), Failure> {
    let scopes = if args.scopes.is_empty() { DEFAULT_SCOPES.to_vec() } else { args.scopes };
    let expires_at = args.expires_in_days.map(|days| SystemClock.now().plus(DAY * days));
    let body = json!({
        "name": args.name,
        "scopes": scopes,
        "memory_store_ids": (!args.stores.is_empty()).then_some(args.stores),
        "expires_at": expires_at.map(Timestamp::to_rfc3339),
    });
    let tenant = args.tenant.to_string();
    let path = ["tenants", &tenant, "api_keys"];
    let request = Request::change(Method::POST, &path, Some(body));
    let (printer, made) = call(args.target, "the API key was not created", request).await?;
    printer.done(&made, || {
        format!(
            "created the API key {} for {tenant}; this is its secret, which is not shown again:\n\n{}\n",
            id_of(&made),
            made["api_key"].as_str().unwrap_or_default(),
        )
    })
}

async fn revoke(args: RevokeKeyArgs) -> Result<(), Failure> {
    let (tenant, key) = (args.tenant.to_string(), args.key.to_string());
    confirm(&format!("Revoke the API key {key}, permanently?"), args.yes)?;
    let path = ["tenants", &tenant, "api_keys", &key, "revoke"];
    let request = Request::change(Method::POST, &path, None);
    let (printer, revoked) = call(args.target, "the API key was not revoked", request).await?;
    printer.done(&revoked, || format!("revoked the API key {}\n", id_of(&revoked)))
}
