//! Arguments of the operator's commands for tenants and keys.

use std::path::PathBuf;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, Subcommand};
use keepsake_config::{MAX_NUMBER, SourceArgs};
use keepsake_core::limits::LimitOverrides;
use keepsake_core::{ApiKeyId, Limits, StoreId, TenantId};
use keepsake_index::Scope;

use super::OutputArgs;

#[derive(Debug, Subcommand)]
pub(crate) enum TenantCommand {
    /// Lists tenants, newest first
    List(ListTenantsArgs),
    /// Shows a tenant
    #[command(after_help = "Examples:
  keepsake tenant get wrkspc_… --config keepsake.toml")]
    Get(TenantArgs),
    /// Creates a tenant
    Create(CreateTenantArgs),
    /// Changes a tenant's names and limits
    Update(UpdateTenantArgs),
    /// Suspends a tenant; its data is kept
    #[command(after_help = "Examples:
  keepsake tenant suspend wrkspc_… --config keepsake.toml")]
    Suspend(TenantArgs),
    /// Resumes a suspended tenant
    #[command(after_help = "Examples:
  keepsake tenant resume wrkspc_… --config keepsake.toml")]
    Resume(TenantArgs),
    /// Deletes a tenant and all its data permanently
    Delete(DeleteTenantArgs),
    /// Shows the progress of a tenant's deletion
    #[command(after_help = "Examples:
  keepsake tenant deletion wrkspc_… --config keepsake.toml")]
    Deletion(TenantArgs),
    /// Shows a tenant's usage and limits
    #[command(after_help = "Examples:
  keepsake tenant usage wrkspc_… --config keepsake.toml")]
    Usage(TenantArgs),
    /// Lists the audit of a tenant or of the operator, newest first
    Audit(AuditArgs),
}

#[derive(Debug, Subcommand)]
pub(crate) enum KeyCommand {
    /// Lists a tenant's API keys, newest first
    List(ListKeysArgs),
    /// Creates an API key and prints its secret, once
    Create(CreateKeyArgs),
    /// Revokes an API key permanently
    Revoke(RevokeKeyArgs),
}

#[derive(Debug, Subcommand)]
pub(crate) enum TokenKeyCommand {
    /// Rotates the token signing key
    Rotate(RotateTokenKeyArgs),
}

/// The database or the server that a command uses.
#[derive(Debug, Args)]
pub(crate) struct TargetArgs {
    #[command(flatten)]
    pub(crate) sources: SourceArgs,
    /// The URL of a server's operator listener, instead of the database; the token is in `KEEPSAKE_OPERATOR_TOKEN`
    #[arg(long, value_name = "URL", conflicts_with_all = ["config", "data_dir"])]
    pub(crate) server: Option<String>,
    /// A file with the operator's token
    #[arg(long, value_name = "FILE", requires = "server")]
    pub(crate) token_file: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

/// The page of a list.
#[derive(Debug, Args)]
pub(crate) struct PageArgs {
    /// Number of items, 1 to 100 [default: 20]
    #[arg(long = "limit", value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100))]
    pub(crate) limit: Option<u32>,
    /// The `next_page` of the previous page
    #[arg(long, value_name = "CURSOR")]
    pub(crate) page: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct TenantArgs {
    #[command(flatten)]
    pub(crate) target: TargetArgs,
    /// The tenant: wrkspc_…
    #[arg(value_name = "ID")]
    pub(crate) tenant: TenantId,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  keepsake tenant list --config keepsake.toml
  keepsake tenant list --server http://127.0.0.1:8081 --external-id acme -o json")]
pub(crate) struct ListTenantsArgs {
    #[command(flatten)]
    pub(crate) target: TargetArgs,
    #[command(flatten)]
    pub(crate) page: PageArgs,
    /// Only the tenant with this external id
    #[arg(long, value_name = "ID")]
    pub(crate) external_id: Option<String>,
}

#[derive(Debug, Args)]
#[command(after_help = limits_after("Examples:
  keepsake tenant create --name acme --config keepsake.toml
  keepsake tenant create --name acme --external-id 42 --limit memories_per_store=5000 -o json"))]
pub(crate) struct CreateTenantArgs {
    #[command(flatten)]
    pub(crate) target: TargetArgs,
    /// A display name
    #[arg(long)]
    pub(crate) name: String,
    /// Your id for the tenant, unique
    #[arg(long, value_name = "ID")]
    pub(crate) external_id: Option<String>,
    /// A limit that differs from the configured one; may be repeated
    #[arg(long = "limit", value_name = "KEY=VALUE", value_parser = parse_limit)]
    pub(crate) limits: Vec<(String, u64)>,
}

#[derive(Debug, Args)]
#[command(after_help = limits_after("Examples:
  keepsake tenant update wrkspc_… --limit bytes_per_store=1073741824
  keepsake tenant update wrkspc_… --default-limit bytes_per_store --no-external-id"))]
pub(crate) struct UpdateTenantArgs {
    #[command(flatten)]
    pub(crate) target: TargetArgs,
    /// The tenant: wrkspc_…
    #[arg(value_name = "ID")]
    pub(crate) tenant: TenantId,
    /// A display name
    #[arg(long)]
    pub(crate) name: Option<String>,
    /// Your id for the tenant, unique
    #[arg(long, value_name = "ID")]
    pub(crate) external_id: Option<String>,
    /// Removes your id for the tenant
    #[arg(long, conflicts_with = "external_id")]
    pub(crate) no_external_id: bool,
    /// A limit that differs from the configured one; may be repeated
    #[arg(long = "limit", value_name = "KEY=VALUE", value_parser = parse_limit)]
    pub(crate) limits: Vec<(String, u64)>,
    /// A limit to reset to the configured one; may be repeated
    #[arg(long = "default-limit", value_name = "KEY", value_parser = parse_limit_name)]
    pub(crate) default_limits: Vec<String>,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  keepsake tenant delete wrkspc_… --server http://127.0.0.1:8081
  keepsake tenant deletion wrkspc_… --server http://127.0.0.1:8081")]
pub(crate) struct DeleteTenantArgs {
    #[command(flatten)]
    pub(crate) target: TargetArgs,
    /// The tenant: wrkspc_…
    #[arg(value_name = "ID")]
    pub(crate) tenant: TenantId,
    /// Does not ask for confirmation
    #[arg(short, long)]
    pub(crate) yes: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  keepsake tenant audit --config keepsake.toml
  keepsake tenant audit wrkspc_… --limit 100 -o jsonl")]
pub(crate) struct AuditArgs {
    #[command(flatten)]
    pub(crate) target: TargetArgs,
    #[command(flatten)]
    pub(crate) page: PageArgs,
    /// The tenant, wrkspc_…; without it, the operator's audit
    #[arg(value_name = "ID")]
    pub(crate) tenant: Option<TenantId>,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  keepsake key list --tenant wrkspc_… --config keepsake.toml")]
pub(crate) struct ListKeysArgs {
    #[command(flatten)]
    pub(crate) target: TargetArgs,
    #[command(flatten)]
    pub(crate) page: PageArgs,
    /// The tenant that the keys belong to: wrkspc_…
    #[arg(long, value_name = "ID")]
    pub(crate) tenant: TenantId,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  keepsake key create --tenant wrkspc_… --name fleet
  keepsake key create --tenant wrkspc_… --name reader --scope memory:read --store memstore_… --expires-in-days 30")]
pub(crate) struct CreateKeyArgs {
    #[command(flatten)]
    pub(crate) target: TargetArgs,
    /// The tenant that the key belongs to: wrkspc_…
    #[arg(long, value_name = "ID")]
    pub(crate) tenant: TenantId,
    /// A display name
    #[arg(long)]
    pub(crate) name: String,
    /// A scope of the key; may be repeated [default: memory:read and memory:write]
    #[arg(long = "scope", value_name = "SCOPE", value_parser = scopes())]
    pub(crate) scopes: Vec<Scope>,
    /// Limits the key to this store, memstore_…; may be repeated
    #[arg(long = "store", value_name = "ID")]
    pub(crate) stores: Vec<StoreId>,
    /// The number of days until the key expires
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=36_500))]
    pub(crate) expires_in_days: Option<u32>,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  keepsake key revoke --tenant wrkspc_… apikey_… --config keepsake.toml")]
pub(crate) struct RevokeKeyArgs {
    #[command(flatten)]
    pub(crate) target: TargetArgs,
    /// The tenant that the key belongs to: wrkspc_…
    #[arg(long, value_name = "ID")]
    pub(crate) tenant: TenantId,
    /// The key: apikey_…
    #[arg(value_name = "KEY")]
    pub(crate) key: ApiKeyId,
    /// Does not ask for confirmation
    #[arg(short, long)]
    pub(crate) yes: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  keepsake token-key rotate --server http://127.0.0.1:8081
  keepsake token-key rotate --compromised --yes --config keepsake.toml")]
pub(crate) struct RotateTokenKeyArgs {
    #[command(flatten)]
    pub(crate) target: TargetArgs,
    /// Also rejects every token signed before: the old key may be compromised
    #[arg(long)]
    pub(crate) compromised: bool,
    /// Does not ask for confirmation of --compromised
    #[arg(short, long)]
    pub(crate) yes: bool,
}

/// A parser whose help lists the scopes.
fn scopes() -> impl TypedValueParser<Value = Scope> {
    PossibleValuesParser::new(Scope::ALL.map(Scope::name)).try_map(|name| name.parse::<Scope>())
}

/// Examples, and the names of all limits.
fn limits_after(examples: &str) -> String {
    let limits = serde_json::to_value(Limits::default()).unwrap_or_default();
    let mut names: Vec<_> = limits.as_object().into_iter().flatten().map(|(name, _)| name.as_str()).collect();
    names.push("expires_unused_after");
    format!("{examples}\n\nLimits:\n  {}", names.join("\n  "))
}

fn parse_limit(text: &str) -> Result<(String, u64), String> {
    let (name, value) = text.split_once('=').ok_or("a limit is given as KEY=VALUE")?;
    let value = value.parse().ok().filter(|value| *value <= MAX_NUMBER);
    let value = value.ok_or_else(|| format!("a limit is a whole number up to {MAX_NUMBER}"))?;
    check_limit(name, value)?;
    Ok((name.to_owned(), value))
}

fn parse_limit_name(name: &str) -> Result<String, String> {
    check_limit(name, 0)?;
    Ok(name.to_owned())
}

/// Checks that a limit of this name exists.
fn check_limit(name: &str, value: u64) -> Result<(), String> {
    let limits = serde_json::json!({ name: value });
    let known = serde_json::from_value::<LimitOverrides>(limits);
    known.map(|_| ()).map_err(|error| error.to_string())
}
